"""Local trust: messages that everybody sees with their senders, each private on its own.

Whether a client takes part is seen, so no participation hides it, but a client that may not come
has nothing to hide then: a step in which it comes with probability r has r times its message's δ,
and steps whose draws are independent compose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.accounting.divergence.blocks import NeighbourBound, Run
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PairCurve,
    Side,
    with_infinity_mass,
)
from turnout.accounting.divergence.dominating_pairs import DominatingPair
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, Pair
from turnout.accounting.laws.neighbour_bounds import repeated
from turnout.core import checks
from turnout.spec.draws import Always, Bernoulli, Cohort, KOf, OneOf
from turnout.spec.forms import DrawTable, Released

FloatArray = NDArray[np.float64]
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
    """One message that is sent with a probability, and seen if it is.

    Attributes:
        pair: of one message.
        rate: r, above 0.
        infinity_mass: of one message (see `curves.InfinityMassCurve`).
    """

    pair: Pair
    rate: float
    infinity_mass: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)
        checks.probability(rate=self.rate, infinity_mass=self.infinity_mass)

    @property
    def loss_deviation(self) -> float:
        """About the standard deviation of the privacy loss."""
        return math.sqrt(self.rate) * min(1.0, math.sqrt(max(self.pair.second_moment - 1.0, 0.0)))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The exact curve, whatever the side."""
        base = PairCurve(self.pair, direction, side)
        seen = with_infinity_mass(base, direction, side, self.infinity_mass)
        return SeenCurve(seen, self.rate, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The exact curves."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        zero = float(self.pair.q_below(np.array(0.0)))
        return CurvePair(side, [remove], [add], (self.rate * self.infinity_mass, self.rate * zero))


def seen_blocks(part: Released, worst: DominatingPair, attained: bool) -> NeighbourBound:
    """Two records of a client whose messages are seen with its name.

    Args:
        part: the draw, and how much of it is released.
        worst: the pair that dominates one message.
        attained: whether two records have this pair, so that it is a lower bound too.
    """
    draw, full, rest = part
    run = _MESSAGES[draw]
    upper = run(draw, full, rest, worst, Side.UPPER)
    lower = run(draw, full, rest, worst, Side.LOWER) if attained else []
    return NeighbourBound(upper, lower, METHOD, tight=attained)


def _every_step(draw: Always, full: int, rest: int, worst: DominatingPair, side: Side) -> Run:
    return repeated(worst, full)


def _coins(draw: Bernoulli, full: int, rest: int, worst: DominatingPair, side: Side) -> Run:
    return _sent(worst, (draw.rate, full))


def _cohorts(draw: Cohort, full: int, rest: int, worst: DominatingPair, side: Side) -> Run:
    return _sent(worst, (draw.size / draw.population, full))


def _windows(draw: OneOf, full: int, rest: int, worst: DominatingPair, side: Side) -> Run:
    return _sent(worst, (draw.probability, full), (draw.probability * rest / draw.steps, 1))


def _subsets(draw: KOf, full: int, rest: int, worst: DominatingPair, side: Side) -> Run:
    # Of a begun window at most k messages are sent, and at least none.
    begun = min(rest, draw.picks) if side is Side.UPPER else 0
    return repeated(worst, full * draw.picks + begun)


def _sent(worst: DominatingPair, *chances: tuple[float, int]) -> Run:
    """Messages that are sent with so much chance each, so often."""
    return [
        (SeenBlock(worst.pair, rate, worst.infinity_mass), count)
        for rate, count in chances
        if rate > 0 and count
    ]


_MESSAGES: DrawTable[Callable[[Any, int, int, DominatingPair, Side], Run]] = DrawTable(
    "the price of messages that are seen with their senders",
    {
        Always: _every_step,
        Bernoulli: _coins,
        Cohort: _cohorts,
        OneOf: _windows,
        KOf: _subsets,
    },
)
