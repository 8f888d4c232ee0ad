"""Randomizers of vectors with bounded coordinates, and of binary vectors, by sampled coordinates.

`LInfRandomizer` sends some bits of a few sampled coordinates; water-filling divides the privacy
budget among the bits, and `best_shape` chooses the numbers of coordinates and bits.
`BinaryVectorRandomizer` samples some bits of a binary vector and flips each at random. Both are
subclasses of `BitRandomizer`.

Notation: d coordinates, s sampled coordinates, m bits of each, a coordinates in a group, r the
bound, p the probability that a bit is flipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.randomizers.vectors.interface import FloatArray, IntArray, finite_rows
from turnout.randomizers.vectors.sampled_bits import (
    BitRandomizer,
    Variant,
    bit_weights,
    level_flips,
    printed_flips,
    water_filled,
    worst_spread,
)
from turnout.randomness import Source

_MOST_LEVELS = 10
_QUANTILES = 2048


@dataclass(frozen=True)
class LInfRandomizer(BitRandomizer):
    """Randomizer that sends m randomly flipped bits of each of s sampled coordinates.

    Source: Algorithms 3.5.1 and 3.5.2 (girgis2023thesis), with five improvements: the flips use up
        the whole ε₀; all m bits of a message are of the *same* coordinate instead of one bit of
        each of m coordinates; bits are estimated as ±1 instead of 0 and 1; the vector is not
        padded; and the budgets of the bits are optimal. ``variant="as-printed"`` has none of these.

    Attributes:
        epsilon: requested ε₀, above 0; `epsilon0` is the level of the messages, at most this.
        radius: r, the largest |x_j|.
        samples: number of sampled coordinates s, from 1 to d.
        levels: number of bits m of a coordinate, at least 1.
        shared: True: a message has all m bits of s coordinates. False: a message has one bit of
            each of m·s coordinates; the error is then smaller if each bit has its own shuffler.
        shares: privacy budgets of the m bits of one coordinate, shape (m,); None: the budgets with
            the smallest error without a shuffler.

    Raises:
        ParameterError: a parameter outside its domain, or a wrong number of ``shares``.

    >>> LInfRandomizer.best(1, epsilon=4.0).message_bits
    2
    """

    dimension: int
    epsilon: float
    radius: float = 1.0
    samples: int = 1
    levels: int = 1
    variant: Variant = "default"
    public_seed: int | None = None
    shared: bool = True
    shares: tuple[float, ...] | None = None
    norm: ClassVar[float] = np.inf

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon, radius=self.radius)
        checks.count(samples=self.samples, levels=self.levels)
        checks.flag(shared=self.shared)
        if self.shares is not None and len(self.shares) != self.levels:
            expected = f"{self.levels} budgets, one for each bit of a coordinate"
            raise ParameterError("shares", self.shares, expected)
        self.require_parts()

    @classmethod
    def best(
        cls,
        dimension: int,
        epsilon: float,
        radius: float = 1.0,
        message_bits: float = math.inf,
        public_seed: int | None = None,
    ) -> LInfRandomizer:
        """Randomizer with the smallest worst-case error, given at most ``message_bits`` bits.

        Args:
            dimension: number of coordinates d.
            epsilon: ε₀ of one message.
            radius: r, the largest |x_j|.
            message_bits: largest number of bits of a client's message.
            public_seed: seed of public coordinates; None: coordinates are part of the message.

        Raises:
            ParameterError: ``message_bits`` is too small for one coordinate and one bit.
        """
        samples, levels = best_shape(dimension, epsilon, message_bits, public_seed is None)
        return cls(dimension, epsilon, radius, samples, levels, public_seed=public_seed)

    def encode_updates(self, updates: NDArray[np.floating], source: Source) -> IntArray:
        """Messages of updates of any norm, shape (n, words).

        Only the sampled coordinates are clipped; the messages are the same as if all were clipped.

        Raises:
            ParameterError: updates of a wrong dimension.
        """
        self.require_shape(updates)
        return self.bits.encode(finite_rows(updates), source, scale=self.radius)

    @property
    def flips(self) -> tuple[float, ...]:
        """Probability p_k that the k-th bit of a coordinate is flipped, shape (m,)."""
        if self.variant == "as-printed":
            return printed_flips(self.epsilon, self.levels, self.samples)
        return level_flips(self.epsilon, self.samples, self.levels, self.shares)

    @property
    def in_default_shared(self) -> bool:
        """Whether all bits of a message are of the same coordinates."""
        return self.shared

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (d,)."""
        return total * (self.radius / clients)

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − x‖² of the estimate y from each client's message, shape (n,)."""
        return self.bits.squared_error(self.checked(values)) * self.radius**2

    @property
    def worst_squared_error(self) -> float:
        """The largest E‖y − x‖² over x in [−r, r]^d."""
        return self.bits.worst_squared_error * self.radius**2


def best_shape(
    dimension: int,
    epsilon: float,
    message_bits: float,
    private_coordinates: bool = True,
    deviation: float | None = None,
) -> tuple[int, int]:
    """The numbers s and m that minimise the error: s sampled coordinates with m bits each.

    Args:
        dimension: number of coordinates d.
        epsilon: ε₀ of one message.
        message_bits: largest number of bits of a client's message.
        private_coordinates: whether a message contains the indices of its coordinates, whose bits
            then count towards ``message_bits``.
        deviation: if given, the error is that of normal coordinates with this standard deviation,
            in units of the largest magnitude of a coordinate. None: the error is that of the worst
            vector in [−1, 1]^d.

    Returns:
        The pair (s, m).

    Raises:
        ParameterError: an argument outside its domain, or a ``message_bits`` too small for one
            coordinate and one bit.
    """
    checks.count(dimension=dimension)
    checks.positive(epsilon=epsilon)
    # Try every useful number of sampled coordinates: each needs a part of ε that is not tiny.
    found: tuple[float, int, int] | None = None
    for samples in range(1, min(dimension, math.ceil(2 * epsilon) + 2) + 1):
        if epsilon / samples > LARGEST_EPSILON:
            continue
        # Divide the coordinates into s groups whose sizes differ by at most one.
        smaller, larger = divmod(dimension, samples)
        groups = [(smaller + 1, larger), (smaller, samples - larger)]
        for levels in range(1, _MOST_LEVELS + 1):
            # More bits make the message longer, so stop at the first number that does not fit.
            index_bits = sum(n * (a - 1).bit_length() for a, n in groups if n)
            if index_bits * private_coordinates + samples * levels > message_bits:
                break
            # Keep this pair if its error is smaller; if errors are equal, keep the shorter message.
            shares = np.array(water_filled(epsilon / samples, levels))
            error = _error(groups, levels, shares, deviation)
            if found is None or error < found[0] * (1 - 1e-12):
                found = (error, samples, levels)
    if found is None:
        expected = "enough bits for the number of one coordinate and one bit of its value"
        raise ParameterError("message_bits", message_bits, expected)
    return found[1], found[2]


def _error(
    groups: list[tuple[int, int]], levels: int, shares: FloatArray, deviation: float | None
) -> float:
    """E‖y − x‖² of a message; ``groups`` has pairs of a group size and a number of groups."""
    # Variance that flipping adds, for each coordinate of a group of size 1.
    weights = bit_weights(levels)
    noise = float(weights**2 @ (np.tanh(shares / 2) ** -2 - 1))
    # Variance of sampling a coordinate and rounding its last bit, for each group size.
    sizes = np.array([a for a, _ in groups], dtype=np.float64)
    counts = sizes * [n for _, n in groups]
    if deviation is None:
        spread = worst_spread(sizes, float(weights[-1]))
    else:
        spread = sizes * _second_moment(levels, deviation) - deviation**2
    return float(counts @ (spread + sizes * noise))


@lru_cache(maxsize=256)
def _second_moment(levels: int, deviation: float) -> float:
    """E(Σ w_k·c_k)² for the bits c_k = ±1, with weights w_k, of a normal coordinate.

    The coordinate has the standard deviation ``deviation`` and is clipped at ±1.
    """
    chances = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    values = np.clip(deviation * ndtri(chances), -1.0, 1.0)
    step = bit_weights(levels)[-1] * 2
    cell = np.minimum(np.floor((values + 1) / step) * step - 1, 1 - step)
    # The rounded value c̃ of x, between the grid points low and high, has
    # E c̃² = x² + (x − low)(high − x).
    return float(np.mean(values**2 + (values - cell) * (cell + step - values)))


@dataclass(frozen=True)
class BinaryVectorRandomizer(BitRandomizer):
    """Randomized response on s of the d bits of a binary vector b.

    The bits are divided into s groups of about d/s bits; one uniform bit of each group is sent.

    Source: Algorithms 3.3.1 and 3.3.2 (girgis2023thesis). The default differs from the printed
        algorithms in three points: p = 1/(1 + e^{ε₀/s}) uses up the whole ε₀; a bit is estimated as
        ±1 instead of 0 and 1; and the vector is not padded if s does not divide d.
        ``variant="as-printed"`` has none of these improvements.

    Guarantees:
        With the default variant E‖y − b‖² = ¼(Σ a²/(1 − 2p)² − d) for every b, where the sum is
        over the sizes a of the s groups.

    Attributes:
        epsilon: requested ε₀, above 0; `epsilon0` is the level of the messages, at most this.
        samples: number of sampled coordinates s, from 1 to d.
        public_seed: seed from which all parties compute the sampled coordinates; a message then has
            s bits. None: coordinates are part of the message.

    Raises:
        ParameterError: a parameter outside its domain.

    >>> randomizer = BinaryVectorRandomizer(300, epsilon=1.0)
    >>> randomizer.message_bits, round(randomizer.epsilon0, 6)
    (10, 1.0)
    """

    dimension: int
    epsilon: float
    samples: int = 1
    variant: Variant = "default"
    public_seed: int | None = None
    radius: float = field(default=1.0, init=False)
    norm: ClassVar[float] = np.inf

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        self.require_parts()

    @property
    def flips(self) -> tuple[float, ...]:
        """Probability p that a bit is flipped, shape (1,)."""
        if self.variant == "as-printed":
            return printed_flips(self.epsilon, 1, self.samples)
        return level_flips(self.epsilon, self.samples, 1)

    def checked(self, values: ArrayLike) -> FloatArray:
        """The bits as ±1, shape (n, d).

        Raises:
            ParameterError: a wrong shape, or a value other than 0 and 1.
        """
        vectors = super().checked(values)
        binary = (vectors == 0) | (vectors == 1)
        if not np.all(binary):
            raise ParameterError("values", float(vectors[~binary][0]), "only 0 and 1")
        return 2 * vectors - 1

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated share of ones in each coordinate, shape (d,); may lie outside [0, 1]."""
        return (total / clients + 1) / 2

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """Exact E‖y − b‖² of the estimate y from each client's message, shape (n,)."""
        return self.bits.squared_error(self.checked(values)) / 4

    @property
    def worst_squared_error(self) -> float:
        """The largest E‖y − b‖² over b in {0, 1}^d."""
        corners = np.stack([np.full(self.dimension, -1.0), np.ones(self.dimension)])
        return float(self.bits.squared_error(corners).max()) / 4
