"""The exact price of one random check-in in a window of t steps.

The likelihood ratio of everything an adversary sees, against "she was never there", is
S = (X_1 + … + X_t)/t with X_i i.i.d. under Q, so δ is a call (remove) or put (add) price on an
average of i.i.d. variables.

Source: Feldman & Shenfeld 2025, Lemma D.1 (for Gaussian noise Chua et al. 2024). Both
directions are computed: the paper's Lemma 3.1 speaks of *remove* only, and *add* can be the
larger one (docs/errata.md, random allocation 1).

Adaptive steps are covered: given the past, X_i is at most a Gaussian ratio with the full
sensitivity in convex order, and replacing the ratios by independent ones from the last step to
the first only raises E f(S) for convex f, in both directions.

What is added so that the bounds are proved: the call price at the cap, the mass outside the
FFT's window, and the FFT's round-off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.accounting import convex_order as order
from turnout.accounting import sums
from turnout.accounting.chernoff import CoarseLaw, mass_above, mass_below
from turnout.accounting.curves import Curve, Direction, PairCurve, Side
from turnout.accounting.pairs import Pair, call, call_rounding
from turnout.core import checks
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_NEGLIGIBLE = 3e-5  # the part of δ that cap and window may cost
_FIRST_STEP = 0.085  # step of the first grid over a ratio's standard deviation
_HEAVY = 0.3  # part of the window that the cap takes where tails are heavy
_FEW_STEPS = 200  # windows shorter than this start their add curves coarser
_MOST_FIRST_LOG2, _MOST_LOG2 = 18, 22  # log₂ of the most bins, at first and at last
_LOG_TILTED_TAIL = 36.0  # −ln of the tilted mass that may lie below the window
_LOWER_REACH = 8.0  # how far past its typical strike a tilted lower curve is read, in 1/tilt


@dataclass(frozen=True, slots=True, eq=False)
class RemoveCurve:
    """δ(K) = E_P[(1 − K/S)₊] from the size-biased law of the sum.

    Bin i holds the sum ``first + i·step``; ``tail_mass[i]`` and ``tail_inverse[i]`` are Σ y and
    Σ y / value over the bins from i on.
    """

    side: Side
    window: int
    step: float
    first: float
    tail_mass: FloatArray
    tail_inverse: FloatArray
    l2_error: float
    error: float

    def _at(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        strike = self.window * np.asarray(k, dtype=float)
        index = np.floor((strike - self.first) / self.step) + 1
        return strike, np.clip(index, 0, self.tail_mass.size - 1).astype(np.int64)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K, with every error term on the proved side."""
        strike, index = self._at(k)
        value = self.tail_mass[index] - strike * self.tail_inverse[index]
        count = self.tail_mass.size - 1 - index
        last = self.first + self.step * self.tail_mass.size
        largest_weight = np.maximum(1.0 - strike / last, 0.0)
        summation = 4 * sums.UNIT_ROUNDOFF * count * np.abs(self.tail_mass[index])
        error = self.error + self.l2_error * np.sqrt(count) * largest_weight + summation
        if self.side is Side.UPPER:
            return np.clip(value + error, 0.0, 1.0)
        return np.clip(value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """−t Σ y / value over the bins above the strike."""
        return -np.maximum(self.tail_inverse[self._at(k)[1]], 0.0) * self.window


@dataclass(frozen=True, slots=True, eq=False)
class AddCurve:
    """δ(K) = E_Q[(1 − K·S)₊] from the law of the sum.

    Bin i holds the sum ``first + i·step``; ``head_mass[i]`` and ``head_first[i]`` are Σ y and
    Σ value·y over the first i bins; ``head_scale[i]`` is the ℓ2 norm of the factors that undo
    the exponential tilt.
    """

    side: Side
    window: int
    step: float
    first: float
    head_mass: FloatArray
    head_first: FloatArray
    head_scale: FloatArray
    l2_error: float
    error: float
    relative_error: float

    def _at(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Strike and number of bins below it; a strike past the last bin is moved there."""
        strike = np.minimum(self.window / np.asarray(k, dtype=float), self._last)
        index = np.ceil((strike - self.first) / self.step)
        return strike, np.clip(index, 0, self.head_mass.size - 1).astype(np.int64)

    @property
    def _last(self) -> float:
        return self.first + self.step * (self.head_mass.size - 1)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K, with every error term on the proved side."""
        strike, index = self._at(k)
        value = self.head_mass[index] - self.head_first[index] / strike
        largest_weight = np.maximum(1.0 - self.first / strike, 0.0)
        error = self.error + self.l2_error * self.head_scale[index] * largest_weight
        error = error + self.relative_error * np.abs(self.head_mass[index])
        if self.side is Side.UPPER:
            beyond = self.window > np.asarray(k) * self._last
            return np.where(beyond, 1.0, np.clip(value + error, 0.0, 1.0))
        return np.clip(value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """−(1/t) Σ value·y over the bins below the strike."""
        return -np.maximum(self.head_first[self._at(k)[1]], 0.0) / self.window


@lru_cache(maxsize=256)
def allocation_curve(
    pair: Pair,
    window: int,
    direction: Direction,
    side: Side,
    *,
    delta_hint: float,
    refinement: int = 0,
    fewest_log2: int = 16,
) -> Curve:
    """The curve of one check-in, uniform in a window, as a proved upper or lower bound.

    Args:
        pair: the randomizer's dominating pair.
        window: t, steps a window.
        direction: remove or add.
        side: upper or lower.
        delta_hint: the δ near which the curve should be sharp; it is valid everywhere.
        refinement: each level takes twice the bins of the one before; both bounds close in as
            the inverse square of the number of bins.
        fewest_log2: log₂ of the fewest bins to use; more than needed costs little for one
            curve, but a composition needs many.

    Returns:
        A curve on K ≥ 1; exact for t = 1.

    Raises:
        NumericalError: the grid is too coarse to hold the law.
    """
    checks.count(window=window)
    checks.open_unit(delta_hint=delta_hint)
    if window == 1:
        return PairCurve(pair, direction, side)
    if direction is Direction.REMOVE:
        frame = _remove_frame(pair, window, delta_hint)
        return _remove_curve(pair, window, side, frame, frame.size(pair, refinement, fewest_log2))
    frame = _add_frame(pair, window, delta_hint)
    if window < _FEW_STEPS:
        # Differenced masses round like 1/h², which long sums smooth and short ones do not.
        fewest_log2 -= 3
    return _add_curve(pair, window, side, frame, frame.size(pair, refinement, fewest_log2))


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the grid must reach: cap of one ratio, edges of the sum, tilt and typical strike."""

    cap: float
    low: float
    high: float
    tilt: float = 0.0
    strike: float = 0.0

    def size(self, pair: Pair, refinement: int, fewest_log2: int) -> int:
        """Bins: 2^n or 3·2^n.

        The spread adds up to h²/6 to each ratio's variance V, so with h below √V/12 the first
        level is within 1e-3. Where the cap dominates (heavy tails, small windows) the scale of
        the strike counts, not V, and the fewest bins do for a start.
        """
        step = _FIRST_STEP * math.sqrt(max(pair.second_moment - 1.0, 1e-12))
        wanted = (self.high - self.low) / step
        heavy = self.cap > _HEAVY * (self.high - self.low)
        first = 2**fewest_log2 if heavy else min(max(wanted, 2**fewest_log2), 2**_MOST_FIRST_LOG2)
        octave = 1 << math.floor(math.log2(first))
        size = next(n for n in (octave, octave * 3 // 2, octave * 2) if n >= first)
        return min(size << refinement, 1 << _MOST_LOG2)

    def grid(self, pair: Pair, side: Side, size: int) -> order.Grid:
        """The grid whose ``size`` bins cover the edges."""
        step = (self.high - self.low) / (size - 2)
        cells = max(2, min(math.ceil(self.cap / step), size - 1))
        return (
            order.Grid(step, cells) if side is Side.UPPER else order.lower_grid(pair, step, cells)
        )

    def first_bin(self, grid: order.Grid, window: int) -> int:
        """Bin of the sum's lower edge, counted from ``window`` times the grid's origin."""
        return max(0, math.floor((self.low - window * grid.origin) / grid.step))


@lru_cache(maxsize=64)
def _remove_frame(pair: Pair, window: int, delta_hint: float) -> _Frame:
    log_tail = -math.log(_NEGLIGIBLE) - math.log(delta_hint)
    cap = _call_strike(pair, _NEGLIGIBLE * delta_hint)
    coarse = CoarseLaw.of_pair(pair, cap)
    s, logs = coarse.log_chernoff(window, biased=True)
    high = max(float(np.min((logs + log_tail) / s)), 1.01 * cap)
    s, logs = coarse.log_chernoff_below(window - 1)
    low = max(0.0, float(np.max((-logs - log_tail) / s)))
    return _Frame(cap, low, high)


def _remove_curve(pair: Pair, window: int, side: Side, frame: _Frame, size: int) -> Curve:
    grid = frame.grid(pair, side, size)
    step, bin_ = grid.step, frame.first_bin(grid, window)
    first = window * grid.origin + step * bin_
    calls = (order.upper_calls if side is Side.UPPER else order.lower_calls)(pair, grid)
    law = sums.power(
        calls / step,
        window,
        size,
        bin_,
        bias=(grid.origin, step),
        relative_error=_relative_rounding(pair, grid, calls),
    )
    values = np.maximum(first + step * np.arange(size), 0.5 * step)
    if side is Side.UPPER:
        above = mass_above(grid, calls, window, first + size * step, biased=True)
        error = 1.0001 * float(call(pair, np.array(grid.cap))) + above
    else:
        error = mass_below(grid, calls, window - 1, bin_)
    return RemoveCurve(
        side,
        window,
        step,
        first,
        np.append(np.cumsum(law.masses[::-1])[::-1], 0.0),
        np.append(np.cumsum((law.masses / values)[::-1])[::-1], 0.0),
        law.l2_error,
        error,
    )


@lru_cache(maxsize=64)
def _add_frame(pair: Pair, window: int, delta_hint: float) -> _Frame:
    log_tail = -math.log(_NEGLIGIBLE) - math.log(delta_hint)
    cap = min(_tail_strike(pair, _NEGLIGIBLE / window), float(window))
    coarse = CoarseLaw.of_pair(pair, cap)
    tilt, strike = _put_tilt(coarse, window, math.log(delta_hint))
    cap = min(cap, 4.0 * strike)  # the strike of a saddle point is a guess
    # Under the tilted law the strike is typical; what lies below the window must be negligible.
    s, logs = coarse.log_chernoff_below(window, tilt)
    low = max(0.0, float(np.max((-logs - _LOG_TILTED_TAIL) / s)))
    s, logs = coarse.log_chernoff(window, biased=False)
    high = min(float(np.min((logs + log_tail) / s)), strike + (log_tail + 5.0) / tilt)
    return _Frame(cap, low, max(high, 1.01 * cap, strike), tilt, strike)


def _add_curve(pair: Pair, window: int, side: Side, frame: _Frame, size: int) -> Curve:
    grid, tilt = frame.grid(pair, side, size), frame.tilt
    step, bin_ = grid.step, frame.first_bin(grid, window)
    first = window * grid.origin + step * bin_
    law_of = order.upper_masses if side is Side.UPPER else order.lower_masses
    masses, price_errors = law_of(pair, grid)
    damping = np.exp(-tilt * grid.points)
    norm = float(np.sum(masses * damping))
    law = sums.power(
        sums.calls_in_bins(masses * damping / norm),
        window,
        size,
        bin_,
        relative_error=sums.calls_rounding(grid.cells),
        price_errors=price_errors * damping * (math.exp(tilt * step) / norm / step),
        tilt=tilt * step,
    )
    calls = step * sums.calls_in_bins(masses)
    top = first + size * step
    if side is Side.UPPER:
        # What wraps in only adds; undo the tilt up to the strike of K = 1.
        reach, error = float(window), mass_below(grid, calls, window, bin_)
    else:
        reach = min(float(window), frame.strike + _LOWER_REACH / tilt)
        wrapped = mass_above(grid, calls, window, top, biased=False)
        error = wrapped * math.exp(-min(tilt * step * size, 700.0))
    exponent = tilt * (first + step * np.arange(size)) + window * math.log(norm)
    kept = min(math.ceil((reach - first) / step) + 1, int(np.searchsorted(exponent, 300.0)), size)
    scale = np.exp(exponent[:kept])
    heads = law.masses[:kept] * scale
    if side is Side.LOWER:
        tilted = step * sums.calls_in_bins(masses * damping / norm)
        error += float(scale[-1]) * mass_below(grid, tilted, window, bin_ - (size - kept))
    return AddCurve(
        side,
        window,
        step,
        first,
        np.append(0.0, np.cumsum(heads)),
        np.append(0.0, np.cumsum(heads * (first + step * np.arange(kept)))),
        np.append(0.0, np.sqrt(np.cumsum(scale**2))),
        law.l2_error,
        error,
        (64.0 * window + 8.0 * kept) * sums.UNIT_ROUNDOFF,
    )


def _relative_rounding(pair: Pair, grid: order.Grid, calls: FloatArray) -> float:
    """Rounding of the call prices, as a share of Σ and of Σ j over the points they weigh."""
    index = np.flatnonzero(calls)
    index = index[index > 0]
    if not index.size:
        return 0.0
    errors, prices = call_rounding(pair, grid.points[index]), calls[index]
    return max(float(errors.sum() / prices.sum()), float((errors @ index) / (prices @ index)))


def _call_strike(pair: Pair, price: float) -> float:
    """A cap whose call price is at most ``price``."""
    low, high = 0.0, 1.0
    while float(call(pair, np.array(math.exp(high)))) > price:
        low, high = high, 2 * high
        if high > 700.0:
            raise NumericalError("the likelihood ratio is too heavy-tailed for this delta")
    for _ in range(30):
        middle = 0.5 * (low + high)
        heavy = float(call(pair, np.array(math.exp(middle)))) > price
        low, high = (middle, high) if heavy else (low, middle)
    return math.exp(high)


def _tail_strike(pair: Pair, mass: float) -> float:
    """A cap above which lies at most ``mass`` under Q."""
    low, high = -60.0, 1.0
    while float(pair.q_above(np.array(math.exp(high)))) > mass and high < 700.0:
        high = 2 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        heavy = float(pair.q_above(np.array(math.exp(middle)))) > mass
        low, high = (middle, high) if heavy else (low, middle)
    return math.exp(min(high, 700.0))


def _put_tilt(coarse: CoarseLaw, window: int, log_delta: float) -> tuple[float, float]:
    """The exponential tilt under which the strike of δ is typical, and that strike t/K."""
    scale = 1.0 / float(coarse.masses @ coarse.points**2)
    tilts = np.geomspace(1e-7 * scale, 500.0 / float(coarse.points[1]), 400)
    plain, biased = coarse.log_moments(-tilts)
    means = np.exp(biased - plain)
    strikes = window * means
    # Saddle point: Chernoff factor · E[(1 − S/k)₊ e^{−θ(k − S)}] for a normal S around k, whose
    # integral is 1/(1 + 1.2533 λ + λ²)/√(2π) to a few per cent, λ = θ·deviation.
    seconds = np.exp(-np.multiply.outer(tilts, coarse.points)) @ (coarse.masses * coarse.points**2)
    seconds = seconds / np.exp(plain)
    deviations = np.sqrt(window * np.maximum(seconds - means**2, 1e-16 * means**2))
    reach = tilts * deviations
    damping = math.sqrt(2 * math.pi) * (1.0 + 1.2533 * reach + reach**2)
    log_price = window * (plain + tilts * means) + np.log(deviations / strikes / damping)
    index = min(int(np.searchsorted(-log_price, -log_delta)), tilts.size - 1)
    if index == 0:  # so large a δ lies above the mean of what the cap leaves
        return float(tilts[0]), float(window)
    return float(tilts[index]), min(float(window), float(strikes[index]))
