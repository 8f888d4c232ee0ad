"""Upper bounds for k of t steps, from conditional moments of S given a statistic.

`conditional_bound` returns a `ConditionalBound`, an upper bound on δ(K). Outcomes are grouped into
the cells of an additive statistic. `conditional_moments` returns the moments of S in each cell (as
`MomentCells`), `largest_ratios` and `smallest_ratios` bound S in each cell; `hockey_stick_bound`
and `reverse_hockey_stick_bound` bound the payoff of the worst S with given moments and range.
`k_subset` uses the module; it builds on `k_subset_levels` and `power_series`.
docs/design/subsets.md has the proofs.

Notation: X is the likelihood ratio of one step, S the ratio of the window, e_k the k-th elementary
symmetric sum, u the unit round-off.

**Groups.** Take n groups of b steps each (n·b ≤ t), and let Y be the mean of the X's of a group.
The ratio S = e_k(Y_1 … Y_n)/C(n, k) is in convex order above the ratio of a k-subset of t steps:
cut the steps into groups at random, and let the client take part in k different groups, once in
each. n = k gives the block bound; n = t loses nothing.

**Statistic.** Each Y is spread onto levels x_j = (e^{jh} − 1)/r, and T is the sum of the indices j.
The statistic A = h·T = Σ ln(1 + rY) nearly determines S; for large r it orders outcomes like the
product of the Y's, for small r like the sum of the Y's. The remaining uncertainty about S, given A,
is bounded by parabolas above the payoff.

**Moments.** Let each of n i.i.d. variables Y lie on one of J + 1 levels. With φ_a the distribution
of the index weighted by Y^a,

    Σ over cells:  q = φ₀ⁿ,   m₁ = φ₁ᵏ·φ₀ⁿ⁻ᵏ,   m₂ = Σ_j h_j·φ₂ʲ·φ₁^{2(k−j)}·φ₀^{n−2k+j}

are Q(T), E[S; T] and E[S²; T], where products are convolutions: S² is a mean over pairs of
k-subsets, and the two subsets of a pair have j elements in common with the hypergeometric
probability h_j. All terms are positive, so the *relative* error of each cell is a few thousand u,
however small the cell is, and the cells that are kept do not depend on the cells above.

**Payoffs.** The moments give the expectation of a parabola, so a parabola above the payoff on the
whole range of S gives an upper bound:

* (S − K + c)²/(4c) is above (S − K)₊ for every c > 0 (Scarf 1958);
* with S ≤ U also α(S − l)², which meets the payoff at U, where 2(U − K) ≤ U − l;
* with 0 ≤ S ≤ U also the chord S·(U − K)/U;

and the mirror images of these functions for reverse hockey sticks with S ≥ L. c and l are chosen
from the moments; every choice gives a bound. The range of S follows from the statistic: with A = Σ
ln(1 + r·x) given, S is extremal where some x's are at the ends of their range and the others are
equal, because along a pair (v, w) with (1 + rv)(1 + rw) fixed e_k is affine in v + w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import gammaln

from turnout.accounting.divergence.curves import Direction, narrowed
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import remembered
from turnout.accounting.participation.k_subset_levels import (
    LevelDistribution,
    RatioBounds,
    SubsetProblem,
    levels_for_hockey_sticks,
    levels_for_reverse_hockey_sticks,
    valley,
)
from turnout.accounting.participation.power_series import Series
from turnout.core.arrays import BoolArray, FloatArray, IntArray
from turnout.core.bounds import bisected, grown
from turnout.core.errors import NumericalError

_NEGLIGIBLE = 1e-3  # largest part of δ that may be due to the cap
_TAIL = 1e-4  # largest part of δ that may be due to cells that are left out
_FLOOR = 1e-100  # more than underflow can take from a bound
_FAR = 300.0  # ln of a cap that stands for infinity
_SEARCH_CELLS, _MOST_CELLS = 1_000, 12_000  # while the statistic is chosen; at refinement 0
_LEAST_GAIN = 5e-5  # relative reduction of ε for which the cells are doubled
_ROUGH = 1e-5  # relative accuracy of an ε that decides about a search only
_LARGEST_EPSILON = 600.0
_ROUGH_LEVELS = 64  # levels of the first estimate of the number of cells
_FEWEST_LEVELS = 40
_WORK_A_CELL = 25.0  # most multiplications for a set of moments, over the cells squared

# Windows of at most this many steps are not cut into groups: an absolute number, and a number per
# pick with a limit.
_FEW_STEPS, _SINGLE_STEPS_A_PICK, _MOST_SINGLE_STEPS = 128, 16, 512

# Longer windows are cut into this many groups per pick.
_GROUPS_A_PICK = {Direction.REMOVE: 16, Direction.ADD: 4}
_MOST_PICKS = 100

# Where the search for reverse hockey sticks starts: scales r, over k/(n − k), and caps.
_REVERSE_STARTS = ((3.3, 4.0), (3.3, 2.0), (1.3, 2.5), (10.0, 7.0), (50.0, 5.0), (400.0, 6.0))
_STEPS = (1.6, 1.25, 1.1)  # factors by which the scale r and the cap are moved


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalBound:
    """Upper bound on δ(K) in one direction, from moments of S in the cells of a statistic.

    The bound adds up bounds for the cells, and bounds on the parts of δ outside the cells.

    Attributes:
        cells: moments of S by cell.
        ends: bound on the largest (remove) or smallest (add) S of each cell, shape (cells,).
        factor: factor ≥ 1 that covers the rounding errors of the levels' masses in all groups.
        tail: upper bound on E[S; cells left out] (remove) or Q(cells left out) (add).
        beyond: upper bound on the part of δ that is due to ratios above the cap.
        statistic: scale r and cap of the statistic.
    """

    direction: Direction
    cells: MomentCells
    ends: FloatArray
    factor: float
    tail: float
    beyond: float
    statistic: tuple[float, float] = (1.0, 1.0)

    def delta(self, k: float) -> float:
        """Upper bound on δ at one K ≥ 1."""
        if self.direction is Direction.REMOVE:
            inside = hockey_stick_bound(self.cells, self.ends, k)
        else:
            inside = k * reverse_hockey_stick_bound(self.cells, self.ends, 1.0 / k)
        return min(1.0, self.factor * (inside + self.tail) + self.beyond + _FLOOR)

    def epsilon(self, delta: float, near: float = 1e-8) -> float:
        """Least ε found at which the bound is at most δ, to a relative accuracy of ``near``.

        Raises:
            NumericalError: the bound stays above δ for every ε.
        """

        def excess(epsilon: float) -> float:
            return math.log(self.delta(math.exp(epsilon)) / delta)

        # Double ε until the bound is at most δ, then narrow the bracket.
        low, high = (0.0, math.inf), (1.0, excess(1.0))
        while high[1] > 0:
            low, high = high, (2.0 * high[0], excess(2.0 * high[0]))
            if high[0] > _LARGEST_EPSILON:
                raise NumericalError(
                    f"delta = {delta:.3g} is too small: no epsilon can be certified"
                )
        if low[0] == 0.0:
            low = 0.0, excess(0.0)
            if low[1] <= 0:
                return 0.0
        return narrowed(excess, low, high, near)[1]


@remembered
def conditional_bound(task: SubsetProblem, refinement: int) -> ConditionalBound:
    """Upper bound on δ of a k-subset of t steps; each refinement doubles cells and groups.

    If a level has the same groups as the level before, and more cells would hardly change the
    bound, the bound of the level before is returned.

    Raises:
        NumericalError: k is too large, or no statistic gives a bound at this δ.
    """
    if task.picks > _MOST_PICKS:
        raise NumericalError(
            f"picks = {task.picks}: expected at most {_MOST_PICKS} for a bound by moments"
        )
    search = _BoundSearch.of(task, refinement)
    if refinement > 0 and grouping(task, refinement) == grouping(task, refinement - 1):
        last = conditional_bound(task, refinement - 1)
        if _gain(search, last, refinement) < _LEAST_GAIN:
            return last
        return search.bound(*last.statistic, _MOST_CELLS << refinement)
    return search.bound(*_best_statistic(search), _MOST_CELLS << refinement)


def _gain(search: _BoundSearch, last: ConditionalBound, refinement: int) -> float:
    """Estimate of the relative reduction of ε if the cells of the last bound are doubled.

    The error of a bound is about proportional to the inverse square of the number of its cells.
    """
    delta, cells = search.task.delta, _MOST_CELLS << (refinement - 1)
    fine = last.epsilon(delta, _ROUGH)
    coarse = search.bound(*last.statistic, _SEARCH_CELLS).epsilon(delta, _ROUGH)
    return 0.75 * (coarse / fine - 1.0) / ((cells / _SEARCH_CELLS) ** 2 - 1.0)


def grouping(task: SubsetProblem, refinement: int) -> tuple[int, int]:
    """Number n of groups, and number b of steps in a group.

    For short windows b is 1; for longer windows n·b is close to t.

    Single steps give the largest gain over the block bound; n groups lose only about the fraction
    k/n of this gain, and the mean ratios of long groups need fewer levels.
    """
    window, picks = task.window, task.picks
    few = max(_FEW_STEPS, min(_SINGLE_STEPS_A_PICK * picks, _MOST_SINGLE_STEPS))
    if window <= few:
        return window, 1
    most = max(_FEW_STEPS // 2, _GROUPS_A_PICK[task.direction] * picks) << refinement
    fewest = -(-window // most)
    steps = max(range(fewest, 2 * fewest + 1), key=lambda b: (window // b * b, -b))
    return window // steps, steps


def _best_statistic(search: _BoundSearch) -> tuple[float, float]:
    """Scale r and cap of the statistic for which the bound is nearly the smallest.

    For hockey sticks only r is searched; the cap is the largest, since the whole upper tail counts.
    """
    # Starting values of r and the cap.
    task, largest = search.task, search.largest_cap()
    base = task.picks / (search.groups - task.picks)
    remove = task.direction is Direction.REMOVE
    starts = ((math.exp(-0.7), largest),) if remove else _REVERSE_STARTS

    def attempt(scale: float, cap: float) -> ConditionalBound:
        return search.bound(scale, min(cap, largest), _SEARCH_CELLS)

    # Take the best start: each is compared with the best one before it, at that one's K.
    best, threshold = None, math.inf
    for factor, cap in starts:
        try:
            bound = attempt(base * factor, cap)
            if best is None or bound.delta(threshold) < task.delta:
                best, threshold = (base * factor, cap), math.exp(bound.epsilon(task.delta, _ROUGH))
        except NumericalError:
            continue
    if best is None:
        raise NumericalError(f"delta = {task.delta:.3g}: no statistic gives a certified bound")
    # Move r, then the cap, to their local minima, by smaller and smaller factors.
    scale, cap = best
    for step in _STEPS:

        def delta_at(scale: float, cap: float, threshold: float = threshold) -> float:
            try:
                return attempt(scale, cap).delta(threshold)
            except NumericalError:
                return math.inf

        scale = valley(partial(delta_at, cap=cap), scale, step)
        if not remove:
            cap = valley(partial(delta_at, scale), cap, step)
        threshold = math.exp(attempt(scale, cap).epsilon(task.delta, _ROUGH))
    return scale, min(cap, largest)


@dataclass(frozen=True, slots=True, eq=False)
class _BoundSearch:
    """Data that all bounds of one k-subset problem share.

    Attributes:
        task: the problem.
        groups: n, the number of groups of steps.
        ratio_bounds: upper bounds on the hockey sticks of a group's mean ratio Y.
        least: lowest positive level for reverse hockey sticks, 0 for hockey sticks.
    """

    task: SubsetProblem
    groups: int
    ratio_bounds: RatioBounds
    least: float

    @classmethod
    def of(cls, task: SubsetProblem, refinement: int) -> _BoundSearch:
        groups, steps = grouping(task, refinement)
        ratio_bounds = RatioBounds.of(task.pair, steps, task.delta * _NEGLIGIBLE / task.picks)
        least = _least_level(ratio_bounds, _TAIL * task.delta / groups)
        return cls(task, groups, ratio_bounds, 0.0 if task.direction is Direction.REMOVE else least)

    def bound(self, scale: float, cap: float, most_cells: int) -> ConditionalBound:
        """Upper bound from the statistic with scale r, for levels up to a cap."""
        # Choose the number of levels from the number of cells that a rough lattice needs.
        groups, picks = self.groups, self.task.picks
        ranges = StatisticRange(scale, self.least, cap)
        distribution, _, tail, size = self._lattice(ranges, _ROUGH_LEVELS)
        levels = self._levels(size / _ROUGH_LEVELS, most_cells)
        distribution, step, tail, size = self._lattice(ranges, levels)
        # Moments of S in each cell, and the value of A there.
        cells = conditional_moments(distribution.levels, distribution.masses, groups, picks, size)
        start = groups * ranges.statistic(ranges.least)
        statistic = start + step * np.arange(cells.mass.size, dtype=np.float64)
        # Range of S in each cell, and bounds on what the cap, level 0 and the last cell leave out.
        left_out, beyond = tail.mass(cells.mass.size), 0.0
        if self.task.direction is Direction.REMOVE:
            ends = largest_ratios(statistic, ranges.scale, groups, picks)
            beyond = picks * distribution.beyond
        else:
            ends = smallest_ratios(statistic, ranges, groups, picks)
            left_out += groups * distribution.beyond
        factor = distribution.excess**groups * (1.0 + 1e-12)
        used = scale, cap
        return ConditionalBound(self.task.direction, cells, ends, factor, left_out, beyond, used)

    def _lattice(
        self, ranges: StatisticRange, levels: int
    ) -> tuple[LevelDistribution, float, ChernoffTail, int]:
        """Levels with equal steps of the statistic: distribution, step, tail, number of cells."""
        start, end = ranges.statistic(ranges.least), ranges.statistic(ranges.most)
        step = (end - start) / levels
        points = ranges.value(start + step * np.arange(levels + 1, dtype=np.float64))
        remove = self.task.direction is Direction.REMOVE
        distribution = (levels_for_hockey_sticks if remove else levels_for_reverse_hockey_sticks)(
            self.ratio_bounds, points
        )
        picks = self.task.picks if remove else 0
        tail = ChernoffTail.of(points, distribution.masses, self.groups, picks)
        return distribution, step, tail, tail.cells(math.log(_TAIL * self.task.delta))

    def _levels(self, cells_a_level: float, most_cells: int) -> int:
        """Largest number of levels that respects the limits on the number of cells and on work."""
        # log₂ n squarings of all cells, and 3k products of all cells with those of two levels.
        unit = cells_a_level**2 * (math.log2(self.groups) + 4)
        unit += 6 * self.task.picks * cells_a_level
        work = math.sqrt(_WORK_A_CELL * most_cells**2 / unit)
        return max(_FEWEST_LEVELS, int(min(most_cells / 3, most_cells / cells_a_level, work)))

    def largest_cap(self) -> float:
        """Cap above which finite ratios contribute a negligible part of δ."""

        def cost(log_cap: float) -> float:
            return float(self.ratio_bounds.hockey_sticks(np.array([math.exp(log_cap)]))[0])

        enough = cost(_FAR) + _NEGLIGIBLE * self.task.delta / self.task.picks

        def cheap(log_cap: float) -> bool:
            return not cost(log_cap) > enough

        first = grown(cheap, 1.0, 200.0)
        if first is None:
            raise NumericalError(
                f"delta = {self.task.delta:.3g} is too small: "
                "the likelihood ratio has too heavy a tail"
            )
        return math.exp(bisected(cheap, *first, halvings=12).holding)


def _least_level(ratio_bounds: RatioBounds, mass: float) -> float:
    """Largest level found for which spreading all smaller ratios puts at most ``mass`` at 0."""

    def rare(log_level: float) -> bool:
        level = math.exp(log_level)
        return float(ratio_bounds.reverse_hockey_sticks(np.array([level]))[0]) <= mass * level

    low = bisected(rare, 0.0, -600.0, halvings=40).holding
    return math.exp(low) if low > -600.0 else 0.0  # the ratio itself is 0 with such a mass


_LARGEST = 1e100  # largest second moment for which underflow elsewhere is negligible


@dataclass(frozen=True, slots=True, eq=False)
class MomentCells:
    """Moments of S, the likelihood ratio of a window, in the cells T = 0, 1, ….

    T is the sum of the level indices of the steps' ratios (see the header of this module), and all
    expectations are under Q, the distribution without the client.

    Attributes:
        mass: Q(T = t) of each cell t, shape (cells,).
        first: E[S; T = t], shape (cells,).
        second: E[S²; T = t], shape (cells,).
        rounding: bound on the relative errors of all these numbers.
    """

    mass: FloatArray
    first: FloatArray
    second: FloatArray
    rounding: float

    def only(self, alive: BoolArray) -> MomentCells:
        """Moments of the cells that a boolean mask of shape (cells,) selects."""
        return MomentCells(self.mass[alive], self.first[alive], self.second[alive], self.rounding)


def conditional_moments(
    levels: FloatArray, masses: FloatArray, groups: int, picks: int, size: int
) -> MomentCells:
    """Moments of S in the cells T < ``size``, from the distribution of Y on its levels.

    Args:
        levels: values of Y, increasing, shape (J + 1,).
        masses: masses of the levels under Q, same shape.
        groups: n, number of independent variables Y.
        picks: k, at most n.
        size: number of cells.

    Raises:
        NumericalError: a second moment of S exceeds 10¹⁰⁰.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # φ₀, φ₁ and φ₂ as power series.
        plain = Series(masses, 0.0)
        biased = Series(masses * levels, 2 * UNIT_ROUNDOFF)
        twice = Series(masses * levels * levels, 4 * UNIT_ROUNDOFF)
        # Second moment: two subsets share at least s = max(0, 2k − n) elements.
        shared = max(0, 2 * picks - groups)
        rest = plain.power(groups - 2 * picks + shared, size)
        absent = rest.times(plain.power(picks - shared, size), size)
        common = twice.power(shared, size).times(rest, size)
        both, one_each = twice.times(plain, size), biased.times(biased, size)
        second = common.times(_pairs(both, one_each, groups, picks, size), size)
        # First moment and mass from the same long power: n − k = (n − 2k + s) + (k − s).
        first = absent.times(biased.power(picks, size), size)
        mass = absent.times(plain.power(picks, size), size)
    largest = float(np.max(second.values, initial=0.0))
    if not largest < _LARGEST:
        raise NumericalError(f"the second moment of the likelihood ratio exceeds {_LARGEST:g}")
    # All three series are cut off at the shortest.
    kept = min(part.values.size for part in (mass, first, second))
    rounding = max(mass.rounding, first.rounding, second.rounding)
    return MomentCells(mass.values[:kept], first.values[:kept], second.values[:kept], rounding)


def _pairs(both: Series, one_each: Series, groups: int, picks: int, size: int) -> Series:
    """Sum over j of h_j·(φ₂φ₀)^{j−s}·(φ₁²)^{k−j}, by Horner's rule from j = k down.

    Here s = max(0, 2k − n); the module header defines φ and h_j.
    """
    chances = overlap_chances(groups, picks)
    total, power = Series(np.array([chances[picks]]), UNIT_ROUNDOFF), Series(np.ones(1), 0.0)
    for shared in range(picks - 1, max(0, 2 * picks - groups) - 1, -1):
        power = power.times(one_each, size)
        total = total.times(both, size).plus(chances[shared], power)
    return total


def overlap_chances(groups: int, picks: int) -> list[float]:
    """Probabilities that two uniform k-subsets of n elements share j elements, for j = 0 … k.

    Args:
        groups: n, number of elements.
        picks: k, at most n.
    """
    total = math.comb(groups, picks)
    return [
        math.comb(picks, j) * math.comb(groups - picks, picks - j) / total for j in range(picks + 1)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class ChernoffTail:
    """Chernoff upper bounds on E[S; T ≥ cell] (for k picks) or Q(T ≥ cell) (for no picks).

    Attributes:
        most: number of the largest cell.
        exponents: some values of s > 0, shape (n,).
        logs: upper bounds on ln E[S·e^{sT}] (k picks) or ln E[e^{sT}] (no picks), same shape.
    """

    most: int
    exponents: FloatArray
    logs: FloatArray

    @classmethod
    def of(cls, levels: FloatArray, masses: FloatArray, groups: int, picks: int) -> ChernoffTail:
        """Chernoff bounds from masses, (L,), of a group's mean ratio Y at the levels, (L,)."""
        s = np.geomspace(0.05, 60.0, 60) / levels.size
        weights = np.exp(np.multiply.outer(s, np.arange(levels.size)))
        logs = (groups - picks) * np.log(weights @ masses)
        if picks:
            logs = logs + picks * np.log(weights @ (masses * levels))
        return cls(groups * (levels.size - 1), s, logs * (1.0 + 1e-9) + 1e-9)

    def cells(self, log_mass: float) -> int:
        """Number of cells beyond which the mass is at most e^log_mass."""
        enough = float(np.min((self.logs - log_mass) / self.exponents))
        return min(self.most, math.ceil(enough)) + 1

    def mass(self, cell: int) -> float:
        """Upper bound on the mass of ``cell`` and of all cells above it."""
        if cell > self.most:
            return 0.0
        return math.exp(min(0.0, float(np.min(self.logs - self.exponents * cell))) + 1e-9)


_MARGIN = 1e-9  # relative margin, far above the rounding errors of ranges
_COARSE, _FINE = 32, 400  # points at which the smallest ratio is computed
_WORK = 1_500_000  # largest number of these points times n·k
_LARGEST_THRESHOLD = 1e150


def hockey_stick_bound(cells: MomentCells, largest: FloatArray, threshold: float) -> float:
    """Upper bound on E_Q[(S − K)₊] over the cells, given S ≤ ``largest``, shape (cells,)."""
    alive = (largest > threshold) & (cells.mass > 0)
    # A hockey stick falls with its threshold, so with a smaller threshold, whose square is a
    # float, it is still an upper bound.
    return _bound(cells.only(alive), largest[alive], min(threshold, _LARGEST_THRESHOLD), 1.0)


def reverse_hockey_stick_bound(cells: MomentCells, smallest: FloatArray, threshold: float) -> float:
    """Upper bound on E_Q[(κ − S)₊] over the cells, given S ≥ ``smallest``, shape (cells,)."""
    alive = (smallest < threshold) & (cells.mass > 0)
    return _bound(cells.only(alive), smallest[alive], threshold, -1.0)


def _bound(cells: MomentCells, end: FloatArray, threshold: float, sign: float) -> float:
    """Upper bound on the expected payoff: the sum over the cells of the smallest of three bounds.

    ``sign`` is 1 for hockey sticks and −1 for reverse hockey sticks.
    """
    q, m1, m2 = cells.mass, cells.first, cells.second
    error = 1.1 * cells.rounding + 1e-14

    def square(centre: FloatArray | float) -> FloatArray:
        """Upper bound on E[(S − centre)²] in each cell."""
        value = m2 - 2 * centre * m1 + centre**2 * q
        return np.maximum(value, 0.0) + error * (m2 + 2 * np.abs(centre) * m1 + centre**2 * q)

    # Scarf's parabola, with the c that is best for the moments.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = sign * (m1 - threshold * q) + error * (m1 + threshold * q)
        best = 0.5 * (np.sqrt(q * square(threshold)) * (1.0 + error) + excess)
        # The parabola that meets the payoff at the end of the range, where it is above the payoff.
        mean = m1 / q
        gap = sign * (end - mean)
        centre = mean - sign * np.maximum(m2 / q - mean**2, 0.0) / gap
        reach, height = sign * (end - centre), sign * (end - threshold)
        parabola = height / reach**2 * square(centre)
        fits = (gap > 0) & (2 * height <= reach)
        best = np.where(fits & (parabola < best), parabola, best)
        # The chord over the range; for a reverse hockey stick the payoff at the end of the range.
        chord = m1 * height / end if sign > 0 else height * q
        best = np.minimum(best, chord * (1.0 + error))
    return float(np.maximum(best, 0.0).sum()) * (1.0 + _MARGIN)


@dataclass(frozen=True, slots=True)
class StatisticRange:
    """Scale r of the statistic, and the smallest and largest ratio x to which r is applied."""

    scale: float
    least: float
    most: float

    def statistic(self, x: float) -> float:
        """Contribution ln(1 + r·x) of one ratio x to the statistic A."""
        return math.log1p(self.scale * x)

    def value(self, statistic: FloatArray) -> FloatArray:
        """Ratio x of each contribution ln(1 + r·x) to A, shape of ``statistic``."""
        return np.expm1(statistic) / self.scale


def largest_ratios(statistic: FloatArray, scale: float, groups: int, picks: int) -> FloatArray:
    """Upper bound on S at each value of A, shape of ``statistic``.

    S is largest where m of the ratios x are equal and the other n − m are 0, for some m ≥ k.

    Args:
        statistic: values of A, shape (cells,).
        scale: scale r of the statistic.
        groups: n, number of ratios.
        picks: k, at most n.
    """
    best = np.zeros_like(statistic)
    total = float(log_binomial(groups, picks))
    for positive in range(picks, groups + 1):
        # The k-th root of C(m, k)/C(n, k) is taken first, so that each value needs one expm1.
        factor = math.exp((float(log_binomial(positive, picks)) - total) / picks) / scale
        np.maximum(best, factor * np.expm1(statistic / positive), out=best)
    with np.errstate(over="ignore"):
        return (best * (1.0 + _MARGIN)) ** picks


def smallest_ratios(
    statistic: FloatArray, ranges: StatisticRange, groups: int, picks: int
) -> FloatArray:
    """Lower bound on S at increasing values of A, shape of ``statistic``; sharp where S is below 1.

    The smallest S increases with A, so the smallest S at any smaller A is a lower bound. A coarse
    grid locates the A at which the smallest S is 1, the largest threshold of a reverse hockey
    stick; a finer grid ends there.

    Args:
        statistic: increasing values of A, shape (cells,).
        ranges: scale of the statistic and range of one ratio.
        groups: n, number of ratios.
        picks: k, at most n.
    """
    ends = _Mixture.of(ranges, groups, picks)
    low, high = groups * ranges.statistic(ranges.least), float(statistic[-1])
    coarse = np.linspace(low, high, _COARSE)
    passed = np.flatnonzero(ends.least(coarse) >= 1.0)
    high = float(coarse[passed[0]]) if passed.size else high
    grid = np.linspace(low, high, max(_COARSE, min(_FINE, _WORK // (groups * picks))))
    index = np.searchsorted(grid * (1.0 + _MARGIN), statistic, side="right") - 1
    values = ends.least(grid) * (1.0 - 8 * picks * _MARGIN)
    return values[np.maximum(index, 0)]


@dataclass(frozen=True, slots=True, eq=False)
class _Mixture:
    """S as a function of n ratios: some at the upper end, one arbitrary, all others equal.

    ``ways[i, j]`` is C(i, j)·C(n, k)^{−1/2}, so that a product of two entries does not overflow.
    """

    ranges: StatisticRange
    picks: int
    ways: FloatArray

    @classmethod
    def of(cls, ranges: StatisticRange, groups: int, picks: int) -> _Mixture:
        counts, chosen = np.arange(groups + 1.0)[:, None], np.arange(picks + 1.0)
        logs = log_binomial(np.maximum(counts, chosen), chosen)
        logs = np.where(counts >= chosen, logs, -math.inf)
        return cls(ranges, picks, np.exp(logs - 0.5 * float(log_binomial(groups, picks))))

    def least(self, grid: FloatArray) -> FloatArray:
        """Smallest S of the ratios x at each of several increasing values of the statistic A.

        It is attained at one of two kinds of points: all x but one are at an end of their range, or
        no x is at the lower end and all x below the upper end are equal.
        """
        # All x's but one at an end of their range; that one contributes the remainder of A.
        ranges, groups = self.ranges, self.ways.shape[0] - 1
        low, high = ranges.statistic(ranges.least), ranges.statistic(ranges.most)
        over = np.maximum(grid - groups * low, 0.0)
        whole = np.minimum(np.floor(over / (high - low)), groups - 1).astype(np.int64)
        odd = ranges.value(low + over - whole * (high - low))
        best = self._means(whole, np.full_like(odd, ranges.least), odd)
        # Some x's at the upper end, the others equal, wherever their range allows it.
        capped = np.arange(int(whole[-1]) + 1)[:, None]
        share = (grid - capped * high) / (groups - capped)
        equal = ranges.value(np.clip(share, low, high))
        feasible = (share >= low) & (share <= high * (1.0 + _MARGIN))
        mixed = np.where(feasible, self._means(capped, equal, equal), math.inf)
        return np.minimum(best, mixed.min(axis=0))

    def _means(self, capped: IntArray, value: FloatArray, odd: FloatArray) -> FloatArray:
        """S of ``capped`` ratios at the upper end, one ratio ``odd``, and all others ``value``."""
        equal = self.ways.shape[0] - 2 - capped
        share, own = value / self.ranges.most, odd / self.ranges.most
        total, power = np.zeros_like(odd), np.ones_like(share)
        for rest in range(self.picks + 1):
            others = self.ways[equal, rest] * power
            total += self.ways[capped, self.picks - rest] * others
            if rest < self.picks:
                total += self.ways[capped, self.picks - rest - 1] * own * others
            power = power * share
        return total * math.exp(min(700.0, self.picks * math.log(self.ranges.most)))


def log_binomial(n: FloatArray | int, k: FloatArray | int) -> FloatArray:
    """Natural logarithm of the binomial coefficient C(n, k), shape of the arguments."""
    count, chosen = np.asarray(n, dtype=float), np.asarray(k, dtype=float)
    return gammaln(count + 1) - gammaln(chosen + 1) - gammaln(count - chosen + 1)
