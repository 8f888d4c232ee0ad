"""Pairs given by a table: any mechanism with finitely many outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import log_ndtr

from turnout.core import checks
from turnout.core.errors import NumericalError, ParameterError

FloatArray = np.ndarray
_REACH = 39.0  # standard deviations beyond which a Gaussian's mass is no float
_MOST_OUTCOMES = 1 << 17
_LARGEST_SENSITIVITY = 1 << 15
_STEEPEST = 300.0  # ln of the largest ratio that is priced, at the middle of a lattice's noise
_WIDE = 3.0  # standard deviation from which cells are so narrow that their mass is integrated
_ORDER = 16  # of the Gauss-Legendre rule


@dataclass(frozen=True, eq=False)
class DiscretePair:
    """A likelihood ratio with finitely many values, equal to itself only.

    Attributes:
        values: the positive values of X, increasing, shape (n,).
        masses: Q's mass on each, shape (n,).
        zero: Q's mass on X = 0.
    """

    values: FloatArray
    masses: FloatArray
    zero: float = 0.0

    @cached_property
    def _tails(self) -> tuple[FloatArray, ...]:
        """Masses up to and from each value on, of Q and of P, summed in extended precision."""
        q = self.masses.astype(np.longdouble)
        p = q * self.values
        sums = (
            np.append(self.zero, self.zero + np.cumsum(q)),
            np.append(np.cumsum(q[::-1])[::-1], 0.0),
            np.append(0.0, np.cumsum(p)),
            np.append(np.cumsum(p[::-1])[::-1], 0.0),
        )
        return tuple(tail.astype(float) for tail in sums)

    def _index(self, k: FloatArray) -> FloatArray:
        return np.searchsorted(self.values, k, side="right")

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """The values of X, 0 among them where it has mass, and Q's masses on them."""
        if self.zero == 0.0:
            return self.values, self.masses
        return np.append(0.0, self.values), np.append(self.zero, self.masses)

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
        The pair of X/E_Q[X] and its infinity mass, P's mass where Q has none (see
        `curves.InfinityMassCurve`).

    Raises:
        ParameterError: not two distributions over the same outcomes.
    """
    p, q = _distribution("present", present), _distribution("absent", absent)
    if p.size != q.size:
        raise ParameterError("present", p.size, f"as many outcomes as absent, {q.size}")
    both = (p > 0) & (q > 0)
    infinity_mass = math.fsum(p[q == 0])
    if infinity_mass >= 1.0 - 1e-12:
        raise ParameterError("present", "disjoint from absent", "distributions that overlap")
    values, where = np.unique(p[both] / q[both] / math.fsum(p[both]), return_inverse=True)
    masses = np.bincount(where, weights=q[both])
    return DiscretePair(values, masses, math.fsum(q[p == 0])), infinity_mass


def bounded_variation_pair(epsilon0: float, total_variation: float) -> DiscretePair:
    """The pair that dominates any two laws that are within e^{ε₀} and τ of one another.

    Its three outcomes have (eα, α, 1 − (e + 1)α) under P and (α, eα, 1 − (e + 1)α) under Q, with
    α = τ/(e − 1), at most 1/(e + 1).

    Source: "The blanket of a non-adaptive randomizer" in docs/design/shuffling.md.
    """
    widest = 1.0 / (1.0 + math.exp(epsilon0))
    share = min(total_variation / math.expm1(epsilon0), widest)
    preferred = share * math.exp(epsilon0)
    rest = max(0.0, 1.0 - preferred - share)
    pair, _ = pair_of_table([preferred, share, rest], [share, preferred, rest])
    return pair


def _distribution(name: str, values: Sequence[float]) -> FloatArray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not np.all(array >= 0) or not abs(math.fsum(array) - 1.0) <= 1e-9:
        raise ParameterError(name, "a vector", "probabilities that sum to 1")
    return array / math.fsum(array)


@lru_cache(maxsize=64)
def discrete_gaussian_pair(standard_deviation: float, sensitivity: int) -> DiscretePair:
    """Integer noise with mass ∝ e^{−n²/2s²}, against the same moved by an integer.

    Source: Canonne, Kamath & Steinke 2020. For one number with integer values.

    Raises:
        ParameterError: so much noise that its lattice has too many points.
        NumericalError: so little that hardly anything is hidden.
    """
    n = _outcomes(standard_deviation, sensitivity)
    masses = np.exp(-0.5 * (n / standard_deviation) ** 2)
    ratios = (n - 0.5 * sensitivity) * sensitivity / np.longdouble(standard_deviation) ** 2
    return _lattice_pair(ratios, masses / masses.sum())


@lru_cache(maxsize=64)
def rounded_gaussian_pair(standard_deviation: float, sensitivity: int) -> DiscretePair:
    """N(0, s²) rounded to integers, against the same moved by an integer.

    For one number with integer values; as a function of the Gaussian's output it costs less.
    """
    n = _outcomes(standard_deviation, sensitivity)
    cells = _log_cells(n, standard_deviation)
    moved = _log_cells(n - sensitivity, standard_deviation)
    ratios = (n - 0.5 * sensitivity) * sensitivity / np.longdouble(standard_deviation) ** 2
    masses = np.exp(cells - 0.5 * (n / standard_deviation) ** 2)
    return _lattice_pair(ratios + moved - cells, masses)


def _log_cells(n: FloatArray, standard_deviation: float) -> FloatArray:
    """Ln of P(n − ½ < N(0, s²) < n + ½) over e^{−n²/2s²}, where nothing cancels."""
    far = np.abs(n) / standard_deviation
    half = 0.5 / standard_deviation
    if standard_deviation < _WIDE:
        upper, lower = log_ndtr(half - far.astype(float)), log_ndtr(-half - far.astype(float))
        return upper + np.log(-np.expm1(lower - upper)) + 0.5 * far**2
    # The density at c + u over that at c is e^{−cu − u²/2}.
    nodes, weights = np.polynomial.legendre.leggauss(_ORDER)
    u = half * nodes
    logs = -np.multiply.outer(far, u) - 0.5 * u**2
    top = logs.max(axis=1)
    sums = np.exp(logs - top[:, None]) @ weights
    return top + np.log(sums * (half / math.sqrt(2.0 * math.pi)))


def most_deviation(sensitivity: int) -> float:
    """The largest standard deviation whose lattice is not too fine to be priced.

    Raises:
        ParameterError: there is none, so large is the sensitivity.
    """
    checks.count(sensitivity=sensitivity)
    if sensitivity > _LARGEST_SENSITIVITY:
        raise ParameterError("sensitivity", sensitivity, f"at most {_LARGEST_SENSITIVITY}")
    return float((_MOST_OUTCOMES // 2 - sensitivity) // _REACH)


def _outcomes(standard_deviation: float, sensitivity: int) -> FloatArray:
    checks.positive(standard_deviation=standard_deviation)
    most = most_deviation(sensitivity)
    if standard_deviation > most:
        raise ParameterError(
            "standard_deviation", standard_deviation, f"at most {most:g}, in units of the lattice"
        )
    if 0.5 * (sensitivity / standard_deviation) ** 2 > _STEEPEST:
        raise NumericalError(
            f"noise of standard deviation {standard_deviation:g} on a sensitivity of "
            f"{sensitivity} is too little to be priced"
        )
    reach = math.ceil(_REACH * standard_deviation) + sensitivity
    return np.arange(-reach, reach + 1).astype(np.longdouble)


def _lattice_pair(log_ratios: FloatArray, masses: FloatArray) -> DiscretePair:
    """The pair of increasing ratios, from extended precision."""
    values = np.exp(np.minimum(log_ratios, 700.0)).astype(float)
    masses = masses.astype(float)
    kept = (values > 0) & (masses > 0)
    return DiscretePair(values[kept], masses[kept], math.fsum(masses[values == 0]))
