"""Means of binary vectors: a few coordinates of each, every bit turned over at random.

Notation: d coordinates, s sampled ones, a in a group, p the chance that a bit is turned over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.vectors.bit_randomizer import BitRandomizer, Variant
from turnout.randomizers.vectors.vector_randomizer import FloatArray
from turnout.randomizers.vectors.water_filling import level_flips, printed_flips


@dataclass(frozen=True)
class BinaryVectorRandomizer(BitRandomizer):
    """Randomized response on s of d bits, one of each group of about d/s.

    Source: Algorithms 3.3.1 and 3.3.2 (girgis2023thesis). The default differs from the print in
    three ways: p spends the whole ε₀, 1/(1 + e^{ε₀/s}); the estimate is of 2b − 1, not of b; no
    coordinates are added where s does not divide d. ``variant="as-printed"`` has none of these.

    Guarantees:
        E‖y − b‖² = ¼(Σ_groups a²/(1 − 2p)² − d) for every b, in the default.

    Attributes:
        epsilon: ε₀ asked for, > 0; `epsilon0` is what it is, at most this.
        samples: s, from 1 to d.
        public_seed: from which everybody knows who reports which coordinates; a message is then
            s bits. None: the coordinates are sent.

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
        """One level's p."""
        if self.variant == "as-printed":
            return printed_flips(self.epsilon, 1, self.samples)
        return level_flips(self.epsilon, self.samples, 1)

    def checked(self, values: ArrayLike) -> FloatArray:
        """The bits as ±1."""
        vectors = super().checked(values)
        if not np.all((vectors == 0) | (vectors == 1)):
            raise ParameterError("values", "other numbers", "0 and 1")
        return 2 * vectors - 1

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated share of ones, shape (d,); may lie outside [0, 1]."""
        return (total / clients + 1) / 2

    def squared_error(self, values: ArrayLike) -> FloatArray:
        """E‖y − b‖² of each client, exact."""
        return self.bits.squared_error(self.checked(values)) / 4

    @property
    def worst_squared_error(self) -> float:
        """The largest E‖y − b‖² over b in {0, 1}^d."""
        corners = np.stack([np.full(self.dimension, -1.0), np.ones(self.dimension)])
        return float(self.bits.squared_error(corners).max()) / 4
