"""E[g(Σ)] of a sum of i.i.d. grid variables, by one exponentially tilted FFT.

Under the law tilted by e^{θy} the values that matter are typical, so the result is
e^{nκ(θ) − θc} times a number of ordinary size and round-off is relative to it. Everything that
the FFT does not see is bounded: mass outside its window by Chernoff, its own rounding in ℓ2.

Notation: c the frame's centre, d = z − c the distance of a bin from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.accounting.laws.replace_one.frames import Frame
from turnout.accounting.laws.replace_one.grids import GridLaw
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
MOST_BINS = 1 << 23
# Forward error of an FFT: at most 6.7 u a radix-2 level (Higham, Accuracy and Stability, §24.1).
_UNITS_A_BIN = 10  # of work, of each transform
_ROUNDOFF_A_LEVEL, _ROUNDOFF_INPUT = 8.0, 32.0
_LOG_DROPPED = 80.0  # −ln of the modulus below which a frequency counts as 0
_LOG_MOST = 300.0  # of a scale or a weight; a larger one tells of a tilt that does not fit
_UNDERFLOW = 1e-170  # more than weights that underflow can add up to


Parts = Sequence[tuple[GridLaw, int]]
"""Laws of one Y, all on grids of the same step, and how many of each are summed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tilted:
    """Tilted laws, each of mass 1, in distances from their share of the centre."""

    laws: Sequence[tuple[FloatArray, FloatArray, int]]
    log_scale: float
    roundings: float

    @classmethod
    def of(cls, parts: Parts, tilt: float, centre: float) -> _Tilted:
        """The tilt, with a bound on the units of rounding in the product of the masses."""
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
    """The bins of the sum that are looked at: what lies outside wraps in, modulo their number."""

    step: float
    first: int
    distances: FloatArray
    position_error: float

    @classmethod
    def of(cls, parts: Parts, frame: Frame) -> _Bins:
        """A power of two of them, reaching as far as the frame asks."""
        step, start = parts[0][0].step, sum(count * law.first for law, count in parts)
        size = 1 << math.ceil(math.log2((frame.below + frame.above) / step + 2))
        if size > MOST_BINS:
            raise NumericalError("the sum of a window's ratios reaches too far for a grid")
        below = size * step * frame.below / (frame.below + frame.above)
        first = math.ceil((frame.centre - below - start) / step)
        distances = (start - frame.centre) + step * (first + np.arange(size))
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


def expectation(
    parts: Parts,
    side: Side,
    frame: Frame,
    payoff: Callable[[FloatArray], FloatArray],
    slope: float,
) -> float:
    """A bound on E[g(Σ)], Σ a sum of independent Y with grids' laws, each of mass at most 1.

    The payoff g ≥ 0 increases, by ``slope`` a unit at the most.
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
    # Mass from above wraps into the lowest bins first, where nothing is paid yet.
    free = bins.step * int(np.argmax(gains > 0))
    wrapped = tilted.beyond(bins.top + free, frame.exponent_above)
    wrapped += tilted.beyond(-bins.bottom, -frame.exponent_below)
    return scale * max(value - error - wrapped * float(gains.max()), 0.0)


def power(laws: Sequence[tuple[FloatArray, int]], size: int) -> tuple[FloatArray, float]:
    """The law of a sum modulo ``size`` bins, and a bound on its round-off in ℓ2."""
    charge(_UNITS_A_BIN * size * (1 + len(laws)))
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
    kept = np.real(exponent) + growth > -_LOG_DROPPED
    powers = np.zeros(exponent.size, dtype=complex)
    powers[kept] = np.exp(exponent[kept])
    errors = np.abs(powers[kept]) * np.expm1(np.minimum(growth[kept], 700.0))
    law = np.asarray(fft.irfft(powers, size))
    l2 = _norm(errors) + math.exp(-_LOG_DROPPED) * math.sqrt(size)
    return law, math.sqrt(2.0 / size) * l2 + gamma * _norm(law)


def _norm(values: FloatArray) -> float:
    """An ℓ2 norm. (A product of BLAS depends on its threads, which wait by spinning.)"""
    return math.sqrt(np.sum(values**2))
