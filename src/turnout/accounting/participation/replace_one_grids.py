"""One step under replace-one on a grid, and expectations of a payoff of a sum of such steps.

`grid_law` returns the distribution of one step as a `MassGrid`, above or below the true one in
increasing convex order; a `Tail` bounds what lies above its cap. `expectation` bounds E[g(Σ)] of a
sum of i.i.d. grid variables by one exponentially tilted FFT. `replace_one_expectations` is the
user; the module builds on `replace_one_steps`.

A distribution on a grid has a piecewise linear hockey stick. Any convex polygon above a step's
price belongs to a distribution above it, any one below the price to one below it. Rounding errors
of prices move the polygon to its side.

Under the distribution tilted by e^{θy} the values that matter are typical, so the result is
e^{nκ(θ) − θc} times a number of ordinary size, and round-off is relative to it. Everything outside
the FFT is bounded: mass outside its window by Chernoff, its own rounding in ℓ2.

Notation: c the frame's centre, d = z − c the distance of a bin from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

_INSIDE = 4e-12  # part of the range by which the top of a lower distribution stays inside it

_SHARE_MARGIN = 1e-6  # bound on the relative error of Q(Y > c) at thresholds found by bisection


@dataclass(frozen=True, slots=True, eq=False)
class MassGrid:
    """Distribution by masses on ``first + step·j`` that sum to at most 1, the rest at −∞."""

    first: float
    step: float
    masses: FloatArray

    @property
    def points(self) -> FloatArray:
        """The grid points."""
        return self.first + self.step * np.arange(self.masses.size, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Tail:
    """Part of Y above a cap M: bounds on E[(Y − M)₊] and Q(Y > M) from one side."""

    step: Step
    side: Side
    cap: float
    price: float
    share: float

    @classmethod
    def of(cls, step: Step, side: Side, cap: float) -> Tail:
        """Upper or lower bounds for one step and cap."""
        at = np.array([cap])
        if side is Side.UPPER:
            share = float(step.share(at)[0]) * (1.0 + _SHARE_MARGIN)
            return cls(step, side, cap, float(step.upper(at)[0]), share)
        value, slope = (float(part[0]) for part in step.tangent(at))
        return cls(step, side, cap, max(value, 0.0), -slope * (1.0 - _SHARE_MARGIN))

    def below(self, c: FloatArray) -> FloatArray:
        """E[(Y − c)₊; Y > M] for c ≤ M."""
        return self.price + (self.cap - c) * self.share

    def __call__(self, c: FloatArray) -> FloatArray:
        """E[(Y − c)₊; Y > M]."""
        result, beyond = self.below(c), c > self.cap
        if beyond.any():
            far = c[beyond]
            upper = self.side is Side.UPPER
            result[beyond] = self.step.upper(far) if upper else self.step.tangent(far)[0]
        return np.maximum(result, 0.0)


def grid_law(step: Step, side: Side, frame: SumFrame, bins: int, tail: Tail | None) -> MassGrid:
    """Distribution of Y capped at the frame's end, or without the jumps above it.

    It lies above or below the true one by the side; ``bins`` bins cover the window of the frame's
    sum. ``tail`` is an *upper* bound on the jumps, which are left out; None to cap instead.
    """
    anchored = frame.is_heavy or tail is not None
    points, width, whole = _lattice(step, side, frame, bins, anchored=anchored)
    if side is Side.UPPER:
        polygon = step.upper(points)
    else:
        polygon = _lower_polygon(step, points, whole=whole)
    mass = 1.0
    if tail is not None:
        polygon, mass = polygon - tail.below(points), 1.0 - tail.share
        # Below, the last chord must end at the cap or before it, above, at the cap or after it.
        last = points if side is Side.UPPER else points + width
        polygon[last > tail.cap] = 0.0
        if side is Side.UPPER:
            polygon = np.maximum(polygon, 0.0)
    if side is Side.LOWER:
        polygon[-1] = 0.0
        negative = np.flatnonzero(polygon < 0)
        if negative.size:
            polygon[max(negative[0] - 1, 0) :] = 0.0
        polygon *= 1.0 - 16 * UNIT_ROUNDOFF
    slopes = np.clip(convex_slopes(np.diff(polygon)) / width, -mass, 0.0)
    # An upper distribution gathers the mass below in its first point, a lower one drops it.
    start = -mass if whole or side is Side.UPPER else slopes[0]
    masses = np.diff(slopes, prepend=start, append=0.0)
    return MassGrid(float(points[0]), width, masses)


def _lattice(
    step: Step, side: Side, frame: SumFrame, bins: int, *, anchored: bool
) -> tuple[FloatArray, float, bool]:
    """Grid points, their distance, and whether nothing lies below the first."""
    width = (frame.below + frame.above) / (bins - 4)
    if (frame.high - frame.low) / width > 1 << MOST_CELLS_LOG2:
        raise NumericalError("one step's ratios reach too far for a grid")
    whole = frame.low <= step.bottom
    if whole or frame.high >= step.top:  # atoms may sit at both ends
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
    """Point that is the mean of Y given that Y lies in the cell around it.

    Where the grid is wide, most of the mass may lie close to one point. With that point on
    the grid, spreading moves it least, and contracting need not move it at all.
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
    """Polygon below the hockey stick: in each cell it lies under one line below the price.

    The line is the tangent in the middle, or at the right end where the price falls so steeply
    that the former would turn negative. The line of the last cell passes through its end, so
    that an atom there is kept. ``whole``: nothing lies below the first point, where the price is
    mean − c.
    """
    middles, half = 0.5 * (points[1:] + points[:-1]), 0.5 * (points[1] - points[0])
    values, slopes = step.tangent(middles)
    steep = np.flatnonzero(values + slopes * half < 0.5 * np.append(values[1:], 0.0))
    at_end, slopes[steep] = step.tangent(points[steep + 1])
    values[steep] = at_end - slopes[steep] * half
    slopes[-1] = step.tangent(points[-1:])[1][0]
    values[-1] = slopes[-1] * (middles[-1] - points[-1])
    if whole:
        slopes[0], values[0] = -1.0, step.mean - middles[0]
    left, right = values - slopes * half, values + slopes * half
    return np.concatenate([left[:1], np.minimum(right[:-1], left[1:]), right[-1:]])


MOST_BINS = 1 << 23

# Forward error of an FFT: at most 6.7 u a radix-2 level (Higham, Accuracy and Stability, §24.1).
_UNITS_A_BIN = 6  # of work, of each transform

_ROUNDOFF_A_LEVEL, _ROUNDOFF_INPUT = 8.0, 32.0

_LOG_DROPPED = 80.0  # −ln of the modulus below which a frequency counts as 0

_LOG_MOST = 300.0  # of a scale or a weight; at a larger one the tilt does not fit

_UNDERFLOW = 1e-170  # more than weights that underflow can add up to

Parts = Sequence[tuple[MassGrid, int]]


def expectation(
    parts: Parts,
    side: Side,
    frame: SumFrame,
    payoff: Callable[[FloatArray], FloatArray],
    slope: float,
) -> float:
    """Bound on E[g(Σ)], Σ a sum of independent grid variables, each of mass at most 1.

    The payoff g ≥ 0 increases, at most by ``slope`` a unit.
    """
    if not all((law.masses > 0).any() for law, _ in parts):
        return 0.0
    bins, tilt = _Bins.of(parts, frame), frame.tilt
    tilted = _Tilted.of(parts, tilt, frame.centre)
    shift = bins.position_error if side is Side.UPPER else -bins.position_error
    gains = payoff(frame.centre + shift + bins.distances)
    exponents = np.where(gains > 0, -tilt * bins.distances, -np.inf)
    if max(tilted.log_scale, float(exponents.max())) > _LOG_MOST:
        return math.inf if side is Side.UPPER else 0.0
    gains *= np.exp(exponents)
    masses, l2_error = power([(masses, count) for _, masses, count in tilted.laws], gains.size)
    masses = np.roll(masses, -(bins.first % gains.size))
    roundings = tilted.roundings + 4.0 * abs(tilted.log_scale)
    roundings += 4.0 * tilt * float(np.abs(bins.distances[[0, -1]]).max())
    relative = UNIT_ROUNDOFF * roundings + tilt * bins.position_error
    error = relative * float(np.sum(np.abs(masses) * gains)) + l2_error * _norm(gains)
    value, scale = float(np.sum(masses * gains)), math.exp(tilted.log_scale)
    if side is Side.UPPER:  # what wraps in only adds
        missed = float(payoff(np.array([frame.centre + shift + bins.top]))[0])
        missed = (missed + slope / (math.e * tilt)) * math.exp(-tilt * bins.top)
        missed *= tilted.beyond(bins.top, frame.exponent_above)
        return scale * (value + error + missed) + _UNDERFLOW
    # Mass from above wraps into the lowest bins first, where the payoff is 0.
    free = bins.step * int(np.argmax(gains > 0))
    wrapped = tilted.beyond(bins.top + free, frame.exponent_above)
    wrapped += tilted.beyond(-bins.bottom, -frame.exponent_below)
    return scale * max(value - error - wrapped * float(gains.max()), 0.0)


"""Distributions of one Y, on grids of the same step, and the number of summands of each."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tilted:
    """Tilted distributions, each of mass 1, in distances from their share of the centre."""

    laws: Sequence[tuple[FloatArray, FloatArray, int]]
    log_scale: float
    roundings: float

    @classmethod
    def of(cls, parts: Parts, tilt: float, centre: float) -> _Tilted:
        """Tilted distributions, with a bound on the rounding in the product of their masses."""
        laws: list[tuple[FloatArray, FloatArray, int]] = []
        log_scale, roundings = 0.0, 100.0
        share = centre / sum(count for _, count in parts)
        for law, count in parts:
            distances = law.points - share
            exponents = np.where(law.masses > 0, tilt * distances, -np.inf)
            largest = float(exponents.max())
            weights = law.masses * np.exp(exponents - largest)
            total = float(weights.sum())
            laws.append((distances, weights / total, count))
            log_scale += count * (largest + math.log(total))
            roundings += count * (3.0 * tilt * float(np.abs(distances).max()) + 60.0)
        return cls(laws, log_scale, roundings)

    def beyond(self, distance: float, exponent: float) -> float:
        """Chernoff bound on the mass of the sum past a distance, on the exponent's side."""
        side = 1.0 if exponent > 0 else -1.0
        if distance > sum(count * float((side * d).max()) for d, _, count in self.laws):
            return 0.0
        least = 0.0
        for s in exponent * np.array([1.0, 30.0, 1000.0]):
            bound = -abs(s) * distance
            for distances, masses, count in self.laws:
                product = np.where(masses > 0, s * distances, -np.inf)
                top = float(product.max())
                bound += count * (top + math.log(float(masses @ np.exp(product - top))))
            least = min(least, bound)
        return math.exp(least)


@dataclass(frozen=True, slots=True, eq=False)
class _Bins:
    """Bins of the sum; what lies outside them wraps in, modulo their number."""

    step: float
    first: int
    distances: FloatArray
    position_error: float

    @classmethod
    def of(cls, parts: Parts, frame: SumFrame) -> _Bins:
        """Bins, a power of two of them, that cover the frame's window."""
        step, start = parts[0][0].step, sum(count * law.first for law, count in parts)
        size = 1 << math.ceil(math.log2((frame.below + frame.above) / step + 2))
        if size > MOST_BINS:
            raise NumericalError("the sum of a window's ratios reaches too far for a grid")
        below = size * step * frame.below / (frame.below + frame.above)
        first = math.ceil((frame.centre - below - start) / step)
        distances = (start - frame.centre) + step * (first + np.arange(size, dtype=np.float64))
        reach = sum(count * float(np.abs(law.points[[0, -1]]).max()) for law, count in parts)
        error = 8.0 * UNIT_ROUNDOFF * (reach + abs(frame.centre))
        return cls(step, first, distances, error)

    # The sum lies on the bins, so what is outside is half a step outside.

    @property
    def bottom(self) -> float:
        """Distance of the lower edge."""
        return float(self.distances[0]) - 0.5 * self.step

    @property
    def top(self) -> float:
        """Distance of the upper edge."""
        return float(self.distances[-1]) + 0.5 * self.step


def power(laws: Sequence[tuple[FloatArray, int]], size: int) -> tuple[FloatArray, float]:
    """Distribution of a sum modulo ``size`` bins, and a bound on its round-off in ℓ2."""
    charge(_UNITS_A_BIN * size * (1 + len(laws)))
    # Logarithms of the transforms, folded onto the bins, with a bound on their growth by errors.
    gamma = (_ROUNDOFF_A_LEVEL * math.log2(size) + _ROUNDOFF_INPUT) * UNIT_ROUNDOFF
    exponent = np.zeros(size // 2 + 1, dtype=complex)
    growth = np.zeros(size // 2 + 1)
    for masses, count in laws:
        folded = np.bincount(np.arange(masses.size) % size, weights=masses, minlength=size)
        spectrum = np.asarray(fft.rfft(folded))
        modulus = np.abs(spectrum)
        logs = np.log(np.maximum(modulus, gamma)) + 1j * np.angle(spectrum)
        exponent += count * logs
        # An error of γ in φ (below γ, of itself and γ), and the roundings of its logarithm.
        relative = np.where(modulus < gamma, 3.0, gamma / np.maximum(modulus, gamma))
        relative += 4 * UNIT_ROUNDOFF * (1.0 + np.abs(logs))
        growth += count * np.log1p(relative)
    # The product where it is not negligible, with the error of its modulus.
    kept = np.real(exponent) + growth > -_LOG_DROPPED
    powers = np.zeros(exponent.size, dtype=complex)
    powers[kept] = np.exp(exponent[kept])
    errors = np.abs(powers[kept]) * np.expm1(np.minimum(growth[kept], 700.0))
    # Back to masses; the round-off in ℓ2 by Parseval.
    law = np.asarray(fft.irfft(powers, size))
    l2 = _norm(errors) + math.exp(-_LOG_DROPPED) * math.sqrt(size)
    return law, math.sqrt(2.0 / size) * l2 + gamma * _norm(law)


def _norm(values: FloatArray) -> float:
    """The ℓ2 norm, whose digits do not depend on the number of BLAS threads."""
    return math.sqrt(np.sum(values**2))
