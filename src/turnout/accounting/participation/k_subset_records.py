"""One uniform k-subset of t steps under replace-one: two records of the client are compared.

`SubsetRecordsBlock` is such a window. `record_windows` returns k windows with one pick each; their
composition is an upper bound. The lower curve is the δ of an attack. `decomposition` uses
`SubsetRecordsBlock` and `record_windows`. This module builds on `replace_one` and on the statistic
of `k_subset_statistic`. docs/design/subsets.md has the proofs ("Two records").

Notation: X and X' are the likelihood ratios of a step, against absence, for the two records. The
ratios of the window are S = e_k(X)/C(t, k) and S' = e_k(X')/C(t, k).

**From above.** As a function of one step's ratios, S − K·S' is a·X − K·a'·X' + b with a, a' ≥ 0. So
the antithetic coupling of X and X' is the worst one in every step, also if steps depend on earlier
outputs. A random cut of the steps into k groups, of which each contains one step of the client,
does not depend on the record; revealing the cut never lowers δ. So δ of k windows, one for each
group, is an upper bound.

**From below.** Two opposite records attain the coupling. Let T = Σ g(step), with a score g that is
large where X is large and X' small. The distribution of T with the client is φ_P^{*k} *
φ_Q^{*(t−k)} for one record and φ_{P'}^{*k} * φ_Q^{*(t−k)} for the other, whichever steps the client
draws. So

    δ(K) ≥ P(T ≥ τ) − K·P'(T ≥ τ)    for every τ, with g = ln(1 + r·X) − ln(1 + r·X').
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import Block, CurvePair, curves_apart
from turnout.accounting.divergence.composition import run_curve
from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, Pair, tail_rounding
from turnout.accounting.divergence.work import remembered
from turnout.accounting.participation.k_subset_levels import SubsetProblem, valley
from turnout.accounting.participation.k_subset_statistic import (
    BinSum,
    StatisticCurve,
    curve_of_sums,
    largest_ratio,
    threshold_of,
)
from turnout.accounting.participation.replace_one import ReplacementBlock
from turnout.accounting.participation.replace_one_events import event_masses
from turnout.accounting.participation.replace_one_steps import AntitheticStep
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError

_STEP, _COARSER = 0.06, 4.0  # width of a bin over the deviation of a score; coarser for trials of r
_MOST_BINS = 1 << 13
_NODES, _BEND = 4001, 14.0  # values of X − X' at which a score is known, and how they are spaced
_CUT = 1e-4  # part of δ that is due to ratios above the last bin
_FIRST_SCALE, _FACTORS = 2.0, (1.6, 1.25)  # r over k/(t − k), and factors by which r is moved
_FINEST = 2
_HINTS_APART = 1e4  # ratio of the δ's at which the curves of a composed block are made sharp


def record_windows(pair: Pair, window: int, picks: int) -> list[tuple[Block, int]]:
    """One-pick windows whose composition is an upper bound for a k-subset under replace-one.

    Source: docs/design/subsets.md, "Two records". A one-pick window has ⌊t/k⌋ or ⌈t/k⌉ steps.

    Args:
        pair: outputs of one step with the client's message, and without it.
        window: t, number of steps of the whole k-subset.
        picks: k, less than t.

    Returns:
        Pairs (one-pick window, number of such windows).
    """
    short, longer = divmod(window, picks)
    sizes = [(short + 1, longer), (short, picks - longer)]
    return [(ReplacementBlock(pair, size), count) for size, count in sizes if count]


@dataclass(frozen=True, slots=True)
class SubsetRecordsBlock:
    """Window of a k-subset in which two records of a client are compared.

    Source: docs/design/subsets.md, "Two records". The pair must have no infinity mass. The upper
    curve is the curve of the run `record_windows`. The lower curve is valid for noise with which
    two opposite records attain the antithetic coupling.

    Attributes:
        pair: outputs of one step with the client's message, and without it.
        window: t, steps.
        picks: k, less than t.
    """

    pair: Pair
    window: int
    picks: int

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss."""
        variance = 4.0 * max(self.pair.second_moment - 1.0, 0.0) * self.picks / self.window
        return math.sqrt(self.picks * min(1.0, variance))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve that is sharp near one δ; both directions have the same curve."""
        if side is Side.UPPER:
            windows = record_windows(self.pair, self.window, self.picks)
            return run_curve(windows, Direction.REMOVE, side, delta, refinement)
        task = SubsetProblem(self.pair, self.window, self.picks, Direction.REMOVE, min(0.5, delta))
        scale = _best_scale(task)
        return _scaled_curve(task, scale, _STEP / 2 ** min(refinement, _FINEST))

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are sharp at several δ, from 1 to below a given δ.

        Both directions have the same curves.
        """
        curves, _ = curves_apart(self, side, delta, refinement, _HINTS_APART)
        return CurvePair(side, curves, curves)


@remembered
def _best_scale(task: SubsetProblem) -> float:
    """Scale r of the score with nearly the largest lower bound, found on coarse bins."""

    def curve(scale: float) -> StatisticCurve:
        return _scaled_curve(task, scale, _COARSER * _STEP)

    best = _FIRST_SCALE * task.picks / (task.window - task.picks)
    threshold = threshold_of(curve(best), task.delta)
    for factor in _FACTORS:
        best = valley(lambda scale: -curve(scale).value(threshold), best, factor)
    return best


@remembered
def _scaled_curve(task: SubsetProblem, scale: float, width: float) -> StatisticCurve:
    """Lower curve from the score with scale r.

    The bins of the score are ``width`` standard deviations wide.
    """
    step = AntitheticStep(task.pair, 1.0)
    cap = largest_ratio(task.pair, _CUT * task.delta / task.picks)
    present, elsewhere, absent = event_masses(step, _edges(step, scale, cap, width))
    rest = task.window - task.picks
    # The sum T with each record: lower bounds on masses for the gain, upper bounds for the loss.
    gain = BinSum((_lower_masses(present), _lower_masses(absent)), (task.picks, rest))
    loss = BinSum((_upper_masses(elsewhere), _upper_masses(absent)), (task.picks, rest))
    return curve_of_sums([(1.0, gain)], [(1.0, loss)], task.delta)


def _edges(step: AntitheticStep, scale: float, cap: float, width: float) -> FloatArray:
    """Rising thresholds c of X − X'; the bins between them are equally wide in score.

    The thresholds may be approximate: any rising thresholds give nested events {X − X' > c} and a
    lower bound.
    """
    # The score at values of X − X' that are dense near 0.
    c = cap * np.sinh(np.linspace(-_BEND, _BEND, _NODES)) / math.sinh(_BEND)
    ratio, other = step.thresholds(c)
    score = np.maximum.accumulate(np.log1p(scale * ratio) - np.log1p(scale * other))
    # Standard deviation of the score without the client.
    masses = -np.diff(np.concatenate([[1.0], event_masses(step, c)[2]]))
    mean = float(masses @ score)
    deviation = math.sqrt(max(float(masses @ (score - mean) ** 2), 0.0))
    if not deviation > 0.0:
        raise NumericalError("all likelihood ratios of a step are equal in float64")
    # Bins of equal width between the ends.
    bins = math.ceil((score[-1] - score[0]) / (width * deviation))
    places = np.linspace(score[0], score[-1], min(max(bins, 2), _MOST_BINS))
    return np.maximum.accumulate(np.interp(places, score, c))


def _lower_masses(tails: FloatArray) -> FloatArray:
    """Masses of bins such that the sum from each bin to the last one is at most the given tail."""
    falling = np.minimum.accumulate(np.clip(tails - tail_rounding(tails), 0.0, 1.0))
    whole = np.concatenate([[1.0], falling])
    masses = -np.diff(np.append(whole, 0.0))
    return np.maximum(masses - 2.0 * UNIT_ROUNDOFF * whole, 0.0)


def _upper_masses(tails: FloatArray) -> FloatArray:
    """Masses of bins such that the sum from each bin to the last one is at least the given tail."""
    raised = np.clip(tails + tail_rounding(tails), 0.0, 1.0)
    whole = np.concatenate([[1.0], np.maximum.accumulate(raised[::-1])[::-1]])
    return -np.diff(np.append(whole, 0.0)) + 2.0 * UNIT_ROUNDOFF * whole
