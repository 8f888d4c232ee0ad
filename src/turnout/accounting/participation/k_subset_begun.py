"""A begun window of a uniform k-subset: s of its t steps are released.

`BegunSubsetBlock` is the block of the released steps; `neighbours` makes such blocks. Of the k
steps that a client picks, J lie among the first s steps, with the hypergeometric probabilities h_j
= C(s, j)·C(t − s, k − j)/C(t, k); given J, these J steps are a uniform J-subset of the first s
steps. With S_j the likelihood ratio of a j-subset of s steps, the likelihood ratio of the begun
window is S = Σ h_j·S_j.

**Upper bound.** For all K_j ≥ 1 and κ_j ≤ 1

    (S − K)₊ ≤ Σ h_j·(S_j − K_j)₊ with Σ h_j·K_j = K,
    (κ − S)₊ ≤ Σ h_j·(κ_j − S_j)₊ with Σ h_j·κ_j = κ = 1/K.

The best split has equal slopes, so the bound is the infimal convolution of the upper curves of the
S_j. These curves are convex polygons here, so the infimal convolution joins the segments of all
polygons in the order of the slopes.

The block bounds of all j, which are quick to compute, show the best split and how much each j
contributes. A sharp curve is computed only for the j that contribute much.

**Lower bound.** The lower bound uses the adversary of `k_subset_statistic`, with a mixture over J.
For few steps or few ratios it is the enumeration of `k_subset`. docs/design/subsets.md has the
proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import bdtr

from turnout.accounting.divergence.blocks import Block, CurvePair, curves_apart
from turnout.accounting.divergence.curves import (
    BestCurve,
    Curve,
    Direction,
    PolygonCurve,
    Side,
    epsilon_at,
    upper_polygon,
    with_infinity_mass,
)
from turnout.accounting.divergence.pairs import Pair
from turnout.accounting.divergence.sums import AtomicPair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.participation.k_subset import (
    SubsetBlock,
    atomic_curve,
    block_curve,
    is_enumerable,
    multiset_curve,
    subset_curve,
)
from turnout.accounting.participation.k_subset_levels import SubsetProblem, sums_from
from turnout.accounting.participation.k_subset_statistic import statistic_curve
from turnout.core import checks
from turnout.core.errors import NumericalError

_CurveOf = Callable[[SubsetProblem, Side, int], Curve]

_MOST_CURVES = 5  # numbers of picks that have a sharp curve
_LEAST_SHARE = 0.02  # part of δ from which a number of picks has a sharp curve
_RARE = 1e-4  # chance over δ of numbers of picks that are counted as if their δ were 1
_QUARTERS = 4  # numbers of steps, in a window, of shared blocks
_HINTS_APART = 1e4  # ratio of the δ's at which the curves of a composed block are made sharp
_NODES = 1_500  # of the polygon of one number of picks
_BEYOND = 1.4  # the polygons end at this multiple of the ε of δ
_ROUNDING = 1e-11  # relative, of the sums over segments


@dataclass(frozen=True, slots=True)
class BegunSubsetBlock:
    """First steps of a window in which a client takes part in a uniform k-subset of all steps.

    Guarantees: an upper curve is never below δ, a lower curve never above δ.

    Source: docs/design/subsets.md, "Begun windows".

    Attributes:
        pair: outputs of one step with the client's message, and without it.
        window: t, steps of the whole window.
        picks: k, at most t.
        steps: s, the number of released steps, at least 1 and at most t.
        infinity_mass: mass that P has in one step where Q has none (see
            `curves.InfinityMassCurve`).
        composed: whether to use quick upper curves, as for a run of several blocks.

    Raises:
        ParameterError: a number of steps or the infinity mass is out of range.
    """

    pair: Pair
    window: int
    picks: int
    steps: int
    infinity_mass: float = 0.0
    composed: bool = False

    def __post_init__(self) -> None:
        checks.count(window=self.window, picks=self.picks, steps=self.steps)
        checks.at_most("window", self.window, picks=self.picks, steps=self.steps)
        checks.probability(infinity_mass=self.infinity_mass)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss."""
        variance = max(self.pair.second_moment - 1.0, 0.0) * self.picks / self.window
        return math.sqrt(self.picks * self.steps / self.window * min(1.0, variance))

    @property
    def shared(self) -> Block:
        """Block in which s is rounded up to a multiple of a quarter of the window."""
        quarter = -(-self.window // _QUARTERS)
        steps = -(-self.steps // quarter) * quarter
        if steps >= self.window:
            return SubsetBlock(self.pair, self.window, self.picks, 1.0, self.infinity_mass)
        return replace(self, steps=steps, composed=True)

    @property
    def _chances(self) -> list[float]:
        """Probabilities h_j of j picks among the released steps, j = 0 … min(k, s)."""
        return picks_chances(self.window, self.picks, self.steps)

    @property
    def _finite_chances(self) -> tuple[float, ...]:
        """Probabilities of j released picks, given that no output proves participation."""
        kept = [h * (1.0 - self.infinity_mass) ** j for j, h in enumerate(self._chances)]
        return tuple(h / math.fsum(kept) for h in kept)

    @property
    def _total_infinity_mass(self) -> float:
        """Probability of a released output that only a participating client can cause."""
        if self.infinity_mass == 0.0:
            return 0.0
        log_kept = math.log1p(-self.infinity_mass) if self.infinity_mass < 1 else -math.inf
        lost = (-math.expm1(j * log_kept) if j else 0.0 for j in range(len(self._chances)))
        return math.fsum(h * mass for h, mass in zip(self._chances, lost, strict=True))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Sharpest known curve of the released steps, near one δ."""
        # Curve of the released steps, given that no output has an infinite likelihood ratio.
        total, hint = self._total_infinity_mass, min(0.5, delta)
        if direction is Direction.REMOVE:
            hint = max(hint - total, 0.01 * hint)
        most = len(self._chances) - 1
        task = SubsetProblem(self.pair, self.steps, most, direction, hint, self._finite_chances)
        curves: list[Curve] = []
        try:
            base = _begun_curve(task, side, refinement, composed=self.composed)
            curves.append(with_infinity_mass(base, direction, side, total))
        except NumericalError:
            if side is Side.LOWER:
                raise
        # δ of the whole window is an upper bound too, often a smaller one if few steps are left.
        if side is Side.UPPER and (4 * self.steps >= self.window or not curves):
            whole = SubsetBlock(self.pair, self.window, self.picks, 1.0, self.infinity_mass)
            curves.append(whole.curve(direction, side, delta, refinement))
        return curves[0] if len(curves) == 1 else BestCurve(side, curves)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are sharp at several δ, powers of ten apart, from 1 to below a given δ."""
        quick = replace(self, composed=True)
        remove, add = curves_apart(quick, side, delta, refinement, _HINTS_APART)
        least = next(j for j, chance in enumerate(self._chances) if chance > 0)
        impossible = float(self.pair.q_below(np.array(0.0)))
        zero = float(bdtr(least - 1, self.steps, 1.0 - impossible)) if least and impossible else 0.0
        return CurvePair(side, remove, add, (self._total_infinity_mass, zero))


def picks_chances(window: int, picks: int, steps: int) -> list[float]:
    """Probabilities that j of k picked steps are among the first s of t steps, j = 0 … min(k, s).

    Args:
        window: t, number of steps of the whole window.
        picks: k, at most t.
        steps: s, number of released steps, at most t.
    """
    total = math.comb(window, picks)
    return [
        math.comb(steps, j) * math.comb(window - steps, picks - j) / total
        for j in range(min(picks, steps) + 1)
    ]


@remembered
def _begun_curve(task: SubsetProblem, side: Side, refinement: int, *, composed: bool) -> Curve:
    """Sharpest known curve if the number of picked steps is random."""
    # Few atoms: the exact curve. Otherwise compute each bound that may be the sharpest.
    if isinstance(task.pair, AtomicPair) and is_enumerable(task.pair, task.window):
        return atomic_curve(task, task.pair, side)
    attempts: list[Callable[[], Curve]] = [lambda: multiset_curve(task, side, refinement)]
    if side is Side.LOWER:
        attempts.append(lambda: statistic_curve(task, refinement))
    else:
        attempts.append(lambda: split_curve(task, 0 if composed else refinement, composed=composed))
    # Bounds that cannot be certified are left out.
    curves: list[Curve] = []
    refusals: list[NumericalError] = []
    for attempt in attempts:
        try:
            curves.append(attempt())
            if composed and side is Side.UPPER:  # the first one, nearly exact for few steps
                break
        except NumericalError as error:
            refusals.append(error)
    if not curves:
        raise refusals[-1]
    return curves[0] if len(curves) == 1 else BestCurve(side, curves)


def split_curve(task: SubsetProblem, refinement: int, *, composed: bool = False) -> PolygonCurve:
    """Upper curve if the number of picked steps is random, from one upper curve for each number.

    Args:
        task: the problem, with the probability of each number of picks.
        refinement: level of refinement of the curves.
        composed: whether to use only the quick block bound for each number of picks.
    """
    # First the quick curves of all numbers of picks that are not too rare.
    parts, rare = _relevant(task)
    curves = {picks: [_curve_of(task, picks, task.delta, 0, block_curve)] for picks, _ in parts}
    polygons = {picks: _polygon(curves[picks], task) for picks, _ in parts}
    joined, splits = _joined([(chance, polygons[picks]) for picks, chance in parts], rare, task)
    if composed:
        return joined
    # Then sharp curves of those numbers that contribute most, each at its own δ.
    up = task.direction is Direction.REMOVE
    shares = [h * d / (1.0 if up else k) for (_, h), (k, d) in zip(parts, splits, strict=True)]
    for at in sorted(range(len(parts)), key=lambda each: -shares[each])[:_MOST_CURVES]:
        if shares[at] > _LEAST_SHARE * sum(shares):
            picks, own = parts[at][0], max(splits[at][1], _LEAST_SHARE * task.delta)
            curves[picks].append(_curve_of(task, picks, own, refinement, subset_curve))
            polygons[picks] = _polygon(curves[picks], task)
    return _joined([(chance, polygons[picks]) for picks, chance in parts], rare, task)[0]


def _relevant(task: SubsetProblem) -> tuple[list[tuple[int, float]], float]:
    """Likely positive numbers of picks, each with its probability; and the probability of the rest.

    The rest are positive numbers of picks that are so rare that their effect on δ is negligible.
    """
    parts, rare = [], 0.0
    for picks, chance in sorted(task.possible, key=lambda part: part[1]):
        if picks == 0:
            continue
        if rare + chance <= _RARE * task.delta:
            rare += chance
        else:
            parts.append((picks, chance))
    return sorted(parts), rare


def _curve_of(
    task: SubsetProblem, picks: int, delta: float, refinement: int, curve_of: _CurveOf
) -> Curve:
    """Upper curve for a fixed number of picks, sharp near a δ."""
    one = replace(task, picks=picks, delta=min(delta, 0.5), chances=())
    return curve_of(one, Side.UPPER, refinement)


def _polygon(curves: list[Curve], task: SubsetProblem) -> PolygonCurve:
    """Convex upper polygon, which at its nodes is never above the smallest of the given curves."""
    curve = curves[0] if len(curves) == 1 else BestCurve(Side.UPPER, curves)
    reach = 0.0
    for share in (0.1, 1.0):
        with suppress(NumericalError):
            reach = epsilon_at(curve, min(share * task.delta, 0.9), Side.UPPER, gap=1e-3)
            break
    nodes = np.exp(np.linspace(0.0, _BEYOND * reach + 1e-9, _NODES))
    return upper_polygon(nodes, curve.delta(nodes))


def _joined(
    polygons: list[tuple[float, PolygonCurve]], rare: float, task: SubsetProblem
) -> tuple[PolygonCurve, list[tuple[float, float]]]:
    """Curve of the best split; and for each polygon its (K, δ) where that curve has the task's δ.

    ``rare`` is the total probability of the numbers of picks that have no polygon; for these
    numbers δ is bounded by 1.
    """
    remove = task.direction is Direction.REMOVE
    # Without picks K₀ = 1 and κ₀ = 1, as with a rare number of picks.
    never = rare + sum(chance for picks, chance in task.possible if picks == 0)
    # Polygons of each part in K or, for reverse hockey sticks κ·δ(1/κ), in κ = 1/K.
    places = [h * (part.nodes if remove else 1.0 / part.nodes) for h, part in polygons]
    values = [h * (part.values if remove else part.values / part.nodes) for h, part in polygons]
    # Their segments in the order of their slopes, the steepest first.
    widths = np.concatenate([np.diff(place) for place in places])
    falls = np.concatenate([-np.diff(value) for value in values])
    order = np.argsort(-falls / np.abs(widths), kind="stable")
    # Positions and values after each segment; sums of positive terms, rounded up.
    end = rare + math.fsum(float(value[-1]) for value in values)
    deltas = end + sums_from(np.append(falls[order], 0.0))
    if remove:
        nodes = np.append(0.0, np.cumsum(widths[order]))
        nodes += never + math.fsum(float(place[0]) for place in places)
    else:
        kappas = sums_from(np.append(-widths[order], 0.0))
        kappas += never + math.fsum(float(place[-1]) for place in places)
        nodes, deltas = 1.0 / kappas, deltas / kappas
    nodes[0] = 1.0  # before the first segment
    curve = PolygonCurve(
        np.maximum.accumulate(nodes) * (1.0 + _ROUNDING),
        np.minimum(deltas * (1.0 + _ROUNDING), 1.0),
    )
    # K and δ of each polygon where the whole is δ: its later segments are those after that point.
    below = np.flatnonzero(deltas <= task.delta)
    after = np.sort(order[int(below[0]) :]) if below.size else np.zeros(0, dtype=np.int64)
    splits, end = [], 0
    for _, part in polygons:
        first, end = end, end + part.nodes.size - 1
        left = int(np.count_nonzero((after >= first) & (after < end)))
        at = part.nodes.size - 1 - left
        splits.append((float(part.nodes[at]), float(part.values[at])))
    return curve, splits
