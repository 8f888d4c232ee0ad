"""Biased random bits, eight at a time, by inversion of the distribution function of a byte.

Notation: q = t/2^b is the probability of a 1; C_j, a multiple of 2^−8b, is the probability that a
byte of eight such bits is below j; U is uniform on [0, 1). The byte is the number of C_1, …, C_255
that are at most U.

With a table, the first sixteen bits of U decide the byte except with probability 1/256. Another 46
bits decide it except with probability 2⁻⁵⁴, and integer arithmetic decides the remaining cases. So
a biased bit takes about two random bits for every b.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.randomness.source import LARGEST_RANGE, WORD_BITS, width

Words = Callable[[int], NDArray[np.uint64]]
"""``words(size)`` gives uniform 64-bit words, shape (size,), independent of all others."""

_CHUNK = 2**13  # Words; longer arrays leave the caches, shorter ones cost calls.
_ALL = np.uint64(2**64 - 1)
_FIRST, _FINE = 16, 62
_OPEN = 256  # In the table: sixteen bits do not tell.


def packed_from_words(
    words: Words, p: float | Fraction, rows: int, columns: int
) -> NDArray[np.uint64]:
    """`Source.packed_bernoulli` for a source that provides uniform words.

    Raises:
        ParameterError: ``p`` is outside [0, 1], or a size is outside its domain.
    """
    checks.probability(p=p)
    checks.count(0, rows=rows)
    checks.count(columns=columns)
    threshold = int(Fraction(p) * LARGEST_RANGE)
    bits = LARGEST_RANGE.bit_length() - 1
    coins = packed_coins(words, threshold, bits, rows * width(columns))
    return cut(coins.reshape(rows, width(columns)), columns)


def packed_coins(words: Words, threshold: int, bits: int, size: int) -> NDArray[np.uint64]:
    """Independent random bits, each 1 with probability ``threshold`` / 2^``bits``.

    Args:
        words: source of uniform words.
        threshold: numerator of the probability, from 0 to 2^``bits``.
        bits: base-2 logarithm of the denominator.
        size: number of words of the result.

    Returns:
        Words of 64 bits each, shape (size,). The distribution is exact if the bits of ``words``
        are uniform and independent.
    """
    if threshold in (0, 1 << bits):
        return np.full(size, _ALL if threshold else 0, dtype=np.uint64)
    distribution = byte_distribution(threshold, bits)
    out = np.empty(size, dtype=np.uint64)
    for start in range(0, size, _CHUNK):
        part = out[start : start + _CHUNK]
        first = words(2 * len(part)).view(np.uint16)
        found = distribution.table.take(first)
        coins = part.view(np.uint8)
        np.copyto(coins, found, casting="unsafe")
        places = np.flatnonzero(found == _OPEN)
        if places.size:
            coins[places] = _finished(words, distribution, first[places])
    return out


@dataclass(frozen=True, eq=False)
class ByteDistribution:
    """Distribution of a byte of eight independent bits, prepared for inversion.

    C_j is the probability of a byte below j. For U uniform on [0, 1) the byte is the number of C_j
    that are at most U.

    Attributes:
        limits: C_1, …, C_255 in units of 2^−``unit_bits``.
        unit_bits: number of bits of each C_j after the binary point, at least 62.
        floors: ⌊2⁶²·C_j⌋, int64.
        ceilings: ⌈2⁶²·C_j⌉, int64.
        table: the byte for each value of the first sixteen bits of U; 256 where these bits do not
            decide the byte.
    """

    limits: list[int]
    unit_bits: int
    floors: NDArray[np.int64]
    ceilings: NDArray[np.int64]
    table: NDArray[np.uint16]

    def below(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Bounds, shape of ``numbers``, on the number of C_j ≤ U, given the first 62 bits of U."""
        fewest = np.searchsorted(self.ceilings, numbers, side="right")
        return fewest, np.searchsorted(self.floors, numbers, side="right")


@lru_cache(maxsize=16)
def byte_distribution(threshold: int, bits: int) -> ByteDistribution:
    """Distribution of a byte whose bits are 1 with probability ``threshold`` / 2^``bits``."""
    # The exact cumulative probabilities of all bytes.
    unit_bits = max(8 * bits, _FINE)
    scale = 1 << (unit_bits - 8 * bits)
    limits, total = [], 0
    for byte in range(255):
        ones = byte.bit_count()
        total += scale * threshold**ones * ((1 << bits) - threshold) ** (8 - ones)
        limits.append(total)
    # Their roundings to the bits of U, in both directions.
    shift = unit_bits - _FINE
    floors = np.array([limit >> shift for limit in limits])
    ceilings = np.array([-(-limit >> shift) for limit in limits])
    # The byte for each beginning of U, where the beginning decides it.
    starts = np.arange(1 << _FIRST, dtype=np.int64) << (_FINE - _FIRST)
    ends = starts + ((1 << (_FINE - _FIRST)) - 1)
    low = np.searchsorted(ceilings, starts, side="right")
    high = np.searchsorted(floors, ends, side="right")
    table = np.where(low == high, low, _OPEN).astype(np.uint16)
    return ByteDistribution(limits, unit_bits, floors, ceilings, table)


def _finished(
    words: Words, distribution: ByteDistribution, first: NDArray[np.uint16]
) -> NDArray[np.intp]:
    """Bytes for uniform numbers U whose first sixteen bits are given; further bits are drawn."""
    rest = _FINE - _FIRST
    more = words(len(first)) >> np.uint64(WORD_BITS - rest)
    numbers = (first.astype(np.int64) << rest) | more.astype(np.int64)
    low, high = distribution.below(numbers)
    for place in np.flatnonzero(low != high):
        u, known = int(numbers[place]), _FINE
        while known < distribution.unit_bits:
            u, known = u << WORD_BITS | int(words(1)[0]), known + WORD_BITS
        low[place] = bisect_right(distribution.limits, u >> (known - distribution.unit_bits))
    return low


def cut(packed: NDArray[np.uint64], columns: int) -> NDArray[np.uint64]:
    """The given rows, changed in place: all bits from bit number ``columns`` on are set to 0.

    Args:
        packed: rows of 64-bit words, shape (rows, ⌈columns / 64⌉).
        columns: number of bits of a row that keep their values.
    """
    spare = columns % WORD_BITS
    if spare:
        packed[:, -1] &= np.uint64((1 << spare) - 1)
    return packed
