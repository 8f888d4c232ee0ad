"""Tail functions of the likelihood ratio of a dominating pair, and its hockey-stick divergences.

Notation (docs/design/accounting.md): Q = "the contribution is absent", P = "it is present",
X = dP/dQ, so X ≥ 0 and E_Q[X] = 1.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from turnout.accounting.divergence.work import charge

FloatArray = np.ndarray
UNIT_ROUNDOFF = 2.0**-53
_UNDERFLOW = 1e-300  # below, floats lose digits
_UNITS_A_CALL, _UNITS_A_POINT = 500, 2  # of work, of two tails


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


def _tail_rounding(tail: FloatArray) -> FloatArray:
    """Bound on the rounding error of a tail function and of its share in a price.

    A score z errs by a few u of itself, which moves the tail by z² ≈ −2 ln(tail) times as much.
    Twice what a comparison with forty digits showed at worst. Its callers take tails a
    little off k, for a value of X that rounding moved across it.
    """
    rounding = UNIT_ROUNDOFF * tail * (16.0 - 8.0 * np.log(np.maximum(tail, _UNDERFLOW)))
    return rounding + _UNDERFLOW


def _near(k: FloatArray) -> FloatArray:
    """Relative distance from k at which a value of X may be on either side of it.

    ln X is good to a few u of itself.
    """
    return 8.0 * UNIT_ROUNDOFF * (1.0 + np.abs(np.log(np.maximum(k, 1e-300))))


def hockey_stick_rounding(pair: Pair, k: FloatArray) -> FloatArray:
    """Bound on the rounding error of `hockey_stick`, shape of ``k``."""
    under_p, under_q = tail_roundings_above(pair, k)
    return under_p + k * under_q


def reverse_hockey_stick_rounding(pair: Pair, k: FloatArray) -> FloatArray:
    """Bound on the rounding error of `reverse_hockey_stick`, shape of ``k``."""
    under_p, under_q = tail_roundings_below(pair, k)
    return under_p + k * under_q


def tail_roundings_above(pair: Pair, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds on the rounding errors of P(X > k) and of Q(X > k)."""
    charge(_UNITS_A_CALL + 2 * _UNITS_A_POINT * np.size(k))
    k = k * (1.0 - _near(k))
    return _tail_rounding(pair.p_above(k)), _tail_rounding(pair.q_above(k))


def tail_roundings_below(pair: Pair, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds on the rounding errors of P(X ≤ k) and of Q(X ≤ k)."""
    charge(_UNITS_A_CALL + 2 * _UNITS_A_POINT * np.size(k))
    k = k * (1.0 + _near(k))
    return _tail_rounding(pair.p_below(k)), _tail_rounding(pair.q_below(k))


def hockey_stick(pair: Pair, k: FloatArray) -> FloatArray:
    """E_Q[(X − k)₊] = H_k(P‖Q), shape of ``k``."""
    charge(_UNITS_A_CALL + _UNITS_A_POINT * np.size(k))
    return np.maximum(pair.p_above(k) - k * pair.q_above(k), 0.0)


def reverse_hockey_stick(pair: Pair, k: FloatArray) -> FloatArray:
    """E_Q[(k − X)₊] = k·H_{1/k}(Q‖P), shape of ``k``."""
    charge(_UNITS_A_CALL + _UNITS_A_POINT * np.size(k))
    return np.maximum(k * pair.q_below(k) - pair.p_below(k), 0.0)


def log_expm1(value: float) -> float:
    """Ln(e^x − 1) for x > 0."""
    return value + math.log(-math.expm1(-value))
