"""Dominating pairs: the law of one likelihood ratio.

Notation (docs/design/accounting.md): Q = "her contribution is absent", P = "it is present",
X = dP/dQ, so X ≥ 0 and E_Q[X] = 1. A pair is used only through the four tail functions of X.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from turnout.core import checks

FloatArray = np.ndarray


class Pair(Protocol):
    """The law of the likelihood ratio X of one randomizer, under Q and under P."""

    @property
    def second_moment(self) -> float:
        """E_Q[X²] = E_P[X]."""
        ...

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        ...

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k), accurate where it is tiny."""
        ...

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k) = E_Q[X; X ≤ k]."""
        ...

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k) = E_Q[X; X > k], accurate where it is tiny."""
        ...

    def upper_quantile(self, mass: float) -> float:
        """A k with P(X > k) ≤ about ``mass``."""
        ...


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

    def upper_quantile(self, mass: float) -> float:
        """The k with P(X > k) = ``mass``."""
        return float(np.exp(self.mu**2 / 2 - self.mu * ndtri(mass)))


UNIT_ROUNDOFF = 2.0**-53


def _tail_rounding(tail: FloatArray) -> FloatArray:
    """Bound on the rounding error of a tail function and of its share in a price.

    A score z errs by a few u of itself, which moves the tail by z² ≈ −2 ln(tail) times as much.
    Twice what a comparison with forty digits showed at worst.
    """
    return UNIT_ROUNDOFF * tail * (16.0 - 8.0 * np.log(np.maximum(tail, 1e-300)))


def call_rounding(pair: Pair, k: FloatArray) -> FloatArray:
    """Bound on the rounding error of `call`, shape of ``k``."""
    return _tail_rounding(pair.p_above(k)) + k * _tail_rounding(pair.q_above(k))


def put_rounding(pair: Pair, k: FloatArray) -> FloatArray:
    """Bound on the rounding error of `put`, shape of ``k``."""
    return _tail_rounding(pair.p_below(k)) + k * _tail_rounding(pair.q_below(k))


def call(pair: Pair, k: FloatArray) -> FloatArray:
    """E_Q[(X − k)₊] = H_k(P‖Q), shape of ``k``."""
    return np.maximum(pair.p_above(k) - k * pair.q_above(k), 0.0)


def put(pair: Pair, k: FloatArray) -> FloatArray:
    """E_Q[(k − X)₊] = k·H_{1/k}(Q‖P), shape of ``k``."""
    return np.maximum(k * pair.q_below(k) - pair.p_below(k), 0.0)
