"""Entropies of exact probabilities, in bits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction


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
