"""E[(Y_1 + … + Y_t − c₀)₊]/t of i.i.d. steps, as a proved bound.

Where Y has light tails, Y is capped at M, which costs t·E[(Y − M)₊]. A heavy tail is no good
under a tilt. There, one jump above a much lower M is taken out and integrated in closed form:
with N the number of jumps, p = Q(Y > M) and π_J(c) = E[(Y − c)₊; Y > M],

    E[(Σ − c₀)₊] = E[…; N = 0] + t·E[π_J(c₀ − Z)] + E[…; N ≥ 2],

where Z sums t − 1 steps that do not jump, and since c₀ ≥ 0 the last term is at most
t·(π_J(0)·(t−1)p + E[Y₊]·((t−1)p)²/2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.laws.replace_one.frames import (
    CoarseLaw,
    Frame,
    Overview,
    hockey_stick_frame,
    payoff_frame,
)
from turnout.accounting.laws.replace_one.grids import MOST_CELLS_LOG2, Tail, grid_law
from turnout.accounting.laws.replace_one.steps import Step
from turnout.accounting.laws.replace_one.tilting import expectation
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_PILOTS, _FIRST_CAP = 8, 1e-4  # grids tried to find where one Y may be capped
_NEGLIGIBLE = 1e-6  # part of δ that a cap, or a second jump, may cost
_FAR = 50.0  # times that part, for what lies far below beside a jump
_LOST = 3 * _FAR * _NEGLIGIBLE  # part of a value that its plan may lose
_UNPILOTED = 7  # plans in a row that are made without pilots
_COARSEST = 0.06  # √t·θ·h of the first grid: the spread then costs 3e-4 of δ
_WORTH_A_JUMP = 0.999  # of a bound, to be worth a second sum
_LEAST_CAP = 20.0  # above the threshold's share, in fiftieths of the quartiles' distance
_NEAR_TOP = 5.0  # a cap at more than one over this of the largest value moves there
_PILOT_LOG2, _FEWEST_LOG2, _FEWEST_HEAVY_LOG2, _MOST_FIRST_LOG2 = 12, 13, 15, 18


@dataclass(frozen=True, slots=True)
class Sum:
    """Y_1 + … + Y_t of i.i.d. steps against a threshold c₀ ≥ 0."""

    step: Step
    count: int
    threshold: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of a sum: the frame without jumps, and the one beside a jump, if any.

    Jumps above ``far`` are counted wherever the rest of the sum may be.
    """

    main: Frame
    beside: Frame | None = None
    far: float = math.inf


class Planner:
    """Plans of sums of which each is much like the one before.

    Whether a cap or a jump gives less is told by pilots, which take as long as the sums themselves.
    It seldom changes from a sum to the next, so pilots are made for some; a plan without one that
    turns out to lose too much is made again with pilots.
    """

    def __init__(self) -> None:
        self._plans: dict[Sum, Plan] = {}
        self._piloted: set[Sum] = set()
        self._guess: float | None = None
        self._jumps, self._unpiloted = False, 0

    def plan(self, total: Sum) -> Plan:
        """The plan of a sum, the same for both sides."""
        if total not in self._plans:
            if self._guess is None or self._unpiloted == 0:
                return self._with_pilots(total)
            self._unpiloted -= 1
            made, cost = _jump_plan if self._jumps else _capped_plan, _NEGLIGIBLE * self._guess
            self._plans[total] = made(Overview.of(total.step), total, cost)
        return self._plans[total]

    def _with_pilots(self, total: Sum) -> Plan:
        self._piloted.add(total)
        plan = self._plans[total] = _plan(total, self._guess)
        self._jumps, self._unpiloted = plan.beside is not None, _UNPILOTED
        return plan

    def upper(self, total: Sum, refinement: int) -> float:
        """The upper bound by this sum's plan."""
        value, lost = self._tried(total, refinement)
        if lost > _LOST * value and total not in self._piloted:
            value, _ = _excess(total, Side.UPPER, self._with_pilots(total), refinement)
        if 0 < value < math.inf:
            self._guess = min(value, 1.0)
        return value

    def _tried(self, total: Sum, refinement: int) -> tuple[float, float]:
        """The upper bound and what its plan loses: all, where one without pilots is of no use."""
        try:
            return _excess(total, Side.UPPER, self.plan(total), refinement)
        except NumericalError:
            if total in self._piloted:
                raise
            return 0.0, math.inf

    def lower(self, total: Sum, refinement: int) -> float:
        """The lower bound by this sum's plan."""
        return _excess(total, Side.LOWER, self.plan(total), refinement)[0]


def excess(total: Sum, side: Side, refinement: int = 0, planner: Planner | None = None) -> float:
    """A bound on E[(Y_1 + … + Y_t − c₀)₊]/t, never on the wrong side.

    Each refinement halves the grid's step; the planner of similar sums saves time. Where no grid
    holds the sum, the bound is that of steps taken one by one, or 0.
    """
    trivial = _one_by_one(total, side)
    if total.count == 1 or total.threshold >= total.count * total.step.top:
        return trivial
    planner = planner or Planner()
    try:
        if side is Side.LOWER:
            return planner.lower(total, refinement)
        return min(planner.upper(total, refinement), trivial)
    except NumericalError:
        return trivial


def _one_by_one(total: Sum, side: Side) -> float:
    """One step's price at the threshold's share, a bound since Σ(Y − c₀/t) ≤ Σ(Y − c₀/t)₊."""
    sign = -1.0 if side is Side.UPPER else 1.0
    at = np.array([total.threshold / total.count * (1.0 + sign * 16.0 * UNIT_ROUNDOFF)])
    if side is Side.UPPER:
        return float(total.step.upper(at)[0])
    return max(float(total.step.tangent(at)[0][0]), 0.0) if total.count == 1 else 0.0


def _plan(total: Sum, guess: float | None) -> Plan:
    """A plan whose cap, or second jump, costs next to nothing, which a pilot tells."""
    overview = Overview.of(total.step)
    if guess is None:
        most = float(np.interp(total.step.mean, overview.points, overview.prices))
        cost = _FIRST_CAP * min(most, 1.0)
    else:
        cost = _NEGLIGIBLE * min(guess, 1.0)
    tried: list[tuple[float, Plan]] = []
    for _ in range(_PILOTS):
        plan = _capped_plan(overview, total, cost)
        value, lost = _excess(total, Side.UPPER, plan, -2)
        if plan.main.is_heavy and plan.main.high < total.step.top:
            jumping = _jump_plan(overview, total, cost)
            other, gone = _excess(total, Side.UPPER, jumping, -2)
            if other < _WORTH_A_JUMP * value:
                plan, value, lost = jumping, other, gone
        tried.append((value, plan))
        if lost <= _LOST * value:
            break
        cost = _NEGLIGIBLE * min(value, 1.0)
    return min(tried, key=lambda found: found[0])[1]


def _capped_plan(overview: Overview, total: Sum, cost: float) -> Plan:
    cap = max(overview.first_below(overview.prices, cost), _least_cap(overview, total))
    if overview.step.top <= _NEAR_TOP * cap:  # nothing is lost where the cap is the end
        cap = overview.step.top
    return Plan(
        hockey_stick_frame(overview.coarse(overview.low, cap), total.count, total.threshold)
    )


def _least_cap(overview: Overview, total: Sum) -> float:
    return total.threshold / total.count + _LEAST_CAP * overview.unit


def _jump_plan(overview: Overview, total: Sum, cost: float) -> Plan:
    """A cap such that two jumps together, about t·p·E[Y; Y > M], cost little."""
    count, threshold = total.count, total.threshold
    points, shares, prices = overview.points, overview.shares, overview.prices
    jumps = prices + np.maximum(points, 0.0) * shares
    some = prices[np.searchsorted(points, 0.0)]
    pairs = count * shares * (jumps + 0.5 * some * count * shares)
    cap = max(overview.first_below(pairs, cost), _least_cap(overview, total))
    law, tail = overview.coarse(overview.low, cap), Tail.of(overview.step, Side.UPPER, cap)
    main = hockey_stick_frame(law, count, threshold)
    # Beside a jump, values far below are as rare as they are of little weight.
    far = max(cap, float(points[np.argmax(prices <= _FAR * cost)]))
    weights = count * (1.0 - shares) * np.interp(threshold - points, points, prices)
    low = float(points[max(int(np.sum((weights <= _FAR * cost) & (points < 0))) - 1, 0)])
    calm = overview.coarse(max(low, overview.low), cap)
    calm = CoarseLaw(calm.points[:-1], calm.masses[:-1])
    if not calm.masses.any():
        return Plan(main)
    beside = payoff_frame(
        calm, count - 1, partial(_jump, tail, threshold), threshold - far, threshold
    )
    return Plan(main, beside, far)


def _bins(frame: Frame, count: int, refinement: int) -> int:
    width = frame.below + frame.above
    fewest = _FEWEST_HEAVY_LOG2 if frame.is_heavy else _FEWEST_LOG2
    wanted = math.ceil(math.log2(width * frame.resolution * math.sqrt(count) / _COARSEST))
    first = min(max(wanted, fewest), _MOST_FIRST_LOG2)
    return 1 << min(max(first + refinement, _PILOT_LOG2), MOST_CELLS_LOG2)


def _excess(total: Sum, side: Side, plan: Plan, refinement: int) -> tuple[float, float]:
    """The bound, and how much of an upper one is due to the cap or to second jumps."""
    step, count, main = total.step, total.count, plan.main
    out = None if plan.beside is None else Tail.of(step, Side.UPPER, main.high)
    law = grid_law(step, side, main, _bins(main, count, refinement), out)
    value = (
        expectation([(law, count)], side, main, partial(_hockey_stick, total.threshold), 1.0)
        / count
    )
    if out is None:
        cap = float(step.upper(law.points[-1:])[0]) if side is Side.UPPER else 0.0
        return value + cap, cap - step.infinite
    value += _beside_jump(total, side, plan, refinement, out)
    if side is Side.LOWER:
        return value, 0.0
    others = (count - 1) * out.share
    jump, some = (float(f(np.array([0.0]))[0]) for f in (out, step.upper))
    lost = float(out(np.array([plan.far]))[0]) + jump * others + 0.5 * some * others**2
    return value + lost, lost


def _beside_jump(total: Sum, side: Side, plan: Plan, refinement: int, out: Tail) -> float:
    """E[π_J(c₀ − Z)], of Z no farther below than ``far``."""
    assert plan.beside is not None
    count = total.count - 1
    bins = max(_bins(plan.beside, count, refinement), 1 << _FEWEST_HEAVY_LOG2 + refinement)
    tail = Tail.of(total.step, side, plan.main.high)
    law = grid_law(total.step, side, plan.beside, bins, out)

    def gain(z: FloatArray) -> FloatArray:
        return np.where(z >= total.threshold - plan.far, _jump(tail, total.threshold, z), 0.0)

    return expectation([(law, count)], side, plan.beside, gain, 1.1 * tail.share)


def _hockey_stick(threshold: float, z: FloatArray) -> FloatArray:
    return np.maximum(z - threshold, 0.0)


def _jump(tail: Tail, threshold: float, z: FloatArray) -> FloatArray:
    return tail(threshold - z)
