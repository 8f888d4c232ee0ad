"""Tallies of clients' messages, and post-processing of estimated frequencies.

`FrequencyTally` counts messages in whole numbers; tallies add up in any order. `evidence` turns a
tally into the sums of scores of every item. `column_sums` counts the set bits of many bitmaps.
`project_simplex`, `clip_and_normalise` and `normalise` make estimates sum to 1. The module
`turnout.estimation.frequencies` uses these functions.

**Column sums.** In every column, three rows of bits a, b, c sum to a ⊕ b ⊕ c plus twice the
majority of a, b and c (a carry-save adder). So n rows of weight 1 become n/3 rows of weight 1 and
n/3 rows of weight 2, and so on until few rows are left to unpack. This needs about ten word
operations for each input word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.showing import shows_shapes
from turnout.randomizers.indexed import LARGEST_HISTOGRAM, IndexedRandomizer
from turnout.randomizers.interface import FrequencyRandomizer
from turnout.randomizers.subset import BitmapRandomizer
from turnout.randomness import Source

_FEW = 24
"""Largest number of rows of one weight that are unpacked and added directly."""
_CHUNK = 2**15  # words that are summed at once; they fit the fast caches


def column_sums(rows: NDArray[np.uint64], columns: int) -> NDArray[np.int64]:
    """Number of rows in which each bit is set, shape (columns,).

    Args:
        rows: bitmaps, shape (n, ⌈columns / 64⌉); bit j is bit j mod 64 of word ⌊j / 64⌋.
        columns: number of bits of a row, at least 1.

    >>> column_sums(np.array([[5], [4], [1]], dtype=np.uint64), 3).tolist()
    [2, 0, 2]
    """
    total = np.zeros(columns, dtype=np.int64)
    step = max(_CHUNK // rows.shape[1], 3 * _FEW)
    for start in range(0, len(rows), step):
        # Reduce the rows to few rows of each weight, and add those bit by bit.
        left, weight = rows[start : start + step], 1
        while len(left):
            left, carries = _carried(left)
            raw = np.ascontiguousarray(left.astype("<u8", copy=False)).view(np.uint8)
            bits = np.unpackbits(raw, axis=1, count=columns, bitorder="little")
            total += weight * bits.sum(axis=0, dtype=np.int64)
            left, weight = carries, 2 * weight
    return total


def _carried(rows: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """At most `_FEW` rows of bits, and carry rows of weight 2, with the same column sums."""
    carries = []
    while len(rows) > _FEW:
        third = len(rows) // 3
        a, b, c = (rows[part * third : (part + 1) * third] for part in range(3))
        either = a ^ b
        carries.append((a & b) | (either & c))
        rows = np.concatenate([either ^ c, rows[3 * third :]])
    return rows, np.concatenate(carries) if carries else rows[:0]


BLOCK_CLIENTS = 2**15
"""Clients whose messages `collect` holds at once: at k = 1000 they take at most 4 MiB."""


@shows_shapes()
@dataclass(frozen=True, eq=False)
class FrequencyTally:
    """Counts of messages (or of their bits) and of clients; tallies can be added.

    Attributes:
        randomizer: the randomizer of all messages.
        counts: number of clients for each message, if messages are codes, or for each item, if
            messages are bitmaps; int64.
        clients: number of messages in the tally.

    Raises:
        ParameterError: ``clients`` is negative.
    """

    randomizer: FrequencyRandomizer
    counts: NDArray[np.int64]
    clients: int

    def __post_init__(self) -> None:
        checks.count(0, clients=self.clients)

    @classmethod
    def zero(cls, randomizer: FrequencyRandomizer) -> FrequencyTally:
        """Empty tally, with 0 messages."""
        return cls(randomizer, np.zeros(_size(randomizer), dtype=np.int64), 0)

    @classmethod
    def of(cls, randomizer: FrequencyRandomizer, messages: NDArray) -> FrequencyTally:
        """Tally of messages that `FrequencyRandomizer.encode` or ``unpack`` returned.

        The messages are codes, shape (n,), or packed bitmaps, shape (n, ⌈k/64⌉).

        Raises:
            ParameterError: the messages are not of this randomizer.
            UnsupportedError: the randomizer has too many messages to count.
        """
        size = _size(randomizer)
        if isinstance(randomizer, BitmapRandomizer):
            if messages.ndim != 2 or messages.shape[1] != -(-size // 64):
                raise ParameterError("messages", messages.shape, f"bitmaps of {size} bits")
            return cls(randomizer, column_sums(messages, size), len(messages))
        if messages.ndim != 1 or (len(messages) and not _codes_below(messages, size)):
            raise ParameterError("messages", messages.shape, f"codes from 0 to {size - 1}")
        counts = np.bincount(messages, minlength=size).astype(np.int64, copy=False)
        return cls(randomizer, counts, len(messages))

    def __add__(self, other: FrequencyTally) -> FrequencyTally:
        """Sum of two tallies, of disjoint groups of clients.

        Raises:
            ParameterError: the tallies have different randomizers.
        """
        if self.randomizer != other.randomizer:
            raise ParameterError(
                "randomizer",
                other.randomizer,
                f"{self.randomizer}, the randomizer of the other tally",
            )
        return FrequencyTally(
            self.randomizer, self.counts + other.counts, self.clients + other.clients
        )


def collect(
    randomizer: FrequencyRandomizer,
    values: ArrayLike,
    source: Source,
    block_clients: int = BLOCK_CLIENTS,
) -> FrequencyTally:
    """Tally of one message for each value, made block by block, to simulate clients and server.

    The messages of a block are counted and then discarded.

    Args:
        randomizer: randomizer of all clients.
        values: item of each client, shape (n,); a memory-mapped array is read block by block.
        source: source of the clients' randomness and of public questions.
        block_clients: number of messages held at once, at least 1.

    Raises:
        ParameterError: ``block_clients`` is below 1, or a value is not an item.
        UnsupportedError: the randomizer has too many messages to count.
    """
    checks.count(block_clients=block_clients)
    array = np.asanyarray(values)
    total = FrequencyTally.zero(randomizer)
    for start in range(0, len(array), block_clients):
        block = array[start : start + block_clients]
        if isinstance(randomizer, IndexedRandomizer) and randomizer.public:
            questions = randomizer.draw_questions(len(block), source)
            messages = randomizer.encode(block, source, questions)
        else:
            messages = randomizer.encode(block, source)
        total += FrequencyTally.of(randomizer, messages)
    return total


def _codes_below(messages: NDArray, size: int) -> bool:
    return messages.dtype.kind in "iu" and int(messages.min()) >= 0 and int(messages.max()) < size


def _size(randomizer: FrequencyRandomizer) -> int:
    if isinstance(randomizer, IndexedRandomizer):
        if randomizer.message_count > LARGEST_HISTOGRAM:
            raise UnsupportedError(
                f"{randomizer.message_count:,} different messages are too many to count: use "
                "turnout.estimation.prefix_search"
            )
        return randomizer.message_count
    if isinstance(randomizer, BitmapRandomizer):
        return randomizer.items
    raise UnsupportedError(f"no tally is implemented for {type(randomizer).__name__}")


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums of scores of every item, from which confidence intervals and tests are computed.

    Attributes:
        clients: n.
        sums: sum of scores, int64 of shape (k,).
        squares: sum of squared scores, int64 of shape (k,).
        gain: mean score of the client's item minus the mean score of any other item.
        counts: number of messages that support each item, shape (k,); None where a message may
            neither support nor oppose an item.
        other: probability that a message supports an item that its client does not hold.
        lift: increase of the probability that a message supports an item if its client holds it.
    """

    clients: int
    sums: NDArray[np.int64]
    squares: NDArray[np.int64]
    gain: float
    counts: NDArray[np.int64] | None
    other: float
    lift: float

    @property
    def items(self) -> int:
        """Number k of items."""
        return self.sums.size


def evidence(tally: FrequencyTally) -> Evidence:
    """Sums of scores of every item in a tally, with counts if each score has one of two values."""
    randomizer, n = tally.randomizer, tally.clients
    sums, gain, offset = randomizer.scores(tally.counts), randomizer.gain, randomizer.offset
    # Three score values: sums and squares alone.
    if randomizer.score_values is None:
        squares = randomizer.squares(tally.counts)
        return Evidence(n, sums, squares, float(gain), None, 0.0, 0.0)
    # Two score values: the sum determines the count of each.
    low, high = randomizer.score_values
    width = high - low
    counts = (sums - low * n) // width
    squares = low**2 * (n - counts) + high**2 * counts
    other, lift = float((offset - low) / width), float(gain / width)
    return Evidence(n, sums, squares, float(gain), counts, other, lift)


def project_simplex(raw: ArrayLike) -> NDArray[np.float64]:
    """Nearest point in ℓ2 with non-negative entries that sum to 1.

    One number is subtracted from every entry, and negative results are set to 0. The simplex is
    convex and contains the true frequencies, so the projection is never further from the true
    frequencies than ``raw``. With many rare items the projection is far closer, since the
    subtracted number is about as large as the largest of the many entries that are only noise.

    Source: Held, Wolfe, Crowder, Validation of subgradient optimization, Math. Programming 1974;
        by sorting, O(k log k). The same as Norm-Sub of Wang et al., NDSS 2020.

    Args:
        raw: finite numbers, shape (k,).

    >>> project_simplex([0.7, 0.6, -0.2]).round(6).tolist()
    [0.55, 0.45, 0.0]
    """
    array = _vector(raw)
    # Adding a number to all entries changes nothing; subtracting the largest keeps digits.
    array = array - array.max()
    descending = np.sort(array)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, array.size + 1)
    shift = excess[np.flatnonzero(descending > excess)[-1]]
    out = np.maximum(array - shift, 0.0)
    return out / out.sum()


def clip_and_normalise(raw: ArrayLike) -> NDArray[np.float64]:
    """Estimates with negative entries set to 0, divided by their sum, shape (k,).

    All entries are equal if no entry is positive. The positive noise of every item remains and
    reduces all shares, most of all the shares of frequent items. The function is provided because
    this post-processing is common. If raw estimates are mostly noise, the result can be closer to
    the true frequencies than the result of `project_simplex`.

    Args:
        raw: finite numbers, shape (k,).
    """
    array = np.maximum(_vector(raw), 0.0)
    total = array.sum()
    return array / total if total > 0 else np.full(array.size, 1 / array.size)


def normalise(raw: ArrayLike) -> NDArray[np.float64]:
    """Nearest point in ℓ2 whose entries sum to 1; some entries may be negative.

    Sums over items stay unbiased, unlike after `project_simplex` or `clip_and_normalise`.

    Args:
        raw: finite numbers, shape (k,).
    """
    array = _vector(raw)
    return array + (1 - array.sum()) / array.size


def _vector(raw: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(raw, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array)):
        raise ParameterError("raw", array.shape, "finite numbers of shape (k,)")
    return array


POST_PROCESSING: dict[str, Callable[[ArrayLike], NDArray[np.float64]]] = {
    "raw": lambda raw: _vector(raw).copy(),
    "normalise": normalise,
    "clip": clip_and_normalise,
    "simplex": project_simplex,
}
"""Post-processing of a raw estimate, by name. It does not read messages, so it costs no
privacy."""
