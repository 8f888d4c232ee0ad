"""Distributions of sums of independent variables: on a grid by one FFT, on few values exactly.

`convolve` returns the distribution of a sum of grid variables (`Factor`) as a `SumDistribution`,
with a bound on the round-off; callers of `convolve` also use `hockey_sticks_in_bins`, `log_sums`
and `smooth_size`. `composition` adds privacy losses with `convolve`; `participation.check_ins` adds
the likelihood ratios of a window with it. `multinomial_curve` returns the curve of one check-in for
a ratio with few values (`AtomicPair`): a `MultinomialCurve`, exact up to rounding, without a grid.

**FFT.** The plain rfft(q)^t is too inaccurate: an FFT has an error of about u·log N in every
frequency, and the t-th power multiplies this error by t; at t = 10⁶ it exceeds δ = 1e-10. Here the
characteristic function is written as

    φ(z) = z^c·(1 + m (z − 1) + (z − 1)² R̂(z)),   R_j = E[(V − c − j − 1)₊],
                                                   R_{−i} = E[(c − V − i + 1)₊]

with m = E[V] − c and hockey sticks R in bins around a centre c near E[V] (j ≥ 0 and i ≥ 1). An FFT
computes only R̂. Where φ^t matters, |z − 1|² is of order 1/t over the variance, and ΣR is about the
variance, so the error of t·ln φ stays of order u·log N for every t. Notation: V = X / h in bins,
z = e^{−iω}, b = z − 1, u the unit round-off.

**Few values.** The sum of a window's ratios depends only on the number of ratios at each value;
these numbers have a multinomial distribution. With X = e^{±ε₀}, which bounds any ε₀-DP randomizer,
the distribution is binomial with t trials and probability 1/(e^{ε₀} + 1) under Q (accounting.md §2,
"Pure ε₀-DP randomizer"). Notation: S is the mean of t ratios, c_j the number of ratios with the
value x_j, m_j the mass of x_j under Q, d_j = c_j − t·m_j. Since the ratio has mean 1,
S − 1 = Σ d_j·(x_j − x₀)/t for every x₀, a sum without cancellation where S is near 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from scipy import fft

from turnout.accounting.divergence.curves import Direction, Side, running_sums
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, Pair
from turnout.accounting.divergence.work import charge, remembered
from turnout.core.arrays import BoolArray, ComplexArray, FloatArray, IntArray
from turnout.core.bounds import bisected_each

# Forward error of an FFT: each of log₂ N radix-2 levels multiplies by a rounded twiddle factor
# and adds, at most 6.7 u a level (Higham, Accuracy and Stability, §24.1); a radix-3 level counts
# as log₂ 3 of them. 32 u for the inputs.
_ROUNDOFF_A_LEVEL = 8.0

_ROUNDOFF_INPUT = 32.0

# NumPy sums in pairs: 128 terms by eight running sums, then log₂ J levels.
_ROUNDOFF_MEAN = 64.0

_NEGLIGIBLE_LOG = -80.0

_LOG_SERIES = [(1.0 if power % 2 else -1.0) / power for power in range(13, 1, -1)]  # of ln(1 + x)

_TINY = float(np.finfo(float).tiny)

_KEPT_SIZE = 1 << 15  # largest transform whose roots of unity are kept

_UNITS_A_BIN, _CACHED = 8, 1 << 20  # units of work, of each transform; four times beyond a cache


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """Variable V on the bins 0 … J, and the number of its independent copies in a sum.

    Attributes:
        masses: masses of V on the bins, shape (J + 1,), J < the number of bins, summing to 1.
        count: t, the number of copies.
        price_errors: absolute errors of the (tilted) hockey sticks in bins; V's masses are second
            differences of these hockey sticks. At frequency ω, with z = e^{−iω}, the errors have
            the weight |z − 1|² + ``tilt``².
    """

    masses: FloatArray
    count: int
    price_errors: FloatArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SumDistribution:
    """Masses of a sum on the bins ``first``, …, ``first + N − 1``; mass outside wraps around.

    Attributes:
        l2_error: bound on the ℓ2 norm of the round-off in ``masses``.
    """

    first: int
    masses: FloatArray
    l2_error: float


def convolve(
    factors: Sequence[Factor], size: int, first: int, *, tilt: float = 0.0
) -> SumDistribution:
    """Distribution of the sum of all variables, modulo N bins, with a bound on its round-off.

    Args:
        factors: the variables.
        size: N, even; its prime factors should be 2 and 3.
        first: lowest bin of the window to return.
        tilt: exponential tilt per bin that the distributions already contain; 0 if untilted.
    """
    charge(_UNITS_A_BIN * size * (1 + len(factors)) * (4 if size > _CACHED else 1))
    # Characteristic function of each variable at the frequencies of a real FFT.
    roots = _roots_of_unity(size) if size <= _KEPT_SIZE else _Roots.of(size)
    omega = roots.omega
    parts = [_Transform.of(factor, size, roots, tilt) for factor in factors]
    # Keep the frequencies at which the product is not negligible, mostly the lowest ones.
    log_bound = np.zeros(omega.size)
    for part in parts:
        log_bound += part.count * np.log(part.modulus + part.error)
    kept: IntArray | slice = np.flatnonzero(log_bound > _NEGLIGIBLE_LOG)
    if kept[-1] + 1 == kept.size:
        kept = slice(0, kept.size)  # views, no copies
    # Logarithm of the product, relative to the rounded mean of the sum, and growth of its error.
    total_mean = sum(part.count * part.mean for part in parts)
    shift = round(total_mean)
    centre = sum(part.count * part.centre for part in parts)
    exponent = -1j * omega[kept] * (total_mean - shift)
    size_of_exponent, log_growth = np.abs(exponent), np.zeros(exponent.size)
    clear = np.ones(exponent.size, dtype=bool)
    for part in parts:
        term = part.count * (
            _log1p_minus(part.offset[kept])
            + part.mean * roots.minus_linear[kept]
            + part.curvature[kept]
        )
        exponent += term
        size_of_exponent += np.abs(term)
        modulus, error = part.modulus[kept], part.error[kept]
        clear &= modulus > error
        log_growth += part.count * np.log1p(error / np.where(modulus > error, modulus, 1.0))
    values = np.exp(exponent)
    magnitude = np.abs(values)
    # Error of the product by errors e of the factors: Π(|φ| + e) − Π|φ|.
    error = np.where(
        clear, magnitude * np.expm1(np.minimum(log_growth, 700.0)), np.exp(log_bound[kept])
    )
    local = magnitude * 8 * UNIT_ROUNDOFF * (1.0 + size_of_exponent)
    # Masses of the sum by the inverse transform.
    spectrum = np.zeros(omega.size, dtype=complex)
    spectrum[kept] = values
    masses = np.asarray(fft.irfft(spectrum, size))
    # ℓ2 bound on the round-off: at most the number of factors times the largest error, plus
    # local rounding, frequencies left out, and the FFT's own error.
    l2_error = _norm(error, len(parts) * max(part.spread for part in parts), size)
    l2_error += float(np.linalg.norm(local)) + np.exp(_NEGLIGIBLE_LOG) * np.sqrt(size)
    gamma = _gamma(size)
    l2_error = np.sqrt(2.0 / size) * l2_error + gamma * float(np.linalg.norm(masses))
    turned = (first - centre - shift) % size
    return SumDistribution(first, np.concatenate([masses[turned:], masses[:turned]]), l2_error)


@dataclass(frozen=True, slots=True, eq=False)
class _Roots:
    """Frequencies ω of a real FFT of N bins, and functions of z = e^{−iω} at each frequency.

    All arrays have the shape (N/2 + 1,).

    Attributes:
        omega: ω.
        turn, turn_squared: b = z − 1 and its square.
        modulus, modulus_squared: |b| and its square.
        minus_linear: b + iω.
    """

    omega: FloatArray
    turn: ComplexArray
    turn_squared: ComplexArray
    modulus: FloatArray
    modulus_squared: FloatArray
    minus_linear: ComplexArray

    @classmethod
    def of(cls, size: int) -> _Roots:
        omega = 2 * np.pi * np.arange(size // 2 + 1) / size
        turn = -2 * np.sin(omega / 2) ** 2 - 1j * np.sin(omega)
        modulus = np.abs(turn)
        return cls(omega, turn, turn * turn, modulus, modulus**2, _turn_minus(omega))


@lru_cache(maxsize=24)
def _roots_of_unity(size: int) -> _Roots:
    """Roots of unity of an FFT size, cached."""
    return _Roots.of(size)


@dataclass(frozen=True, slots=True, eq=False)
class _Transform:
    """Difference φ − 1 of the characteristic function φ of one variable, with an error bound.

    φ is the characteristic function of the variable minus its centre.
    """

    count: int
    centre: int
    mean: float
    offset: ComplexArray
    curvature: ComplexArray
    modulus: FloatArray
    error: FloatArray
    spread: float

    @classmethod
    def of(cls, factor: Factor, size: int, roots: _Roots, tilt: float) -> _Transform:
        turn, square = roots.turn, roots.modulus_squared
        # Hockey sticks in bins around a centre near the mean.
        lowest, highest = np.flatnonzero(factor.masses)[[0, -1]]
        masses, cells = factor.masses[lowest : highest + 1], int(highest - lowest)
        centre = round(float(masses @ np.arange(cells + 1)))
        hockey_sticks = hockey_sticks_in_bins(masses[centre:])
        reverse_hockey_sticks = hockey_sticks_in_bins(masses[centre::-1])
        # R of the header, indices below 0 wrapped around; R̂ is its transform.
        rest = np.zeros(size)
        rest[: hockey_sticks.size - 1] = hockey_sticks[1:]
        if centre:
            rest[-centre:] += reverse_hockey_sticks[centre - 1 :: -1]
        # φ − 1 from the mean and R̂.
        terms = masses * (np.arange(cells + 1) - centre)
        mean = float(terms.sum())
        curvature = roots.turn_squared * np.asarray(fft.rfft(rest, size))
        offset = mean * turn + curvature
        # Bound on its error: of the FFT, of the hockey sticks, of the mean, and of given prices.
        # It is a multiple of |z − 1|², a multiple of |z − 1| and a constant.
        by_square = (_gamma(size) + hockey_sticks_rounding(cells)) * float(rest.sum())
        by_turn = _ROUNDOFF_MEAN * UNIT_ROUNDOFF * float(np.abs(terms).sum())
        spread, constant = _spread(rest), 0.0
        if factor.price_errors is not None:
            total = float(factor.price_errors.sum())
            by_square, constant = by_square + total, total * tilt**2
            by_turn += 2.0 * float(factor.price_errors.max())
            spread = max(spread, _spread(factor.price_errors))
        error = by_square * square + by_turn * roots.modulus + constant
        modulus = np.hypot(1.0 + offset.real, offset.imag)
        centre += int(lowest)
        return cls(factor.count, centre, mean, offset, curvature, modulus, error, spread)


def log_sums(losses: FloatArray, masses: FloatArray, s: FloatArray) -> FloatArray:
    """Logarithm of E[e^{sL}] of a loss distribution for each s, shape of ``s``.

    All masses are positive.
    """
    exponents = np.multiply.outer(s, losses)
    top = exponents.max(axis=1)
    return top + np.log(np.exp(exponents - top[:, None]) @ masses)


def smooth_size(wanted: float) -> int:
    """Smallest size 2ⁿ or 3·2ⁿ of at least ``wanted``, for a fast FFT."""
    octave = 1 << math.floor(math.log2(wanted))
    return next(n for n in (octave, octave * 3 // 2, octave * 2) if n >= wanted)


def hockey_sticks_in_bins(masses: FloatArray) -> FloatArray:
    """Hockey sticks E[(V − j)₊] for j = 0 … J of a distribution on bins, shape (J + 1,)."""
    hockey_sticks = np.zeros(masses.size)
    hockey_sticks[:-1] = _sums_from(_sums_from(masses[1:]))
    return hockey_sticks


def hockey_sticks_rounding(cells: int) -> float:
    """Bound on the relative error of each hockey stick of `hockey_sticks_in_bins`."""
    return 4.0 * (math.isqrt(cells) + 3) * UNIT_ROUNDOFF


def _sums_from(values: FloatArray) -> FloatArray:
    """Sums of n non-negative values from each index on, shape (n,).

    The rounding errors are those of sums of about 2√n terms.
    """
    width = math.isqrt(values.size) + 1
    rows = np.zeros(width * width)
    rows[: values.size] = values
    within = np.cumsum(rows.reshape(width, width)[:, ::-1], axis=1)[:, ::-1]
    later = np.zeros(width)
    np.cumsum(within[:0:-1, 0], out=later[-2::-1])
    return (within + later[:, None]).ravel()[: values.size]


def _gamma(size: int) -> float:
    """Upper bound on the relative forward error of one FFT of a given size."""
    return (_ROUNDOFF_A_LEVEL * math.log2(size) + _ROUNDOFF_INPUT) * UNIT_ROUNDOFF


def _spread(values: FloatArray) -> float:
    """Ratio of the ℓ2 norm of values to their sum."""
    total = float(values.sum())
    return float(np.linalg.norm(values)) / total if total > 0 else 0.0


def _norm(error: FloatArray, spread: float, size: int) -> float:
    """Upper bound on the ℓ2 norm, over N frequencies, of the error of a transform.

    The error is due to errors e of hockey sticks. At frequency ω it is at most w(ω)·Σe, which is
    ``error``, with w(ω) the weight of the frequency. Since the transform of e has ℓ2 norm √N·‖e‖,
    max w·√N·‖e‖ is a bound as well; it is smaller if many frequencies have large weights.
    """
    return min(float(np.linalg.norm(error)), float(error.max()) * spread * math.sqrt(size))


def _log1p_minus(a: ComplexArray) -> ComplexArray:
    """Difference ln(1 + a) − a without cancellation, for small complex a."""
    small = np.abs(a) < 0.05
    result = np.log(np.where(a == -1.0, _TINY, 1.0 + a)) - a
    x = a[small]
    series = np.full_like(x, _LOG_SERIES[0])
    for coefficient in _LOG_SERIES[1:]:
        series *= x
        series += coefficient
    result[small] = series * x * x
    return result


def _turn_minus(omega: FloatArray) -> ComplexArray:
    """Difference e^{−iω} − (1 − iω) without cancellation, for small ω."""
    square = omega**2
    series = np.zeros_like(omega)
    for k in range(8, 0, -1):
        series = (1.0 - series) * square / ((2 * k) * (2 * k + 1))
    # The series is 1 − sin(ω)/ω, complete to the last digit for ω < 1.
    imaginary = np.where(omega < 1.0, omega * series, omega - np.sin(omega))
    return -2 * np.sin(omega / 2) ** 2 + 1j * imaginary


_STIRLING_TABLE = np.array(
    [0.0]
    + [
        math.lgamma(n + 1.0) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi)
        for n in range(1, 20)
    ]
)  # errors of Stirling's formula

_STIRLING_SERIES = (1 / 1188, 1 / 1680, 1 / 1260, 1 / 360, 1 / 12)  # alternating, from the end

_MASS_ERROR = 1e-10  # relative error of a binomial mass, ten times what forty digits showed

_MOST_STATES = 1 << 20

_MOST_FREE = 8  # counts that are enumerated one by one

_FORGOTTEN = {True: 1e-290, False: 1e-40}  # mass that may be left out: of two values, of more

_HALVINGS = 60

_CLOSE = 2.0  # K up to which S − 1 is used, not S


@runtime_checkable
class AtomicPair(Protocol):
    """Pair whose likelihood ratio has finitely many values."""

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """Values of the likelihood ratio X, 0 included, and Q's masses on them, shape (n,) each."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MultinomialCurve:
    """Curve δ(K) of one check-in in a window, for a likelihood ratio with few values.

    The curve is computed from S, the mean of the ratios of the window's steps. It is rounded up if
    ``side`` is UPPER, and down if ``side`` is LOWER.

    Attributes:
        close: running sums over the distribution of S, used for K up to 2.
        far: running sums over the distribution of S, used for larger K.
        forgotten: upper bound on the contribution to δ of counts that are left out.
        mass_error: bound on the relative error of a mass.
    """

    direction: Direction
    side: Side
    close: _Sums
    far: _Sums
    forgotten: float
    mass_error: float

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        value, blur, size, _ = self._price(np.asarray(k, dtype=float))
        error = blur + (self.mass_error + 4.0 * UNIT_ROUNDOFF * self.close.points.size) * size
        if self.side is Side.UPPER:
            return np.clip(value + error + self.forgotten, 0.0, 1.0)
        return np.clip(value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        return self._price(np.asarray(k, dtype=float))[3]

    def _price(self, k: FloatArray) -> list[FloatArray]:
        close, far = (sums.price(self.direction, k) for sums in (self.close, self.far))
        return [np.where(k <= _CLOSE, one, other) for one, other in zip(close, far, strict=True)]


def multinomial_curve(
    pair: Pair, window: int, direction: Direction, side: Side
) -> MultinomialCurve | None:
    """Curve of one check-in in a window of t steps, for a ratio with few values.

    The result is None if the counts of the ratio's values are too many to enumerate.
    """
    if not isinstance(pair, AtomicPair):
        return None
    upper = _upper(pair, window, direction)
    return upper if upper is None or side is Side.UPPER else replace(upper, side=side)


@remembered
def _upper(pair: AtomicPair, window: int, direction: Direction) -> MultinomialCurve | None:
    values, masses = pair.atoms
    # The count of the commonest value, the last, follows from all other counts.
    order = np.argsort(masses, kind="stable")
    values, masses = values[order], masses[order]
    forgotten = _left_out(window, masses)
    if forgotten is None:
        return None
    # Running sums relative to 1 for K near 1, and relative to 0 for larger K.
    distribution = _distribution(direction, window, values, masses, forgotten)
    close = _Sums.of(
        1.0,
        distribution.offsets,
        distribution.blur,
        distribution,
        (float(distribution.blur.max()), 0.0),
    )
    relative = 8.0 * values.size * UNIT_ROUNDOFF
    far = _Sums.of(
        0.0,
        distribution.ratios,
        relative * distribution.ratios,
        distribution,
        (0.0, 2.0 * relative),
    )
    # Counts that are left out are added to the upper bound.
    levels = values.size - 1
    lost = 2.0 * levels * forgotten * max(float(values.max()), 1.0)
    return MultinomialCurve(direction, Side.UPPER, close, far, lost, levels * _MASS_ERROR)


def _distribution(
    direction: Direction, window: int, values: FloatArray, masses: FloatArray, forgotten: float
) -> _Distribution:
    """Distribution of the mean S of a window's likelihood ratios.

    A count is the number of steps whose ratio has a given value; very improbable counts are left
    out.
    """
    # Begin with all t steps left, then choose the count of one value after the other.
    left, chances = np.array([window]), np.ones(1)
    offsets, moved, ratios = np.zeros(1), np.zeros(1), np.zeros(1)
    rests = np.cumsum(masses[::-1])[::-1]
    for j in range(values.size - 1):
        share = min(float(masses[j] / rests[j]), 1.0)
        # Every sum so far branches into the counts that matter of this value.
        low, high = _range(left, share, forgotten)
        sizes = high - low + 1
        parent = np.repeat(np.arange(sizes.size), sizes)
        counts = np.arange(parent.size) - (np.cumsum(sizes) - sizes - low)[parent]
        left, chances = left[parent], chances[parent] * binomial_masses(counts, left[parent], share)
        # Add the value's part of S − 1, of its rounding and of S.
        distance = counts - window * masses[j]
        offsets = offsets[parent] + distance * ((values[j] - values[-1]) / window)
        moved = moved[parent] + np.abs(distance) / window
        ratios = ratios[parent] + counts * (values[j] / window)
        left = left - counts
    # The steps left over have the last value; bound the rounding of S − 1.
    ratios = ratios + left * (values[-1] / window)
    blur = 4.0 * UNIT_ROUNDOFF * (float(values.max()) * moved + 1.0 + float(values[-1]))
    return _Distribution(direction, offsets, blur, ratios, chances)


def binomial_masses(counts: IntArray, trials: IntArray, share: float) -> FloatArray:
    """Binomial probabilities with a relative error below 1e-11, shape of the arguments.

    Source: Loader 2000, "Fast and accurate computation of binomial probabilities": relative
    entropies and errors of Stirling's formula in place of differences of large logarithms.

    Args:
        counts: numbers of successes, from 0 to the trials.
        trials: numbers of trials, at most 10⁷.
        share: probability of a success, in (0, 1].
    """
    failures = trials - counts
    if share == 1.0:
        return (failures == 0).astype(np.float64)
    # With no success, or no failure, there is only one sequence of outcomes.
    masses, none, every = np.zeros(counts.shape), counts == 0, failures == 0
    masses[every] = np.exp(trials[every] * math.log(share))
    masses[none] = np.exp(trials[none] * math.log1p(-share))
    # Between the ends: Stirling's formula with its errors, and the entropies.
    inside = ~(none | every)
    won, lost, total = (x[inside].astype(np.float64) for x in (counts, failures, trials))
    exponents = _stirling_error(total) - _stirling_error(won) - _stirling_error(lost)
    exponents -= _entropy(won, total * share) + _entropy(lost, total * (1.0 - share))
    masses[inside] = np.exp(exponents) * np.sqrt(total / (2.0 * math.pi * won * lost))
    return masses


def _stirling_error(count: FloatArray) -> FloatArray:
    """Error ln n! − (n + ½)·ln n + n − ½·ln 2π of Stirling's formula, for whole n ≥ 1."""
    inverse = 1.0 / (count * count)
    series = np.zeros_like(count)
    for coefficient in _STIRLING_SERIES:
        series = coefficient - series * inverse
    series = series / count
    small = count < _STIRLING_TABLE.size
    table = _STIRLING_TABLE[np.where(small, count, 1.0).astype(np.int64)]
    return np.where(small, table, series)


def _entropy(value: FloatArray, mean: FloatArray) -> FloatArray:
    """Entropy x·ln(x/m) − x + m of a value x and a mean m, without cancellation if x is near m."""
    distance = value - mean
    ratio = distance / (value + mean)
    square = ratio * ratio
    series = np.zeros_like(ratio)
    for power in range(21, 1, -2):
        series = (series + 1.0 / power) * square
    near = distance * ratio + 2.0 * value * ratio * series
    far = value * np.log(value / mean) - distance
    return np.where(np.abs(ratio) < 0.1, near, far)


def _range(trials: IntArray, share: float, forgotten: float) -> tuple[IntArray, IntArray]:
    """Smallest and largest count to keep; each omitted tail has at most mass ``forgotten``."""
    from scipy.special import rel_entr

    goal = math.inf if forgotten == 0.0 else -math.log(forgotten)
    mean, ends = trials.astype(np.float64) * share, []

    def rare(count: FloatArray) -> BoolArray:
        return ~(rel_entr(count, mean) + rel_entr(trials - count, trials - mean) < goal)

    for last in (np.zeros_like(mean), trials.astype(np.float64)):
        ends.append(bisected_each(rare, mean, last, _HALVINGS)[1])
    return np.floor(ends[0]).astype(np.int64), np.ceil(ends[1]).astype(np.int64)


def _left_out(window: int, masses: FloatArray) -> float | None:
    """Largest probability of each tail of a count's distribution that is left out.

    A count is the number of steps whose likelihood ratio has a given value. The result is 0 if
    there are few combinations of counts, so that all are kept; None if too many would remain.
    """
    free = masses.size - 1
    choices = math.lgamma(window + free + 1) - math.lgamma(window + 1) - math.lgamma(free + 1)
    if choices <= math.log(_MOST_STATES):
        return 0.0
    if free > _MOST_FREE:
        return None
    forgotten = _FORGOTTEN[free == 1]
    ranges = [_range(np.array([window]), float(m), forgotten) for m in masses[:-1]]
    widths = [float(high[0] - low[0]) + 1.0 for low, high in ranges]
    return forgotten if math.prod(widths) <= _MOST_STATES else None


@dataclass(frozen=True, slots=True, eq=False)
class _Distribution:
    """Distribution of S, the mean of a window's likelihood ratios.

    The arrays hold S − 1, bounds on the rounding errors, S, and Q's masses.
    """

    direction: Direction
    offsets: FloatArray
    blur: FloatArray
    ratios: FloatArray
    masses: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Running sums of the distribution of S − base, with S the mean of a window's ratios.

    Attributes:
        base: number that is subtracted from S: 1 if S − 1 must have small relative errors, else 0.
        points: S − base.
        mass: sums of Q's masses q.
        excess: sums of q·(S − base).
        blur: sums of q times a bound on the rounding error of S − base.
        nearly: absolute and relative bound on the rounding error of a point.
    """

    base: float
    points: FloatArray
    mass: FloatArray
    excess: FloatArray
    blur: FloatArray
    nearly: tuple[float, float]

    @classmethod
    def of(
        cls,
        base: float,
        points: FloatArray,
        blur: FloatArray,
        distribution: _Distribution,
        nearly: tuple[float, float],
    ) -> _Sums:
        """Running sums from each point on (remove) or up to each point (add)."""
        order = np.argsort(points, kind="stable")
        points, masses = points[order], distribution.masses[order]
        mass, excess, blurred = (
            running_sums(part, distribution.direction)
            for part in (masses, masses * points, masses * blur[order])
        )
        return cls(base, points, mass, excess, blurred, nearly)

    def price(self, direction: Direction, k: FloatArray) -> tuple[FloatArray, ...]:
        """Value δ(K) in one direction, its error, the size of its terms, and the slope dδ/dK.

        With S the mean of a window's ratios, δ(K) is E[(S − K)₊] for *remove* and E[(1 − K·S)₊] for
        *add*.
        """
        if direction is Direction.REMOVE:
            factor, due = np.ones_like(k), self.base - k
            index, blurred = self._from(-due, -1.0, "right")
            slope = -self.mass[index]
        else:
            factor, due = -k, 1.0 - k * self.base
            index, blurred = self._from(due / k, 1.0, "left")
            slope = -(self.excess[index] + self.base * self.mass[index])
        near, far = factor * self.excess[index], due * self.mass[index]
        blur = np.abs(factor) * self.blur[blurred]
        return near + far, blur, np.abs(near) + np.abs(far), slope

    def _from(
        self, threshold: FloatArray, outwards: float, side: Literal["left", "right"]
    ) -> tuple[IntArray, IntArray]:
        """Indices at which the sums start, for the threshold and for the rounded threshold."""
        absolute, relative = self.nearly
        shifted = threshold + outwards * (absolute + relative * np.abs(threshold))
        return (
            np.searchsorted(self.points, threshold, side=side),
            np.searchsorted(self.points, shifted, side=side),
        )
