"""Upper bound on the excess E[(Y_1 + … + Y_t − c₀)₊]/t of i.i.d. steps, by one FFT.

Each step is capped, and the distribution of the sum is tilted. `capped_excess` returns the bound
for any `Step`. An `Outline` holds the distribution of one step on few points and a tilt of the sum;
`frame_of` chooses the range on which the sum is computed. `replace_one_events` uses `Outline` and
`frame_of` for lower bounds, `replace_one_expectations` uses `capped_excess` for upper bounds; this
module builds on `replace_one_grids` and `replace_one_steps`. docs/design/replacement.md has the
proofs ("How a sum is bounded"); the notation is that of `replace_one_steps`.

Y is capped at M, which is chosen so large that E[(Y − M)₊] is a small part of the result. The tilt
is at most 20/(M − c₀/t): under a larger tilt most of a heavy tail's mass would be at the cap. The
outline and the guess of the result are estimates; `replace_one_grids.expectation` bounds the error
that they cause.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from turnout.accounting.divergence.curves import Side
from turnout.accounting.participation.replace_one_grids import expectation, grid_distribution
from turnout.accounting.participation.replace_one_steps import CoarseSum, Step, SumFrame
from turnout.core.arrays import FloatArray

_CAPPED, _MOST_CAPPED = 2e-4, 1e-3  # part of the excess that a cap should add, and may add
_OUTSIDE = 2e-5  # part of the excess that bounds on the mass outside the window should add
_RAISED = 2e-5  # part of the excess that raising values below the grid to the grid should add
_SPREAD = 0.06  # √t·θ·h of the first grid, for which spreading adds 3e-4 of the excess
_MOST_IN_A_CELL = 0.7  # mass of one cell from which a grid is too coarse
_MOST_TILT = 20.0  # largest tilt times M − c₀/t
_LEAST_SLOPE = 0.3  # least slope of ln δ, in inverse deviations of the sum
_GUESSES, _TRIES = 4, 3  # rounds of a first guess, and grids with a better guess
_LEAST_LOG2, _MOST_LOG2 = 10, 17  # number of bins of the first grid
_BELOW = np.sinh(np.linspace(-np.arcsinh(1e5), 0.0, 161))
_ABOVE = np.linspace(0.0, 1.0, 121)[1:]
_TILTS = np.geomspace(0.03, 100.0, 60)  # in inverse deviations of the sum
_EXPONENTS = np.geomspace(0.02, 50.0, 25)  # Chernoff exponents in tilts
_CAPS = np.geomspace(1e-2, 1e14, 240)  # distances of caps, in units of one step
_PARTS = (1.0, 0.6, 0.35, 0.2)  # of the best tilt; the one with the narrowest window is used


class Bounded(NamedTuple):
    """Upper bound on an excess, with an estimate of its accuracy.

    Attributes:
        value: the bound.
        doubt: estimate of the part of the bound that is due to the grid and to round-off.
        is_heavy: whether the range of one step is a large part of the range of the sum.
    """

    value: float
    doubt: float
    is_heavy: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """Distribution of one capped step on few points, and a tilt for the sum of the steps.

    Attributes:
        coarse: values of one capped step, and their masses.
        tilt: tilt that gives the least Chernoff bound, at most 20/(M − c₀/t) with M the cap.
        slope: estimate of −d ln(excess)/dc₀, the rate at which the excess falls with the threshold.
        log_bound: logarithm of the Chernoff bound on E[(Σ − c₀)₊].
    """

    coarse: CoarseSum
    tilt: float
    slope: float
    log_bound: float

    @classmethod
    def of(cls, step: Step, count: int, threshold: float, cap: float) -> Outline:
        """Outline of the sum of i.i.d. steps, from the distribution of one step.

        Args:
            step: distribution of Y.
            count: t, number of steps.
            threshold: c₀.
            cap: M, above the mean of Y.
        """
        # Points whose distances grow away from the mean, down to the lowest value and up to M.
        mean, unit = step.mean, unit_of(step)
        far = math.asinh((cap - mean) / unit)
        points = np.concatenate([mean + unit * _BELOW, mean + unit * np.sinh(far * _ABOVE)])
        points[-1] = cap
        points = points[points > step.bottom]
        if math.isfinite(step.bottom):
            points = np.append(step.bottom, points)
        # Masses from the chords of the hockey stick.
        prices = step.upper(points)
        slopes = np.diff(prices - prices[-1]) / np.diff(points)
        masses = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
        coarse = CoarseSum(points, masses / masses.sum())
        # The best tilt that the cap admits.
        deviation = unit * math.sqrt(count)
        tilts = np.minimum(_TILTS / deviation, _MOST_TILT / (cap - threshold / count))
        bounds = count * coarse.log_moments(tilts) - tilts * threshold - np.log(tilts) - 1.0
        best = int(np.argmin(bounds))
        # The slope is the best tilt if no step exceeds the distance to the threshold.
        jump = max(threshold - count * mean, deviation)
        small = CoarseSum(np.minimum(points, mean + jump), coarse.masses)
        slopes = _TILTS / deviation
        likely = count * small.log_moments(slopes) - slopes * threshold
        slope = max(float(slopes[np.argmin(likely)]), _LEAST_SLOPE / deviation)
        return cls(coarse, float(tilts[best]), slope, float(bounds[best]))


def unit_of(step: Step) -> float:
    """Scale of one step: an upper bound on E[(Y − E[Y])₊], at least 1e-300."""
    return max(float(step.upper(np.array([step.mean]))[0]) - step.infinite, 1e-300)


def capped_excess(
    step: Step, count: int, threshold: float, guess: float | None, refinement: int
) -> Bounded:
    """Upper bound on the excess E[(Y_1 + … + Y_t − c₀)₊]/t.

    Args:
        step: distribution of Y.
        count: t, at least 2.
        threshold: c₀.
        guess: estimate of the excess, such as that of a similar sum; None if there is none.
        refinement: level of the grid, at least 0; each level halves the grid's step.

    Raises:
        NumericalError: one step needs too many bins.
    """
    found = Bounded(math.inf, math.inf)
    for _ in range(_TRIES):
        # Cap, frame and number of bins that suit the guess.
        outline, guess = outlined(step, count, threshold, guess, refinement)
        frame = frame_of(outline, count, threshold, guess)
        bins = bins_of(frame, count, refinement)
        # The sum of capped steps, and the part of one step above the cap.
        distribution = grid_distribution(step, Side.UPPER, frame, bins, None)
        gain = partial(_hockey_stick, threshold)
        value, doubt = expectation([(distribution, count)], Side.UPPER, frame, gain, 1.0)
        cut = _price(step, float(distribution.points[-1]))
        excess = value / count
        doubt, lost = doubt / count + cut - step.infinite, cut - step.infinite
        # If one cell has most of the mass, the grid is too coarse to resolve the distribution.
        is_coarse = float(distribution.masses.max()) > _MOST_IN_A_CELL
        spread = math.inf if is_coarse else spread_of(frame, count, bins) * excess
        found = Bounded(excess + cut, doubt + spread, frame.is_heavy)
        if lost <= _MOST_CAPPED * excess or not 0 < excess < math.inf:
            break
        guess = excess
    return found


def _price(step: Step, cap: float) -> float:
    """Upper bound on E[(Y − M)₊], the expectation that a cap at M removes from one step."""
    return float(step.upper(np.array([cap]))[0])


def _hockey_stick(threshold: float, z: FloatArray) -> FloatArray:
    return np.maximum(z - threshold, 0.0)


def outlined(
    step: Step, count: int, threshold: float, guess: float | None, refinement: int
) -> tuple[Outline, float]:
    """Outline with a cap that suits an estimate of the excess, and this estimate.

    Args:
        step: distribution of Y.
        count: t, number of steps.
        threshold: c₀.
        guess: estimate of the excess; None to make one here.
        refinement: level of the grid; a higher level has a larger cap.
    """
    # Candidate caps, with the bound on the hockey stick of one step at each.
    unit = unit_of(step)
    points = threshold / count + unit * _CAPS
    points = np.append(points[points < step.top], min(float(points[-1]), step.top))
    prices = step.upper(points) - step.infinite
    part = _CAPPED / 4**refinement

    # The least cap at which that bound is a small part of the guess.
    def capped(guess: float) -> Outline:
        cap = float(points[min(int(np.sum(prices > part * guess)), points.size - 1)])
        return Outline.of(step, count, threshold, cap)

    if guess is not None:
        return capped(guess), guess
    # Without a guess: start from an upper bound on the excess, and lower it to an estimate.
    alone = step.upper(np.array([threshold / count, threshold - count * step.mean]))
    alone = np.maximum(alone - step.infinite, 1e-250)
    guess, least = float(alone[0]), 0.5 * float(min(alone))
    found = capped(guess)
    for _ in range(_GUESSES):
        before, guess = (
            guess,
            max(min(guess, 0.3 * math.exp(min(found.log_bound, 700.0)) / count), least),
        )
        if guess > 0.3 * before:
            break
        found = capped(guess)
    return found, guess


def frame_of(outline: Outline, count: int, threshold: float, guess: float) -> SumFrame:
    """Tilt with the narrowest range, and this range, for a sum with an excess of about ``guess``.

    Args:
        outline: outline of the steps.
        count: t, number of steps.
        threshold: c₀.
        guess: estimate of the excess.
    """
    frames = [_frame(outline, count, threshold, guess, outline.tilt * part) for part in _PARTS]
    return min(frames, key=lambda frame: frame.below + frame.above)


def _frame(outline: Outline, count: int, threshold: float, guess: float, tilt: float) -> SumFrame:
    """Frame of the sum for one tilt."""
    # Logarithm of the Chernoff bound beyond the threshold, relative to the error that is allowed,
    # for each exponent.
    coarse, s = outline.coarse, tilt * _EXPONENTS
    logs = count * coarse.log_moments(np.concatenate([[tilt], tilt + s, tilt - s]))
    allowed = math.log(_OUTSIDE * guess * count) + tilt * threshold
    up = logs[1 : s.size + 1] - s * threshold - allowed
    down = logs[s.size + 1 :] + s * threshold - allowed
    # Upper end: the mass beyond it adds an error of its payoff.
    far = float(np.min((up + math.log(30.0 / tilt)) / (s + tilt)))
    ends = (up + math.log(max(far, 1.0 / tilt))) / (s + tilt)
    most = count * float(coarse.points[-1]) - threshold
    above, i = max(min(float(ends.min()), most), 1e-3 / tilt), int(np.argmin(ends))
    # Lower end: the mass below it, or so far above the upper end that it wraps around to this end,
    # adds an error of up to 1/(eθ) times the mass.
    worth = -1.0 - math.log(tilt)
    starts, around = (down + worth) / s, min(float(np.min((up + worth) / s)), most)
    j = int(np.argmin(starts))
    # Lowest value of one step: raising lower values to it adds to the sum and to the tilted mass.
    points, tilted = coarse.points, coarse.tilted(tilt)
    moved = np.append(0.0, np.cumsum(np.cumsum(tilted)[:-1] * np.diff(points)))
    weights = np.exp(np.minimum(tilt * points - logs[0] / count, 700.0))
    gained = weights * np.cumsum(coarse.masses) - np.cumsum(tilted)
    lost = int(np.sum(count * (outline.slope * moved + gained) <= _RAISED))
    low = float(points[min(max(lost - 1, 0), points.size - 2)])
    below = max(min(float(starts[j]), threshold - count * low), around - above, 1e-3 / tilt)
    cap = float(coarse.points[-1])
    ends_at = float(s[j]), float(s[i])
    return SumFrame(tilt, threshold, outline.slope, low, cap, below, above, *ends_at)


def bins_of(frame: SumFrame, count: int, refinement: int) -> int:
    """Number of bins of a frame's range, a power of two; each refinement doubles the number.

    Args:
        frame: tilt and range of the sum.
        count: t, number of steps.
        refinement: level of the grid; may be below 0.
    """
    wanted = (frame.below + frame.above) * frame.resolution * math.sqrt(count) / _SPREAD
    log2 = math.ceil(math.log2(max(wanted, 1.0)))
    return 1 << min(max(log2, _LEAST_LOG2), _MOST_LOG2) + refinement


def spread_of(frame: SumFrame, count: int, bins: int) -> float:
    """Estimate of the relative error of the excess that is due to the width of the grid's bins.

    Args:
        frame: tilt and range of the sum.
        count: t, number of steps.
        bins: number of bins of the range.
    """
    step = (frame.below + frame.above) / bins
    return count * (frame.resolution * step) ** 2 / 12.0
