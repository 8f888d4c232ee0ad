"""Blocks of a client's draw of steps, with one analysis for each kind of draw.

`blocks_of` compares the presence of a client with its absence in the steps that one draw covers, if
participation is hidden. `window_bound` makes the same comparison for a client of an availability
trace. `observed_blocks` compares two records of a client under local trust. Each of these functions
returns a `NeighbourBound`. `decomposition` calls these functions. The blocks are those of this
package (`check_ins`, `k_subset`) and of `divergence`.

**Local trust.** Every message is visible with its sender, and has to be private on its own.
Participation is visible too, so it gives no amplification. A client that does not take part
discloses nothing about its record. So a step in which the client takes part with probability r has
r times the δ of the client's message. Steps whose draws are independent are composed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnout.accounting.divergence.blocks import Block, CurvePair, NeighbourBound, PairBlock, Run
from turnout.accounting.divergence.composition import RepeatedBlock
from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.dominating_pairs import DominatingPair
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import UnsupportedError
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    Cohort,
    DrawTable,
    Kept,
    KOf,
    OneOf,
    ReleasedSteps,
    Staggered,
)

_MOST_SUBSETS = 10**7  # more windows take long to compose, and no run has as many


def blocks_of(part: ReleasedSteps, upper: DominatingPair, lower: DominatingPair) -> NeighbourBound:
    """Neighbour bound of a client against its absence in the steps that one draw covers.

    Args:
        part: the draw, its number of whole windows (or steps), and the number of released steps of
            a window that has begun but not ended.
        upper: pair of one step at the largest sensitivity, for the upper bound.
        lower: pair that some client attains, for the lower bound.

    Raises:
        UnsupportedError: no analysis of this draw is known.
    """
    draw, full, rest = part
    bound = NEIGHBOUR_BOUNDS[draw]
    above = bound.run(draw, upper, full, rest, Side.UPPER)
    below = bound.run(draw, lower, full, rest, Side.LOWER)
    return NeighbourBound(above, below, bound.method, bound.tight)


def _every_step(draw: Always, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    return repeated(worst, full)


def _independent(draw: Bernoulli, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    return [(PairBlock(worst.pair, draw.rate, worst.infinity_mass), full)] if draw.rate > 0 else []


def _one_of(draw: OneOf, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    # In a begun window the client has taken part with probability p₀·rest/window, in a uniform
    # step.
    begun = (rest, draw.probability * rest / draw.steps, 1 if rest else 0)
    return _windows(worst, (draw.steps, draw.probability, full), begun)


def _kept(draw: Kept, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    window, probability = draw.slot.steps, draw.slot.probability
    epochs, left = divmod(rest, window)
    # A begun epoch counts as a whole one for the upper bound and as none for the lower one.
    begun = epochs + (side is Side.UPPER and epochs > 0 and left > 0)
    run: list[tuple[Block, int]] = []
    for times, count in ((draw.epochs, full), (begun, 1)):
        if probability > 0 and times and count:
            run += _windows(_summed(worst, times), (window, probability, count))
    first = (left, probability * left / window, 0 if epochs else 1)
    return [*run, *_windows(worst, first)]


def _summed(worst: DominatingPair, times: int) -> DominatingPair:
    """Gaussian pair of the sum of ``times`` Gaussian messages that a client sends in one slot."""
    if times == 1:
        return worst
    if not isinstance(worst.pair, GaussianPair):
        raise UnsupportedError(
            "slots that clients keep over several epochs have an analysis for Gaussian noise only"
        )
    return DominatingPair(GaussianPair(worst.pair.noise_multiplier / times**0.5))


def _staggered(draw: Staggered, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    whole, begun = min(draw.steps, draw.window), min(rest, draw.window)
    counts = ((whole, full), (begun, 1 if begun else 0))
    return _windows(worst, *((n, n / draw.window, count) for n, count in counts))


def _k_of(draw: KOf, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    # Imported here, since few schemes need the modules.
    from turnout.accounting.participation.k_subset import SubsetBlock
    from turnout.accounting.participation.k_subset_begun import BegunSubsetBlock

    if full > _MOST_SUBSETS:
        raise UnsupportedError(
            f"number of k-subset windows = {full:,}: expected at most {_MOST_SUBSETS:,}"
        )
    # All complete windows.
    window, picks = draw.steps, draw.picks
    block = SubsetBlock(worst.pair, window, picks, 1.0, worst.infinity_mass)
    run: list[tuple[Block, int]] = [(block, full)] if full else []
    # The begun window: its first step, all of its steps or one check-in are exact.
    if rest == 1:
        return [*run, (PairBlock(worst.pair, picks / window, worst.infinity_mass), 1)]
    if rest and picks == window:
        return [*run, *repeated(worst, rest)]
    if rest and picks == 1:
        return [*run, *_windows(worst, (rest, rest / window, 1))]
    begun = BegunSubsetBlock(worst.pair, window, picks, rest, worst.infinity_mass) if rest else None
    return run if begun is None else [*run, (begun, 1)]


class _Analysis(NamedTuple):
    """Analysis of one kind of draw.

    Attributes:
        run: function that returns the blocks, given among others the number of whole windows (or
            steps) and the number of released steps of a window that has begun.
        method: name of the analysis in results.
        tight: whether the upper and the lower bound differ only by numerical errors.
    """

    run: Callable[[Any, DominatingPair, int, int, Side], Run]
    method: str
    tight: bool = True


NEIGHBOUR_BOUNDS: DrawTable[_Analysis] = DrawTable(
    "an analysis",
    {
        Always: _Analysis(_every_step, "every step, no amplification, exact"),
        Bernoulli: _Analysis(_independent, "Poisson-subsampled steps, composed as PLD"),
        OneOf: _Analysis(
            _one_of, "exact distribution of random allocation, windows composed as PLD"
        ),
        KOf: _Analysis(
            _k_of,
            "k-subset by one statistic of its steps, below the bound of k windows",
            tight=False,
        ),
        Kept: _Analysis(
            _kept, "exact distribution of random allocation, one slot kept in all epochs"
        ),
        Staggered: _Analysis(
            _staggered, "exact distribution of random allocation in its own window"
        ),
    },
)
"""Analyses of the presence of a client against its absence, by the draw.

Two draws have no entry. `Cohort` fixes the number of participants, so one client cannot be absent
while all others are unchanged.
With `OneOfOwn` each client has its own windows (`window_bound`).
"""


def window_bound(
    upper: DominatingPair, lower: DominatingPair, sizes: Sequence[int], probability: float
) -> NeighbourBound:
    """Neighbour bound of one client of an availability trace, from the sizes of its windows.

    Args:
        upper: pair of one step at the largest sensitivity, for the upper bound.
        lower: pair that some client attains, for the lower bound.
        sizes: number of the client's own steps in each window.
        probability: probability that the client takes part in a window.
    """
    counts = sorted(Counter(size for size in sizes if size > 0).items())
    above, below = (
        _windows(worst, *((size, probability, n) for size, n in counts)) for worst in (upper, lower)
    )
    method = "exact distribution of random allocation in its own windows"
    return NeighbourBound(above, below, method)


def _windows(worst: DominatingPair, *windows: tuple[int, float, int]) -> Run:
    """Blocks from triples (steps of a window, probability of participation, number of windows)."""
    return [
        (AllocationBlock(worst.pair, steps, chance, worst.infinity_mass), count)
        for steps, chance, count in windows
        if chance > 0 and count
    ]


def repeated(worst: DominatingPair, times: int) -> Run:
    """Run of ``times`` equal steps; Gaussian steps are merged into one Gaussian step."""
    if times and isinstance(worst.pair, GaussianPair):
        return [(PairBlock(GaussianPair(worst.pair.noise_multiplier / times**0.5)), 1)]
    return [(PairBlock(worst.pair, 1.0, worst.infinity_mass), times)] if times else []


_LARGEST_HINT = 0.5
METHOD = "each message by itself, composed as PLD; senders are visible"


@dataclass(frozen=True, slots=True, eq=False)
class ObservedCurve:
    """Curve of a step with visible participation: r times the curve of the client's messages.

    Attributes:
        base: curve of the messages that the client sends in one step.
        rate: r, the probability that the client takes part in the step.
        side: side to which rounding errors move the bound.
    """

    base: Curve
    rate: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        rounding = 4.0 * UNIT_ROUNDOFF * (1.0 if self.side is Side.UPPER else -1.0)
        return self.rate * self.base.delta(k) * (1.0 + rounding)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        return self.rate * self.base.slope(k)


@dataclass(frozen=True, slots=True)
class ObservedBlock:
    """Step in which a client sends messages with probability r, and the sender is visible.

    Attributes:
        base: block of the messages that the client sends in one step.
        rate: r, in (0, 1].

    Raises:
        ParameterError: the rate is outside (0, 1].
    """

    base: Block
    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)
        checks.probability(rate=self.rate)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss."""
        return math.sqrt(self.rate) * self.base.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of the step, as sharp near one δ as the curve of its messages."""
        observed = self.base.curve(
            direction, side, min(_LARGEST_HINT, delta / self.rate), refinement
        )
        return ObservedCurve(observed, self.rate, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions, from the messages' curves that are sharp from δ = 1 to δ/r."""
        base = self.base.curves(side, min(_LARGEST_HINT, delta / self.rate), refinement)
        remove, add = (
            [ObservedCurve(curve, self.rate, side) for curve in curves]
            for curves in (base.remove, base.add)
        )
        return CurvePair(
            side, remove, add, (self.rate * base.floors[0], self.rate * base.floors[1])
        )


class _Step(NamedTuple):
    """Step in which a client takes part: dominating pair of a message, and number of messages."""

    worst: DominatingPair
    messages: int

    @property
    def block(self) -> Block:
        """Block of all messages of the step."""
        one = PairBlock(self.worst.pair, infinity_mass=self.worst.infinity_mass)
        return one if self.messages == 1 else RepeatedBlock(one, self.messages)


def observed_blocks(
    part: ReleasedSteps, worst: DominatingPair, attained: bool, messages: int = 1
) -> NeighbourBound:
    """Neighbour bound of two records of a client whose messages are visible with their sender.

    Args:
        part: the draw, its number of whole windows (or steps), and the number of released steps of
            a window that has begun but not ended.
        worst: the pair that dominates one message.
        attained: whether two records attain the pair ``worst``; if not, the lower bound is 0.
        messages: number of messages that the client sends in a step in which it takes part.

    Raises:
        UnsupportedError: no analysis of this draw is known.
    """
    draw, full, rest = part
    run, step = _MESSAGES[draw], _Step(worst, messages)
    upper = run(draw, full, rest, step, Side.UPPER)
    lower = run(draw, full, rest, step, Side.LOWER) if attained else []
    return NeighbourBound(upper, lower, METHOD, tight=attained)


def _observed_every_step(draw: Always, full: int, rest: int, step: _Step, side: Side) -> Run:
    return repeated(step.worst, full * step.messages)


def _observed_independent(draw: Bernoulli, full: int, rest: int, step: _Step, side: Side) -> Run:
    return _sent(step, (draw.rate, full))


def _cohorts(draw: Cohort, full: int, rest: int, step: _Step, side: Side) -> Run:
    return _sent(step, (draw.size / draw.population, full))


def _observed_windows(draw: OneOf, full: int, rest: int, step: _Step, side: Side) -> Run:
    chances = (draw.probability, full), (draw.probability * rest / draw.steps, 1)
    return _sent(step, *chances)


def _subsets(draw: KOf, full: int, rest: int, step: _Step, side: Side) -> Run:
    # In a begun window at most k messages are sent (upper), and possibly none (lower).
    begun = min(rest, draw.picks) if side is Side.UPPER else 0
    return repeated(step.worst, (full * draw.picks + begun) * step.messages)


def _sent(step: _Step, *chances: tuple[float, int]) -> Run:
    """Run of steps, from pairs (probability that the client sends, number of such steps)."""
    return [
        (ObservedBlock(step.block, rate), count) for rate, count in chances if rate > 0 and count
    ]


_MESSAGES: DrawTable[Callable[[Any, int, int, _Step, Side], Run]] = DrawTable(
    "a bound for messages that are visible with their senders",
    {
        Always: _observed_every_step,
        Bernoulli: _observed_independent,
        Cohort: _cohorts,
        OneOf: _observed_windows,
        KOf: _subsets,
    },
)
