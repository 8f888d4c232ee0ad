"""Means of vectors of bounded ℓ2 norm: rotate, then send bits of a few coordinates.

Notation: d coordinates, D after the rotation, r the norm bound, c the clip: rotated coordinates
are cut at ±c·r/√D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.vectors.interface import FloatArray, IntArray, VectorRandomizer
from turnout.randomizers.vectors.linf import LInfRandomizer, best_shape
from turnout.randomizers.vectors.rotations import (
    CosineRotation,
    HadamardRotation,
    KashinFrame,
    Rotation,
    level_of,
)
from turnout.randomizers.vectors.sampled_bits import bit_weights
from turnout.randomness import Source
from turnout.schemes import PureRandomizer

CLIP = 2.9
"""Normal coordinates lie beyond it with chance 0.0037, which moves a unit vector by 0.024."""
_REPRESENTED = 64  # coordinates from which on Kashin's representation is found
_BITS_MORE = 3  # by how many bits a frame's index may be longer than a rotation's


@dataclass(frozen=True)
class L2Randomizer(VectorRandomizer):
    """A rotation or a frame, and the ℓ∞ randomizer on the coordinates that it gives.

    Source: Algorithms 3.6.1 and 3.6.2 (girgis2023thesis; line 4 says W for U). As printed, the
    estimate is worse than 0 at any d of interest (errata, 13); `as_printed` builds it.

    Guarantees:
        privacy for every vector. Given the rotation, the estimate is off on average by what was
        clipped, which `bias` states: nothing to 1e-7 with Kashin's representation of 64 coordinates
        or more, with a rotation about the root of `clipping_error`; `worst_squared_bias` bounds it.

    Attributes:
        inner: randomizer of the rotated vectors, whose radius is c·r/√D.
        rotation: public.
        radius: r, the largest ‖x‖₂.

    >>> randomizer = L2Randomizer.best(300, epsilon=1.0, message_bits=10)
    >>> round(randomizer.worst_squared_error)
    5332
    """

    inner: LInfRandomizer
    rotation: Rotation
    radius: float = 1.0
    norm: ClassVar[float] = 2

    def __post_init__(self) -> None:
        checks.positive(radius=self.radius)
        if self.inner.dimension != self.rotation.width:
            raise ParameterError("rotation", self.rotation.width, f"width {self.inner.dimension}")

    @classmethod
    def best(
        cls,
        dimension: int,
        epsilon: float,
        radius: float = 1.0,
        message_bits: float = math.inf,
        *,
        seed: int = 0,
        public_seed: int | None = None,
    ) -> L2Randomizer:
        """The one of least error whose message is no longer than ``message_bits``.

        Kashin's representation if a wider frame fits the bits, else a rotation.
        """
        shared = {"seed": seed, "public_seed": public_seed}
        found = cls.rotated(dimension, epsilon, radius, message_bits, **shared)
        for samples in range(1, min(dimension, math.ceil(2 * epsilon) + 2) + 1):
            for width in _widths(dimension, samples, message_bits, public_seed is None):
                trial = cls.kashin(
                    dimension, epsilon, radius, width=width, samples=samples, **shared
                )
                if trial.worst_squared_error < found.worst_squared_error:
                    found = trial
        return found

    @classmethod
    def rotated(
        cls,
        dimension: int,
        epsilon: float,
        radius: float = 1.0,
        message_bits: float = math.inf,
        *,
        clip: float = CLIP,
        seed: int = 0,
        public_seed: int | None = None,
    ) -> L2Randomizer:
        """A rotation clipped at c, and the (s, m) of least error within ``message_bits``.

        `best_clip` fits c to a number of clients.
        """
        shape = best_shape(dimension, epsilon, message_bits, public_seed is None, 1 / clip)
        bound = clip * radius / math.sqrt(dimension)
        inner = LInfRandomizer(dimension, epsilon, bound, *shape, public_seed=public_seed)
        return cls(inner, CosineRotation(dimension, seed), radius)

    @classmethod
    def kashin(
        cls,
        dimension: int,
        epsilon: float,
        radius: float = 1.0,
        *,
        width: int | None = None,
        samples: int = 1,
        seed: int = 0,
        public_seed: int | None = None,
    ) -> L2Randomizer:
        """Kashin's representation in ``width`` coordinates (2d), a bit of each sampled one.

        About as far from clipping as `level_of` says; encoding takes some 50 rotations.
        """
        frame = KashinFrame(dimension, seed, width or 2 * dimension)
        bound = level_of(frame.width / dimension) * radius / math.sqrt(frame.width)
        inner = LInfRandomizer(frame.width, epsilon, bound, samples, public_seed=public_seed)
        return cls(inner, frame, radius)

    @classmethod
    def as_printed(
        cls,
        dimension: int,
        v: float,
        clients: int,
        samples: int = 1,
        levels: int = 1,
        *,
        radius: float = 1.0,
        beta: float = 0.1,
        seed: int = 0,
    ) -> L2Randomizer:
        """Algorithm 3.6.1 to the letter: Hadamard with padding, r_∞ = 10r√(ln(Dn/β)/D)."""
        checks.count(clients=clients)
        checks.open_unit(beta=beta)
        rotation = HadamardRotation(dimension, seed)
        width = rotation.width
        bound = 10 * radius * math.sqrt(math.log(width * clients / beta) / width)
        inner = LInfRandomizer(width, v, bound, samples, levels, variant="as-printed")
        return cls(inner, rotation, radius)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """D before the rotation, d."""
        return self.rotation.dimension

    @property
    def epsilon0(self) -> float:
        """That of `inner`."""
        return self.inner.epsilon0

    @property
    def total_size(self) -> int:
        """Rotated coordinates."""
        return self.rotation.width

    @property
    def priced_as(self) -> PureRandomizer:
        """That of `inner`."""
        return self.inner.priced_as

    @property
    def laws(self) -> Sequence[tuple[PureRandomizer, int]]:
        """Those of `inner`."""
        return self.inner.laws

    @property
    def radices(self) -> tuple[int, ...]:
        """Those of `inner`."""
        return self.inner.radices

    @property
    def public_randomness(self) -> str:
        """The rotation, and what `inner` shares."""
        inner = self.inner.public_randomness
        return "the rotation" if inner == "none" else f"the rotation, {inner}"

    def spread(self, values: ArrayLike) -> FloatArray:
        """The bounded coordinates that stand for each vector, shape (n, D)."""
        return self.rotation.bounded(self.checked(values) * self.radius, self.inner.radius)

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages of `inner` for the rotated vectors."""
        return self.inner.encode(self.spread(values), source, first)

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum in rotated coordinates, shape (D,): `mean` turns it back once for all."""
        return self.inner.total(messages, first)

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        return self.rotation.backward(self.inner.mean(total, clients)[None])[0]

    def bias(self, values: ArrayLike) -> FloatArray:
        """The mean part that clipping removes, given the rotation."""
        kept = self.spread(values).mean(axis=0, keepdims=True)
        return self.rotation.backward(kept)[0] - np.mean(np.asarray(values), axis=0)

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """E‖y − E y‖² of each client, exact given the rotation."""
        coordinates = self.spread(values) / self.inner.radius
        bits = self.inner.bits
        if self.rotation.width == self.dimension:
            return bits.squared_error(coordinates) * self.inner.radius**2
        errors = np.zeros(len(coordinates))
        for second, mean in bits.moments(coordinates):
            errors += second @ self.rotation.row_sizes
            for group in bits.group_slices:
                part = np.zeros_like(mean)
                part[:, group] = mean[:, group]
                errors -= np.sum(self.rotation.backward(part) ** 2, axis=1)
        return errors * self.inner.radius**2

    @property
    def worst_squared_error(self) -> float:
        """A bound, never below the largest: each E y_j² at its worst."""
        bits = self.inner.bits
        sizes = np.repeat(bits.groups, bits.groups)[: self.rotation.width].astype(float)
        if sizes.min() == sizes.max():
            noise = float(sizes[0]) * self.dimension
        else:
            noise = float(sizes @ self.rotation.row_sizes)
        even = noise * bits.largest_second_moment
        if bits.shared and self.rotation.width == self.dimension:
            # ‖w‖ ≤ r too, so that not every |w_j| can be at the bound.
            weights, bound = bit_weights(bits.levels), self.inner.radius**2
            open_ = bits.largest_second_moment - 1 + weights[-1] ** 2
            large = (sizes.max() - 1) * self.radius**2
            return min(even * bound, float(sizes.sum()) * open_ * bound + large)
        return even * self.inner.radius**2

    @property
    def worst_squared_bias(self) -> float:
        """A bound on E‖bias‖² over the public signs, for any vectors that do not depend on them.

        Given all signs but the last layer's, a rotated coordinate is a sum of independent signs of
        variance v ≤ `peak`·r²/D, and the coordinates' v's add up to r² at most. `clipping_bound`
        grows faster than v, so it is largest where all v's but 0 are at that peak. Whatever the
        signs, no more is clipped than of a vector that is one coordinate.

        Kashin's representation misses no more than the clipped frame it starts from, for its steps
        never lead away. From 64 coordinates on this says 0: so it was for every vector that was
        tried and does not depend on the signs, to 1e-7, which is measured and not proved. With
        fewer a unit vector misses up to 0.2, most often nothing.
        """
        if isinstance(self.rotation, KashinFrame) and self.dimension >= _REPRESENTED:
            return 0.0
        alone = max(1.0 - self.clip / math.sqrt(self.rotation.width), 0.0) ** 2
        signs = clipping_bound(self.clip / math.sqrt(self.rotation.peak))
        return self.radius**2 * min(signs, alone)

    @property
    def clip(self) -> float:
        """C."""
        return self.inner.radius * math.sqrt(self.rotation.width) / self.radius

    @property
    def clipping_error(self) -> float:
        """Squared length of what clipping takes from a vector whose coordinates are normal."""
        return self.radius**2 * clipping_error(self.clip)


def clipping_error(clip: float) -> float:
    """E (|g| − c)₊² for a standard normal g.

    >>> round(clipping_error(3.0), 6)
    0.000407
    """
    density = math.exp(-(clip**2) / 2) / math.sqrt(2 * math.pi)
    return 2 * ((1 + clip**2) * float(ndtr(-clip)) - clip * density)


def clipping_bound(clip: float) -> float:
    """A bound on E (|S| − c)₊² for every sum S of independent signs, of variance 1.

    Source: (x − c)₊² ≤ 8(eu)⁻²·e^{−uc}·cosh(ux), for the quotient with e^{ux} is largest at x = c +
    2/u, and E cosh(uS) ≤ e^{u²/2} (Hoeffding 1963). u makes the product smallest. Of S with
    variance v the product over v rises with v, for u²v ≥ 2 at the best u.

    >>> round(clipping_bound(3.0), 6)
    0.00111
    """
    u = 0.5 * (clip + math.sqrt(clip**2 + 8.0))
    return min(8.0 * math.exp(0.5 * u**2 - u * clip - 2.0) / u**2, 1.0)


def best_clip(
    dimension: int, epsilon: float, clients: int, message_bits: float = math.inf
) -> float:
    """The clip of least E‖estimate − mean‖² for ``clients`` even vectors that may all be alike.

    A wider clip costs variance as c², a narrower one costs bias, which more clients do not lower.
    """
    checks.count(clients=clients)
    found = (math.inf, CLIP)
    for clip in np.arange(0.6, 7.01, 0.2):
        cut = float(clip)
        trial = L2Randomizer.rotated(dimension, epsilon, 1.0, message_bits, clip=cut)
        gains = trial.worst_squared_error
        found = min(found, (gains / clients + clipping_error(cut), cut))
    return round(found[1], 1)


def _widths(
    dimension: int, samples: int, message_bits: float, private_coordinates: bool
) -> list[int]:
    """Widths of frames that fill the bits of an index, s·2^i, and fit the budget."""
    if not private_coordinates:
        return [4 * dimension] if samples <= message_bits else []
    least = (-(-3 * dimension // (2 * samples)) - 1).bit_length()
    room = math.inf if math.isinf(message_bits) else message_bits // samples - 1
    return [samples << i for i in range(least, least + _BITS_MORE) if i <= room]
