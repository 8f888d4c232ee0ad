"""How much noise meets a target ε: the inverse of pricing, always ending on the private side."""

from __future__ import annotations

import math
from collections.abc import Callable

from turnout.accounting.pricing import epsilon_upper
from turnout.core import checks
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.spec import Scheme

_LARGEST_MULTIPLIER = 1e6
_SMALLEST_MULTIPLIER = 0.02


def calibrate_noise(
    scheme_for: Callable[[float], Scheme],
    epsilon: float,
    delta: float,
    relative_tolerance: float = 1e-4,
) -> float:
    """The smallest noise multiplier, to a relative tolerance, whose ε is at most a target.

    Args:
        scheme_for: the scheme as a function of the noise multiplier.
        epsilon: target ε.
        delta: δ.
        relative_tolerance: how far above the smallest sufficient multiplier the answer may be.

    Returns:
        A noise multiplier of few digits whose proved upper bound on ε is at most ``epsilon``.

    Raises:
        UnsupportedError: no noise up to 10⁶ reaches the target.
        NumericalError: no multiplier near the answer can be certified.
    """
    checks.positive(epsilon=epsilon, relative_tolerance=relative_tolerance)
    checks.open_unit(delta=delta)
    digits = max(6, 2 + math.ceil(-math.log10(relative_tolerance)))

    def multiplier(log_sigma: float) -> float:
        """Short enough to be printed and typed in again as it is."""
        return float(f"{math.exp(log_sigma):.{digits}g}")

    def excess(log_sigma: float) -> float:
        """ln(ε / target): above 0 where there is too little noise."""
        try:
            cost = epsilon_upper(scheme_for(multiplier(log_sigma)), delta)
        except NumericalError:
            return math.inf
        return math.log(max(cost, 1e-300) / epsilon)

    low, high, low_excess, high_excess = _bracket_root(excess)
    turns = 0
    while high - low > relative_tolerance:
        middle = _interpolate(low, high, low_excess, high_excess)
        value = excess(middle)
        if value > 0:
            low, low_excess = middle, value
            high_excess *= 0.5 if turns > 0 else 1.0
            turns = max(1, turns + 1)
        else:
            high, high_excess = middle, value
            low_excess *= 0.5 if turns < 0 else 1.0
            turns = min(-1, turns - 1)
    return multiplier(high)


def _bracket_root(excess: Callable[[float], float]) -> tuple[float, float, float, float]:
    low, high = math.log(0.5), math.log(2.0)
    high_excess = excess(high)
    while high_excess > 0:
        low, high = high, high + math.log(4.0)
        if high > math.log(_LARGEST_MULTIPLIER):
            raise UnsupportedError("no noise multiplier up to 1e6 meets this epsilon and delta")
        high_excess = excess(high)
    low_excess = excess(low)
    while low_excess <= 0:
        high, high_excess = low, low_excess
        low -= math.log(4.0)
        if low < math.log(_SMALLEST_MULTIPLIER):
            return high, high, high_excess, high_excess
        low_excess = excess(low)
    return low, high, low_excess, high_excess


def _interpolate(low: float, high: float, low_excess: float, high_excess: float) -> float:
    """Regula falsi (Illinois), kept off the ends; the middle where it has nothing to go by."""
    if math.isinf(low_excess) or low_excess - high_excess <= 0:
        return 0.5 * (low + high)
    guess = high + (high - low) * high_excess / (low_excess - high_excess)
    margin = 0.02 * (high - low)
    return min(max(guess, low + margin), high - margin)
