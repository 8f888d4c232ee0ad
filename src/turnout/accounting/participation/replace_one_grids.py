"""One step under replace-one on a grid, and the expected payoff of a sum of such steps.

`grid_distribution` returns the distribution of one step as a `MassGrid`, above or below the true
one in increasing convex order; a `Tail` bounds the part of one step above a cap. `expectation`
bounds E[g(Σ)] of a sum of i.i.d. grid variables by one exponentially tilted FFT.
`replace_one_expectations` uses this module; this module builds on `replace_one_steps`.

A distribution on a grid has a piecewise linear hockey stick. A convex polygon above the hockey
stick of a step is the hockey stick of a distribution above that of the step; a polygon below the
hockey stick gives a distribution below that of the step. Bounds on rounding errors are added to an
upper polygon and subtracted from a lower one.

Under the distribution tilted by e^{θy} the values of the sum that contribute most are typical. So
the result is e^{nκ(θ) − θc} times a number near 1, and round-off is small relative to the result.
The mass outside the window of the FFT is bounded by Chernoff, the round-off of the FFT in ℓ2.

Notation: that of `replace_one_steps` (Y, κ, Σ, g), and c the centre of the frame, d = z − c the
distance of a bin z from c, n the number of summands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import fft

from turnout.accounting.divergence.convex_order import convex_slopes
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.accounting.participation.replace_one_steps import Step, SumFrame
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError

MOST_CELLS_LOG2 = 21

_INSIDE = 4e-12  # part of the range by which the top of a lower distribution is moved inside

_SHARE_MARGIN = 1e-6  # bound on the relative error of Q(Y > c) at thresholds from bisection


@dataclass(frozen=True, slots=True, eq=False)
class MassGrid:
    """Masses on the points ``first + step·j``; if their sum is below 1, the rest lies at −∞."""

    first: float
    step: float
    masses: FloatArray

    @property
    def points(self) -> FloatArray:
        """Grid points, shape of ``masses``."""
        return self.first + self.step * np.arange(self.masses.size, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Tail:
    """Part of Y above a cap M: bounds, all upper or all lower, on the hockey stick and the mass.

    Attributes:
        step: distribution of Y.
        side: whether both bounds are upper or lower bounds.
        cap: M.
        hockey_stick: bound on E[(Y − M)₊].
        share: bound on Q(Y > M).
    """

    step: Step
    side: Side
    cap: float
    hockey_stick: float
    share: float

    @classmethod
    def of(cls, step: Step, side: Side, cap: float) -> Tail:
        """Bounds, all on the given side, on the part of one step's Y above a cap."""
        at = np.array([cap])
        if side is Side.UPPER:
            share = float(step.share(at)[0]) * (1.0 + _SHARE_MARGIN)
            return cls(step, side, cap, float(step.upper(at)[0]), share)
        value, slope = (float(part[0]) for part in step.tangent(at))
        return cls(step, side, cap, max(value, 0.0), -slope * (1.0 - _SHARE_MARGIN))

    def below(self, c: FloatArray) -> FloatArray:
        """Bound on E[(Y − c)₊; Y > M] for c ≤ M, shape of ``c``."""
        return self.hockey_stick + (self.cap - c) * self.share

    def __call__(self, c: FloatArray) -> FloatArray:
        """Bound on E[(Y − c)₊; Y > M], shape of ``c``."""
        result, beyond = self.below(c), c > self.cap
        if beyond.any():
            far = c[beyond]
            upper = self.side is Side.UPPER
            result[beyond] = self.step.upper(far) if upper else self.step.tangent(far)[0]
        return np.maximum(result, 0.0)


def grid_distribution(
    step: Step, side: Side, frame: SumFrame, bins: int, tail: Tail | None
) -> MassGrid:
    """Distribution of Y on a grid, capped at the end of the frame or without its upper tail.

    Args:
        step: true distribution of Y.
        side: whether the result is above or below Y in increasing convex order.
        frame: range of Y and window of the sum.
        bins: number of bins that cover the window of the sum.
        tail: *upper* bounds on the part of Y above a cap; this part is then left out. None to cap Y
            instead.

    Raises:
        NumericalError: a mass is not finite, or the grid needs too many points.
    """
    # A polygon above or below the hockey stick on the lattice.
    anchored = frame.is_heavy or tail is not None
    points, width, whole = _lattice(step, side, frame, bins, anchored=anchored)
    if side is Side.UPPER:
        polygon = step.upper(points)
    else:
        polygon = _lower_polygon(step, points, whole=whole)
    # Without the upper tail: subtract its hockey stick and its mass.
    mass = 1.0
    if tail is not None:
        polygon, mass = polygon - tail.below(points), 1.0 - tail.share
        # The last chord of an upper polygon ends at the cap or after it, of a lower one before it.
        last = points if side is Side.UPPER else points + width
        polygon[last > tail.cap] = 0.0
        if side is Side.UPPER:
            polygon = np.maximum(polygon, 0.0)
    # A lower polygon ends at 0, and is 0 from just before its first negative value on.
    if side is Side.LOWER:
        polygon[-1] = 0.0
        negative = np.flatnonzero(polygon < 0)
        if negative.size:
            polygon[max(negative[0] - 1, 0) :] = 0.0
        polygon *= 1.0 - 16 * UNIT_ROUNDOFF
    slopes = np.clip(convex_slopes(np.diff(polygon)) / width, -mass, 0.0)
    # The masses are differences of slopes. Mass below the grid is moved to the first point
    # (upper) or left out (lower).
    start = -mass if whole or side is Side.UPPER else slopes[0]
    masses = np.diff(slopes, prepend=start, append=0.0)
    if not np.isfinite(masses).all():
        raise NumericalError(
            "the distribution of one step has masses on the grid that are not finite"
        )
    return MassGrid(float(points[0]), width, masses)


def _lattice(
    step: Step, side: Side, frame: SumFrame, bins: int, *, anchored: bool
) -> tuple[FloatArray, float, bool]:
    """Grid points, the distance between them, and whether all values of Y are ≥ the first point."""
    width = (frame.below + frame.above) / (bins - 4)
    if (frame.high - frame.low) / width > 1 << MOST_CELLS_LOG2:
        raise NumericalError("the likelihood ratios of one step have too wide a range for a grid")
    whole = frame.low <= step.bottom
    if whole or frame.high >= step.top:  # atoms may lie at both ends
        cells = max(2, math.ceil((frame.high - frame.low) / width))
        inside = _INSIDE * (frame.high - frame.low) if side is Side.LOWER else 0.0
        width, first = (frame.high - frame.low - inside) / cells, frame.low
    else:
        anchor = _anchor(step, width) if anchored else frame.low + width
        below = max(1, math.ceil((anchor - frame.low) / width))
        cells = below + max(1, math.ceil((frame.high - anchor) / width))
        first = anchor - below * width
    return first + width * np.arange(cells + 1, dtype=np.float64), width, whole


def _anchor(step: Step, width: float) -> float:
    """Point that is the mean of Y, given that Y lies in the grid cell around the point.

    If cells are wide, most of the mass may lie close to one point. With that point on the grid, an
    upper distribution moves this mass by the least distance, and a lower distribution does not move
    it.
    """
    anchor = 0.0
    for _ in range(12):
        edges = anchor + np.array([-0.5, 0.5]) * width
        values, slopes = step.tangent(edges)
        if slopes[1] <= slopes[0]:
            break
        crossing = (values[0] - slopes[0] * edges[0]) - (values[1] - slopes[1] * edges[1])
        before, anchor = anchor, float(np.clip(crossing / (slopes[1] - slopes[0]), *edges))
        if abs(anchor - before) < 1e-3 * width:
            break
    return anchor


def _lower_polygon(step: Step, points: FloatArray, *, whole: bool) -> FloatArray:
    """Polygon below the hockey stick of Y, from one line below the hockey stick for each cell.

    The line is the tangent in the middle of the cell, or the tangent at the cell's right end where
    the hockey stick falls so steeply that the tangent in the middle would become negative. The line
    of the last cell passes through the cell's end, so that an atom there is kept. ``whole`` means
    that Y has no value below the first point; the hockey stick is then E[Y] − c below the first
    point.
    """
    # One line for each cell, by its value in the middle and its slope.
    middles, half = 0.5 * (points[1:] + points[:-1]), 0.5 * (points[1] - points[0])
    values, slopes = step.tangent(middles)
    steep = np.flatnonzero(values + slopes * half < 0.5 * np.append(values[1:], 0.0))
    at_end, slopes[steep] = step.tangent(points[steep + 1])
    values[steep] = at_end - slopes[steep] * half
    slopes[-1] = step.tangent(points[-1:])[1][0]
    values[-1] = slopes[-1] * (middles[-1] - points[-1])
    if whole:
        slopes[0], values[0] = -1.0, step.mean - middles[0]
    # At each point the smaller of the lines of both cells.
    left, right = values - slopes * half, values + slopes * half
    return np.concatenate([left[:1], np.minimum(right[:-1], left[1:]), right[-1:]])


MOST_BINS = 1 << 23

_UNITS_A_BIN = 6  # units of work a bin of each transform

# Forward error of an FFT: at most 6.7 u a radix-2 level (Higham, Accuracy and Stability, §24.1).
_ROUNDOFF_A_LEVEL, _ROUNDOFF_INPUT = 8.0, 32.0

_LOG_DROPPED = 80.0  # −ln of the modulus below which a frequency counts as 0

_LOG_MOST = 300.0  # ln of the largest scale or weight for which the tilt is used

_AROUND = 3.0  # tilt times the distance below the centre from which half-lines are bounded

_UNDERFLOW = 1e-170  # more than the sum of all weights that underflow

Parts = Sequence[tuple[MassGrid, int]]
"""Distributions of one Y on grids of the same step, and the number of summands of each."""


class Expectation(NamedTuple):
    """Bound on an expectation; for an upper bound also the part that is due to numerical errors."""

    value: float
    doubt: float


def expectation(
    parts: Parts,
    side: Side,
    frame: SumFrame,
    payoff: Callable[[FloatArray], FloatArray],
    slope: float,
) -> Expectation:
    """Upper or lower bound on E[g(Σ)] for a sum Σ of independent variables on grids.

    Args:
        parts: pairs of a distribution on a grid, of mass at most 1, and the number of summands that
            have this distribution. All grids have the same step.
        side: side of the bound.
        frame: tilt and window of the sum.
        payoff: g, increasing and at least 0; keeps the shape of its argument.
        slope: upper bound on the slope of g.

    Returns:
        The bound, with the part due to numerical errors. The bound is inf (upper) or 0 (lower) if
        the weights that undo the tilt overflow.

    Raises:
        NumericalError: the sum needs too many bins.
    """
    if not all((distribution.masses > 0).any() for distribution, _ in parts):
        return Expectation(0.0, 0.0)
    # The payoff at the bins of the sum, which are moved by the error of their positions.
    bins, tilt = _Bins.of(parts, frame), frame.tilt
    tilted = _Tilted.of(parts, tilt, frame.centre)
    shift = bins.position_error if side is Side.UPPER else -bins.position_error
    gains = payoff(frame.centre + shift + bins.distances)
    # Multiply the payoff by the weight that undoes the tilt, relative to the centre.
    exponents = np.where(gains > 0, -tilt * bins.distances, -np.inf)
    if max(tilted.log_scale, float(exponents.max())) > _LOG_MOST:
        return Expectation(math.inf if side is Side.UPPER else 0.0, 0.0)
    gains *= np.exp(exponents)
    # The tilted distribution of the sum, and bounds on all rounding errors.
    masses, l2_error = power(
        [(masses, count) for _, masses, count in tilted.distributions], gains.size
    )
    masses = np.roll(masses, -(bins.first % gains.size))
    roundings = tilted.roundings + 4.0 * abs(tilted.log_scale)
    roundings += 4.0 * tilt * float(np.abs(bins.distances[[0, -1]]).max())
    relative = UNIT_ROUNDOFF * roundings + tilt * bins.position_error
    error = relative * float(np.sum(np.abs(masses) * gains)) + l2_error * _norm(gains)
    value, scale = float(np.sum(masses * gains)), math.exp(tilted.log_scale)
    # Upper: mass that wraps around only adds; a bound on the payoff above the window is added.
    if side is Side.UPPER:
        missed = float(payoff(np.array([frame.centre + shift + bins.top]))[0])
        missed = (missed + slope / (math.e * tilt)) * math.exp(-tilt * bins.top)
        missed *= tilted.beyond(bins.top, frame.exponent_above)
        return Expectation(scale * (value + error + missed) + _UNDERFLOW, scale * (error + missed))
    # Lower: mass that wraps around is subtracted. Mass from above the window first reaches the
    # lowest bins, where the payoff is 0.
    free = bins.step * int(np.argmax(gains > 0))
    wrapped = tilted.beyond(bins.top + free, frame.exponent_above)
    wrapped += tilted.beyond(-bins.bottom, -frame.exponent_below)
    return Expectation(scale * max(value - error - wrapped * float(gains.max()), 0.0), 0.0)


def half_line_masses(parts: Parts, side: Side, frame: SumFrame) -> FloatArray:
    """Bounds from one side on the chance that a sum of grid variables is in or above each bin.

    The bins start a little below the centre of the frame and end at the end of its window.

    Args:
        parts: pairs of a distribution on a grid, of mass at most 1, and the number of summands that
            have this distribution. All grids have the same step.
        side: side of the bounds.
        frame: tilt and window of the sum.

    Returns:
        One bound for each bin, shape (bins,); 1 (upper) or 0 (lower) if the weights that undo the
        tilt overflow.

    Raises:
        NumericalError: the sum needs too many bins.
    """
    # The tilted distribution of the sum, and the weights that undo the tilt.
    bins, tilt = _Bins.of(parts, frame), frame.tilt
    tilted = _Tilted.of(parts, tilt, frame.centre)
    masses, l2_error = power(
        [(masses, count) for _, masses, count in tilted.distributions], bins.distances.size
    )
    masses = np.roll(masses, -(bins.first % masses.size))
    from_ = int(np.searchsorted(tilt * bins.distances, -_AROUND))
    distances, masses = bins.distances[from_:], masses[from_:]
    weights = np.exp(-tilt * distances)
    scale = math.exp(min(tilted.log_scale, _LOG_MOST))
    if tilted.log_scale > _LOG_MOST:
        return np.full(distances.size, 1.0 if side is Side.UPPER else 0.0)
    # Sums from the top down, and bounds on all rounding errors.
    values, sizes, squares = (
        np.cumsum(part[::-1])[::-1]
        for part in (masses * weights, np.abs(masses) * weights, weights**2)
    )
    roundings = tilted.roundings + 4.0 * abs(tilted.log_scale) + masses.size
    roundings += 4.0 * tilt * float(np.abs(bins.distances[[0, -1]]).max())
    relative = UNIT_ROUNDOFF * roundings + 2.0 * tilt * bins.position_error
    error = relative * sizes + l2_error * np.sqrt(squares) * (1.0 + 1e-10)
    # Upper: mass above the window is added; mass that wraps around only adds.
    if side is Side.UPPER:
        missed = math.exp(-tilt * bins.top) * tilted.beyond(bins.top, frame.exponent_above)
        return np.minimum(scale * (values + error + missed) + _UNDERFLOW, 1.0)
    # Lower: mass that wraps around is subtracted.
    wrapped = tilted.beyond(bins.top + bins.step * from_, frame.exponent_above)
    wrapped += tilted.beyond(-bins.bottom, -frame.exponent_below)
    return np.maximum(scale * (values - error - wrapped * weights), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Tilted:
    """Tilted distributions, each of mass 1.

    Attributes:
        distributions: triples (distances of the points from centre/n, masses, number of summands).
        log_scale: ln of the factor by which the product of the masses has to be multiplied.
        roundings: bound on the relative rounding error of that product, in units of round-off.
    """

    distributions: Sequence[tuple[FloatArray, FloatArray, int]]
    log_scale: float
    roundings: float

    @classmethod
    def of(cls, parts: Parts, tilt: float, centre: float) -> _Tilted:
        """Tilted distributions of the summands, relative to the centre of the sum."""
        distributions: list[tuple[FloatArray, FloatArray, int]] = []
        log_scale, roundings = 0.0, 100.0
        share = centre / sum(count for _, count in parts)
        for distribution, count in parts:
            distances = distribution.points - share
            exponents = np.where(distribution.masses > 0, tilt * distances, -np.inf)
            largest = float(exponents.max())
            weights = distribution.masses * np.exp(exponents - largest)
            total = float(weights.sum())
            distributions.append((distances, weights / total, count))
            log_scale += count * (largest + math.log(total))
            roundings += count * (3.0 * tilt * float(np.abs(distances).max()) + 60.0)
        return cls(distributions, log_scale, roundings)

    def beyond(self, distance: float, exponent: float) -> float:
        """Chernoff upper bound on the mass beyond a distance from the centre.

        A positive ``exponent`` bounds the mass above, a negative one the mass below.
        """
        side = 1.0 if exponent > 0 else -1.0
        if distance > sum(count * float((side * d).max()) for d, _, count in self.distributions):
            return 0.0
        least = 0.0
        for s in exponent * np.array([1.0, 30.0, 1000.0]):
            bound, size = -abs(s) * distance, abs(s) * distance
            for distances, masses, count in self.distributions:
                product = np.where(masses > 0, s * distances, -np.inf)
                top = float(product.max())
                bound += count * (top + math.log(float(masses @ np.exp(product - top))))
                size += count * (60.0 + 4.0 * float(np.abs(s * distances).max()))
            least = min(least, bound + 8.0 * UNIT_ROUNDOFF * size)
        return math.exp(least)


@dataclass(frozen=True, slots=True, eq=False)
class _Bins:
    """Bins that cover the window of the sum; mass outside the window wraps around to the other end.

    Attributes:
        step: width of a bin.
        first: number of the first bin, counted from the least value of the sum.
        distances: distance of each bin from the centre.
        position_error: bound on the rounding error of the distances.
    """

    step: float
    first: int
    distances: FloatArray
    position_error: float

    @classmethod
    def of(cls, parts: Parts, frame: SumFrame) -> _Bins:
        """Bins that cover the window of a frame; their number is a power of two."""
        # Step of the bins, and smallest sum.
        step, start = (
            parts[0][0].step,
            sum(count * distribution.first for distribution, count in parts),
        )
        # A power of two of bins covers the window; the rest is shared between both ends.
        size = 1 << math.ceil(math.log2((frame.below + frame.above) / step + 2))
        if size > MOST_BINS:
            raise NumericalError("the sum of likelihood ratios has too wide a range for a grid")
        below = size * step * frame.below / (frame.below + frame.above)
        first = math.ceil((frame.centre - below - start) / step)
        distances = (start - frame.centre) + step * (first + np.arange(size, dtype=np.float64))
        # Rounding of the distances grows with the largest sum.
        reach = sum(
            count * float(np.abs(distribution.points[[0, -1]]).max())
            for distribution, count in parts
        )
        error = 8.0 * UNIT_ROUNDOFF * (reach + abs(frame.centre))
        return cls(step, first, distances, error)

    # The sum lies on the bins, so mass outside is at least half a step outside.

    @property
    def bottom(self) -> float:
        """Distance of the lower edge of the window from the centre."""
        return float(self.distances[0]) - 0.5 * self.step

    @property
    def top(self) -> float:
        """Distance of the upper edge of the window from the centre."""
        return float(self.distances[-1]) + 0.5 * self.step


def power(distributions: Sequence[tuple[FloatArray, int]], size: int) -> tuple[FloatArray, float]:
    """Distribution of a sum modulo ``size`` bins, and an upper bound on its ℓ2 round-off error.

    Args:
        distributions: pairs (masses, shape (n,); number of summands that have these masses).
        size: number of bins, a power of two.
    """
    charge(_UNITS_A_BIN * size * (1 + len(distributions)))
    # Sum of the logarithms of the transforms, with a bound on how errors can raise the modulus.
    gamma = (_ROUNDOFF_A_LEVEL * math.log2(size) + _ROUNDOFF_INPUT) * UNIT_ROUNDOFF
    exponent = np.zeros(size // 2 + 1, dtype=complex)
    growth = np.zeros(size // 2 + 1)
    for masses, count in distributions:
        folded = np.bincount(np.arange(masses.size) % size, weights=masses, minlength=size)
        spectrum = np.asarray(fft.rfft(folded))
        modulus = np.abs(spectrum)
        logs = np.log(np.maximum(modulus, gamma)) + 1j * np.angle(spectrum)
        exponent += count * logs
        # An error of γ in the transform, and the rounding of its logarithm.
        relative = np.where(modulus < gamma, 3.0, gamma / np.maximum(modulus, gamma))
        relative += 4 * UNIT_ROUNDOFF * (1.0 + np.abs(logs))
        growth += count * np.log1p(relative)
    # The product where it is not negligible, with a bound on its error.
    kept = np.real(exponent) + growth > -_LOG_DROPPED
    powers = np.zeros(exponent.size, dtype=complex)
    powers[kept] = np.exp(exponent[kept])
    errors = np.abs(powers[kept]) * np.expm1(np.minimum(growth[kept], 700.0))
    # Back to masses; their round-off in ℓ2 follows by Parseval.
    distribution = np.asarray(fft.irfft(powers, size))
    l2 = _norm(errors) + math.exp(-_LOG_DROPPED) * math.sqrt(size)
    return distribution, math.sqrt(2.0 / size) * l2 + gamma * _norm(distribution)


def _norm(values: FloatArray) -> float:
    """Euclidean norm that has the same digits for every number of BLAS threads."""
    return math.sqrt(np.sum(values**2))
