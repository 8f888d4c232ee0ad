"""One random check-in in a window of t steps: its block, and bounds on its privacy curve.

`AllocationBlock` is one window in which a client takes part, with a given probability, in one
uniformly drawn step. `allocation_curve` returns an upper or lower bound on the window's curve,
usually an `AllocationCurve`. `neighbours` makes such blocks. The modules on k-subsets, the modules
on replace-one, and `shuffling.lower_bounds` also use this module. The curve is computed from
distributions of `divergence.convex_order`, summed by `divergence.sums` on a grid and under a tilt
that `tilted_frames` chooses.

Notation: P and Q are the outputs of one step with and without the client's message, X = dP/dQ, and
K = e^ε. The likelihood ratio of all t outputs, with the client against without it, is
S = (X_1 + … + X_t)/t with X_i i.i.d. under Q. So δ is a hockey stick of an average of i.i.d.
variables (remove), or a reverse hockey stick (add).

Source: Feldman & Shenfeld 2025, Lemma D.1 (for Gaussian noise Chua et al. 2024). Both directions
are computed: the paper's Lemma 3.1 covers *remove* only, and *add* can be the larger one
(docs/errata.md, random allocation 1).

The bounds hold for adaptive steps too: given the past, X_i is in convex order at most a Gaussian
ratio with the full sensitivity. If the ratios are replaced by independent Gaussian ratios, from the
last step to the first, E f(S) only rises for convex f, in both directions.

The distribution of the sum is computed under an exponential tilt. Two errors, each small relative
to δ, are added to an upper bound and subtracted from a lower bound: the mass outside the FFT's
window, and the FFT's round-off. In the remove direction, a bound on the hockey stick of one ratio
at its cap is added to the upper and to the lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence import convex_order, sums
from turnout.accounting.divergence.blocks import CurvePair, curves_apart
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PairCurve,
    Side,
    diluted,
    epsilon_at,
    running_sums,
    with_infinity_mass,
)
from turnout.accounting.divergence.pairs import Pair
from turnout.accounting.divergence.sums import multinomial_curve
from turnout.accounting.divergence.work import remembered
from turnout.accounting.participation.tilted_frames import Frame, Framing, log_moment
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import NumericalError

_LARGEST_EXPONENT = 300.0  # of the factors that undo the tilt, over those at the threshold
_LEAST_DELTA = 1e-200
_STRAY = 0.6  # e-folds of δ by which a frame's threshold may miss, and how often it is moved
_MOVES = 4
_ROUGH = 1e-5  # relative accuracy of an ε that moves a frame


@dataclass(frozen=True, slots=True, eq=False)
class AllocationCurve:
    """Curve δ(K) of one check-in in a window of t steps, from the sum Σ of likelihood ratios.

    δ(K) is E[(Σ − tK)₊]/t (remove) or K·E[(t/K − Σ)₊]/t (add).

    Bin i has the value ``first + i·step`` of Σ and the mass y.

    Attributes:
        side: side of the true curve on which the bound lies.
        frame: tilt of the sum, and the threshold near which the bound is sharp.
        step: distance between neighbouring bins.
        first: value of the sum in bin 0.
        mass: total of y over the bins from i on (remove) or before i (add), in units of
            e^``log_unit``, shape (n,).
        excess: total of y·(value − threshold) over the same bins as in ``mass``, in the same unit,
            shape (n,).
        log_unit: logarithm of the unit of ``mass`` and ``excess``.
        cap: largest value of one ratio Y; larger values are cut off.
        beyond: bound on E[(Y − cap)₊] of one ratio, on the curve's side; all of E[(Y − cap)₊] is
            part of δ if the other ratios sum to at least threshold − cap.
        log_short: (t − 1)·ln E[e^{−aY}] with a = ``frame.short``; it gives a Chernoff bound on the
            probability that t − 1 ratios sum to less than threshold − cap.
        noise: bound on the ℓ2 norm of the round-off of the tilted masses.
        outside: bound on the weighted mass outside the FFT's window, in units of e^``log_unit``.
        relative_error: bound on the relative error of every mass.
    """

    side: Side
    frame: Frame
    step: float
    first: float
    mass: FloatArray
    excess: FloatArray
    log_unit: float
    cap: float
    beyond: float
    log_short: float
    noise: float
    outside: float
    relative_error: float

    def _threshold(self, k: FloatArray) -> FloatArray:
        window, k = self.frame.window, np.asarray(k, dtype=float)
        return window * k if self.frame.direction is Direction.REMOVE else window / k

    def _index(self, threshold: FloatArray) -> IntArray:
        """Index into ``mass`` and ``excess`` for each threshold of Σ.

        The index is that of the first bin above the threshold (remove), or the number of bins below
        the threshold (add).
        """
        position = (threshold - self.first) / self.step
        up = self.frame.direction is Direction.REMOVE
        index = np.floor(position) + 1 if up else np.ceil(position)
        return np.minimum(np.maximum(index, 0), self.mass.size - 1).astype(np.int64)

    def delta(self, k: FloatArray) -> FloatArray:
        """Bound on δ at each K ≥ 1, with all errors moved to the curve's side; shape of ``k``."""
        # The bins on the side of the payoff; beyond the window only the trivial bound is known.
        frame, threshold = self.frame, self._threshold(k)
        up = frame.direction is Direction.REMOVE
        last = self.first + self.step * (self.mass.size - 1)
        known = threshold >= self.first if up else threshold <= last
        threshold = np.maximum(threshold, self.first) if up else np.minimum(threshold, last)
        # The payoff: linear in the threshold between bins.
        index = self._index(threshold)
        gap = threshold - frame.threshold
        excess, linear = self.excess[index], gap * self.mass[index]
        value = excess - linear if up else linear - excess
        # Round-off and outside mass, multiplied by the weight that undoes the tilt.
        far = np.minimum(np.maximum(-frame.signed_tilt * gap, -700.0), _LARGEST_EXPONENT)
        error = np.exp(far) * (self.noise * self._norm() + self.outside / (math.e * frame.tilt))
        error = error + self.relative_error * (np.abs(excess) + np.abs(linear))
        # Errors are added (upper) or subtracted (lower); the part above the cap is added to both.
        scale = math.exp(self.log_unit) / (frame.window if up else threshold)
        if self.side is Side.UPPER:
            total = scale * (value + error) + (self.beyond if up else 0.0)
            return np.where(known, np.minimum(np.maximum(total, 0.0), 1.0), 1.0)
        beyond = self.beyond * (1.0 - self._short(threshold)) if up else 0.0
        total = scale * (value - error) + beyond
        return np.where(known, np.minimum(np.maximum(total, 0.0), 1.0), 0.0)

    def _short(self, threshold: FloatArray) -> FloatArray:
        """Upper bound on the chance that t − 1 ratios sum to less than threshold − cap."""
        gap = threshold - self.cap
        bound = np.exp(np.minimum(self.log_short + self.frame.short * gap, 0.0))
        return np.where(gap <= 0, 0.0, bound)

    def _short_slope(self, threshold: FloatArray) -> FloatArray:
        """Contribution of ratios above the cap to the slope −dδ/dK."""
        if self.side is Side.UPPER:
            return np.zeros_like(threshold)
        chance = self._short(threshold)
        falling = np.where(chance < 1.0, chance, 0.0)
        return self.beyond * self.frame.short * self.frame.window * falling

    def _norm(self) -> float:
        """Upper bound on the ℓ2 norm of the product of payoff and untilting weight over all bins.

        With the tilt θ, bins of width h and a window of length L: Σ u² e^{−2θu} over u = 0, h, …, L
        is at most the integral divided by h, plus the largest term.
        """
        tilt, length = self.frame.tilt, self.step * self.mass.size
        integral = min(0.25 / tilt**3, length**3 / 3)
        largest = min(1.0 / (math.e * tilt), length) ** 2
        return math.sqrt(integral / self.step + largest)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        threshold = self._threshold(k)
        index, unit = self._index(threshold), math.exp(self.log_unit)
        if self.frame.direction is Direction.REMOVE:
            return -np.maximum(self.mass[index], 0.0) * unit - self._short_slope(threshold)
        value = self.excess[index] + self.frame.threshold * self.mass[index]
        return -np.maximum(value, 0.0) * unit / self.frame.window


@remembered
def allocation_curve(
    pair: Pair,
    window: int,
    direction: Direction,
    side: Side,
    *,
    delta_hint: float,
    refinement: int = 0,
) -> Curve:
    """Bound on the curve δ(K) of one check-in at a uniformly random step of a window of t steps.

    The bound holds at every K and is sharp near ``delta_hint``. It is exact for t = 1, and for
    pairs with few likelihood ratios. Each level of refinement doubles the number of bins; the
    distance between upper and lower bound is about proportional to the inverse square of the number
    of bins.

    Args:
        pair: outputs of one step with the client's message, and without it.
        window: t ≥ 1, steps.
        direction: remove (P against Q) or add (Q against P).
        side: whether the curve is an upper or a lower bound.
        delta_hint: δ in (0, 1) near which the bound is sharp.
        refinement: level of refinement of the grid, at least 0.

    Returns:
        The curve, never below the true δ (upper) or never above it (lower).

    Raises:
        ParameterError: the window is not a whole number of at least 1, or ``delta_hint`` is not in
            (0, 1).
        NumericalError: no bound can be certified at this δ.
    """
    # δ's below the range of floats are refused; few ratios have an exact curve.
    checks.count(window=window)
    checks.open_unit(delta_hint=delta_hint)
    if delta_hint < _LEAST_DELTA:
        raise NumericalError(
            f"delta = {delta_hint:.3g} cannot be certified: expected at least {_LEAST_DELTA}"
        )
    if window == 1:
        return PairCurve(pair, direction, side)
    exact = multinomial_curve(pair, window, direction, side)
    if exact is not None:
        return exact
    # Otherwise the sum on a grid, in a frame chosen for this δ.
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            frame = _frame(pair, window, direction, delta_hint)
            return _curve(pair, side, frame, frame.bins(refinement))
    except NumericalError:
        raise
    except (ArithmeticError, ValueError, IndexError) as error:
        # Estimates of the grid and the tilt left the range of floats.
        raise NumericalError(
            f"delta = {delta_hint:.3g} cannot be certified: estimates exceed the range of float64"
        ) from error


@remembered
def _frame(pair: Pair, window: int, direction: Direction, delta: float) -> Frame:
    """Frame whose threshold has about the given δ according to curves on coarse grids."""
    # A first frame, from estimates alone.
    framing, up = Framing.of(pair, window, direction, delta), direction is Direction.REMOVE
    threshold = framing.guess()
    slope = framing.slope(threshold)
    frame = framing.frame(threshold, slope)
    # A coarse upper curve has a better threshold; stop where it stays in place.
    for _ in range(_MOVES):
        curve = _curve(pair, Side.UPPER, frame, frame.bins(0))
        try:
            ratio = math.exp(epsilon_at(curve, delta, Side.UPPER, gap=_ROUGH))
        except (NumericalError, OverflowError):
            return frame
        threshold, before = window * ratio if up else window / ratio, slope
        # Its slope, kept within a factor of 5 of the estimate.
        fall = -float(curve.slope(np.array(ratio))) / delta
        about = framing.slope(threshold)
        slope = fall / window if up else fall * ratio * ratio / window
        slope = min(max(slope, 0.2 * about), 5.0 * about)
        near = abs(threshold - frame.threshold) * slope < _STRAY
        if near and 0.5 < slope / before < 2.0:
            return frame
        frame = framing.frame(threshold, slope)
        if near:
            return frame
    return frame


@remembered
def _curve(pair: Pair, side: Side, frame: Frame, size: int) -> AllocationCurve:
    """Curve from the tilted distribution of the sum of ratios on a grid of ``size`` bins."""
    # Distribution of one ratio on the grid, above or below the true one in convex order.
    grid = _grid(pair, side, frame, size)
    up = frame.direction is Direction.REMOVE
    if side is Side.UPPER:
        distribution = convex_order.upper_distribution(pair, grid)
    else:
        distribution = convex_order.lower_distribution(pair, grid, by_hockey_sticks=up)
    masses = distribution.masses
    if side is Side.LOWER and not up:
        masses = _raised(masses, float(pair.q_above(np.array(grid.cap))))
    # Tilt it, in units of the largest weight, so that no factor overflows.
    window, theta, step = frame.window, frame.signed_tilt, grid.step
    points = grid.points
    dearest = float(points[masses > 0][-1 if up else 0])  # where the weight is the largest
    factors = np.exp(np.minimum(theta * (points - dearest), _LARGEST_EXPONENT))
    norm = float(np.sum(masses * factors))
    log_norm = math.log(norm) + theta * dearest
    # Distribution of the sum of t tilted ratios, in a window of bins from ``first`` on.
    bin_ = max(0, math.floor((frame.low - window * grid.origin) / step))
    first = window * grid.origin + step * bin_
    factor = sums.Factor(
        masses * factors / norm,
        window,
        distribution.errors * factors * (math.exp(frame.tilt * step) / norm / step),
    )
    total = sums.convolve([factor], size, bin_, tilt=frame.tilt * step)
    log_unit = window * log_norm - theta * frame.threshold
    if not log_unit < _LARGEST_EXPONENT:
        raise NumericalError("the exponential tilt of the sum is too large for float64")
    # Undo the tilt relative to the threshold; bins with too large a weight are dropped.
    distances = first - frame.threshold + step * np.arange(size)
    kept = -theta * distances <= _LARGEST_EXPONENT
    weights = total.masses[kept] * np.exp(np.maximum(-theta * distances[kept], -700.0))
    distances = distances[kept]
    # Bounds on the mass outside the window and on the rounding of the exponents.
    outside = _log_outside(points, masses, frame, first, first + size * step)
    exponents = window * (64.0 + 4.0 * frame.tilt * grid.cap) + 4.0 * frame.tilt * frame.high
    return AllocationCurve(
        side,
        frame,
        step,
        frame.threshold + float(distances[0]),
        running_sums(weights, frame.direction),
        running_sums(weights * distances, frame.direction),
        log_unit,
        grid.cap,
        distribution.beyond,
        (window - 1) * log_moment(points, masses, -frame.short),
        total.l2_error,
        math.exp(min(outside - window * log_norm, 600.0)),
        (exponents + 8.0 * size) * sums.UNIT_ROUNDOFF,
    )


def _grid(pair: Pair, side: Side, frame: Frame, size: int) -> convex_order.Grid:
    """Grid of one ratio, with its end exactly at the cap.

    Tilted masses depend exponentially on the cap.
    """
    step = (frame.high - frame.low) / (size - 2)
    if side is Side.LOWER:
        return convex_order.lower_grid(pair, step, frame.cap)
    cells = max(2, math.floor(frame.cap / step))
    return convex_order.Grid(frame.cap / cells, cells)


def _raised(masses: FloatArray, above: float) -> FloatArray:
    """Masses on the grid after the mass ``above`` of ratios over the cap was moved to ratio ∞.

    At ratio ∞ the payoff of a reverse hockey stick is 0.
    """
    above *= 1.0 + 1e-12
    tails = np.cumsum(masses[::-1])[::-1]
    last = int(np.flatnonzero(tails >= above)[-1]) if above < tails[0] else 0
    left = max(float(tails[last]) - above, 0.0)
    return np.concatenate([masses[:last], [left], np.zeros(masses.size - last - 1)])


def _log_outside(
    points: FloatArray, masses: FloatArray, frame: Frame, first: float, end: float
) -> float:
    """Logarithm of a Chernoff upper bound on E[e^{±θΣ}] over sums Σ outside [first, end)."""
    window, theta = frame.window, frame.signed_tilt
    above = window * log_moment(points, masses, theta + frame.above) - frame.above * end
    if first <= window * points[0]:
        return above
    below = window * log_moment(points, masses, theta - frame.below) + frame.below * first
    return float(np.logaddexp(above, below))


_HINTS_APART = 40.0  # ratio of the δ's at which the curves of a composed block are made sharp
_UNDILUTING_STEPS = 6


@dataclass(frozen=True, slots=True)
class AllocationBlock:
    """Window in which a client takes part, with a given probability, in one uniform step.

    Attributes:
        pair: outputs of one step with the client's message, and without it.
        window: t ≥ 1, steps.
        probability: probability that the client takes part in the window.
        infinity_mass: mass of P, in one step, on outcomes without mass under Q.

    Raises:
        ParameterError: the window is not a whole number of at least 1.
    """

    pair: Pair
    window: int
    probability: float = 1.0
    infinity_mass: float = 0.0

    def __post_init__(self) -> None:
        checks.count(window=self.window)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, at most ``probability``."""
        variance = max(self.pair.second_moment - 1.0, 0.0) / self.window
        return self.probability * min(1.0, math.sqrt(variance))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of a client that takes part with the block's probability, sharp near a given δ."""
        hint = self._undiluted(direction, delta)
        curve = self._allocation(direction, side, hint, refinement)
        return diluted(curve, direction, self.probability)

    def _allocation(self, direction: Direction, side: Side, hint: float, refinement: int) -> Curve:
        if direction is Direction.REMOVE:
            hint = max(hint - self.infinity_mass, 0.01 * hint)
        curve = allocation_curve(
            self.pair, self.window, direction, side, delta_hint=hint, refinement=refinement
        )
        return with_infinity_mass(curve, direction, side, self.infinity_mass)

    def _undiluted(self, direction: Direction, delta: float) -> float:
        """Value δ' of the undiluted curve (p = 1) at the K at which the diluted curve is ``delta``.

        Let p be the probability of participation. In the add direction a value of the diluted curve
        is w·δ'(u), where u is the K of the undiluted curve and w = p/(p + u(1 − p)) (see
        `DilutedCurve`). The equation w·δ'(u) = ``delta`` is solved for u by damped steps.
        """
        p = self.probability
        hint = min(0.5, delta / p)
        if p == 1.0 or direction is Direction.REMOVE:
            return hint
        for _ in range(_UNDILUTING_STEPS):
            base = self._allocation(direction, Side.UPPER, hint, 0)
            try:
                inner = math.exp(epsilon_at(base, hint, Side.UPPER))
            except (NumericalError, OverflowError):
                break
            hint, before = math.sqrt(hint * min(0.5, delta * (p + inner * (1.0 - p)) / p)), hint
            if abs(math.log(hint / before)) < 0.5:
                break
        return hint

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are sharp at several δ, powers of ten apart, from 1 to below a given δ."""
        remove, add = curves_apart(self, side, delta, refinement, _HINTS_APART)
        # Floor (add): outputs impossible with a client that surely takes part are those with a
        # ratio of 0 in every step.
        zero = float(self.pair.q_below(np.array(0.0))) if self.probability == 1.0 else 0.0
        return CurvePair(
            side, remove, add, (self.probability * self.infinity_mass, zero**self.window)
        )
