"""One step under replace-one: the distribution of Y = X − K·X' that is largest in convex order.

`AntitheticStep` and `AnyTwoStep` are the two kinds of step; `OneStepCurve` is the curve in closed
form of a window of one step and of Poisson steps. `antithetic` computes the coupling of X and X'. A
`SumFrame` is the tilt and the range on which the distribution of a sum of steps is needed;
`hockey_stick_frame` and `payoff_frame` choose a frame from an `Overview` and a `CoarseSum`.
`replace_one_grids` and `replace_one_expectations` bound sums of steps.

Notation (docs/design/replacement.md): Q is the output of a step without the client, P and P' the
output with the client's record z or z'; X = dP/dQ and X' = dP'/dQ under Q, Y = X − K·X', K = e^ε,
p₀ the probability that the client takes part in the window. For one window of t steps

    δ(K) = (p₀/t)·E_Q[(ΣY_i − c₀)₊],    c₀ = t (K − 1)(1 − p₀)/p₀,

so for a *fixed* K δ depends on a step only through the distribution of the number Y. A distribution
that is larger in convex order gives an upper bound, even if steps depend on earlier outputs. Each
distribution is given by its hockey stick π(c) = E[(Y − c)₊] = sup over events E of
P(E) − K·P'(E) − c·Q(E).

* `AntitheticStep`: P against Q and P' against Q have the trade-off of a dominating pair. Y is
  largest in convex order if X is largest where X' is smallest.
* `AnyTwoStep`: any two of P, P' and Q have the trade-off of one pair, so P and P' are no further
  apart than P and Q, or P' and Q. The bound on π(c) is the maximum over Q, for each c separately.

**Frames.** A frame is an estimate, chosen from a distribution on a few hundred points;
`replace_one_expectations.excess` bounds the mass outside the frame afterwards. Notation: κ(θ) = ln
E[e^{θY}], Σ a sum of n steps, g the payoff, c₀ the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    DiscretePair,
    GaussianPair,
    LaplacePair,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.accounting.participation.antithetic import (
    antithetic_event,
    antithetic_rounding,
    antithetic_share,
    antithetic_thresholds,
    antithetic_upper,
)
from turnout.core.arrays import FloatArray
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError

_SOLVED_THRESHOLDS = 1 << 15  # thresholds found by bisection; others are interpolated between them
_LARGEST_LOG = 690.0  # logarithm of the largest ratio that a support may have
_SOLVED = GaussianPair | LaplacePair | DiscretePair  # pairs whose thresholds need no bisection


@dataclass(frozen=True)
class AntitheticStep:
    """Step with the worst coupling of two ratios: X is largest where X' is smallest.

    Source: of all couplings of X and −K·X', the comonotone coupling makes the sum largest in convex
    order (Dhaene et al. 2002), and the sum grows in convex order with the distribution of either
    term. Symmetric and log-concave noise (Gaussian, Laplace) attains the coupling: z and z' shift
    the output by the full sensitivity in opposite directions.

    Attributes:
        pair: the dominating pair of P against Q and of P' against Q.
        k: K = e^ε ≥ 1.
    """

    pair: Pair
    k: float

    @property
    def mean(self) -> float:
        """Mean E[Y] of Y = X − K·X'."""
        return 1.0 - self.k

    @property
    def _ratios(self) -> tuple[float, float]:
        """Smallest and largest finite likelihood ratio; (0, inf) if the ratio is unbounded."""
        return _support(self.pair)

    @property
    def bottom(self) -> float:
        """Smallest value of Y: smallest X − K · largest X'."""
        low, high = self._ratios
        return low - self.k * high

    @property
    def top(self) -> float:
        """Largest value of Y: largest X − K · smallest X'."""
        low, high = self._ratios
        return high - self.k * low

    @property
    def infinite(self) -> float:
        """Infinity mass of Y: 0, since E X = 1 for a pair; the block adds its own infinity mass."""
        return 0.0

    def upper(self, c: FloatArray) -> FloatArray:
        """Upper bound on E[(Y − c)₊], shape of ``c``; valid even if the thresholds are inexact."""
        threshold, other = self.thresholds(c)
        return antithetic_upper(self.pair, self.k, threshold, other)

    def share(self, c: FloatArray) -> FloatArray:
        """Approximate tail probability Q(Y > c), shape of ``c``."""
        return antithetic_share(self.pair, *self.thresholds(c))

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values at ``c`` and slopes of lines that lie below E[(Y − c)₊] at every c.

        Each line is P(E) − K·P'(E) − c·Q(E), with E the event whose line is largest at ``c``: X is
        above a threshold and X' below one. Rounding errors are subtracted. Both results have the
        shape of ``c``.
        """
        threshold, other = self.thresholds(c)
        present, elsewhere, share = antithetic_event(self.pair, threshold, other)
        error = antithetic_rounding(self.pair, self.k, threshold, other)
        values = present - self.k * elsewhere - c * share - error
        # Where an interpolated threshold misses an atom: the better of the lines 0 and E[Y] − c.
        missed, least = ~np.isfinite(values), self.mean - c
        values = np.where(missed, np.maximum(least, 0.0), values)
        return values, np.where(missed, np.where(least > 0, -1.0, 0.0), -share)

    def thresholds(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Thresholds of X and of X' at each c, shape of ``c``; for many c, interpolated."""
        if c.size <= _SOLVED_THRESHOLDS or isinstance(self.pair, _SOLVED):
            return antithetic_thresholds(self.pair, self.k, c)
        nodes = c[np.linspace(0, c.size - 1, _SOLVED_THRESHOLDS).astype(np.int64)]
        gain = antithetic_thresholds(self.pair, self.k, nodes)[0] - np.maximum(nodes, 0.0)
        gain = np.interp(c, nodes, gain)
        return np.maximum(c, 0.0) + gain, (np.maximum(-c, 0.0) + gain) / self.k


@dataclass(frozen=True)
class AnyTwoStep:
    """Step in which any two of P, P' and Q have the trade-off of one symmetric pair.

    The reference Q with the largest π(c) is P' for c ≥ 0 and P for c < 0. So the upper bound on
    π(c) is H_{K+c} for c ≥ 0 and (1 − c)·H_{K/(1−c)} for c < 0, with H the hockey stick of the
    pair. No randomizer has both references, so no distribution attains the bound at all c.

    Attributes:
        pair: the dominating pair; if its two directions differ, the larger divergence is used.
        k: K = e^ε ≥ 1.
        infinity_mass: mass that P has where Q has none.
    """

    pair: Pair
    k: float
    infinity_mass: float = 0.0

    @property
    def mean(self) -> float:
        """Mean E[Y] of Y = X − K·X'."""
        return 1.0 - self.k

    @property
    def _ratios(self) -> tuple[float, float]:
        low, high = _support(self.pair)
        low, high = low * (1.0 - self.infinity_mass), high * (1.0 - self.infinity_mass)
        return min(low, 1.0 / high), max(high, 1.0 / low if low > 0 else np.inf)

    @property
    def bottom(self) -> float:
        """Smallest value of Y: 1 − K · largest ratio."""
        return 1.0 - self.k * self._ratios[1]

    @property
    def top(self) -> float:
        """Largest value of Y: largest ratio − K."""
        return self._ratios[1] - self.k

    @property
    def infinite(self) -> float:
        """Infinity mass of the step: the larger of P(X = ∞) and Q(X = 0)."""
        return max(self.infinity_mass, float(self.pair.q_below(np.array(0.0))))

    def upper(self, c: FloatArray) -> FloatArray:
        """Upper bound on E[(Y − c)₊] over all references, shape of ``c``; rounded up."""
        scale = np.maximum(1.0 - c, 1.0)
        return scale * self._hockey_stick(self.k / scale + np.maximum(c, 0.0))

    def share(self, c: FloatArray) -> FloatArray:
        """−d/dc of the bound on E[(Y − c)₊]: Q(X > K + c) for c ≥ 0, else Q(X' < (1 − c)/K).

        The result has the shape of ``c``.
        """
        above = self.pair.q_above(self.k + np.maximum(c, 0.0))
        return np.where(c >= 0, above, self.pair.q_below((1.0 - np.minimum(c, 0.0)) / self.k))

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values and slopes of lines below `upper` at each c, used only to choose grids.

        The lines are no lower bounds on the hockey stick of Y. Both results have the shape of
        ``c``.
        """
        return self.upper(c), -self.share(c)

    def _hockey_stick(self, k: FloatArray) -> FloatArray:
        kept = 1.0 - self.infinity_mass
        above, below = k / kept, 1.0 / (k * kept)
        remove = self.infinity_mass + kept * (
            hockey_stick(self.pair, above) + hockey_stick_rounding(self.pair, above)
        )
        add = (
            reverse_hockey_stick(self.pair, below) + reverse_hockey_stick_rounding(self.pair, below)
        ) / below
        return (1.0 + 16 * UNIT_ROUNDOFF) * np.maximum(remove, add)


class Step(Protocol):
    """Distribution of Y, given by bounds on its hockey stick.

    ``bottom`` and ``top`` enclose the values of Y; the other members are those of `AntitheticStep`.
    """

    @property
    def mean(self) -> float: ...  # noqa: D102
    @property
    def bottom(self) -> float: ...  # noqa: D102
    @property
    def top(self) -> float: ...  # noqa: D102
    @property
    def infinite(self) -> float: ...  # noqa: D102
    def upper(self, c: FloatArray) -> FloatArray: ...  # noqa: D102
    def share(self, c: FloatArray) -> FloatArray: ...  # noqa: D102
    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]: ...  # noqa: D102


@lru_cache(maxsize=64)
def _support(pair: Pair) -> tuple[float, float]:
    """Smallest and largest finite ratio, rounded outward to 13 digits; (0, inf) if unbounded."""
    if isinstance(pair, GaussianPair):
        return 0.0, np.inf

    def edge(inside: bool) -> float:
        def beyond(log_ratio: float) -> bool:
            ratio = np.array(np.exp(log_ratio))
            return float(pair.q_above(ratio)) == 0 if inside else float(pair.q_below(ratio)) > 0

        ends = bisected(beyond, -_LARGEST_LOG, _LARGEST_LOG, halvings=64)
        return ends.holding if inside else ends.failing

    least, largest = edge(False), edge(True)
    low = 0.0 if least <= -_LARGEST_LOG + 1 else float(np.exp(least)) * (1.0 - 1e-13)
    high = np.inf if largest >= _LARGEST_LOG - 1 else float(np.exp(largest)) * (1.0 + 1e-13)
    return low, high


@dataclass(frozen=True, slots=True)
class OneStepCurve:
    """Curve of (1 − p)Q + pP against (1 − p)Q + pP', with the worst coupling of P and P'.

    δ(K) = pℓ + p(1 − ℓ)·E[(Y − c₀)₊], c₀ = (K − 1)(1 − p)/(p(1 − ℓ)), Y as in
    `AntitheticStep`.

    Attributes:
        pair: the dominating pair of P against Q and of P' against Q.
        probability: p > 0, the probability that the client takes part.
        infinity_mass: ℓ, the mass that P has where Q has none.
        side: side to which rounding errors move the bound; the curve is exact up to rounding.
    """

    pair: Pair
    probability: float
    infinity_mass: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """Bound on δ at each K ≥ 1 on the side `side`, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        offset = self._offset(k)
        threshold, other = antithetic_thresholds(self.pair, k, offset)
        if self.side is Side.LOWER:
            return self._with_infinity_mass(self._line(k, threshold, other)[0])
        return self._with_infinity_mass(antithetic_upper(self.pair, k, threshold, other))

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope of the line K ↦ P(E) − K·P'(E) of the event E that is best at each K ≥ 1.

        An event is best at K if its line is the largest there. The result has the shape of ``k``.
        The whole line lies below the curve.
        """
        k = np.asarray(k, dtype=float)
        value, slope = self._line(k, *antithetic_thresholds(self.pair, k, self._offset(k)))
        return np.where(value > 0, slope, 0.0)

    def _line(
        self, k: FloatArray, threshold: FloatArray, other: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Lower bound on P(E) − K·P'(E) − c₀·Q(E), and the slope in K of δ for a fixed event E."""
        present, elsewhere, share = antithetic_event(self.pair, threshold, other)
        value = present - k * elsewhere - self._offset(k) * share
        value -= antithetic_rounding(self.pair, k, threshold, other)
        kept = self.probability * (1.0 - self.infinity_mass)
        return value, -kept * elsewhere - (1.0 - self.probability) * share

    def _with_infinity_mass(self, value: FloatArray) -> FloatArray:
        kept = np.maximum((1.0 - self.infinity_mass) * value, 0.0)
        return np.minimum(self.probability * (self.infinity_mass + kept), 1.0)

    def _offset(self, k: FloatArray) -> FloatArray:
        """Threshold c₀ of Y, shape of ``k``."""
        return (
            (k - 1.0) * (1.0 - self.probability) / (self.probability * (1.0 - self.infinity_mass))
        )


_POINTS = 300
_LOG_NEGLIGIBLE = 37.0  # −ln of the tilted mass that may lie outside the window
_LOG_FAR = 45.0  # −ln of the weight of the payoff beyond which the window always ends
_LOST_BELOW = 1e-7  # part of δ that is due to values of one Y below its range
_LOG_TILT_LOSS = 12.0  # ln of the factor by which a smaller tilt may raise round-off
_LOG_PAYOFF_LOSS = 10.0  # the same for a payoff that falls slowly
_MOST_TILT = 10.0  # largest tilt times the distance of the cap, unless the threshold needs more
_HEAVY = 0.2  # range of one Y, as a part of the window, from which a tail is heavy


@dataclass(frozen=True, slots=True)
class SumFrame:
    """Tilt and range with which the distribution of a sum of i.i.d. Y is computed.

    Attributes:
        tilt: θ, exponent of the weight of the sum.
        centre: value of the sum that contributes the most, such as the threshold.
        resolution: tilt from which the step of the grid is chosen.
        low, high: least and largest value of one Y on the grid.
        below, above: distances from the centre to the ends of the window of the sum.
        exponent_below, exponent_above: exponents of Chernoff bounds on the mass below and above the
            window.
    """

    tilt: float
    centre: float
    resolution: float
    low: float
    high: float
    below: float
    above: float
    exponent_below: float
    exponent_above: float

    @property
    def is_heavy(self) -> bool:
        """Whether the range of one Y is a large part of the window of the sum."""
        return self.high - self.low > _HEAVY * (self.below + self.above)


def hockey_stick_frame(distribution: CoarseSum, count: int, threshold: float) -> SumFrame:
    """Frame for E[(Σ − c₀)₊]: of all tilts with little round-off, the one with the least window.

    Under the tilt of the saddle point a heavy tail has much mass at its cap, and the window must
    contain sums of several values at the cap. A smaller tilt avoids so wide a window.

    Args:
        distribution: distribution of one Y on few points.
        count: n, number of steps of the sum Σ.
        threshold: c₀, below the largest value of Σ.

    Raises:
        NumericalError: the threshold is above the largest value of Σ.
    """
    saddle = _saddle(distribution, count, threshold)
    tilts = saddle * np.geomspace(1.0, 0.03, 9)
    logs = count * distribution.log_moments(tilts) - tilts * threshold - np.log(tilts)
    frames = [
        _window(distribution, count, threshold, float(tilt), saddle)
        for tilt in tilts[logs < logs[0] + _LOG_TILT_LOSS]
    ]
    return min(frames, key=lambda frame: frame.below + frame.above)


def payoff_frame(
    distribution: CoarseSum,
    count: int,
    payoff: Callable[[FloatArray], FloatArray],
    floor: float,
    threshold: float,
) -> SumFrame:
    """Frame for E[g(Σ)] with a payoff g that is 0 or negligible below ``floor``.

    The frame has the narrowest window over all tilts θ whose bound e^{nκ(θ)}·max g(z)e^{−θz} is
    near the least bound.

    Args:
        distribution: distribution of one Y on few points.
        count: n, number of steps of the sum Σ.
        payoff: g, increasing and at least 0; keeps the shape of its argument.
        floor: value of Σ below which g is 0 or negligible.
        threshold: value of Σ near which the result is needed.
    """
    # Grids of values of the sum and of tilts.
    unit = max(threshold - floor, 1e-300)
    values = floor + unit * np.append(0.0, np.geomspace(1e-6, 1.0, 300))
    logs = np.log(np.maximum(payoff(values), 1e-300))
    tilts = np.geomspace(1e-3, 1e5, 160) / unit
    # Logarithm of the bound e^{nκ(θ)}·max g(z)e^{−θz} for each tilt.
    peaks = np.argmax(logs[None, :] - tilts[:, None] * values[None, :], axis=1)
    bounds = count * distribution.log_moments(tilts) + logs[peaks] - tilts * values[peaks]
    # The typical sum under each tilt; the tilt with the largest contribution sets the resolution.
    typical = np.array(
        [count * float(distribution.tilted(tilt) @ distribution.points) for tilt in tilts]
    )
    likely = count * distribution.log_moments(tilts) - tilts * typical
    likely += np.interp(typical, values, logs, left=-1e300)
    resolution = float(tilts[np.argmax(likely)])
    # The narrowest window among about nine tilts whose bound is near the least.
    cheap = tilts[bounds < bounds.min() + _LOG_PAYOFF_LOSS]
    frames = [
        _window(
            distribution,
            count,
            float(typical[tilts == tilt][0]),
            float(tilt),
            resolution,
            far_above=True,
        )
        for tilt in cheap[:: 1 + cheap.size // 9]
    ]
    return min(frames, key=lambda frame: frame.below + frame.above)


def _saddle(distribution: CoarseSum, count: int, threshold: float) -> float:
    """Tilt under which the threshold is a typical value of the sum.

    For thresholds below the mean or close to the mean, the tilt is the inverse of the standard
    deviation of the sum.
    """
    distance = distribution.points - threshold / count
    if distance[-1] <= 0:
        raise NumericalError("the threshold is above the largest sum of the likelihood ratios")
    width = math.sqrt(float(distribution.masses @ distance**2))

    def reaches(log_tilt: float) -> bool:
        return not float(distribution.tilted(math.exp(log_tilt)) @ distance) < 0

    low, high = math.log(1e-12 / width), math.log(700.0 / distance[-1])
    high = bisected(reaches, low, high, halvings=50).holding
    masses = distribution.tilted(math.exp(high))
    variance = float(masses @ distance**2) - float(masses @ distance) ** 2
    deviation = math.sqrt(count * max(variance, 1e-12 * width**2))
    # A larger tilt would make the cap typical, however unlikely it is.
    return max(math.exp(high), min(1.0 / deviation, _MOST_TILT / float(distance[-1])))


def _window(
    distribution: CoarseSum,
    count: int,
    centre: float,
    tilt: float,
    resolution: float,
    *,
    far_above: bool = False,
) -> SumFrame:
    """Frame for a given tilt; Chernoff bounds determine the window."""
    # Range of one Y: values below it have a negligible part of the tilted mass.
    lost = int(np.sum(count * np.cumsum(distribution.tilted(tilt)) <= _LOST_BELOW))
    left = int(np.searchsorted(distribution.points, centre / count))
    low, high = (
        float(distribution.points[max(min(lost - 1, left - 9), 0)]),
        float(distribution.points[-1]),
    )
    # Ends of the window, beyond which the tilted mass is negligible.
    s = np.geomspace(1e-3, 1e2, 40) * tilt
    logs = count * distribution.log_moments(np.concatenate([[tilt], tilt + s, tilt - s]))
    logs = logs[1:] - logs[0] + _LOG_NEGLIGIBLE
    up, down = logs[: s.size] / s - centre, logs[s.size :] / s + centre
    i, j = int(np.argmin(up)), int(np.argmin(down))
    below = max(min(float(down[j]), centre - count * low), 1e-3 / tilt)
    far = max(min(float(up[i]), count * high - centre), 1e-3 / tilt)
    above = far if far_above else min(max(_LOG_FAR / tilt, far - below), far)
    return SumFrame(tilt, centre, resolution, low, high, below, above, float(s[j]), float(s[i]))


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """Hockey stick and upper tail of Y at points on both sides of its median.

    Attributes:
        points: increasing values c, shape (n,).
        hockey_sticks: upper bounds on E[(Y − c)₊] without the infinity mass, same shape.
        shares: estimates of Q(Y > c), same shape.
        median: estimate of the median of Y.
        unit: scale of the distances between the points.
    """

    step: Step
    points: FloatArray
    hockey_sticks: FloatArray
    shares: FloatArray
    median: float
    unit: float

    @classmethod
    def of(cls, step: Step) -> Overview:
        """Hockey stick and upper tail of Y at points that are denser near the median."""
        # Start from the mean and E[(Y − E Y)₊], then move to the median and the quartiles.
        median = step.mean
        unit = max(float(step.upper(np.array([step.mean]))[0]) - step.infinite, 1e-300)
        distances = np.sinh(np.linspace(-120.0, 120.0, 601))
        for _ in range(12):  # with heavy tails most of the mass is far from the mean
            points = median + unit * distances
            shares = step.share(points)
            quarter, median, rest = (
                float(points[np.argmax(shares <= share)]) for share in (0.75, 0.5, 0.25)
            )
            if rest > quarter:
                unit = max(0.02 * (rest - quarter), 0.01 * unit)
                continue
            # Equal quartiles: the points are too far apart, or one atom has half of the mass.
            least = 0.05 * float(step.upper(np.array([median]))[0] - step.infinite)
            unit = min(unit, max(0.02 * unit, least))
        points = median + unit * distances
        hockey_sticks = step.upper(points) - step.infinite
        return cls(step, points, hockey_sticks, step.share(points), median, unit)

    @property
    def low(self) -> float:
        """Value below which Y has negligible mass."""
        beyond = np.flatnonzero(self.shares >= 1.0 - 1e-14)
        return max(float(self.points[beyond[-1] if beyond.size else 0]), self.step.bottom)

    def first_below(self, values: FloatArray, threshold: float) -> float:
        """First point at which decreasing ``values``, shape (n,), are at most a threshold."""
        small = np.flatnonzero(values <= threshold)
        return min(float(self.points[small[0] if small.size else -1]), self.step.top)

    def coarse(self, low: float, high: float) -> CoarseSum:
        """Distribution on few points of Y cut off to the range from ``low`` to ``high``."""
        ends = np.arcsinh((np.array([low, high]) - self.median) / self.unit)
        points = self.median + self.unit * np.sinh(np.linspace(ends[0], ends[1], _POINTS))
        points[0], points[-1] = low, high
        hockey_sticks = self.step.upper(points)
        slopes = np.diff(hockey_sticks - hockey_sticks[-1]) / np.diff(points)
        masses = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
        return CoarseSum(points, masses / masses.sum())


@dataclass(frozen=True, slots=True, eq=False)
class CoarseSum:
    """Distribution of Y on few points that are dense around the mean of Y.

    Attributes:
        points: increasing values of Y, shape (n,).
        masses: probabilities of the points, with sum 1, shape (n,).
    """

    points: FloatArray
    masses: FloatArray

    def log_moments(self, exponents: FloatArray) -> FloatArray:
        """Logarithm of E[e^{sY}] for each exponent s, shape of ``exponents``."""
        product = np.multiply.outer(exponents, self.points)
        top = product.max(axis=1)
        return top + np.log(np.maximum(np.exp(product - top[:, None]) @ self.masses, 1e-300))

    def tilted(self, exponent: float) -> FloatArray:
        """Masses of the distribution tilted by e^{exponent·Y}, with sum 1, shape of ``points``."""
        product = exponent * self.points
        weights = self.masses * np.exp(np.minimum(product - product[self.masses > 0].max(), 0.0))
        return weights / weights.sum()
