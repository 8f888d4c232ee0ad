"""Exponentials and entropies of exact probabilities.

Privacy rests on ratios of whole numbers. A stated ε covers them when the ratio is at most a
rational that is itself below e^ε, which is what `growth_below` gives.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable
from fractions import Fraction

from turnout.core.errors import ParameterError

_DIGITS = 60
_LARGEST_EPSILON = 700.0


def growth_below(epsilon: float) -> Fraction:
    """A rational below e^ε, and above it times 1 − 1e-58 (closer than any float).

    Args:
        epsilon: from 0 to 700, taken at its exact binary value.

    Returns:
        never above e^ε; exactly 1 at ε = 0.
    """
    if not 0 <= epsilon <= _LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, "a number from 0 to 700")
    if epsilon == 0:
        return Fraction(1)
    context = decimal.Context(prec=_DIGITS)
    # Decimal(float) is exact and exp is correctly rounded, so one step down is below the truth.
    grown = context.next_minus(context.exp(decimal.Decimal(epsilon)))
    return Fraction(grown)


def log_ratio(ratio: Fraction) -> float:
    """The logarithm of an exact ratio of at least 1, to a few units in the last place."""
    excess = ratio - 1
    return math.log1p(float(excess)) if excess < 1 else _log(ratio)


def entropy_bits(cells: Iterable[tuple[int, Fraction]]) -> float:
    """Shannon entropy in bits of a law given as (how many outcomes, probability of each)."""
    terms = [count * float(p) * -log2(p) for count, p in cells if count and p > 0]
    return math.fsum(terms) + 0.0


def log2(p: Fraction) -> float:
    """log₂ of an exact positive number, accurate near 1 too."""
    if abs(p - 1) < Fraction(1, 2):
        return math.log1p(float(p - 1)) / math.log(2)
    return _log(p) / math.log(2)


def _log(p: Fraction) -> float:
    # math.log takes whole numbers of any size, where float(p) might overflow.
    return math.log(p.numerator) - math.log(p.denominator)
