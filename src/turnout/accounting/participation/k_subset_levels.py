"""One k-subset problem, and the spread of a likelihood ratio onto few levels.

`SubsetProblem` is the problem: k of t steps, one direction, near one δ. `Prices` holds certified
upper hockey sticks of the mean of several ratios; `levels_for_hockey_sticks` and
`levels_for_reverse_hockey_sticks` return a `LevelDistribution` above it. `valley` searches for the
best bound. The other modules on k-subsets build on this one.

A polygon above the prices of a ratio at some points belongs to a distribution on those points that
is larger in convex order. Its masses are second differences, and rounding can leave their own
prices a little below the polygon. So the prices are summed again from the masses, and ``excess`` is
the factor by which the masses must be raised to be above: a measure with more mass, and larger
prices, than a distribution bounds every expectation of a function that is convex, monotone and not
negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.convex_order import convex_slopes
from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.pairs import Pair
from turnout.accounting.participation.check_ins import allocation_curve
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError


@dataclass(frozen=True, slots=True)
class SubsetProblem:
    """Problem: k of a window's t steps, 1 < k < t, and the δ at which a bound should be sharp."""

    pair: Pair
    window: int
    picks: int
    direction: Direction
    delta: float


_MOST_MOVES = 16


def valley(value: Callable[[float], float], start: float, factor: float) -> float:
    """Minimum point of a function with one valley, on the grid start·factorⁿ near the start.

    >>> valley(lambda x: abs(x - 8.5), 1.0, 2.0)
    8.0
    """
    best = (value(start), start)
    for ratio in (factor, 1.0 / factor):
        before = best
        for _ in range(_MOST_MOVES):
            tried = value(best[1] * ratio), best[1] * ratio
            if not tried[0] < best[0]:
                break
            best = tried
        if best is not before:
            break
    return best[1]


_ROUNDING = 1e-11  # relative error of sums of some thousand positive terms, with a wide margin
_WORST_EXCESS = 1e-4
_LARGEST_HINT, _HINTS_APART = 0.1, 1e3  # δ's at which the curves of an average are made sharp


@dataclass(frozen=True, slots=True, eq=False)
class LevelDistribution:
    """A measure on a few values of the ratio Y, above Y ∧ cap in (increasing) convex order.

    Attributes:
        levels: the values, the last one being the cap.
        masses: their masses under Q.
        excess: at least 1; the masses times this are the bound.
        beyond: upper bound on what the levels leave out: E_Q[(Y − cap)₊], cut off by the cap, for
            hockey sticks; the mass at 0 for reverse ones, which lose nothing by a cap.
    """

    levels: FloatArray
    masses: FloatArray
    excess: float
    beyond: float


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Certified upper hockey sticks and reverse ones of the mean Y of b independent ratios."""

    remove: tuple[Curve, ...]
    add: tuple[Curve, ...]

    @classmethod
    def of(cls, pair: Pair, steps: int, delta: float) -> Prices:
        """Prices that are sharp from about ``delta`` to 1 (exact for one step)."""
        hints = [min(_LARGEST_HINT, delta)]
        while steps > 1 and hints[-1] < _LARGEST_HINT:
            hints.append(min(_LARGEST_HINT, hints[-1] * _HINTS_APART))

        def curves(direction: Direction) -> tuple[Curve, ...]:
            return tuple(
                allocation_curve(pair, steps, direction, Side.UPPER, delta_hint=hint)
                for hint in hints
            )

        return cls(curves(Direction.REMOVE), curves(Direction.ADD))

    def hockey_sticks(self, points: FloatArray) -> FloatArray:
        """Upper bound on E_Q[(Y − k)₊] at each k ≥ 0, shape of ``points``."""
        above = _least(self.remove, np.maximum(points, 1.0))
        return np.where(
            points >= 1.0, above, self._low_reverse_hockey_sticks(points) + 1.0 - points
        )

    def reverse_hockey_sticks(self, points: FloatArray) -> FloatArray:
        """Upper bound on E_Q[(k − Y)₊] at each k ≥ 0, shape of ``points``."""
        above = _least(self.remove, np.maximum(points, 1.0)) - 1.0 + points
        return np.where(points >= 1.0, above, self._low_reverse_hockey_sticks(points))

    def _low_reverse_hockey_sticks(self, points: FloatArray) -> FloatArray:
        low = np.clip(points, 1e-290, 1.0)
        values = _least(self.add, 1.0 / low)
        return np.where(points > 0, low * values * (1.0 + _ROUNDING), 0.0)


def _least(curves: tuple[Curve, ...], k: FloatArray) -> FloatArray:
    return np.min([curve.delta(k) for curve in curves], axis=0)


def levels_for_hockey_sticks(prices: Prices, points: FloatArray) -> LevelDistribution:
    """Upper measure for the remove direction on increasing points, the first of which is 0."""
    values = prices.hockey_sticks(points)
    beyond, values[-1] = float(values[-1]), 0.0
    values *= 1.0 + _ROUNDING
    widths = np.diff(points)
    slopes = np.clip(_slopes(values, widths), -1.0, 0.0)
    masses = np.diff(slopes, prepend=-1.0, append=0.0)
    wanted = sums_from(-slopes * widths)
    got = sums_from(sums_from(masses)[1:] * widths)
    return LevelDistribution(points, masses, _excess(masses, wanted, got), beyond)


def levels_for_reverse_hockey_sticks(prices: Prices, points: FloatArray) -> LevelDistribution:
    """Upper measure for the add direction on increasing points; ``beyond`` is its mass at 0.

    Where the first point is 0 itself, that mass is among the levels.
    """
    kept = 1 if points[0] > 0 else 0
    points = np.append(np.zeros(kept), points)
    values = prices.reverse_hockey_sticks(points) * (1.0 + _ROUNDING)
    widths = np.diff(points)
    slopes = np.clip(_slopes(values, widths), 0.0, 1.0)
    masses = np.diff(slopes, prepend=0.0, append=1.0)
    wanted = np.cumsum(slopes * widths)
    got = np.cumsum(np.cumsum(masses)[:-1] * widths)
    excess = _excess(masses, wanted, got)
    beyond = float(masses[0]) * excess if kept else 0.0
    return LevelDistribution(points[kept:], masses[kept:], excess, beyond)


def _excess(masses: FloatArray, wanted: FloatArray, got: FloatArray) -> float:
    """Least factor that lifts the mass to 1 and every price of the masses to the polygon's."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(wanted > 0, wanted / got, 1.0)
    least = np.max([1.0, 1.0 / float(masses.sum()), float(ratios.max())])  # keeps a NaN
    excess = float(least) * (1.0 + 4 * _ROUNDING)
    if not excess < 1.0 + _WORST_EXCESS:
        raise NumericalError("a likelihood ratio cannot be spread onto so few levels")
    return excess


def sums_from(values: FloatArray) -> FloatArray:
    """Sums of the values from each index on, shape of ``values``."""
    return np.cumsum(values[::-1])[::-1]


def _slopes(values: FloatArray, widths: FloatArray) -> FloatArray:
    """Slopes of the greatest convex minorant: a true price is convex and below the values."""
    if not np.all(widths > 0):
        raise NumericalError("levels of the likelihood ratio fall together")
    return convex_slopes(np.diff(values) / widths, widths)
