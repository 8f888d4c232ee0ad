"""Neighbour bounds of participation: a client's presence against its absence, by the draw.

Local trust: messages that everybody sees with their senders, each private on its own.

Whether a client takes part is seen, so no participation hides it, but a client that may not come
has nothing to hide then: a step in which it comes with probability r has r times its message's δ,
and steps whose draws are independent compose.
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

_MOST_SUBSETS = 10**7  # composing the bounds of more takes long, and no run has as many


def blocks_of(part: ReleasedSteps, upper: DominatingPair, lower: DominatingPair) -> NeighbourBound:
    """A client's presence against its absence in the steps that one draw decided.

    ``upper`` is what one step shows at the largest sensitivity, ``lower`` what is really attained.
    """
    draw, full, rest = part
    bound = NEIGHBOUR_BOUNDS[draw]
    above = bound.run(draw, upper, full, rest, Side.UPPER)
    below = bound.run(draw, lower, full, rest, Side.LOWER)
    return NeighbourBound(above, below, bound.method, bound.tight)


def _every_step(draw: Always, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    return repeated(worst, full)


def _coins(draw: Bernoulli, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    return [(PairBlock(worst.pair, draw.rate, worst.infinity_mass), full)] if draw.rate > 0 else []


def _one_of(draw: OneOf, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    # In a begun window the client has come so far with probability p₀·rest/window, then uniformly.
    begun = (rest, draw.probability * rest / draw.steps, 1 if rest else 0)
    return _windows(worst, (draw.steps, draw.probability, full), begun)


def _kept(draw: Kept, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    window, probability = draw.slot.steps, draw.slot.probability
    epochs, left = divmod(rest, window)
    # Of a begun epoch the client has taken part in at most the whole and at least nothing.
    begun = epochs + (side is Side.UPPER and epochs > 0 and left > 0)
    run: list[tuple[Block, int]] = []
    for times, count in ((draw.epochs, full), (begun, 1)):
        if probability > 0 and times and count:
            run += _windows(_summed(worst, times), (window, probability, count))
    first = (left, probability * left / window, 0 if epochs else 1)
    return [*run, *_windows(worst, first)]


def _summed(worst: DominatingPair, times: int) -> DominatingPair:
    """The pair of a slot that is held ``times`` times: Gaussian ratios multiply to a Gaussian's."""
    if times == 1:
        return worst
    if not isinstance(worst.pair, GaussianPair):
        raise UnsupportedError("a slot kept over several epochs is priced for Gaussian noise only")
    return DominatingPair(GaussianPair(worst.pair.noise_multiplier / times**0.5))


def _staggered(draw: Staggered, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    whole, begun = min(draw.steps, draw.window), min(rest, draw.window)
    counts = ((whole, full), (begun, 1 if begun else 0))
    return _windows(worst, *((n, n / draw.window, count) for n, count in counts))


def _k_of(draw: KOf, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    from turnout.accounting.participation.k_subset import (
        SubsetBlock,
    )  # a room that few schemes need

    count = full + (side is Side.UPPER and rest > 0)
    if count > _MOST_SUBSETS:
        raise UnsupportedError(
            f"more than {_MOST_SUBSETS:,} windows of k-subsets have no price here"
        )
    block = SubsetBlock(worst.pair, draw.steps, draw.picks, 1.0, worst.infinity_mass)
    return [(block, count)] if count else []


class _Analysis(NamedTuple):
    """The run of so many whole blocks and steps of one that was begun, and its analysis."""

    run: Callable[[Any, DominatingPair, int, int, Side], Run]
    method: str
    tight: bool = True


NEIGHBOUR_BOUNDS: DrawTable[_Analysis] = DrawTable(
    "an analysis",
    {
        Always: _Analysis(_every_step, "every step, no amplification, exact"),
        Bernoulli: _Analysis(_coins, "Poisson-subsampled steps, composed as PLD"),
        OneOf: _Analysis(_one_of, "exact law of random allocation, windows composed as PLD"),
        KOf: _Analysis(
            _k_of,
            "k-subset by one statistic of its steps, below the bound of k windows",
            tight=False,
        ),
        Kept: _Analysis(_kept, "exact law of random allocation, one slot kept in all epochs"),
        Staggered: _Analysis(_staggered, "exact law of random allocation in its own window"),
    },
)
"""Presence against absence of a client, by the draw.

`Cohort` fixes how many come, so that nobody is just absent, and of `OneOfOwn` each
client has a price of its own (`window_bound`).
"""


def window_bound(
    upper: DominatingPair, lower: DominatingPair, sizes: Sequence[int], probability: float
) -> NeighbourBound:
    """The bound of one client of an availability law, by its number of steps in each window."""
    counts = sorted(Counter(size for size in sizes if size > 0).items())
    above, below = (
        _windows(worst, *((size, probability, n) for size, n in counts)) for worst in (upper, lower)
    )
    return NeighbourBound(above, below, "exact law of random allocation in its own windows")


def _windows(worst: DominatingPair, *windows: tuple[int, float, int]) -> Run:
    """The blocks of windows, by their steps, the chance to come in one, and their number."""
    return [
        (AllocationBlock(worst.pair, steps, chance, worst.infinity_mass), count)
        for steps, chance, count in windows
        if chance > 0 and count
    ]


def repeated(worst: DominatingPair, times: int) -> Run:
    """The same step again and again; Gaussians add up to one."""
    if times and isinstance(worst.pair, GaussianPair):
        return [(PairBlock(GaussianPair(worst.pair.noise_multiplier / times**0.5)), 1)]
    return [(PairBlock(worst.pair, 1.0, worst.infinity_mass), times)] if times else []


_LARGEST_HINT = 0.5
METHOD = "each message by itself, composed as PLD; who sends is seen"


@dataclass(frozen=True, slots=True, eq=False)
class SeenCurve:
    """r times a curve."""

    base: Curve
    rate: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1."""
        rounding = 4.0 * UNIT_ROUNDOFF * (1.0 if self.side is Side.UPPER else -1.0)
        return self.rate * self.base.delta(k) * (1.0 + rounding)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        return self.rate * self.base.slope(k)


@dataclass(frozen=True, slots=True)
class SeenBlock:
    """A step in which a client sends messages with a probability, which are seen if it does.

    Attributes:
        base: of the messages of a step.
        rate: r, above 0.
    """

    base: Block
    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)
        checks.probability(rate=self.rate)

    @property
    def loss_deviation(self) -> float:
        """About the standard deviation of the privacy loss."""
        return math.sqrt(self.rate) * self.base.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """A curve that is as sharp as the base's near one δ."""
        seen = self.base.curve(direction, side, min(_LARGEST_HINT, delta / self.rate), refinement)
        return SeenCurve(seen, self.rate, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are as sharp as the base's from 1 down to δ/r."""
        base = self.base.curves(side, min(_LARGEST_HINT, delta / self.rate), refinement)
        remove, add = (
            [SeenCurve(curve, self.rate, side) for curve in curves]
            for curves in (base.remove, base.add)
        )
        return CurvePair(
            side, remove, add, (self.rate * base.floors[0], self.rate * base.floors[1])
        )


class _Step(NamedTuple):
    """The messages of a step in which a client takes part: one's pair, and how many there are."""

    worst: DominatingPair
    messages: int

    @property
    def block(self) -> Block:
        """All of them."""
        one = PairBlock(self.worst.pair, infinity_mass=self.worst.infinity_mass)
        return one if self.messages == 1 else RepeatedBlock(one, self.messages)


def seen_blocks(
    part: ReleasedSteps, worst: DominatingPair, attained: bool, messages: int = 1
) -> NeighbourBound:
    """Two records of a client whose messages are seen with its name.

    Args:
        part: the draw, and how much of it is released.
        worst: the pair that dominates one message.
        attained: whether two records have this pair, so that it is a lower bound too.
        messages: of a step in which the client takes part.
    """
    draw, full, rest = part
    run, step = _MESSAGES[draw], _Step(worst, messages)
    upper = run(draw, full, rest, step, Side.UPPER)
    lower = run(draw, full, rest, step, Side.LOWER) if attained else []
    return NeighbourBound(upper, lower, METHOD, tight=attained)


def _seen_every_step(draw: Always, full: int, rest: int, step: _Step, side: Side) -> Run:
    return repeated(step.worst, full * step.messages)


def _seen_coins(draw: Bernoulli, full: int, rest: int, step: _Step, side: Side) -> Run:
    return _sent(step, (draw.rate, full))


def _cohorts(draw: Cohort, full: int, rest: int, step: _Step, side: Side) -> Run:
    return _sent(step, (draw.size / draw.population, full))


def _seen_windows(draw: OneOf, full: int, rest: int, step: _Step, side: Side) -> Run:
    chances = (draw.probability, full), (draw.probability * rest / draw.steps, 1)
    return _sent(step, *chances)


def _subsets(draw: KOf, full: int, rest: int, step: _Step, side: Side) -> Run:
    # Of a begun window at most k messages are sent, and at least none.
    begun = min(rest, draw.picks) if side is Side.UPPER else 0
    return repeated(step.worst, (full * draw.picks + begun) * step.messages)


def _sent(step: _Step, *chances: tuple[float, int]) -> Run:
    """Steps whose messages are sent with so much chance each, so often."""
    return [(SeenBlock(step.block, rate), count) for rate, count in chances if rate > 0 and count]


_MESSAGES: DrawTable[Callable[[Any, int, int, _Step, Side], Run]] = DrawTable(
    "the price of messages that are seen with their senders",
    {
        Always: _seen_every_step,
        Bernoulli: _seen_coins,
        Cohort: _cohorts,
        OneOf: _seen_windows,
        KOf: _subsets,
    },
)
