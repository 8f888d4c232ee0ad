"""Upper bound on the excess E[(Y_1 + … + Y_t − c₀)₊]/t of i.i.d. steps, by one capped, tilted FFT.

`capped_excess` bounds it for any `Step`. An `Outline` is the distribution of one step on few points
with the tilt of the sum, `frame_of` the range on which the sum is computed; `replace_one_events`
uses both for lower bounds. `replace_one` makes blocks of them; the module builds on
`replace_one_grids` and `replace_one_steps`. docs/design/replacement.md has the proofs ("How a sum
is bounded"); the notation is that of `replace_one_steps`.

Y is capped at M, so large that E[(Y − M)₊] is a small part of the result. The tilt is at most 20/M:
under a larger tilt most of a heavy tail's mass would be at the cap. The outline and the guess of
the result are estimates; `expectation` bounds the error that they cause.
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
_OUTSIDE = 2e-5  # part that what lies outside the window should cost
_RAISED = 2e-5  # part that values below the grid, which are raised to it, should cost
_SPREAD = 0.06  # √t·θ·h of the first grid, for which spreading adds 3e-4 of the excess
_MOST_IN_A_CELL = 0.7  # mass of one cell from which a grid is too coarse
_MOST_TILT = 20.0  # largest tilt times the distance of the cap
_LEAST_SLOPE = 0.3  # least slope of ln δ, in inverse deviations of the sum
_GUESSES, _TRIES = 4, 3  # rounds of a first guess, and grids with a better guess
_LEAST_LOG2, _MOST_LOG2 = 10, 17  # number of bins of the first grid
_BELOW = np.sinh(np.linspace(-np.arcsinh(1e5), 0.0, 161))
_ABOVE = np.linspace(0.0, 1.0, 121)[1:]
_TILTS = np.geomspace(0.03, 100.0, 60)  # in inverse deviations of the sum
_EXPONENTS = np.geomspace(0.02, 50.0, 25)  # Chernoff exponents in tilts
_CAPS = np.geomspace(1e-2, 1e14, 240)  # distances of caps, in units of one step
_PARTS = (1.0, 0.6, 0.35, 0.2)  # of the tilt, of which the one with the narrowest window is taken


class Bounded(NamedTuple):
    """Upper bound on an excess.

    Attributes:
        value: the bound.
        doubt: about the part of the bound that is due to the grid and to round-off.
        is_heavy: whether the range of one step is a large part of the window of the sum.
    """

    value: float
    doubt: float
    is_heavy: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """Distribution of one step, capped, on few points, and tilts of the sum.

    Attributes:
        coarse: values and masses.
        tilt: tilt that gives the least Chernoff bound, at most 20 over the distance of the cap.
        slope: about the slope of −ln of the excess in the threshold.
        log_bound: ln of the Chernoff bound on E[(Σ − c₀)₊].
    """

    coarse: CoarseSum
    tilt: float
    slope: float
    log_bound: float

    @classmethod
    def of(cls, step: Step, count: int, threshold: float, cap: float) -> Outline:
        """Outline of the steps of a sum."""
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
    """Positive scale of one step, E[(Y − E Y)₊], an upper bound or the least float."""
    return max(float(step.upper(np.array([step.mean]))[0]) - step.infinite, 1e-300)


def capped_excess(
    step: Step, count: int, threshold: float, guess: float | None, refinement: int
) -> Bounded:
    """Upper bound on the excess E[(Y_1 + … + Y_t − c₀)₊]/t.

    Args:
        step: distribution of Y.
        count: t, at least 2.
        threshold: c₀.
        guess: about the excess, from a similar sum; None if nothing is known of it.
        refinement: level of the grid; each halves its step.

    Raises:
        NumericalError: one step needs too many bins.
    """
    found = Bounded(math.inf, math.inf)
    for _ in range(_TRIES):
        # Cap, frame and number of bins that suit the guess.
        outline, guess = outlined(step, count, threshold, guess, refinement)
        frame = frame_of(outline, count, threshold, guess)
        bins = bins_of(frame, count, refinement)
        # The sum of capped steps, and what one step loses by its cap.
        distribution = grid_distribution(step, Side.UPPER, frame, bins, None)
        gain = partial(_hockey_stick, threshold)
        value, doubt = expectation([(distribution, count)], Side.UPPER, frame, gain, 1.0)
        cut = _price(step, float(distribution.points[-1]))
        excess = value / count
        doubt, lost = doubt / count + cut - step.infinite, cut - step.infinite
        # A cell with most of the mass is wider than what it should resolve.
        is_coarse = float(distribution.masses.max()) > _MOST_IN_A_CELL
        spread = math.inf if is_coarse else spread_of(frame, count, bins) * excess
        found = Bounded(excess + cut, doubt + spread, frame.is_heavy)
        if lost <= _MOST_CAPPED * excess or not 0 < excess < math.inf:
            break
        guess = excess
    return found


def _price(step: Step, cap: float) -> float:
    """Upper bound on what one step loses by its cap, E[(Y − M)₊]."""
    return float(step.upper(np.array([cap]))[0])


def _hockey_stick(threshold: float, z: FloatArray) -> FloatArray:
    return np.maximum(z - threshold, 0.0)


def outlined(
    step: Step, count: int, threshold: float, guess: float | None, refinement: int
) -> tuple[Outline, float]:
    """Outline with a cap that suits a guess of the excess, and the guess."""
    unit = unit_of(step)
    points = threshold / count + unit * _CAPS
    points = np.append(points[points < step.top], min(float(points[-1]), step.top))
    prices = step.upper(points) - step.infinite
    part = _CAPPED / 4**refinement

    def capped(guess: float) -> Outline:
        cap = float(points[min(int(np.sum(prices > part * guess)), points.size - 1)])
        return Outline.of(step, count, threshold, cap)

    if guess is not None:
        return capped(guess), guess
    # Lower the guess from an upper bound on it, at least to what one large step adds.
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
    """Tilt and window of a sum whose excess is about ``guess``: the narrowest of some windows."""
    frames = [_frame(outline, count, threshold, guess, outline.tilt * part) for part in _PARTS]
    return min(frames, key=lambda frame: frame.below + frame.above)


def _frame(outline: Outline, count: int, threshold: float, guess: float, tilt: float) -> SumFrame:
    """Frame of one tilt."""
    # Ln of the Chernoff bounds beyond the threshold, over what may be lost, for each exponent.
    coarse, s = outline.coarse, tilt * _EXPONENTS
    logs = count * coarse.log_moments(np.concatenate([[tilt], tilt + s, tilt - s]))
    allowed = math.log(_OUTSIDE * guess * count) + tilt * threshold
    up = logs[1 : s.size + 1] - s * threshold - allowed
    down = logs[s.size + 1 :] + s * threshold - allowed
    # Upper end: mass beyond it costs its payoff there.
    far = float(np.min((up + math.log(30.0 / tilt)) / (s + tilt)))
    ends = (up + math.log(max(far, 1.0 / tilt))) / (s + tilt)
    most = count * float(coarse.points[-1]) - threshold
    above, i = max(min(float(ends.min()), most), 1e-3 / tilt), int(np.argmin(ends))
    # Lower end: mass below it, or so far above the upper end that it wraps in, costs 1/(eθ).
    worth = -1.0 - math.log(tilt)
    starts, around = (down + worth) / s, min(float(np.min((up + worth) / s)), most)
    j = int(np.argmin(starts))
    # Lowest value of one step: lower ones are raised to it, which adds to sum and tilted mass.
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
    """Number of bins of a frame, a power of two; a negative refinement has fewer."""
    wanted = (frame.below + frame.above) * frame.resolution * math.sqrt(count) / _SPREAD
    log2 = math.ceil(math.log2(max(wanted, 1.0)))
    return 1 << min(max(log2, _LEAST_LOG2), _MOST_LOG2) + refinement


def spread_of(frame: SumFrame, count: int, bins: int) -> float:
    """About the part of the excess that is due to the step of the grid."""
    step = (frame.below + frame.above) / bins
    return count * (frame.resolution * step) ** 2 / 12.0
