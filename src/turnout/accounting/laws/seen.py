"""Local trust: messages that everybody sees with their senders, each private on its own.

Whether a client takes part is seen, so no participation hides it, but a client that may not come
has nothing to hide then: a step in which it comes with probability r has r times its message's δ,
and steps whose draws are independent compose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.accounting.divergence.blocks import Block, NeighbourBound, PairBlock, Run
from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.dominating_pairs import DominatingPair
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.repeats import RepeatedBlock
from turnout.accounting.laws.neighbour_bounds import repeated
from turnout.core import checks
from turnout.schemes.normal_form import Always, Bernoulli, Cohort, DrawTable, KOf, OneOf, Released

FloatArray = NDArray[np.float64]
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
    part: Released, worst: DominatingPair, attained: bool, messages: int = 1
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
