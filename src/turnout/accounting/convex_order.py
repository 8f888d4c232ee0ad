"""Laws on a grid that bracket a likelihood ratio in convex order.

X ≤_cx X' means E f(X) ≤ E f(X') for every convex f; both directions of a hockey-stick
divergence are expectations of convex functions of X, so a law that is larger in this order
gives a proved upper bound and a smaller one a proved lower bound. In terms of put prices
p(k) = E[(k − X)₊] (convex, slope Q(X ≤ k)) and call prices c(k) = E[(X − k)₊] = p(k) + 1 − k:

* X ≤_cx X' iff p ≤ p' everywhere (equal means). A law on the grid has a piecewise linear p
  with kinks at grid points, so *any* convex polygon above (below) p is an upper (lower) law.
* Upper: the chords of p, i.e. the mean-preserving spread of each value onto its two
  neighbours. Lower: a polygon under the tangents of p. Both err by O(h²) in the step h.

The call price is accurate in the upper tail and the put price in the lower one, so the remove
direction, which lives in the upper tail, is built from calls and the add direction from masses
that come from puts in the lower tail and, from where they round less, from calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.accounting.pairs import UNIT_ROUNDOFF, Pair, call, call_rounding, put, put_rounding

FloatArray = np.ndarray


@dataclass(frozen=True, slots=True)
class Grid:
    """The points a, a + h, …, a + J·h."""

    step: float
    cells: int
    origin: float = 0.0

    @property
    def points(self) -> FloatArray:
        """All J + 1 points."""
        return self.origin + self.step * np.arange(self.cells + 1)

    @property
    def middles(self) -> FloatArray:
        """The middles of the J cells."""
        return self.origin + self.step * (np.arange(self.cells) + 0.5)

    @property
    def cap(self) -> float:
        """The last point."""
        return self.origin + self.step * self.cells


def lower_grid(pair: Pair, step: float, cells: int) -> Grid:
    """A grid for a lower law: its origin is the mean of X given that X < origin + h/2.

    X has no atom at 0, so neither has a law below it in convex order. Gathering the lowest
    values in their conditional mean keeps E X = 1 even where h is far larger than 1, as it is
    for small noise multipliers.
    """

    def conditional_mean(edge: float) -> float:
        q = float(pair.q_below(np.array(edge)))
        return float(pair.p_below(np.array(edge))) / q if q > 0 else edge

    low, high = 0.0, step + 1.0
    for _ in range(60):
        edge = 0.5 * (low + high)
        near = edge - conditional_mean(edge) < 0.5 * step
        low, high = (edge, high) if near else (low, edge)
    return Grid(step, cells, conditional_mean(low))


def upper_calls(pair: Pair, grid: Grid) -> FloatArray:
    """Call prices of the spread of X ∧ cap, shape (J + 1,).

    With them δ_X ≤ δ_law + call(cap) in the remove direction.
    """
    calls = call(pair, grid.points)
    return calls - calls[-1]


def lower_calls(pair: Pair, grid: Grid) -> FloatArray:
    """Call prices of a law below X ∧ cap in increasing convex order, shape (J + 1,)."""
    calls = _lower_call_polygon(pair, grid)
    calls -= calls[-1]
    slopes = np.diff(calls)
    if np.all(np.diff(slopes) >= 0):
        return calls
    convex = -np.cumsum(np.minimum(_increasing(slopes), 0.0)[::-1])[::-1]
    # Summing again rounds J times; shrinking the prices by as much keeps them below.
    return np.append(convex * (1.0 - grid.cells * UNIT_ROUNDOFF), 0.0)


def upper_masses(pair: Pair, grid: Grid) -> tuple[FloatArray, FloatArray]:
    """Masses of the spread of X ∧ cap, an upper law in the add direction.

    Returns:
        masses and bounds on the rounding errors of the prices behind them, shapes (J + 1,).
    """
    return _masses(grid, pair, put(pair, grid.points), call(pair, grid.points))


def lower_masses(pair: Pair, grid: Grid) -> tuple[FloatArray, FloatArray]:
    """Masses of a lower law in the add direction, summing to less than 1.

    What lies above the cap is raised to infinity, where a put pays nothing: its atom is 0.

    Returns:
        masses and bounds on the rounding errors of the prices behind them, shapes (J + 1,).
    """
    puts = _lower_put_polygon(pair, grid)
    masses, errors = _masses(grid, pair, puts, _lower_call_polygon(pair, grid))
    masses[-1] = 0.0
    return masses, errors


def _switch(pair: Pair, grid: Grid) -> int:
    """The first point, but not point 0, where a call price rounds less than a put price."""
    points = grid.points[1:]
    calls_win = call_rounding(pair, points) < put_rounding(pair, points)
    return 1 + int(np.argmax(calls_win)) if calls_win.any() else grid.cells + 1


def _lower_put_polygon(pair: Pair, grid: Grid) -> FloatArray:
    middles = grid.middles
    values = under_tangents(grid.points, middles, put(pair, middles), pair.q_below(middles))
    # By the choice of the origin the first tangent passes through (origin, 0). A put price is
    # never negative: the polygon leaves 0 one point after its last negative value.
    values[0] = 0.0
    negative = np.flatnonzero(values < 0)
    if negative.size:
        values[: negative[-1] + 2] = 0.0
    return values


def _lower_call_polygon(pair: Pair, grid: Grid) -> FloatArray:
    middles, points = grid.middles, grid.points
    values = under_tangents(points, middles, call(pair, middles), -pair.q_above(middles))
    # By the choice of the origin the first tangent passes through (origin, 1 − origin).
    values[0] = 1.0 - grid.origin
    return trimmed_call_polygon(points, values)


def under_tangents(
    points: FloatArray, middles: FloatArray, prices: FloatArray, slopes: FloatArray
) -> FloatArray:
    """At each of J + 1 points the smaller of the tangents of the cells beside it.

    Every chord of the result lies under the tangent of its cell, so under the convex function
    with these ``prices`` and ``slopes`` at the ``middles`` of the J cells.
    """
    left = prices + slopes * (points[:-1] - middles)
    right = prices + slopes * (points[1:] - middles)
    return np.concatenate([left[:1], np.minimum(right[:-1], left[1:]), right[-1:]])


def trimmed_call_polygon(points: FloatArray, values: FloatArray) -> FloatArray:
    """A polygon under a call price, kept above the price's own floor max(1 − k, 0).

    Where a tangent cuts that floor the polygon follows the floor up to one point further, so
    that every chord still lies under a tangent or under the floor.
    """
    steep = np.flatnonzero(values < 1.0 - points - 4 * UNIT_ROUNDOFF)
    if steep.size:
        values[: steep[-1] + 2] = 1.0 - points[: steep[-1] + 2]
    negative = np.flatnonzero(values < 0)
    if negative.size:
        values[max(negative[0] - 1, 0) :] = 0.0
    return values


def _masses(
    grid: Grid, pair: Pair, puts: FloatArray, calls: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Second differences: of the puts, and of the calls from where they round less.

    Prices are differenced before anything is divided by h, so that their rounding errors enter
    a transform of the masses only through second differences of its kernel. Slopes end where
    those of a law do, at 1 and at 0: a polygon under tangents may overshoot next to an atom.
    """
    switch = _switch(pair, grid)
    if switch < grid.cells:
        below = _increasing(np.diff(puts[: switch + 1]))
        above = np.minimum(_increasing(np.diff(calls[switch:])), 0.0)
        junction = grid.step + above[:1] - below[-1:]
        if junction[0] >= 0:
            parts = [np.diff(below, prepend=0.0), junction, np.diff(above), -above[-1:]]
            by_puts = np.arange(puts.size) < switch
            errors = np.where(
                by_puts, put_rounding(pair, grid.points), call_rounding(pair, grid.points)
            )
            return np.concatenate(parts) / grid.step, errors
    # Puts alone, where there are no others, or atoms leave the two without a convex joint.
    below = np.minimum(_increasing(np.diff(puts)), grid.step)
    masses = np.diff(below, prepend=0.0, append=grid.step) / grid.step
    return masses, put_rounding(pair, grid.points)


def _increasing(slopes: FloatArray) -> FloatArray:
    """The slopes of the greatest convex minorant of a polygon."""
    if slopes.size < 2 or bool(np.all(np.diff(slopes) >= 0)):
        return slopes
    from scipy.optimize import isotonic_regression  # rarely needed, and slow to import

    return isotonic_regression(slopes).x
