"""Lower bounds for k of t steps: an adversary who observes only a sum over the steps.

`statistic_curve` returns a `StatisticCurve`, a proved lower curve. `BinSum` is a sum of independent
bin indices; `curve_of_sums` makes a curve from the tails of two such sums. `k_subset` and
`k_subset_records` use these functions, and also `bin_masses` and `largest_ratio`. This module
builds on `k_subset_levels`.

Notation: Q is the output of a step without the client's message, P with it, X = dP/dQ, N the number
of successes, u the unit round-off.

For every function g of a step's ratio, T = Σ g(X_i) has a simple distribution: with φ_Q and φ_P the
distributions of g(X) under Q and P, T has the distribution φ_Q^{*t} without the client, and
φ_P^{*k} * φ_Q^{*(t−k)} with a client that draws any k steps. With a random number of picks, the
distribution with the client is a mixture. So

    δ ≥ P(T ≥ τ) − K·Q(T ≥ τ)       (remove; add: Q(T < τ) − K·P(T < τ))

for every τ. With g(x) = ln(1 + r·x), rounded to a lattice, little is lost: r → 0 gives the best
statistic for one check-in, r → ∞ the best statistic for participation in every step. In between,
the ratio S of the window is e^T times a constant times Pr[N = k], where N counts successes with
probabilities rx/(1 + rx). This probability hardly changes with the outputs where the mean of N is
about k, so r is chosen such that the mean of N is about k at the values of S on which δ depends.

Lower and upper bounds on P(T ≥ τ) are needed. Under the distribution tilted by e^{θT}, with θ such
that τ is its mean, the round-off of the FFT is small relative to the tail, however small the tail
is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import fft

from turnout.accounting.divergence.curves import Direction, narrowed
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, Pair
from turnout.accounting.divergence.work import charge, remembered
from turnout.accounting.participation.k_subset_levels import SubsetProblem, sums_from, valley
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError

_UNITS_A_BIN = 10  # units of work a bin of each transform

_CUT = 1e-4  # largest part of δ that is due to ratios above the last edge

_STEP = 0.06  # width of a bin over the standard deviation of one g(X), at refinement 0

_COARSER = 4.0  # factor by which bins are wider while r is chosen

_MOST_BINS, _MOST_SIZE = 1 << 15, 1 << 21

_STARTS = {Direction.REMOVE: (0.6,), Direction.ADD: (1.6, 12.0, 100.0)}  # first r over k/(t − k)

_STEPS, _MANY_STEPS = (
    (1.6, 1.25, 1.1),
    2_000,
)  # factors by which r is moved; only the first for long windows


@dataclass(frozen=True, slots=True, eq=False)
class StatisticCurve:
    """Lower curve gain(τ) − K·loss(τ) below δ(K), with a threshold τ of T chosen for each K.

    T is the sum of the bin indices of the steps' outputs.

    Attributes:
        gain: lower bounds on P(T ≥ τ) (remove) or Q(T < τ) (add) at each τ, shape (n,).
        loss: upper bounds on Q(T ≥ τ) (remove) or P(T < τ) (add), same shape.
        log_ratio: approximate ln of the likelihood ratio at each τ, increasing up to round-off,
            same shape.
    """

    gain: FloatArray
    loss: FloatArray
    log_ratio: FloatArray

    def _at(self, k: FloatArray) -> IntArray:
        """Index of τ at each K: the candidate with the larger bound.

        Round-off spoils at most one of the two candidates.
        """
        k = np.asarray(k, dtype=float)
        rising = np.maximum.accumulate(self.log_ratio)
        falling = np.minimum.accumulate(self.log_ratio[::-1])[::-1]
        first, second = (
            np.minimum(np.searchsorted(ratios, np.log(k)), self.gain.size - 1)
            for ratios in (rising, falling)
        )
        better = self._line(second, k) > self._line(first, k)
        return np.where(better, second, first)

    def _line(self, index: IntArray, k: FloatArray) -> FloatArray:
        return self.gain[index] - k * self.loss[index] * (1.0 + 1e-15)

    def delta(self, k: FloatArray) -> FloatArray:
        """Lower bound on δ at each K ≥ 1, shape of ``k``."""
        return np.clip(self._line(self._at(k), np.asarray(k, dtype=float)), 0.0, 1.0)

    def value(self, k: float) -> float:
        """Lower bound on δ at one K ≥ 1."""
        return float(self.delta(np.array(k)))

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope of the line whose value `delta` returns, at each K ≥ 1, shape of ``k``.

        The whole line lies below δ(K).
        """
        return -self.loss[self._at(k)]


_Mixture = Sequence[tuple[float, "BinSum"]]
"""Mixture of sums of bin indices: pairs (probability, sum)."""


def statistic_curve(task: SubsetProblem, refinement: int) -> StatisticCurve:
    """Lower curve of a k-subset of t steps; each refinement halves the width of the bins.

    Args:
        task: the problem.
        refinement: level of refinement, at least 0.

    Returns:
        A curve that is never above the true δ.

    Raises:
        NumericalError: the distributions of the statistic are too wide for a grid, or have no
            common values.
    """
    return _scaled_curve(task, _best_scale(task), _STEP / 2**refinement)


def _scaled_curve(task: SubsetProblem, scale: float, step: float) -> StatisticCurve:
    """Lower curve from the statistic with scale r.

    The bins are ``step`` standard deviations wide.
    """
    cap = largest_ratio(task.pair, _CUT * task.delta / task.picks)
    return _curve(_Steps.of(task.pair, _edges(task.pair, scale, cap, step)), task)


@remembered
def _best_scale(task: SubsetProblem) -> float:
    """Scale r of the statistic with nearly the largest lower bound, found on coarse bins."""
    window, delta, picks = task.window, task.delta, task.mean_picks
    base = picks / (window - picks)

    def curve(scale: float) -> StatisticCurve:
        return _scaled_curve(task, scale, _COARSER * _STEP)

    # The best start, then r moved to a local optimum.
    best, threshold = None, 1.0
    for factor in _STARTS[task.direction]:
        tried = curve(base * factor)
        if best is None or tried.value(threshold) > delta:
            best, threshold = base * factor, threshold_of(tried, delta)
    assert best is not None
    for factor in _STEPS if window <= _MANY_STEPS else _STEPS[:1]:
        best = valley(lambda x: -curve(x).value(threshold), best, factor)
    return best


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Lower and upper bounds on the bin masses of one step, without the client and with it."""

    absent: tuple[FloatArray, FloatArray]
    present: tuple[FloatArray, FloatArray]

    @classmethod
    def of(cls, pair: Pair, edges: FloatArray) -> _Steps:
        absent = bin_masses(pair.q_below(edges), pair.q_above(edges))
        return cls(absent, bin_masses(pair.p_below(edges), pair.p_above(edges)))


def bin_masses(below: FloatArray, above: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds on the mass of each bin, from the tail that is smaller at this bin.

    Args:
        below: probability below each edge, increasing, shape (n,).
        above: probability above each edge, same shape.

    Returns:
        Both bounds, shape (n + 1,) each: one more bin than edges.
    """
    lower, upper = np.append(below, 1.0), np.append(above, 0.0)
    by_lower, by_upper = np.diff(lower, prepend=0.0), -np.diff(upper, prepend=1.0)
    small = lower <= 0.5
    masses = np.where(small, by_lower, by_upper)
    tails = np.where(small, lower, np.append(1.0, above))
    # A tail p has an error of a few u·p·(−ln p), see `pairs`; a mass is a difference of two tails.
    errors = UNIT_ROUNDOFF * tails * (64.0 - 32.0 * np.log(np.maximum(tails, 1e-300)))
    return np.maximum(masses - errors, 0.0), np.maximum(masses, 0.0) + errors


def _edges(pair: Pair, scale: float, cap: float, step: float) -> FloatArray:
    """Values of x at the edges of bins of ln(1 + r·x), each about ``step`` deviations wide."""
    # Mean and standard deviation of the statistic of one step, on a grid of ratios.
    some = np.append(0.0, np.geomspace(1e-9 * min(1.0, cap), cap, 3000))
    spread = math.sqrt(max(pair.second_moment - 1.0, 0.0))
    if spread < 0.1:  # all ratios are about 1
        some = np.unique(np.append(some, np.exp(spread * np.linspace(-12.0, 12.0, 2000))))
        some = some[some <= cap]
    masses = np.diff(pair.q_below(some), append=1.0)
    values = np.log1p(scale * some)
    mean = float(masses @ values)
    deviation = math.sqrt(float(masses @ (values - mean) ** 2))
    if not deviation > 0.0:
        raise NumericalError("all likelihood ratios of a step are equal in float64")
    # Equal bins of the statistic, from 0 to the value of the cap.
    top = math.log1p(scale * cap)
    bins = min(_MOST_BINS, max(2, math.ceil(top / (step * deviation))))
    return np.expm1(top / bins * np.arange(1, bins + 1)) / scale


@remembered
def largest_ratio(pair: Pair, mass: float) -> float:
    """Likelihood ratio above which P has about a given mass, in addition to its infinity mass.

    Args:
        pair: pair of one step.
        mass: probability under P.
    """
    enough = float(pair.p_above(np.array(1e300))) + mass

    def light(log_ratio: float) -> bool:
        return not float(pair.p_above(np.array(math.exp(log_ratio)))) > enough

    return math.exp(bisected(light, -1.0, 690.0, halvings=30).holding)


def _curve(steps: _Steps, task: SubsetProblem) -> StatisticCurve:
    """Lower curve from bounds on the masses of the statistic's bins in one step."""
    # T with and without the client: lower bounds on masses for the gain, upper ones for the loss.
    if task.direction is Direction.REMOVE:
        gain = _presence(task, steps.present[0], steps.absent[0])
        loss = [(1.0, BinSum((steps.absent[1],), (task.window,)))]
    else:  # the gain is where T is small: bins are numbered from the top
        gain = [(1.0, BinSum((steps.absent[0][::-1],), (task.window,)))]
        loss = _presence(task, steps.present[1][::-1], steps.absent[1][::-1])
    return curve_of_sums(gain, loss, task.delta)


def curve_of_sums(gain: _Mixture, loss: _Mixture, delta: float) -> StatisticCurve:
    """Lower curve from the distributions of T in two worlds, sharp near a δ.

    Args:
        gain: T in the world whose tail is added; masses are lower bounds.
        loss: T in the world whose tail is subtracted K times; masses are upper bounds.
        delta: δ, strictly between 0 and 1.

    Raises:
        NumericalError: the distributions are too wide for a grid, or have no common values.
    """
    # The τ that contributes at δ, and tilts under which this τ is typical.
    parts = [*gain, *loss]
    tilts = [part.tilt_to_tail(_log_tail(delta, chance)) for chance, part in gain]
    means = [part.moments(tilt).mean for (_, part), tilt in zip(gain, tilts, strict=True)]
    likely = [m for m, (chance, _) in zip(means, gain, strict=True) if chance > 8.0 * delta]
    mean = max(likely or means)
    if len(gain) > 1:
        tilts = [part.tilt_to_mean(mean) for _, part in gain]
    tilts += [part.tilt_to_mean(mean) for _, part in loss]
    # One window of bins for all sums.
    ends = [part.edges(tilt) for (_, part), tilt in zip(parts, tilts, strict=True)]
    low = math.floor(min(end[0] for end in ends))
    wanted = math.ceil(max(end[1] for end in ends)) - low + 2
    if wanted > _MOST_SIZE:
        raise NumericalError("the statistic has too wide a distribution for a grid")
    size = 2 * (fft.next_fast_len((wanted + 1) // 2, real=True) or wanted)
    # Bounds on both tails. Points at which round-off hides the likelihood ratio are dropped.
    won = _mixed_tails(gain, tilts, low, size, upper=False)
    lost = _mixed_tails(loss, tilts[len(gain) :], low, size, upper=True)
    clear = np.flatnonzero((won.cells > 0) & (lost.cells > 0))
    if not clear.size:
        raise NumericalError(
            "the statistic has no value that is likely both with and without the client"
        )
    ratio = np.log(won.cells[clear] / lost.cells[clear])
    return StatisticCurve(won.bounds[clear], lost.bounds[clear], ratio)


def _presence(task: SubsetProblem, present: FloatArray, absent: FloatArray) -> _Mixture:
    """Distribution of T with the client, as a mixture over the possible numbers of picks."""
    return [
        (chance, BinSum((present, absent), (picks, task.window - picks)))
        for picks, chance in task.possible
    ]


def _log_tail(delta: float, chance: float) -> float:
    """Logarithm of the tail probability at which a sum contributes about δ.

    ``chance`` is the probability of the sum in the mixture.
    """
    return math.log(min(0.5, 4.0 * delta / chance))


def _mixed_tails(
    mixture: _Mixture, tilts: Sequence[float], low: int, size: int, *, upper: bool
) -> Tails:
    """Bounds on P(T ≥ τ) of a mixture of sums; each sum is computed under its own tilt."""
    bounds = cells = np.zeros(size)
    rounding = 4.0 * len(mixture) * UNIT_ROUNDOFF * (1.0 if upper else -1.0)
    for (chance, part), tilt in zip(mixture, tilts, strict=False):
        tails = part.tails(tilt, low, size, upper=upper)
        bounds = bounds + chance * (1.0 + rounding) * tails.bounds
        cells = cells + chance * tails.cells
    return Tails(bounds, cells)


def threshold_of(curve: StatisticCurve, delta: float) -> float:
    """Value of K ≥ 1 at which a lower curve is about δ.

    Args:
        curve: lower curve.
        delta: δ, strictly between 0 and 1.
    """
    values = curve.gain - np.exp(np.clip(curve.log_ratio, 0.0, 700.0)) * curve.loss
    above = np.flatnonzero(values > delta)
    index = min(int(above[-1]) + 1, values.size - 1) if above.size else 0
    return math.exp(min(max(float(curve.log_ratio[index]), 0.0), 700.0))


_ROUNDOFF_A_LEVEL, _ROUNDOFF_INPUT = 8.0, 32.0  # error of an FFT, in u·Σ|input| (Higham, §24.1)

_ROUNDOFF_OF_POWER = 32.0  # error of z^n by exp(n·ln z), in n·u, where |z|^n is not negligible

_LOG_OUTSIDE = -36.0  # ln of the tilted mass that may lie on either side of the window

_LEAST_TILT, _LARGEST_TILT = 1e-5, 100.0  # of the first try, and of the last one

_NEAR = 1e-7  # relative accuracy of a tilt

_CLEAR = 1e-6  # part of the largest mass above which a mass determines a likelihood ratio


@dataclass(frozen=True, eq=False)
class BinSum:
    """Sum T of independent bin indices; ``counts[i]`` of them have masses ``distributions[i]``."""

    distributions: tuple[FloatArray, ...]
    counts: tuple[int, ...]

    @cached_property
    def _alive(self) -> list[tuple[FloatArray, FloatArray, int]]:
        """For each distribution: bins of positive mass, their masses, its number of summands."""
        found = []
        for distribution, count in zip(self.distributions, self.counts, strict=True):
            index = np.flatnonzero(distribution > 0)
            found.append((index.astype(np.float64), distribution[index], count))
        return found

    def moments(self, tilt: float) -> Moments:
        """Moments of the distribution of T tilted by e^{tilt·T}."""
        log_mass = mean = variance = 0.0
        anchor = 0
        for index, masses, count in self._alive:
            end = float(index[-1] if tilt > 0 else index[0])
            weights = masses * np.exp(tilt * (index - end))
            total = float(weights.sum())
            first = float(weights @ index) / total
            log_mass += count * math.log(total)
            anchor += count * int(end)
            mean += count * first
            variance += count * float(weights @ (index - first) ** 2) / total
        return Moments(tilt, log_mass, anchor, mean, variance)

    def log_moments(self, tilts: FloatArray, mean: float) -> FloatArray:
        """Logarithms of E[e^{tilt·(T − mean)}] for each tilt, shape of ``tilts``.

        Args:
            tilts: exponents, shape (n,).
            mean: value that is subtracted from T.
        """
        total = -mean * tilts
        for index, masses, count in self._alive:
            ends = np.where(tilts > 0, index[-1], index[0])
            weights = np.exp(tilts[:, None] * (index - ends[:, None]))
            total = total + count * (np.log(weights @ masses) + tilts * ends)
        return total

    def tilt_to_mean(self, mean: float) -> float:
        """Tilt ≥ 0 at which the mean of T is about ``mean``; 0 if the untilted mean is larger."""
        return _root(lambda tilt: self.moments(tilt).mean - mean)

    def tilt_to_tail(self, log_mass: float) -> float:
        """Tilt ≥ 0 for which P(T ≥ mean of T under the tilt) is about e^log_mass."""

        def gap(tilt: float) -> float:
            # Saddle-point estimate of ln P(T ≥ its tilted mean).
            moments = self.moments(tilt)
            width = tilt * math.sqrt(2 * math.pi * moments.variance)
            return log_mass - (float(moments.log_weight(moments.mean)) - math.log1p(width))

        return _root(gap)

    def edges(self, tilt: float) -> tuple[float, float]:
        """Lower and upper end of a range outside which the tilted T has negligible mass.

        Chernoff bounds determine the ends.
        """
        base = self.moments(tilt)
        exponents = np.geomspace(0.2, 20.0, 12) / (math.sqrt(base.variance) + 1e-3)
        whole = float(base.log_weight(base.mean))

        def reach(sign: float) -> float:
            """Least distance from the mean, on one side, with a small enough Chernoff bound."""
            # ln E[e^{s(T − mean)}] under the tilt.
            logs = self.log_moments(tilt + sign * exponents, base.mean) - whole
            return float(np.min((1e-6 - _LOG_OUTSIDE + logs) / exponents))

        return base.mean - reach(-1.0), base.mean + reach(1.0)

    def tails(self, tilt: float, low: int, size: int, *, upper: bool) -> Tails:
        """Bounds on P(T ≥ τ) at each τ of a range that contains nearly all of the tilted mass.

        Args:
            tilt: tilt of the distribution.
            low: smallest τ, the first bin of the range.
            size: number of bins of the range.
            upper: whether the bounds are upper bounds.
        """
        masses, error = self._tilted_masses(tilt, low, size)
        exponents = self.moments(tilt).log_weight(low + np.arange(size, dtype=float))
        weights = np.exp(np.clip(exponents, -700.0, 300.0))
        cells = masses * weights
        norm = np.sqrt(sums_from(weights**2))
        # Mass outside the window wraps into it; mass above it belongs to every tail.
        slack = error * norm + 4 * math.exp(_LOG_OUTSIDE) * weights
        # Rounding of sums, of the logarithms of the masses, and of exponents.
        relative = 8.0 * size + 64.0 * sum(self.counts) + 8.0 * float(np.max(np.abs(exponents)))
        slack += relative * UNIT_ROUNDOFF * sums_from(np.abs(cells))
        bounds = sums_from(cells) + (slack if upper else -slack)
        return Tails(bounds, np.where(masses > _CLEAR * masses.max(), cells, 0.0))

    def _tilted_masses(self, tilt: float, low: int, size: int) -> tuple[FloatArray, float]:
        """Tilted masses on ``size`` bins from ``low`` on, and a bound on their ℓ2 round-off."""
        # γ bounds the error of one Fourier coefficient.
        charge(_UNITS_A_BIN * size * (1 + len(self.distributions)))
        gamma = (_ROUNDOFF_A_LEVEL * math.log2(size) + _ROUNDOFF_INPUT) * UNIT_ROUNDOFF
        spectrum = np.ones(size // 2 + 1, dtype=complex)
        largest, computed = np.ones(spectrum.size), np.ones(spectrum.size)
        # The product of the transforms, its modulus as computed and the largest it can be.
        for distribution, count in zip(self.distributions, self.counts, strict=True):
            weights, _ = _tilted(distribution, tilt)
            weights = np.bincount(
                np.arange(distribution.size) % size, weights / weights.sum(), size
            )
            values = np.asarray(fft.rfft(weights))
            modulus = np.abs(values)
            spectrum *= values**count
            computed *= modulus**count
            slack = 1.0 + _ROUNDOFF_OF_POWER * count * UNIT_ROUNDOFF
            largest *= (modulus + gamma) ** count * slack
        # Back to masses; by Parseval the error in ℓ2 follows from that of the moduli.
        masses = np.roll(np.asarray(fft.irfft(spectrum, size)), -(low % size))
        error = math.sqrt(2.0 / size) * float(np.linalg.norm(largest - computed))
        return masses, 1.01 * error + gamma * float(np.linalg.norm(masses)) + 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Bounds on P(T ≥ τ), and estimates of P(T = τ), at each τ of a range of bins.

    Attributes:
        bounds: bounds on P(T ≥ τ), shape (n,).
        cells: estimates of P(T = τ), same shape; 0 where round-off hides the probability.
    """

    bounds: FloatArray
    cells: FloatArray


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of a tilted distribution: ln E[e^{tilt·(T − anchor)}], mean and variance of T.

    Attributes:
        tilt: exponent of the tilt.
        log_mass: ln E[e^{tilt·(T − anchor)}].
        anchor: value of T that is subtracted, so that numbers stay in range.
        mean: mean of T under the tilted distribution.
        variance: variance of T under the tilted distribution.
    """

    tilt: float
    log_mass: float
    anchor: int
    mean: float
    variance: float

    def log_weight(self, value: FloatArray | float) -> FloatArray:
        """Logarithm of the weight that undoes the tilt at a value of T, shape of ``value``.

        The logarithm is ln E[e^{tilt·T}] − tilt·value.
        """
        return self.log_mass + self.tilt * (self.anchor - np.asarray(value))


def _tilted(distribution: FloatArray, tilt: float) -> tuple[FloatArray, int]:
    """Masses times e^{tilt·(bin − anchor)}, and the anchor: the bin with the largest factor, 1."""
    alive = np.flatnonzero(distribution > 0)
    anchor = int(alive[-1] if tilt > 0 else alive[0])
    weights = np.zeros_like(distribution)
    weights[alive] = distribution[alive] * np.exp(tilt * (alive - anchor))
    return weights, anchor


def _root(increasing: Callable[[float], float]) -> float:
    """Tilt ≥ 0 at which an increasing function is about 0; 0 if the function is positive at 0."""
    low, high = (0.0, -increasing(0.0)), (_LEAST_TILT, -increasing(_LEAST_TILT))
    if low[1] <= 0:
        return 0.0
    while high[1] > 0:
        low, high = high, (8.0 * high[0], -increasing(8.0 * high[0]))
        if high[0] > _LARGEST_TILT:  # an atom at the end has more mass, so the search ends there
            return low[0]
    return narrowed(lambda tilt: -increasing(tilt), low, high, _NEAR)[1]
