"""Replace-one: proved bounds on E[(Y_1 + … + Y_t − c₀)₊]/t, by which windows are priced.

`excess` bounds a `Sum` of i.i.d. steps from either side; a `Planner` keeps the plans of similar
sums. `upper_excess` bounds a `LocalSum` of adaptive ε₀-private steps from above, `response_excess`
one of randomized response (`extreme_laws`) from either side. `replace_one` makes blocks of them;
the module builds on `replace_one_grids` and `replace_one_steps`. docs/design/replacement.md has the
proofs.

**I.i.d. steps.** Where Y has light tails, Y is capped at M, which costs t·E[(Y − M)₊]. A tilt does
not serve a heavy tail. There, one jump above a much lower M is taken out and integrated in closed
form: with N the number of jumps, p = Q(Y > M) and π_J(c) = E[(Y − c)₊; Y > M],

    E[(Σ − c₀)₊] = E[…; N = 0] + t·E[π_J(c₀ − Z)] + E[…; N ≥ 2],

where Z sums t − 1 steps that do not jump, and since c₀ ≥ 0 the last term is at most
t·(π_J(0)·(t−1)p + E[Y₊]·((t−1)p)²/2).

**ε₀-private steps.** The reference (another client's message, or a dummy) is made by the same
randomizer, so any two of P, P' and Q have ratios of at most a = e^{ε₀}. Then (1, X, X') lies in a
cone with six extreme rays, the vectors of 1's and a's that are not constant; a step's worst
distribution given what follows is an extreme point of the distributions on the rays with E X = E
X' = 1, of which there are five (`extreme_laws`). For n steps, each of which may depend on the ones
before,

    π_0(c) = (−c)₊,    π_n(c) = max over the five distributions of E[π_{n−1}(c − Y)],  Y = X − K·X'

is the largest possible E[(Y_1 + … + Y_n − c)₊], exactly. It is convex, so on a grid its chords are
an upper bound. Long windows are cut into blocks of b steps: π_b is the hockey stick of a
distribution that lies above any b adaptive steps in convex order, and sums of blocks are one FFT.
The loss of this falls as 1/b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy.special import betainc, gammaln

from turnout.accounting.divergence.convex_order import convex_slopes
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.accounting.participation.replace_one_grids import (
    MOST_CELLS_LOG2,
    MassGrid,
    Tail,
    expectation,
    grid_law,
)
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

_PILOTS, _FIRST_CAP = 8, 1e-4  # grids tried to find where one Y may be capped
_NEGLIGIBLE = 1e-6  # part of δ that a cap, or a second jump, may cost
_FAR = 50.0  # times that part, for values far below beside a jump
_LOST = 3 * _FAR * _NEGLIGIBLE  # part of a value that its plan may lose
_UNPILOTED = 7  # plans in a row that are made without pilots
_COARSEST = 0.06  # √t·θ·h of the first grid: the spread then costs 3e-4 of δ
_WORTH_A_JUMP = 0.999  # of a bound: a second sum must lower it at least to this
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
class GridPlan:
    """Plan of a sum: the frame without jumps, and the one beside a jump, if any.

    Jumps above ``far`` are counted for every value of the rest of the sum.
    """

    main: SumFrame
    beside: SumFrame | None = None
    far: float = math.inf


class Planner:
    """Plans of a sequence of similar sums.

    Pilots decide whether a cap or a jump loses less; they take as long as the sums themselves. The
    decision seldom changes from a sum to the next, so pilots are made for some sums only; a plan
    without pilots that loses too much is made again with pilots.
    """

    def __init__(self) -> None:
        self._plans: dict[Sum, GridPlan] = {}
        self._piloted: set[Sum] = set()
        self._guess: float | None = None
        self._jumps, self._unpiloted = False, 0

    def plan(self, total: Sum) -> GridPlan:
        """Plan of a sum, the same for both sides."""
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
        self._jumps, self._unpiloted = plan.beside is not None, _UNPILOTED
        return plan

    def upper(self, total: Sum, refinement: int) -> float:
        """Upper bound by the plan of this sum."""
        value, lost = self._tried(total, refinement)
        if lost > _LOST * value and total not in self._piloted:
            value, _ = _excess(total, Side.UPPER, self._with_pilots(total), refinement)
        if 0 < value < math.inf:
            self._guess = min(value, 1.0)
        return value

    def _tried(self, total: Sum, refinement: int) -> tuple[float, float]:
        """Upper bound and the loss of its plan; all is lost where a plan without pilots fails."""
        try:
            return _excess(total, Side.UPPER, self.plan(total), refinement)
        except NumericalError:
            if total in self._piloted:
                raise
            return 0.0, math.inf

    def lower(self, total: Sum, refinement: int) -> float:
        """Lower bound by the plan of this sum."""
        return _excess(total, Side.LOWER, self.plan(total), refinement)[0]


def excess(total: Sum, side: Side, refinement: int = 0, planner: Planner | None = None) -> float:
    """Bound on E[(Y_1 + … + Y_t − c₀)₊]/t, never on the wrong side.

    Each refinement halves the grid's step; a planner shared by similar sums saves time. Where the
    sum fits on no grid, an upper bound is that of single steps and a lower one is 0.
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
    """Price of one step at the threshold's share, an upper bound: Σ(Y − c₀/t) ≤ Σ(Y − c₀/t)₊."""
    sign = -1.0 if side is Side.UPPER else 1.0
    at = np.array([total.threshold / total.count * (1.0 + sign * 16.0 * UNIT_ROUNDOFF)])
    if side is Side.UPPER:
        return float(total.step.upper(at)[0])
    return max(float(total.step.tangent(at)[0][0]), 0.0) if total.count == 1 else 0.0


def _plan(total: Sum, guess: float | None) -> GridPlan:
    """Plan whose cap, or second jump, has a negligible cost, as pilots show."""
    # Without a guess of the value, the first cost follows from the price at the mean.
    overview = Overview.of(total.step)
    if guess is None:
        most = float(np.interp(total.step.mean, overview.points, overview.prices))
        cost = _FIRST_CAP * min(most, 1.0)
    else:
        cost = _NEGLIGIBLE * min(guess, 1.0)
    # Pilots: cap, and where tails are heavy also jump, with the cost adapted to the value found.
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
    cap = max(overview.first_below(overview.prices, cost), _least_cap(overview, total))
    if overview.step.top <= _NEAR_TOP * cap:  # nothing is lost where the cap is the end
        cap = overview.step.top
    return GridPlan(
        hockey_stick_frame(overview.coarse(overview.low, cap), total.count, total.threshold)
    )


def _least_cap(overview: Overview, total: Sum) -> float:
    return total.threshold / total.count + _LEAST_CAP * overview.unit


def _jump_plan(overview: Overview, total: Sum, cost: float) -> GridPlan:
    """Plan with a cap such that two jumps together, about t·p·E[Y; Y > M], cost little."""
    count, threshold = total.count, total.threshold
    points, shares, prices = overview.points, overview.shares, overview.prices
    # The cap at which the bound on two or more jumps is the cost.
    jumps = prices + np.maximum(points, 0.0) * shares
    some = prices[np.searchsorted(points, 0.0)]
    pairs = count * shares * (jumps + 0.5 * some * count * shares)
    cap = max(overview.first_below(pairs, cost), _least_cap(overview, total))
    # The frame of the sum without jumps.
    law, tail = overview.coarse(overview.low, cap), Tail.of(overview.step, Side.UPPER, cap)
    main = hockey_stick_frame(law, count, threshold)
    # Beside a jump, values far below are as rare as they are of little weight.
    far = max(cap, float(points[np.argmax(prices <= _FAR * cost)]))
    weights = count * (1.0 - shares) * np.interp(threshold - points, points, prices)
    low = float(points[max(int(np.sum((weights <= _FAR * cost) & (points < 0))) - 1, 0)])
    calm = overview.coarse(max(low, overview.low), cap)
    calm = CoarseSum(calm.points[:-1], calm.masses[:-1])
    if not calm.masses.any():
        return GridPlan(main)
    beside = payoff_frame(
        calm, count - 1, partial(_jump, tail, threshold), threshold - far, threshold
    )
    return GridPlan(main, beside, far)


def _bins(frame: SumFrame, count: int, refinement: int) -> int:
    width = frame.below + frame.above
    fewest = _FEWEST_HEAVY_LOG2 if frame.is_heavy else _FEWEST_LOG2
    wanted = math.ceil(math.log2(width * frame.resolution * math.sqrt(count) / _COARSEST))
    first = min(max(wanted, fewest), _MOST_FIRST_LOG2)
    return 1 << min(max(first + refinement, _PILOT_LOG2), MOST_CELLS_LOG2)


def _excess(total: Sum, side: Side, plan: GridPlan, refinement: int) -> tuple[float, float]:
    """Bound, and the part of an upper one that is due to the cap or to second jumps."""
    step, count, main = total.step, total.count, plan.main
    # The sum without jumps, or capped.
    out = None if plan.beside is None else Tail.of(step, Side.UPPER, main.high)
    law = grid_law(step, side, main, _bins(main, count, refinement), out)
    value = (
        expectation([(law, count)], side, main, partial(_hockey_stick, total.threshold), 1.0)
        / count
    )
    # Capped: an upper bound adds the price above the cap.
    if out is None:
        cap = float(step.upper(law.points[-1:])[0]) if side is Side.UPPER else 0.0
        return value + cap, cap - step.infinite
    # One jump, and for an upper bound those above ``far`` and two or more of them.
    value += _beside_jump(total, side, plan, refinement, out)
    if side is Side.LOWER:
        return value, 0.0
    others = (count - 1) * out.share
    jump, some = (float(f(np.array([0.0]))[0]) for f in (out, step.upper))
    lost = float(out(np.array([plan.far]))[0]) + jump * others + 0.5 * some * others**2
    return value + lost, lost


def _beside_jump(total: Sum, side: Side, plan: GridPlan, refinement: int, out: Tail) -> float:
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


_UNITS_A_COUNT = 100  # of work, of two binomial tails
_STEPS_A_DEVIATION = 24  # grid points a standard deviation of one Y
_REACH = 11.0  # standard deviations of a block beyond which its price is not followed
_MOST_REACH = 40.0
_MOST_POINTS = 1 << 20
_COARSE_POINTS = 400
_ROUNDING_A_STEP = 64.0  # units of rounding in a price a step, Y's own included
_BINOMIAL_ERROR = 1e-11  # relative, of the regularised incomplete beta function
_RARE = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeLaw:
    """A distribution of (X, X') on at most three of the six rays."""

    ratios: FloatArray
    others: FloatArray
    weights: FloatArray

    def values(self, k: float) -> FloatArray:
        """Y = X − K·X'."""
        return self.ratios - k * self.others


@lru_cache(maxsize=64)
def extreme_laws(epsilon0: float) -> tuple[ExtremeLaw, ...]:
    """Five extreme distributions of (X, X'): three randomized responses, a similar one, X = X'.

    In order: 3-ary randomized response with z, z' and the reference on three values; binary
    response with the reference on the side of z, and on that of z'; the 3-ary one with each
    value rarer under its own input; z and z' on one side.
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
        ExtremeLaw(np.array(x, float), np.array(y, float), np.array(w, float) / sum(w))
        for x, y, w in rows
    )


@dataclass(frozen=True, slots=True)
class LocalSum:
    """Y_1 + … + Y_t of ε₀-private steps, at K = e^ε, against a threshold c₀ ≥ 0."""

    epsilon0: float
    k: float
    count: int
    threshold: float


def upper_excess(total: LocalSum, longest: int, refinement: int = 0) -> float:
    """Upper bound on the largest E[(Y_1 + … + Y_t − c₀)₊]/t over adaptive ε₀-private steps.

    A block has at most ``longest`` steps; up to that many the bound is exact but for the grid,
    whose step each level of refinement halves.
    """
    # Blocks of nearly equal length.
    if total.k >= math.exp(total.epsilon0):
        return 0.0
    blocks = -(-total.count // longest)
    length, longer = divmod(total.count, blocks)
    # Prices of a block on a lattice; of a single block that is the answer.
    lattice = _Lattice.of(total, blocks, refinement)
    prices = _prices(total, lattice, (length, length + 1) if longer else (length,))
    if blocks == 1:
        return float(np.interp(total.threshold, lattice.points, prices[0])) / total.count
    # The sum of blocks: one FFT, and the prices above the lattice's end.
    parts = [
        (lattice.law(price), count)
        for price, count in zip(prices, (blocks - longer, longer), strict=False)
    ]
    frame = hockey_stick_frame(lattice.coarse(prices[0]), blocks, total.threshold)
    value = expectation(
        parts, Side.UPPER, frame, lambda z: np.maximum(z - total.threshold, 0.0), slope=1.0
    )
    caps = sum(count * float(price[-1]) for (_, count), price in zip(parts, prices, strict=True))
    return (value + caps) / total.count


@dataclass(frozen=True, slots=True)
class _Lattice:
    """Grid points at which a block's hockey stick is computed; 0 is one of them."""

    first: int
    size: int
    step: float

    @classmethod
    def of(cls, total: LocalSum, blocks: int, refinement: int) -> _Lattice:
        """Lattice that is wide enough for one of ``blocks`` blocks."""
        a, k, count = math.exp(total.epsilon0), total.k, total.count
        length = -(-count // blocks)
        variance = ((a - k) ** 2 + (k * a - 1) ** 2) / (1 + a) - (k - 1) ** 2
        deviation = math.sqrt(max(variance, 1e-12))
        score = (total.threshold + count * (k - 1)) / (math.sqrt(count) * deviation)
        reach = deviation * math.sqrt(length)
        above = (_REACH + min(score, _MOST_REACH) / math.sqrt(blocks)) * reach + (a - k)
        low = max(length * (1 - k * a), length * (1 - k) - _REACH * reach - k * a)
        high = min(length * (a - k), length * (1 - k) + above)
        step = deviation / _STEPS_A_DEVIATION / 2**refinement
        first, last = math.floor(low / step) - 1, math.ceil(max(high, 0.0) / step) + 1
        if last - first > _MOST_POINTS:
            raise NumericalError("a block's ratios reach too far for a grid")
        return cls(first, last - first + 1, step)

    @property
    def points(self) -> FloatArray:
        """All points."""
        return self.step * (self.first + np.arange(self.size, dtype=np.float64))

    def law(self, prices: FloatArray) -> MassGrid:
        """Distribution with these prices, capped at the last point."""
        slopes = np.clip(convex_slopes(np.diff(prices)) / self.step, -1.0, 0.0)
        masses = np.diff(slopes, prepend=-1.0, append=0.0)
        return MassGrid(self.step * self.first, self.step, masses)

    def coarse(self, prices: FloatArray) -> CoarseSum:
        """The same distribution on few points."""
        index = np.unique(np.linspace(0, self.size - 1, _COARSE_POINTS).astype(np.int64))
        points = self.points[index]
        slopes = np.diff(prices[index] - prices[-1]) / np.diff(points)
        masses = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
        return CoarseSum(points, masses / masses.sum())


def _prices(total: LocalSum, lattice: _Lattice, lengths: tuple[int, ...]) -> list[FloatArray]:
    """Upper bounds on π_n at the lattice's points, for each n of ``lengths``."""
    # The values of Y in all five distributions, and their weights, one row each.
    laws, k = extreme_laws(total.epsilon0), total.k
    values = np.concatenate([law.values(k) for law in laws])
    shifts, outcome = np.unique(values, return_inverse=True)
    weights = np.zeros((len(laws), shifts.size))
    rows = np.repeat(np.arange(len(laws)), [law.weights.size for law in laws])
    np.add.at(weights, (rows, outcome), np.concatenate([law.weights for law in laws]))
    # Each value moves a price by whole cells and a part of one, which a chord interpolates.
    bins = shifts / lattice.step
    whole = np.floor(bins).astype(np.int64)
    part = (bins - whole)[:, None]
    pad, size = int(np.abs(whole).max()) + 2, lattice.size
    index = (pad - whole)[:, None] + np.arange(size)[None, :]
    ramp = lattice.step * np.arange(pad, 0, -1)
    prices, results = np.maximum(-lattice.points, 0.0), []
    charge(max(lengths) * size * shifts.size)
    for n in range(1, max(lengths) + 1):
        # Left of the grid a price rises by at most 1 a unit, right of it not at all.
        padded = np.concatenate([prices[0] + ramp, prices, np.full(pad, prices[-1])])
        moved = (1.0 - part) * padded[index] + part * padded[index - 1]
        prices = np.max(weights @ moved, axis=0)
        if n in lengths:
            results.append(prices * (1.0 + _ROUNDING_A_STEP * UNIT_ROUNDOFF * n))
    return results


def response_excess(total: LocalSum, law: int, side: Side) -> float:
    """Bound on E[(Y_1 + … + Y_t − c₀)₊]/t of one extreme distribution in every step.

    One randomizer attains it, so its lower bound bounds the worst one from below; ``law`` is an
    index of `extreme_laws`, of which the first three are randomized responses.
    """
    sign = 1.0 if side is Side.UPPER else -1.0
    one, k, count, threshold = (
        extreme_laws(total.epsilon0)[law],
        total.k,
        total.count,
        total.threshold,
    )
    order = np.argsort(-one.values(k))
    values, weights = one.values(k)[order], one.weights[order]
    if values.size == 2:
        often, chance, rounding = np.array([0]), np.array([1.0]), 0.0
    else:  # the number of middle values; the rest is binomial
        often, chance = _binomial(count, float(weights[1]))
        rounding = 1e-15 * (1.0 + count)  # of ln Γ, absolute, and so of a probability
    charge(_UNITS_A_COUNT * often.size)
    share = float(weights[0] / (weights[0] + weights[-1]))
    offset = often.astype(np.float64) * (values[1] if values.size == 3 else 0.0) - threshold
    value, error = _two_valued(count - often, values[0], values[-1], share, offset)
    price = float(chance @ np.maximum(value + sign * error, 0.0)) * (1.0 + sign * rounding)
    lost = _RARE * count * float(values[0] - values[-1]) if side is Side.UPPER else 0.0
    return (max(price, 0.0) + lost) / count


def _binomial(count: int, share: float) -> tuple[IntArray, FloatArray]:
    """Numbers of successes, all but a probability of `_RARE`, and their probabilities."""
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
    """E[(B·high + (n − B)·low + offset)₊], B binomial, and a bound on its rounding."""
    jump, base = high - low, counts * low + offset
    least = np.clip(np.floor(-base / jump) + 1, 0, counts + 1)
    gain = jump * counts * share * _binomial_tail(counts - 1, least - 1, share)
    loss = base * _binomial_tail(counts, least, share)
    return gain + loss, _BINOMIAL_ERROR * (np.abs(gain) + np.abs(loss))


def _binomial_tail(counts: IntArray, least: FloatArray, share: float) -> FloatArray:
    """P(B ≥ least)."""
    inside = (least > 0) & (least <= counts)
    a, b = np.where(inside, least, 1.0), np.where(inside, counts - least + 1, 1.0)
    return np.where(inside, betainc(a, b, share), np.where(least <= 0, 1.0, 0.0))
