"""Chernoff bounds on the mass of a sum outside a window, from a law on few points.

Spreading a law onto fewer points makes it larger in convex order, and e^{sx} and x·e^{sx} are
convex: so a few hundred points bound the moments of a law on a million.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting import convex_order as order
from turnout.accounting.pairs import Pair, call

FloatArray = np.ndarray
_POINTS = 400


@dataclass(frozen=True, slots=True, eq=False)
class CoarseLaw:
    """The law of X ∧ cap spread onto few points: larger in convex order, cheap to exponentiate."""

    points: FloatArray
    masses: FloatArray

    @classmethod
    def of_calls(cls, points: FloatArray, calls: FloatArray) -> CoarseLaw:
        """The law with these call prices at these points."""
        slopes = np.diff(calls) / np.diff(points)
        masses = np.diff(slopes, prepend=-1.0, append=0.0)
        return cls(points, np.maximum(masses, 0.0))

    @classmethod
    def of_pair(cls, pair: Pair, cap: float) -> CoarseLaw:
        """The law of X ∧ cap, to choose grids by (its masses are made to add up to 1)."""
        exponents = np.linspace(-21.0, 0.0, 200)
        likely = pair.q_below(np.exp(exponents)) > 1e-7
        low = min(math.exp(exponents[np.argmax(likely)]), 0.01 * cap)
        points = np.append(0.0, np.geomspace(low, cap, _POINTS))
        calls = call(pair, points)
        law = cls.of_calls(points, calls - calls[-1])
        return cls(points, law.masses / law.masses.sum())

    def log_moments(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ln E[e^{sX}] and ln E[X e^{sX}] for each s."""
        alive = self.masses > 0
        points, masses = self.points[alive], self.masses[alive]
        exponents = np.multiply.outer(s, points)
        top = np.max(exponents, axis=1)
        weights = np.exp(exponents - top[:, None])
        plain, biased = weights @ masses, weights @ (masses * points)
        with np.errstate(divide="ignore"):  # a law of nothing but 0 has E[X e^{sX}] = 0
            return top + np.log(plain), top + np.log(biased)

    def log_chernoff(self, window: int, *, biased: bool) -> tuple[FloatArray, FloatArray]:
        """Exponents s > 0 and ln E[e^{sΣ}] of the sum of ``window`` variables, at each."""
        s = self._exponents(window)
        plain, weighted = self.log_moments(s)
        return s, weighted + (window - 1) * plain if biased else window * plain

    def log_chernoff_below(self, window: int, tilt: float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Exponents s > 0 and ln E[e^{−sΣ}] under the law tilted by e^{−tilt·x}, at each."""
        s = self._exponents(window)
        plain = self.log_moments(np.append(-tilt - s, -tilt))[0]
        return s, window * (plain[:-1] - plain[-1])

    def _exponents(self, window: int) -> FloatArray:
        s = np.geomspace(1e-9, 1e3, 120) / max(1.0, math.sqrt(window * self.points[-1]))
        return np.append(s, np.linspace(0.05, 1.5, 40) * 45.0 / self.points[-1])


def mass_above(
    grid: order.Grid, calls: FloatArray, window: int, top: float, *, biased: bool
) -> float:
    """Chernoff bound on the mass at or above ``top`` of the sum of the very grid law used."""
    index = _few_bins(grid.cells)
    coarse = CoarseLaw.of_calls(grid.origin + grid.step * index, calls[index])
    s, logs = coarse.log_chernoff(window, biased=biased)
    return math.exp(min(0.0, float(np.min(logs - s * top))))


def mass_below(grid: order.Grid, calls: FloatArray, count: int, first_bin: int) -> float:
    """Chernoff bound on the mass of a sum of ``count`` grid variables below a bin."""
    if first_bin <= 0:
        return 0.0
    index = _few_bins(grid.cells)
    coarse = CoarseLaw.of_calls(grid.step * index, calls[index])
    s, logs = coarse.log_chernoff_below(count)
    return math.exp(min(0.0, float(np.min(logs + s * grid.step * first_bin))))


def _few_bins(cells: int) -> np.ndarray:
    some = np.round(np.geomspace(1, cells, _POINTS)).astype(np.int64)
    return np.unique(np.append(some, 0))
