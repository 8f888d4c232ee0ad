"""Sources of uniform draws, and exact samplers that use only these draws.

All random numbers on which privacy depends are drawn through `Source.below`. A test that replaces
this one method can replay every draw (`turnout.testing.enumerate_outputs`), so the distribution of
a small sampler is checked exactly instead of being estimated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError

LARGEST_RANGE = 2**62
"""The largest ``n`` of `Source.below`, and the resolution of `Source.bernoulli`."""

WORD_BITS = 64
"""Coins in a word of `Source.packed_bernoulli`."""

_CHUNK = 2**20


class Source(ABC):
    """Source of uniform draws.

    Guarantees:
        The distribution of every method is exact if that of `below` is exact, because no float
        enters a comparison.

    Attributes:
        secure: True if an adversary who sees some draws learns nothing about the other draws.
    """

    secure: ClassVar[bool]

    @abstractmethod
    def below(self, n: int, size: int) -> NDArray[np.int64]:
        """``size`` ≥ 0 independent integers, each uniform on {0, …, n − 1}, n from 1 to 2⁶²."""

    def below_each(self, limits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Independent integers, the i-th uniform on {0, …, limits[i] − 1}, shape of ``limits``."""
        drawn = np.empty(len(limits), dtype=np.int64)
        for limit in np.unique(limits):
            chosen = np.flatnonzero(limits == limit)
            drawn[chosen] = self.below(int(limit), len(chosen))
        return drawn

    def bernoulli(self, p: float | Fraction, size: int) -> NDArray[np.bool_]:
        """Array of ``size`` independent truth values, each True with probability ``p``.

        ``p`` is rounded *down* to a multiple of 2⁻⁶²: a client with a smaller probability is better
        protected. If ``p`` is 1, every value is True.

        Raises:
            ParameterError: ``p`` is outside [0, 1].
        """
        checks.probability(p=p)
        threshold = int(Fraction(p) * LARGEST_RANGE)
        if threshold in (0, LARGEST_RANGE):
            return np.full(size, threshold > 0)
        return self.below(LARGEST_RANGE, size) < threshold

    def packed_bernoulli(self, p: float | Fraction, rows: int, columns: int) -> NDArray[np.uint64]:
        """Packed bits of ``rows × columns`` draws of `bernoulli`, 64 in a word.

        Args:
            p: probability of a 1, in [0, 1]; rounded down to a multiple of 2⁻⁶².
            rows: number of rows, at least 0.
            columns: number of bits per row, at least 1.

        Returns:
            uint64 array of shape (rows, ⌈columns / 64⌉). Column j is bit j mod 64 (the lowest is
            bit 0) of word ⌊j / 64⌋; bits past the last column are 0.

        Raises:
            ParameterError: ``p`` is outside [0, 1], or a size is outside its domain.
        """
        checks.count(0, rows=rows)
        checks.count(columns=columns)
        padded = np.zeros((rows, width(columns) * WORD_BITS), dtype=np.bool_)
        padded[:, :columns] = self.bernoulli(p, rows * columns).reshape(rows, columns)
        packed = np.packbits(padded, axis=1, bitorder="little")
        return packed.view("<u8").astype(np.uint64)

    def binomial(self, n: int, p: float) -> int:
        """Number of True values among ``n`` ≥ 0 draws of `bernoulli` with probability ``p``.

        Raises:
            ParameterError: ``n`` is below 0, or ``p`` is outside [0, 1].
        """
        checks.count(0, n=n)
        sizes = (min(_CHUNK, n - start) for start in range(0, n, _CHUNK))
        return sum(int(np.count_nonzero(self.bernoulli(p, size))) for size in sizes)

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """Uniform subset of ``k`` elements of {0, …, n − 1}, ascending, shape (k,).

        Source: Floyd's algorithm (Bentley and Floyd, Programming pearls, CACM 30(9), 1987).

        Raises:
            ParameterError: ``k`` is below 0 or above ``n``.
        """
        check_subset(n, k)
        chosen: set[int] = set()
        for top in range(n - k, n):
            candidate = int(self.below(top + 1, 1)[0])
            chosen.add(top if candidate in chosen else candidate)
        return np.array(sorted(chosen), dtype=np.int64)


def check_range(n: int, size: int) -> None:
    """Raise a ParameterError for a range or a size that `Source.below` does not support."""
    checks.count(n=n)
    checks.count(0, size=size)
    if n > LARGEST_RANGE:
        raise ParameterError("n", n, "at most 2**62")


def check_subset(n: int, k: int) -> None:
    """Raise a ParameterError for a subset that is larger than its set."""
    checks.count(0, n=n, k=k)
    checks.at_most("n", n, k=k)


def width(columns: int) -> int:
    """Number of words in a packed row of ``columns`` bits."""
    return -(-columns // WORD_BITS)
