"""The privacy curve of a whole run: its blocks' curves, composed."""

from __future__ import annotations

import math
from functools import lru_cache

from turnout.accounting.divergence.blocks import Block, Run
from turnout.accounting.divergence.composition import ComposedCurve
from turnout.accounting.divergence.curves import Curve, Direction, Side, epsilon_at
from turnout.accounting.divergence.loss_laws import LossLaw, loss_law, reach_of
from turnout.core import checks

_FIRST_GAP = 1 / 40  # loss grid of a composition, as a fraction of one block's loss deviation
_MOST_LOSSES = 2**16  # points of one block's first loss grid
_TAIL = 3e-4  # part of δ that may go to infinity in a composition


def run_epsilon(
    run: Run,
    direction: Direction,
    side: Side,
    delta: float,
    refinement: int,
    *,
    near: float = 0.0,
) -> float:
    """ε of a run at δ in one direction, from the proved side; 0 for a run of no blocks.

    A lower bound is looked for more closely below ``near``, a known upper one.
    """
    if not run:
        return 0.0
    return epsilon_at(run_curve(run, direction, side, delta, refinement), delta, side, near)


def run_curve(run: Run, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
    """The curve of a run of at least one block, sharp near one δ and valid everywhere.

    Each level of refinement halves the steps of all grids.
    """
    direction = checks.choice(Direction, direction=direction)
    side = checks.choice(Side, side=side)
    if len(run) == 1 and run[0][1] == 1:
        return run[0][0].curve(direction, side, delta, refinement)
    blocks = sum(count for _, count in run)
    tail = max(min(0.01, _TAIL * delta / blocks), 1e-300)
    variance = sum(count * block.loss_deviation**2 for block, count in run) / blocks
    reach = max(_reach(block, tail) for block, _ in run)
    gap = max(_FIRST_GAP * math.sqrt(variance), reach / _MOST_LOSSES) / 2**refinement
    parts = [
        (_loss_law(block, direction, side, gap=gap, tail=tail, refinement=refinement), count)
        for block, count in run
    ]
    return ComposedCurve.of(side, parts, delta)


@lru_cache(maxsize=256)
def _loss_law(
    block: Block, direction: Direction, side: Side, *, gap: float, tail: float, refinement: int
) -> LossLaw:
    return loss_law(block.curves(side, tail, refinement), direction, gap, tail)


@lru_cache(maxsize=256)
def _reach(block: Block, tail: float) -> float:
    return reach_of(block.curves(Side.UPPER, tail, 0), tail)
