"""Rotations and frames that spread a vector evenly over its coordinates, from public signs.

`HadamardRotation` and `CosineRotation` are rotations; `KashinFrame` adds coordinates until all have
about the same size. `l2.L2Randomizer` builds on them.

Notation: d coordinates of a vector, D ≥ d of the rotated one, ρ = D/d, x in R^d, U x in R^D with
UᵀU = 1, a in R^D with Uᵀa = x, K the level: |a_j| ≤ K‖x‖/√D.

Privacy and unbiasedness hold for any such U. A random one makes every coordinate of U x about
normal with deviation ‖x‖/√D, for every x. The largest coordinate is far above a typical one, which
costs either noise or clipping. With ρ > 1 many a represent the same x, and one of them has
K² ≈ π/2·(1 + 1.15/(ρ − 1)^0.6): 3.4 at ρ = 2, 2.5 at ρ = 4, where a rotation clipped at three
deviations has 9. With 64 coordinates or more nothing is clipped, so there is no bias.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import fft

from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError
from turnout.randomizers.hadamard import walsh_hadamard
from turnout.randomizers.vectors.interface import PublicRandomness

_ROWS = 256


class Rotation(ABC):
    """Isometry of R^d into R^D that clients and server know.

    Attributes:
        seed: seed of the public signs.
        peak: D times the largest squared entry of the transform after the last signs.
    """

    peak: ClassVar[float]
    dimension: int
    seed: int

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of coordinates D after the rotation."""

    @abstractmethod
    def forward(self, vectors: FloatArray) -> FloatArray:
        """U x of each row x, shape (n, D)."""

    @abstractmethod
    def backward(self, vectors: FloatArray) -> FloatArray:
        """Uᵀ w of each row w, shape (n, d)."""

    def bounded(self, vectors: FloatArray, bound: float) -> FloatArray:
        """Coordinates that represent each row, clipped at ±bound, shape (n, D)."""
        return np.clip(self.forward(vectors), -bound, bound)

    @cached_property
    def row_sizes(self) -> FloatArray:
        """Squared length of each row of U, shape (D,): the noise that a coordinate adds in R^d."""
        sizes = np.empty(self.width)
        for start in range(0, self.width, _ROWS):
            rows = np.arange(start, min(start + _ROWS, self.width))
            units = np.zeros((len(rows), self.width))
            units[rows - start, rows] = 1.0
            sizes[rows] = np.sum(self.backward(units) ** 2, axis=1)
        return sizes

    def _signs(self, layer: int) -> FloatArray:
        """Independent public signs of one layer, shape (D,)."""
        words = PublicRandomness(self.seed, f"signs {layer}").words(0, 1, -(-self.width // 64))
        bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
        return 1.0 - 2.0 * bits[: self.width].astype(np.float64)

    def _padded(self, vectors: FloatArray) -> FloatArray:
        """The rows filled up with zeros to D coordinates."""
        if self.width == self.dimension:
            return np.asarray(vectors, dtype=np.float64)
        wide = np.zeros((len(vectors), self.width))
        wide[:, : self.dimension] = vectors
        return wide


@dataclass(frozen=True)
class HadamardRotation(Rotation):
    """The rotation (1/√D)·H·diag(signs) as printed; D is the next power of two.

    Source: Algorithm 3.6.1, line 3 (girgis2023thesis).
    """

    dimension: int
    seed: int = 0
    peak: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        checks.count(dimension=self.dimension)

    @property
    def width(self) -> int:
        """Number of coordinates D, the least power of two that is at least d."""
        return 1 << (self.dimension - 1).bit_length()

    @cached_property
    def _one(self) -> FloatArray:
        return self._signs(0)

    def forward(self, vectors: FloatArray) -> FloatArray:
        """U x of each row x, shape (n, D)."""
        return walsh_hadamard(self._padded(vectors) * self._one) / np.sqrt(self.width)

    def backward(self, vectors: FloatArray) -> FloatArray:
        """Uᵀ w of each row w, shape (n, d)."""
        turned = walsh_hadamard(vectors) / np.sqrt(self.width) * self._one
        return turned[:, : self.dimension]


@dataclass(frozen=True)
class CosineRotation(Rotation):
    """Two rounds of random signs and a discrete cosine transform; any D ≥ d.

    One round leaves uneven a vector that equals a row of the transform up to the drawn signs; two
    rounds make every coordinate about normal.
    """

    dimension: int
    seed: int = 0
    wide: int | None = None
    peak: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        checks.count(dimension=self.dimension)
        checks.count(self.dimension, width=self.width)

    @property
    def width(self) -> int:
        """Number of coordinates D."""
        return self.dimension if self.wide is None else self.wide

    @cached_property
    def _layers(self) -> tuple[FloatArray, FloatArray]:
        return self._signs(0), self._signs(1)

    def forward(self, vectors: FloatArray) -> FloatArray:
        """U x of each row x, shape (n, D)."""
        first, second = self._layers
        once = _cosine(self._padded(vectors) * first)
        return _cosine(once * second)

    def backward(self, vectors: FloatArray) -> FloatArray:
        """Uᵀ w of each row w, shape (n, d)."""
        first, second = self._layers
        once = _inverse_cosine(vectors) * second
        return (_inverse_cosine(once) * first)[:, : self.dimension]


def _cosine(rows: FloatArray) -> FloatArray:
    return np.asarray(fft.dct(rows, norm="ortho", axis=1), dtype=np.float64)


def _inverse_cosine(rows: FloatArray) -> FloatArray:
    return np.asarray(fft.idct(rows, norm="ortho", axis=1), dtype=np.float64)


_TOLERANCE = 1e-7  # largest ‖Uᵀa − x‖ relative to the radius
_ITERATIONS = 300
_STEP = 1.8  # over-relaxation of a projection; the iteration converges up to 2


def level_of(redundancy: float) -> float:
    """Level K that `KashinFrame.bounded` reaches in about 50 steps.

    Args:
        redundancy: ρ > 1.
    """
    if not redundancy > 1:
        raise ParameterError("redundancy", redundancy, "a number above 1")
    return math.sqrt(math.pi / 2 * (1 + 1.15 / (redundancy - 1) ** 0.6))


@dataclass(frozen=True)
class KashinFrame(CosineRotation):
    """Frame in which vectors have representations whose coordinates are all within a bound.

    Source: Kashin 1977 and Lyubarskii and Vershynin 2010 for their existence. They truncate and
    repeat with the remainder. Here projections onto the cube and onto the representations of x
    alternate, which reaches a smaller cube.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(self.dimension + 1, width=self.width)

    def bounded(self, vectors: FloatArray, bound: float) -> FloatArray:
        """Representation a of each row x, within ±bound, shape (n, D).

        Uᵀa is x to 1e-7 of the longest vector. Where the bound is too small for a vector, Uᵀa is
        the approximation that 300 steps reach.
        """
        spread = self.forward(vectors)
        result = np.clip(spread, -bound, bound)
        limit = _TOLERANCE * bound * math.sqrt(self.width)
        open_ = np.arange(len(vectors))
        for _ in range(_ITERATIONS):
            missing = vectors[open_] - self.backward(result[open_])
            wrong = np.linalg.norm(missing, axis=1) > limit
            open_, missing = open_[wrong], missing[wrong]
            if not len(open_):
                break
            moved = result[open_] + _STEP * self.forward(missing)
            result[open_] = np.clip(moved, -bound, bound)
        return result
