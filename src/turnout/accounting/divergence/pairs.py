"""Dominating pairs: the distribution of one likelihood ratio, given by its tail functions.

Accounting depends on a randomizer only through its pair. `Pair` is the interface; `hockey_stick`
and `reverse_hockey_stick` compute divergences of a pair, and the functions ``…_rounding`` bound the
rounding errors of these divergences. `GaussianPair` and `LaplacePair` are pairs of noise;
`PurePair` is the pair of any ε₀-DP or (ε₀, δ₀)-DP randomizer. `pair_of_table` makes a
`DiscretePair` of any mechanism with finitely many outcomes; `bounded_variation_pair`,
`discrete_gaussian_pair` and `rounded_gaussian_pair` make the pairs of known randomizers.
`MonotonePair` takes two densities on the line whose ratio is monotone. For any other mechanism,
write a class with the members of `Pair`.

`dominating_pairs` chooses the pair of a randomizer; `curves` turns pairs into δ(ε).

Notation (docs/design/accounting.md): Q = "the contribution is absent", P = "it is present",
X = dP/dQ, so X ≥ 0 and E_Q[X] = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from scipy.special import log_ndtr, ndtr

from turnout.accounting.divergence.work import charge
from turnout.core import checks
from turnout.core.arrays import BoolArray, ExtendedArray, FloatArray, IntArray
from turnout.core.bounds import bisected_each
from turnout.core.errors import NumericalError, ParameterError

__all__ = [
    "UNIT_ROUNDOFF",
    "DiscretePair",
    "GaussianPair",
    "LaplacePair",
    "MonotonePair",
    "Pair",
    "PurePair",
    "bounded_variation_pair",
    "discrete_gaussian_pair",
    "hockey_stick",
    "hockey_stick_rounding",
    "most_deviation",
    "pair_of_table",
    "reverse_hockey_stick",
    "reverse_hockey_stick_rounding",
    "rounded_gaussian_pair",
    "tail_rounding",
    "tail_roundings_above",
    "tail_roundings_below",
    "tails_above",
    "tails_below",
]

UNIT_ROUNDOFF = 2.0**-53

_UNDERFLOW = 1e-300  # below, floats lose digits

_UNITS_A_CALL, _UNITS_A_POINT = 500, 2  # of work, of two tails


class Pair(Protocol):
    """Distribution of the likelihood ratio X of one randomizer, under Q and under P.

    Its tail functions return the shape of ``k``.
    """

    @property
    def second_moment(self) -> float:
        """Second moment E_Q[X²] = E_P[X]; an inexact value makes no bound invalid."""
        ...

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        ...

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X, accurate where it is tiny."""
        ...

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(X ≤ k) = E_Q[X; X ≤ k]."""
        ...

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(X > k) = E_Q[X; X > k], accurate where it is tiny."""
        ...


def hockey_stick(pair: Pair, k: FloatArray) -> FloatArray:
    """Hockey stick E_Q[(X − k)₊] = H_k(P‖Q), shape of ``k``."""
    charge(_UNITS_A_CALL + _UNITS_A_POINT * np.size(k))
    under_p, under_q = tails_above(pair, k)
    return np.maximum(under_p - k * under_q, 0.0)


def reverse_hockey_stick(pair: Pair, k: FloatArray) -> FloatArray:
    """Reverse hockey stick E_Q[(k − X)₊] = k·H_{1/k}(Q‖P), shape of ``k``."""
    charge(_UNITS_A_CALL + _UNITS_A_POINT * np.size(k))
    under_p, under_q = tails_below(pair, k)
    return np.maximum(k * under_q - under_p, 0.0)


def tails_above(pair: Pair, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities P(X > k) and Q(X > k), shape of ``k`` each."""
    if isinstance(pair, GaussianPair):  # one logarithm for both
        under_q, under_p = pair.scores(k)
        return ndtr(-under_p), ndtr(-under_q)
    return pair.p_above(k), pair.q_above(k)


def tails_below(pair: Pair, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities P(X ≤ k) and Q(X ≤ k), shape of ``k`` each."""
    if isinstance(pair, GaussianPair):
        under_q, under_p = pair.scores(k)
        return ndtr(under_p), ndtr(under_q)
    return pair.p_below(k), pair.q_below(k)


def hockey_stick_rounding(pair: Pair, k: FloatArray) -> FloatArray:
    """Bound on the rounding error of `hockey_stick`, shape of ``k``."""
    under_p, under_q = tail_roundings_above(pair, k)
    return under_p + k * under_q


def reverse_hockey_stick_rounding(pair: Pair, k: FloatArray) -> FloatArray:
    """Bound on the rounding error of `reverse_hockey_stick`, shape of ``k``."""
    under_p, under_q = tail_roundings_below(pair, k)
    return under_p + k * under_q


def tail_roundings_above(pair: Pair, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds on the rounding errors of P(X > k) and of Q(X > k), shape of ``k`` each."""
    charge(_UNITS_A_CALL + 2 * _UNITS_A_POINT * np.size(k))
    under_p, under_q = tails_above(pair, k * (1.0 - _near(k)))
    return tail_rounding(under_p), tail_rounding(under_q)


def tail_roundings_below(pair: Pair, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds on the rounding errors of P(X ≤ k) and of Q(X ≤ k), shape of ``k`` each."""
    charge(_UNITS_A_CALL + 2 * _UNITS_A_POINT * np.size(k))
    under_p, under_q = tails_below(pair, k * (1.0 + _near(k)))
    return tail_rounding(under_p), tail_rounding(under_q)


def tail_rounding(tail: FloatArray) -> FloatArray:
    """Upper bound on the rounding error of each tail and of its hockey-stick term, same shape.

    A standard score z has a relative error of a few unit round-offs. This error changes the tail by
    z² ≈ −2 ln(tail) times as much. The bound is twice the largest error found by comparison with
    40-digit arithmetic. Callers evaluate tails at a slightly changed k, since rounding may move a
    value of X across k.
    """
    rounding = UNIT_ROUNDOFF * tail * (16.0 - 8.0 * np.log(np.maximum(tail, _UNDERFLOW)))
    return rounding + _UNDERFLOW


def _near(k: FloatArray) -> FloatArray:
    """Relative distance from k within which rounding may move a value of X across k.

    ln X is computed with a relative error of a few unit round-offs.
    """
    return 8.0 * UNIT_ROUNDOFF * (1.0 + np.abs(np.log(np.maximum(k, 1e-300))))


def log_expm1(value: float) -> float:
    """Logarithm of e^x − 1 for a number x > 0, without overflow."""
    return value + math.log(-math.expm1(-value))


@dataclass(frozen=True, slots=True)
class GaussianPair:
    """N(1, σ²) against N(0, σ²): ln X ~ N(−μ²/2, μ²) under Q and N(+μ²/2, μ²) under P.

    Source: accounting.md, table of pairs.

    Attributes:
        noise_multiplier: σ, the standard deviation of the noise divided by the sensitivity.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive(noise_multiplier=self.noise_multiplier)

    @property
    def mu(self) -> float:
        """Sensitivity divided by the standard deviation of the noise, μ."""
        return 1.0 / self.noise_multiplier

    @property
    def second_moment(self) -> float:
        """Second moment E_Q[X²] = e^{μ²}; infinite where it exceeds the largest float."""
        return float(np.exp(np.float64(min(self.mu**2, 709.0))))

    def scores(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Standard scores of ln k under Q and under P, shape of ``k`` each."""
        with np.errstate(divide="ignore"):
            centred = np.log(k) / self.mu
        return centred + self.mu / 2, centred - self.mu / 2

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        return ndtr(self.scores(k)[0])

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X, by the normal survival function."""
        return ndtr(-self.scores(k)[0])

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(X ≤ k) of the likelihood ratio X."""
        return ndtr(self.scores(k)[1])

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(X > k) of the likelihood ratio X, by the normal survival function."""
        return ndtr(-self.scores(k)[1])


@dataclass(frozen=True, slots=True)
class LaplacePair:
    """Lap(1, b) against Lap(0, b): ln X = (|z| − |z − 1|)/b with z ~ Lap(0, b) under Q.

    For z in [0, 1], ln X = (2z − 1)/b; for z < 0 it is −1/b, and for z > 1 it is 1/b (two atoms).
    Source: accounting.md, table of pairs.

    Attributes:
        scale: b, the noise's scale divided by the sensitivity of the released number.
    """

    scale: float

    def __post_init__(self) -> None:
        checks.positive(scale=self.scale)

    @property
    def second_moment(self) -> float:
        """Second moment E_Q[X²] = (2e^{1/b} + e^{−2/b})/3 of the likelihood ratio."""
        most = min(1.0 / self.scale, 700.0)
        return (2.0 * math.exp(most) + math.exp(-2.0 * most)) / 3.0

    def _place(self, k: FloatArray) -> tuple[FloatArray, BoolArray, BoolArray]:
        """Position z in [0, 1] at which X = k; masks of the k below and above all values of X."""
        with np.errstate(divide="ignore"):
            z = 0.5 * (self.scale * np.log(k) + 1.0)
        return np.clip(z, 0.0, 1.0), z < 0.0, z >= 1.0

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        z, below, above = self._place(k)
        inside = 1.0 - 0.5 * np.exp(-z / self.scale)
        return np.where(below, 0.0, np.where(above, 1.0, inside))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X."""
        z, below, above = self._place(k)
        inside = 0.5 * np.exp(-z / self.scale)
        return np.where(below, 1.0, np.where(above, 0.0, inside))

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(X ≤ k) of the likelihood ratio X."""
        z, below, above = self._place(k)
        inside = 0.5 * np.exp((z - 1.0) / self.scale)
        return np.where(below, 0.0, np.where(above, 1.0, inside))

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(X > k) of the likelihood ratio X."""
        z, below, above = self._place(k)
        inside = 1.0 - 0.5 * np.exp((z - 1.0) / self.scale)
        return np.where(below, 1.0, np.where(above, 0.0, inside))


_LARGEST = 300.0


@dataclass(frozen=True, slots=True)
class PurePair:
    """Pair of any (ε₀, δ₀)-DP randomizer: X = e^{±ε₀}, scaled to E_Q[X] = 1, or X = 0.

    Every (ε₀, δ₀)-DP randomizer is a function of the output of this pair. The infinity mass of the
    pair, P's mass where Q has no mass, is δ₀ (see `curves.InfinityMassCurve`).
    Source: Kairouz, Oh & Viswanath 2015, Theorem 3.4; accounting.md, table of pairs.
    """

    epsilon0: float
    delta0: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0)
        if self.epsilon0 > _LARGEST:
            raise ParameterError("epsilon0", self.epsilon0, f"at most {_LARGEST:g}")
        checks.probability(delta0=self.delta0)

    @property
    def likely(self) -> float:
        """Probability under Q that X = e^{ε₀}, given X > 0."""
        return 1.0 / (math.exp(self.epsilon0) + 1.0)

    @property
    def second_moment(self) -> float:
        """Second moment E_Q[X²] of the likelihood ratio scaled to mean 1."""
        return (2.0 * math.cosh(self.epsilon0) - 1.0) / (1.0 - self.delta0)

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """Values of the likelihood ratio X, and Q's mass on each; shape (n,) each, n ≤ 3."""
        kept = 1.0 - self.delta0
        values = np.array([0.0, math.exp(-self.epsilon0) / kept, math.exp(self.epsilon0) / kept])
        masses = np.array([self.delta0, kept * (1.0 - self.likely), kept * self.likely])
        return values[masses > 0], masses[masses > 0]

    def _steps(
        self, k: FloatArray, zero: float, small: float, large: float, *, above: bool
    ) -> FloatArray:
        """Total mass of the values of X that are at most k or, if ``above``, larger than k."""
        low, high = (math.exp(s * self.epsilon0) / (1.0 - self.delta0) for s in (-1.0, 1.0))
        reaches = np.less if above else np.greater_equal
        masses = ((0.0, zero), (low, small), (high, large))
        first, second, third = (np.where(reaches(k, x), mass, 0.0) for x, mass in masses)
        return first + second + third

    def _under_q(self, k: FloatArray, *, above: bool) -> FloatArray:
        kept = 1.0 - self.delta0
        small, large = kept * (1.0 - self.likely), kept * self.likely
        return self._steps(k, self.delta0, small, large, above=above)

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        return self._under_q(k, above=False)

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X."""
        return self._under_q(k, above=True)

    def p_below(self, k: FloatArray) -> FloatArray:
        """Conditional probability P(X ≤ k | X < ∞) of the likelihood ratio X."""
        return self._steps(k, 0.0, self.likely, 1.0 - self.likely, above=False)

    def p_above(self, k: FloatArray) -> FloatArray:
        """Conditional probability P(X > k | X < ∞) of the likelihood ratio X."""
        return self._steps(k, 0.0, self.likely, 1.0 - self.likely, above=True)


@dataclass(frozen=True, eq=False)
class DiscretePair:
    """Likelihood ratio with finitely many values; instances are compared by identity.

    Attributes:
        values: the positive values of X, increasing, shape (n,).
        masses: Q's mass on each value, shape (n,).
        zero: Q's mass on X = 0.
    """

    values: FloatArray
    masses: FloatArray
    zero: float = 0.0

    @cached_property
    def _tails(self) -> tuple[FloatArray, ...]:
        """Sums of masses up to each value and from each value on, first under Q, then under P.

        Each of the four arrays has the shape (n + 1,).
        """
        q = self.masses.astype(np.longdouble)
        p = q * self.values
        sums = (
            np.append(self.zero, self.zero + np.cumsum(q)),
            np.append(np.cumsum(q[::-1])[::-1], 0.0),
            np.append(0.0, np.cumsum(p)),
            np.append(np.cumsum(p[::-1])[::-1], 0.0),
        )
        return tuple(tail.astype(float) for tail in sums)

    def _index(self, k: FloatArray) -> IntArray:
        return np.searchsorted(self.values, k, side="right")

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """Values of X, 0 included if it has mass, and Q's mass on each, (n,) or (n + 1,)."""
        if self.zero == 0.0:
            return self.values, self.masses
        return np.append(0.0, self.values), np.append(self.zero, self.masses)

    @property
    def second_moment(self) -> float:
        """Second moment E_Q[X²] of the likelihood ratio."""
        return float(self.masses @ self.values**2)

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        return self._tails[0][self._index(k)]

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X."""
        return self._tails[1][self._index(k)]

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(X ≤ k) of the likelihood ratio X."""
        return self._tails[2][self._index(k)]

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(X > k) of the likelihood ratio X."""
        return self._tails[3][self._index(k)]


def pair_of_table(present: Sequence[float], absent: Sequence[float]) -> tuple[DiscretePair, float]:
    """Dominating pair and infinity mass of two probability vectors over the same outcomes.

    Args:
        present: P's probabilities, summing to 1, shape (outcomes,).
        absent: Q's probabilities over the same outcomes.

    Returns:
        The pair of X/E_Q[X] and its infinity mass, P's mass where Q has no mass (see
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
    masses = np.asarray(np.bincount(where, weights=q[both]), dtype=float)
    return DiscretePair(values, masses, math.fsum(q[p == 0])), infinity_mass


def _distribution(name: str, values: Sequence[float]) -> FloatArray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not np.all(array >= 0) or not abs(math.fsum(array) - 1.0) <= 1e-9:
        raise ParameterError(name, "a vector", "probabilities that sum to 1")
    return array / math.fsum(array)


def bounded_variation_pair(epsilon0: float, total_variation: float) -> DiscretePair:
    """Dominating pair of any two distributions with ratio at most e^{ε₀} and total variation τ.

    With e = e^{ε₀} and α = min(τ/(e − 1), 1/(e + 1)), the three outcomes of the pair have the
    probabilities (eα, α, 1 − (e + 1)α) under P and (α, eα, 1 − (e + 1)α) under Q.

    Source: "The blanket of a non-adaptive randomizer" in docs/design/shuffling.md.

    Args:
        epsilon0: ε₀ > 0, bound on the absolute log-ratio of the distributions.
        total_variation: τ > 0, bound on the total variation of the distributions.
    """
    widest = 1.0 / (1.0 + math.exp(epsilon0))
    share = min(total_variation / math.expm1(epsilon0), widest)
    preferred = share * math.exp(epsilon0)
    rest = max(0.0, 1.0 - preferred - share)
    pair, _ = pair_of_table([preferred, share, rest], [share, preferred, rest])
    return pair


_REACH = 39.0  # standard deviations beyond which a Gaussian's mass is no float

_MOST_OUTCOMES = 1 << 17

_LARGEST_SENSITIVITY = 1 << 15

_STEEPEST = 300.0  # ln of the largest ratio that is priced, at the middle of a lattice's noise

_WIDE = 3.0  # standard deviation from which cells are so narrow that their mass is integrated

_ORDER = 16  # of the Gauss-Legendre rule


@lru_cache(maxsize=64)
def discrete_gaussian_pair(standard_deviation: float, sensitivity: int) -> DiscretePair:
    """Dominating pair of discrete Gaussian noise against the same noise shifted by an integer.

    Source: Canonne, Kamath & Steinke 2020: the mass of n is ∝ e^{−n²/2s²}. The pair is for one
    number with integer values.

    Args:
        standard_deviation: s > 0, in units of the lattice.
        sensitivity: largest change of the value, a positive whole number.

    Raises:
        ParameterError: the noise is so large that its lattice has too many points.
        NumericalError: the noise is too small for a certified bound at this sensitivity.
    """
    n = _outcomes(standard_deviation, sensitivity)
    masses = np.exp(-0.5 * (n / standard_deviation) ** 2)
    ratios = (n - 0.5 * sensitivity) * sensitivity / np.longdouble(standard_deviation) ** 2
    return _lattice_pair(ratios, masses / masses.sum())


@lru_cache(maxsize=64)
def rounded_gaussian_pair(standard_deviation: float, sensitivity: int) -> DiscretePair:
    """Dominating pair of integer-rounded Gaussian noise against the noise shifted by an integer.

    The pair is for one number with integer values. Rounding is postprocessing of the Gaussian
    output, so ε is smaller than without rounding. The arguments and the errors are those of
    `discrete_gaussian_pair`.
    """
    n = _outcomes(standard_deviation, sensitivity)
    cells = _log_cells(n, standard_deviation)
    moved = _log_cells(n - sensitivity, standard_deviation)
    ratios = (n - 0.5 * sensitivity) * sensitivity / np.longdouble(standard_deviation) ** 2
    masses = np.exp(cells - 0.5 * (n / standard_deviation) ** 2)
    return _lattice_pair(ratios + moved - cells, masses)


def most_deviation(sensitivity: int) -> float:
    """Largest standard deviation, in units of the lattice, that can be analysed.

    Raises:
        ParameterError: the sensitivity is so large that no standard deviation can be analysed.
    """
    checks.count(sensitivity=sensitivity)
    if sensitivity > _LARGEST_SENSITIVITY:
        raise ParameterError("sensitivity", sensitivity, f"at most {_LARGEST_SENSITIVITY}")
    return float((_MOST_OUTCOMES // 2 - sensitivity) // _REACH)


def _outcomes(standard_deviation: float, sensitivity: int) -> ExtendedArray:
    checks.positive(standard_deviation=standard_deviation)
    most = most_deviation(sensitivity)
    if standard_deviation > most:
        raise ParameterError(
            "standard_deviation", standard_deviation, f"at most {most:g}, in units of the lattice"
        )
    if 0.5 * (sensitivity / standard_deviation) ** 2 > _STEEPEST:
        raise NumericalError(
            f"noise of standard deviation {standard_deviation:g} on a sensitivity of "
            f"{sensitivity} is too small for a certified bound"
        )
    reach = math.ceil(_REACH * standard_deviation) + sensitivity
    return np.arange(-reach, reach + 1).astype(np.longdouble)


def _log_cells(n: ExtendedArray, standard_deviation: float) -> ExtendedArray:
    """Logarithm of P(n − ½ < N(0, s²) < n + ½)/e^{−n²/2s²}, computed without cancellation."""
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


def _lattice_pair(log_ratios: ExtendedArray, masses: ExtendedArray) -> DiscretePair:
    """Pair with given increasing log-ratios and masses under Q, in extended precision."""
    values = np.exp(np.minimum(log_ratios, 700.0)).astype(float)
    rounded = masses.astype(float)
    kept = (values > 0) & (rounded > 0)
    return DiscretePair(values[kept], rounded[kept], math.fsum(rounded[values == 0]))


_PROBES = 4001

_HALVINGS = 70


class Distribution(Protocol):
    """Continuous distribution on the line, with the methods of a frozen SciPy distribution."""

    def cdf(self, x: FloatArray, /) -> FloatArray:
        """Cumulative probability P(Z ≤ x), shape of ``x``."""
        ...

    def sf(self, x: FloatArray, /) -> FloatArray:
        """Survival probability P(Z > x), accurate where it is tiny, shape of ``x``."""
        ...

    def logpdf(self, x: FloatArray, /) -> FloatArray:
        """Logarithm of the density, shape of ``x``."""
        ...


@dataclass(frozen=True, eq=False)
class MonotonePair:
    """Pair of two densities on an interval; the caller guarantees that their ratio never falls.

    The ratio is checked at some thousand points only. The tail functions are as accurate as those
    of the given distributions, whose accuracy is not proved.

    Attributes:
        present, absent: P and Q.
        low, high: ends of an interval outside which both P and Q have negligible mass.

    Raises:
        ParameterError: the ratio of the densities falls between two of the points.
    """

    present: Distribution
    absent: Distribution
    low: float
    high: float

    def __post_init__(self) -> None:
        ratios = self._log_ratio(np.linspace(self.low, self.high, _PROBES))
        if np.isnan(ratios).any() or np.any(np.diff(ratios) < -1e-9 * (1.0 + np.abs(ratios[1:]))):
            raise ParameterError(
                "present", "a density", "a density whose ratio to absent never falls"
            )

    def _log_ratio(self, z: FloatArray) -> FloatArray:
        return self.present.logpdf(z) - self.absent.logpdf(z)

    @cached_property
    def second_moment(self) -> float:
        """Second moment E_Q[X²] = E_P[X], estimated by a sum over quantile cells."""
        edges = np.linspace(self.low, self.high, _PROBES)
        middles = 0.5 * (edges[1:] + edges[:-1])
        return float(np.diff(self.present.cdf(edges)) @ np.exp(self._log_ratio(middles)))

    def _place(self, k: FloatArray) -> FloatArray:
        """Largest z at which the density ratio is at most k, by bisection; shape of ``k``."""
        with np.errstate(divide="ignore"):
            target = np.log(np.asarray(k, dtype=float))
        low, high = bisected_each(
            lambda z: ~(self._log_ratio(z) <= target),
            np.full_like(target, self.low),
            np.full_like(target, self.high),
            _HALVINGS,
        )
        z = 0.5 * (low + high)
        z = np.where(self._log_ratio(np.full_like(z, self.low)) > target, -np.inf, z)
        return np.where(self._log_ratio(np.full_like(z, self.high)) <= target, np.inf, z)

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        return self.absent.cdf(self._place(k))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X."""
        return self.absent.sf(self._place(k))

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(X ≤ k) of the likelihood ratio X."""
        return self.present.cdf(self._place(k))

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(X > k) of the likelihood ratio X."""
        return self.present.sf(self._place(k))
