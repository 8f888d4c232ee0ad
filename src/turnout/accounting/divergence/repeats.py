"""Blocks that one draw decides together, as one block."""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.accounting.divergence.blocks import Block, hints_apart
from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.runs import LossGrid, run_curve
from turnout.core import checks

_APART = 30.0  # ratio of the δ's at which compositions are made sharp
_ROUNDING = 1e-12  # of a floor


@dataclass(frozen=True, slots=True)
class RepeatedBlock:
    """Independent repetitions of a block, composed: all of them happen, or none.

    A draw that decides about a whole step, such as a sample of clients who then send several
    messages each, takes the step as one block.

    Attributes:
        base: one of them.
        count: how many there are.
    """

    base: Block
    count: int

    def __post_init__(self) -> None:
        checks.count(count=self.count)

    @property
    def loss_deviation(self) -> float:
        """That of the repetitions' sum, at most 1."""
        return min(1.0, math.sqrt(self.count) * self.base.loss_deviation)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The composition's curve, made sharp near one δ."""
        return run_curve([(self.base, self.count)], direction, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Compositions that are sharp at δ's from 1 down."""
        run, hints = [(self.base, self.count)], hints_apart(delta, _APART)
        grid = LossGrid.of(run, hints[0])
        remove, add = (
            [run_curve(run, direction, side, hint, refinement, grid=grid) for hint in hints]
            for direction in Direction
        )
        floors = [self._floor(floor, side) for floor in self.base.curves(side, delta, 0).floors]
        return CurvePair(side, remove, add, (floors[0], floors[1]))

    def _floor(self, floor: float, side: Side) -> float:
        """1 − (1 − floor)^count, on the proved side."""
        if floor >= 1.0:
            return 1.0
        sign = 1.0 if side is Side.UPPER else -1.0
        whole = -math.expm1(self.count * math.log1p(-floor)) * (1.0 + sign * _ROUNDING)
        return min(max(whole, 0.0), 1.0)
