"""Noise on a sum for the central model: whole numbers with exact laws, and how much of it.

Notation: Δ₁, Δ₂ the most by which one client changes the sum, in whole units, in ℓ1 and in ℓ2;
s, t whole numbers. The discrete Laplace law is P(x) ∝ exp(−|x|·s/t), so its ε is Δ₁·s/t, exactly.
The rounded Gaussian is a function of the Gaussian mechanism's output, and priced as that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from turnout.accounting import gaussian_epsilon
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomness import Source, rounded_gaussian

_FINENESS = 2**20  # s where sums change by few units
_LARGEST_SCALE = 2**55  # t; leaves room for the sampler's series within `Source.below`
_STEPS = 40


@dataclass(frozen=True)
class SumNoise:
    """Noise on each number of a sum, and what it is worth.

    Attributes:
        law: "laplace" or "gaussian".
        deviation: standard deviation of one number's noise, in units.
        epsilon: ε of the whole sum, never below the true one.
        delta: δ; 0 for Laplace noise.
        scale: (t, s) of Laplace noise.
    """

    law: str
    deviation: float
    epsilon: float
    delta: float
    scale: tuple[int, int] = (0, 1)

    def draw(self, size: int, source: Source) -> NDArray[np.int64]:
        """Independent draws, in units."""
        if self.law == "laplace":
            return discrete_laplace(*self.scale, size, source)

        def read(count: int) -> bytes:
            return source.below(256, count).astype(np.uint8).tobytes()

        return rounded_gaussian(self.deviation, size, read)

    def half_width(self, confidence: float) -> float:
        """The bound on one number's noise that holds with that probability, in units."""
        if self.law == "laplace":
            t, s = self.scale
            return t / s * math.log(1 / (1 - confidence)) + 1
        from scipy.special import ndtri

        return self.deviation * float(ndtri((1 + confidence) / 2)) + 0.5


def laplace_noise(epsilon: float, sensitivity: int) -> SumNoise:
    """The least discrete Laplace noise that is ε-private at an ℓ1 ``sensitivity``.

    >>> noise = laplace_noise(0.5, 1)
    >>> 0.49999 < noise.epsilon <= 0.5, noise.delta
    (True, 0.0)
    """
    checks.positive(epsilon=epsilon)
    checks.count(sensitivity=sensitivity)
    fineness = max(1, _FINENESS // sensitivity)
    t = math.ceil(Fraction(sensitivity * fineness) / Fraction(epsilon))
    if t > _LARGEST_SCALE:
        raise ParameterError("epsilon", epsilon, "a larger one, for noise that fits 64 bits")
    exact = Fraction(sensitivity * fineness, t)
    level = float(exact)
    level = math.nextafter(level, math.inf) if Fraction(level) < exact else level
    ratio = math.exp(-fineness / t)
    deviation = math.sqrt(2 * ratio) / -math.expm1(-fineness / t)
    return SumNoise("laplace", deviation, level, 0.0, (t, fineness))


def gaussian_noise(epsilon: float, delta: float, sensitivity: float) -> SumNoise:
    """About the least Gaussian noise that is (ε, δ)-private at an ℓ2 ``sensitivity``.

    Source: priced numerically by the Gaussian pair, from above; ``sensitivity`` is rounded up.
    """
    checks.positive(epsilon=epsilon, sensitivity=sensitivity)
    checks.open_unit(delta=delta)
    high = 1.0
    while gaussian_epsilon(high, delta) > epsilon:
        high *= 2
        if high > 2**30:
            raise UnsupportedError(f"no Gaussian noise reaches epsilon = {epsilon:g} here")
    low = high / 2
    while low > 2**-10 and gaussian_epsilon(low, delta) <= epsilon:
        low, high = low / 2, low
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if high / low < 1 + 1e-6:
            break
        low, high = (low, middle) if gaussian_epsilon(middle, delta) <= epsilon else (middle, high)
    deviation = math.nextafter(high * sensitivity, math.inf)
    return SumNoise("gaussian", deviation, gaussian_epsilon(high, delta), delta)


def discrete_laplace(t: int, s: int, size: int, source: Source) -> NDArray[np.int64]:
    """Draws with P(x) ∝ exp(−|x|·s/t), exactly, for s ≥ 1 and t from 1 to 2⁵⁵.

    Source: Canonne, Kamath, Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020,
        Algorithms 1 and 2.
    """
    checks.count(t=t, s=s)
    checks.at_most("2**55", _LARGEST_SCALE, t=t)
    drawn = np.empty(size, dtype=np.int64)
    open_ = np.arange(size)
    while open_.size:
        rest = source.below(t, open_.size)
        kept = _exponential_coins(rest, t, source)
        open_now, rest = open_[kept], rest[kept]
        magnitude = (rest + t * _unit_successes(rest.size, source)) // s
        negative = source.below(2, rest.size) == 1
        good = ~(negative & (magnitude == 0))
        drawn[open_now[good]] = np.where(negative, -magnitude, magnitude)[good]
        done = np.zeros(size, dtype=np.bool_)
        done[open_now[good]] = True
        open_ = open_[~done[open_]]
    return drawn


def _exponential_coins(numerators: NDArray[np.int64], t: int, source: Source) -> NDArray[np.bool_]:
    """True with probability exp(−numerator/t) each, for numerators from 0 to t."""
    rounds = np.ones(numerators.size, dtype=np.int64)
    open_, k = np.arange(numerators.size), 1
    while open_.size:
        going = source.below(t * k, open_.size) < numerators[open_]
        open_ = open_[going]
        rounds[open_] += 1
        k += 1
    return rounds % 2 == 1


def _unit_successes(size: int, source: Source) -> NDArray[np.int64]:
    """The number of coins of probability 1/e that fall True before the first that does not."""
    count = np.zeros(size, dtype=np.int64)
    open_ = np.arange(size)
    while open_.size:
        open_ = open_[_exponential_coins(np.ones(open_.size, dtype=np.int64), 1, source)]
        count[open_] += 1
    return count
