"""Allocation of one privacy budget over bits of unequal weight.

Notation
    w_k, ε_k   weight and budget of level k, Σ ε_k = ε
    p_k        probability that its bit is turned over, 1/(1 + e^{ε_k})

A level adds w_k²/(1 − 2p_k)² = w_k²·coth²(ε_k/2) to the variance.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from turnout.core import checks
from turnout.core.roots import bisected, bisected_each
from turnout.randomizers.vectors.flips import flip_probability
from turnout.randomizers.vectors.sampled_bits import level_weights

_HALVINGS = 100


@lru_cache(maxsize=4096)
def water_filled(epsilon: float, levels: int) -> tuple[float, ...]:
    """The budgets that make Σ w_k²·coth²(ε_k/2) least; they sum to ``epsilon``.

    The sum is convex in (ε_k), so at its least all w_k²·coth(ε_k/2)/sinh²(ε_k/2) are equal. For
    small ε that gives ε_k ∝ w_k^{2/3}, the printed shares.

    >>> [round(share, 3) for share in water_filled(1.0, 3)]
    [0.442, 0.279, 0.279]
    """
    checks.positive(epsilon=epsilon)
    checks.count(levels=levels)
    if levels == 1:
        return (epsilon,)
    log_weights = 2 * np.log(level_weights(levels))
    low, high = np.zeros(levels), np.full(levels, epsilon)

    def paid(price: float) -> bool:
        return not _shares_at(price - log_weights, low, high).sum() > epsilon

    price = bisected(paid, -1500.0, 1500.0, halvings=_HALVINGS).holding
    shares = _shares_at(price - log_weights, low, high)
    return tuple(float(share) for share in shares * (epsilon / shares.sum()))


def _shares_at(log_slopes: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """ε with ln(coth(ε/2)/sinh²(ε/2)) as given, between the limits; it falls with ε."""

    def enough(share: np.ndarray) -> np.ndarray:
        half = np.maximum(share / 2, 1e-300)
        # ln sinh x = x + ln(1 − e^{−2x}) − ln 2.
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        return ~(-np.log(np.tanh(half)) - 2 * log_sinh > log_slopes)

    low, high = bisected_each(enough, low, high, _HALVINGS)
    return 0.5 * (low + high)


def printed_shares(epsilon: float, levels: int) -> tuple[float, ...]:
    """Budgets in the ratio 4^{−1/3} : 4^{−2/3} : … , the last two equal.

    Source: Algorithm 3.5.1, lines 7 and 11 (girgis2023thesis).
    """
    powers = level_weights(levels) ** (2 / 3)
    return tuple(float(share) for share in epsilon * powers / powers.sum())


def level_flips(
    epsilon: float, samples: int, levels: int, budgets: tuple[float, ...] | None = None
) -> tuple[float, ...]:
    """p_k of the best budgets, or of those given, where ``samples`` coordinates share ε.

    Returns:
        p_k with samples·Σ ln((1 − p_k)/p_k) at most ``epsilon``; budgets that sum to more are
        scaled down.
    """
    shares = [Fraction(share) for share in budgets or water_filled(epsilon / samples, levels)]
    excess = max(Fraction(1), sum(shares, Fraction(0)) * samples / Fraction(epsilon))
    return tuple(flip_probability(_float_below(share / excess)) for share in shares)


def printed_flips(v: float, levels: int, samples: int) -> tuple[float, ...]:
    """p_k = ½(1 − √(q²/(q² + 4))), q = v_k/s, of the printed budgets.

    Source: Algorithms 3.3.1 and 3.5.1 (girgis2023thesis). Such a bit is 2·asinh(q/2)-private,
    less than the q that it is charged, so part of the budget v is never used.
    """
    return tuple(
        flip_probability(2 * math.asinh(v_k / samples / 2)) for v_k in printed_shares(v, levels)
    )


def _float_below(number: Fraction) -> float:
    value = float(number)
    return math.nextafter(value, 0.0) if value > number else value
