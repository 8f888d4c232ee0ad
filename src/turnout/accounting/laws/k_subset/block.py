"""k of t steps as a block of a run: the sharpest of several certified curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from turnout.accounting.divergence.blocks import Block, PairBlock, curves_apart
from turnout.accounting.divergence.curves import (
    BestCurve,
    Curve,
    Direction,
    Side,
    diluted,
    with_infinity_mass,
)
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.multinomial import AtomicPair
from turnout.accounting.divergence.pairs import GaussianPair, Pair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.laws.check_ins.block import AllocationBlock
from turnout.accounting.laws.k_subset.conditional import ConditionalBound, conditional_bound
from turnout.accounting.laws.k_subset.multisets import atomic_curve, exact_law, multiset_curve
from turnout.accounting.laws.k_subset.statistic import statistic_curve
from turnout.accounting.laws.k_subset.task import Task
from turnout.core import checks
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_FINEST = 2  # a further refinement takes ten times as long, and gains little
_HINTS_APART = 1e4  # ratio of the δ's at which the curves of a composed block are made sharp
_LEAST_GAIN = 2e-4  # below which levels cost more than they gain over the blocks
_FAR = 1e-3  # the part of δ at which the points of an upper curve end


@dataclass(frozen=True, slots=True, eq=False)
class ChordCurve:
    """An upper curve by its values at some K: a δ is convex, so it lies below their chords."""

    points: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, bound: ConditionalBound, delta: float) -> ChordCurve:
        """Through about a hundred points, one of them where the bound is δ."""
        root = bound.epsilon(delta)
        try:
            far = bound.epsilon(_FAR * delta + 2 * bound.beyond)
        except NumericalError:  # it does not come down so far: beyond the last point it is flat
            far = root
        epsilons = np.concatenate(
            [
                np.linspace(0.0, 0.9 * root, 30, endpoint=False),
                root * np.linspace(0.9, 1.0, 20),
                root * np.linspace(1.0, 1.1, 20)[1:],
                np.linspace(1.1 * root, max(far, 1.2 * root), 30)[1:],
            ]
        )
        points = np.exp(epsilons)
        values = np.array([bound.delta(float(k)) for k in points])
        return cls(points, np.minimum.accumulate(values))

    def delta(self, k: FloatArray) -> FloatArray:
        """At least δ at each K ≥ 1."""
        values = np.interp(np.asarray(k, dtype=float), self.points, self.values)
        return np.minimum(values * (1.0 + 1e-12), 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """The slope of the chord over each K."""
        index = np.searchsorted(self.points, np.asarray(k, dtype=float), side="right")
        slopes = np.append(np.diff(self.values) / np.diff(self.points), 0.0)
        return slopes[np.clip(index - 1, 0, slopes.size - 1)]


@dataclass(frozen=True, slots=True)
class SubsetBlock:
    """One window of t steps in which the client takes part, with a probability, in a uniform
    k-subset.

    Guarantees: an upper curve is never below δ and never above the block bound (k windows of
    ⌊t/k⌋ or ⌈t/k⌉ steps, composed); a lower curve is never above δ.

    Source: docs/design/subsets.md; the block bound is Lemma 3.11 of Feldman & Shenfeld 2025.

    Attributes:
        window: t.
        picks: k, at most t. k = 1 is the check-in, k = t every step.
        probability: the chance that the client comes at all, above 0.
        infinity_mass: what P has in one step where Q has nothing (see `curves.InfinityMassCurve`).
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
        """About the standard deviation of the privacy loss, as of k windows of t/k steps."""
        variance = max(self.pair.second_moment - 1.0, 0.0) * self.picks / self.window
        return self.probability * math.sqrt(self.picks * min(1.0, variance))

    @property
    def _total_infinity_mass(self) -> float:
        """Probability that one of the k steps shows for sure that the client takes part."""
        return (
            -math.expm1(self.picks * math.log1p(-self.infinity_mass))
            if self.infinity_mass < 1
            else 1.0
        )

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The sharpest curve near one δ."""
        refinement = min(refinement, _FINEST)
        hint = min(0.5, delta / self.probability)
        if direction is Direction.REMOVE:
            hint = max(hint - self._total_infinity_mass, 0.01 * hint)
        base = _curve(Task(self.pair, self.window, self.picks, direction, hint), side, refinement)
        return diluted(
            with_infinity_mass(base, direction, side, self._total_infinity_mass),
            direction,
            self.probability,
        )

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves made sharp a few decades apart, from 1 to just below δ."""
        remove, add = curves_apart(self, side, delta, refinement, _HINTS_APART)
        impossible = float(self.pair.q_below(np.array(0.0)))
        zero = bdtr(self.picks - 1, self.window, 1.0 - impossible) if impossible else 0.0
        floor = float(zero) if self.probability == 1.0 else 0.0
        return CurvePair(side, remove, add, (self.probability * self._total_infinity_mass, floor))


@remembered
def _curve(task: Task, side: Side, refinement: int) -> Curve:
    """The sharpest curve of one task."""
    simple = _simple_run(task)
    if simple is not None:
        return _run_curve(simple, task, side, refinement)
    if isinstance(task.pair, AtomicPair) and exact_law(task.pair, task.window):
        return atomic_curve(task, task.pair, side)
    attempts: list[Callable[[], Curve]] = [lambda: multiset_curve(task, side, refinement)]
    if side is Side.LOWER:
        attempts.append(lambda: statistic_curve(task, refinement))
    else:
        if _gain(task) > _LEAST_GAIN:
            attempts.append(lambda: ChordCurve.of(conditional_bound(task, refinement), task.delta))
        attempts.append(lambda: _run_curve(block_run(task), task, side, refinement))
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


def _gain(task: Task) -> float:
    """About the part of ε that the truth is below the block bound, from variances."""
    return (task.picks - 1) * max(task.pair.second_moment - 1.0, 0.0) / (4.0 * task.window)


def _simple_run(task: Task) -> list[tuple[Block, int]] | None:
    """The run that one check-in or every step is."""
    if task.picks == 1:
        return [(AllocationBlock(task.pair, task.window), 1)]
    if task.picks < task.window:
        return None
    if isinstance(task.pair, GaussianPair):
        sigma = task.pair.noise_multiplier / math.sqrt(task.window)
        return [(PairBlock(GaussianPair(sigma)), 1)]
    return [(PairBlock(task.pair), task.window)]


def block_run(task: Task) -> list[tuple[Block, int]]:
    """Blocks that bound k of t from above: k windows that together have all t steps.

    Lemma 3.11 of Feldman & Shenfeld 2025 has windows of ⌊t/k⌋ steps each and leaves the
    remainder out; the same proof (cut the steps at random, come once in each window) allows
    windows of any sizes.
    """
    part, longer = divmod(task.window, task.picks)
    blocks: list[tuple[Block, int]] = [
        (AllocationBlock(task.pair, part), task.picks - longer),
        (AllocationBlock(task.pair, part + 1), longer),
    ]
    return [(block, count) for block, count in blocks if count]


def _run_curve(run: Sequence[tuple[Block, int]], task: Task, side: Side, refinement: int) -> Curve:
    from turnout.accounting.divergence.runs import run_curve  # a run may hold blocks of this module

    return run_curve(run, task.direction, side, task.delta, refinement)
