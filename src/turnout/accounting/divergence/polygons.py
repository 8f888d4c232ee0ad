"""Curves through proved points: a hockey stick between the K's at which it was computed.

A hockey stick δ(K) is convex, falls, and has slope ≥ −1. So chords through upper bounds are an
upper bound. Between two points a lower bound follows from chords beside, extended: right of K_i
the curve lies above any line from (K_j, upper), j < i, through (K_i, lower).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
PricedSide = Callable[[float, Side], float]
"""δ at one K, bounded from one side."""

_LARGEST_EPSILON = 150.0
_NEAR = 1e-3  # relative width to which the root is found
_ASIDE = 0.2  # how far in ln δ the points lie that slopes of a lower curve come from
_MOST_STEPS = 60
_UNITS_A_NODE = 100  # of work, in a hull


@dataclass(frozen=True, slots=True, eq=False)
class PolygonCurve:
    """A convex polygon over K; beyond its last node constant."""

    nodes: FloatArray
    values: FloatArray

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        return np.interp(k, self.nodes, self.values)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1, from the right."""
        slopes = np.append(np.diff(self.values) / np.diff(self.nodes), 0.0)
        index = np.searchsorted(self.nodes, k, side="right") - 1
        return np.where(np.asarray(k) >= self.nodes[-1], 0.0, slopes[np.maximum(index, 0)])


def upper_polygon(nodes: FloatArray, uppers: FloatArray) -> PolygonCurve:
    """The greatest convex polygon below the chords of upper bounds, itself an upper bound.

    Nodes are K's, rising, the first 1; bounds are above 1 where nothing is known.
    """
    curve = _hull(nodes, np.minimum.accumulate(np.minimum(uppers, 1.0)))
    return PolygonCurve(curve.nodes, np.minimum(curve.values * (1.0 + 16 * UNIT_ROUNDOFF), 1.0))


def lower_polygon(nodes: FloatArray, lowers: FloatArray, uppers: FloatArray) -> PolygonCurve:
    """A convex polygon below the curve, from finite bounds at K's that rise from 1."""
    gaps = np.diff(nodes)
    falling, rising = _slopes(nodes, lowers, uppers)
    # In each interval: the line from the left node, the one into the right node, their crossing.
    into = lowers[1:] - rising[1:] * gaps
    apart = rising[1:] - falling[:-1]
    crossing = np.where(apart > 0, (lowers[:-1] - into) / np.where(apart > 0, apart, 1.0), 0.0)
    crossing = np.clip(crossing, 0.0, gaps)
    at_crossing = lowers[:-1] + falling[:-1] * crossing
    at_crossing = np.maximum(at_crossing, into + rising[1:] * crossing)
    end = nodes[-1] * (1.0 + 1e-12)
    if lowers[-1] > 0 and falling[-1] < 0:
        end = nodes[-1] - lowers[-1] / falling[-1]
    points = np.concatenate([nodes, nodes[:-1] + crossing, [end]])
    values = np.concatenate([lowers, at_crossing, [0.0]])
    order = np.lexsort((values, points))
    points, first = np.unique(points[order], return_index=True)
    curve = _hull(points, np.maximum(values[order][first], 0.0))
    return PolygonCurve(curve.nodes, curve.values * (1.0 - 16 * UNIT_ROUNDOFF))


def _slopes(
    nodes: FloatArray, lowers: FloatArray, uppers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes that the curve at least has right of each node, and at most has left of it."""
    charge(2 * nodes.size**2)
    distances = nodes[:, None] - nodes[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        chords = (lowers[:, None] - uppers[None, :]) / distances
    earlier = distances > 0
    falling = np.max(np.where(earlier, chords, -1.0), axis=1)
    rising = np.min(np.where(distances < 0, chords, 0.0), axis=1)
    return falling, rising


def _hull(nodes: FloatArray, values: FloatArray) -> PolygonCurve:
    """The lower convex hull of points, by Andrew's monotone chain."""
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
    """K = 1 and a few K's around the one at which a bound reaches δ.

    A first guess follows from ``loss_deviation``, about the standard deviation of the loss.

    Raises:
        NumericalError: no bound comes down to δ.
    """
    target = math.log(delta)

    def above(epsilon: float) -> float:
        value = priced(math.exp(epsilon), side)
        return math.log(min(max(value, 1e-300), 1e300)) - target

    low, at_low = 0.0, above(0.0)
    high = loss_deviation * math.sqrt(2.0 * max(-target, 0.5))
    if at_low <= 0:
        return np.exp(np.array([0.0, 0.01 * high]))
    while (at_high := above(high)) > 0:
        low, at_low, high = high, at_high, 1.5 * high
        if high > _LARGEST_EPSILON:
            raise NumericalError(f"delta = {delta:.3g} cannot be certified")
    low, high = _narrowed(above, (low, at_low), (high, at_high))
    if side is Side.UPPER:
        return np.exp(np.array([0.0, low, high]))
    aside = min(_ASIDE * (high - low) / max(above(low) - above(high), 1e-9), 0.1, 0.3 * low)
    beside = [low - 2 * aside, low - aside, low, high, high + aside, high + 2 * aside]
    return np.exp(np.array([0.0, *beside]))


def _narrowed(
    function: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]
) -> tuple[float, float]:
    """A short interval around the root of a falling function: false position, Illinois style."""
    (a, at_a), (b, at_b) = low, high
    for _ in range(_MOST_STEPS):
        if b - a <= _NEAR * b:
            break
        x = b - at_b * (b - a) / (at_b - at_a)
        # Aim a little past the root, so that the other end follows in the next step.
        x = min(max(x + 0.2 * _NEAR * b, a + 0.05 * (b - a)), b - 0.05 * (b - a))
        value = function(x)
        if value > 0:
            a, at_a, at_b = x, value, 0.5 * at_b
        else:
            b, at_b, at_a = x, value, 0.5 * at_a
    return a, b


def nodes_down_to(
    priced: PricedSide, delta: float, loss_deviation: float, density: float
) -> FloatArray:
    """K's from 1 to where an upper bound falls below δ, as dense as the curve is bent.

    Around ε = 0 there are ``density`` nodes a deviation, about the standard deviation of the loss.
    """
    epsilons, last, fall = [0.0], priced(1.0, Side.UPPER), 1.0 / loss_deviation
    unit = loss_deviation / density
    while last > delta:
        score = min(epsilons[-1] / loss_deviation, 10.0)
        step = max(unit, min(unit * math.exp(score**2 / 8), 5.0 / density / fall, 1.0))
        epsilons.append(epsilons[-1] + step)
        if epsilons[-1] > _LARGEST_EPSILON:
            raise NumericalError(f"delta = {delta:.3g} cannot be certified")
        value = priced(math.exp(epsilons[-1]), Side.UPPER)
        if 0 < value < last < math.inf:
            fall = math.log(last / value) / step
        last = value
    return np.exp(np.array(epsilons))
