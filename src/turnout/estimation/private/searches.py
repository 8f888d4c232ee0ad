"""Frequent items in the local model, named with a bounded chance of naming a wrong one.

`heavy_hitters` is the search. Where all items can be listed, every message is about all of them,
and Holm's test picks out those above a threshold. Where they cannot, each client is publicly
assigned a prefix length, and prefixes are followed (`turnout.estimation.prefix_search`); words are
whole numbers of five bits a letter (`word_code`). Either way a client sends one message, so one ε₀
is its whole cost, however many lengths there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.values import canonical
from turnout.estimation import FrequencyTally, collect, estimate_frequencies
from turnout.estimation.frequencies import check_error
from turnout.estimation.prefix_search import PrefixSearch
from turnout.estimation.private.answers import EstimateCost, frequency_randomizer, local_cost
from turnout.estimation.private.columns import entry_blocks, item_blocks
from turnout.randomness import Source

_LETTERS = " abcdefghijklmnopqrstuvwxyz*"  # by their numbers; the first stands for none


def word_blocks(
    blocks: Iterable[NDArray[Any] | list[str]], letters: int
) -> Iterator[NDArray[np.int64]]:
    """Clients' words as whole numbers below 2^(5·letters), a block at a time.

    Args:
        blocks: of words.
        letters: how many count, at most 12; what is beyond is cut off. Case does not count.
    """
    for entries in blocks:
        yield np.array([word_code(str(entry), letters) for entry in entries], dtype=np.int64)


def word_code(word: str, letters: int) -> int:
    """A word as five bits a letter: 1 to 26 for a to z, 27 for anything else, 0 for none.

    >>> word_of(word_code("Ana-Maria", 5), 5)
    'ana*m'
    """
    code = 0
    known = canonical(word.strip().lower())[:letters]
    for letter in known:
        # A blank or a NUL inside a word is a letter like any other.
        code = code << 5 | (_LETTERS.find(letter, 1) % len(_LETTERS))
    return code << 5 * (letters - len(known))


def word_of(code: int, letters: int) -> str:
    """The word that a number stands for; ``*`` where there was no letter from a to z."""
    shifts = range(5 * (letters - 1), -1, -5)
    return "".join(_LETTERS[min(code >> s & 31, 27)] for s in shifts).replace(_LETTERS[0], "")


MOST_LISTED = 2**14
"""Items up to which all are looked at."""
MOST_BITS = 61
"""Bits of an item that a search can follow."""
LETTER_BITS = 5
Blocks = Callable[[], Iterator[NDArray[np.int64]]]


@dataclass(frozen=True, eq=False)
class HeavyHitters:
    """Items that were named, with what they cost.

    Attributes:
        items: their names, the surest first.
        values: unbiased estimates of their shares, shape (items,).
        noise_errors: standard errors of these from the privacy noise, at most, shape (items,).
        threshold: the share that every named item exceeds.
        error: with at most this probability one of them does not.
        candidates: how many items the last test looked at.
        clients: n.
        cost: what a client pays.
    """

    items: list[str]
    values: NDArray[np.float64]
    noise_errors: NDArray[np.float64]
    threshold: float
    error: float
    candidates: int
    clients: int
    cost: EstimateCost

    @property
    def about(self) -> int:
        """Clients, as far as may be told."""
        return self.clients


def heavy_hitters(
    path: Path,
    epsilon: float,
    threshold: float,
    source: Source,
    *,
    size: int | None = None,
    labels: tuple[str, ...] = (),
    letters: int | None = None,
    column: str | None = None,
    error: float = 0.05,
    missing: str | None = None,
) -> HeavyHitters:
    """Items that more than a share ``threshold`` of the clients hold.

    Args:
        path: a file with one item a row, see `item_blocks`.
        epsilon: ε₀ of a client's one message, at most 30.
        threshold: in [0, 1); public, not taken from the data.
        source: where randomness comes from.
        size: items are 0 to size − 1; or
        labels: what they are called; or
        letters: they are words, of which so many letters count.
        column: of a file with several.
        error: family-wise error, at most 0.25.
        missing: the item or word that stands for a missing one; None: such rows are refused.
    """
    checks.probability(threshold=threshold)
    check_error(error)
    if letters is not None:
        checks.count(letters=letters)
        checks.at_most(str(MOST_BITS // LETTER_BITS), MOST_BITS // LETTER_BITS, letters=letters)
        return _searched(
            lambda: word_blocks(entry_blocks(path, column, missing), letters),
            PrefixSearch(epsilon, LETTER_BITS * letters),
            (threshold, error),
            source,
            lambda item: word_of(item, letters),
        )
    items = size or len(labels)
    checks.count(2, size=items)
    if (items - 1).bit_length() > MOST_BITS:
        raise ParameterError("size", items, f"at most 2^{MOST_BITS}")

    def blocks() -> Iterator[NDArray[np.int64]]:
        return item_blocks(path, items, labels, column, missing)

    def name(item: int) -> str:
        return labels[item] if labels else str(item)

    if items > MOST_LISTED:
        search = PrefixSearch(epsilon, (items - 1).bit_length())
        return _searched(blocks, search, (threshold, error), source, name)
    randomizer, reason = frequency_randomizer(epsilon, items)
    tally = FrequencyTally.zero(randomizer)
    for block in blocks():
        tally += collect(randomizer, block, source)
    found = estimate_frequencies(tally, "raw")
    named = found.heavy_hitters(threshold, error)
    return HeavyHitters(
        [name(item) for item in named.tolist()],
        found.raw[named],
        found.noise_errors[named],
        threshold,
        error,
        items,
        found.clients,
        local_cost(randomizer, reason),
    )


def _searched(
    blocks: Blocks,
    search: PrefixSearch,
    wanted: tuple[float, float],
    source: Source,
    name: Callable[[int], str],
) -> HeavyHitters:
    """The items that a search down the prefixes names; a client is asked about one length alone."""
    parts: list[list[NDArray[np.int64]]] = [[] for _ in search.lengths]
    clients = 0
    for block in blocks():
        clients += len(block)
        for part, sent in zip(
            parts, search.encode(block, search.groups(len(block), source), source), strict=True
        ):
            part.append(sent)
    messages = [np.concatenate(part) for part in parts]
    if not all(map(len, messages)):
        raise ParameterError("clients", clients, f"more, for prefixes of {len(parts)} lengths")
    found = search.find(messages, *wanted)
    lengths = ", ".join(map(str, search.lengths))
    cost = replace(
        local_cost(
            search.randomizer(len(parts) - 1),
            f"items of {search.bits} bits cannot all be listed; prefixes of {lengths} bits can",
        ),
        mechanism="PrefixSearch",
        public_randomness="which length, and which row, each client is asked about",
    )
    return HeavyHitters(
        [name(item) for item in found.items.tolist()],
        found.frequencies,
        np.full(found.items.size, found.standard_error),
        *wanted,
        found.candidates,
        clients,
        cost,
    )
