"""Privacy levels as ratios of whole numbers, so that ε₀ is an equality and not a float's guess.

Notation: ε the level asked for, E a fraction just below e^ε, r the largest ratio of a randomizer's
probabilities, ε₀ = ln r.

Every coin of a randomizer has a probability that is a multiple of 2⁻⁶², rounded to the private
side. So r is a fraction, r ≤ E ≤ e^ε, and ε₀ falls short of ε by a rounding only.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomness.source import LARGEST_RANGE
from turnout.schemes import AttainedVariation, BoundedVariation, NonAdaptiveRandomizer

LEAST_EPSILON = 1e-12
"""Below it, coins in steps of 2⁻⁶² would leave little or nothing of ε."""
LARGEST_EPSILON = 30.0
"""Beyond it, coins in steps of 2⁻⁶² would waste a noticeable part of ε."""

_DIGITS = 60
_CONTEXT = Context(prec=_DIGITS)
_BELOW = 1 - Fraction(1, 10 ** (_DIGITS - 5))


def check_level(epsilon: float) -> None:
    """One line for a level that cannot be realised."""
    checks.positive(epsilon=epsilon)
    if epsilon < LEAST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"at least {LEAST_EPSILON:g}")
    if epsilon > LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"at most {LARGEST_EPSILON:g}")


def exponential_below(epsilon: float) -> Fraction:
    """A fraction E ≤ e^ε, closer to it than 1 part in 10⁵⁴ (and at least 1)."""
    # `Decimal.exp` is correctly rounded to the context's digits.
    return max(Fraction(Decimal(epsilon).exp(_CONTEXT)) * _BELOW, Fraction(1))


def root_below(number: Fraction) -> Fraction:
    """A fraction at most √number, closer to it than 2⁻¹²⁸."""
    scale = 1 << 256
    return Fraction(math.isqrt(number.numerator * scale // number.denominator), 1 << 128)


def level_above(ratio: Fraction) -> float:
    """The smallest float that is at least ln ``ratio``, up to 1 part in 10⁵⁰ of certainty.

    Args:
        ratio: at least 1.
    """
    quotient = _CONTEXT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    exact = quotient.ln(_CONTEXT)
    if exact <= 0:
        return 0.0
    level = float(exact)
    return math.nextafter(level, math.inf) if Decimal(level) < exact else level


def on_grid_above(probability: Fraction) -> Fraction:
    """The smallest multiple of 2⁻⁶² that is at least ``probability``."""
    return Fraction(math.ceil(probability * LARGEST_RANGE), LARGEST_RANGE)


def law_within(
    epsilon0: float, total_variation: Fraction | float, *, attained: bool = False
) -> NonAdaptiveRandomizer:
    """The law of a message of known level whose laws are at most so far apart, rounded up.

    ``attained``: whether two records' laws are so far apart (`AttainedVariation`).
    """
    above = float(total_variation)
    if isinstance(total_variation, Fraction):
        above = min(math.nextafter(above, 2.0), 1.0)
    kind = AttainedVariation if attained else BoundedVariation
    return NonAdaptiveRandomizer(epsilon0) if above >= 1.0 else kind(epsilon0, above)


def float_below(probability: Fraction) -> Fraction:
    """A multiple of 2⁻⁶² at most ``probability`` that a float holds."""
    exact = on_grid_below(probability)
    value = float(exact)
    return Fraction(math.nextafter(value, 0.0) if value > exact else value)


def on_grid_below(probability: Fraction) -> Fraction:
    """The largest multiple of 2⁻⁶² that is at most ``probability``."""
    return Fraction(math.floor(probability * LARGEST_RANGE), LARGEST_RANGE)
