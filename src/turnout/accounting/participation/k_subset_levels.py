"""Problem of a k-subset, and replacement of a likelihood ratio by one with few values.

`SubsetProblem` is the problem of bounding δ of a k-subset of t steps, in one direction, near one δ.
`RatioBounds` has upper bounds on the hockey sticks of the mean of several ratios;
`levels_for_hockey_sticks` and `levels_for_reverse_hockey_sticks` return a `LevelDistribution` that
is above that mean in convex order. `valley` searches for the best parameter of a bound. The other
modules on k-subsets build on this one.

Notation: X is the likelihood ratio dP/dQ of one step, Y the mean of b independent X's.

A convex polygon through upper bounds on the hockey sticks of Y at some points is the hockey stick
of a distribution on those points that is larger than Y in convex order. The masses of that
distribution are second differences of the polygon, and rounding can leave the hockey sticks of
these masses a little below the polygon. So the hockey sticks are computed again as sums of the
masses, and ``excess`` is the factor by which the masses must be raised to reach the polygon. The
raised measure has more mass and larger hockey sticks than Y, so it bounds the expectation of every
convex, monotone and non-negative function from above.
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
    """Problem of bounding δ(K) of a uniform k-subset of t steps, sharply near one δ.

    Attributes:
        pair: outputs of one step with the client's message, and without it.
        window: t, steps.
        picks: k, the largest number of steps in which the client takes part.
        direction: direction of the divergence.
        delta: δ near which bounds should be sharp, in (0, 1).
        chances: probabilities of j = 0 … k picks, if the number of picks is random; else empty.
    """

    pair: Pair
    window: int
    picks: int
    direction: Direction
    delta: float
    chances: tuple[float, ...] = ()

    @property
    def possible(self) -> list[tuple[int, float]]:
        """Possible numbers of picks, each with its probability."""
        if not self.chances:
            return [(self.picks, 1.0)]
        return [(picks, chance) for picks, chance in enumerate(self.chances) if chance > 0]

    @property
    def mean_picks(self) -> float:
        """Expected number of picks."""
        return sum(picks * chance for picks, chance in self.possible)


_MOST_MOVES = 16


def valley(value: Callable[[float], float], start: float, factor: float) -> float:
    """Minimum point of a function with one local minimum, searched on the grid start·factorⁿ.

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
_LARGEST_HINT, _HINTS_APART = 0.1, 1e3  # δ's at which the curves of a mean are sharp


@dataclass(frozen=True, slots=True, eq=False)
class LevelDistribution:
    """Measure on few values of the ratio Y that is above Y ∧ cap in increasing convex order.

    Attributes:
        levels: values of Y, the last of which is the cap, shape (n,).
        masses: masses of the levels under Q, same shape.
        excess: factor ≥ 1; the masses times this factor form a measure above Y ∧ cap.
        beyond: upper bound on what the levels leave out. For hockey sticks this is E_Q[(Y − cap)₊];
            for reverse hockey sticks it is the mass at 0, since values above the cap do not
            contribute.
    """

    levels: FloatArray
    masses: FloatArray
    excess: float
    beyond: float


@dataclass(frozen=True, slots=True, eq=False)
class RatioBounds:
    """Upper bounds on hockey sticks of Y, where Y is the mean of b independent likelihood ratios.

    Both E[(Y − k)₊] and E[(k − Y)₊] are bounded.

    Attributes:
        remove: upper curves of one check-in in b steps, each sharp near a different δ.
        add: upper curves of the same check-in in the add direction, each sharp near a different δ.
    """

    remove: tuple[Curve, ...]
    add: tuple[Curve, ...]

    @classmethod
    def of(cls, pair: Pair, steps: int, delta: float) -> RatioBounds:
        """Bounds that are sharp from δ = ``delta`` to about 1, and exact for one step."""
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


def levels_for_hockey_sticks(ratio_bounds: RatioBounds, points: FloatArray) -> LevelDistribution:
    """Measure on given points that is above Y ∧ cap in increasing convex order, for *remove*.

    Args:
        ratio_bounds: upper bounds on the hockey sticks of Y.
        points: increasing levels, shape (n,), the first of which is 0 and the last the cap.

    Raises:
        NumericalError: levels coincide, or the range of levels is too wide.
    """
    # Slopes of the convex polygon through the upper bounds; their differences are the masses.
    values = ratio_bounds.hockey_sticks(points)
    beyond, values[-1] = float(values[-1]), 0.0
    values *= 1.0 + _ROUNDING
    widths = np.diff(points)
    slopes = np.clip(_slopes(values, widths), -1.0, 0.0)
    masses = np.diff(slopes, prepend=-1.0, append=0.0)
    wanted = sums_from(-slopes * widths)
    got = sums_from(sums_from(masses)[1:] * widths)
    return LevelDistribution(points, masses, _excess(masses, wanted, got), beyond)


def levels_for_reverse_hockey_sticks(
    ratio_bounds: RatioBounds, points: FloatArray
) -> LevelDistribution:
    """Measure on given points that is above Y ∧ cap in increasing convex order, for *add*.

    ``beyond`` is the mass at 0. If the first point is 0, that mass is one of the masses of the
    levels.

    Args:
        ratio_bounds: upper bounds on the reverse hockey sticks of Y.
        points: increasing levels, shape (n,), the last of which is the cap.

    Raises:
        NumericalError: levels coincide, or the range of levels is too wide.
    """
    kept = 1 if points[0] > 0 else 0
    points = np.append(np.zeros(kept), points)
    values = ratio_bounds.reverse_hockey_sticks(points) * (1.0 + _ROUNDING)
    widths = np.diff(points)
    slopes = np.clip(_slopes(values, widths), 0.0, 1.0)
    masses = np.diff(slopes, prepend=0.0, append=1.0)
    wanted = np.cumsum(slopes * widths)
    got = np.cumsum(np.cumsum(masses)[:-1] * widths)
    excess = _excess(masses, wanted, got)
    beyond = float(masses[0]) * excess if kept else 0.0
    return LevelDistribution(points[kept:], masses[kept:], excess, beyond)


def _excess(masses: FloatArray, wanted: FloatArray, got: FloatArray) -> float:
    """Least factor on masses that raises their sum to 1 and hockey sticks ``got`` to ``wanted``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(wanted > 0, wanted / got, 1.0)
    least = np.max([1.0, 1.0 / float(masses.sum()), float(ratios.max())])  # keeps a NaN
    excess = float(least) * (1.0 + 4 * _ROUNDING)
    if not excess < 1.0 + _WORST_EXCESS:
        raise NumericalError("the likelihood ratio has too wide a range for a grid of levels")
    return excess


def sums_from(values: FloatArray) -> FloatArray:
    """Sum of the values from each index to the end, shape of ``values``.

    Args:
        values: numbers, shape (n,).
    """
    return np.cumsum(values[::-1])[::-1]


def _slopes(values: FloatArray, widths: FloatArray) -> FloatArray:
    """Slopes of the greatest convex function below a polygon.

    This function is still an upper bound on the true hockey stick, which is convex.
    """
    if not np.all(widths > 0):
        raise NumericalError("two levels of the likelihood ratio are equal after rounding")
    return convex_slopes(np.diff(values) / widths, widths)
