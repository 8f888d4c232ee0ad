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
_CUBIC = 0.12831  # above 2/(9√3), a sixth of the largest third cumulant of a bit of ±1
_MANY = 64  # sums from which on a bound that is quicker to compute is used


@dataclass(frozen=True, eq=False)
class Channels:
    """The laws of the sums of a batch, action by action; public.

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

    def log_moments(
        self, weights: FloatArray, scales: FloatArray, low: FloatArray, high: FloatArray
    ) -> FloatArray:
        """Upper bounds on ln E e^{λΣ w·(sum − its mean)}, where low ≤ μ ≤ high.

        Args:
            weights: w of each sum, one combination a row, shape (m, k).
            scales: λ > 0 of each combination, shape (m, levels).
            low: bounds on each action's mean reward, shape (k,).
            high: as low.

        Returns:
            shape (m, levels); for few sums the exact suprema, for many a cubic bound.
        """
        low, high = self.attenuation * low, self.attenuation * high
        if self.pulls.size > _MANY:
            return self._cubic(weights, scales, low, high)
        x = scales[:, :, None] * weights[:, None, :]
        each = self.pulls * bit_log_moments(x, low, high) + laplace_log_moments(x, self.rate)
        return each.sum(axis=2)

    def _cubic(
        self, weights: FloatArray, scales: FloatArray, low: FloatArray, high: FloatArray
    ) -> FloatArray:
        """ψ(x) ≤ vx²/2 + κ₃|x|³/6, summed without a pass over all sums for each λ.

        φ(x)/x² rises with |x|, so its value at the largest |x| is above all others.
        """
        variances = 1.0 - np.clip(0.0, low, high) ** 2
        sizes = np.abs(weights)
        squares = sizes * sizes
        ones = np.ones_like(variances)
        square, plain = (squares @ np.column_stack([self.pulls * variances, ones])).T
        squares *= sizes  # a power would take longer
        cube = squares @ self.pulls.astype(np.float64)
        bits = 0.5 * square[:, None] * scales**2 + _CUBIC * cube[:, None] * scales**3
        if np.isinf(self.rate):
            return bits
        most = np.maximum(sizes.max(axis=1), 1e-100)[:, None]
        steepest = laplace_log_moments(scales * most, self.rate) / most**2
        return bits + plain[:, None] * steepest


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
    series = 0.5 * (1.0 - mean**2) * x**2 + _CUBIC * np.abs(x) ** 3
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
