"""Suggestions for misspelled words: options, commands, keys of plans, values, columns.

`nearest` returns the allowed word that is probably meant. Errors and the command line build on it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SYNONYMS = {
    "accountant": "account",
    "adaptive": "pure",
    "batch": "batch-size",
    "client": "join",
    "dataloader": "shuffle",
    "device": "join",
    "device-fleet": "fleet",
    "dp-sgd": "poisson",
    "eps": "epsilon",
    "epsilon": "account",
    "frequency": "frequencies",
    "histogram": "frequencies",
    "learn": "train",
    "loader": "shuffle",
    "multiplier": "noise-multiplier",
    "noise": "noise-multiplier",
    "normal": "gaussian",
    "price": "account",
    "privacy": "account",
    "random-allocation": "check-in",
    "random-check-in": "check-in",
    "randomized-response": "kary-response",
    "remove": "add-remove",
    "replace": "replace-one",
    "sample-rate": "rate",
    "sampling-rate": "rate",
    "server": "serve",
    "sigma": "noise-multiplier",
    "std": "standard-deviation",
    "substitute": "replace-one",
    "substitution": "replace-one",
    "survey": "estimate",
    "swap": "replace-one",
    "test": "audit",
    "zero": "zero-out",
}
"""Words of other libraries and of the literature, with the word that turnout has for each."""


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """Allowed word that an unknown word probably means; None if no allowed word is near.

    Case, underscores and leading dashes are ignored. Synonyms have priority over similar spellings.

    >>> nearest("add_remove", ["add-remove", "zero-out"])
    'add-remove'
    >>> nearest("--noise", ["--randomizer", "--noise-multiplier"])
    '--noise-multiplier'
    >>> nearest("frobnicate", ["account"])
    """
    plain = {_plain(each): each for each in allowed}
    asked = _plain(word)
    found = plain.get(asked) or plain.get(_SYNONYMS.get(asked, ""))
    if found is None and (near := difflib.get_close_matches(asked, plain, 1)):
        found = plain[near[0]]
    return found


def _plain(word: str) -> str:
    """Word in lower case, with dashes for underscores and spaces, and without leading dashes."""
    return word.strip().lower().replace("_", "-").replace(" ", "-").lstrip("-")
