"""The dominating pair of every ε₀-DP, and of every (ε₀, δ₀)-DP, randomizer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core import checks
from turnout.core.errors import ParameterError

FloatArray = np.ndarray
_LARGEST = 300.0


@dataclass(frozen=True, slots=True)
class PurePair:
    """X = e^{±ε₀}, and X = 0 with probability δ₀; the ratio is scaled to E_Q[X] = 1.

    Every (ε₀, δ₀)-DP randomizer is a function of this one's output. P puts δ₀ where Q has
    nothing: that is the pair's leak (see `curves.LeakyCurve`).
    Source: Kairouz, Oh & Viswanath 2015, Theorem 3.4; accounting.md, table of pairs.

    Attributes:
        epsilon0: ε₀.
        delta0: δ₀.
    """

    epsilon0: float
    delta0: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0)
        if self.epsilon0 > _LARGEST:
            raise ParameterError("epsilon0", self.epsilon0, f"at most {_LARGEST:g}")
        checks.probability(delta0=self.delta0)

    @property
    def likely(self) -> float:
        """Q(X = e^{ε₀}) given X > 0."""
        return 1.0 / (math.exp(self.epsilon0) + 1.0)

    @property
    def second_moment(self) -> float:
        """E_Q[X²] of the ratio scaled to mean 1."""
        return (2.0 * math.cosh(self.epsilon0) - 1.0) / (1.0 - self.delta0)

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """The values of X and Q's masses on them."""
        kept = 1.0 - self.delta0
        values = np.array([0.0, math.exp(-self.epsilon0) / kept, math.exp(self.epsilon0) / kept])
        masses = np.array([self.delta0, kept * (1.0 - self.likely), kept * self.likely])
        return values[masses > 0], masses[masses > 0]

    def _steps(
        self, k: FloatArray, zero: float, small: float, large: float, *, above: bool
    ) -> FloatArray:
        """Mass up to (or above) k of a law on 0 and the two values."""
        low, high = (math.exp(s * self.epsilon0) / (1.0 - self.delta0) for s in (-1.0, 1.0))
        if above:
            return (
                np.where(k < 0, zero, 0.0)
                + np.where(k < low, small, 0.0)
                + np.where(k < high, large, 0.0)
            )
        return (
            np.where(k >= 0, zero, 0.0)
            + np.where(k >= low, small, 0.0)
            + np.where(k >= high, large, 0.0)
        )

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        kept = 1.0 - self.delta0
        return self._steps(
            k, self.delta0, kept * (1.0 - self.likely), kept * self.likely, above=False
        )

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k)."""
        kept = 1.0 - self.delta0
        return self._steps(
            k, self.delta0, kept * (1.0 - self.likely), kept * self.likely, above=True
        )

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k) given that X is finite."""
        return self._steps(k, 0.0, self.likely, 1.0 - self.likely, above=False)

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k) given that X is finite."""
        return self._steps(k, 0.0, self.likely, 1.0 - self.likely, above=True)
