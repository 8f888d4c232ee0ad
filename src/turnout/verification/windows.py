"""ε of a row of independent windows, by distributions of a likelihood ratio L in convex order.

`run_distribution` composes windows, `epsilon_of_windows` and `two_bound_epsilon` bound ε;
`RatioDistribution` holds L, kept below or above the true one.

L is how much likelier the adversary's view is with the client than without; all expectations here
are without the client, where E L = 1. At ratio k an attack gains two convex expectations:

    remove: E[(L − k)₊]        add: E[(1 − k·L)₊]

So a distribution that is larger in convex order proves an upper bound, a smaller one a lower bound,
in both directions at once. Sums of independent distributions, and products of independent
distributions that are not negative, keep the order (fix all factors but one: the function stays
convex in it). A window of t steps, of which the client takes with probability p exactly one,
uniform, has the ratio L = 1 − p + p·(X₁ + … + X_t)/t with independent X as in `gaussian`; windows
multiply.

A distribution is a list of atoms; when there are too many, values are cut into cells, and

* a *lower* distribution puts a cell's mass at its mean (Jensen); * an *upper* distribution splits
it onto the cell's two ends, mean kept (the reverse of Jensen). What lies
  beyond the last end b is cut to b, and E[(L − b)₊] is kept as `RatioDistribution.infinity_mass`:
  as if that much certainty were given away. Cutting only raises E[(1 − k·L)₊].

Where the cells lie decides how close the bounds are, never whether they hold. Both miss by the
square of a cell's width. Nothing is subtracted but in places where the result is one of two
weights of the same atom, so rounding is a relative error of values and masses; it is counted
(`RatioDistribution.value_error`, `RatioDistribution.mass_error`) and charged to the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from turnout.core.errors import NumericalError

CELLS = 1000
"""Atoms that a distribution may have."""

_BINS = 1 << 14
_ROWS = 32  # of a table of values that are put into bins at once
_APART = 1e-5  # least distance of two ends of cells in ln ratio, so that masses keep their digits
_REACH = 9.5  # standard deviations of one step's noise that have cells
_ROUNDING = 8.0 * CELLS**2 * 2.0**-53
"""Relative error of one operation: a cell is a running sum of at most ``CELLS**2`` terms of one
sign; everything else (products, logarithms, normal tails) errs by far less than the factor 8."""

_LARGEST = 600.0  # logarithm of a ratio beyond which masses would underflow unseen

Floats = NDArray[np.float64]


class OrderSide(Enum):
    """Side of the true distribution in convex order."""

    LOWER = "lower"
    UPPER = "upper"


class Others(Enum):
    """Other clients that check in to a step of which one client sends."""

    NONE = "none"
    OPPOSED = "opposed"
    """One other client, whose update is opposite to the client's."""
    WORST = "worst"
    """Any other clients, none included: a bound that no clients need attain."""


@dataclass(frozen=True, slots=True)
class RatioDistribution:
    """Atoms of a likelihood ratio, or of a sum of ratios.

    Attributes:
        values: not negative, rising, shape ``(n,)``.
        masses: their probabilities without the client, shape ``(n,)``.
        infinity_mass: probability with the client (times the distribution's mean) of outcomes that
            tell.
        value_error, mass_error: bounds on the relative rounding error of each value and mass.
    """

    values: Floats
    masses: Floats
    infinity_mass: float = 0.0
    value_error: float = 0.0
    mass_error: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.values).all() and np.isfinite(self.masses).all()):
            raise NumericalError("a likelihood ratio is too large for float64")

    def mixed(self, share: float, total: float) -> RatioDistribution:
        """Distribution of 1 − share + share·S/total, where S is distributed as ``self`` with
        mean ``total``.
        """
        values = (1.0 - share) + share * (self.values / total)
        infinity_mass = share * self.infinity_mass / total
        return RatioDistribution(
            values, self.masses, infinity_mass, self.value_error + _ROUNDING, self.mass_error
        )


@dataclass(frozen=True, slots=True)
class AtomCells:
    """Sums of the atoms in each cell; the last cell has no upper end.

    Attributes:
        edges: lower ends, from 0 on, rising, shape ``(n,)``.
        masses: shape ``(n,)``.
        means: Σ value·mass, shape ``(n,)``.
    """

    edges: Floats
    masses: Floats
    means: Floats

    def settled(
        self,
        side: OrderSide,
        infinity_mass: float,
        value_error: float = 0.0,
        mass_error: float = 0.0,
    ) -> RatioDistribution:
        """Distribution with one atom in each cell (lower) or at each end (upper)."""
        errors = value_error + _ROUNDING, mass_error + _ROUNDING
        if side is OrderSide.LOWER:
            kept = self.masses > 0
            return RatioDistribution(
                self.means[kept] / self.masses[kept], self.masses[kept], infinity_mass, *errors
            )
        below, mean = self.masses[:-1], self.means[:-1]
        width, excess = np.diff(self.edges), mean - self.edges[:-1] * below
        share = np.divide(excess, width, out=np.zeros_like(width), where=width > 0)
        share = np.clip(share, 0.0, below)
        masses = np.append(below - share, self.masses[-1])
        masses[1:] += share
        infinity_mass += max(float(self.means[-1] - self.edges[-1] * self.masses[-1]), 0.0)
        kept = masses > 0
        return RatioDistribution(self.edges[kept], masses[kept], infinity_mass, *errors)


def gaussian(noise: float, side: OrderSide) -> RatioDistribution:
    """Likelihood ratio of one Gaussian step of deviation ``noise`` that the client moves by 1.

    X = e^{z/σ − 1/(2σ²)}, z standard normal without the client and shifted by 1/σ with it.

    Raises:
        NumericalError: so little noise that ratios leave float64.
    """
    shift = 1.0 / noise
    _require_noise(noise, (_REACH + shift) * shift - shift**2 / 2)
    z = np.linspace(-_REACH, _REACH + shift, CELLS - 1)
    edges = np.concatenate([[0.0], np.exp(z * shift - shift**2 / 2)])
    return AtomCells(edges, _normal_cells(z), _normal_cells(z - shift)).settled(side, 0.0)


def one_client(noise: float, others: Others, side: OrderSide) -> RatioDistribution:
    """Likelihood ratio of one step in which one of the clients that check in sends its message.

    A client that shares the step with one other client sends half of the time, and the other
    client's update is opposite to its own: the ratio is ½ + X/2, with X that of a move by 2. A
    client alone has the ratio of a move by 1. ``Others.WORST`` takes at each end of a cell the
    ratio with the larger E[(k − X)₊], which is a mean-preserving spread of both ratios.

    Raises:
        NumericalError: so little noise that ratios leave float64.
    """
    if others is Others.NONE:
        return gaussian(noise, side)
    if others is Others.OPPOSED:
        return gaussian(noise / 2.0, side).mixed(0.5, 1.0)
    # Ends of cells: those of both ratios, so that each is followed closely.
    shift = 1.0 / noise
    _require_noise(noise, 2.0 * (_REACH + 2.0 * shift) * shift)
    z = np.linspace(-_REACH, _REACH + 2.0 * shift, CELLS // 2 - 1)
    alone = np.exp(z * shift - shift**2 / 2)
    shared = 0.5 + 0.5 * np.exp(2.0 * z * shift - 2.0 * shift**2)
    ends = np.unique(np.concatenate([alone, shared]))
    apart = np.append(
        True, np.floor(np.log(ends[1:]) / _APART) > np.floor(np.log(ends[:-1]) / _APART)
    )
    edges = np.append(0.0, ends[apart])
    # Masses below and above each end without and with the client, under either ratio.
    with np.errstate(divide="ignore"):
        first = (np.log(edges) + shift**2 / 2) / shift
        inner = np.log(np.maximum(2.0 * edges - 1.0, 0.0))
        second = (inner + 2.0 * shift**2) / (2.0 * shift)
    tails = [(ndtr(sign * first), ndtr(sign * (first - shift))) for sign in (1.0, -1.0)]
    half = [(ndtr(sign * second), ndtr(sign * (second - 2.0 * shift))) for sign in (1.0, -1.0)]
    half = [(without, 0.5 * (without + present)) for without, present in half]
    # E[(k − X)₊] below the mean 1 and E[(X − k)₊] above it, where each has its digits.
    low = edges < 1.0
    prices = [
        np.where(low, edges * below[0] - below[1], above[1] - edges * above[0])
        for below, above in (tails, half)
    ]
    is_second = prices[1] > prices[0]
    below, above = (
        [np.where(is_second, other, one) for one, other in zip(*both, strict=True)]
        for both in zip(tails, half, strict=True)
    )
    masses, means = (
        np.maximum(np.where(low, np.diff(under, append=1.0), -np.diff(over, append=0.0)), 0.0)
        for under, over in zip(below, above, strict=True)
    )
    return AtomCells(edges, masses, means).settled(side, 0.0)


def opposed(noise: float, probability: float, side: OrderSide) -> RatioDistribution:
    """Likelihood ratio of one step between two records that move it by +1 and by −1.

    In both worlds the client takes the step with the given probability. The ratio rises with what
    the step shows, so cells of what is shown are cells of the ratio.

    Raises:
        NumericalError: so little noise that ratios leave float64.
    """
    shift = 1.0 / noise
    _require_noise(noise, 2 * (_REACH + shift) * shift)
    z = np.linspace(-_REACH - shift, _REACH + shift, CELLS - 1)
    here, there = (
        (1 - probability) + probability * np.exp(sign * z * shift - shift**2 / 2)
        for sign in (1, -1)
    )
    masses, means = (
        (1 - probability) * _normal_cells(z) + probability * _normal_cells(z + sign * shift)
        for sign in (1, -1)
    )
    return AtomCells(np.append(0.0, here / there), masses, means).settled(side, 0.0)


def message(epsilon0: float, total_variation: float, probability: float) -> RatioDistribution:
    """Likelihood ratio of one message that is sent with a probability (see the header of `cost`).

    Raises:
        NumericalError: ratios leave float64.
    """
    if not epsilon0 <= _LARGEST / 1.5:
        raise NumericalError(f"epsilon0 = {epsilon0:g}: ratios are too large for float64")
    high = probability * total_variation / math.expm1(epsilon0)
    low = high * math.exp(epsilon0)
    values = np.array([math.exp(-epsilon0), 1.0, math.exp(epsilon0)])
    masses = np.array([low, max(1.0 - low - high, 0.0), high])
    return RatioDistribution(values, masses, 0.0, _ROUNDING, _ROUNDING)


def _require_noise(noise: float, log_ratio: float) -> None:
    if not log_ratio <= _LARGEST / 1.5:
        raise NumericalError(f"noise multiplier {noise:g}: ratios are too large for float64")


def _normal_cells(edges: Floats) -> Floats:
    """Normal probabilities between neighbouring edges and beyond the outer edges."""
    low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def added(
    one: RatioDistribution, other: RatioDistribution, side: OrderSide, cut: float
) -> RatioDistribution:
    """Sum of two independent ratios; each tail of probability below ``cut`` gets one cell."""
    value_error = max(one.value_error, other.value_error)
    return _combined(one, other, np.add, side, cut, value_error=value_error)


def multiplied(
    one: RatioDistribution, other: RatioDistribution, side: OrderSide, cut: float
) -> RatioDistribution:
    """Product of two independent ratios of mean 1: the composition of two windows."""
    value_error = one.value_error + other.value_error
    return _combined(one, other, np.multiply, side, cut, value_error=value_error)


def _combined(
    one: RatioDistribution,
    other: RatioDistribution,
    operation: np.ufunc,
    side: OrderSide,
    cut: float,
    *,
    value_error: float,
) -> RatioDistribution:
    with np.errstate(over="ignore"):
        table = operation.outer(one.values, other.values)
    masses = np.multiply.outer(one.masses, other.masses).ravel()
    if not table.max() < math.exp(_LARGEST):
        raise NumericalError("a likelihood ratio is too large for float64")
    scale = _Scale.fitting(table, operation.outer(_quantiles(one), _quantiles(other)))
    index, values = scale.bins_of_table(table, mirrored=one is other).ravel(), table.ravel()
    in_bins = np.bincount(index, masses, _BINS + 1).astype(np.float64)
    mean_in_bins = np.bincount(index, masses * values, _BINS + 1).astype(np.float64)
    cells = _cells(scale.edges(), in_bins, mean_in_bins, cut)
    mass_error = one.mass_error + other.mass_error
    return cells.settled(side, one.infinity_mass + other.infinity_mass, value_error, mass_error)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Fine bins, even in ln v near the bulk and wider away from it; bin 0 is v = 0."""

    centre: float
    width: float
    low: float
    bins_per_unit: float

    @classmethod
    def fitting(cls, values: Floats, sample: Floats) -> _Scale:
        """Scale for all values, with its fine bins where a sample of equal weights is dense."""
        bulk = np.log(sample[sample > 0]) if (sample > 0).any() else np.zeros(1)
        quarter, centre, three_quarters = (float(y) for y in np.quantile(bulk, (0.25, 0.5, 0.75)))
        width = max((three_quarters - quarter) / 4, 1e-12)
        least = float(values.min(initial=math.inf, where=values > 0))
        low = math.asinh((math.log(least) - centre) / width)
        high = math.asinh((math.log(values.max()) - centre) / width)
        return cls(centre, width, low, _BINS / max(high - low, 1e-6) * (1 - 1e-9))

    def bins_of(self, values: Floats) -> NDArray[np.int64]:
        """Bin of each value."""
        with np.errstate(divide="ignore"):
            place = np.arcsinh((np.log(values) - self.centre) / self.width)
        numbers = np.clip((place - self.low) * self.bins_per_unit, 0, _BINS - 1)
        return np.where(values > 0, numbers.astype(np.int64) + 1, 0)

    def bins_of_table(self, values: Floats, *, mirrored: bool) -> NDArray[np.int64]:
        """Bins of a table of values, computed few rows at a time within a processor's cache.

        Logarithms take most of the time of a verification, so only one half of a ``mirrored``
        table, a distribution with itself, is computed.
        """
        bins = np.empty(values.shape, dtype=np.int64)
        for first in range(0, len(values), _ROWS):
            rows, past = slice(first, first + _ROWS), first + _ROWS
            start = first if mirrored else 0
            bins[rows, start:] = self.bins_of(values[rows, start:])
            if mirrored:
                bins[past:, rows] = bins[rows, past:].T
        return bins

    def edges(self) -> Floats:
        """Logarithms of the ends of bins 1, 2, …, shape ``(bins + 1,)``."""
        places = self.low + np.arange(_BINS + 1) / self.bins_per_unit
        return self.centre + self.width * np.sinh(places)


def _quantiles(distribution: RatioDistribution) -> Floats:
    """Sixty-four values of about equal probability, which only place the bins."""
    cumulated = np.cumsum(distribution.masses)
    wanted = (np.arange(64) + 0.5) / 64 * cumulated[-1]
    return distribution.values[
        np.minimum(np.searchsorted(cumulated, wanted), len(distribution.values) - 1)
    ]


def _cells(log_edges: Floats, masses: Floats, means: Floats, cut: float) -> AtomCells:
    """Bins joined to at most `CELLS` cells, narrow where there is mass with or without the client.

    A third of the cells each goes by the mass without the client, by the mass with it, and evenly
    by ln v; the cube root of mass makes Σ mass·width² least. Tails below ``cut`` get one cell.
    """
    width = np.diff(log_edges)
    without, present = masses[1:] / masses.sum(), means[1:] / means.sum()
    both = np.maximum(without, present)
    inside = (np.cumsum(both) > cut) & (np.cumsum(both[::-1])[::-1] > cut)
    wishes = (np.cbrt(without * width**2), np.cbrt(present * width**2), width)
    places = np.flatnonzero(inside)
    first, last = int(places[0]), int(places[-1]) + 1
    filled = sum(_filled(wish * inside) for wish in wishes) / len(wishes)
    inner = np.searchsorted(filled, np.arange(1, CELLS - 2) / (CELLS - 2))
    bounds = np.unique(np.concatenate([[first, last], np.clip(inner, first, last)]))
    ends = np.exp(log_edges[bounds])
    apart = np.append(True, np.diff(ends) > 0)  # bins can be finer than float64
    starts = np.append(0, bounds[apart] + 1)
    return AtomCells(
        np.append(0.0, ends[apart]),
        np.add.reduceat(np.append(masses, 0.0), starts),
        np.add.reduceat(np.append(means, 0.0), starts),
    )


def _filled(wish: Floats) -> Floats:
    """Cumulated share of the weights before the end of each bin, from 0 to 1."""
    total = np.append(0.0, np.cumsum(wish))
    return total / total[-1] if total[-1] > 0 else np.linspace(0.0, 1.0, len(total))


_NEGLIGIBLE = 1e-8  # part of δ that all cut tails together may take


@dataclass(frozen=True, slots=True)
class Window:
    """Several equal windows.

    Attributes:
        noise: standard deviation of a step's noise, in units of the client's move.
        steps: number of steps t.
        probability: probability p that the client takes part.
        count: number of windows.
        opposed: whether the record is compared with one that moves the opposite way, instead of the
            null record; for windows of one step only.
        others: other clients of each step, where one client a step sends.
    """

    noise: float
    steps: int = 1
    probability: float = 1.0
    count: int = 1
    opposed: bool = False
    others: Others = Others.NONE


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """Several equal messages that are observed with their senders.

    Attributes:
        epsilon0: ε₀ of one message.
        total_variation: total variation τ of one message, at most tanh(ε₀/2).
        probability: probability that a message is sent.
        count: number of messages.
    """

    epsilon0: float
    total_variation: float
    probability: float = 1.0
    count: int = 1


Run = tuple[Window | SeenMessage, ...]


def run_distribution(run: Run, side: OrderSide, delta: float) -> RatioDistribution:
    """Likelihood ratio after all windows of a run of at least one window.

    Raises:
        NumericalError: ratios leave float64, or so many steps that rounding is not negligible.
    """
    cut = _NEGLIGIBLE * delta / (64.0 * sum(window.count for window in run))
    parts = [
        _power(_window(window, side, cut), window.count, multiplied, side, cut) for window in run
    ]
    distribution = parts[0]
    for part in parts[1:]:
        distribution = multiplied(distribution, part, side, cut)
    if distribution.mass_error > 0.01:
        raise NumericalError("too many steps: rounding errors exceed the cost of a step")
    return distribution


def _window(window: Window | SeenMessage, side: OrderSide, cut: float) -> RatioDistribution:
    if isinstance(window, SeenMessage):
        return message(window.epsilon0, window.total_variation, window.probability)
    if window.opposed:
        return opposed(window.noise, window.probability, side)
    one = one_client(window.noise, window.others, side)
    total = _power(one, window.steps, added, side, cut)
    return total.mixed(window.probability, float(window.steps))


def _power(
    distribution: RatioDistribution,
    times: int,
    joined: Callable[[RatioDistribution, RatioDistribution, OrderSide, float], RatioDistribution],
    side: OrderSide,
    cut: float,
) -> RatioDistribution:
    """Combination of ``times`` independent copies of a distribution, by repeated squaring."""
    done: RatioDistribution | None = None
    while True:
        if times & 1:
            done = distribution if done is None else joined(done, distribution, side, cut)
        times >>= 1
        if times == 0:
            assert done is not None
            return done
        distribution = joined(distribution, distribution, side, cut)


def remove_delta(distribution: RatioDistribution, epsilon: float) -> float:
    """E[(L − e^ε)₊] plus the infinity mass."""
    return (
        float(distribution.masses @ np.maximum(distribution.values - math.exp(epsilon), 0.0))
        + distribution.infinity_mass
    )


def add_delta(distribution: RatioDistribution, epsilon: float) -> float:
    """E[(1 − e^ε·L)₊]."""
    below = int(np.searchsorted(distribution.values, math.exp(-epsilon)))
    return float(
        distribution.masses[:below] @ (1.0 - math.exp(epsilon) * distribution.values[:below])
    )


def epsilon_of_windows(distribution: RatioDistribution, side: OrderSide, delta: float) -> float:
    """ε at δ of the worse direction, on its side of the truth, with rounding charged."""
    upper = side is OrderSide.UPPER
    goal = delta / (1 + distribution.mass_error) if upper else delta * (1 + distribution.mass_error)
    crossings = [
        _crossing(partial(curve, distribution), goal) for curve in (remove_delta, add_delta)
    ]
    if upper:
        return max(high for _, high in crossings) + distribution.value_error
    return max(max(low for low, _ in crossings) - distribution.value_error, 0.0)


def _crossing(delta_at: Callable[[float], float], goal: float) -> tuple[float, float]:
    """Two neighbouring values of ε between which a falling curve reaches δ."""
    if delta_at(0.0) <= goal:
        return 0.0, 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > goal:
        low, high = high, 2 * high
        if high > 600.0:
            raise NumericalError(f"no finite epsilon was found at delta = {goal:g}")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > goal else (low, middle)
    return low, high


def two_bound_epsilon(first: RatioDistribution, second: RatioDistribution, delta: float) -> float:
    """Upper bound on ε from one record over the null record to another.

    δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂).
    """
    mass_error = max(first.mass_error, second.mass_error)
    curves = partial(remove_delta, first), partial(add_delta, second)
    least = min(_two_bounds(*curves, delta / (1 + mass_error)))
    return least + first.value_error + second.value_error


def _two_bounds(
    to_absence: Callable[[float], float], from_absence: Callable[[float], float], delta: float
) -> Iterator[float]:
    for share in np.linspace(0.02, 0.98, 25):
        first = _crossing(to_absence, float(share) * delta)[1]
        rest = (1.0 - float(share)) * delta * math.exp(-first)
        yield first + _crossing(from_absence, rest)[1]
