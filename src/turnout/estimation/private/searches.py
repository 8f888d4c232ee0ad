"""Frequent items in the local model, with a bounded probability of a wrong item.

`heavy_hitters` is the search. If all items can be listed, every message is about all items, and
Holm's test selects the items with a frequency above a threshold. Otherwise each client is publicly
assigned a prefix length, and frequent prefixes are extended (`turnout.estimation.prefix_search`).
`word_code` encodes a word as a whole number with five bits for each letter. In both cases a client
sends one message, so the client's whole privacy cost is one ε₀, for any number of prefix lengths.
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

_LETTERS = " abcdefghijklmnopqrstuvwxyz*"  # by their codes; code 0 stands for no letter


def word_blocks(
    blocks: Iterable[NDArray[Any] | list[str]], letters: int
) -> Iterator[NDArray[np.int64]]:
    """Words of the clients as whole numbers below 2^(5·letters), in blocks of shape (words,).

    Args:
        blocks: blocks of words.
        letters: number of letters of a word that are read, at most 12. Case is ignored.
    """
    for entries in blocks:
        yield np.array([word_code(str(entry), letters) for entry in entries], dtype=np.int64)


def word_code(word: str, letters: int) -> int:
    """Whole number of a word, with five bits for each letter.

    The codes are 1 to 26 for a to z, 27 for any other character, and 0 after the end of the word.

    >>> word_of(word_code("Ana-Maria", 5), 5)
    'ana*m'
    """
    code = 0
    known = canonical(word.strip().lower())[:letters]
    for letter in known:
        # The search starts at 1, so a blank inside a word is "anything else" and not "no letter".
        code = code << 5 | (_LETTERS.find(letter, 1) % len(_LETTERS))
    return code << 5 * (letters - len(known))


def word_of(code: int, letters: int) -> str:
    """Word of a whole number from `word_code`; ``*`` replaces a character other than a to z."""
    shifts = range(5 * (letters - 1), -1, -5)
    return "".join(_LETTERS[min(code >> s & 31, 27)] for s in shifts).replace(_LETTERS[0], "")


MOST_LISTED = 2**14
"""Largest number of items that are all estimated at once."""
MOST_BITS = 61
"""Largest number of bits of an item in a prefix search."""
LETTER_BITS = 5
Blocks = Callable[[], Iterator[NDArray[np.int64]]]


@dataclass(frozen=True, eq=False)
class HeavyHitters:
    """Frequent items with estimated frequencies and the privacy cost.

    Attributes:
        items: names of the items, in order of decreasing evidence.
        values: unbiased estimates of the items' shares, shape (items,).
        noise_errors: upper bounds on the standard errors of ``values`` from privacy noise, shape
            (items,).
        threshold: share that every returned item exceeds.
        error: upper bound on the probability that any returned item has a share of at most
            ``threshold``.
        candidates: number of items in the last test.
        clients: n.
        cost: privacy cost for one client.
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
        """Number of clients, which is public in the local model."""
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
    """Items that more than a share ``threshold`` of the clients hold, with the privacy cost.

    With probability at least 1 − ``error`` no other item is returned.

    Args:
        path: a file with one item in each row, see `item_blocks`.
        epsilon: ε₀ of a client's one message, above 0, at most 30.
        threshold: share of the clients, in [0, 1); public, independent of the data.
        source: source of all randomness.
        size: number of items, for items 0 to size − 1. Exactly one of ``size``, ``labels`` and
            ``letters`` is required.
        labels: names of the items, for items with names.
        letters: number of letters of a word that are read, for items that are words.
        column: name of the column; None if the file has only one.
        error: family-wise error, above 0, at most 0.25.
        missing: item or word that replaces a missing value; None: a missing value is an error.

    Raises:
        ParameterError: an argument or a value is outside its domain.
        InputFileError: a file cannot be read.
    """
    # Words are always too many to list: search their prefixes.
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
    # Few items: one message about all of them, and Holm's test; else a prefix search.
    items = size or len(labels)
    checks.count(2, size=items)
    if (items - 1).bit_length() > MOST_BITS:
        raise ParameterError("size", items, f"at most 2^{MOST_BITS}")

    def blocks() -> Iterator[NDArray[np.int64]]:
        return item_blocks(path, items, labels, column, missing)

    def name(item: int) -> str:
        return labels[item] if labels else str(item)

    # Too many items for one message about all of them: search their prefixes.
    if items > MOST_LISTED:
        search = PrefixSearch(epsilon, (items - 1).bit_length())
        return _searched(blocks, search, (threshold, error), source, name)
    # Else encode and count block by block, then test every item.
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
    """Items that a prefix search finds, with one message of one bit from each client."""
    # The messages of every length, from clients assigned at random.
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
        raise ParameterError(
            "clients", clients, f"at least one client for each of {len(parts)} prefix lengths"
        )
    # Test the candidates that the search found.
    found = search.find(messages, *wanted)
    # A client sends one message, so the cost is that of one message at any length.
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
