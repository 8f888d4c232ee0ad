"""Upper bounds: the worst S that agrees with its moments in every cell of one statistic.

The ratio of n groups of b steps each (n·b ≤ t), S = e_k(Y_1 … Y_n)/C(n, k) with Y the mean of b
X's, is above the ratio of k of t in convex order: cut the steps into groups at random, let the
client come in k different groups, once in each. n = k is the block bound, n = t exact. Then each Y
is spread onto levels x_j = (e^{jh} − 1)/r, T is the sum of the indices, and A = h·T = Σ ln(1 + rY)
tells nearly everything about S: the larger r, the more A looks at a product, and the smaller,
at a sum. What it does not tell is bounded by the payoff's parabolas (`payoffs`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from turnout.accounting.divergence.curves import Direction
from turnout.accounting.laws.k_subset import moments, payoffs
from turnout.accounting.laws.k_subset.levels import (
    LevelLaw,
    Prices,
    levels_for_hockey_sticks,
    levels_for_reverse_hockey_sticks,
)
from turnout.accounting.laws.k_subset.payoffs import Range
from turnout.accounting.laws.k_subset.task import Task, valley
from turnout.core.bounds import bisected, grown
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_NEGLIGIBLE = 1e-3  # the part of δ that the cap may cost
_TAIL = 1e-4  # the part of δ that the cells left out may cost
_FLOOR = 1e-100  # more than underflow can cost
_FAR = 300.0  # a log-cap for infinity, where underflow costs less than that
_SEARCH_CELLS, _MOST_CELLS = 2_000, 12_000  # while the statistic is chosen; at refinement 0
_ROUGH_LEVELS, _FEWEST_LEVELS = 64, 40  # levels to guess the number of cells with, and at least
_WORK_A_CELL = 25.0  # multiplications that a set of moments may cost, over the cells squared
# Windows of so many steps are not cut into groups, and others into so many.
_FEW_STEPS, _SINGLE_STEPS_A_PICK, _MOST_SINGLE_STEPS = 128, 16, 512
_GROUPS_A_PICK = {Direction.REMOVE: 16, Direction.ADD: 4}
_MOST_PICKS = 100
# Scales r, over k/(n − k), and caps to begin with for reverse hockey sticks.
_REVERSE_STARTS = ((3.3, 4.0), (3.3, 2.0), (1.3, 2.5), (10.0, 7.0), (50.0, 5.0), (400.0, 6.0))
_STEPS = (1.6, 1.25, 1.1)  # factors by which r and cap are moved


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalBound:
    """δ(K) from above in one direction: what cells can be worth, and what was left out.

    Attributes:
        cells: moments of S by cell.
        ends: the largest (remove) or smallest (add) S of each cell.
        factor: what the spread's rounding adds, over all groups.
        tail: at least E[S; left out] (remove) or Q(left out) (add).
        beyond: what the cap costs.
    """

    direction: Direction
    cells: moments.Cells
    ends: FloatArray
    factor: float
    tail: float
    beyond: float

    def delta(self, k: float) -> float:
        """At least δ at one K ≥ 1."""
        if self.direction is Direction.REMOVE:
            inside = payoffs.hockey_stick_bound(self.cells, self.ends, k)
        else:
            inside = k * payoffs.reverse_hockey_stick_bound(self.cells, self.ends, 1.0 / k)
        return min(1.0, self.factor * (inside + self.tail) + self.beyond + _FLOOR)

    def epsilon(self, delta: float) -> float:
        """About the ε at which the bound is δ."""

        def proved(epsilon: float) -> bool:
            return not self.delta(math.exp(epsilon)) > delta

        first = grown(proved, 1.0, 600.0)
        if first is None:
            raise NumericalError(f"delta = {delta:.3g} lies below what can be certified here")
        return bisected(proved, *first, halvings=26).holding


def conditional_bound(task: Task, refinement: int) -> ConditionalBound:
    """The bound of k of t steps; each level of refinement doubles the cells and groups."""
    if task.picks > _MOST_PICKS:
        raise NumericalError(f"more than {_MOST_PICKS} picks are not bounded by their moments")
    workshop = _Workshop.of(task, refinement)
    scale, cap = _best_statistic(workshop)
    return workshop.bound(scale, cap, _MOST_CELLS << refinement)


def grouping(task: Task, refinement: int) -> tuple[int, int]:
    """Groups and steps a group: single steps where there are few, else few steps left out.

    n groups gain all but about k/n of what single steps would gain over the block bound, but
    the means of long groups need fewer levels than single ratios.
    """
    window, picks = task.window, task.picks
    few = max(_FEW_STEPS, min(_SINGLE_STEPS_A_PICK * picks, _MOST_SINGLE_STEPS))
    if window <= few:
        return window, 1
    most = max(_FEW_STEPS // 2, _GROUPS_A_PICK[task.direction] * picks) << refinement
    fewest = -(-window // most)
    steps = max(range(fewest, 2 * fewest + 1), key=lambda b: (window // b * b, -b))
    return window // steps, steps


@dataclass(frozen=True, slots=True, eq=False)
class _Workshop:
    """The parts that all bounds of one task share."""

    task: Task
    groups: int
    prices: Prices
    least: float

    @classmethod
    def of(cls, task: Task, refinement: int) -> _Workshop:
        groups, steps = grouping(task, refinement)
        prices = Prices.of(task.pair, steps, task.delta * _NEGLIGIBLE / task.picks)
        least = _least_level(prices, _TAIL * task.delta / groups)
        return cls(task, groups, prices, 0.0 if task.direction is Direction.REMOVE else least)

    def bound(self, scale: float, cap: float, most_cells: int) -> ConditionalBound:
        """The bound by the statistic with this r, for levels up to a cap."""
        groups, picks = self.groups, self.task.picks
        ranges = Range(scale, self.least, cap)
        law, _, tail, size = self._lattice(ranges, _ROUGH_LEVELS)
        levels = self._levels(size / _ROUGH_LEVELS, most_cells)
        law, step, tail, size = self._lattice(ranges, levels)
        cells = moments.conditional_moments(law.levels, law.masses, groups, picks, size)
        start = groups * ranges.statistic(ranges.least)
        statistic = start + step * np.arange(cells.mass.size)
        left_out, beyond = tail.mass(cells.mass.size), 0.0
        if self.task.direction is Direction.REMOVE:
            ends = payoffs.largest_ratios(statistic, ranges.scale, groups, picks)
            beyond = picks * law.beyond
        else:
            ends = payoffs.smallest_ratios(statistic, ranges, groups, picks)
            left_out += groups * law.beyond
        factor = law.excess**groups * (1.0 + 1e-12)
        return ConditionalBound(self.task.direction, cells, ends, factor, left_out, beyond)

    def _lattice(self, ranges: Range, levels: int) -> tuple[LevelLaw, float, moments.Tail, int]:
        """Levels at equal steps of A: their law, the step, its tail and how many cells matter."""
        start, end = ranges.statistic(ranges.least), ranges.statistic(ranges.most)
        step = (end - start) / levels
        points = ranges.value(start + step * np.arange(levels + 1))
        remove = self.task.direction is Direction.REMOVE
        law = (levels_for_hockey_sticks if remove else levels_for_reverse_hockey_sticks)(
            self.prices, points
        )
        picks = self.task.picks if remove else 0
        tail = moments.Tail.of(points, law.masses, self.groups, picks)
        return law, step, tail, tail.cells(math.log(_TAIL * self.task.delta))

    def _levels(self, cells_a_level: float, most_cells: int) -> int:
        """As many levels as cells and work allow."""
        # log₂ n squarings of all cells, and 3k products of two levels' worth with all cells.
        unit = cells_a_level**2 * (math.log2(self.groups) + 4)
        unit += 6 * self.task.picks * cells_a_level
        work = math.sqrt(_WORK_A_CELL * most_cells**2 / unit)
        return max(_FEWEST_LEVELS, int(min(most_cells / 3, most_cells / cells_a_level, work)))

    def largest_cap(self) -> float:
        """A cap whose hockey stick is a negligible part of δ, over what infinity costs anyway."""

        def price(log_cap: float) -> float:
            return float(self.prices.hockey_sticks(np.array([math.exp(log_cap)]))[0])

        enough = price(_FAR) + _NEGLIGIBLE * self.task.delta / self.task.picks

        def cheap(log_cap: float) -> bool:
            return not price(log_cap) > enough

        first = grown(cheap, 1.0, 200.0)
        if first is None:
            raise NumericalError("the likelihood ratio is too heavy-tailed for this delta")
        return math.exp(bisected(cheap, *first, halvings=12).holding)


def _least_level(prices: Prices, mass: float) -> float:
    """A level such that the spread of what is below it leaves at most this mass at 0."""

    def rare(log_level: float) -> bool:
        level = math.exp(log_level)
        return float(prices.reverse_hockey_sticks(np.array([level]))[0]) <= mass * level

    low = bisected(rare, 0.0, -600.0, halvings=40).holding
    return math.exp(low) if low > -600.0 else 0.0  # the ratio itself is 0 with such a mass


def _best_statistic(workshop: _Workshop) -> tuple[float, float]:
    """About the best r and cap; a hockey stick keeps the largest cap, for it needs its tail."""
    task, largest = workshop.task, workshop.largest_cap()
    base = task.picks / (workshop.groups - task.picks)
    remove = task.direction is Direction.REMOVE
    starts = ((math.exp(-0.7), largest),) if remove else _REVERSE_STARTS

    def attempt(scale: float, cap: float) -> ConditionalBound:
        return workshop.bound(scale, min(cap, largest), _SEARCH_CELLS)

    best, threshold = None, math.inf
    for factor, cap in starts:
        try:
            bound = attempt(base * factor, cap)
            if best is None or bound.delta(threshold) < task.delta:
                best, threshold = (base * factor, cap), math.exp(bound.epsilon(task.delta))
        except NumericalError:
            continue
    if best is None:
        raise NumericalError(f"no statistic bounds delta = {task.delta:.3g}")
    scale, cap = best
    for step in _STEPS:

        def price(scale: float, cap: float, threshold: float = threshold) -> float:
            try:
                return attempt(scale, cap).delta(threshold)
            except NumericalError:
                return math.inf

        scale = valley(partial(price, cap=cap), scale, step)
        if not remove:
            cap = valley(partial(price, scale), cap, step)
        threshold = math.exp(attempt(scale, cap).epsilon(task.delta))
    return scale, min(cap, largest)
