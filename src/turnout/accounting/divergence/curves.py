"""Hockey-stick curves: δ as a function of K = e^ε in one direction.

`Curve` is the interface: δ(K) and its slope for K ≥ 1, on one `Side` of the truth, in one
`Direction`. `PairCurve` is the curve of a pair; `DilutedCurve`, `InfinityMassCurve` and `BestCurve`
transform or combine curves, and `epsilon_at` finds the ε at which a curve reaches δ. `PolygonCurve`
is a polygon: `upper_polygon` and `lower_polygon` make it from bounds at some K, and `nodes_near`
and `nodes_down_to` choose these K. All of accounting uses this module; it builds on `pairs`.

A curve is convex and decreasing in K, with slope in [−1, 0]. Below K = 1 the other direction gives
H_K(P‖Q) = 1 − K + K·H_{1/K}(Q‖P) (`blocks.CurvePair`). Therefore chords through upper bounds are an
upper bound. Between two points, extensions of the neighbouring chords give a lower bound: right of
K_i the curve lies above any line from (K_j, upper), j < i, through (K_i, lower).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.accounting.divergence.work import charge
from turnout.core import checks
from turnout.core.arrays import BoolArray, FloatArray, IntArray
from turnout.core.errors import NumericalError
from turnout.schemes.parameters import hold_members

_UNITS_A_POINT = 10  # of work, of a curve

_LARGEST_RATIO = 1e290  # where K of a diluted curve would overflow, δ is 0 to three hundred digits

_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-7, 10.0, 900), np.arange(10.1, 600.0, 0.1)])
_FEW_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-7, 600.0, 72)])
_CLOSE_BELOW = 1.0 - np.geomspace(0.5, 1e-6, 14)  # parts of an ε at which a curve is tight
_AROUND = np.concatenate(  # distances from an estimate; three places are for ends and middle
    [[0.0], -np.geomspace(0.3, 1e-6, 6), np.geomspace(1e-6, 0.3, 6), [0.0, 0.0]]
)
_GAP = 1e-9  # relative distance from a crossing at which its search ends


class Direction(StrEnum):
    """Direction of a divergence H: *remove* is H(P‖Q), *add* is H(Q‖P); Q lacks the client."""

    REMOVE = "remove"
    """H_K(P‖Q), for events that are likelier if the client is present."""
    ADD = "add"
    """H_K(Q‖P), for events that are likelier if the client is absent."""


class Side(StrEnum):
    """Side of the true value on which a computed bound lies."""

    UPPER = "upper"
    LOWER = "lower"


class Curve(Protocol):
    """Function δ(K) in one direction: exact, or a proved upper or lower bound."""

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        ...

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        ...


@dataclass(frozen=True, slots=True)
class PairCurve:
    """Curve δ(K) of one dominating pair, without amplification; exact but for rounding."""

    pair: Pair
    direction: Direction
    side: Side

    def __post_init__(self) -> None:
        hold_members(self, direction=Direction, side=Side)

    def delta(self, k: FloatArray) -> FloatArray:
        """Hockey-stick divergence H_K(P‖Q) (remove) or H_K(Q‖P) (add), shape of ``k``."""
        if self.direction is Direction.REMOVE:
            value, error = hockey_stick(self.pair, k), hockey_stick_rounding(self.pair, k)
        else:
            value, error = (
                k * reverse_hockey_stick(self.pair, 1.0 / k),
                k * reverse_hockey_stick_rounding(self.pair, 1.0 / k),
            )
        return np.clip(value + error if self.side is Side.UPPER else value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope −Q(X > K) (remove) or −P(X < 1/K) (add) of the curve, shape of ``k``."""
        if self.direction is Direction.REMOVE:
            return -self.pair.q_above(k)
        return -self.pair.p_below(1.0 / k)


@dataclass(frozen=True, slots=True)
class DilutedCurve:
    """Curve of (1 − p)·Q + p·P against Q: the client takes part with probability p.

    The likelihood ratio X becomes (1 − p) + pX. The curve is exact.

    Source: accounting.md, "Check-in probability".
    """

    base: Curve
    direction: Direction
    probability: float

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        if self.direction is Direction.REMOVE:
            return self.probability * self.base.delta(self._undiluted(k))
        weight, alive, _, inner = self._weighed(k)
        return np.where(alive, weight * self.base.delta(inner), 0.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        p = self.probability
        if self.direction is Direction.REMOVE:
            return self.base.slope(self._undiluted(k))
        _, alive, safe, inner = self._weighed(k)
        chain = -(1.0 - p) * self.base.delta(inner) + self.base.slope(inner) * p / safe
        return np.where(alive, chain, 0.0)

    def _weighed(self, k: FloatArray) -> tuple[FloatArray, BoolArray, FloatArray, FloatArray]:
        """Weight of the base curve in the *add* direction, and the K at which it is evaluated.

        The four arrays are the weight, a mask of positive weights, the weight with 1 in place of
        weights that are not positive, and K.
        """
        p = self.probability
        weight = p - (k - 1.0) * (1.0 - p)
        alive = weight > 0
        safe = np.where(alive, weight, 1.0)
        return weight, alive, safe, np.where(alive, k * p / safe, 1.0)

    def _undiluted(self, k: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return 1.0 + np.minimum((k - 1.0) / self.probability, _LARGEST_RATIO)


@dataclass(frozen=True, slots=True)
class InfinityMassCurve:
    """Curve of a pair in which P has mass where Q has none, the infinity mass m.

    δ is m + (1 − m)·δ'(K/(1 − m)) in the remove direction and δ'(K·(1 − m)) in the add direction,
    where δ' is the curve of the ratio scaled to mean 1. The curve is exact up to rounding, except
    for K·(1 − m) < 1 in the add direction. In a window of any number of steps the infinity mass
    counts once, because the client takes part in one step.
    """

    base: Curve
    direction: Direction
    side: Side
    infinity_mass: float

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        kept = 1.0 - self.infinity_mass
        if self.direction is Direction.REMOVE:
            rounding = 8.0 * UNIT_ROUNDOFF * (1.0 if self.side is Side.UPPER else -1.0)
            value = self.infinity_mass + kept * self.base.delta(k / kept)
            return np.minimum(value * (1.0 + rounding), 1.0)
        inner = k * kept
        # Below K = 1 the curve is at most 1 − K above its value at 1, and never below it.
        short = np.maximum(1.0 - inner, 0.0) if self.side is Side.UPPER else 0.0
        return np.minimum(self.base.delta(np.maximum(inner, 1.0)) + short, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        kept = 1.0 - self.infinity_mass
        if self.direction is Direction.REMOVE:
            return self.base.slope(k / kept)
        return kept * self.base.slope(np.maximum(k * kept, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class BestCurve:
    """Smallest of several upper curves, or largest of several lower curves, at each K."""

    side: Side
    curves: Sequence[Curve]

    def _best(self, k: FloatArray) -> tuple[FloatArray, IntArray]:
        values = np.stack([curve.delta(k) for curve in self.curves])
        pick = np.argmin if self.side is Side.UPPER else np.argmax
        return values, np.expand_dims(pick(values, axis=0), 0)

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        values, index = self._best(np.asarray(k, dtype=float))
        return np.take_along_axis(values, index, axis=0)[0]

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        _, index = self._best(np.asarray(k, dtype=float))
        slopes = np.stack([curve.slope(k) for curve in self.curves])
        return np.take_along_axis(slopes, index, axis=0)[0]


def running_sums(values: FloatArray, direction: Direction) -> FloatArray:
    """Sums of the values from each index on (remove) or before each index (add), shape (n + 1,)."""
    if direction is Direction.REMOVE:
        sums = np.zeros(values.size + 1)
        np.cumsum(values[::-1], out=sums[-2::-1])
        return sums
    sums = np.zeros(values.size + 1)
    np.cumsum(values, out=sums[1:])
    return sums


def with_infinity_mass(
    base: Curve, direction: Direction, side: Side, infinity_mass: float
) -> Curve:
    """Curve with an infinity mass added; ``base`` itself if the infinity mass is 0."""
    return base if infinity_mass == 0.0 else InfinityMassCurve(base, direction, side, infinity_mass)


def diluted(base: Curve, direction: Direction, probability: float) -> Curve:
    """Curve of a client that takes part with a probability; ``base`` for probability 1."""
    return base if probability == 1.0 else DilutedCurve(base, direction, probability)


def epsilon_at(
    curve: Curve, delta: float, side: Side, near: float = 0.0, *, gap: float = _GAP
) -> float:
    """Upper or lower bound, as given by ``side``, on the ε at which a curve reaches δ.

    For an upper curve the result is an ε with curve(ε) ≤ δ; for a lower curve it is the largest ε
    found with curve(ε) > δ, or 0. The search is finer below ``near``, an ε at which the curve is
    tight, and ends at a relative distance of ``gap`` from the crossing.

    Raises:
        ParameterError: an unknown side.
        NumericalError: an upper curve does not fall to δ (δ lies below the error floor of the
            curve), or the curve has a value that is NaN.
    """
    side = checks.choice(Side, side=side)
    # A few points show where a curve reaches δ; where they do not, many points are tried.
    closely = near * _CLOSE_BELOW if near > 0 else np.zeros(0)
    for epsilons in (_FEW_EPSILONS, _EPSILONS):
        bracket = _crossing(curve, np.sort(np.concatenate([epsilons, closely])), delta, side)
        if bracket is not None:
            break
    else:
        if side is Side.UPPER:
            raise NumericalError(
                f"delta = {delta:.3g} lies below what can be certified: the computed upper bound "
                "on delta stays above it at every epsilon"
            )
        return 0.0
    low, high, _ = bracket
    if low == high:  # the curve is above δ at all points, or at none
        return low
    # Narrow the bracket around the crossing.
    low, high = _narrow_crossing(curve, bracket, delta, gap)
    rounding = 4 * UNIT_ROUNDOFF * (1.0 + high)  # of K = e^ε
    return high + rounding if side is Side.UPPER else max(low - rounding, 0.0)


_Crossing = tuple[float, float, float]
"""An ε at which a curve is above δ, an ε at which it is not, and the fraction of the interval
between them at which the curve is estimated to reach δ."""


def _crossing(curve: Curve, epsilons: FloatArray, delta: float, side: Side) -> _Crossing | None:
    """Neighbouring points between which a curve crosses δ; None if no point proves a bound.

    The true curve decreases. A computed curve may rise far from the K at which it is tight, but one
    point with a value of at most δ (for a lower curve, above δ) is enough to prove the bound.
    """
    # Values at all points.
    charge(_UNITS_A_POINT * epsilons.size)
    values = curve.delta(np.exp(epsilons))
    if np.isnan(values).any():
        raise NumericalError("a privacy curve has a value that is NaN")
    # The first point that is not above δ (upper), or the last one that is (lower).
    above = values > delta
    if side is Side.UPPER:
        index = int(np.argmin(above))
        if above[index]:
            return None
    else:
        index = above.size - int(np.argmax(above[::-1]))
        if not above[index - 1]:
            return None
    # The curve is on one side of δ at all points, or it crosses δ between two of them.
    if index in (0, above.size):
        end = float(epsilons[min(index, above.size - 1)])
        return end, end, 0.0
    share = _log_share(float(values[index - 1]), float(values[index]), delta)
    return float(epsilons[index - 1]), float(epsilons[index]), share


def _log_share(above: float, below: float, delta: float) -> float:
    """Fraction of an interval at which a curve reaches δ, as if its logarithm were linear."""
    if not above > delta >= below > 0:
        return 0.5
    return math.log(above / delta) / math.log(above / below)


def _narrow_crossing(
    curve: Curve, bracket: _Crossing, delta: float, gap: float
) -> tuple[float, float]:
    """Ends of a narrower interval of ε around the crossing; the curve is above δ at the first."""
    low, high, share = bracket
    while high - low > 1e-12 + gap * high:
        # Points around the estimated crossing, and the middle, so that each round halves at least.
        shares = np.minimum(np.maximum(share + _AROUND, 0.0), 1.0)
        shares[0], shares[-1], shares[-2] = 0.0, 1.0, 0.5
        shares.sort()
        points = low + (high - low) * shares
        points[-1] = high
        # The crossing lies before the first point that is not above δ.
        values = curve.delta(np.exp(points))
        above = values > delta
        above[0], above[-1] = True, False
        index = int(np.argmin(above))
        share = _log_share(float(values[index - 1]), float(values[index]), delta)
        if points[index] - points[index - 1] >= high - low:  # neighbouring floats
            break
        low, high = float(points[index - 1]), float(points[index])
    return low, high


PricedSide = Callable[[float, Side], float]
"""δ at one K, bounded from one side."""

_LARGEST_EPSILON = 300.0

_NEAR = 1e-3  # relative width to which the root is found

_ASIDE = 0.2  # distance in ln δ of the points that give the slopes of a lower curve

_MOST_STEPS = 60

_UNITS_A_NODE = 100  # of work, in a hull


@dataclass(frozen=True, slots=True, eq=False)
class PolygonCurve:
    """Curve that is a convex polygon in K, constant beyond its last node."""

    nodes: FloatArray
    values: FloatArray

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        return np.interp(k, self.nodes, self.values)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK at each K ≥ 1, from the right, shape of ``k``."""
        slopes = np.append(np.diff(self.values) / np.diff(self.nodes), 0.0)
        index = np.searchsorted(self.nodes, k, side="right") - 1
        return np.where(np.asarray(k) >= self.nodes[-1], 0.0, slopes[np.maximum(index, 0)])


def upper_polygon(nodes: FloatArray, uppers: FloatArray) -> PolygonCurve:
    """Upper curve: the greatest convex polygon below the chords through upper bounds.

    Args:
        nodes: increasing values of K, the first of which is 1, shape (n,).
        uppers: upper bounds on δ at the nodes, shape (n,); above 1 where no bound is known.
    """
    curve = _hull(nodes, np.minimum.accumulate(np.minimum(uppers, 1.0)))
    return PolygonCurve(curve.nodes, np.minimum(curve.values * (1.0 + 16 * UNIT_ROUNDOFF), 1.0))


def curve_through(priced: PricedSide, nodes: FloatArray, side: Side) -> PolygonCurve:
    """Upper or lower polygon through bounds on δ at ``nodes``, increasing K from 1 on, (n,)."""
    uppers = np.array([priced(float(k), Side.UPPER) for k in nodes])
    if side is Side.UPPER:
        return upper_polygon(nodes, uppers)
    lowers = np.array([priced(float(k), Side.LOWER) for k in nodes])
    return lower_polygon(nodes, lowers, np.minimum(uppers, 1.0))


def lower_polygon(nodes: FloatArray, lowers: FloatArray, uppers: FloatArray) -> PolygonCurve:
    """Convex polygon below the curve δ(K), from finite bounds on δ at the nodes.

    Args:
        nodes: increasing values of K, the first of which is 1, shape (n,).
        lowers: lower bounds on δ at the nodes, shape (n,).
        uppers: upper bounds on δ at the nodes, shape (n,). Together with the lower bounds they
            bound the slopes of the curve.
    """
    # Bounds on the slopes on both sides of each node.
    gaps = np.diff(nodes)
    falling, rising = _slopes(nodes, lowers, uppers)
    # In each interval: the line from the left node, the one into the right node, their crossing.
    into = lowers[1:] - rising[1:] * gaps
    apart = rising[1:] - falling[:-1]
    crossing = np.where(apart > 0, (lowers[:-1] - into) / np.where(apart > 0, apart, 1.0), 0.0)
    crossing = np.clip(crossing, 0.0, gaps)
    at_crossing = lowers[:-1] + falling[:-1] * crossing
    at_crossing = np.maximum(at_crossing, into + rising[1:] * crossing)
    # Beyond the last node the steepest proved line falls to 0, or the bound is 0 at once.
    end = nodes[-1] * (1.0 + 1e-12)
    if lowers[-1] > 0 and falling[-1] < 0:
        end = nodes[-1] - lowers[-1] / falling[-1]
    # The convex hull of nodes and crossings, lowered by the rounding of its values.
    points = np.concatenate([nodes, nodes[:-1] + crossing, [end]])
    values = np.concatenate([lowers, at_crossing, [0.0]])
    order = np.lexsort((values, points))
    points, first = np.unique(points[order], return_index=True)
    curve = _hull(points, np.maximum(values[order][first], 0.0))
    return PolygonCurve(curve.nodes, curve.values * (1.0 - 16 * UNIT_ROUNDOFF))


def _slopes(
    nodes: FloatArray, lowers: FloatArray, uppers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds on the slopes right of each node, and upper bounds on those left of the node."""
    charge(2 * nodes.size**2)
    distances = nodes[:, None] - nodes[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        chords = (lowers[:, None] - uppers[None, :]) / distances
    earlier = distances > 0
    falling = np.max(np.where(earlier, chords, -1.0), axis=1)
    rising = np.min(np.where(distances < 0, chords, 0.0), axis=1)
    return falling, rising


def _hull(nodes: FloatArray, values: FloatArray) -> PolygonCurve:
    """Lower convex hull of points, by Andrew's monotone chain."""
    charge(_UNITS_A_NODE * nodes.size)
    kept: list[int] = []
    for i in range(nodes.size):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            to_last = (values[b] - values[a]) * (nodes[i] - nodes[a])
            if to_last < (values[i] - values[a]) * (nodes[b] - nodes[a]):
                break
            kept.pop()
        kept.append(i)
    return PolygonCurve(nodes[kept], values[kept])


def nodes_near(priced: PricedSide, side: Side, delta: float, loss_deviation: float) -> FloatArray:
    """K = 1 and a few increasing K around the K at which a bound reaches δ, shape (n,).

    A first guess follows from ``loss_deviation``, about the standard deviation of the loss.

    Raises:
        NumericalError: the bound stays above δ at every ε up to 300.
    """
    target = math.log(delta)

    def above(epsilon: float) -> float:
        value = priced(math.exp(epsilon), side)
        return math.log(min(max(value, 1e-300), 1e300)) - target

    # Widen a bracket of the root, from a first guess of a Gaussian loss.
    low, at_low = 0.0, above(0.0)
    high = loss_deviation * math.sqrt(2.0 * max(-target, 0.5))
    if at_low <= 0:
        return np.exp(np.array([0.0, 0.01 * high]))
    while (at_high := above(high)) > 0:
        low, at_low, high = high, at_high, 1.5 * high
        if high > _LARGEST_EPSILON:
            raise _not_reached(delta)
    # Narrow the bracket; of an upper curve its ends are enough.
    low, high = narrowed(above, (low, at_low), (high, at_high), _NEAR)
    if side is Side.UPPER:
        return np.exp(np.array([0.0, low, high]))
    # A lower curve needs neighbouring nodes, from whose chords its slopes follow.
    aside = min(_ASIDE * (high - low) / max(above(low) - above(high), 1e-9), 0.1, 0.3 * low)
    beside = [low - 2 * aside, low - aside, low, high, high + aside, high + 2 * aside]
    return np.exp(np.array([0.0, *beside]))


def narrowed(
    function: Callable[[float], float],
    low: tuple[float, float],
    high: tuple[float, float],
    near: float,
) -> tuple[float, float]:
    """Short interval around the root of a decreasing function, by false position (Illinois).

    Args:
        function: the decreasing function.
        low: an argument at which the function is positive, and its value there.
        high: a larger argument at which the function is not positive, and its value there.
        near: largest width of the interval relative to its upper end.
    """
    (a, at_a), (b, at_b) = low, high
    for _ in range(_MOST_STEPS):
        if b - a <= near * b:
            break
        x = b - at_b * (b - a) / (at_b - at_a)
        # Aim a little past the root, so that the other end follows in the next step.
        x = min(max(x + 0.2 * near * b, a + 0.05 * (b - a)), b - 0.05 * (b - a))
        value = function(x)
        if value > 0:
            a, at_a, at_b = x, value, 0.5 * at_b
        else:
            b, at_b, at_a = x, value, 0.5 * at_a
    return a, b


def nodes_down_to(
    priced: PricedSide, delta: float, loss_deviation: float, density: float
) -> FloatArray:
    """Values of K, (n,), from 1 to where an upper bound falls below δ, denser where δ(K) bends.

    Near ε = 0 there are ``density`` nodes per ``loss_deviation``, which is about the standard
    deviation of the loss.

    Raises:
        NumericalError: the bound stays above δ at every ε up to 300.
    """
    epsilons, last, fall = [0.0], priced(1.0, Side.UPPER), 1.0 / loss_deviation
    unit = loss_deviation / density
    while last > delta:
        score = min(epsilons[-1] / loss_deviation, 10.0)
        step = max(unit, min(unit * math.exp(score**2 / 8), 5.0 / density / fall, 1.0))
        epsilons.append(epsilons[-1] + step)
        if epsilons[-1] > _LARGEST_EPSILON:
            raise _not_reached(delta)
        value = priced(math.exp(epsilons[-1]), Side.UPPER)
        if 0 < value < last < math.inf:
            fall = math.log(last / value) / step
        last = value
    return np.exp(np.array(epsilons))


def _not_reached(delta: float) -> NumericalError:
    return NumericalError(
        f"delta = {delta:.3g} cannot be certified: the bound on delta stays above it up to "
        f"epsilon = {_LARGEST_EPSILON:g}"
    )
