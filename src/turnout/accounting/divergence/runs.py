"""The privacy curve of a whole run, its blocks' curves composed, and ε of two runs apart."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import Block, Run
from turnout.accounting.divergence.composition import ComposedCurve
from turnout.accounting.divergence.curves import Curve, Direction, Side, epsilon_at
from turnout.accounting.divergence.loss_laws import LossLaw, loss_law, reach_of
from turnout.accounting.divergence.work import remembered
from turnout.core import checks
from turnout.core.errors import NumericalError, TurnoutError

_FIRST_GAP = 1 / 40  # loss grid of a composition, as a fraction of one block's loss deviation
_MOST_LOSSES = 2**16  # points of one block's first loss grid
_LAST_HOP = 100.0  # δ over that at which the second of two hops is made sharp
_TAIL = 3e-4  # part of δ that may go to infinity in a composition


@dataclass(frozen=True, slots=True)
class LossGrid:
    """The grid on which the losses of blocks are composed.

    Attributes:
        gap: its step, before refinement.
        tail: probability of each block that may go to infinity.
    """

    gap: float
    tail: float

    @classmethod
    def of(cls, run: Run, delta: float) -> LossGrid:
        """The grid of a run of at least one block."""
        tail = _tail(run, delta)
        return cls(_gap(run, max(_reach(block, tail) for block, _ in run)), tail)

    @classmethod
    def common(cls, run: Run, delta: float) -> LossGrid | None:
        """A grid no coarser, of powers of 2 and 1000, which many runs have in common.

        None where nothing is composed: the curve of a single block has no use for it.
        """
        if not is_composed(run):
            return None
        tail = 1e3 ** math.floor(math.log(_tail(run, delta), 1e3))
        widest = max((block for block, _ in run), key=lambda block: block.loss_deviation)
        return cls(2.0 ** math.floor(math.log2(_gap(run, _reach(widest, tail)))), tail)


def is_composed(run: Run) -> bool:
    """Whether a run has more than one block, so that their losses add up."""
    return len(run) > 1 or any(count > 1 for _, count in run)


def _tail(run: Run, delta: float) -> float:
    """Probability of each block that may go to infinity."""
    return max(min(0.01, _TAIL * delta / sum(count for _, count in run)), 1e-300)


def _gap(run: Run, reach: float) -> float:
    """Step of a run's first loss grid; ``reach`` is the largest loss of a block."""
    blocks = sum(count for _, count in run)
    variance = sum(count * block.loss_deviation**2 for block, count in run) / blocks
    return max(_FIRST_GAP * math.sqrt(variance), reach / _MOST_LOSSES)


def run_epsilon(
    run: Run,
    direction: Direction,
    side: Side,
    delta: float,
    refinement: int,
    *,
    near: float = 0.0,
    grid: LossGrid | None = None,
) -> float:
    """ε of a run at δ in one direction, from the proved side; 0 for a run of no blocks.

    A lower bound is looked for more closely below ``near``, a known upper one.
    """
    if not run:
        return 0.0
    curve = run_curve(run, direction, side, delta, refinement, grid=grid)
    with certified(delta):
        return epsilon_at(curve, delta, side, near)


@contextmanager
def certified(delta: float) -> Generator[None, None, None]:
    """Refuses what leaves the range of floats, and the grids that are then empty, in a line.

    What is not a number is found where a curve is read (`epsilon_at`).
    """
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            yield
    except TurnoutError:
        raise
    except (ArithmeticError, ValueError, IndexError) as error:
        raise NumericalError(f"delta = {delta:.3g} cannot be certified here") from error


def run_curve(
    run: Run,
    direction: Direction,
    side: Side,
    delta: float,
    refinement: int,
    *,
    grid: LossGrid | None = None,
) -> Curve:
    """The curve of a run of at least one block, sharp near one δ and valid everywhere.

    Each level of refinement halves the steps of all grids.
    """
    direction = checks.choice(Direction, direction=direction)
    side = checks.choice(Side, side=side)
    with certified(delta):
        if not is_composed(run):
            return run[0][0].curve(direction, side, delta, refinement)
        grid = grid or LossGrid.of(run, delta)
        gap, tail = grid.gap / 2**refinement, grid.tail
        parts = [
            (_loss_law(block, direction, side, gap=gap, tail=tail, refinement=refinement), count)
            for block, count in run
        ]
        return ComposedCurve.of(side, parts, delta)


def two_bound_epsilon(first: Run, second: Run, delta: float) -> float:
    """An upper bound on ε at δ of two runs apart, through the reference between them.

    δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂) for P → reference → P', the best of some splits.
    """
    if not first and not second:
        return 0.0
    if not first or not second:
        direction = Direction.REMOVE if first else Direction.ADD
        return run_epsilon(first or second, direction, Side.UPPER, delta, 0)
    with certified(delta):
        return _through_reference(first, second, delta)


def _through_reference(first: Run, second: Run, delta: float) -> float:
    grid = two_bound_grid(first, delta) if first == second else None
    remove = run_curve(first, Direction.REMOVE, Side.UPPER, delta / 2, 0, grid=grid)
    add = run_curve(second, Direction.ADD, Side.UPPER, delta / _LAST_HOP, 0, grid=grid)
    best = math.inf
    for share in np.linspace(0.02, 0.98, 25):
        try:
            first_epsilon = epsilon_at(remove, float(share) * delta, Side.UPPER)
            rest = (1.0 - float(share)) * delta * math.exp(-first_epsilon)
            best = min(best, first_epsilon + epsilon_at(add, rest, Side.UPPER))
        except NumericalError:
            continue
    if math.isinf(best):
        raise NumericalError(f"delta = {delta:.3g} cannot be certified over two neighbour bounds")
    return best * (1 + 1e-12)


def two_bound_grid(run: Run, delta: float) -> LossGrid | None:
    """The grid of both neighbour bounds and of a lower one, which then share their blocks' curves.

    None where nothing is composed, and where a curve does not come down as far as the last hop
    needs: then each has its own.
    """
    if not is_composed(run):
        return None
    try:
        return LossGrid.of(run, delta / _LAST_HOP)
    except NumericalError:
        return None


def _loss_law(
    block: Block, direction: Direction, side: Side, *, gap: float, tail: float, refinement: int
) -> LossLaw:
    both = _loss_laws(block, side, gap=gap, tail=tail, refinement=refinement)
    return both[0 if direction is Direction.REMOVE else 1]


@remembered
def _loss_laws(
    block: Block, side: Side, *, gap: float, tail: float, refinement: int
) -> tuple[LossLaw, LossLaw]:
    """The laws of both directions, which have the same curves."""
    curves = block.curves(side, tail, refinement)
    return loss_law(curves, Direction.REMOVE, gap, tail), loss_law(curves, Direction.ADD, gap, tail)


@remembered
def _reach(block: Block, tail: float) -> float:
    return reach_of(block.curves(Side.UPPER, tail, 0), tail)
