"""Windows under the replace-one relation, as blocks of a run.

`ReplacementBlock` is a window whose steps have a dominating pair, `LocalReplacementBlock` a window
whose steps are ε₀-private randomizers. `under_replacement` converts a run that compares a record
with its absence into one that compares two records. `Closeness` states which two of three cases the
pair compares: the client's record, another record, absence of the client. `decomposition` uses the
blocks; this module builds on `replace_one_expectations`. docs/design/replacement.md has the
notation and the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from turnout.accounting.divergence.blocks import Block, CurvePair, PairBlock
from turnout.accounting.divergence.curves import (
    BestCurve,
    Curve,
    Direction,
    PairCurve,
    PricedSide,
    Side,
    curve_through,
    epsilon_at,
    nodes_down_to,
    nodes_near,
)
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair, Pair, PurePair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.replace_one_events import (
    Lines,
    Part,
    event_lines,
    under_lines,
)
from turnout.accounting.participation.replace_one_expectations import (
    LocalSum,
    Planner,
    Sum,
    lower_bound,
    response_excess,
    sum_threshold,
    upper_bound,
    upper_excess,
)
from turnout.accounting.participation.replace_one_steps import (
    AntitheticStep,
    AnyTwoStep,
    OneStepCurve,
    Step,
)
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError, UnsupportedError

_DENSITY = 34.0  # nodes K of a composed curve, for each standard deviation of the loss
_EVENTS = 12.0  # values K₀ of a composed lower curve, for each standard deviation of the loss
_BESIDE = np.linspace(-2.0, 2.0, 17) / _EVENTS  # where lines are taken, in deviations of the loss
_LONGEST, _LONGEST_COMPOSED = 256, 96  # most ε₀-private steps that are bounded together
_RESPONSES = 3  # extreme distributions that can be the worst one in every step
# Relative rounding of the noise of the pair in closed form: that of the square root and quotient
# here, and that of `decomposition`, which makes such a window of k picks in 2k steps.
_ROUNDED = 16 * UNIT_ROUNDOFF
_NEARLY = 0.995  # a lower bound of at least this part of the upper bound is good enough
_REACHED = 0.9  # curves reach down to this part of the δ at which they may be cut off


class Closeness(StrEnum):
    """Which two of three cases a dominating pair compares: a record, another record, absence."""

    TO_ABSENCE = "to-absence"
    """Each record against the null record: a trusted sum plus noise."""
    ANY_TWO = "any-two"
    """Any two of the three; a message of another client, randomized alike, stands for absence."""


@dataclass(frozen=True, slots=True)
class ReplacementBlock:
    """Window in which a client takes part in one uniform step, with one of two records.

    Source: docs/design/replacement.md. With ``TO_ABSENCE`` the curve is exact where the two records
    can shift the output of a step in opposite directions by the full sensitivity (Gaussian, Laplace
    and other symmetric log-concave noise), and an upper bound otherwise. With ``ANY_TWO`` the curve
    is an upper bound; the lower curve is δ of an attack in which all other clients make their
    messages from the other record.

    Attributes:
        pair: dominating pair of one step.
        window: t, steps of the window.
        probability: p₀, the probability that the client takes part at all.
        closeness: which two of record, other record and absence the pair compares.
        infinity_mass: probability of an output that only the client's participation can produce.

    Raises:
        ParameterError: the window, the probability or the infinity mass is out of range.
    """

    pair: Pair
    window: int
    probability: float = 1.0
    closeness: Closeness = Closeness.TO_ABSENCE
    infinity_mass: float = 0.0

    def __post_init__(self) -> None:
        checks.count(window=self.window)
        checks.probability(infinity_mass=self.infinity_mass)
        if self.infinity_mass == 1.0:
            raise ParameterError("infinity_mass", self.infinity_mass, "a number in [0, 1)")
        checks.probability(probability=self.probability)
        checks.positive(probability=self.probability)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, at most p₀."""
        reach = 4.0 if self.closeness is Closeness.TO_ABSENCE else 1.0
        variance = reach * max(self.pair.second_moment - 1.0, 0.0) / self.window
        return self.probability * min(1.0, math.sqrt(variance))

    def delta(self, k: float, side: Side, refinement: int = 0) -> float:
        """Upper or lower bound on δ at one K = e^ε ≥ 1, for the worst pair of records."""
        if side is Side.LOWER:
            return max(_LowerLines(self, refinement)(k), _DeltaBounds(self, refinement)(k, side))
        return _DeltaBounds(self, refinement)(k, side)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve that is sharp near one δ; only lower curves of ``ANY_TWO`` use the direction."""
        if side is Side.LOWER and self.closeness is Closeness.ANY_TWO:
            return self._reference_is_other.curve(direction, side, delta, refinement)
        if (closed := self._closed(side)) is not None:
            return closed
        bounds = _DeltaBounds(self, refinement)
        if side is Side.UPPER:
            return _near(bounds, side, delta, self.loss_deviation)
        return _lower_near(self, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are sharp from δ = 1 down to `floor` + ``delta``; the rest may be cut off."""
        if side is Side.LOWER and self.closeness is Closeness.ANY_TWO:
            return self._reference_is_other.curves(side, delta, refinement)
        make = _pair_curve if side is Side.UPPER else _lines_curve
        curve = self._closed(side) or make(self, delta, refinement)
        return CurvePair(side, [curve], [curve], (self.floor, self.floor))

    def _closed(self, side: Side) -> Curve | None:
        """Curve in closed form: for one step, and for two steps with Gaussian noise."""
        if self.closeness is not Closeness.TO_ABSENCE:
            return None
        if self.window == 1:
            return OneStepCurve(self.pair, self.probability, self.infinity_mass, side)
        surely = self.probability == 1.0 and self.infinity_mass == 0.0
        if self.window == 2 and surely and isinstance(self.pair, GaussianPair):
            # dP/dP' = X₁X₂e^{μ²} is lognormal: the ratio of a pair whose distance is √2·μ.
            apart = self.pair.noise_multiplier / math.sqrt(2.0)
            toward = -_ROUNDED if side is Side.UPPER else _ROUNDED
            return PairCurve(GaussianPair(apart * (1.0 + toward)), Direction.REMOVE, side)
        return None

    @property
    def _reference_is_other(self) -> AllocationBlock:
        return AllocationBlock(self.pair, self.window, self.probability, self.infinity_mass)

    @property
    def floor(self) -> float:
        """Limit of δ as ε → ∞: the probability of outputs that prove the client's record."""
        floor = self.infinity_mass
        if self.probability == 1.0 and self.closeness is Closeness.TO_ABSENCE:
            # X' is 0 in all steps; in the client's own step that is where X is largest.
            zero = float(self.pair.q_below(np.array(0.0)))
            if zero > 0:
                step = AntitheticStep(self.pair, 1e12)
                present = float(step.upper(np.array([0.0]))[0])
                floor += (1.0 - self.infinity_mass) * present * zero ** (self.window - 1)
        return self.probability * floor * (1.0 - 1e-10)


@dataclass(frozen=True, slots=True)
class LocalReplacementBlock:
    """Window of check-ins whose randomizers are ε₀-private without any amplification.

    Source: docs/design/replacement.md. The upper bound is the supremum over all ε₀-private
    randomizers, each of which may depend on all earlier releases. For windows of at most 256 steps
    the upper bound is exact up to the errors of the grid. The lower bound is the largest δ of three
    randomized responses.

    Attributes:
        epsilon0: ε₀ > 0 of each randomizer.
        window: t, steps of the window.
        probability: p₀, the probability that the client takes part at all.

    Raises:
        ParameterError: ε₀, the window or the probability is out of range.
    """

    epsilon0: float
    window: int
    probability: float = 1.0

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0, probability=self.probability)
        checks.count(window=self.window)
        checks.probability(probability=self.probability)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, at most p₀."""
        a = math.exp(self.epsilon0)
        variance = (a - 1.0) ** 2 * max(1.0 / a, 2.0 / (a + 2.0)) / self.window
        return self.probability * min(1.0, math.sqrt(variance))

    def delta(self, k: float, side: Side, refinement: int = 0, *, longest: int = _LONGEST) -> float:
        """Upper or lower bound on δ at one K = e^ε ≥ 1, for the worst pair of records."""
        return _local_delta(self, k, side, refinement, longest)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve that is sharp near one δ; both directions have the same curve."""
        if side is Side.UPPER:
            return _near(
                lambda k, s: self.delta(k, s, refinement), side, delta, self.loss_deviation
            )
        candidates = [
            _near(partial(_response_delta, self, response), side, delta, self.loss_deviation)
            for response in range(_RESPONSES)
        ]
        return max(candidates, key=lambda curve: epsilon_at(curve, delta, side))

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions, sharp from δ = 1 down to ``delta``; the rest may be cut off.

        A lower curve belongs to one randomizer at all K: the composition of a curve that is the
        maximum over several randomizers need not be below the δ of any randomizer.
        """
        curve = _local_curve(self, side, delta, refinement)
        return CurvePair(side, [curve], [curve])


def under_replacement(
    run: Sequence[tuple[Block, int]], closeness: Closeness = Closeness.TO_ABSENCE
) -> list[tuple[Block, int]]:
    """Blocks that compare two records, from blocks that compare a record with its absence.

    Windows, Poisson steps and steps without a draw are converted. A k-subset must be given as the k
    windows whose composition bounds it. This is valid since the cut of the steps into windows does
    not depend on the record.

    Args:
        run: blocks, each with the number of times that it occurs, valid for every record.
        closeness: which two of record, other record and absence the pairs compare.

    Returns:
        Pairs (block, number of times that it occurs). Upper curves are never below δ for any two
        records.

    Raises:
        UnsupportedError: a block is neither a window (`AllocationBlock`) nor a step (`PairBlock`).
    """
    return [(_replaced(block, closeness), count) for block, count in run]


def _replaced(block: Block, closeness: Closeness) -> Block:
    if isinstance(block, AllocationBlock):
        window = block.window
    elif isinstance(block, PairBlock):
        window = 1
    else:
        raise UnsupportedError(f"no bound under replace-one is known for a {type(block).__name__}")
    pair, probability = block.pair, block.probability
    if isinstance(pair, PurePair) and pair.delta0 == 0 and closeness is Closeness.ANY_TWO:
        return LocalReplacementBlock(pair.epsilon0, window, probability)
    return ReplacementBlock(pair, window, probability, closeness, block.infinity_mass)


class _DeltaBounds:
    """Bounds on δ of a `ReplacementBlock` by K and side; each bound is computed only once."""

    def __init__(self, block: ReplacementBlock, refinement: int, *, composed: bool = False) -> None:
        self._block, self._refinement = block, refinement
        self._known: dict[tuple[float, Side], float] = {}
        self._planner, self._composed = Planner(), composed
        self._guess: float | None = None

    def __call__(self, k: float, side: Side) -> float:
        if (k, side) not in self._known:
            self._known[k, side] = self._delta(k, side)
        return self._known[k, side]

    def _delta(self, k: float, side: Side) -> float:
        # The distribution of one step that is worst for the given closeness.
        block = self._block
        if block.closeness is Closeness.TO_ABSENCE:
            step: Step = AntitheticStep(block.pair, k)
        elif side is Side.UPPER:
            step = AnyTwoStep(block.pair, k, block.infinity_mass)
        else:
            raise UnsupportedError(
                "closeness = any-two: no lower bound on delta at a single K; use the lower curve"
            )
        # The sum over the window, given that no output has an infinite likelihood ratio.
        threshold = sum_threshold(k, block.window, block.probability)
        infinity_mass = block.infinity_mass if block.closeness is Closeness.TO_ABSENCE else 0.0
        total = Sum(step, block.window, threshold / (1.0 - infinity_mass))
        # Bound on its excess; the upper bound starts from the last result.
        if side is Side.UPPER:
            value = upper_bound(
                total, self._guess, self._refinement, self._planner, composed=self._composed
            )
            self._guess = value if 0 < value < math.inf else None
        else:
            value = lower_bound(total, self._refinement, self._planner)
        return min(block.probability * (infinity_mass + (1.0 - infinity_mass) * value), 1.0)


class _LowerLines:
    """Lower bounds on δ of a block under an attack, from lines of events chosen at some K₀."""

    def __init__(self, block: ReplacementBlock, refinement: int) -> None:
        self._block, self._refinement = block, refinement
        self._lines: dict[float, Lines] = {}
        self._guess: float | None = None

    def __call__(self, k: float, side: Side = Side.LOWER) -> float:
        """Lower bound on δ at K: the largest P(E) − K·Q(E) of events E that are chosen for K."""
        block = self._block
        if k not in self._lines:
            self._lines[k] = event_lines(
                AntitheticStep(block.pair, k),
                Part(block.window, block.probability, block.infinity_mass),
                self._near(np.array([k])),
                self._guess,
                self._refinement,
            )
        value = float(self._lines[k].at(np.array([k])).max())
        self._guess = value / block.probability if value > 0 else None
        return max(value, block.floor, 0.0)

    def curve(self) -> Curve:
        """Lower curve from the lines of all K₀ at which a bound was computed so far."""
        near = self._near(np.array(list(self._lines)))
        return under_lines(list(self._lines.values()), near, self._block.floor)

    def _near(self, k: FloatArray) -> FloatArray:
        """Values of K ≥ 1, around given K₀, at which lines of events should be close to δ."""
        return np.unique(np.maximum(np.outer(k, np.exp(self._block.loss_deviation * _BESIDE)), 1.0))


@remembered
def _local_delta(
    block: LocalReplacementBlock, k: float, side: Side, refinement: int, longest: int
) -> float:
    if side is Side.LOWER:
        return max(_response_delta(block, response, k, side) for response in range(_RESPONSES))
    value = upper_excess(_local_sum(block, k), longest << refinement, refinement)
    return min(block.probability * value, 1.0)


@remembered
def _response_delta(block: LocalReplacementBlock, response: int, k: float, side: Side) -> float:
    """Upper or lower bound on δ if one randomized response is used in every step."""
    value = response_excess(_local_sum(block, k), response, side)
    return min(block.probability * value, 1.0)


def _local_sum(block: LocalReplacementBlock, k: float) -> LocalSum:
    threshold = sum_threshold(k, block.window, block.probability)
    return LocalSum(block.epsilon0, k, block.window, threshold)


def _near(priced: PricedSide, side: Side, delta: float, loss_deviation: float) -> Curve:
    return curve_through(priced, nodes_near(priced, side, delta, loss_deviation), side)


@remembered
def _pair_curve(block: ReplacementBlock, delta: float, refinement: int) -> Curve:
    priced, density = _DeltaBounds(block, refinement, composed=True), _DENSITY * 2**refinement
    cut = block.floor * (1.0 + 1e-9) + _REACHED * delta
    nodes = nodes_down_to(priced, cut, block.loss_deviation, density)
    return curve_through(priced, nodes, Side.UPPER)


@remembered
def _lines_curve(block: ReplacementBlock, delta: float, refinement: int) -> Curve:
    lines, density = _LowerLines(block, refinement), _EVENTS * 2**refinement
    cut = block.floor * (1.0 + 1e-9) + _REACHED * delta
    nodes_down_to(lines, cut, block.loss_deviation, density)
    return lines.curve()


def _lower_near(block: ReplacementBlock, delta: float, refinement: int) -> Curve:
    """Lower curve of one window, sharp near one δ."""
    lines, bounds = _LowerLines(block, refinement), _DeltaBounds(block, refinement)
    k = float(nodes_near(lines, Side.UPPER, delta, block.loss_deviation)[-1])
    # With heavy tails the lines may lie far below δ; then sums with one jump are tried as well.
    if lines(k) >= _NEARLY * bounds(k, Side.UPPER):
        return lines.curve()
    return BestCurve(
        Side.LOWER, [lines.curve(), _near(bounds, Side.LOWER, delta, block.loss_deviation)]
    )


@remembered
def _local_curve(block: LocalReplacementBlock, side: Side, delta: float, refinement: int) -> Curve:
    density = _DENSITY * 2**refinement
    # Upper: the supremum over randomizers at each node.
    if side is Side.UPPER:

        def priced(k: float, s: Side) -> float:
            return block.delta(k, s, refinement, longest=_LONGEST_COMPOSED)

        nodes = nodes_down_to(priced, _REACHED * delta, block.loss_deviation, density)
        return curve_through(priced, nodes, side)
    # Lower: at all nodes the same randomized response, the one with the largest ε at δ.
    roots = [
        nodes_near(
            partial(_response_delta, block, response), Side.LOWER, delta, block.loss_deviation
        )[-1]
        for response in range(_RESPONSES)
    ]
    best = partial(_response_delta, block, int(np.argmax(roots)))
    return curve_through(
        best, nodes_down_to(best, _REACHED * delta, block.loss_deviation, density), side
    )
