"""Neighbour bounds of participation, one implementation a kind of draw.

`blocks_of` bounds a client's presence against its absence in the steps that one draw decided, where
participation is hidden; `window_bound` does so for a client of an availability trace. `seen_blocks`
bounds two records of a client under local trust. `decomposition` calls them; they build on the
blocks of this package (`check_ins`, `k_subset`) and of `divergence`.

**Local trust.** Every message is visible with its sender and is private on its own. Participation
is visible too, so it hides nothing, but a client that does not take part discloses nothing: a step
in which it takes part with probability r has r times its message's δ, and steps whose draws are
independent compose.
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

_MOST_SUBSETS = 10**7  # composing the bounds of more is slow; no run has as many


def blocks_of(part: ReleasedSteps, upper: DominatingPair, lower: DominatingPair) -> NeighbourBound:
    """Neighbour bound of a client against its absence in the steps that one draw decided.

    ``upper`` is the pair of one step at the largest sensitivity, ``lower`` the pair that some
    client attains.
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
    # In a begun window the client has taken part with probability p₀·rest/window, uniformly.
    begun = (rest, draw.probability * rest / draw.steps, 1 if rest else 0)
    return _windows(worst, (draw.steps, draw.probability, full), begun)


def _kept(draw: Kept, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    window, probability = draw.slot.steps, draw.slot.probability
    epochs, left = divmod(rest, window)
    # Of a begun epoch the client has taken part in at most the whole and at least no step.
    begun = epochs + (side is Side.UPPER and epochs > 0 and left > 0)
    run: list[tuple[Block, int]] = []
    for times, count in ((draw.epochs, full), (begun, 1)):
        if probability > 0 and times and count:
            run += _windows(_summed(worst, times), (window, probability, count))
    first = (left, probability * left / window, 0 if epochs else 1)
    return [*run, *_windows(worst, first)]


def _summed(worst: DominatingPair, times: int) -> DominatingPair:
    """Pair of a slot that is held ``times`` times: Gaussian ratios multiply to a Gaussian's."""
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
    """Analysis of one kind of draw: its run, by whole blocks and steps of a begun one, its name."""

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
    """Neighbour bound of one client of an availability trace, by its steps in each window."""
    counts = sorted(Counter(size for size in sizes if size > 0).items())
    above, below = (
        _windows(worst, *((size, probability, n) for size, n in counts)) for worst in (upper, lower)
    )
    return NeighbourBound(above, below, "exact law of random allocation in its own windows")


def _windows(worst: DominatingPair, *windows: tuple[int, float, int]) -> Run:
    """Blocks of windows: each has steps, the probability of taking part, and a count."""
    return [
        (AllocationBlock(worst.pair, steps, chance, worst.infinity_mass), count)
        for steps, chance, count in windows
        if chance > 0 and count
    ]


def repeated(worst: DominatingPair, times: int) -> Run:
    """Run of the same step ``times`` times; Gaussian steps add up to one."""
    if times and isinstance(worst.pair, GaussianPair):
        return [(PairBlock(GaussianPair(worst.pair.noise_multiplier / times**0.5)), 1)]
    return [(PairBlock(worst.pair, 1.0, worst.infinity_mass), times)] if times else []


_LARGEST_HINT = 0.5
METHOD = "each message by itself, composed as PLD; who sends is seen"


@dataclass(frozen=True, slots=True, eq=False)
class SeenCurve:
    """Curve of a step that is visible where it happens: r times the curve of its messages."""

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
    """A step in which a client sends messages, visible with its name, with a probability.

    Attributes:
        base: block of the messages of a step.
        rate: r in (0, 1], the probability.
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
        """Curve that is as sharp as the base's near one δ."""
        seen = self.base.curve(direction, side, min(_LARGEST_HINT, delta / self.rate), refinement)
        return SeenCurve(seen, self.rate, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are as sharp as the base's from 1 down to δ/r, in both directions."""
        base = self.base.curves(side, min(_LARGEST_HINT, delta / self.rate), refinement)
        remove, add = (
            [SeenCurve(curve, self.rate, side) for curve in curves]
            for curves in (base.remove, base.add)
        )
        return CurvePair(
            side, remove, add, (self.rate * base.floors[0], self.rate * base.floors[1])
        )


class _Step(NamedTuple):
    """Messages of a step in which a client takes part: the pair of each, and their number."""

    worst: DominatingPair
    messages: int

    @property
    def block(self) -> Block:
        """Block of all messages of the step."""
        one = PairBlock(self.worst.pair, infinity_mass=self.worst.infinity_mass)
        return one if self.messages == 1 else RepeatedBlock(one, self.messages)


def seen_blocks(
    part: ReleasedSteps, worst: DominatingPair, attained: bool, messages: int = 1
) -> NeighbourBound:
    """Neighbour bound of two records of a client whose messages are visible with its name.

    Args:
        part: the draw, and the part of it that is released.
        worst: the pair that dominates one message.
        attained: whether two records attain this pair, so that it is a lower bound too.
        messages: number of messages of a step in which the client takes part.
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
    """Run of steps, by the probability of sending and the number of steps."""
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
