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
from scipy.special import expit

from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.randomizers.vectors.flips import flip_probability
from turnout.randomizers.vectors.sampled_bits import level_weights

_HALVINGS = 100
_NEWTON_STEPS = 8
_LARGEST = 100.0  # ln sinh(ε/2) of any budget


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

    def paid(price: float) -> bool:
        return not _shares_at(price - log_weights, epsilon).sum() > epsilon

    price = bisected(paid, -1500.0, 1500.0, halvings=_HALVINGS).holding
    shares = _shares_at(price - log_weights, epsilon)
    return tuple(float(share) for share in shares * (epsilon / shares.sum()))


def _shares_at(log_slopes: np.ndarray, most: float) -> np.ndarray:
    """ε with ln(coth(ε/2)/sinh²(ε/2)) as given, at most ``most``; it falls with ε.

    With s = sinh²(ε/2) that is ½·ln(1 + s) − 3/2·ln s, convex in ln s with a slope between −3/2
    and −1, so that Newton's method is at rounding error after a few steps from anywhere.
    """
    log_s = -log_slopes
    for _ in range(_NEWTON_STEPS):
        excess = 0.5 * np.logaddexp(0.0, log_s) - 1.5 * log_s - log_slopes
        log_s = log_s + excess / (1.5 - 0.5 * expit(log_s))
    return np.minimum(2 * np.arcsinh(np.exp(np.minimum(0.5 * log_s, _LARGEST))), most)


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
