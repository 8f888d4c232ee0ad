"""Adaptive composition: the privacy curve of a whole run, from the curves of its blocks.

`run_curve` returns the curve of a run, tight near one δ, and `run_epsilon` returns a bound on ε of
the run. `LossGrid` is the grid on which the losses of the blocks are composed. `ComposedCurve` is
the composition of loss distributions. `RepeatedBlock` is a block that is repeated several times,
where one draw decides whether all repetitions happen or none. `pricing`, `privacy_curve` and
`meaning.profile` use this module, which builds on `blocks` and `sums`.

δ(ε) of a run is E_P[(1 − e^{ε − L})₊], where L is the sum of its blocks' losses. The distributions
on their grids are weighted by e^{θL}, with θ chosen so that round-off is small relative to δ at the
ε of interest, and convolved by the transform of `sums`, whose error does not grow with the number
of blocks. An upper curve adds and a lower curve subtracts three errors: round-off, the mass outside
the window, and the rounding of the masses. dp-accounting's own convolution is not used, because its
error in δ is the number of blocks times 1e-16 at every δ.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from turnout.accounting.divergence import sums
from turnout.accounting.divergence.blocks import (
    Block,
    CurvePair,
    GridTooLargeError,
    LossDistribution,
    Run,
    hints_apart,
    loss_distribution,
    reach_of,
)
from turnout.accounting.divergence.curves import Curve, Direction, Side, epsilon_at, running_sums
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import remembered
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError, TurnoutError

_NEGLIGIBLE = 1e-5  # largest share of δ due to losses outside the window

_NOISE = 1e-5  # largest share of δ due to round-off

_ROUNDING = 1e-12  # about the ℓ2 norm of round-off in a distribution

_FEW_POINTS = 120  # of the distributions by which tilt and window are chosen

_TILTS, _EDGES = 64, 40

_CLOSE = 1e-4  # relative difference between bounds on ε that does not matter

_MARGIN = 0.01  # part of the window that each edge is moved out, for few points are coarse

_WIDENINGS, _TOO_MUCH_OUTSIDE = 4, 1e-4

_LEAST_DELTA = 1e-200

_MOST_BINS = 1 << 22

_LARGEST_EXPONENT = 300.0

# A price is the sum of its slopes over the cells beyond and a mass a difference of slopes, so all
# roundings of masses together change a price by a few u of itself. If a curve is within a factor of
# 1 ± η of another, n repetitions are within (1 + η)ⁿ: the smaller curve is that of the larger
# mechanism whose output is shown with probability 1/(1 + η) only.
_ROUNDINGS_A_MASS = 64.0

# K = e^{jΔ} is rounded as well. A curve read at K(1 ± η) is that of P and (1 ∓ η) Q, and Q scaled
# in each of n blocks is the run read at K(1 ± η)ⁿ. η is so many u times 1 + |ln K|.
_ROUNDINGS_A_THRESHOLD = 4.0

Parts = Sequence[tuple[LossDistribution, int]]


@dataclass(frozen=True, slots=True, eq=False)
class ComposedCurve:
    """Curve δ(K) of a composed run, rounded towards one side of the true curve.

    Let y be the mass of a loss L. ``mass[i]`` is Σ y and ``inverse[i]`` is Σ y·e^{−(L − epsilon)},
    both over the losses from index i on and in units of e^``log_unit``.

    Attributes:
        epsilon: ε at which the curve is tight.
        tilt: θ; the masses of losses L were multiplied by e^{θL} before the convolution.
        infinity: P's mass where Q has no mass.
        error: bound, in units of e^``log_unit``, on the error at ``epsilon`` from round-off and
            from the edges of the window.
        relative_error: bound on the relative error of every mass.
        shift: how far, in ε, roundings of K may have moved the curve.
    """

    side: Side
    losses: FloatArray
    mass: FloatArray
    inverse: FloatArray
    epsilon: float
    tilt: float
    log_unit: float
    infinity: float
    error: float
    relative_error: float
    shift: float

    @classmethod
    def of(cls, side: Side, parts: Parts, delta: float) -> ComposedCurve:
        """Composed curve of several loss distributions with their counts, tight near δ.

        Raises:
            NumericalError: δ is too small to be certified, or the tilt is too large for float64.
        """
        if delta < _LEAST_DELTA:
            raise NumericalError(f"delta = {delta:.3g} is too small to be certified")
        # Tilt and window for the convolution, chosen for δ.
        gap = parts[0][0].gap
        plan = _Plan.of(parts, delta).wide_enough(parts, delta)
        tilt, epsilon = plan.tilt, plan.epsilon
        size = _bins(max((plan.high - plan.low) / gap + 2, *(p.masses.size + 1 for p, _ in parts)))
        lowest = sum(count * distribution.lowest for distribution, count in parts)
        bin_ = math.floor(plan.low / gap) - lowest
        # Convolve the tilted distributions; the norms of the tilts are multiplied.
        factors, log_norm = [], 0.0
        for distribution, count in parts:
            tilted, log_sum = _tilted(distribution, tilt)
            factors.append(sums.Factor(tilted, count))
            log_norm += count * log_sum
        total = sums.convolve(factors, size, bin_)
        losses = gap * (lowest + bin_ + np.arange(size, dtype=np.float64))
        # Losses far below ε matter to no K near it, and e^{(1 + θ)(ε − loss)} would overflow.
        kept = (epsilon - losses) * max(tilt, 0.5 * (1.0 + tilt)) <= _LARGEST_EXPONENT
        away = losses[kept] - epsilon
        weights = total.masses[kept] * np.exp(np.maximum(-tilt * away, -700.0))
        if not log_norm - tilt * epsilon < _LARGEST_EXPONENT:
            raise NumericalError("the exponential tilt of the losses is too large for float64")
        # Bounds on mass outside the window, and on the rounding of masses and thresholds.
        outside = plan.log_outside(parts, float(losses[0]), float(losses[-1] + gap)) - log_norm
        payoff = _payoff_norm(tilt, gap, size)
        blocks = sum(count for _, count in parts)
        furthest = max(
            float(np.abs(distribution.losses[[0, -1]]).max()) for distribution, _ in parts
        )
        rounding = blocks * (2 * _ROUNDINGS_A_MASS + 4.0 * tilt * furthest) + 8.0 * size
        return cls(
            side,
            losses[kept],
            running_sums(weights, Direction.REMOVE),
            running_sums(weights * np.exp(-away), Direction.REMOVE),
            epsilon,
            tilt,
            log_norm - tilt * epsilon,
            -math.expm1(
                sum(count * math.log1p(-distribution.infinity) for distribution, count in parts)
            ),
            total.l2_error * payoff + math.exp(min(outside, 600.0)),
            math.expm1((rounding + 4.0 * tilt * abs(epsilon)) * UNIT_ROUNDOFF),
            (blocks + 1) * _ROUNDINGS_A_THRESHOLD * (1.0 + furthest) * UNIT_ROUNDOFF,
        )

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        # K moved by the rounding of thresholds, towards the side.
        shift = -self.shift if self.side is Side.UPPER else self.shift
        k = np.asarray(k, dtype=float) * math.exp(shift)
        epsilons = np.log(k)
        index = np.searchsorted(self.losses, epsilons, side="right")
        known = epsilons >= self.losses[0]
        far = np.where(known, k * math.exp(-self.epsilon), 0.0) * self.inverse[index]
        value = self.mass[index] - far
        # Errors at this K, added to an upper curve and subtracted from a lower one.
        near = np.minimum(-self.tilt * (epsilons - self.epsilon), _LARGEST_EXPONENT)
        error = self.error * np.exp(near)
        error = error + self.relative_error * (np.abs(self.mass[index]) + np.abs(far))
        unit = math.exp(self.log_unit)
        sign = 1.0 if self.side is Side.UPPER else -1.0
        moved = self.infinity * (1.0 + sign * 1e-12) + unit * (value + sign * error)
        return np.where(known, np.clip(moved, 0.0, 1.0), 1.0 if sign > 0 else 0.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        index = np.searchsorted(self.losses, np.log(k), side="right")
        scale = math.exp(self.log_unit - self.epsilon)
        return -np.maximum(self.inverse[index], 0.0) * scale


@dataclass(frozen=True, slots=True)
class _Plan:
    """Parameters of a composition: tilt θ, ε at which it is tight, and window of losses.

    Two further fields are exponents of Chernoff bounds on the mass outside the window. All values
    are computed from coarser distributions; a bad choice gives wide bounds, never wrong bounds.
    """

    tilt: float
    epsilon: float
    low: float
    high: float
    below: float
    above: float

    @classmethod
    def of(cls, parts: Parts, delta: float) -> _Plan:
        few = [(*_few(distribution), count) for distribution, count in parts]

        def log_moments(s: FloatArray) -> FloatArray:
            return sum((n * sums.log_sums(x, m, s) for x, m, n in few), np.zeros(s.size))

        # Chernoff bound on ε at δ for each tilt of a geometric grid.
        gap = parts[0][0].gap
        tilts = np.geomspace(1e-2, 300.0 / gap, _TILTS)
        # Largest payoff under the tilt: θ^θ/(1 + θ)^{1 + θ} at e^{−u} = θ/(1 + θ).
        worths = -tilts * np.log1p(1.0 / tilts) - np.log1p(tilts)
        most = sum(count * float(distribution.losses[-1]) for distribution, count in parts)
        worths = np.minimum(worths, math.log(-math.expm1(-most)))
        moments = log_moments(tilts)
        bounds = (moments + worths - math.log(delta)) / tilts  # Chernoff bounds on ε
        # Of the tilts with nearly the least bound, take the smallest: its curve is tight furthest
        # away.
        close = bounds.min() + _CLOSE * abs(float(bounds.min()))
        best = int(np.argmax(bounds <= close))
        epsilon = max(float(bounds[best]), 0.0)
        # Take a smaller tilt if its round-off is already small compared with δ.
        noise = math.log(_ROUNDING) + moments + worths - tilts * epsilon
        enough = np.flatnonzero(noise <= math.log(_NOISE * delta))
        chosen = min(int(enough[0]), best) if enough.size else best
        tilt = float(tilts[chosen])
        # Ends of the window, outside which Chernoff bounds the tilted mass, with a margin.
        log_mass = math.log(_NEGLIGIBLE * delta) + tilt * epsilon - float(worths[chosen])
        steps = np.geomspace(1e-2, 300.0 / gap, _EDGES)
        up = (log_moments(tilt + steps) - log_mass) / steps
        down = (log_mass - log_moments(tilt - steps)) / steps
        above, below = int(np.argmin(up)), int(np.argmax(down))
        low = min(float(down[below]), -gap)
        high = max(float(up[above]), epsilon + 2 * gap)
        margin = 4 * gap + _MARGIN * (high - low)
        return cls(
            tilt, epsilon, low - margin, high + margin, float(steps[below]), float(steps[above])
        )

    def wide_enough(self, parts: Parts, delta: float) -> _Plan:
        """Plan whose window is widened until the bound on the mass outside is small enough."""
        plan = self
        for _ in range(_WIDENINGS):
            outside = plan.log_outside(parts, plan.low, plan.high) - plan.tilt * plan.epsilon
            if outside <= math.log(_TOO_MUCH_OUTSIDE * delta):
                break
            span = plan.high - plan.low
            plan = replace(plan, low=plan.low - 0.1 * span, high=plan.high + 0.1 * span)
        return plan

    def log_outside(self, parts: Parts, first: float, end: float) -> float:
        """Logarithm of a Chernoff bound on E[e^{θL}] over losses outside [first, end)."""

        def log_moment(s: float) -> float:
            total = 0.0
            for distribution, count in parts:
                total += count * (
                    math.log1p(1e-12) + _log_sum(distribution.losses, distribution.masses, s)
                )
            return total

        above = log_moment(self.tilt + self.above) - self.above * end
        below = log_moment(self.tilt - self.below) + self.below * first
        return float(np.logaddexp(above, below))


def _payoff_norm(tilt: float, gap: float, size: int) -> float:
    """Upper bound on the ℓ2 norm of (1 − e^{−u}) e^{−θu} over u = 0, Δ, 2Δ, ….

    θ is ``tilt``, Δ is ``gap``, and u takes ``size`` values. The bound uses 1 − e^{−u} ≤ u.
    """
    span = min(size * gap, 1.0)
    by_size = size * span**2
    by_tilt = span**2 + 0.5 / (tilt * gap)
    by_both = 0.25 / (tilt**3 * gap) + 1.0 / (math.e * tilt) ** 2
    return math.sqrt(min(by_size, by_tilt, by_both))


def _tilted(distribution: LossDistribution, tilt: float) -> tuple[FloatArray, float]:
    """Masses times e^{θ·loss}, scaled to sum to 1, and the logarithm of the sum before scaling."""
    exponents = np.where(distribution.masses > 0, tilt * distribution.losses, -np.inf)
    top = float(exponents.max())
    weights = distribution.masses * np.exp(exponents - top)
    norm = float(weights.sum())
    return weights / norm, top + math.log(norm)


def _log_sum(losses: FloatArray, masses: FloatArray, s: float) -> float:
    exponents = s * losses[masses > 0]
    top = float(exponents.max())
    return top + math.log(float(np.exp(exponents - top) @ masses[masses > 0]))


def _few(distribution: LossDistribution) -> tuple[FloatArray, FloatArray]:
    """Losses and masses of a coarser distribution, with narrow cells near 0 and near both ends."""
    alive = np.flatnonzero(distribution.masses)
    bottom, top, zero = int(alive[0]), int(alive[-1]), -distribution.lowest
    distances = np.unique(np.geomspace(1, distribution.masses.size, _FEW_POINTS).astype(np.int64))
    ends = [bottom + distances, zero - distances, zero + distances, top - distances]
    starts = np.unique(np.clip(np.concatenate([[bottom, zero, top], *ends]), bottom, top))
    masses = np.add.reduceat(distribution.masses[: top + 1], starts)
    losses = np.add.reduceat((distribution.masses * distribution.losses)[: top + 1], starts)
    alive = masses > 0
    return losses[alive] / masses[alive], masses[alive]


def _bins(wanted: float) -> int:
    """Smallest number of bins 2ⁿ or 3·2ⁿ that is at least ``wanted``."""
    if not wanted <= _MOST_BINS:
        raise GridTooLargeError("the grid of privacy losses needs more bins than fit in memory")
    return sums.smooth_size(max(wanted, 64.0))


_FIRST_GAP = 1 / 40  # loss grid of a composition, as a fraction of one block's loss deviation

_MOST_LOSSES = 2**16  # points of one block's first loss grid

_LAST_HOP = 100.0  # δ over that at which the curve of the second neighbour bound is tight

_TAIL = 3e-4  # part of δ that may go to infinity in a composition


@dataclass(frozen=True, slots=True)
class LossGrid:
    """Grid on which the privacy losses of the blocks of a run are composed.

    Attributes:
        gap: step of the grid, before refinement.
        tail: probability, in each block, that may be moved to an infinite loss.
    """

    gap: float
    tail: float

    @classmethod
    def of(cls, run: Run, delta: float) -> LossGrid:
        """Loss grid of a run of at least one block."""
        tail = _tail(run, delta)
        return cls(_gap(run, max(_reach(block, tail) for block, _ in run)), tail)

    @classmethod
    def common(cls, run: Run, delta: float) -> LossGrid | None:
        """Loss grid that many runs can share, about as fine as the grid that `of` returns.

        Its step is a power of 2. The result is None for a run of one block, which needs no grid.
        """
        if not is_composed(run):
            return None
        tail = 1e3 ** math.floor(math.log(_tail(run, delta), 1e3))
        widest = max((block for block, _ in run), key=lambda block: block.loss_deviation)
        return cls(2.0 ** math.floor(math.log2(_gap(run, _reach(widest, tail)))), tail)


def is_composed(run: Run) -> bool:
    """Whether a run has more than one block, so that losses must be added up."""
    return len(run) > 1 or any(count > 1 for _, count in run)


def _tail(run: Run, delta: float) -> float:
    """Probability, in each block of a run, that may be moved to an infinite loss."""
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
    """Upper or lower bound on ε of a run at δ in one direction; 0 for a run without blocks.

    The search for a lower bound is finer below ``near``, a known upper bound on ε.

    Raises:
        NumericalError: no bound can be certified at δ.
    """
    if not run:
        return 0.0
    curve = run_curve(run, direction, side, delta, refinement, grid=grid)
    with certified(delta):
        return epsilon_at(curve, delta, side, near)


@contextmanager
def certified(delta: float) -> Generator[None, None, None]:
    """Context manager that raises a NumericalError in place of an arithmetic error.

    NaN values of curves do not raise here; `epsilon_at` detects them.

    Raises:
        NumericalError: the computation within the context had an arithmetic error.
    """
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            yield
    except TurnoutError:
        raise
    except (ArithmeticError, ValueError, IndexError) as error:
        raise NumericalError(
            f"delta = {delta:.3g} cannot be certified: an arithmetic error occurred ({error})"
        ) from error


def run_curve(
    run: Run,
    direction: Direction,
    side: Side,
    delta: float,
    refinement: int,
    *,
    grid: LossGrid | None = None,
) -> Curve:
    """Curve of a run of at least one block, tight near the given δ and valid at every K.

    Each unit of ``refinement`` halves the steps of all grids.

    Raises:
        ParameterError: an unknown direction or side.
        NumericalError: no curve can be certified at δ.
    """
    direction = checks.choice(Direction, direction=direction)
    side = checks.choice(Side, side=side)
    with certified(delta):
        # A single block needs no composition.
        if not is_composed(run):
            return run[0][0].curve(direction, side, delta, refinement)
        # Loss distributions of all blocks on one grid, rounded to the side of the curve.
        grid = grid or LossGrid.of(run, delta)
        gap, tail = grid.gap / 2**refinement, grid.tail
        parts = [
            (
                _loss_distribution(
                    block, direction, side, gap=gap, tail=tail, refinement=refinement
                ),
                count,
            )
            for block, count in run
        ]
        return ComposedCurve.of(side, parts, delta)


def two_bound_epsilon(first: Run, second: Run, delta: float) -> float:
    """Upper bound on ε at δ between two neighbours, through a reference between them.

    By the path P → reference → P', δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂). The result is the
    smallest ε₁ + ε₂ over several divisions of δ between these two terms.

    Raises:
        NumericalError: no division of δ gives a certified bound.
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
    # Least sum of both ε over several divisions of δ; divisions that cannot be certified are
    # skipped.
    best = math.inf
    for share in np.linspace(0.02, 0.98, 25):
        try:
            first_epsilon = epsilon_at(remove, float(share) * delta, Side.UPPER)
            rest = (1.0 - float(share)) * delta * math.exp(-first_epsilon)
            best = min(best, first_epsilon + epsilon_at(add, rest, Side.UPPER))
        except NumericalError:
            continue
    if math.isinf(best):
        raise NumericalError(
            f"delta = {delta:.3g} cannot be certified: no division of delta between the two "
            "neighbour bounds gives a finite epsilon"
        )
    return best * (1 + 1e-12)


def two_bound_grid(run: Run, delta: float) -> LossGrid | None:
    """Grid that both neighbour bounds and the lower bound share, so that curves are reused.

    The result is None if the run has a single block, or if a curve does not fall as far as the
    second bound needs. In both cases each bound uses its own grid.
    """
    if not is_composed(run):
        return None
    try:
        return LossGrid.of(run, delta / _LAST_HOP)
    except NumericalError:
        return None


def _loss_distribution(
    block: Block, direction: Direction, side: Side, *, gap: float, tail: float, refinement: int
) -> LossDistribution:
    both = _loss_distributions(block, side, gap=gap, tail=tail, refinement=refinement)
    return both[0 if direction is Direction.REMOVE else 1]


@remembered
def _loss_distributions(
    block: Block, side: Side, *, gap: float, tail: float, refinement: int
) -> tuple[LossDistribution, LossDistribution]:
    """Loss distributions of a block in both directions."""
    curves = block.curves(side, tail, refinement)
    return loss_distribution(curves, Direction.REMOVE, gap, tail), loss_distribution(
        curves, Direction.ADD, gap, tail
    )


@remembered
def _reach(block: Block, tail: float) -> float:
    return reach_of(block.curves(Side.UPPER, tail, 0), tail)


_APART = 30.0  # ratio of neighbouring values of δ near which compositions are tight


@dataclass(frozen=True, slots=True)
class RepeatedBlock:
    """Independent repetitions of a block, of which either all or none happen.

    An example is a sample of clients that send several messages each: one draw decides about the
    whole step.

    Attributes:
        base: the repeated block.
        count: number of repetitions.
    """

    base: Block
    count: int

    def __post_init__(self) -> None:
        checks.count(count=self.count)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation, at most 1, of the summed loss of the repetitions."""
        return min(1.0, math.sqrt(self.count) * self.base.loss_deviation)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of the composed repetitions, tight near the given δ."""
        return run_curve([(self.base, self.count)], direction, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of the composed repetitions, each tight near one of several values of δ."""
        run, hints = [(self.base, self.count)], hints_apart(delta, _APART)
        grid = LossGrid.of(run, hints[0])
        remove, add = (
            [run_curve(run, direction, side, hint, refinement, grid=grid) for hint in hints]
            for direction in Direction
        )
        floors = [self._floor(floor, side) for floor in self.base.curves(side, delta, 0).floors]
        return CurvePair(side, remove, add, (floors[0], floors[1]))

    def _floor(self, floor: float, side: Side) -> float:
        """Limit of δ of all repetitions for large ε, 1 − (1 − floor)^count, rounded to ``side``."""
        if floor >= 1.0:
            return 1.0
        sign = 1.0 if side is Side.UPPER else -1.0
        whole = -math.expm1(self.count * math.log1p(-floor)) * (1.0 + sign * _ROUNDING)
        return min(max(whole, 0.0), 1.0)
