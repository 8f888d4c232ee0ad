"""Randomizers of vectors with bounded coordinates, and of binary vectors: a few coordinates each.

`LInfRandomizer` sends some bits of sampled coordinates; water-filling divides the privacy budget
among the bits, and `best_shape` chooses the numbers of coordinates and bits.
`BinaryVectorRandomizer` flips every bit of the sampled coordinates. Both are `BitRandomizer`.

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
    """Randomizer that sends m bits of s sampled coordinates, each flipped with a fitting chance.

    Source: Algorithms 3.5.1 and 3.5.2 (girgis2023thesis). The default spends the whole ε₀, sends
    the m bits of *one* coordinate instead of one bit of m coordinates, centres them, adds no
    coordinates, and water-fills exactly. ``variant="as-printed"`` does none of this.

    Attributes:
        epsilon: requested ε₀, above 0; `epsilon0` is the level reached, at most this.
        radius: r, the largest |x_j|.
        samples: s, from 1 to d.
        levels: m ≥ 1.
        shared: whether a message has all m bits of s coordinates, or one bit of m·s coordinates;
            the latter is better where each bit has its own shuffler.
        shares: budgets of the m bits of one coordinate; None: the best for the local model.

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
            raise ParameterError("shares", self.shares, f"one a level, {self.levels}")
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
        """Randomizer of least worst-case error with messages of at most ``message_bits`` bits.

        Args:
            dimension: d.
            epsilon: ε₀ of one message.
            radius: r, the largest |x_j|.
            message_bits: largest number of bits of a client's message.
            public_seed: seed of public coordinates; None: coordinates are part of the message.

        Raises:
            ParameterError: every message is longer.
        """
        samples, levels = best_shape(dimension, epsilon, message_bits, public_seed is None)
        return cls(dimension, epsilon, radius, samples, levels, public_seed=public_seed)

    def encode_updates(self, updates: NDArray[np.floating], source: Source) -> IntArray:
        """Messages of updates of any length, shape (n, …); only the coordinates sent are clipped.

        Raises:
            ParameterError: updates of another dimension.
        """
        self.require_shape(updates)
        return self.bits.encode(finite_rows(updates), source, scale=self.radius)

    @property
    def flips(self) -> tuple[float, ...]:
        """Probability p_k that a bit of each level is flipped, shape (m,)."""
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
        """E‖y − x‖² of each client's estimate y, exact; shape (n,)."""
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
    """The (s, m) of least error with messages of at most ``message_bits`` bits.

    Args:
        dimension: d.
        epsilon: ε₀ of one message.
        message_bits: largest number of bits of a client's message.
        private_coordinates: whether coordinates are sent, so that their bits count.
        deviation: standard deviation, in units of the bound, of about normal coordinates; None: the
            error of the worst vector in [−1, 1]^d counts.

    Raises:
        ParameterError: every message is longer.
    """
    checks.count(dimension=dimension)
    checks.positive(epsilon=epsilon)
    # Try all numbers of sampled coordinates that ε can pay for.
    found: tuple[float, int, int] | None = None
    for samples in range(1, min(dimension, math.ceil(2 * epsilon) + 2) + 1):
        if epsilon / samples > LARGEST_EPSILON:
            continue
            # s groups whose sizes differ by at most one.
        smaller, larger = divmod(dimension, samples)
        groups = [(smaller + 1, larger), (smaller, samples - larger)]
        for levels in range(1, _MOST_LEVELS + 1):
            # More levels only lengthen the message, so stop at the first one that does not
            # fit.
            index_bits = sum(n * (a - 1).bit_length() for a, n in groups if n)
            if index_bits * private_coordinates + samples * levels > message_bits:
                break
                # Ties go to the smaller shape.
            shares = np.array(water_filled(epsilon / samples, levels))
            error = _error(groups, levels, shares, deviation)
            if found is None or error < found[0] * (1 - 1e-12):
                found = (error, samples, levels)
    if found is None:
        raise ParameterError("message_bits", message_bits, "room for one coordinate and one bit")
    return found[1], found[2]


def _error(
    groups: list[tuple[int, int]], levels: int, shares: FloatArray, deviation: float | None
) -> float:
    """E‖y − x‖², where ``groups`` has pairs of a group size and the number of such groups."""
    weights = bit_weights(levels)
    noise = float(weights**2 @ (np.tanh(shares / 2) ** -2 - 1))
    sizes = np.array([a for a, _ in groups], dtype=np.float64)
    counts = sizes * [n for _, n in groups]
    if deviation is None:
        spread = worst_spread(sizes, float(weights[-1]))
    else:
        spread = sizes * _second_moment(levels, deviation) - deviation**2
    return float(counts @ (spread + sizes * noise))


@lru_cache(maxsize=256)
def _second_moment(levels: int, deviation: float) -> float:
    """E(Σ w_k·c_k)² of a normal coordinate of this deviation that is clipped at 1."""
    chances = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    values = np.clip(deviation * ndtri(chances), -1.0, 1.0)
    step = bit_weights(levels)[-1] * 2
    cell = np.minimum(np.floor((values + 1) / step) * step - 1, 1 - step)
    # Between two neighbours of the grid E c̃² = x² + (x − low)(high − x).
    return float(np.mean(values**2 + (values - cell) * (cell + step - values)))


@dataclass(frozen=True)
class BinaryVectorRandomizer(BitRandomizer):
    """Randomized response on s of d bits: one uniform bit of each group of about d/s.

    Source: Algorithms 3.3.1 and 3.3.2 (girgis2023thesis). The default differs from the print in
    three ways: p spends the whole ε₀, 1/(1 + e^{ε₀/s}); the estimate is of 2b − 1, not of b; no
    coordinates are added where s does not divide d. ``variant="as-printed"`` has none of these.

    Guarantees:
        E‖y − b‖² = ¼(Σ_groups a²/(1 − 2p)² − d) for every b, in the default.

    Attributes:
        epsilon: requested ε₀, above 0; `epsilon0` is the level reached, at most this.
        samples: s, from 1 to d.
        public_seed: seed of public coordinates, which all parties know; a message is then s bits.
            None: coordinates are part of the message.

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
        """Probability p that a bit is flipped, as a tuple of one level."""
        if self.variant == "as-printed":
            return printed_flips(self.epsilon, 1, self.samples)
        return level_flips(self.epsilon, self.samples, 1)

    def checked(self, values: ArrayLike) -> FloatArray:
        """The bits as ±1, shape (n, d).

        Raises:
            ParameterError: another shape, or a value other than 0 and 1.
        """
        vectors = super().checked(values)
        if not np.all((vectors == 0) | (vectors == 1)):
            raise ParameterError("values", "other numbers", "0 and 1")
        return 2 * vectors - 1

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated share of ones, shape (d,); may lie outside [0, 1]."""
        return (total / clients + 1) / 2

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """E‖y − b‖² of each client's estimate y, exact; shape (n,)."""
        return self.bits.squared_error(self.checked(values)) / 4

    @property
    def worst_squared_error(self) -> float:
        """The largest E‖y − b‖² over b in {0, 1}^d."""
        corners = np.stack([np.full(self.dimension, -1.0), np.ones(self.dimension)])
        return float(self.bits.squared_error(corners).max()) / 4
