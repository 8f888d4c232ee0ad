"""Replace-one: bounds on E[(Y_1 + … + Y_t − c₀)₊]/t, from which δ of a window follows.

`excess` bounds a `Sum` of i.i.d. steps from either side; a `Planner` chooses grids for similar
sums. `upper_excess` bounds a `LocalSum` of adaptive ε₀-private steps from above, `response_excess`
a `LocalSum` of randomized responses (`extreme_distributions`) from either side. `replace_one` uses
these bounds; this module builds on `replace_one_grids` and `replace_one_steps`.
docs/design/replacement.md has the proofs; the notation is that of `replace_one_steps`.

**I.i.d. steps.** Let Σ = Y_1 + … + Y_t. Where Y has light tails, Y is capped at M, which raises an
upper bound on E[(Σ − c₀)₊] by t·E[(Y − M)₊]. Where Y has a heavy tail, an exponential tilt does not
work. Then a much lower M is used, a step with Y > M is called a jump, and the case of one jump is
integrated in closed form: with N the number of jumps, p = Q(Y > M) and π_J(c) = E[(Y − c)₊; Y > M],

    E[(Σ − c₀)₊] = E[…; N = 0] + t·E[π_J(c₀ − Z)] + E[…; N ≥ 2],

where Z sums t − 1 steps that do not jump, and since c₀ ≥ 0 the last term is at most
t·(π_J(0)·(t−1)p + E[Y₊]·((t−1)p)²/2).

**ε₀-private steps.** The reference, whose distribution is Q, is a message of another client or a
dummy message and is made by the same randomizer, so any two of P, P' and Q have ratios of at most a
= e^{ε₀}. Then (1, X, X') lies in a cone with six extreme rays, the vectors of 1's and a's that are
not constant. Given the steps that follow, the worst distribution of a step is an extreme point of
the distributions on the rays with E X = E X' = 1; there are five (`extreme_distributions`). For n
steps, each of which may depend on the ones before,

    π_0(c) = (−c)₊,    π_n(c) = max over the five distributions of E[π_{n−1}(c − Y)],  Y = X − K·X'

is exactly the largest possible E[(Y_1 + … + Y_n − c)₊]. π_n is convex, so on a grid its chords are
an upper bound. Long windows are cut into blocks of b steps: π_b is the hockey stick of a
distribution that lies above the sum of any b adaptive steps in convex order, and one FFT adds up
the blocks. The distance of this bound to the exact value falls as 1/b.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy.special import betainc, gammaln

from turnout.accounting.divergence.convex_order import convex_slopes
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair, LaplacePair
from turnout.accounting.divergence.work import charge
from turnout.accounting.participation.replace_one_capped import Bounded, capped_excess
from turnout.accounting.participation.replace_one_grids import (
    MOST_CELLS_LOG2,
    MassGrid,
    Tail,
    expectation,
    grid_distribution,
)
from turnout.accounting.participation.replace_one_levels import levels_excess
from turnout.accounting.participation.replace_one_steps import (
    CoarseSum,
    Overview,
    Step,
    SumFrame,
    hockey_stick_frame,
    payoff_frame,
)
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import NumericalError

_PILOTS, _FIRST_CAP = 8, 1e-4  # coarse grids tried for the cap of one Y, and the first cost
_NEGLIGIBLE = 1e-6  # part of δ that a cap, or a second jump, may add to an upper bound
_FAR = 50.0  # factor of that part for very low values of the other steps next to a jump
_LOST = 3 * _FAR * _NEGLIGIBLE  # part of an upper bound that may be due to its plan
_UNPILOTED = 7  # consecutive plans that are made without pilots
_COARSEST = 0.06  # √t·θ·h of the first grid, for which spreading adds 3e-4 of δ
_DOUBTFUL = 2e-3  # if cap and round-off cause this part of a bound, jumps are tried
_LARGE_MOMENT = 4.8  # second moment of ratios from which a grid may be too coarse for them
_FEW_LEVELS = -1  # refinement of the unequal levels that show whether it is too coarse
_WORTH_A_JUMP = 0.999  # jumps are used if they lower a bound to this part of it
_LEAST_CAP = 20.0  # least cap above c₀/t, in fiftieths of the distance of the quartiles
_NEAR_TOP = 5.0  # a cap above the largest value over this factor moves to the largest value
_PILOT_LOG2, _FEWEST_LOG2, _FEWEST_HEAVY_LOG2, _MOST_FIRST_LOG2 = 12, 13, 15, 18


@dataclass(frozen=True, slots=True)
class Sum:
    """Sum Y_1 + … + Y_t of i.i.d. steps, and its threshold c₀ ≥ 0.

    Attributes:
        step: distribution of each Y.
        count: t, number of steps.
        threshold: c₀.
    """

    step: Step
    count: int
    threshold: float


def sum_threshold(k: float, count: int, probability: float) -> float:
    """Threshold c₀ = t(K − 1)(1 − p₀)/p₀ of a sum over t steps, with p₀ = ``probability``."""
    return count * (k - 1.0) * (1.0 - probability) / probability


@dataclass(frozen=True, slots=True)
class GridPlan:
    """Choice of grids for a sum: either Y is capped, or one step may exceed the cap (a jump).

    Attributes:
        main: frame of the sum of capped steps, or of the sum without jumps.
        next_to_jump: frame of the other steps if one step jumps; None if Y is capped instead.
        far: size from which an upper bound adds the whole contribution of a jump, whatever the sum
            of the other steps is.
    """

    main: SumFrame
    next_to_jump: SumFrame | None = None
    far: float = math.inf


class Planner:
    """Chooses the grid plans of a sequence of similar sums.

    Bounds on coarse grids (pilots) show whether a cap or jumps give the tighter bound, but take as
    long as the bound itself. The result seldom changes from one sum to the next, so most plans use
    the last result. A plan without pilots is made again with pilots if its bound is too wide.
    """

    def __init__(self) -> None:
        self._plans: dict[Sum, GridPlan] = {}
        self._piloted: set[Sum] = set()
        self._guess: float | None = None
        self._jumps, self._unpiloted = False, 0

    def plan(self, total: Sum) -> GridPlan:
        """Grid plan of a sum, the same for the upper and the lower bound."""
        if total not in self._plans:
            if self._guess is None or self._unpiloted == 0:
                return self._with_pilots(total)
            self._unpiloted -= 1
            made, cost = _jump_plan if self._jumps else _capped_plan, _NEGLIGIBLE * self._guess
            self._plans[total] = made(Overview.of(total.step), total, cost)
        return self._plans[total]

    def _with_pilots(self, total: Sum) -> GridPlan:
        self._piloted.add(total)
        plan = self._plans[total] = _plan(total, self._guess)
        self._jumps, self._unpiloted = plan.next_to_jump is not None, _UNPILOTED
        return plan

    def upper(self, total: Sum, refinement: int) -> float:
        """Upper bound on the excess of a sum, computed with its grid plan."""
        value, lost = self._tried(total, refinement)
        if lost > _LOST * value and total not in self._piloted:
            value, _ = _excess(total, Side.UPPER, self._with_pilots(total), refinement)
        if 0 < value < math.inf:
            self._guess = min(value, 1.0)
        return value

    def _tried(self, total: Sum, refinement: int) -> tuple[float, float]:
        """Upper bound on the excess, and the part of the bound that is due to the grid plan.

        The part is ∞ if the plan fails; only a plan without pilots may fail.
        """
        try:
            return _excess(total, Side.UPPER, self.plan(total), refinement)
        except NumericalError:
            if total in self._piloted:
                raise
            return 0.0, math.inf

    def lower(self, total: Sum, refinement: int) -> float:
        """Lower bound on the excess of a sum, computed with its grid plan."""
        return _excess(total, Side.LOWER, self.plan(total), refinement)[0]


def excess(total: Sum, side: Side, refinement: int = 0, planner: Planner | None = None) -> float:
    """Upper or lower bound on the excess E[(Y_1 + … + Y_t − c₀)₊]/t.

    Each level of ``refinement`` halves the step of the grid. It saves time to share one ``planner``
    among similar sums. If no grid is large enough, the upper bound is the hockey stick of one step,
    and the lower bound is 0.
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


def upper_bound(
    total: Sum, guess: float | None, refinement: int, planner: Planner, *, composed: bool = False
) -> float:
    """Upper bound on the excess E[(Y_1 + … + Y_t − c₀)₊]/t by the quickest sharp method.

    Args:
        total: the sum.
        guess: estimate of the excess, such as that of a similar sum; None if there is none.
        refinement: level of the grid, at least 0; each level halves the grid's step.
        planner: plans of similar sums.
        composed: whether this is one of many bounds that are composed; for such bounds unequal
            levels are sharp enough.
    """
    trivial = _one_by_one(total, Side.UPPER)
    if total.count == 1 or total.threshold >= total.count * total.step.top:
        return trivial
    pair = getattr(total.step, "pair", None)
    by_bisection = not isinstance(pair, GaussianPair | LaplacePair)
    if by_bisection and (pair is None or pair.second_moment >= _LARGE_MOMENT):
        return excess(total, Side.UPPER, refinement, planner)  # large grids take long there
    try:
        found = capped_excess(total.step, total.count, total.threshold, guess, refinement)
    except NumericalError:
        found = Bounded(math.inf, math.inf)
    if found.value < trivial and _is_sharp(total, found, refinement):
        return found.value
    # Little noise: use unequal levels, and for a bound that is not composed also jumps.
    spread = _on_levels(total, Side.UPPER, refinement if composed else 0)
    if composed and spread < math.inf:
        return min(found.value, spread, trivial)
    others = min(found.value, excess(total, Side.UPPER, refinement, planner))
    return min(others, _on_levels(total, Side.UPPER, refinement)) if spread < others else others


def _is_sharp(total: Sum, found: Bounded, refinement: int) -> bool:
    """Whether the bound with capped steps seems to be close to the excess."""
    if not found.doubt <= _DOUBTFUL * found.value:
        return False
    # If one step is large, its ratios may have a wider range than the grid resolves. A bound on
    # a few unequal levels, or on a finer grid, shows whether this is so.
    pair = getattr(total.step, "pair", None)
    if not found.is_heavy or (pair is not None and pair.second_moment < _LARGE_MOMENT):
        return True
    if isinstance(pair, GaussianPair):
        return not _on_levels(total, Side.UPPER, _FEW_LEVELS) < found.value
    finer = capped_excess(total.step, total.count, total.threshold, found.value, refinement + 1)
    return finer.value >= (1.0 - 4.0 * _DOUBTFUL) * found.value


def lower_bound(total: Sum, refinement: int, planner: Planner) -> float:
    """Lower bound on the excess: the larger of the bound of `excess` and that of unequal levels."""
    others = excess(total, Side.LOWER, refinement, planner)
    if not _on_levels(total, Side.LOWER, 0) > others:
        return others
    return max(others, _on_levels(total, Side.LOWER, refinement))


def _on_levels(total: Sum, side: Side, refinement: int) -> float:
    """Bound on the excess, computed on unequal levels; ∞ (upper) or 0 (lower) if this fails."""
    if total.count > 1:
        with suppress(NumericalError):
            return levels_excess(total.step, total.count, total.threshold, side, refinement)
    return math.inf if side is Side.UPPER else 0.0


def _one_by_one(total: Sum, side: Side) -> float:
    """Hockey stick of one step at c₀/t: an upper bound on the excess.

    For t = 1 it is a lower bound too; for t > 1 the lower bound is 0.
    """
    # (Σ(Y − c₀/t))₊ ≤ Σ(Y − c₀/t)₊, with the threshold rounded to the side of the bound.
    sign = -1.0 if side is Side.UPPER else 1.0
    at = np.array([total.threshold / total.count * (1.0 + sign * 16.0 * UNIT_ROUNDOFF)])
    if side is Side.UPPER:
        return float(total.step.upper(at)[0])
    return max(float(total.step.tangent(at)[0][0]), 0.0) if total.count == 1 else 0.0


def _plan(total: Sum, guess: float | None) -> GridPlan:
    """Grid plan in which the cap or second jumps add only a negligible part to the upper bound.

    Bounds on coarse grids (pilots) check the plan.
    """
    # Largest error of the plan: a part of the guessed value, or of the hockey stick at the mean.
    overview = Overview.of(total.step)
    if guess is None:
        most = float(np.interp(total.step.mean, overview.points, overview.hockey_sticks))
        cost = _FIRST_CAP * min(most, 1.0)
    else:
        cost = _NEGLIGIBLE * min(guess, 1.0)
    # Pilots: try a cap, and with heavy tails also jumps; adapt the allowed cost to the value.
    tried: list[tuple[float, GridPlan]] = []
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


def _capped_plan(overview: Overview, total: Sum, cost: float) -> GridPlan:
    cap = max(overview.first_below(overview.hockey_sticks, cost), _least_cap(overview, total))
    if overview.step.top <= _NEAR_TOP * cap:  # a cap at the largest value does not change the bound
        cap = overview.step.top
    return GridPlan(
        hockey_stick_frame(overview.coarse(overview.low, cap), total.count, total.threshold)
    )


def _least_cap(overview: Overview, total: Sum) -> float:
    return total.threshold / total.count + _LEAST_CAP * overview.unit


def _jump_plan(overview: Overview, total: Sum, cost: float) -> GridPlan:
    """Grid plan with jumps above M; M is such that two or more jumps add little to the bound."""
    count, threshold = total.count, total.threshold
    points, shares, hockey_sticks = overview.points, overview.shares, overview.hockey_sticks
    # M is the first point at which the bound on two or more jumps is at most the cost.
    jumps = hockey_sticks + np.maximum(points, 0.0) * shares
    some = hockey_sticks[np.searchsorted(points, 0.0)]
    pairs = count * shares * (jumps + 0.5 * some * count * shares)
    cap = max(overview.first_below(pairs, cost), _least_cap(overview, total))
    # The frame of the sum without jumps.
    distribution, tail = overview.coarse(overview.low, cap), Tail.of(overview.step, Side.UPPER, cap)
    main = hockey_stick_frame(distribution, count, threshold)
    # The frame of the other steps next to a jump: very low values are rare and add little.
    far = max(cap, float(points[np.argmax(hockey_sticks <= _FAR * cost)]))
    weights = count * (1.0 - shares) * np.interp(threshold - points, points, hockey_sticks)
    low = float(points[max(int(np.sum((weights <= _FAR * cost) & (points < 0))) - 1, 0)])
    calm = overview.coarse(max(low, overview.low), cap)
    calm = CoarseSum(calm.points[:-1], calm.masses[:-1])
    if not calm.masses.any():
        return GridPlan(main)
    next_to_jump = payoff_frame(
        calm, count - 1, partial(_jump, tail, threshold), threshold - far, threshold
    )
    return GridPlan(main, next_to_jump, far)


def _bins(frame: SumFrame, count: int, refinement: int) -> int:
    width = frame.below + frame.above
    fewest = _FEWEST_HEAVY_LOG2 if frame.is_heavy else _FEWEST_LOG2
    wanted = math.ceil(math.log2(width * frame.resolution * math.sqrt(count) / _COARSEST))
    first = min(max(wanted, fewest), _MOST_FIRST_LOG2)
    return 1 << min(max(first + refinement, _PILOT_LOG2), MOST_CELLS_LOG2)


def _excess(total: Sum, side: Side, plan: GridPlan, refinement: int) -> tuple[float, float]:
    """Bound on the excess, and the part of an upper bound due to the cap or to second jumps."""
    step, count, main = total.step, total.count, plan.main
    # The sum without jumps, or with capped steps.
    out = None if plan.next_to_jump is None else Tail.of(step, Side.UPPER, main.high)
    distribution = grid_distribution(step, side, main, _bins(main, count, refinement), out)
    value = (
        expectation(
            [(distribution, count)], side, main, partial(_hockey_stick, total.threshold), 1.0
        ).value
        / count
    )
    # Capped steps: an upper bound adds the hockey stick at the cap.
    if out is None:
        cap = float(step.upper(distribution.points[-1:])[0]) if side is Side.UPPER else 0.0
        return value + cap, cap - step.infinite
    # One jump; an upper bound also adds jumps above ``far``, and two or more jumps.
    value += _with_one_jump(total, side, plan, refinement, out)
    if side is Side.LOWER:
        return value, 0.0
    others = (count - 1) * out.share
    jump, some = (float(f(np.array([0.0]))[0]) for f in (out, step.upper))
    lost = float(out(np.array([plan.far]))[0]) + jump * others + 0.5 * some * others**2
    return value + lost, lost


def _with_one_jump(total: Sum, side: Side, plan: GridPlan, refinement: int, out: Tail) -> float:
    """Bound on E[π_J(c₀ − Z); c₀ − Z ≤ far]: sums Z to which a jump must add at most ``far``."""
    assert plan.next_to_jump is not None
    count = total.count - 1
    bins = max(_bins(plan.next_to_jump, count, refinement), 1 << _FEWEST_HEAVY_LOG2 + refinement)
    tail = Tail.of(total.step, side, plan.main.high)
    distribution = grid_distribution(total.step, side, plan.next_to_jump, bins, out)

    def gain(z: FloatArray) -> FloatArray:
        return np.where(z >= total.threshold - plan.far, _jump(tail, total.threshold, z), 0.0)

    return expectation(
        [(distribution, count)], side, plan.next_to_jump, gain, 1.1 * tail.share
    ).value


def _hockey_stick(threshold: float, z: FloatArray) -> FloatArray:
    return np.maximum(z - threshold, 0.0)


def _jump(tail: Tail, threshold: float, z: FloatArray) -> FloatArray:
    return tail(threshold - z)


_UNITS_A_COUNT = 100  # units of work of two binomial tails
_STEPS_A_DEVIATION = 24  # grid points for each standard deviation of one Y
_REACH = 11.0  # range of a block's hockey stick, in standard deviations of the block
_MOST_REACH = 40.0
_MOST_POINTS = 1 << 20
_COARSE_POINTS = 400
_ROUNDING_A_STEP = 64.0  # rounding of a hockey stick in one step, that of Y included, in u
_BINOMIAL_ERROR = 1e-11  # relative error of the regularised incomplete beta function
_RARE = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeDistribution:
    """Distribution of (X, X') with at most three values, each on one of the six extreme rays.

    Attributes:
        ratios, others: values of X and of X', shape (n,) each, n ≤ 3.
        weights: probabilities of these values under Q, same shape.
    """

    ratios: FloatArray
    others: FloatArray
    weights: FloatArray

    def values(self, k: float) -> FloatArray:
        """Values of Y = X − K·X', shape of ``weights``."""
        return self.ratios - k * self.others


@lru_cache(maxsize=64)
def extreme_distributions(epsilon0: float) -> tuple[ExtremeDistribution, ...]:
    """Five extreme distributions of (X, X'); the first three are randomized responses.

    In order:

    1. 3-ary randomized response in which both records z, z' and the reference are the three inputs;
    2. binary response in which z and the reference are the same input;
    3. binary response in which z' and the reference are the same input;
    4. 3-ary randomized response in which each value is the rarest under its own input;
    5. binary response in which z and z' are the same input (X = X').
    """
    a = math.exp(epsilon0)
    rows = (
        ([a, 1, 1 / a], [1, a, 1 / a], [1, 1, a]),
        ([1, 1], [a, 1 / a], [1, a]),
        ([a, 1 / a], [1, 1], [1, a]),
        ([1, 1 / a, a], [1 / a, 1, a], [a, a, 1]),
        ([a, 1 / a], [a, 1 / a], [1, a]),
    )
    return tuple(
        ExtremeDistribution(np.array(x, float), np.array(y, float), np.array(w, float) / sum(w))
        for x, y, w in rows
    )


@dataclass(frozen=True, slots=True)
class LocalSum:
    """Sum Y_1 + … + Y_t of ε₀-private steps at K = e^ε, and its threshold c₀ ≥ 0."""

    epsilon0: float
    k: float
    count: int
    threshold: float


def upper_excess(total: LocalSum, longest: int, refinement: int = 0) -> float:
    """Upper bound on E[(Y_1 + … + Y_t − c₀)₊]/t over all adaptive ε₀-private steps.

    Sums of more than ``longest`` steps are cut into blocks. For shorter sums the bound is exact up
    to errors of the grid; each level of refinement halves the step of the grid.
    """
    # Blocks of nearly equal length.
    if total.k >= math.exp(total.epsilon0):
        return 0.0
    blocks = -(-total.count // longest)
    length, longer = divmod(total.count, blocks)
    # Hockey sticks of a block on a lattice; that of a single block is the answer.
    lattice = _Lattice.of(total, blocks, refinement)
    hockey_sticks = _hockey_sticks(total, lattice, (length, length + 1) if longer else (length,))
    if blocks == 1:
        return float(np.interp(total.threshold, lattice.points, hockey_sticks[0])) / total.count
    # The sum of blocks by one FFT; the hockey sticks at the end of the lattice are added.
    parts = [
        (lattice.distribution(hockey_stick), count)
        for hockey_stick, count in zip(hockey_sticks, (blocks - longer, longer), strict=False)
    ]
    frame = hockey_stick_frame(lattice.coarse(hockey_sticks[0]), blocks, total.threshold)
    value = expectation(
        parts, Side.UPPER, frame, lambda z: np.maximum(z - total.threshold, 0.0), slope=1.0
    ).value
    caps = sum(
        count * float(hockey_stick[-1])
        for (_, count), hockey_stick in zip(parts, hockey_sticks, strict=True)
    )
    return (value + caps) / total.count


@dataclass(frozen=True, slots=True)
class _Lattice:
    """Grid points, 0 included, at which the hockey stick of a block is computed."""

    first: int
    size: int
    step: float

    @classmethod
    def of(cls, total: LocalSum, blocks: int, refinement: int) -> _Lattice:
        """Grid points that cover the range of one block, if the sum has ``blocks`` blocks."""
        # The largest standard deviation of one Y, and where the threshold lies in units of it.
        a, k, count = math.exp(total.epsilon0), total.k, total.count
        length = -(-count // blocks)
        variance = ((a - k) ** 2 + (k * a - 1) ** 2) / (1 + a) - (k - 1) ** 2
        deviation = math.sqrt(max(variance, 1e-12))
        score = (total.threshold + count * (k - 1)) / (math.sqrt(count) * deviation)
        # The range of a block: all its values, or some standard deviations around the mean.
        reach = deviation * math.sqrt(length)
        above = (_REACH + min(score, _MOST_REACH) / math.sqrt(blocks)) * reach + (a - k)
        low = max(length * (1 - k * a), length * (1 - k) - _REACH * reach - k * a)
        high = min(length * (a - k), length * (1 - k) + above)
        step = deviation / _STEPS_A_DEVIATION / 2**refinement
        first, last = math.floor(low / step) - 1, math.ceil(max(high, 0.0) / step) + 1
        if last - first > _MOST_POINTS:
            raise NumericalError(
                "the likelihood ratios of a block have too wide a range for a grid"
            )
        return cls(first, last - first + 1, step)

    @property
    def points(self) -> FloatArray:
        """All grid points in increasing order."""
        return self.step * (self.first + np.arange(self.size, dtype=np.float64))

    def distribution(self, hockey_sticks: FloatArray) -> MassGrid:
        """Distribution on the grid with given hockey sticks, capped at the last point."""
        slopes = np.clip(convex_slopes(np.diff(hockey_sticks)) / self.step, -1.0, 0.0)
        masses = np.diff(slopes, prepend=-1.0, append=0.0)
        return MassGrid(self.step * self.first, self.step, masses)

    def coarse(self, hockey_sticks: FloatArray) -> CoarseSum:
        """Distribution on few of the grid points, with given hockey sticks there."""
        index = np.unique(np.linspace(0, self.size - 1, _COARSE_POINTS).astype(np.int64))
        points = self.points[index]
        slopes = np.diff(hockey_sticks[index] - hockey_sticks[-1]) / np.diff(points)
        masses = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
        return CoarseSum(points, masses / masses.sum())


def _hockey_sticks(
    total: LocalSum, lattice: _Lattice, lengths: tuple[int, ...]
) -> list[FloatArray]:
    """Upper bounds on π_n at the grid points, for each n of ``lengths``."""
    # The values of Y in all five distributions, and their weights, one row each.
    distributions, k = extreme_distributions(total.epsilon0), total.k
    values = np.concatenate([distribution.values(k) for distribution in distributions])
    shifts, outcome = np.unique(values, return_inverse=True)
    weights = np.zeros((len(distributions), shifts.size))
    rows = np.repeat(
        np.arange(len(distributions)), [distribution.weights.size for distribution in distributions]
    )
    np.add.at(
        weights,
        (rows, outcome),
        np.concatenate([distribution.weights for distribution in distributions]),
    )
    # Each value shifts a hockey stick by whole cells and a part of one; a chord interpolates it.
    bins = shifts / lattice.step
    whole = np.floor(bins).astype(np.int64)
    part = (bins - whole)[:, None]
    pad, size = int(np.abs(whole).max()) + 2, lattice.size
    index = (pad - whole)[:, None] + np.arange(size)[None, :]
    ramp = lattice.step * np.arange(pad, 0, -1)
    hockey_sticks, results = np.maximum(-lattice.points, 0.0), []
    charge(max(lengths) * size * shifts.size)
    for n in range(1, max(lengths) + 1):
        # Upper bounds outside the grid: slope −1 on its left, constant on its right.
        padded = np.concatenate(
            [hockey_sticks[0] + ramp, hockey_sticks, np.full(pad, hockey_sticks[-1])]
        )
        moved = (1.0 - part) * padded[index] + part * padded[index - 1]
        hockey_sticks = np.max(weights @ moved, axis=0)
        if n in lengths:
            results.append(hockey_sticks * (1.0 + _ROUNDING_A_STEP * UNIT_ROUNDOFF * n))
    return results


def response_excess(total: LocalSum, response: int, side: Side) -> float:
    """Bound on E[(Y_1 + … + Y_t − c₀)₊]/t for one randomized response in every step.

    A lower bound for this randomizer is also a lower bound for the worst randomizer.

    Args:
        total: the sum, whose steps all use the same randomized response.
        response: index of `extreme_distributions`; 0, 1 and 2 are randomized responses.
        side: side of the bound.
    """
    # Values of Y in falling order.
    sign = 1.0 if side is Side.UPPER else -1.0
    one, k, count, threshold = (
        extreme_distributions(total.epsilon0)[response],
        total.k,
        total.count,
        total.threshold,
    )
    order = np.argsort(-one.values(k))
    values, weights = one.values(k)[order], one.weights[order]
    # Condition on how often the middle value occurs, if there is one.
    if values.size == 2:
        often, chance, rounding = np.array([0]), np.array([1.0]), 0.0
    else:  # given the number of middle values, the others are binomial
        often, chance = _binomial(count, float(weights[1]))
        rounding = 1e-15 * (
            1.0 + count
        )  # absolute error of ln Γ, so relative error of a probability
    # The expectation of two values by binomial tails, with errors moved to the side.
    charge(_UNITS_A_COUNT * often.size)
    share = float(weights[0] / (weights[0] + weights[-1]))
    offset = often.astype(np.float64) * (values[1] if values.size == 3 else 0.0) - threshold
    value, error = _two_valued(count - often, values[0], values[-1], share, offset)
    mean = float(chance @ np.maximum(value + sign * error, 0.0)) * (1.0 + sign * rounding)
    lost = _RARE * count * float(values[0] - values[-1]) if side is Side.UPPER else 0.0
    return (max(mean, 0.0) + lost) / count


def _binomial(count: int, share: float) -> tuple[IntArray, FloatArray]:
    """Likely numbers of successes, with probabilities; the total of the rest is at most `_RARE`."""
    variance = count * share * (1.0 - share)
    reach = 23.5 + math.sqrt(23.5**2 + 140.0 * variance)  # Bernstein: 2e^{−70} lie beyond
    low = max(math.ceil(count * share - reach), 0)
    often = np.arange(low, min(math.floor(count * share + reach), count) + 1)
    logs = gammaln(count + 1) - gammaln(often + 1) - gammaln(count - often + 1)
    logs += often * math.log(share) + (count - often) * math.log1p(-share)
    return often, np.exp(logs)


def _two_valued(
    counts: IntArray, high: float, low: float, share: float, offset: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """E[(B·high + (n − B)·low + offset)₊] for a binomial B, and a bound on its rounding error."""
    jump, base = high - low, counts * low + offset
    least = np.clip(np.floor(-base / jump) + 1, 0, counts + 1)
    gain = jump * counts * share * _binomial_tail(counts - 1, least - 1, share)
    loss = base * _binomial_tail(counts, least, share)
    return gain + loss, _BINOMIAL_ERROR * (np.abs(gain) + np.abs(loss))


def _binomial_tail(counts: IntArray, least: FloatArray, share: float) -> FloatArray:
    """Probability that a binomial variable is at least ``least``, shape of ``counts``."""
    inside = (least > 0) & (least <= counts)
    a, b = np.where(inside, least, 1.0), np.where(inside, counts - least + 1, 1.0)
    return np.where(inside, betainc(a, b, share), np.where(least <= 0, 1.0, 0.0))
