"""Antithetic coupling of two likelihood ratios: X is large exactly where X' is small.

Of all couplings, the antithetic one makes Y = X − K·X' the largest in convex order, K = e^ε. P and
P' are the distributions of the output with one record of the client and with the other, Q is the
distribution without the client. Under Q, X = dP/dQ and X' = dP'/dQ are each distributed as the
likelihood ratio of one dominating pair (docs/design/replacement.md, "Each record against absence").
Then

    E[(Y − c)₊] = min over k of E[(X − k)₊] + K·E[(κ − X')₊],    κ = (k − c)/K,

since (x − Kx' − c)₊ ≤ (x − k)₊ + K(κ − x')₊ for any k, with equality where {X > k} = {X' < κ}. The
event E = {X > k} also gives the line P(E) − K·P'(E) − c·Q(E), a lower bound at every c and every K.

`antithetic_thresholds` finds k and κ, `antithetic_upper` computes the upper bound from them, and
`antithetic_event` returns the masses of E under P, P' and Q. `replace_one_steps`,
`replace_one_events`, `fixed_size` and `one_client` use these functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    DiscretePair,
    GaussianPair,
    LaplacePair,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.core.arrays import BoolArray, FloatArray
from turnout.core.bounds import bisected_each

Ratio = float | FloatArray
"""K: one number, or one for each threshold."""
_JUST_ABOVE = 1e-12  # relative distance by which a threshold is moved to lie above an atom
_BISECTIONS = 40
_LEAST_GAIN = math.exp(-60.0)
_NEAR = 1e-8  # relative distance within which a threshold may replace another
_LARGEST_LOG = 690.0  # logarithm of the largest threshold


def antithetic_thresholds(pair: Pair, k: Ratio, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Thresholds k of X and κ of X' with about Q(X > k) = Q(X' < κ) and k − Kκ = c.

    Any thresholds with k − Kκ = c give a valid upper bound. The bound exceeds the least possible
    bound by about the square of the distance between the given thresholds and the thresholds that
    minimize the bound.

    Args:
        pair: dominating pair of both ratios.
        k: K = e^ε ≥ 1, a single value or one value for each threshold.
        c: thresholds of Y, of any shape.

    Returns:
        The thresholds of X and of X', shape of ``c`` each.
    """
    # Laplace: one of the two thresholds is at the least value of its ratio.
    if isinstance(pair, LaplacePair):
        least = np.exp(-1.0 / pair.scale) * (1.0 + _JUST_ABOVE)
        threshold = np.maximum(c + k * least, least)
        return threshold, (threshold - c) / k
    # Gaussian: X' = e^{−μ²}/X gives a quadratic equation, solved without cancellation.
    if isinstance(pair, GaussianPair):
        product = k * np.exp(-(pair.mu**2))
        root = 0.5 * (np.abs(c) + np.hypot(c, 2 * np.sqrt(product)))
        threshold = np.where(c > 0, root, product / root)
        return threshold, np.where(c > 0, product / root, root) / k
    plus, minus = np.maximum(c, 0.0), np.maximum(-c, 0.0)
    # Finitely many ratios: one of the two thresholds is a value of its ratio.
    if isinstance(pair, DiscretePair):
        gain = np.maximum(_Staircase.of(pair).thresholds(k, c) - plus, _LEAST_GAIN)
        return plus + gain, (minus + gain) / k

    # Other pairs: bisection in ln(k − c₊).
    def enough(log_gain: FloatArray) -> BoolArray:
        gain = np.exp(log_gain)
        return pair.q_below((minus + gain) / k) >= pair.q_above(plus + gain)

    low, high = np.full(c.shape, -60.0), np.full(c.shape, _LARGEST_LOG)
    gain = np.exp(bisected_each(enough, low, high, _BISECTIONS)[1])
    return plus + gain, (minus + gain) / k


@dataclass(frozen=True, slots=True, eq=False)
class _Staircase:
    """Antithetic coupling of two ratios with the same n values, in order of rising Y = X − K·X'.

    From one pair of values to the next, either X rises to its next value or X' falls. The order is
    the same for every K. An entry with Y = −∞ is placed before the first pair.

    Attributes:
        x, other: values of X and of X', shape (2n,) each.
        held: at each pair of values, the value of the ratio (X or X') that does not change up to
            the next pair, shape (2n,).
        holds_x: at each pair of values, whether X is the ratio that does not change, shape (2n,).
    """

    x: FloatArray
    other: FloatArray
    held: FloatArray
    holds_x: BoolArray

    @staticmethod
    @lru_cache(maxsize=16)
    def of(pair: DiscretePair) -> _Staircase:
        """Antithetic coupling of X and X' for a pair with finitely many likelihood ratios."""
        values, masses = pair.atoms
        changes = np.append(np.cumsum(masses)[:-1], np.cumsum(masses[::-1])[:-1])
        rises = np.argsort(changes, kind="stable") < values.size - 1
        x = values[np.append(0, np.cumsum(rises))]
        other = values[::-1][np.append(0, np.cumsum(~rises))]
        # The held ratio is X' below all values of Y, X above them, and between them the ratio that
        # stays the same.
        holds_x = np.concatenate([[False], ~rises, [True]])
        x, other = np.append(-np.inf, x), np.append(other[0], other)
        return _Staircase(x, other, np.where(holds_x, x, other), holds_x)

    def thresholds(self, k: Ratio, c: FloatArray) -> FloatArray:
        """Threshold k of X at each c: either k or κ is just above an atom; shape of ``c``."""
        # Last pair of values at which Y is at most c.
        last, beyond = np.zeros(c.shape, dtype=np.int64), np.full(c.shape, self.x.size)
        for _ in range(self.x.size.bit_length()):
            middle = (last + beyond) // 2
            reached = self.x[middle] - k * self.other[middle] <= c
            last, beyond = np.where(reached, middle, last), np.where(reached, beyond, middle)
        held = self.held[last] * (1.0 + _JUST_ABOVE)
        return np.where(self.holds_x[last], held, c + k * held)


def antithetic_upper(pair: Pair, k: Ratio, threshold: FloatArray, other: FloatArray) -> FloatArray:
    """Upper bound on E[(X − KX' − c)₊] from thresholds with k − Kκ = c.

    The result has the shape of the thresholds.

    Args:
        pair: dominating pair of both ratios.
        k: K = e^ε ≥ 1, a single value or one value for each threshold.
        threshold: thresholds k of X, of any shape.
        other: thresholds κ of X', same shape.
    """
    value = hockey_stick(pair, threshold) + k * reverse_hockey_stick(pair, other)
    return value + antithetic_rounding(pair, k, threshold, other)


def antithetic_rounding(
    pair: Pair, k: Ratio, threshold: FloatArray, other: FloatArray
) -> FloatArray:
    """Upper bound on the rounding errors of `antithetic_upper` and of the line of the event E.

    The result has the shape of the thresholds.

    Args:
        pair: dominating pair of both ratios.
        k: K = e^ε ≥ 1, a single value or one value for each threshold.
        threshold: thresholds k of X, of any shape.
        other: thresholds κ of X', same shape.
    """
    edges = threshold * pair.q_above(threshold) + k * other * pair.q_below(other)
    both = hockey_stick_rounding(pair, threshold) + k * reverse_hockey_stick_rounding(pair, other)
    return both + 16 * UNIT_ROUNDOFF * edges


def antithetic_share(pair: Pair, threshold: FloatArray, other: FloatArray) -> FloatArray:
    """Probability Q(E) of the event E that consists of {X > k} and a part of the atom at k.

    The part of the atom is chosen so that Q(E) = Q(X' < κ). Without an atom at k, E is {X > k}. The
    result has the shape of the thresholds.

    Args:
        pair: dominating pair of both ratios.
        threshold: thresholds k of X, of any shape.
        other: thresholds κ of X', same shape.
    """
    above = pair.q_above(threshold)
    if isinstance(pair, GaussianPair):
        return above
    return np.clip(pair.q_below(other), above, pair.q_above(threshold * (1.0 - _NEAR)))


def antithetic_event(
    pair: Pair, threshold: FloatArray, other: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower bound on P(E), upper bound on P'(E), and Q(E); rounding errors are not included.

    E is the event of `antithetic_share`: X is above its threshold k, and X' below its threshold κ.

    Args:
        pair: dominating pair of both ratios.
        threshold: thresholds k of X, of any shape.
        other: thresholds κ of X', same shape.

    Returns:
        The three numbers in this order, each in the shape of the thresholds.
    """
    share = antithetic_share(pair, threshold, other)
    if isinstance(pair, GaussianPair):
        return pair.p_above(threshold), pair.p_below(other), share
    extra = (share - pair.q_above(threshold)) * threshold * (1.0 - _NEAR)
    return pair.p_above(threshold) + extra, _least_mass(pair, share, other), share


def _least_mass(pair: Pair, share: FloatArray, other: FloatArray) -> FloatArray:
    """Upper bound on P'(E) for the event E of Q-mass ``share`` that contains the smallest X'.

    Let f(m) be the least P'-mass of all events with Q-mass m. f is convex, and its slope is the
    quantile of X'. So f(share) ≤ f(m) + (share − m)·x with m = Q(X' < κ), where x is the quantile
    of X' at any probability q such that ``share`` lies between m and q.
    """
    # x is the nearest of three edges that is surely a quantile on the other side of ``share``.
    below, bound = pair.q_below(other), pair.p_below(other)
    more = share > below
    quantile = np.where(more, np.inf, 0.0)
    for width in (1e-2, 1e-5, _NEAR):
        edge = other * np.where(more, 1.0 + width, 1.0 - width)
        reached = pair.q_below(edge)
        right = np.where(more, reached >= share, reached <= share)
        quantile = np.where(right, edge, quantile)
    with np.errstate(invalid="ignore"):
        return bound + np.where(share == below, 0.0, (share - below) * quantile)
