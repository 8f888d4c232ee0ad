"""Rotations and frames that spread a vector evenly over its coordinates, from public signs.

`HadamardRotation` and `CosineRotation` are rotations; `KashinFrame` adds coordinates until all have
about the same size. `l2.L2Randomizer` builds on them.

Notation: d coordinates of a vector, D ≥ d of the rotated one, ρ = D/d, x in R^d, U x in R^D with
UᵀU = 1, a in R^D with Uᵀa = x, K the level: |a_j| ≤ K‖x‖/√D.

Privacy and unbiasedness hold for any such U. If U is random, every coordinate of U x is about
normal with standard deviation ‖x‖/√D, for every x. The largest coordinate is then much larger than
a typical coordinate. So a bound on the coordinates must be wide, which adds noise, or some
coordinates must be clipped, which adds bias. With ρ > 1 many vectors a represent the same x. One of
these vectors has K² ≈ π/2·(1 + 1.15/(ρ − 1)^0.6), which is 3.4 at ρ = 2 and 2.5 at ρ = 4. A
rotation clipped at three standard deviations has K² = 9. With 64 coordinates or more, no experiment
needed any clipping of such a vector a, so that the bias was 0.
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
    """Public linear map U of R^d into R^D that preserves lengths.

    Attributes:
        seed: seed of the public random signs.
        peak: D times the largest squared entry of the matrix that is applied after the last signs.
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
        """The rotated vector U x of each row x, shape (n, D)."""

    @abstractmethod
    def backward(self, vectors: FloatArray) -> FloatArray:
        """The vector Uᵀ w of each row w, shape (n, d)."""

    def bounded(self, vectors: FloatArray, bound: float) -> FloatArray:
        """The rotated vector of each row, clipped to [−bound, bound]; shape (n, D)."""
        return np.clip(self.forward(vectors), -bound, bound)

    @cached_property
    def row_sizes(self) -> FloatArray:
        """Squared length of each row of U, shape (D,).

        Noise of variance 1 in a rotated coordinate has this variance in R^d.
        """
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
        """The rows padded with zeros to D coordinates, shape (n, D)."""
        if self.width == self.dimension:
            return np.asarray(vectors, dtype=np.float64)
        wide = np.zeros((len(vectors), self.width))
        wide[:, : self.dimension] = vectors
        return wide


@dataclass(frozen=True)
class HadamardRotation(Rotation):
    """The rotation (1/√D)·H·diag(signs), where D is the least power of two that is at least d.

    Source: Algorithm 3.6.1, line 3 (girgis2023thesis).

    Raises:
        ParameterError: ``dimension`` is below 1.
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
        """The rotated vector U x of each row x, shape (n, D)."""
        return walsh_hadamard(self._padded(vectors) * self._one) / np.sqrt(self.width)

    def backward(self, vectors: FloatArray) -> FloatArray:
        """The vector Uᵀ w of each row w, shape (n, d)."""
        turned = walsh_hadamard(vectors) / np.sqrt(self.width) * self._one
        return turned[:, : self.dimension]


@dataclass(frozen=True)
class CosineRotation(Rotation):
    """Two rounds of random signs followed by a discrete cosine transform, for any D ≥ d.

    After a single round a vector can still have one large coordinate, if the signs of the vector
    happen to match a row of the transform. After two rounds every coordinate is about normal.

    Raises:
        ParameterError: ``dimension`` is below 1, or the width is below ``dimension``.
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
        """The rotated vector U x of each row x, shape (n, D)."""
        first, second = self._layers
        once = _cosine(self._padded(vectors) * first)
        return _cosine(once * second)

    def backward(self, vectors: FloatArray) -> FloatArray:
        """The vector Uᵀ w of each row w, shape (n, d)."""
        first, second = self._layers
        once = _inverse_cosine(vectors) * second
        return (_inverse_cosine(once) * first)[:, : self.dimension]


def _cosine(rows: FloatArray) -> FloatArray:
    """Orthonormal discrete cosine transform of each row."""
    return np.asarray(fft.dct(rows, norm="ortho", axis=1), dtype=np.float64)


def _inverse_cosine(rows: FloatArray) -> FloatArray:
    """Inverse of `_cosine` for each row."""
    return np.asarray(fft.idct(rows, norm="ortho", axis=1), dtype=np.float64)


_TOLERANCE = 1e-7  # largest ‖Uᵀa − x‖ relative to the radius
_ITERATIONS = 300
_STEP = 1.8  # over-relaxation factor of the projection; the iteration converges below 2


def level_of(redundancy: float) -> float:
    """The least level K for which `KashinFrame.bounded` converged in about 50 steps in experiments.

    Args:
        redundancy: ρ = D/d, above 1.

    Raises:
        ParameterError: ``redundancy`` is not above 1.
    """
    if not redundancy > 1:
        raise ParameterError("redundancy", redundancy, "a number above 1")
    return math.sqrt(math.pi / 2 * (1 + 1.15 / (redundancy - 1) ** 0.6))


@dataclass(frozen=True)
class KashinFrame(CosineRotation):
    """Frame in which every vector has a representation whose coordinates are all small.

    Source: Kashin 1977 and Lyubarskii and Vershynin 2010 prove that such representations exist.
        Lyubarskii and Vershynin compute a representation by clipping, and repeat the step with the
        remainder. This class alternates projections onto the cube [−bound, bound]^D and onto the
        representations of x. The projections converge for smaller bounds than clipping does.

    Raises:
        ParameterError: the width is not above ``dimension``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(self.dimension + 1, width=self.width)

    def bounded(self, vectors: FloatArray, bound: float) -> FloatArray:
        """Representation a of each row x with coordinates in [−bound, bound], shape (n, D).

        Uᵀa differs from x by at most 1e-7 times the largest norm that ``bound`` allows. If the
        bound is too small for a vector, Uᵀa is the approximation after 300 steps.
        """
        # Start with the clipped rotated vectors.
        spread = self.forward(vectors)
        result = np.clip(spread, -bound, bound)
        limit = _TOLERANCE * bound * math.sqrt(self.width)
        open_ = np.arange(len(vectors))
        for _ in range(_ITERATIONS):
            # Keep the vectors whose representation is not yet exact enough.
            missing = vectors[open_] - self.backward(result[open_])
            wrong = np.linalg.norm(missing, axis=1) > limit
            open_, missing = open_[wrong], missing[wrong]
            if not len(open_):
                break
            # Move each towards the representations of x, and clip again.
            moved = result[open_] + _STEP * self.forward(missing)
            result[open_] = np.clip(moved, -bound, bound)
        return result
