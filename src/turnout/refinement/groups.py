"""Finite Abelian groups in which values, noise and messages are added.

A message is a value plus noise, in a group, so whoever knows the noise takes it off again. Every
group here is ℤ_B × ℤ_2^m: B blocks of 2^m elements, numbered ``block·2^m + place``; blocks add
modulo B and places by exclusive or. ℤ_2 is B = 2, m = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError

LARGEST_ORDER = 2**24
"""The most elements a group may have: the server keeps one number for each."""


@dataclass(frozen=True, slots=True)
class Group:
    """ℤ_blocks × ℤ_2^place_bits.

    >>> Group(blocks=3, place_bits=1).add(np.array([5]), np.array([3]))
    array([0])
    """

    blocks: int
    place_bits: int = 0

    def __post_init__(self) -> None:
        checks.count(blocks=self.blocks)
        checks.count(0, place_bits=self.place_bits)
        if self.blocks << min(self.place_bits, 64) > LARGEST_ORDER:
            raise ParameterError("size", self.blocks << min(self.place_bits, 64), "at most 2**24")

    @property
    def order(self) -> int:
        """Number of elements."""
        return self.blocks << self.place_bits

    def add(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """``left + right``, element by element."""
        return self._combined(left, right, 1)

    def subtract(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """``left − right``, element by element."""
        return self._combined(left, right, -1)

    def _combined(
        self, left: NDArray[np.int64], right: NDArray[np.int64], sign: int
    ) -> NDArray[np.int64]:
        places = (1 << self.place_bits) - 1
        block = (left >> self.place_bits) + sign * (right >> self.place_bits)
        return (block % self.blocks << self.place_bits) | ((left ^ right) & places)

    def spectrum(self, weights: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Fourier transform of one number for each element, shape (order,)."""
        return np.fft.fftn(weights.reshape(self._axes)).ravel()

    def from_spectrum(self, spectrum: NDArray[np.complex128]) -> NDArray[np.float64]:
        """The real numbers, shape (order,), that have this spectrum."""
        return np.fft.ifftn(spectrum.reshape(self._axes)).real.ravel()

    @property
    def _axes(self) -> tuple[int, ...]:
        return (self.blocks, *(2,) * self.place_bits)


def bent_set(place_bits: int) -> NDArray[np.int64]:
    """Elements of ℤ_2^{2t} whose indicator has a flat spectrum, ascending.

    The support of the bent function ⟨upper half, lower half⟩: 2^{2t−1} − 2^{t−1} of 2^{2t}
    places, and the matrix of signs (−1)^{f(x ⊕ y)} is a Hadamard matrix (a Menon difference set).

    Source: Rothaus, On "bent" functions, J. Combin. Theory A 20 (1976).

    Args:
        place_bits: 2t, even and at least 2.
    """
    if place_bits < 2 or place_bits % 2:
        raise ParameterError("place_bits", place_bits, "an even number of at least 2")
    half = place_bits // 2
    places = np.arange(1 << place_bits, dtype=np.int64)
    meeting = np.bitwise_count((places >> half) & places & ((1 << half) - 1))
    return places[meeting % 2 == 1]
