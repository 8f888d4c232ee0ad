"""The law of what becomes of an action's rewards on their way to the learner, for estimates.

Notation: a sum of n messages z of ±1 with mean m = κμ each, plus discrete Laplace noise Z with
P(Z = x) ∝ q^{|x|}, q = e^{−1/scale}; ψ(x) = ln E e^{x(z − m)}, φ(x) = ln E e^{xZ}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
_SERIES = 1e-3


@dataclass(frozen=True, eq=False)
class Channels:
    """What the sums of a batch are worth, action by action; public.

    Attributes:
        pulls: n, shape (k,).
        attenuation: κ, shape (k,).
        rate: 1/scale of the discrete Laplace noise on each sum; infinite for none.
    """

    pulls: IntArray
    attenuation: FloatArray
    rate: float

    @property
    def noise_variance(self) -> float:
        """Variance of the noise on one sum."""
        if np.isinf(self.rate):
            return 0.0
        return float(0.5 / np.sinh(0.5 * self.rate) ** 2)

    def variances(self, bits: FloatArray) -> FloatArray:
        """Variance of each action's estimated mean, where its messages have the variance ``bits``.

        Shape (k,).
        """
        return (self.pulls * bits + self.noise_variance) / (self.pulls * self.attenuation) ** 2

    def log_moments(self, x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Upper bound on ln E e^{x(sum − its mean)}, where low ≤ μ ≤ high.

        Args:
            x: shape (…, k).
            low: bounds on each action's mean reward, shape (k,).
            high: as low.
        """
        kappa = self.attenuation
        bits = bit_log_moments(x, kappa * low, kappa * high)
        return self.pulls * bits + laplace_log_moments(x, self.rate)


def bit_log_moments(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The largest ψ(x) over all means m with low ≤ m ≤ high, exact but for 1e-9 of it.

    ln(cosh x + m·sinh x) − m·x is concave in m, with its largest value at m = 1/x − coth x.
    """
    small = np.abs(x) < _SERIES
    y = np.where(small, 1.0, x)
    worst = np.where(small, 0.0, 1.0 / y - 1.0 / np.tanh(y))
    mean = np.clip(worst, low, high)
    with np.errstate(divide="ignore"):  # ln 0 where a mean of ±1 leaves nothing to chance
        # cosh y + m·sinh y = e^{|y|}·(1 + s·m)/2 + e^{−|y|}·(1 − s·m)/2, s the sign of y
        signed = mean * np.sign(y)
        size = np.abs(y)
        exact = size + np.log1p(-0.5 * (1.0 - signed) * -np.expm1(-2.0 * size)) - signed * size
    # Third cumulant at most 0.77, fourth at most 2: |x|³/4 covers what the square leaves out.
    series = 0.5 * (1.0 - mean**2) * x**2 + 0.25 * np.abs(x) ** 3
    return np.where(small, series, np.maximum(exact, 0.0) + 1e-15 * size)


def laplace_log_moments(x: FloatArray, rate: float) -> FloatArray:
    """φ(x) of discrete Laplace noise; infinite from |x| = rate on.

    E e^{xZ} = (1 − q)²/((1 − q·e^x)(1 − q·e^{−x})).
    """
    if np.isinf(rate):
        return np.zeros_like(x)
    inside = np.abs(x) < rate
    y = np.where(inside, x, 0.0)
    # 1/φ's argument is 1 − (sinh(x/2)/sinh(rate/2))².
    ratio = np.sinh(0.5 * y) / np.sinh(0.5 * rate)
    return np.where(inside, -np.log1p(-np.minimum(ratio**2, 1.0 - 1e-15)), np.inf)
