"""The coupling of two ratios that move against each other, split into a hockey stick and a reverse
one.

X and X' have the law of one dominating pair, X large exactly where X' is small. For Y = X − K·X'

    E[(Y − c)₊] = min over k of E[(X − k)₊] + K·E[(κ − X')₊],    κ = (k − c)/K,

since (x − Kx' − c)₊ ≤ (x − k)₊ + K(κ − x')₊ for any k, with equality where {X > k} = {X' < κ}.
The same event E gives the line P(E) − K·P'(E) − c·Q(E), which lies below in c and in K.

For windows of one step, and for Poisson steps, replace-one is a closed form of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    GaussianPair,
    LaplacePair,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.core.bounds import bisected_each

FloatArray = np.ndarray
Ratio = float | FloatArray
"""K, one or one for each threshold."""

_BESIDE = 1e-12  # relative distance at which a threshold surely lies above an atom
_BISECTIONS = 40
_NEAR = 1e-8  # relative distance within which a threshold may stand for another
_LARGEST_LOG = 690.0


def antithetic_thresholds(pair: Pair, k: Ratio, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The thresholds k of X and κ of X' with Q(X > k) = Q(X' < κ), nearly.

    Closed for the Gaussian, where X' = e^{−μ²}/X, and for Laplace noise, where one of the two sits
    on its least value; else by bisection in ln(k − c₊). Any thresholds with k − Kκ = c give an
    upper bound; what they miss the best by costs its square.
    """
    if isinstance(pair, LaplacePair):
        least = np.exp(-1.0 / pair.scale) * (1.0 + _BESIDE)
        threshold = np.maximum(c + k * least, least)
        return threshold, (threshold - c) / k
    if isinstance(pair, GaussianPair):
        product = k * np.exp(-(pair.mu**2))
        root = 0.5 * (np.abs(c) + np.hypot(c, 2 * np.sqrt(product)))
        threshold = np.where(c > 0, root, product / root)
        return threshold, np.where(c > 0, product / root, root) / k
    plus, minus = np.maximum(c, 0.0), np.maximum(-c, 0.0)

    def enough(log_gain: FloatArray) -> np.ndarray:
        gain = np.exp(log_gain)
        return pair.q_below((minus + gain) / k) >= pair.q_above(plus + gain)

    low, high = np.full(c.shape, -60.0), np.full(c.shape, _LARGEST_LOG)
    gain = np.exp(bisected_each(enough, low, high, _BISECTIONS)[1])
    return plus + gain, (minus + gain) / k


def antithetic_rounding(
    pair: Pair, k: Ratio, threshold: FloatArray, other: FloatArray
) -> FloatArray:
    """Bound on the rounding errors of a price, and of an event's line."""
    edges = threshold * pair.q_above(threshold) + k * other * pair.q_below(other)
    prices = hockey_stick_rounding(pair, threshold) + k * reverse_hockey_stick_rounding(pair, other)
    return prices + 16 * UNIT_ROUNDOFF * edges


def antithetic_share(pair: Pair, threshold: FloatArray, other: FloatArray) -> FloatArray:
    """Q(E): where X has an atom at its threshold, E takes as much of it as of X' < κ."""
    above = pair.q_above(threshold)
    if isinstance(pair, GaussianPair):
        return above
    return np.clip(pair.q_below(other), above, pair.q_above(threshold * (1.0 - _NEAR)))


def antithetic_event(
    pair: Pair, threshold: FloatArray, other: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """At most P(E), at least P'(E), and Q(E), but for rounding."""
    share = antithetic_share(pair, threshold, other)
    if isinstance(pair, GaussianPair):
        return pair.p_above(threshold), pair.p_below(other), share
    extra = (share - pair.q_above(threshold)) * threshold * (1.0 - _NEAR)
    return pair.p_above(threshold) + extra, _least_mass(pair, share, other), share


def _least_mass(pair: Pair, share: FloatArray, other: FloatArray) -> FloatArray:
    """At least P' of the event of Q-mass ``share`` on which X' is least.

    That is a convex function of the mass, whose slope is the quantile of X'; so its value at a
    mass near by and a quantile on the right side bound it.
    """
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


@dataclass(frozen=True, slots=True)
class OneStepCurve:
    """(1 − p)Q + pP against (1 − p)Q + pP', with the worst coupling of P and P'.

    δ(K) = pℓ + p(1 − ℓ)·E[(Y − c₀)₊], c₀ = (K − 1)(1 − p)/(p(1 − ℓ)), Y as in
    `steps.AntitheticStep`.

    Attributes:
        pair: the dominating pair of P against Q and of P' against Q.
        probability: p > 0.
        infinity_mass: ℓ, the mass that P has where Q has none.
        side: to which rounding is moved; else the curve is exact.
    """

    pair: Pair
    probability: float
    infinity_mass: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        offset = self._offset(k)
        threshold, other = antithetic_thresholds(self.pair, k, offset)
        if self.side is Side.LOWER:
            return self._with_infinity_mass(self._line(k, threshold, other)[0])
        value = hockey_stick(self.pair, threshold) + k * reverse_hockey_stick(self.pair, other)
        return self._with_infinity_mass(value + antithetic_rounding(self.pair, k, threshold, other))

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1: that of the event's line, which lies below the curve."""
        k = np.asarray(k, dtype=float)
        value, slope = self._line(k, *antithetic_thresholds(self.pair, k, self._offset(k)))
        return np.where(value > 0, slope, 0.0)

    def _line(
        self, k: FloatArray, threshold: FloatArray, other: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """P(E) − K·P'(E) − c₀·Q(E) less its rounding, and the slope of δ along that line."""
        present, elsewhere, share = antithetic_event(self.pair, threshold, other)
        value = present - k * elsewhere - self._offset(k) * share
        value -= antithetic_rounding(self.pair, k, threshold, other)
        kept = self.probability * (1.0 - self.infinity_mass)
        return value, -kept * elsewhere - (1.0 - self.probability) * share

    def _with_infinity_mass(self, value: FloatArray) -> FloatArray:
        kept = np.maximum((1.0 - self.infinity_mass) * value, 0.0)
        return np.minimum(self.probability * (self.infinity_mass + kept), 1.0)

    def _offset(self, k: FloatArray) -> FloatArray:
        """c₀."""
        return (
            (k - 1.0) * (1.0 - self.probability) / (self.probability * (1.0 - self.infinity_mass))
        )
