"""Pairs given by a table: any mechanism with finitely many outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import log_ndtr

from turnout.core import checks
from turnout.core.errors import ParameterError

FloatArray = np.ndarray
_REACH = 39.0  # standard deviations beyond which a Gaussian's mass is no float
_MOST_OUTCOMES = 1 << 17
_ROUNDED_TO_ONE = 1e-14  # masses that miss 1 by less leave nothing on X = 0


@dataclass(frozen=True, eq=False)
class DiscretePair:
    """A likelihood ratio with finitely many values, equal to itself only.

    Attributes:
        values: the values of X, positive and increasing, shape (n,).
        masses: Q's mass on each, shape (n,); what is missing to 1 lies on X = 0.
    """

    values: FloatArray
    masses: FloatArray

    @cached_property
    def _tails(self) -> tuple[FloatArray, ...]:
        """Masses up to and from each value on, of Q and of P, summed in extended precision."""
        q = self.masses.astype(np.longdouble)
        p = q * self.values
        zero = max(1.0 - math.fsum(self.masses), 0.0)
        zero = zero if zero > _ROUNDED_TO_ONE else 0.0
        sums = (
            np.append(zero, zero + np.cumsum(q)),
            np.append(np.cumsum(q[::-1])[::-1], 0.0),
            np.append(0.0, np.cumsum(p)),
            np.append(np.cumsum(p[::-1])[::-1], 0.0),
        )
        return tuple(tail.astype(float) for tail in sums)

    def _index(self, k: FloatArray) -> FloatArray:
        return np.searchsorted(self.values, k, side="right")

    @property
    def second_moment(self) -> float:
        """E_Q[X²]."""
        return float(self.masses @ self.values**2)

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        return self._tails[0][self._index(k)]

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k)."""
        return self._tails[1][self._index(k)]

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k)."""
        return self._tails[2][self._index(k)]

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k)."""
        return self._tails[3][self._index(k)]


def pair_of_table(present: Sequence[float], absent: Sequence[float]) -> tuple[DiscretePair, float]:
    """The pair of two probability vectors over the same outcomes.

    Args:
        present: P's probabilities, summing to 1, shape (outcomes,).
        absent: Q's.

    Returns:
        The pair of X/E_Q[X] and its leak, P's mass where Q has none (see `curves.LeakyCurve`).

    Raises:
        ParameterError: not two distributions over the same outcomes.
    """
    p, q = _distribution("present", present), _distribution("absent", absent)
    if p.size != q.size:
        raise ParameterError("present", p.size, f"as many outcomes as absent, {q.size}")
    shared = q > 0
    leak = float(p[~shared].sum())
    if leak >= 1.0 - 1e-12:
        raise ParameterError("present", "disjoint from absent", "distributions that overlap")
    ratios = p[shared] / q[shared] / (1.0 - leak)
    order = np.argsort(ratios)
    ratios, masses = ratios[order], q[shared][order]
    alive = ratios > 0
    return DiscretePair(ratios[alive], masses[alive]), leak


def _distribution(name: str, values: Sequence[float]) -> FloatArray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not np.all(array >= 0) or abs(array.sum() - 1.0) > 1e-9:
        raise ParameterError(name, "a vector", "probabilities that sum to 1")
    return array / array.sum()


@lru_cache(maxsize=64)
def discrete_gaussian_pair(standard_deviation: float, sensitivity: int) -> DiscretePair:
    """Integer noise with mass ∝ e^{−n²/2s²}, against the same moved by an integer.

    Source: Canonne, Kamath & Steinke 2020. For one number with integer values.
    """
    n = _outcomes(standard_deviation, sensitivity)
    logs = -0.5 * (n / standard_deviation) ** 2
    total = math.log(math.fsum(np.exp(logs)))
    ratios = (n - 0.5 * sensitivity) * sensitivity / standard_deviation**2
    return _lattice_pair(ratios, np.exp(logs - total))


@lru_cache(maxsize=64)
def rounded_gaussian_pair(standard_deviation: float, sensitivity: int) -> DiscretePair:
    """N(0, s²) rounded to integers, against the same moved by an integer.

    For one number with integer values; as a function of the Gaussian's output it costs less.
    """
    n = _outcomes(standard_deviation, sensitivity)
    absent = _log_cells(n, standard_deviation)
    present = _log_cells(n - sensitivity, standard_deviation)
    kept = np.isfinite(absent) & np.isfinite(present)
    return _lattice_pair((present - absent)[kept], np.exp(absent[kept]))


def _log_cells(n: FloatArray, standard_deviation: float) -> FloatArray:
    """Ln P(n − ½ < N(0, s²) < n + ½), on the side where nothing cancels."""
    far = np.abs(n)
    upper = log_ndtr(-(far - 0.5) / standard_deviation)
    lower = log_ndtr(-(far + 0.5) / standard_deviation)
    with np.errstate(divide="ignore"):
        return upper + np.log(-np.expm1(lower - upper))


def _outcomes(standard_deviation: float, sensitivity: int) -> FloatArray:
    checks.positive(standard_deviation=standard_deviation)
    checks.count(sensitivity=sensitivity)
    reach = math.ceil(_REACH * standard_deviation) + sensitivity
    if 2 * reach > _MOST_OUTCOMES:
        raise ParameterError(
            "standard_deviation",
            standard_deviation,
            "at most 1600 lattice steps; beyond, GaussianNoise covers it",
        )
    return np.arange(-reach, reach + 1, dtype=float)


def _lattice_pair(log_ratios: FloatArray, masses: FloatArray) -> DiscretePair:
    alive = (masses > 0) & (np.abs(log_ratios) < 690.0)
    values, masses = np.exp(log_ratios[alive]), masses[alive]
    values = values / float(masses @ values)
    return DiscretePair(values, masses)
