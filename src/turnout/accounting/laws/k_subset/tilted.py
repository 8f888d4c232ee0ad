"""The law of a sum of independent bins, tilted so that a tail of it is typical.

P(T ≥ τ) is needed from below or from above. Under the law tilted by e^{θT} with θ such that τ is
its mean, the FFT's round-off is relative to about the tail itself, however small that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import fft

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.core.bounds import bisected

FloatArray = np.ndarray
_ROUNDOFF_A_LEVEL, _ROUNDOFF_INPUT = 8.0, 32.0  # of an FFT, in u of Σ|input| (Higham, §24.1)
_ROUNDOFF_OF_POWER = 32.0  # of z^n by exp(n·ln z), in n·u, where |z|^n is not negligible
_LOG_OUTSIDE = -36.0  # ln of the tilted mass that may lie on either side of the window
_LARGEST_TILT = 100.0
_CLEAR = 1e-6  # of the largest mass, from which a mass says something about a likelihood ratio


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of a tilted law: ln E[e^{tilt·(T − anchor)}], T's mean and its variance."""

    tilt: float
    log_mass: float
    anchor: int
    mean: float
    variance: float

    def log_weight(self, value: FloatArray | float) -> FloatArray:
        """The logarithm that undoes the tilt at a value of T: ln E[e^{tilt·T}] − tilt·value."""
        return self.log_mass + self.tilt * (self.anchor - np.asarray(value))


@dataclass(frozen=True, slots=True, eq=False)
class BinSum:
    """The sum of independent bin indices: ``counts[i]`` variables with masses ``laws[i]``."""

    laws: tuple[FloatArray, ...]
    counts: tuple[int, ...]

    def moments(self, tilt: float) -> Moments:
        """The moments under the law tilted by e^{tilt·T}."""
        log_mass = mean = variance = 0.0
        anchor = 0
        for law, count in zip(self.laws, self.counts, strict=True):
            index = np.arange(law.size)
            weights, bin_ = _tilted(law, tilt)
            total = float(weights.sum())
            first = float(weights @ index) / total
            log_mass += count * math.log(total)
            anchor += count * bin_
            mean += count * first
            variance += count * float(weights @ (index - first) ** 2) / total
        return Moments(tilt, log_mass, anchor, mean, variance)

    def tilt_to_mean(self, mean: float) -> float:
        """A tilt ≥ 0 under which T's mean is about ``mean``, 0 if it is larger anyway."""
        return _root(lambda tilt: self.moments(tilt).mean - mean)

    def tilt_to_tail(self, log_mass: float) -> float:
        """A tilt ≥ 0 whose mean T exceeds with a chance of about e^log_mass (saddle point)."""

        def gap(tilt: float) -> float:
            moments = self.moments(tilt)
            width = tilt * math.sqrt(2 * math.pi * moments.variance)
            return log_mass - (float(moments.log_weight(moments.mean)) - math.log1p(width))

        return _root(gap)

    def edges(self, tilt: float) -> tuple[float, float]:
        """Bins outside of which the tilted law has next to no mass (Chernoff)."""
        base = self.moments(tilt)
        exponents = np.geomspace(0.2, 20.0, 12) / (math.sqrt(base.variance) + 1e-3)

        def reach(sign: float) -> float:
            """The least distance from the mean at which a Chernoff bound is small enough."""
            others = (self.moments(tilt + sign * float(s)) for s in exponents)
            # ln E[e^{s(T − mean)}] under the tilted law is −(the weights' logarithms' difference).
            logs = [base.log_weight(base.mean) - other.log_weight(base.mean) for other in others]
            return float(np.min((1e-6 - _LOG_OUTSIDE - np.array(logs)) / exponents))

        return base.mean - reach(-1.0), base.mean + reach(1.0)

    def tails(self, tilt: float, low: int, size: int, *, upper: bool) -> Tails:
        """Bounds on the chance that T ≥ τ for the τ's of a window that holds the tilted law."""
        masses, error = self._law(tilt, low, size)
        exponents = self.moments(tilt).log_weight(low + np.arange(size, dtype=float))
        weights = np.exp(np.clip(exponents, -700.0, 300.0))
        cells = masses * weights
        norm = np.sqrt(_sums_from(weights**2))
        # What lies outside wraps into the window; above it, it belongs to every tail.
        slack = error * norm + 4 * math.exp(_LOG_OUTSIDE) * weights
        # Sums, the law's own logarithms, and exponents.
        relative = 8.0 * size + 64.0 * sum(self.counts) + 8.0 * float(np.max(np.abs(exponents)))
        slack += relative * UNIT_ROUNDOFF * _sums_from(np.abs(cells))
        bounds = _sums_from(cells) + (slack if upper else -slack)
        return Tails(bounds, np.where(masses > _CLEAR * masses.max(), cells, 0.0))

    def _law(self, tilt: float, low: int, size: int) -> tuple[FloatArray, float]:
        """The tilted law on ``size`` bins from ``low`` on, and its round-off in the ℓ2 norm."""
        gamma = (_ROUNDOFF_A_LEVEL * math.log2(size) + _ROUNDOFF_INPUT) * UNIT_ROUNDOFF
        spectrum = np.ones(size // 2 + 1, dtype=complex)
        largest, computed = np.ones(spectrum.size), np.ones(spectrum.size)
        for law, count in zip(self.laws, self.counts, strict=True):
            weights, _ = _tilted(law, tilt)
            weights = np.bincount(np.arange(law.size) % size, weights / weights.sum(), size)
            values = np.asarray(fft.rfft(weights))
            modulus = np.abs(values)
            spectrum *= values**count
            computed *= modulus**count
            slack = 1.0 + _ROUNDOFF_OF_POWER * count * UNIT_ROUNDOFF
            largest *= (modulus + gamma) ** count * slack
        masses = np.roll(np.asarray(fft.irfft(spectrum, size)), -(low % size))
        error = math.sqrt(2.0 / size) * float(np.linalg.norm(largest - computed))
        return masses, 1.01 * error + gamma * float(np.linalg.norm(masses)) + 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Bounds on P(T ≥ τ), and about P(T = τ) where it is clear of round-off, else 0."""

    bounds: FloatArray
    cells: FloatArray


def _tilted(law: FloatArray, tilt: float) -> tuple[FloatArray, int]:
    """Masses times e^{tilt·(bin − anchor)}, and the anchor, with which no factor exceeds 1."""
    alive = np.flatnonzero(law > 0)
    anchor = int(alive[-1] if tilt > 0 else alive[0])
    weights = np.zeros_like(law)
    weights[alive] = law[alive] * np.exp(tilt * (alive - anchor))
    return weights, anchor


def _sums_from(values: FloatArray) -> FloatArray:
    return np.cumsum(values[::-1])[::-1]


def _root(increasing: Callable[[float], float]) -> float:
    """A tilt ≥ 0 at which an increasing function is about 0; 0 if it is positive there."""
    if increasing(0.0) >= 0:
        return 0.0

    def reached(tilt: float) -> bool:
        return not increasing(tilt) < 0

    low, high = 0.0, 1e-6
    while not reached(high):
        low, high = high, 4.0 * high
        if high > _LARGEST_TILT:  # an atom at the end holds more: nothing more to gain there
            return low
    return bisected(reached, low, high, halvings=30).holding
