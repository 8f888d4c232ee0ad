"""The pair of Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from turnout.core import checks

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
