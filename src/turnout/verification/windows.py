"""ε of a sequence of independent windows, by distributions of the likelihood ratio L.

`run_distribution` composes windows, `epsilon_of_windows` and `two_bound_epsilon` bound ε;
`RatioDistribution` holds a distribution that is below or above that of L in convex order.

L is the probability of the adversary's view with the client, divided by its probability without the
client. All expectations here are without the client, where E L = 1. At the ratio k = e^ε, δ(ε) is
one of two convex expectations, for the two directions of the neighbouring relation:

    remove: E[(L − k)₊]        add: E[(1 − k·L)₊]

So a distribution that is larger in convex order proves an upper bound, a smaller one a lower bound,
in both directions at once. Sums of independent distributions, and products of independent
distributions that are not negative, keep the order: if all factors but one are fixed, a convex
function of the product is convex in the remaining factor. If the client takes part in a window of t
steps with probability p, in exactly one uniform step, the window has the ratio
L = 1 − p + p·(X₁ + … + X_t)/t with independent X as in `gaussian`. The ratio of several windows is
the product of their ratios.

A distribution is a list of atoms. When there are too many atoms, the values are cut into cells:

* a *lower* distribution moves a cell's mass to the cell's mean (Jensen's inequality);
* an *upper* distribution splits the mass between the cell's two ends and keeps the mean. Values
  above the last end b are replaced by b, and E[(L − b)₊] is kept as
  `RatioDistribution.infinity_mass`, the probability of outcomes that prove the client's presence.
  The replacement only raises E[(1 − k·L)₊].

The places of the cells decide how close the bounds are, never whether they hold. Both bounds are
off by the square of a cell's width. Numbers are subtracted only to split the mass of an atom into
two weights, so rounding causes only relative errors of values and masses.
The classes count these errors (`RatioDistribution.value_error`, `RatioDistribution.mass_error`),
and the bounds on ε include them.
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
"""Largest number of atoms of a distribution."""

_BINS = 1 << 14
_ROWS = 32  # of a table of values that are put into bins at once
_APART = 1e-5  # least distance of two ends of cells in ln ratio, so that masses keep their digits
_REACH = 9.5  # standard deviations of one step's noise that have cells
_ROUNDING = 8.0 * CELLS**2 * 2.0**-53
"""Upper bound on the relative rounding error of one operation.

A cell is a running sum of at most ``CELLS**2`` terms of one sign; the factor 8 covers products,
logarithms and normal tails."""

_LARGEST = 600.0  # logarithm of a ratio beyond which masses would underflow unseen
_TOO_LARGE = (
    "a likelihood ratio is too large for float64: "
    "use more noise, a smaller epsilon0, or fewer steps"
)

Floats = NDArray[np.float64]


class OrderSide(Enum):
    """Side of the true distribution, in convex order, on which an approximation lies."""

    LOWER = "lower"
    UPPER = "upper"


class Others(Enum):
    """Other clients that check in to a step, if only one of all clients sends its message."""

    NONE = "none"
    OPPOSED = "opposed"
    """One other client, whose update is opposite to the client's."""
    WORST = "worst"
    """Any number of other clients, from 0: a bound that no set of clients need attain."""


@dataclass(frozen=True, slots=True)
class RatioDistribution:
    """Distribution of a likelihood ratio, or of a sum of ratios, as a list of atoms.

    Attributes:
        values: values of the atoms, at least 0, ascending, shape ``(n,)``.
        masses: probabilities of these values if the client does not take part, shape ``(n,)``.
        infinity_mass: probability, if the client takes part, of the outcomes that are impossible
            without the client. For a sum of ratios the probability is multiplied by the sum's mean.
        value_error, mass_error: upper bounds on the relative rounding error of each value and mass.

    Raises:
        NumericalError: a value or a mass is not finite.
    """

    values: Floats
    masses: Floats
    infinity_mass: float = 0.0
    value_error: float = 0.0
    mass_error: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.values).all() and np.isfinite(self.masses).all()):
            raise NumericalError(_TOO_LARGE)

    def mixed(self, share: float, total: float) -> RatioDistribution:
        """Distribution of 1 − share + share·S/total, where S follows ``self``, of mean total."""
        values = (1.0 - share) + share * (self.values / total)
        infinity_mass = share * self.infinity_mass / total
        return RatioDistribution(
            values, self.masses, infinity_mass, self.value_error + _ROUNDING, self.mass_error
        )


@dataclass(frozen=True, slots=True)
class AtomCells:
    """Mass and first moment of the atoms in each cell; the last cell has no upper end.

    Attributes:
        edges: lower ends of the cells, ascending from 0, shape ``(n,)``.
        masses: total mass of each cell, shape ``(n,)``.
        means: Σ value·mass over the atoms of each cell, shape ``(n,)``.
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
        """Distribution with one atom in each cell (lower) or at each end of a cell (upper)."""
        errors = value_error + _ROUNDING, mass_error + _ROUNDING
        # Lower: the mass of a cell at its mean.
        if side is OrderSide.LOWER:
            kept = self.masses > 0
            return RatioDistribution(
                self.means[kept] / self.masses[kept], self.masses[kept], infinity_mass, *errors
            )
        # Upper: the mass of a cell split between its two ends, so that the mean is kept.
        below, mean = self.masses[:-1], self.means[:-1]
        width, excess = np.diff(self.edges), mean - self.edges[:-1] * below
        share = np.divide(excess, width, out=np.zeros_like(width), where=width > 0)
        share = np.clip(share, 0.0, below)
        masses = np.append(below - share, self.masses[-1])
        masses[1:] += share
        # The last cell has only a lower end: what its mean exceeds becomes infinity mass.
        infinity_mass += max(float(self.means[-1] - self.edges[-1] * self.masses[-1]), 0.0)
        kept = masses > 0
        return RatioDistribution(self.edges[kept], masses[kept], infinity_mass, *errors)


def gaussian(noise: float, side: OrderSide) -> RatioDistribution:
    """Distribution of the likelihood ratio of a Gaussian step whose mean the client shifts by 1.

    If σ = ``noise`` is the standard deviation of the noise, the ratio is X = e^{z/σ − 1/(2σ²)},
    where z is standard normal without the client and shifted by 1/σ with the client.

    Raises:
        NumericalError: the noise is so small that ratios exceed the range of float64.
    """
    shift = 1.0 / noise
    _require_noise(noise, (_REACH + shift) * shift - shift**2 / 2)
    z = np.linspace(-_REACH, _REACH + shift, CELLS - 1)
    edges = np.concatenate([[0.0], np.exp(z * shift - shift**2 / 2)])
    return AtomCells(edges, _normal_cells(z), _normal_cells(z - shift)).settled(side, 0.0)


def one_client(noise: float, others: Others, side: OrderSide) -> RatioDistribution:
    """Distribution of the likelihood ratio of a step in which only one checked-in client sends.

    If the client checks in alone, it shifts the step by 1, and the ratio is that of `gaussian`. If
    one other client with the opposite update checks in too, each of the two clients sends with
    probability ½. The ratio is then ½ + X/2, where X is the ratio of a shift by 2. For
    ``Others.WORST`` the result has at each end k of a cell the larger one of the E[(k − R)₊] of
    these two ratios R; it is a mean-preserving spread of both ratios.

    Raises:
        NumericalError: the noise is so small that ratios exceed the range of float64.
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
    """Distribution of the likelihood ratio between records that shift a step by +1 and by −1.

    With either record the client takes part in the step with the given probability. The ratio
    increases with the step's noisy sum, so each cell of the sum is a cell of the ratio.

    Raises:
        NumericalError: the noise is so small that ratios exceed the range of float64.
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
    """Distribution of the likelihood ratio of one message, which may be sent or not.

    The header of `turnout.verification.cost` derives the three ratios and their probabilities.

    Args:
        epsilon0: ε₀ of the message.
        total_variation: total variation distance between the message under one record and the
            message under the other record.
        probability: probability that the message is sent.

    Raises:
        NumericalError: ε₀ is so large that ratios exceed the range of float64.
    """
    if not epsilon0 <= _LARGEST / 1.5:
        limit = _LARGEST / 1.5
        raise NumericalError(f"epsilon0 = {epsilon0:g}: expected at most {limit:g} (float64)")
    high = probability * total_variation / math.expm1(epsilon0)
    low = high * math.exp(epsilon0)
    values = np.array([math.exp(-epsilon0), 1.0, math.exp(epsilon0)])
    masses = np.array([low, max(1.0 - low - high, 0.0), high])
    return RatioDistribution(values, masses, 0.0, _ROUNDING, _ROUNDING)


def _require_noise(noise: float, log_ratio: float) -> None:
    if not log_ratio <= _LARGEST / 1.5:
        raise NumericalError(
            f"noise multiplier = {noise:g}: expected more noise; the likelihood ratios exceed the "
            "range of float64"
        )


def _normal_cells(edges: Floats) -> Floats:
    """Standard normal probabilities between neighbouring edges and outside the outer edges."""
    low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def added(
    one: RatioDistribution, other: RatioDistribution, side: OrderSide, cut: float
) -> RatioDistribution:
    """Distribution of the sum of two independent ratios; tails of mass below ``cut`` are merged."""
    value_error = max(one.value_error, other.value_error)
    return _combined(one, other, np.add, side, cut, value_error=value_error)


def multiplied(
    one: RatioDistribution, other: RatioDistribution, side: OrderSide, cut: float
) -> RatioDistribution:
    """Distribution of the product of two independent ratios of mean 1, to compose windows."""
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
    """Distribution of ``operation`` on two independent ratios, cut into cells on ``side``."""
    # All pairs of atoms.
    with np.errstate(over="ignore"):
        table = operation.outer(one.values, other.values)
    masses = np.multiply.outer(one.masses, other.masses).ravel()
    if not table.max() < math.exp(_LARGEST):
        raise NumericalError(_TOO_LARGE)
    # Mass and first moment of each fine bin.
    scale = _Scale.fitting(table, operation.outer(_quantiles(one), _quantiles(other)))
    index, values = scale.bins_of_table(table, mirrored=one is other).ravel(), table.ravel()
    in_bins = np.bincount(index, masses, _BINS + 1).astype(np.float64)
    mean_in_bins = np.bincount(index, masses * values, _BINS + 1).astype(np.float64)
    # The bins are joined to few cells, and the errors add up.
    cells = _cells(scale.edges(), in_bins, mean_in_bins, cut)
    mass_error = one.mass_error + other.mass_error
    return cells.settled(side, one.infinity_mass + other.infinity_mass, value_error, mass_error)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Fine bins of values v, narrow in ln v near the bulk and wider elsewhere; bin 0 is v = 0."""

    centre: float
    width: float
    low: float
    bins_per_unit: float

    @classmethod
    def fitting(cls, values: Floats, sample: Floats) -> _Scale:
        """Scale that covers all values, with narrow bins where the sample's values are dense."""
        bulk = np.log(sample[sample > 0]) if (sample > 0).any() else np.zeros(1)
        quarter, centre, three_quarters = (float(y) for y in np.quantile(bulk, (0.25, 0.5, 0.75)))
        width = max((three_quarters - quarter) / 4, 1e-12)
        least = float(values.min(initial=math.inf, where=values > 0))
        low = math.asinh((math.log(least) - centre) / width)
        high = math.asinh((math.log(values.max()) - centre) / width)
        return cls(centre, width, low, _BINS / max(high - low, 1e-6) * (1 - 1e-9))

    def bins_of(self, values: Floats) -> NDArray[np.int64]:
        """Index of the bin that contains each value, shape as ``values``."""
        with np.errstate(divide="ignore"):
            place = np.arcsinh((np.log(values) - self.centre) / self.width)
        numbers = np.clip((place - self.low) * self.bins_per_unit, 0, _BINS - 1)
        return np.where(values > 0, numbers.astype(np.int64) + 1, 0)

    def bins_of_table(self, values: Floats, *, mirrored: bool) -> NDArray[np.int64]:
        """Bins of a table of values, shape as ``values``.

        Few rows are computed at a time, so that they fit a processor's cache. A ``mirrored`` table
        is symmetric, and only one half is computed: logarithms take most of a verification's time.
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
    """Sixty-four quantiles of a distribution, which decide only the places of bins."""
    cumulated = np.cumsum(distribution.masses)
    wanted = (np.arange(64) + 0.5) / 64 * cumulated[-1]
    return distribution.values[
        np.minimum(np.searchsorted(cumulated, wanted), len(distribution.values) - 1)
    ]


def _cells(log_edges: Floats, masses: Floats, means: Floats, cut: float) -> AtomCells:
    """At most `CELLS` cells, into which the fine bins are joined; narrow where the mass is large.

    One third of the cells follow the mass without the client, one third follow the mass with the
    client, and one third are evenly spaced in ln v. A density of cells proportional to the cube
    root of the mass density minimizes Σ mass·width². A tail of probability below ``cut`` gets one
    cell.
    """
    # The bins outside of the two tails.
    width = np.diff(log_edges)
    without, present = masses[1:] / masses.sum(), means[1:] / means.sum()
    both = np.maximum(without, present)
    inside = (np.cumsum(both) > cut) & (np.cumsum(both[::-1])[::-1] > cut)
    # The ends of the cells, by the three densities.
    wishes = (np.cbrt(without * width**2), np.cbrt(present * width**2), width)
    places = np.flatnonzero(inside)
    first, last = int(places[0]), int(places[-1]) + 1
    filled = sum(_filled(wish * inside) for wish in wishes) / len(wishes)
    inner = np.searchsorted(filled, np.arange(1, CELLS - 2) / (CELLS - 2))
    bounds = np.unique(np.concatenate([[first, last], np.clip(inner, first, last)]))
    # The sums in each cell; ends that float64 cannot tell apart are merged.
    ends = np.exp(log_edges[bounds])
    apart = np.append(True, np.diff(ends) > 0)
    starts = np.append(0, bounds[apart] + 1)
    return AtomCells(
        np.append(0.0, ends[apart]),
        np.add.reduceat(np.append(masses, 0.0), starts),
        np.add.reduceat(np.append(means, 0.0), starts),
    )


def _filled(wish: Floats) -> Floats:
    """Fraction of the total weight up to each end of a bin; evenly spaced if all weights are 0."""
    total = np.append(0.0, np.cumsum(wish))
    return total / total[-1] if total[-1] > 0 else np.linspace(0.0, 1.0, len(total))


_NEGLIGIBLE = 1e-8  # largest share of δ that all cut tails have together


@dataclass(frozen=True, slots=True)
class Window:
    """Several equal windows, in each of which the client takes part in at most one step.

    Attributes:
        noise: standard deviation of a step's noise, in units of the shift that the client causes.
        steps: number t of steps in a window.
        probability: probability p that the client takes part in a window.
        count: number of windows.
        opposed: whether the client's record is compared with the opposite record instead of the
            null record; allowed only for windows of one step.
        others: other clients that check in to each step, if only one client a step sends its
            message.
    """

    noise: float
    steps: int = 1
    probability: float = 1.0
    count: int = 1
    opposed: bool = False
    others: Others = Others.NONE


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """Several messages with the same parameters, each of them observed with its sender.

    Attributes:
        epsilon0: ε₀ of one message.
        total_variation: largest total variation distance τ between the distributions of one message
            under two records, at most tanh(ε₀/2).
        probability: probability that a message is sent.
        count: number of messages.
    """

    epsilon0: float
    total_variation: float
    probability: float = 1.0
    count: int = 1


Run = tuple[Window | SeenMessage, ...]


def run_distribution(run: Run, side: OrderSide, delta: float) -> RatioDistribution:
    """Distribution of the likelihood ratio after all windows of a run of at least one window.

    Args:
        run: windows or messages that the adversary observes.
        side: side of the true distribution, in convex order, on which the result lies.
        delta: δ at which ε is wanted; tails far below it are merged.

    Raises:
        NumericalError: ratios exceed the range of float64, or rounding errors are above 1 %.
    """
    cut = _NEGLIGIBLE * delta / (64.0 * sum(window.count for window in run))
    parts = [
        _power(_window(window, side, cut), window.count, multiplied, side, cut) for window in run
    ]
    distribution = parts[0]
    for part in parts[1:]:
        distribution = multiplied(distribution, part, side, cut)
    if distribution.mass_error > 0.01:
        raise NumericalError(
            f"the rounding errors are up to {distribution.mass_error:.2g} of delta, above 0.01: "
            "use fewer steps"
        )
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
    """Distribution of ``times`` independent copies, combined by ``joined`` (repeated squaring)."""
    # Each pass doubles the number of copies; the binary digits of ``times`` say which to join.
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
    """δ of removing the client at ε: E[(L − e^ε)₊] plus the infinity mass."""
    return (
        float(distribution.masses @ np.maximum(distribution.values - math.exp(epsilon), 0.0))
        + distribution.infinity_mass
    )


def add_delta(distribution: RatioDistribution, epsilon: float) -> float:
    """δ of adding the client at ε: E[(1 − e^ε·L)₊]."""
    below = int(np.searchsorted(distribution.values, math.exp(-epsilon)))
    return float(
        distribution.masses[:below] @ (1.0 - math.exp(epsilon) * distribution.values[:below])
    )


def epsilon_of_windows(distribution: RatioDistribution, side: OrderSide, delta: float) -> float:
    """Bound on ε at δ, the larger of both directions, with rounding errors on the safe side.

    The bound is never below the true ε for an upper ``distribution`` and ``side``, and never above
    the true ε for a lower one.

    Raises:
        NumericalError: no finite ε was found.
    """
    upper = side is OrderSide.UPPER
    goal = delta / (1 + distribution.mass_error) if upper else delta * (1 + distribution.mass_error)
    crossings = [
        _crossing(partial(curve, distribution), goal) for curve in (remove_delta, add_delta)
    ]
    if upper:
        return max(high for _, high in crossings) + distribution.value_error
    return max(max(low for low, _ in crossings) - distribution.value_error, 0.0)


def _crossing(delta_at: Callable[[float], float], goal: float) -> tuple[float, float]:
    """Lower and upper value of ε between which the falling curve ``delta_at`` reaches ``goal``."""
    if delta_at(0.0) <= goal:
        return 0.0, 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > goal:
        low, high = high, 2 * high
        if high > 600.0:
            raise NumericalError(f"delta = {goal:g}: no epsilon up to 600 reaches this delta")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > goal else (low, middle)
    return low, high


def two_bound_epsilon(first: RatioDistribution, second: RatioDistribution, delta: float) -> float:
    """Upper bound on ε between two records, from the ε between each record and the null record.

    The bound follows from δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂).

    Raises:
        NumericalError: no finite ε was found.
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
