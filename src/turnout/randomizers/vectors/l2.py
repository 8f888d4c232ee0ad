"""Randomizer of vectors of bounded ℓ2 norm: rotate, then send bits of a few coordinates.

`L2Randomizer` combines a rotation or frame of `rotations` with `linf.LInfRandomizer`.
`best_clip` chooses the clip for a number of clients. `clipping_error` returns the squared length
that clipping removes from a normal vector, and `clipping_bound` an upper bound for all vectors.

Notation: d coordinates of a vector, D coordinates of the rotated vector, r the norm bound, c the
clip: rotated coordinates are clipped at ±c·r/√D.
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
from turnout.schemes.randomizers import PureRandomizer

CLIP = 2.9
"""Default clip c. A standard normal coordinate exceeds it with probability 0.0037."""
_REPRESENTED = 64  # least dimension for which Kashin's representation was found in all trials
_BITS_MORE = 3  # how many frame widths are tried


@dataclass(frozen=True)
class L2Randomizer(VectorRandomizer):
    """Randomizer that rotates a vector and applies the ℓ∞ randomizer to the coordinates.

    Source: Algorithms 3.6.1 and 3.6.2 (girgis2023thesis; line 4 prints W for U). With the printed
        constants the error exceeds that of the constant estimate 0 in all practical dimensions
        (errata, 13); `as_printed` builds that form.

    Guarantees:
        Privacy for every vector. The estimate is biased only by clipping; `bias` returns the bias
        given the rotation, and `worst_squared_bias` an upper bound. With Kashin's representation of
        64 coordinates or more the bias is at most 1e-7; with a rotation the length of the bias is
        about the root of `clipping_error`.

    Attributes:
        inner: randomizer of the rotated vectors, whose radius is c·r/√D.
        rotation: public rotation or frame.
        radius: r, the largest ‖x‖₂.

    Raises:
        ParameterError: ``radius`` is not above 0, or the rotation does not fit the inner
            randomizer.

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
            given = f"a rotation of width {self.rotation.width}"
            expected = f"width {self.inner.dimension}, the dimension of the inner randomizer"
            raise ParameterError("rotation", given, expected)

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
        """Randomizer with the smallest error among those with ``message_bits`` bits or fewer.

        The randomizer uses Kashin's representation if the wider frame fits into the message and
        lowers the error, else a rotation.

        Args:
            dimension: d, at least 1.
            epsilon: ε₀ of one message, above 0.
            radius: r, the largest ‖x‖₂.
            message_bits: largest number of bits of a client's message.
            seed: seed of the public rotation.
            public_seed: seed of public coordinates; None: coordinates are part of the message.
        """
        shared = {"seed": seed, "public_seed": public_seed}
        # Start with the rotation; replace it by each frame of smaller error. With s coordinates of
        # ε/s each, the error is about proportional to x·coth²(x/2) at x = ε/s, which is least at
        # x ≈ 2.2; so more than 2ε + 2 coordinates are not tried.
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
        """Randomizer with a rotation, whose rotated coordinates are clipped at c = ``clip``.

        The numbers of sampled coordinates and bits are those with the smallest error whose messages
        have at most ``message_bits`` bits. `best_clip` returns a good clip for a number of clients.

        Args:
            dimension: d, at least 1.
            epsilon: ε₀ of one message, above 0.
            radius: r, the largest ‖x‖₂.
            message_bits: largest number of bits of a client's message.
            clip: c, in units of r/√D.
            seed: seed of the public rotation.
            public_seed: seed of public coordinates; None: coordinates are part of the message.
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
        """Randomizer with Kashin's representation, and one bit of each sampled coordinate.

        The representation has ``width`` coordinates (None: 2d) within the bound of `level_of`.
        Encoding takes the time of about 50 rotations.

        Args:
            dimension: d, at least 1.
            epsilon: ε₀ of one message, above 0.
            radius: r, the largest ‖x‖₂.
            width: number of coordinates D of the representation, above d; None: 2d.
            samples: number of sampled coordinates s.
            seed: seed of the public frame.
            public_seed: seed of public coordinates; None: coordinates are part of the message.
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
        """Randomizer of Algorithm 3.6.1 as printed: padding to a power of two D, Hadamard rotation.

        Rotated coordinates are clipped at 10·r·√(ln(D·n/β)/D), for n ``clients``.

        Args:
            dimension: d, at least 1.
            v: privacy budget v of the algorithm.
            clients: n, number of clients.
            samples: number of sampled coordinates s.
            levels: number of bits m of a coordinate.
            radius: r, the largest ‖x‖₂.
            beta: β, strictly between 0 and 1.
            seed: seed of the public rotation.

        Raises:
            ParameterError: an argument outside its domain.
        """
        checks.count(clients=clients)
        checks.open_unit(beta=beta)
        rotation = HadamardRotation(dimension, seed)
        width = rotation.width
        bound = 10 * radius * math.sqrt(math.log(width * clients / beta) / width)
        inner = LInfRandomizer(width, v, bound, samples, levels, variant="as-printed")
        return cls(inner, rotation, radius)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """Number of coordinates d of a vector before the rotation."""
        return self.rotation.dimension

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ of a message of `inner`, rounded up."""
        return self.inner.epsilon0

    @property
    def total_size(self) -> int:
        """Number of entries of `total`: D, one for each rotated coordinate."""
        return self.rotation.width

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer with which the accountant bounds the privacy loss of a message of `inner`."""
        return self.inner.priced_as

    @property
    def shuffled_as(self) -> Sequence[tuple[PureRandomizer, int]]:
        """Accountant's randomizers of the message's parts, if each part has its own shuffler."""
        return self.inner.shuffled_as

    @property
    def radices(self) -> tuple[int, ...]:
        """Number of values that each number in a message of `inner` can take."""
        return self.inner.radices

    @property
    def public_randomness(self) -> str:
        """Description of the rotation and of the public randomness of `inner`."""
        inner = self.inner.public_randomness
        return "the rotation" if inner == "none" else f"the rotation, {inner}"

    def spread(self, values: ArrayLike) -> FloatArray:
        """The bounded coordinates that represent each vector, shape (n, D)."""
        return self.rotation.bounded(self.checked(values) * self.radius, self.inner.radius)

    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> IntArray:
        """Messages of `inner` for the rotated vectors.

        Raises:
            ParameterError: vectors of a wrong shape, values that are not finite, or a norm above
                the radius.
        """
        return self.inner.encode(self.spread(values), source, first)

    def total(self, messages: IntArray, first: int = 0) -> FloatArray:
        """Sum of the estimates of the rotated vectors, shape (D,); `mean` rotates it back."""
        return self.inner.total(messages, first)

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        return self.rotation.backward(self.inner.mean(total, clients)[None])[0]

    def bias(self, values: ArrayLike) -> FloatArray:
        """The bias that clipping causes in the estimated mean, given the rotation; shape (d,)."""
        kept = self.spread(values).mean(axis=0, keepdims=True)
        return self.rotation.backward(kept)[0] - np.mean(np.asarray(values), axis=0)

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − E y‖² of the estimate y from each client, given the rotation; shape (n,)."""
        coordinates = self.spread(values) / self.inner.radius
        # A rotation preserves lengths, so the errors of the rotated vectors are the errors.
        bits = self.inner.bits
        if self.rotation.width == self.dimension:
            return bits.squared_error(coordinates) * self.inner.radius**2
        # For a frame: E‖Uᵀy‖² from the lengths of the rows of U, minus ‖E Uᵀy‖² of each
        # independently drawn coordinate.
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
        """Upper bound on E‖y − E y‖² over all vectors."""
        bits = self.inner.bits
        # E y_j² is at most the group size of coordinate j times the largest second moment.
        sizes = np.repeat(bits.groups, bits.groups)[: self.rotation.width].astype(float)
        if sizes.min() == sizes.max():
            noise = float(sizes[0]) * self.dimension
        else:
            noise = float(sizes @ self.rotation.row_sizes)
        even = noise * bits.largest_second_moment
        if bits.shared and self.rotation.width == self.dimension:
            # A tighter bound: the rotated vector has norm at most r, so not all of its coordinates
            # can have the largest absolute value.
            weights, bound = bit_weights(bits.levels), self.inner.radius**2
            open_ = bits.largest_second_moment - 1 + weights[-1] ** 2
            large = (sizes.max() - 1) * self.radius**2
            return min(even * bound, float(sizes.sum()) * open_ * bound + large)
        return even * self.inner.radius**2

    @property
    def worst_squared_bias(self) -> float:
        """Upper bound on E‖bias‖² over the public signs, for vectors independent of the signs.

        For a rotation the bound is proved. Given all signs except those of the last layer, a
        rotated coordinate is a sum of independent random signs of variance v ≤ `peak`·r²/D, and the
        variances of all coordinates sum to at most r². The bound `clipping_bound` grows faster than
        v, so the sum of these bounds is largest if every v is either 0 or the largest possible
        value. A second bound holds for all signs: clipping removes at most as much as it removes
        from a vector with a single nonzero coordinate.

        Kashin's representation has at most the bias of the clipped frame with which the iteration
        starts, since no step increases the distance. For 64 coordinates or more 0 is returned: in
        all experiments, vectors independent of the signs were represented to 1e-7. This is measured
        and not proved. With fewer coordinates the error of a unit vector reached up to 0.2.
        """
        if isinstance(self.rotation, KashinFrame) and self.dimension >= _REPRESENTED:
            return 0.0
        alone = max(1.0 - self.clip / math.sqrt(self.rotation.width), 0.0) ** 2
        signs = clipping_bound(self.clip / math.sqrt(self.rotation.peak))
        return self.radius**2 * min(signs, alone)

    @property
    def clip(self) -> float:
        """The clip c, in units of r/√D."""
        return self.inner.radius * math.sqrt(self.rotation.width) / self.radius

    @property
    def clipping_error(self) -> float:
        """Mean squared length that clipping removes from a vector with normal coordinates."""
        return self.radius**2 * clipping_error(self.clip)


def clipping_error(clip: float) -> float:
    """E (|g| − c)₊² of a standard normal number g, where c is ``clip``.

    >>> round(clipping_error(3.0), 6)
    0.000407
    """
    density = math.exp(-(clip**2) / 2) / math.sqrt(2 * math.pi)
    return 2 * ((1 + clip**2) * float(ndtr(-clip)) - clip * density)


def clipping_bound(clip: float) -> float:
    """Upper bound on E (|S| − c)₊² over all weighted sums S of independent signs of variance 1.

    Source: (x − c)₊² ≤ 8(eu)⁻²·e^{−uc}·cosh(ux), since (x − c)²/e^{ux} is largest at x = c + 2/u;
        and E cosh(uS) ≤ e^{u²/2} (Hoeffding 1963). The function uses the u that minimises the
        product. For S of variance v the bound divided by v increases with v, because u²v ≥ 2 at the
        minimising u.

    >>> round(clipping_bound(3.0), 6)
    0.00111
    """
    u = 0.5 * (clip + math.sqrt(clip**2 + 8.0))
    return min(8.0 * math.exp(0.5 * u**2 - u * clip - 2.0) / u**2, 1.0)


def best_clip(
    dimension: int, epsilon: float, clients: int, message_bits: float = math.inf
) -> float:
    """The clip c that minimises an upper bound on the mean squared error for ``clients`` vectors.

    The bound assumes that rotated coordinates are normal; the vectors may all be equal. A larger
    clip increases the variance, which is proportional to c²; a smaller clip increases the bias,
    which does not decrease with the number of clients.

    Args:
        dimension: number of coordinates d, at least 1.
        epsilon: ε₀ of one message.
        clients: number of clients n, at least 1.
        message_bits: largest number of bits of a client's message.

    Raises:
        ParameterError: an argument outside its domain.
    """
    checks.count(clients=clients)
    # Try clips from 0.6 to 7: variance of the mean plus squared bias.
    found = (math.inf, CLIP)
    for clip in np.arange(0.6, 7.01, 0.2):
        cut = float(clip)
        trial = L2Randomizer.rotated(dimension, epsilon, 1.0, message_bits, clip=cut)
        variance = trial.worst_squared_error
        found = min(found, (variance / clients + clipping_error(cut), cut))
    return round(found[1], 1)


def _widths(
    dimension: int, samples: int, message_bits: float, private_coordinates: bool
) -> list[int]:
    """Widths s·2^i of frames whose messages of s coordinates have at most ``message_bits`` bits.

    With such a width, an index of i bits names a coordinate of a group without unused values.
    """
    if not private_coordinates:
        return [4 * dimension] if samples <= message_bits else []
    # The narrowest frame has at least 1.5·d coordinates, since narrower frames have a much larger
    # bound (`level_of`). The widths double while the index fits into the message.
    least = (-(-3 * dimension // (2 * samples)) - 1).bit_length()
    room = math.inf if math.isinf(message_bits) else message_bits // samples - 1
    return [samples << i for i in range(least, least + _BITS_MORE) if i <= room]
