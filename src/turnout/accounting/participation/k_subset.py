"""One uniform k-subset of t steps as a block, with the sharpest of several certified curves.

`SubsetBlock` is one window in which a client takes part, with a given probability, in a uniform
k-subset of the steps; `neighbours` makes such blocks. Each of its curves (`subset_curve`) is the
sharpest of four bounds: the block bound (`block_curve`: k windows of about t/k steps), the upper
bound of `k_subset_conditional` (as a `ChordCurve`), the lower bound of `k_subset_statistic`, and
the enumeration below. `k_subset_begun` bounds the first steps of a window.

**Enumeration.** `atomic_curve` and `multiset_curve` return a `MultisetCurve`. Let each of t ratios
Y take one of m levels. Then the window's ratio S depends only on how often each level occurs. There
are C(t + m − 1, t) such multisets of levels. They can be enumerated in two cases:

* The pair has few atoms; the curve is then exact. A pure ε₀-randomizer has two atoms.
* The window has at most four steps, so that the multisets of several dozen levels can be
  enumerated. Spreading the ratio onto the levels bounds δ from above; replacing the ratio by its
  conditional mean in each bin bounds δ from below (an adversary who knows only the bin).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from turnout.accounting.divergence.blocks import Block, CurvePair, PairBlock, curves_apart
from turnout.accounting.divergence.curves import (
    BestCurve,
    Curve,
    Direction,
    Side,
    diluted,
    running_sums,
    with_infinity_mass,
)
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair, Pair
from turnout.accounting.divergence.sums import AtomicPair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.k_subset_conditional import (
    ConditionalBound,
    conditional_bound,
)
from turnout.accounting.participation.k_subset_levels import (
    RatioBounds,
    SubsetProblem,
    levels_for_hockey_sticks,
    levels_for_reverse_hockey_sticks,
)
from turnout.accounting.participation.k_subset_statistic import (
    bin_masses,
    largest_ratio,
    statistic_curve,
)
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError

_FINEST = 2  # a further refinement takes ten times as long and gains little
_HINTS_APART = 1e4  # ratio of the δ's at which the curves of a composed block are made sharp
_LEAST_GAIN = 2e-4  # relative gain over the block bound below which levels are not worth it
_CLEAR_GAIN = 5e-3  # estimated gain from which the block bound needs no finer grids
_FAR = 1e-3  # the points of an upper curve end at about this part of δ


@dataclass(frozen=True, slots=True)
class SubsetBlock:
    """Window in which a client takes part, with a given probability, in a uniform k-subset.

    Guarantees: an upper curve is never below δ and never above the block bound (k windows of
    ⌊t/k⌋ or ⌈t/k⌉ steps, composed); a lower curve is never above δ.

    Source: docs/design/subsets.md; the block bound is Lemma 3.11 of Feldman & Shenfeld 2025.

    Attributes:
        pair: outputs of one step with the client's message, and without it.
        window: t, steps.
        picks: k, at most t. With k = 1 the client checks in once; with k = t it takes part in every
            step.
        probability: probability that the client takes part at all, above 0.
        infinity_mass: mass that P has in one step where Q has none (see
            `curves.InfinityMassCurve`).

    Raises:
        ParameterError: a number of steps or a probability is out of range.
    """

    pair: Pair
    window: int
    picks: int
    probability: float = 1.0
    infinity_mass: float = 0.0

    def __post_init__(self) -> None:
        checks.count(window=self.window, picks=self.picks)
        checks.at_most("window", self.window, picks=self.picks)
        checks.positive(probability=self.probability)
        checks.probability(probability=self.probability, infinity_mass=self.infinity_mass)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, as for k windows of t/k steps."""
        variance = max(self.pair.second_moment - 1.0, 0.0) * self.picks / self.window
        return self.probability * math.sqrt(self.picks * min(1.0, variance))

    @property
    def _total_infinity_mass(self) -> float:
        """Probability, over k steps, of an output that only a participating client can cause."""
        return (
            -math.expm1(self.picks * math.log1p(-self.infinity_mass))
            if self.infinity_mass < 1
            else 1.0
        )

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Sharpest known curve of the window near one δ."""
        refinement = min(refinement, _FINEST)
        hint = min(0.5, delta / self.probability)
        if direction is Direction.REMOVE:
            hint = max(hint - self._total_infinity_mass, 0.01 * hint)
        base = subset_curve(
            SubsetProblem(self.pair, self.window, self.picks, direction, hint), side, refinement
        )
        return diluted(
            with_infinity_mass(base, direction, side, self._total_infinity_mass),
            direction,
            self.probability,
        )

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are sharp at several δ, powers of ten apart, from 1 to below a given δ."""
        remove, add = curves_apart(self, side, delta, refinement, _HINTS_APART)
        impossible = float(self.pair.q_below(np.array(0.0)))
        zero = bdtr(self.picks - 1, self.window, 1.0 - impossible) if impossible else 0.0
        floor = float(zero) if self.probability == 1.0 else 0.0
        return CurvePair(side, remove, add, (self.probability * self._total_infinity_mass, floor))


@remembered
def subset_curve(task: SubsetProblem, side: Side, refinement: int) -> Curve:
    """Sharpest known curve of one k-subset problem.

    Args:
        task: the problem.
        side: whether the curve is an upper or a lower bound.
        refinement: level of refinement of the grids, at least 0.

    Raises:
        NumericalError: no bound can be certified at the δ of the problem.
    """
    # Exact cases: one check-in, every step, and pairs on few atoms.
    simple = _simple_run(task)
    if simple is not None:
        return _run_curve(simple, task, side, refinement)
    if isinstance(task.pair, AtomicPair) and is_enumerable(task.pair, task.window):
        return atomic_curve(task, task.pair, side)
    # Otherwise compute each bound that may be the sharpest.
    attempts: list[Callable[[], Curve]] = [lambda: multiset_curve(task, side, refinement)]
    if side is Side.LOWER:
        attempts.append(lambda: statistic_curve(task, refinement))
    else:
        if _gain(task) > _LEAST_GAIN:
            attempts.append(lambda: _chords(conditional_bound(task, refinement), task.delta))
        # Finer grids of the block bound are of use where it is close to the other bound.
        finer = refinement if _gain(task) < _CLEAR_GAIN else 0
        attempts.append(lambda: _run_curve(block_run(task), task, side, finer))
    # Bounds that cannot be certified are left out; the block bound remains for an upper curve.
    curves: list[Curve] = []
    refusals: list[NumericalError] = []
    for attempt in attempts:
        try:
            curves.append(attempt())
        except NumericalError as error:
            refusals.append(error)
    if not curves:
        raise refusals[-1]
    return curves[0] if len(curves) == 1 else BestCurve(side, curves)


def _gain(task: SubsetProblem) -> float:
    """Estimate, from variances, of how far ε is below the ε of the block bound, as a fraction."""
    return (task.picks - 1) * max(task.pair.second_moment - 1.0, 0.0) / (4.0 * task.window)


def _simple_run(task: SubsetProblem) -> list[tuple[Block, int]] | None:
    """Run that has exactly the δ of the k-subset: for k = 1 and for k = t; else None."""
    if task.picks == 1:
        return [(AllocationBlock(task.pair, task.window), 1)]
    if task.picks < task.window:
        return None
    if isinstance(task.pair, GaussianPair):
        sigma = task.pair.noise_multiplier / math.sqrt(task.window)
        return [(PairBlock(GaussianPair(sigma)), 1)]
    return [(PairBlock(task.pair), task.window)]


def block_run(task: SubsetProblem) -> list[tuple[Block, int]]:
    """Run with at least the δ of a k-subset of t steps: k windows that together have t steps.

    Lemma 3.11 of Feldman & Shenfeld 2025 has windows of ⌊t/k⌋ steps each and leaves out the
    remaining steps. Its proof (cut the steps into windows at random; the client takes part once in
    each window) allows windows of any sizes.

    Args:
        task: the problem of bounding the δ of a k-subset of t steps.
    """
    part, longer = divmod(task.window, task.picks)
    blocks: list[tuple[Block, int]] = [
        (AllocationBlock(task.pair, part), task.picks - longer),
        (AllocationBlock(task.pair, part + 1), longer),
    ]
    return [(block, count) for block, count in blocks if count]


@remembered
def block_curve(task: SubsetProblem, side: Side, refinement: int) -> Curve:
    """Curve of the block bound; it is quick to compute, and exact for k = 1 and for k = t."""
    return _run_curve(_simple_run(task) or block_run(task), task, side, refinement)


def _run_curve(
    run: Sequence[tuple[Block, int]], task: SubsetProblem, side: Side, refinement: int
) -> Curve:
    from turnout.accounting.divergence.composition import (
        run_curve,
    )  # a run may hold blocks of this module

    return run_curve(run, task.direction, side, task.delta, refinement)


@dataclass(frozen=True, slots=True, eq=False)
class ChordCurve:
    """Upper curve made of chords between upper bounds on δ at several K, valid as δ(K) is convex.

    Attributes:
        points: increasing values of K ≥ 1, shape (m,).
        values: upper bounds on δ at the points, shape (m,).
    """

    points: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, bound: ConditionalBound, delta: float) -> ChordCurve:
        """Chords between about a hundred points of a bound; the points are dense near one δ."""
        # The ε at which the bound is δ, and the one at which it is far below δ.
        root = bound.epsilon(delta)
        try:
            far = bound.epsilon(_FAR * delta + 2 * bound.beyond, near=1e-2)
        except NumericalError:  # the bound does not fall so far: beyond the last point it is flat
            far = root
        # Points from 0 to there, dense around the ε of δ.
        epsilons = np.concatenate(
            [
                np.linspace(0.0, 0.9 * root, 30, endpoint=False),
                root * np.linspace(0.9, 1.0, 20),
                root * np.linspace(1.0, 1.1, 20)[1:],
                np.linspace(1.1 * root, max(far, 1.2 * root), 30)[1:],
            ]
        )
        # Bounds at these points; each also holds at every larger K.
        points = np.exp(epsilons)
        values = np.array([bound.delta(float(k)) for k in points])
        return cls(points, np.minimum.accumulate(values))

    def delta(self, k: FloatArray) -> FloatArray:
        """Upper bound on δ at each K ≥ 1, shape of ``k``."""
        values = np.interp(np.asarray(k, dtype=float), self.points, self.values)
        return np.minimum(values * (1.0 + 1e-12), 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope of the chord at each K ≥ 1, shape of ``k``."""
        index = np.searchsorted(self.points, np.asarray(k, dtype=float), side="right")
        slopes = np.append(np.diff(self.values) / np.diff(self.points), 0.0)
        return slopes[np.clip(index - 1, 0, slopes.size - 1)]


@remembered
def _chords(bound: ConditionalBound, delta: float) -> ChordCurve:
    return ChordCurve.of(bound, delta)


_MOST_STATES = 250_000  # multisets enumerated at refinement 0
_FEWEST_LEVELS = 30
_LOW_MASS = {
    Direction.REMOVE: 0.1,
    Direction.ADD: 1e-4,
}  # mass under Q below the lowest positive level
_HIGH_MASS = 1e-4  # mass under Q above the highest level, for reverse hockey sticks
_WORST_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class MultisetCurve:
    """Curve δ(K) of a window whose likelihood ratio S has finitely many values.

    Attributes:
        side: side to which rounding errors move the bound.
        ratios: values of S, increasing, shape (n,).
        absent: Q(S ≥ value) (remove) or Q(S < value) (add) at each value, and one more entry beyond
            all values, shape (n + 1,).
        present: the same probabilities under P, same shape.
        rounding: bound on the relative error of each probability.
        beyond: upper bound on the part of δ that is due to values above the largest level.
    """

    direction: Direction
    side: Side
    ratios: FloatArray
    absent: FloatArray
    present: FloatArray
    rounding: float
    beyond: float

    @classmethod
    def of(cls, task: SubsetProblem, side: Side, distribution: _RatioDistribution) -> MultisetCurve:
        """Curve of a distribution of S; masses are summed from the end with a positive payoff.

        Args:
            task: the problem.
            side: side to which rounding errors move the bound.
            distribution: values of S and their probabilities.
        """
        order = np.argsort(distribution.ratios)
        ratios, absent = distribution.ratios[order], distribution.masses[order]
        return cls(
            direction=task.direction,
            side=side,
            ratios=ratios,
            absent=running_sums(absent, task.direction),
            present=running_sums(absent * ratios, task.direction),
            rounding=distribution.rounding + (ratios.size + 8) * UNIT_ROUNDOFF,
            beyond=distribution.beyond if task.direction is Direction.REMOVE else 0.0,
        )

    def _at(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        threshold = np.asarray(k, dtype=float)
        if self.direction is Direction.REMOVE:
            index = np.searchsorted(self.ratios, threshold, side="right")
            return self.present[index], self.absent[index]
        index = np.searchsorted(self.ratios, 1.0 / threshold, side="left")
        return self.absent[index], self.present[index]

    def delta(self, k: FloatArray) -> FloatArray:
        """Bound on δ at each K ≥ 1, shape of ``k``, rounded to the curve's side."""
        gain, loss = self._at(k)
        error = self.rounding * (gain + k * loss + self.beyond)
        moved = error if self.side is Side.UPPER else -error
        return np.clip(gain - k * loss + self.beyond + moved, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        return -self._at(k)[1]


def is_enumerable(pair: Pair, window: int) -> bool:
    """Whether a pair has so few atoms that all multisets of a window can be enumerated.

    Args:
        pair: pair of one step.
        window: t, number of steps.
    """
    if not isinstance(pair, AtomicPair):
        return False
    return math.comb(window + pair.atoms[0].size - 1, window) <= _MOST_STATES


def atomic_curve(task: SubsetProblem, pair: AtomicPair, side: Side) -> MultisetCurve:
    """Exact curve of a pair with few atoms, rounded to the given side."""
    ratios, masses = pair.atoms
    return MultisetCurve.of(task, side, _multiset_distribution(ratios, masses, task, 0.0))


def multiset_curve(task: SubsetProblem, side: Side, refinement: int) -> MultisetCurve:
    """Bound on the curve by enumeration of all multisets of levels of the ratio.

    A higher refinement adds levels.

    Args:
        task: the problem.
        side: whether the curve is an upper or a lower bound.
        refinement: each level quadruples the largest number of multisets.

    Raises:
        NumericalError: the window has too many steps, or the bins of the ratio are too narrow.
    """
    # Place as many levels as the enumeration can afford.
    count = levels_that_fit(task.window, refinement)
    if count < _FEWEST_LEVELS:
        raise NumericalError("the window has too many steps to enumerate its likelihood ratios")
    points = _points(task, count)
    # Lower: each ratio is replaced by its conditional mean in its bin.
    if side is Side.LOWER:
        low, high = zip(
            bin_masses(task.pair.q_below(points), task.pair.q_above(points)),
            bin_masses(task.pair.p_below(points), task.pair.p_above(points)),
            strict=True,
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            rounding = max(float(np.max(h / lo)) - 1.0 for lo, h in zip(low, high, strict=True))
        if not rounding < _WORST_ROUNDING:
            raise NumericalError("the bins of the likelihood ratio are too narrow for float64")
        absent, present = low
        distribution = _multiset_distribution(
            present / absent, absent, task, 0.0, 4 * task.window * rounding
        )
        return MultisetCurve.of(task, side, distribution)
    # Upper: each ratio is spread onto the levels, which makes it larger in convex order.
    ratio_bounds = RatioBounds.of(task.pair, 1, task.delta)
    if task.direction is Direction.REMOVE:
        levels = levels_for_hockey_sticks(ratio_bounds, np.append(0.0, points))
        values, masses, beyond = levels.levels, levels.masses, task.picks * levels.beyond
    else:
        levels = levels_for_reverse_hockey_sticks(ratio_bounds, points)
        values, masses = np.append(0.0, points), np.append(levels.beyond, levels.masses)
        beyond = 0.0
    # The factor by which masses must be raised, once for each step, counts as rounding.
    excess = math.expm1(task.window * math.log(levels.excess))
    return MultisetCurve.of(
        task, side, _multiset_distribution(values, masses, task, beyond, excess)
    )


def levels_that_fit(window: int, refinement: int) -> int:
    """Largest number of levels of the ratio with few enough multisets to enumerate.

    Args:
        window: t, number of steps.
        refinement: each level quadruples the largest number of multisets.
    """
    count = 2
    while math.comb(window + count, window) <= _MOST_STATES << (2 * refinement):
        count += 1
    return count


def _points(task: SubsetProblem, count: int) -> FloatArray:
    """Positive levels in geometric progression over the range of ratios on which δ depends."""
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


def _multiset_distribution(
    levels: FloatArray,
    masses: FloatArray,
    task: SubsetProblem,
    beyond: float,
    rounding: float = 0.0,
) -> _RatioDistribution:
    """Distribution of a window's ratio S over all multisets of levels.

    Every multiset is built once, with its levels in order.
    """
    # One step: a multiset for each level, its probability and its elementary symmetric sums.
    kept = masses > 0
    levels, masses = levels[kept], masses[kept]
    last = np.arange(levels.size)
    runs, chances = np.ones(levels.size), masses.copy()
    sums = np.zeros((task.picks + 1, levels.size))
    sums[0], sums[1] = 1.0, levels
    for step in range(2, task.window + 1):
        # Add one more level, not below the last one, so that no multiset occurs twice.
        choices = levels.size - last
        firsts = np.cumsum(choices) - choices
        added = np.arange(choices.sum()) - np.repeat(firsts - last, choices)
        # The probability counts the orders: step! over the factorials of equal levels.
        equal = np.zeros(added.size)
        equal[firsts] = runs
        runs = 1.0 + equal
        chances = np.repeat(chances * step, choices) * masses[added] / runs
        if step == task.window and not task.chances:  # of so many states two sums are enough
            sums = sums[-2:]
        sums = np.repeat(sums, choices, axis=1)
        sums[1:] += levels[added] * sums[:-1]
        last = added
    # S is the k-th elementary symmetric sum over C(t, k), or a mixture over k.
    error = 8.0 * (task.window + len(task.chances)) * UNIT_ROUNDOFF
    ratios = np.zeros(chances.size)
    for picks, chance in task.possible:
        sum_ = sums[picks] if task.chances else sums[-1]
        ratios += chance / math.comb(task.window, picks) * sum_
    return _RatioDistribution(ratios, chances, rounding + 2 * error, beyond)


@dataclass(frozen=True, slots=True, eq=False)
class _RatioDistribution:
    """Distribution of S under Q, with bounds on rounding errors and on the part of δ above the cap.

    Attributes:
        ratios: values of S, in any order.
        masses: mass of each value.
        rounding: bound on the relative error of each mass.
        beyond: upper bound on the part of δ that is due to values above the largest level.
    """

    ratios: FloatArray
    masses: FloatArray
    rounding: float
    beyond: float
