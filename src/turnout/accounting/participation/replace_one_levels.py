"""Bounds on the excess E[(Y_1 + … + Y_t − c₀)₊]/t on unequal levels, for little noise.

`levels_excess` bounds this excess from either side. Little noise spreads likelihood ratios over so
many powers of ten that no grid of equal steps covers them all. Here the levels are s·sinh(u) for
equidistant u: they are dense where Y is near 0, and the distance between them grows in proportion
to Y elsewhere. `replace_one` uses these bounds; this module builds on `replace_one_steps`.
docs/design/replacement.md has the proofs ("Unequal levels").

For an upper bound, all values of a distribution are levels; for a lower bound, a distribution has
at most one value between two levels. The sum of two variables is computed from all pairs of their
values. For an upper bound the mass of each pair of values is spread onto the two levels next to the
sum of the pair, with the mean kept; for a lower bound all sums between two levels are replaced by
their mean. t − 1 steps are added by doubling; the last step is added through its hockey stick. All
terms are positive, so round-off is small relative to the result, however small the result is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.convex_order import convex_slopes
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.work import charge
from turnout.accounting.participation.replace_one_steps import Step
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import NumericalError

_REACH = 9.0  # range of the score of a step, in deviations beyond its mean
_LEVELS, _MOST_LEVELS = 400, 1600
_LARGEST_LOG = 600.0
_UNITS_A_PAIR = 4  # of work, of two values that are added
_PLACES = 4.0 * UNIT_ROUNDOFF  # relative rounding of a sum, and of a part of a cell


@dataclass(frozen=True, slots=True, eq=False)
class _Masses:
    """Distribution on increasing values, and a bound on the payoff lost because sums are capped."""

    values: FloatArray
    masses: FloatArray
    lost: float = 0.0


def levels_excess(step: Step, count: int, threshold: float, side: Side, refinement: int) -> float:
    """Bound on the excess E[(Y_1 + … + Y_t − c₀)₊]/t of i.i.d. steps.

    Args:
        step: distribution of Y.
        count: t, at least 2.
        threshold: c₀.
        side: side of the bound.
        refinement: how often the number of levels is doubled; may be below 0.

    Raises:
        NumericalError: the noise is not Gaussian, or a likelihood ratio overflows.
    """
    size = min(int(_LEVELS * 2.0**refinement), _MOST_LEVELS)
    levels = _levels(step, size)
    one = _first(step, levels, side)
    sums = _Spread.of(levels) if side is Side.UPPER else _Means(levels)
    rest = _power(one, count - 1, sums)
    # Add the last step through its hockey stick, with thresholds rounded to the side of the bound.
    at = threshold - rest.values
    at = at + (-1.0 if side is Side.UPPER else 1.0) * _PLACES * (np.abs(rest.values) + threshold)
    rounding = count * UNIT_ROUNDOFF * (2.0 * size**2 + 64.0)
    if side is Side.UPPER:
        value = float(rest.masses @ step.upper(at)) + rest.lost
        return value * math.exp(rounding) / count
    prices = np.maximum(step.tangent(at)[0], 0.0)
    return float(rest.masses @ prices) * math.exp(-rounding) / count


def _levels(step: Step, size: int) -> FloatArray:
    """Values of Y = 2√K·e^{−μ²/2}·sinh(μz − ½ln K) at equidistant normal scores z."""
    pair = getattr(step, "pair", None)
    if not isinstance(pair, GaussianPair):
        raise NumericalError("a bound on unequal levels is known for Gaussian noise only")
    k, mu = 1.0 - step.mean, pair.mu
    reach = mu * (_REACH + mu)
    if reach + 0.5 * math.log(k) > _LARGEST_LOG:
        raise NumericalError("the likelihood ratios of one step exceed the range of float64")
    u = np.linspace(-reach, reach, size) - 0.5 * math.log(k)
    return 2.0 * math.sqrt(k) * math.exp(-0.5 * mu * mu) * np.sinh(u)


def _first(step: Step, levels: FloatArray, side: Side) -> _Masses:
    """Distribution on the levels, above or below that of Y in increasing convex order."""
    # Upper: the chords of the hockey stick; the masses are differences of slopes.
    gaps = np.diff(levels)
    if side is Side.UPPER:
        prices = step.upper(levels)
        lost = float(prices[-1])
        slopes = np.clip(convex_slopes(np.diff(prices) / gaps, gaps), -1.0, 0.0)
        return _Masses(levels, np.diff(slopes, prepend=-1.0, append=0.0), lost)
    # Lower: lines that touch the hockey stick in the middle of each cell, or at the end of the cell
    # where they are steep.
    middles = 0.5 * (levels[1:] + levels[:-1])
    values, slopes = step.tangent(middles)
    steep = np.flatnonzero(values + 0.5 * slopes * gaps < 0.5 * np.append(values[1:], 0.0))
    at_end, slopes[steep] = step.tangent(levels[steep + 1])
    values[steep] = at_end - 0.5 * slopes[steep] * gaps[steep]
    left, right = values - 0.5 * slopes * gaps, values + 0.5 * slopes * gaps
    polygon = np.concatenate([left[:1], np.minimum(right[:-1], left[1:]), right[-1:]])
    polygon[-1] = 0.0
    negative = np.flatnonzero(polygon < 0)
    if negative.size:
        polygon[max(negative[0] - 1, 0) :] = 0.0
    slopes = np.clip(convex_slopes(np.diff(polygon) / gaps, gaps), -1.0, 0.0)
    # Mass below the lowest level is left out, which only lowers the bound.
    masses = np.diff(slopes, prepend=slopes[0], append=0.0)
    return _Masses(levels, masses * (1.0 - 16.0 * UNIT_ROUNDOFF))


def _power(one: _Masses, count: int, sums: _Spread | _Means) -> _Masses:
    """Distribution of a sum of ``count`` ≥ 1 steps, by doubling."""
    total: _Masses | None = None
    while True:
        if count & 1:
            total = one if total is None else sums.of_two(total, one)
        count >>= 1
        if count == 0:
            assert total is not None
            return total
        one = sums.of_two(one, one)


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """All sums of two levels; the mass of each sum is split between the two levels next to the sum.

    Attributes:
        levels: increasing values, shape (n,).
        below: index of the level below each sum, shape (n²,).
        part: part of each sum's mass that moves to the level above the sum, shape (n²,).
        beyond: amount by which each sum exceeds the highest level, at least 0, shape (n²,).
    """

    levels: FloatArray
    below: IntArray
    part: FloatArray
    beyond: FloatArray

    @classmethod
    def of(cls, levels: FloatArray) -> _Spread:
        """Sums of all pairs of levels."""
        charge(_UNITS_A_PAIR * 4 * levels.size**2)
        sums = np.add.outer(levels, levels)
        sums += _PLACES * np.add.outer(np.abs(levels), np.abs(levels))
        below = np.searchsorted(levels, sums, side="right") - 1
        below = np.clip(below, 0, levels.size - 2).astype(np.int64)
        part = (sums - levels[below]) / np.diff(levels)[below]
        part = np.clip(part + _PLACES, 0.0, 1.0)
        return cls(levels, below.ravel(), part.ravel(), np.maximum(sums - levels[-1], 0.0).ravel())

    def of_two(self, first: _Masses, second: _Masses) -> _Masses:
        """Distribution above that of the sum of two independent variables, in convex order."""
        charge(_UNITS_A_PAIR * self.below.size)
        masses = np.multiply.outer(first.masses, second.masses).ravel()
        upper = masses * self.part
        size = self.levels.size
        spread = np.bincount(self.below, masses - upper, size).astype(np.float64)
        spread[1:] += np.bincount(self.below, upper, size)[:-1]
        lost = first.lost + second.lost + float(masses @ self.beyond)
        return _Masses(self.levels, spread, lost)


@dataclass(frozen=True, slots=True, eq=False)
class _Means:
    """All sums of two values; the sums between two neighbouring levels become their mean."""

    levels: FloatArray

    def of_two(self, first: _Masses, second: _Masses) -> _Masses:
        """Distribution below that of the sum of two independent variables, in convex order."""
        charge(_UNITS_A_PAIR * 4 * first.values.size * second.values.size)
        sums = np.add.outer(first.values, second.values).ravel()
        sizes = np.add.outer(np.abs(first.values), np.abs(second.values)).ravel()
        masses = np.multiply.outer(first.masses, second.masses).ravel()
        cells = np.searchsorted(self.levels, sums)
        size = self.levels.size + 1
        total = np.bincount(cells, weights=masses, minlength=size).astype(np.float64)
        moments = np.bincount(cells, weights=masses * sums, minlength=size)
        errors = np.bincount(cells, weights=masses * sizes, minlength=size)
        alive = total > 0
        slack = UNIT_ROUNDOFF * (16.0 + 2.0 * sums.size) * errors[alive]
        values = (moments[alive] - slack) / total[alive]
        return _Masses(values, total[alive])
