"""Distributions on a grid that bracket a likelihood ratio in convex order.

`upper_distribution` and `lower_distribution` return a `GridDistribution` on a `Grid`; `lower_grid`
returns the grid for a lower distribution. `under_tangents`, `trimmed_hockey_stick_polygon` and
`convex_slopes` are operations on polygons that other modules use too. `participation.check_ins`
adds up such distributions; `blocks` and the modules on k-subsets and replace-one use the polygons.

X ≤_cx X' means E f(X) ≤ E f(X') for every convex f. Both directions of a hockey-stick divergence
are expectations of convex functions of X, so a distribution that is larger in this order gives a
proved upper bound, and a smaller one a proved lower bound. In terms of reverse hockey sticks
p(k) = E[(k − X)₊] (convex, slope Q(X ≤ k)) and hockey sticks c(k) = E[(X − k)₊] = p(k) + 1 − k:

* If the means are equal, X ≤_cx X' iff p ≤ p' everywhere. A distribution on the grid has a
  piecewise linear p with kinks at grid points, so *any* convex polygon above (below) p is the p of
  an upper (lower) distribution.
* The upper distribution has the chords of p as its polygon: each value is spread onto the two grid
  points next to it, and keeps its mean. The lower distribution has a polygon under the tangents of
  p. Both polygons differ from p by O(h²) in the step h.

The reverse hockey stick is accurate in the lower tail, the hockey stick in the upper tail. So
masses are second differences of reverse hockey sticks up to the point at which hockey sticks have
the smaller rounding errors, and second differences of hockey sticks beyond this point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
    tail_roundings_above,
    tail_roundings_below,
    tails_above,
    tails_below,
)
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import NumericalError

_EXCESS = 0.75  # longest tangent, as a part of the mean excess
_STEEPNESS = 1e-9  # relative error allowed when slopes at the cap are compared
_STEEP_CELLS = 256  # cells of which the steepness is checked
_PARTS = np.linspace(0.0, 1.0, 33)
_FEW_FALLS, _POOLING_ROUNDS = 64, 40  # falls that are pooled one by one, and rounds before that


@dataclass(frozen=True, slots=True)
class Grid:
    """Points a, a + h, …, a + J·h: origin a, step h, J cells.

    Attributes:
        edge: for a lower distribution, the point at which the first tangent touches the curve. All
            values of X below ``edge`` are replaced by the mean of these values, which is the
            origin.
    """

    step: float
    cells: int
    origin: float = 0.0
    edge: float = 0.0

    @property
    def points(self) -> FloatArray:
        """All J + 1 grid points, shape (J + 1,)."""
        return self.origin + self.step * np.arange(self.cells + 1, dtype=np.float64)

    @property
    def cap(self) -> float:
        """Last grid point."""
        return self.origin + self.step * self.cells


def lower_grid(pair: Pair, step: float, cap: float) -> Grid:
    """Grid for a lower distribution: its first point is the mean of the lowest values of X.

    X has no atom at 0, so a distribution below X in convex order has no atom at 0 either. If the
    lowest values are replaced by their conditional mean, E X = 1 holds even if the step is far
    larger than 1, as for small noise multipliers. The step is increased a little, so that the grid
    ends at the cap.

    Raises:
        NumericalError: the cap is not above the first grid point.
    """
    origin, edge = _lowest(pair, step)
    if not cap > origin:
        raise NumericalError("the grid ends below the values of the likelihood ratio")
    cells = max(2, math.floor((cap - origin) / step))
    return Grid((cap - origin) / cells, cells, origin, edge)


def _lowest(pair: Pair, step: float) -> tuple[float, float]:
    """Mean of the likelihood ratio X given X ≤ edge, and the edge.

    The edge is just left of the point at which the tangent of the first cell touches the curve.
    """
    low, high = 1e-6 * min(step, 1.0), step + 1.0
    mean = edge = low
    # Ever finer edges; any of them is valid, since the origin is the mean below it.
    for _ in range(3):
        edges = low * np.exp(math.log(high / low) * _PARTS)
        under_p, mass = tails_below(pair, edges)
        means = np.where(mass > 0, under_p / np.where(mass > 0, mass, 1.0), edges)
        early = np.flatnonzero(edges < _touching(pair, means, step))
        last = int(early[-1]) if early.size else 0
        mean, edge = float(means[last]), float(edges[last])
        low, high = edge, float(edges[min(last + 1, edges.size - 1)])
    return mean, edge


def _touching(pair: Pair, left: FloatArray, step: float) -> FloatArray:
    """Point at which each cell's tangent touches the hockey stick: the cell's middle or beyond.

    A tangent at k falls to 0 at k + E[X − k | X > k]. In a steep tail the point lies further right
    than the middle, so that the tangent does not reach 0 before the cell ends; otherwise the
    polygon would end there.
    """
    middles = left + 0.5 * step
    under_p, under_q = tails_above(pair, middles)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = under_p / under_q - middles
    excess = np.where(np.isfinite(excess), excess, step)
    return np.maximum(middles, left + step - np.minimum(_EXCESS * excess, step))


def _touching_points(pair: Pair, grid: Grid) -> FloatArray:
    """Point at which each cell's tangent touches the curve; in the first cell, the grid's edge."""
    left = grid.points[:-1]
    touching = left + 0.5 * grid.step
    touching[:_STEEP_CELLS] = _touching(pair, left[:_STEEP_CELLS], grid.step)
    touching[0] = grid.edge
    return touching


@dataclass(frozen=True, slots=True, eq=False)
class GridDistribution:
    """Distribution of min(Y, cap), where Y bounds a likelihood ratio in convex order.

    Attributes:
        masses: masses of the grid points, shape (J + 1,); the last includes all mass above the cap.
        errors: bounds on the rounding errors of the hockey sticks whose differences are the masses,
            shape (J + 1,).
        beyond: bound on E[(Y − cap)₊], on the same side as the distribution.
    """

    masses: FloatArray
    errors: FloatArray
    beyond: float


def upper_distribution(pair: Pair, grid: Grid) -> GridDistribution:
    """Distribution Y ≥_cx X (an upper bound): X spread onto the points of the grid up to the cap.

    Above the cap Y has the distribution of X.
    """
    points, switch = grid.points, _switch(grid)
    reverse_hockey_sticks, hockey_sticks = (
        reverse_hockey_stick(pair, points[: switch + 1]),
        hockey_stick(pair, points[switch:]),
    )
    masses = _masses(grid.step, reverse_hockey_sticks, hockey_sticks)
    errors = _errors(pair, points, switch)
    if masses is None:
        masses, errors = (
            _masses_of_reverse_hockey_sticks(grid.step, reverse_hockey_stick(pair, points)),
            reverse_hockey_stick_rounding(pair, points),
        )
    beyond = hockey_stick(pair, points[-1:]) + hockey_stick_rounding(pair, points[-1:])
    return GridDistribution(masses, errors, float(beyond[0]))


def lower_distribution(pair: Pair, grid: Grid, *, by_hockey_sticks: bool) -> GridDistribution:
    """Distribution Y ≤_cx X (a lower bound) on the points of the grid up to the cap.

    If the polygons of hockey sticks and of reverse hockey sticks do not fit together, one of the
    two is used at all points, and Y is below X in a weaker order. With ``by_hockey_sticks`` it is
    the order by increasing convex functions, otherwise that by decreasing convex functions.
    """
    # Polygons under the tangents: reverse hockey sticks up to the switch, hockey sticks beyond.
    points, switch = grid.points, _switch(grid)
    touching = _touching_points(pair, grid)
    reverse_hockey_sticks = _lower_reverse_hockey_sticks(
        pair, points[: switch + 2], touching[: switch + 1]
    )[: switch + 1]
    first = switch - 1
    hockey_sticks = _lower_hockey_sticks(pair, points[first:], touching[first:])[1:]
    # Rounding errors of the two polygons, at the same points.
    errors = np.concatenate(
        [
            _reverse_hockey_stick_errors(pair, points[: switch + 2], touching[: switch + 1])[
                :switch
            ],
            _hockey_stick_errors(pair, points[first:], touching[first:])[1:],
        ]
    )
    # Join the polygons where their values at the switch agree up to rounding.
    masses = None
    if (
        hockey_sticks.size
        and abs(hockey_sticks[0] - reverse_hockey_sticks[-1] - 1.0 + points[switch])
        <= 8.0 * errors[switch]
    ):
        masses = _masses(grid.step, reverse_hockey_sticks, hockey_sticks)
    # Otherwise take one kind of hockey stick for all points.
    if masses is None and by_hockey_sticks:
        hockey_sticks = _lower_hockey_sticks(pair, points, touching)
        first_excess = hockey_stick(pair, touching[:1]) - pair.q_above(touching[:1]) * (
            points[1] - touching[0]
        )
        # The first tangent passes through (origin, 1 − origin) and must not fall below 0.
        hockey_sticks[0] = 1.0 - grid.origin if first_excess[0] >= 0 else 0.0
        masses, errors = (
            _masses_of_hockey_sticks(grid.step, hockey_sticks),
            _hockey_stick_errors(pair, points, touching),
        )
    elif masses is None:
        reverse_hockey_sticks = _lower_reverse_hockey_sticks(pair, points, touching)
        masses, errors = (
            _masses_of_reverse_hockey_sticks(grid.step, reverse_hockey_sticks),
            _reverse_hockey_stick_errors(pair, points, touching),
        )
    return GridDistribution(masses, errors, _beyond(pair, points, hockey_sticks, masses))


def _beyond(pair: Pair, points: FloatArray, hockey_sticks: FloatArray, masses: FloatArray) -> float:
    """Mean excess E[(Y − cap)₊] if the polygon may be extended beyond the cap, else 0.

    The polygon may be extended as a line if the line stays below the hockey stick. This holds if
    the line is at least as steep as the hockey stick at the cap, which is true if X has no atoms.
    """
    cap = points[-1:]
    if hockey_sticks.size < 2 or masses[-1] * (1.0 + _STEEPNESS) < pair.q_above(cap)[0]:
        return 0.0
    return max(
        float(hockey_sticks[-1] * (1.0 - _STEEPNESS) - hockey_stick_rounding(pair, cap)[0]), 0.0
    )


def _errors(pair: Pair, points: FloatArray, switch: int) -> FloatArray:
    return np.concatenate(
        [
            reverse_hockey_stick_rounding(pair, points[:switch]),
            hockey_stick_rounding(pair, points[switch:]),
        ]
    )


def _hockey_stick_errors(pair: Pair, points: FloatArray, touching: FloatArray) -> FloatArray:
    """Rounding errors of hockey sticks under tangents, at each end of the cells."""
    return _at_ends(points, *tail_roundings_above(pair, touching))


def _reverse_hockey_stick_errors(
    pair: Pair, points: FloatArray, touching: FloatArray
) -> FloatArray:
    """Rounding errors of reverse hockey sticks under tangents, at each end of the cells."""
    return _at_ends(points, *tail_roundings_below(pair, touching))


def _at_ends(points: FloatArray, under_p: FloatArray, under_q: FloatArray) -> FloatArray:
    """Rounding error at each end of the cells: the larger one of the tangents of two neighbours.

    At an end k the tangent of a cell is P(X > y) − k·Q(X > y), or k·Q(X ≤ y) − P(X ≤ y), where y is
    the point at which the tangent touches the hockey stick. The subtraction of the two terms has a
    smaller rounding error than the tail probability under Q.
    """
    if under_p.size == 0:
        return np.zeros(1)
    left, right = (under_p + 2.0 * ends * under_q for ends in (points[:-1], points[1:]))
    return np.concatenate([left[:1], np.maximum(right[:-1], left[1:]), right[-1:]])


def _switch(grid: Grid) -> int:
    """Index of the first grid point above 1, at least 1; hockey sticks are used from there on."""
    return min(max(1, math.floor((1.0 - grid.origin) / grid.step) + 1), grid.cells + 1)


def _lower_reverse_hockey_sticks(
    pair: Pair, points: FloatArray, touching: FloatArray
) -> FloatArray:
    under_p, under_q = tails_below(pair, touching)
    reverse_hockey_sticks = np.maximum(touching * under_q - under_p, 0.0)
    values = under_tangents(points, touching, reverse_hockey_sticks, under_q)
    # By the choice of the origin the first tangent passes through (origin, 0). A reverse hockey
    # stick is never negative: the polygon leaves 0 one point after its last negative value.
    values[0] = 0.0
    negative = np.flatnonzero(values < 0)
    if negative.size:
        values[: negative[-1] + 2] = 0.0
    return values


def _lower_hockey_sticks(pair: Pair, points: FloatArray, touching: FloatArray) -> FloatArray:
    """Lower bounds on hockey sticks at the points, from tangents; the first value is no bound."""
    if touching.size == 0:
        return np.zeros(0)
    under_p, under_q = tails_above(pair, touching)
    hockey_sticks = np.maximum(under_p - touching * under_q, 0.0)
    values = under_tangents(points, touching, hockey_sticks, -under_q)
    return trimmed_hockey_stick_polygon(points, values)


def under_tangents(
    points: FloatArray, middles: FloatArray, prices: FloatArray, slopes: FloatArray
) -> FloatArray:
    """Smaller of the tangents of the two neighbouring cells, at each of J + 1 points.

    Every chord of the result lies under the tangent of its cell, and so under the convex function.

    Args:
        points: increasing ends of the cells, shape (J + 1,).
        middles: point in each cell at which its tangent touches the function, shape (J,).
        prices: values of the convex function at these points, shape (J,).
        slopes: slopes of the convex function at these points, shape (J,).
    """
    left = prices + slopes * (points[:-1] - middles)
    right = prices + slopes * (points[1:] - middles)
    return np.concatenate([left[:1], np.minimum(right[:-1], left[1:]), right[-1:]])


def trimmed_hockey_stick_polygon(points: FloatArray, values: FloatArray) -> FloatArray:
    """Polygon below a hockey stick, raised to max(1 − k, 0), a lower bound of hockey sticks.

    Where a tangent cuts max(1 − k, 0), the polygon follows max(1 − k, 0) for one more point, so
    that every chord still lies under a tangent or under max(1 − k, 0).

    Args:
        points: increasing points k, shape (n,).
        values: values of the polygon at the points, shape (n,); changed in place and returned.
    """
    steep = np.flatnonzero(values < 1.0 - points - 4 * UNIT_ROUNDOFF)
    if steep.size:
        values[: steep[-1] + 2] = 1.0 - points[: steep[-1] + 2]
    negative = np.flatnonzero(values < 0)
    if negative.size:
        values[max(negative[0] - 1, 0) :] = 0.0
    return values


def _masses(
    step: float, reverse_hockey_sticks: FloatArray, hockey_sticks: FloatArray
) -> FloatArray | None:
    """Masses from reverse hockey sticks up to a point, and from hockey sticks beyond it.

    The result is None if there are no hockey sticks, or if atoms prevent joining the two polygons
    into one convex polygon.
    """
    if hockey_sticks.size < 2:
        return None
    below = convex_slopes(np.diff(reverse_hockey_sticks))
    above = np.minimum(convex_slopes(np.diff(hockey_sticks)), 0.0)
    junction = step + above[:1] - below[-1:]
    if junction[0] < 0:
        return None
    parts = [np.diff(below, prepend=0.0), junction, np.diff(above), -above[-1:]]
    return np.concatenate(parts) / step


def _masses_of_reverse_hockey_sticks(step: float, reverse_hockey_sticks: FloatArray) -> FloatArray:
    below = np.minimum(convex_slopes(np.diff(reverse_hockey_sticks)), step)
    return np.diff(below, prepend=0.0, append=step) / step


def _masses_of_hockey_sticks(step: float, hockey_sticks: FloatArray) -> FloatArray:
    above = np.clip(convex_slopes(np.diff(hockey_sticks)), -step, 0.0)
    return np.diff(above, prepend=-step, append=0.0) / step


def convex_slopes(slopes: FloatArray, widths: FloatArray | None = None) -> FloatArray:
    """Slopes of the greatest convex polygon below a polygon with given slopes, shape (n,).

    Args:
        slopes: slope of each of the n cells of the polygon, shape (n,).
        widths: positive widths of the cells, shape (n,); equal widths if None.
    """
    falls = slopes[1:] < slopes[:-1]
    if not falls.any():
        return slopes
    weights = np.ones(slopes.size) if widths is None else widths
    sizes = np.ones(slopes.size, dtype=np.int64)
    # Many falls are rounding of flat parts: pool each falling run, of all runs at once.
    for _ in range(_POOLING_ROUNDS):
        if int(falls.sum()) <= _FEW_FALLS:
            break
        starts = np.append(0, np.flatnonzero(~falls) + 1)
        slopes, weights = (
            np.add.reduceat(slopes * weights, starts),
            np.add.reduceat(weights, starts),
        )
        slopes, sizes = slopes / weights, np.add.reduceat(sizes, starts)
        falls = slopes[1:] < slopes[:-1]
    # The falls that remain are pooled one after the other, from the left.
    means, starts = _pooled(slopes, weights, np.flatnonzero(falls).tolist())
    return np.repeat(means, np.add.reduceat(sizes, starts))


def _pooled(
    slopes: FloatArray, weights: FloatArray, falls: list[int]
) -> tuple[FloatArray, IntArray]:
    """Increasing weighted means of pools of slopes, and the index at which each pool starts.

    Pool adjacent violators: a slope that is above the next slope is pooled with the next slope.
    Left of the current pool the means already increase.

    Args:
        slopes: slopes of the cells, shape (n,).
        weights: positive weights of the cells, shape (n,).
        falls: increasing indices of slopes that are above the next slope.
    """
    value, weight = slopes.tolist(), weights.tolist()
    pools: list[tuple[int, int, float, float]] = []  # first index, end, sum and weight
    for fall in falls:
        if pools and fall + 1 < pools[-1][1]:
            continue  # a pool has both slopes
        # Start with the slope that is too large, or with the pool that ends there.
        first, end, total, share = fall, fall + 1, value[fall] * weight[fall], weight[fall]
        if pools and pools[-1][1] == end:
            first, end, total, share = pools.pop()
        # Add neighbours on either side until the mean lies between both neighbours.
        while True:
            mean, last = total / share, pools[-1] if pools else None
            if end < len(value) and value[end] < mean:  # the next slope is smaller
                total, share, end = total + value[end] * weight[end], share + weight[end], end + 1
            elif last is not None and last[1] == first and last[2] / last[3] > mean:
                pools.pop()
                first, total, share = last[0], total + last[2], share + last[3]
            elif first and (last is None or last[1] < first) and value[first - 1] > mean:
                first -= 1  # a single slope on the left is larger
                total, share = total + value[first] * weight[first], share + weight[first]
            else:
                break
        pools.append((first, end, total, share))
    # Means of the pools, and all other slopes as they are.
    starting = np.ones(slopes.size, dtype=bool)
    means = slopes.copy()
    for first, end, total, share in pools:
        starting[first + 1 : end] = False
        means[first] = total / share
    return means[starting], np.flatnonzero(starting)
