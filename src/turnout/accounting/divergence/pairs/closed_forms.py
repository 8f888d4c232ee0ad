"""The pairs of Gaussian and Laplace noise, and those of every ε₀-DP and (ε₀, δ₀)-DP randomizer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from turnout.core import checks
from turnout.core.errors import ParameterError

FloatArray = np.ndarray


@dataclass(frozen=True, slots=True)
class GaussianPair:
    """N(1, σ²) against N(0, σ²): ln X ~ N(−μ²/2, μ²) under Q and N(+μ²/2, μ²) under P.

    Source: accounting.md, table of pairs.

    Attributes:
        noise_multiplier: σ, the standard deviation of the noise divided by the sensitivity.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive(noise_multiplier=self.noise_multiplier)

    @property
    def mu(self) -> float:
        """Sensitivity divided by the standard deviation of the noise."""
        return 1.0 / self.noise_multiplier

    @property
    def second_moment(self) -> float:
        """e^{μ²}; infinite where that exceeds the largest float."""
        return float(np.exp(np.float64(min(self.mu**2, 709.0))))

    def _scores(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        with np.errstate(divide="ignore"):
            centred = np.log(k) / self.mu
        return centred + self.mu / 2, centred - self.mu / 2

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        return ndtr(self._scores(k)[0])

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k), by the survival side."""
        return ndtr(-self._scores(k)[0])

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k)."""
        return ndtr(self._scores(k)[1])

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k), by the survival side."""
        return ndtr(-self._scores(k)[1])


@dataclass(frozen=True, slots=True)
class LaplacePair:
    """Lap(1, b) against Lap(0, b): ln X = (|z| − |z − 1|)/b with z ~ Lap(0, b) under Q.

    ln X = (2z − 1)/b between 0 and 1, and ±1/b with atoms outside.
    Source: accounting.md, table of pairs.

    Attributes:
        scale: b, the noise's scale divided by the sensitivity of the one number released.
    """

    scale: float

    def __post_init__(self) -> None:
        checks.positive(scale=self.scale)

    @property
    def second_moment(self) -> float:
        """E_Q[X²] = (2e^{1/b} + e^{−2/b})/3."""
        most = min(1.0 / self.scale, 700.0)
        return (2.0 * math.exp(most) + math.exp(-2.0 * most)) / 3.0

    def _place(self, k: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The position of z when X = k, in [0, 1], and whether k lies below or from the top on."""
        with np.errstate(divide="ignore"):
            z = 0.5 * (self.scale * np.log(k) + 1.0)
        return np.clip(z, 0.0, 1.0), z < 0.0, z >= 1.0

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        z, below, above = self._place(k)
        inside = 1.0 - 0.5 * np.exp(-z / self.scale)
        return np.where(below, 0.0, np.where(above, 1.0, inside))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k)."""
        z, below, above = self._place(k)
        inside = 0.5 * np.exp(-z / self.scale)
        return np.where(below, 1.0, np.where(above, 0.0, inside))

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k)."""
        z, below, above = self._place(k)
        inside = 0.5 * np.exp((z - 1.0) / self.scale)
        return np.where(below, 0.0, np.where(above, 1.0, inside))

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k)."""
        z, below, above = self._place(k)
        inside = 1.0 - 0.5 * np.exp((z - 1.0) / self.scale)
        return np.where(below, 1.0, np.where(above, 0.0, inside))


_LARGEST = 300.0


@dataclass(frozen=True, slots=True)
class PurePair:
    """X = e^{±ε₀}, and X = 0 with probability δ₀; the ratio is scaled to E_Q[X] = 1.

    Every (ε₀, δ₀)-DP randomizer is a function of this one's output. P puts δ₀ where Q has
    nothing: that is the pair's infinity mass (see `curves.InfinityMassCurve`).
    Source: Kairouz, Oh & Viswanath 2015, Theorem 3.4; accounting.md, table of pairs.
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
        reaches = np.less if above else np.greater_equal
        masses = ((0.0, zero), (low, small), (high, large))
        first, second, third = (np.where(reaches(k, x), mass, 0.0) for x, mass in masses)
        return first + second + third

    def _under_q(self, k: FloatArray, *, above: bool) -> FloatArray:
        kept = 1.0 - self.delta0
        small, large = kept * (1.0 - self.likely), kept * self.likely
        return self._steps(k, self.delta0, small, large, above=above)

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        return self._under_q(k, above=False)

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k)."""
        return self._under_q(k, above=True)

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k) given that X is finite."""
        return self._steps(k, 0.0, self.likely, 1.0 - self.likely, above=False)

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k) given that X is finite."""
        return self._steps(k, 0.0, self.likely, 1.0 - self.likely, above=True)
