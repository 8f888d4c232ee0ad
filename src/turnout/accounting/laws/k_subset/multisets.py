"""The law of S by enumeration, for few levels or few steps.

With Y on m levels S depends only on which levels occur how often: C(n + m − 1, n) multisets.
That is a small number for a law on few atoms, where it is exact (a pure ε₀ randomizer has two:
a binomial law), and for up to four steps, where several dozen levels fit: the spread of Y bounds
δ from above, and the conditional means of bins (what an adversary sees who rounds) from below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.curves import Direction, Side, running_sums
from turnout.accounting.divergence.multinomial import AtomicPair
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, Pair
from turnout.accounting.laws.k_subset.levels import (
    Prices,
    levels_for_hockey_sticks,
    levels_for_reverse_hockey_sticks,
)
from turnout.accounting.laws.k_subset.statistic import bin_masses, largest_ratio
from turnout.accounting.laws.k_subset.task import Task
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_MOST_STATES = 250_000  # at refinement 0
_FEWEST_LEVELS = 30
_LOW_MASS = {Direction.REMOVE: 0.1, Direction.ADD: 1e-4}  # Q below the lowest level but 0
_HIGH_MASS = 1e-4  # Q above the highest level of reverse hockey sticks
_WORST_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class MultisetCurve:
    """δ(K) of a law of S on finitely many values.

    Attributes:
        side: on which side rounding is put.
        ratios: values of S, increasing.
        absent: Q(S ≥ value) (remove) or Q(S < value) (add), one more for none at the end.
        present: the same under P.
        rounding: relative error of each of these.
        beyond: what the cap of the levels costs.
    """

    direction: Direction
    side: Side
    ratios: FloatArray
    absent: FloatArray
    present: FloatArray
    rounding: float
    beyond: float

    @classmethod
    def of(cls, task: Task, side: Side, law: _RatioLaw) -> MultisetCurve:
        """Sums of a law, from the end that matters."""
        order = np.argsort(law.ratios, kind="stable")
        ratios, absent = law.ratios[order], law.masses[order]
        return cls(
            direction=task.direction,
            side=side,
            ratios=ratios,
            absent=running_sums(absent, task.direction),
            present=running_sums(absent * ratios, task.direction),
            rounding=law.rounding + (ratios.size + 8) * UNIT_ROUNDOFF,
            beyond=law.beyond if task.direction is Direction.REMOVE else 0.0,
        )

    def _at(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        threshold = np.asarray(k, dtype=float)
        if self.direction is Direction.REMOVE:
            index = np.searchsorted(self.ratios, threshold, side="right")
            return self.present[index], self.absent[index]
        index = np.searchsorted(self.ratios, 1.0 / threshold, side="left")
        return self.absent[index], self.present[index]

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, rounded to its side."""
        gain, loss = self._at(k)
        error = self.rounding * (gain + k * loss + self.beyond)
        moved = error if self.side is Side.UPPER else -error
        return np.clip(gain - k * loss + self.beyond + moved, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        return -self._at(k)[1]


@dataclass(frozen=True, slots=True, eq=False)
class _RatioLaw:
    """Values of S, masses under Q, relative error of both, and what a cap costs."""

    ratios: FloatArray
    masses: FloatArray
    rounding: float
    beyond: float


def exact_law(pair: Pair, window: int) -> bool:
    """Whether a pair's atoms are few enough to enumerate a window."""
    if not isinstance(pair, AtomicPair):
        return False
    return math.comb(window + pair.atoms[0].size - 1, window) <= _MOST_STATES


def atomic_curve(task: Task, pair: AtomicPair, side: Side) -> MultisetCurve:
    """The exact curve of a pair on few atoms, but for rounding."""
    ratios, masses = pair.atoms
    return MultisetCurve.of(task, side, _law(ratios, masses, task, 0.0))


def multiset_curve(task: Task, side: Side, refinement: int) -> MultisetCurve:
    """A curve from above or below, by levels of the ratio."""
    count = levels_that_fit(task.window, refinement)
    if count < _FEWEST_LEVELS:
        raise NumericalError("too many steps to enumerate")
    points = _points(task, count)
    if side is Side.LOWER:
        low, high = zip(
            bin_masses(task.pair.q_below(points), task.pair.q_above(points)),
            bin_masses(task.pair.p_below(points), task.pair.p_above(points)),
            strict=True,
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            rounding = max(float(np.max(h / lo)) - 1.0 for lo, h in zip(low, high, strict=True))
        if not rounding < _WORST_ROUNDING:
            raise NumericalError("bins of the likelihood ratio are too thin")
        absent, present = low
        law = _law(present / absent, absent, task, 0.0, 4 * task.window * rounding)
        return MultisetCurve.of(task, side, law)
    prices = Prices.of(task.pair, 1, task.delta)
    if task.direction is Direction.REMOVE:
        levels = levels_for_hockey_sticks(prices, np.append(0.0, points))
        values, masses, beyond = levels.levels, levels.masses, task.picks * levels.beyond
    else:
        levels = levels_for_reverse_hockey_sticks(prices, points)
        values, masses = np.append(0.0, points), np.append(levels.beyond, levels.masses)
        beyond = 0.0
    excess = math.expm1(task.window * math.log(levels.excess))
    return MultisetCurve.of(task, side, _law(values, masses, task, beyond, excess))


def levels_that_fit(window: int, refinement: int) -> int:
    """The number of levels that a window's enumeration can afford."""
    count = 2
    while math.comb(window + count, window) <= _MOST_STATES << (2 * refinement):
        count += 1
    return count


def _points(task: Task, count: int) -> FloatArray:
    """Levels but 0, in geometric progression over where the law matters."""
    low = _quantile(task.pair, _LOW_MASS[task.direction])
    if task.direction is Direction.REMOVE:
        high = largest_ratio(task.pair, 1e-3 * task.delta / task.picks)
    else:
        high = _quantile(task.pair, 1.0 - _HIGH_MASS)
    return np.geomspace(low, max(high, 1.01 * low), count - 1)


def _quantile(pair: Pair, mass: float) -> float:
    def reached(log_ratio: float) -> bool:
        return not float(pair.q_below(np.array(math.exp(log_ratio)))) < mass

    return math.exp(bisected(reached, -690.0, 690.0, halvings=50).holding)


def _law(
    levels: FloatArray, masses: FloatArray, task: Task, beyond: float, rounding: float = 0.0
) -> _RatioLaw:
    """All multisets of levels, step by step, the levels of each in increasing order."""
    kept = masses > 0
    levels, masses = levels[kept], masses[kept]
    last = np.arange(levels.size)
    runs, chances = np.ones(levels.size), masses.copy()
    sums = np.zeros((task.picks + 1, levels.size))
    sums[0], sums[1] = 1.0, levels
    for step in range(2, task.window + 1):
        choices = levels.size - last
        parents = np.repeat(np.arange(last.size), choices)
        added = np.arange(parents.size) - (np.cumsum(choices) - choices)[parents] + last[parents]
        runs = np.where(added == last[parents], runs[parents] + 1.0, 1.0)
        chances = chances[parents] * masses[added] * step / runs
        sums = sums[:, parents]
        sums[1:] += levels[added] * sums[:-1]
        last = added
    error = 8.0 * task.window * UNIT_ROUNDOFF
    ratios = sums[-1] / math.comb(task.window, task.picks)
    return _RatioLaw(ratios, chances, rounding + 2 * error, beyond)
