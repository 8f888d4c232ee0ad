"""One step under replace-one: the distribution of Y = X − K·X' that is worst in convex order.

`AntitheticStep` and `AnyTwoStep` are the two kinds of step, `OneStepCurve` is the closed form of a
window of one step and of Poisson steps. The ``antithetic_…`` functions are the coupling behind
them. A `SumFrame` is the tilt and the range in which a sum of steps must be known;
`hockey_stick_frame` and `payoff_frame` choose it by an `Overview` and a `CoarseSum`.
`replace_one_grids` and `replace_one_expectations` add up steps.

Notation (docs/design/replacement.md): Q = "client absent", P and P' = "it is in this step with
record z (z')", X = dP/dQ and X' = dP'/dQ under Q, K = e^ε. For one window of t steps

    δ(K) = (p₀/t)·E_Q[(ΣY_i − c₀)₊],    c₀ = t (K − 1)(1 − p₀)/p₀,

so for a *fixed* K one step matters only through the distribution of the number Y, and a
distribution that is larger in convex order gives an upper bound, whatever the steps depend on. All
distributions are given by their hockey stick π(c) = E[(Y − c)₊] = sup over events E of
P(E) − K·P'(E) − c·Q(E).

* Each of P and P' against Q has the trade-off of a dominating pair: X and X' are largest
  together when they move against each other (`AntitheticStep`).
* Any two of P, P', Q have it: P and P' are no further apart than either is from Q
  (`AnyTwoStep`). The price is the best over Q for each c.

**Coupling.** X and X' have the distribution of one dominating pair, X large exactly where X' is
small. For Y = X − K·X'

    E[(Y − c)₊] = min over k of E[(X − k)₊] + K·E[(κ − X')₊],    κ = (k − c)/K,

since (x − Kx' − c)₊ ≤ (x − k)₊ + K(κ − x')₊ for any k, with equality where {X > k} = {X' < κ}. The
same event E gives the line P(E) − K·P'(E) − c·Q(E), which lies below in c and in K.

**Frames.** No frame is a bound: it is chosen from a distribution on a few hundred points, and
`replace_one_expectations.excess` bounds afterwards what lies outside. Notation: κ(θ) = ln
E[e^{θY}], Σ a sum of n steps, g the payoff, c₀ the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    GaussianPair,
    LaplacePair,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.core.arrays import BoolArray, FloatArray
from turnout.core.bounds import bisected, bisected_each
from turnout.core.errors import NumericalError

_SOLVED_THRESHOLDS = 1 << 15  # thresholds found by bisection; others are interpolated between them


@dataclass(frozen=True)
class AntitheticStep:
    """Step with X large exactly where X' is small: the worst coupling of two equal ratios.

    Source: for the sum of X and −K·X' the comonotone coupling is largest in convex order
    (Dhaene et al. 2002), and grows with either distribution. Attained by noise that is symmetric
    and log-concave (Gaussian, Laplace): z and z' pull to opposite sides with all their strength.

    Attributes:
        pair: the dominating pair of P against Q and of P' against Q.
        k: K = e^ε ≥ 1.
    """

    pair: Pair
    k: float

    @property
    def mean(self) -> float:
        """E[Y]."""
        return 1.0 - self.k

    @property
    def _ratios(self) -> tuple[float, float]:
        """Least and largest finite ratio; (0, inf) where unbounded."""
        return _support(self.pair)

    @property
    def bottom(self) -> float:
        """Least X − K · largest X'."""
        low, high = self._ratios
        return low - self.k * high

    @property
    def top(self) -> float:
        """Largest X − K · least X'."""
        low, high = self._ratios
        return high - self.k * low

    @property
    def infinite(self) -> float:
        """Infinity mass of the step: 0, since a pair has E X = 1 and the block adds the mass."""
        return 0.0

    def upper(self, c: FloatArray) -> FloatArray:
        """Upper bound on E[(Y − c)₊], shape of ``c``: any pair of thresholds gives one."""
        threshold, other = self._thresholds(c)
        value = hockey_stick(self.pair, threshold) + self.k * reverse_hockey_stick(self.pair, other)
        return value + antithetic_rounding(self.pair, self.k, threshold, other)

    def share(self, c: FloatArray) -> FloatArray:
        """Q(Y > c), nearly."""
        return antithetic_share(self.pair, *self._thresholds(c))

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values at ``c`` and slopes of lines below c ↦ E[(Y − c)₊], where that is attained.

        P(E) − K·P'(E) − c·Q(E) for the event E on which X is largest and X' least.
        """
        threshold, other = self._thresholds(c)
        present, elsewhere, share = antithetic_event(self.pair, threshold, other)
        error = antithetic_rounding(self.pair, self.k, threshold, other)
        values = present - self.k * elsewhere - c * share - error
        # Where an interpolated threshold misses an atom, one of two lines that always hold.
        missed, least = ~np.isfinite(values), self.mean - c
        values = np.where(missed, np.maximum(least, 0.0), values)
        return values, np.where(missed, np.where(least > 0, -1.0, 0.0), -share)

    def _thresholds(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Thresholds of X and X', interpolated where there are many."""
        if c.size <= _SOLVED_THRESHOLDS or isinstance(self.pair, GaussianPair | LaplacePair):
            return antithetic_thresholds(self.pair, self.k, c)
        nodes = c[np.linspace(0, c.size - 1, _SOLVED_THRESHOLDS).astype(np.int64)]
        gain = antithetic_thresholds(self.pair, self.k, nodes)[0] - np.maximum(nodes, 0.0)
        gain = np.interp(c, nodes, gain)
        return np.maximum(c, 0.0) + gain, (np.maximum(-c, 0.0) + gain) / self.k


@dataclass(frozen=True)
class AnyTwoStep:
    """Step in which any two of P, P' and Q have the trade-off of one symmetric pair.

    Upper: for c ≥ 0 the worst reference is P' itself, for c < 0 it is P, so
    π(c) = H_{K+c} for c ≥ 0 and (1 − c)·H_{K/(1−c)} for c < 0, H the pair's hockey stick. One
    randomizer cannot be both, so this is an upper bound that no distribution attains.

    Attributes:
        pair: the dominating pair; where its two directions differ, the larger one counts.
        k: K = e^ε ≥ 1.
        infinity_mass: mass that P has where Q has none.
    """

    pair: Pair
    k: float
    infinity_mass: float = 0.0

    @property
    def mean(self) -> float:
        """E[Y]."""
        return 1.0 - self.k

    @property
    def _ratios(self) -> tuple[float, float]:
        low, high = _support(self.pair)
        low, high = low * (1.0 - self.infinity_mass), high * (1.0 - self.infinity_mass)
        return min(low, 1.0 / high), max(high, 1.0 / low if low > 0 else np.inf)

    @property
    def bottom(self) -> float:
        """1 − K · largest ratio."""
        return 1.0 - self.k * self._ratios[1]

    @property
    def top(self) -> float:
        """Largest ratio − K."""
        return self._ratios[1] - self.k

    @property
    def infinite(self) -> float:
        """P(X = ∞), or Q(X = 0)."""
        return max(self.infinity_mass, float(self.pair.q_below(np.array(0.0))))

    def upper(self, c: FloatArray) -> FloatArray:
        """Upper bound on E[(Y − c)₊]: the largest over references at each c, rounded up."""
        scale = np.maximum(1.0 - c, 1.0)
        return scale * self._hockey_stick(self.k / scale + np.maximum(c, 0.0))

    def share(self, c: FloatArray) -> FloatArray:
        """Q(X > K + c), or Q(X' < (1 − c)/K) below 0."""
        above = self.pair.q_above(self.k + np.maximum(c, 0.0))
        return np.where(c >= 0, above, self.pair.q_below((1.0 - np.minimum(c, 0.0)) / self.k))

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lines below `upper`, by which grids are chosen; they bound no attained price."""
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


Step = AntitheticStep | AnyTwoStep
"""Distribution of Y by bounds on its hockey stick."""


@lru_cache(maxsize=64)
def _support(pair: Pair) -> tuple[float, float]:
    """Least and largest finite ratio to 13 digits, rounded outwards; (0, inf) if unbounded."""
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
        probability: p > 0.
        infinity_mass: ℓ, the mass that P has where Q has none.
        side: side to which rounding is moved; otherwise the curve is exact.
    """

    pair: Pair
    probability: float
    infinity_mass: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        offset = self._offset(k)
        threshold, other = antithetic_thresholds(self.pair, k, offset)
        if self.side is Side.LOWER:
            return self._with_infinity_mass(self._line(k, threshold, other)[0])
        value = hockey_stick(self.pair, threshold) + k * reverse_hockey_stick(self.pair, other)
        return self._with_infinity_mass(value + antithetic_rounding(self.pair, k, threshold, other))

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1: that of the event's line, which lies below the curve."""
        k = np.asarray(k, dtype=float)
        value, slope = self._line(k, *antithetic_thresholds(self.pair, k, self._offset(k)))
        return np.where(value > 0, slope, 0.0)

    def _line(
        self, k: FloatArray, threshold: FloatArray, other: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """P(E) − K·P'(E) − c₀·Q(E) less its rounding, and the slope of δ along that line."""
        present, elsewhere, share = antithetic_event(self.pair, threshold, other)
        value = present - k * elsewhere - self._offset(k) * share
        value -= antithetic_rounding(self.pair, k, threshold, other)
        kept = self.probability * (1.0 - self.infinity_mass)
        return value, -kept * elsewhere - (1.0 - self.probability) * share

    def _with_infinity_mass(self, value: FloatArray) -> FloatArray:
        kept = np.maximum((1.0 - self.infinity_mass) * value, 0.0)
        return np.minimum(self.probability * (self.infinity_mass + kept), 1.0)

    def _offset(self, k: FloatArray) -> FloatArray:
        """c₀."""
        return (
            (k - 1.0) * (1.0 - self.probability) / (self.probability * (1.0 - self.infinity_mass))
        )


Ratio = float | FloatArray
"""K, one or one for each threshold."""
_BESIDE = 1e-12  # relative distance at which a threshold surely lies above an atom
_BISECTIONS = 40
_NEAR = 1e-8  # relative distance within which a threshold may replace another
_LARGEST_LOG = 690.0


def antithetic_thresholds(pair: Pair, k: Ratio, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Thresholds k of X and κ of X' with nearly Q(X > k) = Q(X' < κ), shape of ``c`` each.

    Closed for the Gaussian, where X' = e^{−μ²}/X, and for Laplace noise, where one of the two sits
    on its least value; else by bisection in ln(k − c₊). Any thresholds with k − Kκ = c give an
    upper bound; its error is the square of the distance to the best ones.
    """
    # Laplace: one of the two ratios is at its least value.
    if isinstance(pair, LaplacePair):
        least = np.exp(-1.0 / pair.scale) * (1.0 + _BESIDE)
        threshold = np.maximum(c + k * least, least)
        return threshold, (threshold - c) / k
    # Gaussian: a quadratic equation, solved without cancellation.
    if isinstance(pair, GaussianPair):
        product = k * np.exp(-(pair.mu**2))
        root = 0.5 * (np.abs(c) + np.hypot(c, 2 * np.sqrt(product)))
        threshold = np.where(c > 0, root, product / root)
        return threshold, np.where(c > 0, product / root, root) / k
    # Other pairs: bisection.
    plus, minus = np.maximum(c, 0.0), np.maximum(-c, 0.0)

    def enough(log_gain: FloatArray) -> BoolArray:
        gain = np.exp(log_gain)
        return pair.q_below((minus + gain) / k) >= pair.q_above(plus + gain)

    low, high = np.full(c.shape, -60.0), np.full(c.shape, _LARGEST_LOG)
    gain = np.exp(bisected_each(enough, low, high, _BISECTIONS)[1])
    return plus + gain, (minus + gain) / k


def antithetic_rounding(
    pair: Pair, k: Ratio, threshold: FloatArray, other: FloatArray
) -> FloatArray:
    """Bound on the rounding errors of a price and of an event's line, shape of the thresholds."""
    edges = threshold * pair.q_above(threshold) + k * other * pair.q_below(other)
    prices = hockey_stick_rounding(pair, threshold) + k * reverse_hockey_stick_rounding(pair, other)
    return prices + 16 * UNIT_ROUNDOFF * edges


def antithetic_share(pair: Pair, threshold: FloatArray, other: FloatArray) -> FloatArray:
    """Q(E); where X has an atom at its threshold, E takes as much of it as X' < κ has."""
    above = pair.q_above(threshold)
    if isinstance(pair, GaussianPair):
        return above
    return np.clip(pair.q_below(other), above, pair.q_above(threshold * (1.0 - _NEAR)))


def antithetic_event(
    pair: Pair, threshold: FloatArray, other: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower bound on P(E), upper bound on P'(E), and Q(E), but for rounding."""
    share = antithetic_share(pair, threshold, other)
    if isinstance(pair, GaussianPair):
        return pair.p_above(threshold), pair.p_below(other), share
    extra = (share - pair.q_above(threshold)) * threshold * (1.0 - _NEAR)
    return pair.p_above(threshold) + extra, _least_mass(pair, share, other), share


def _least_mass(pair: Pair, share: FloatArray, other: FloatArray) -> FloatArray:
    """Upper bound on P' of the event of Q-mass ``share`` on which X' is least.

    That is a convex function of the mass, whose slope is the quantile of X'; so its value at a
    nearby mass and a quantile on the right side bound it.
    """
    below, bound = pair.q_below(other), pair.p_below(other)
    more = share > below
    quantile = np.where(more, np.inf, 0.0)
    for width in (1e-2, 1e-5, _NEAR):
        edge = other * np.where(more, 1.0 + width, 1.0 - width)
        reached = pair.q_below(edge)
        right = np.where(more, reached >= share, reached <= share)
        quantile = np.where(right, edge, quantile)
    with np.errstate(invalid="ignore"):
        return bound + np.where(share == below, 0.0, (share - below) * quantile)


_POINTS = 300
_LOG_NEGLIGIBLE = 37.0  # −ln of the tilted mass that may lie outside the window
_LOG_FAR = 45.0  # −ln of the payoff's weight from where the window may end in any case
_LOST_BELOW = 1e-7  # part of δ that values of one Y below its range may cost
_LOG_TILT_LOSS = 12.0  # ln of the factor that a smaller tilt may add to round-off
_LOG_PAYOFF_LOSS = 10.0  # the same, of a payoff that falls slowly
_MOST_TILT = 10.0  # over the distance of the cap, unless the threshold asks for more
_HEAVY = 0.2  # the range of one Y over the window, where tails are heavy


@dataclass(frozen=True, slots=True)
class SumFrame:
    """Tilt and range in which a sum must be known.

    Attributes:
        centre: the sum that matters most, such as the threshold.
        resolution: the tilt that steers the grid's step.
        low, high: least value of one Y that matters, and its cap.
        below, above: distances from the centre to the ends of the sum's window.
        exponent_below, exponent_above: Chernoff exponents for what lies outside the window.
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
        """Whether the range of one Y is a large part of the sum's window."""
        return self.high - self.low > _HEAVY * (self.below + self.above)


def hockey_stick_frame(law: CoarseSum, count: int, threshold: float) -> SumFrame:
    """Frame of E[(Σ − c₀)₊]: the narrowest window over tilts that cost little round-off.

    Under the tilt of the saddle point a heavy tail has much mass at its cap, and the window must
    hold several such jumps; a smaller tilt avoids that.
    """
    saddle = _saddle(law, count, threshold)
    tilts = saddle * np.geomspace(1.0, 0.03, 9)
    logs = count * law.log_moments(tilts) - tilts * threshold - np.log(tilts)
    frames = [
        _window(law, count, threshold, float(tilt), saddle)
        for tilt in tilts[logs < logs[0] + _LOG_TILT_LOSS]
    ]
    return min(frames, key=lambda frame: frame.below + frame.above)


def payoff_frame(
    law: CoarseSum,
    count: int,
    payoff: Callable[[FloatArray], FloatArray],
    floor: float,
    threshold: float,
) -> SumFrame:
    """Frame of E[g(Σ)], where g matters from ``floor`` on only.

    The narrowest window over tilts with a bound e^{nκ(θ)}·max g(z)e^{−θz} near its least.
    """
    # The payoff on a grid of values, and tilts on a grid.
    unit = max(threshold - floor, 1e-300)
    values = floor + unit * np.append(0.0, np.geomspace(1e-6, 1.0, 300))
    logs = np.log(np.maximum(payoff(values), 1e-300))
    tilts = np.geomspace(1e-3, 1e5, 160) / unit
    # The bound e^{nκ(θ)}·max g(z)e^{−θz} by tilt.
    peaks = np.argmax(logs[None, :] - tilts[:, None] * values[None, :], axis=1)
    bounds = count * law.log_moments(tilts) + logs[peaks] - tilts * values[peaks]
    # The sum that is typical under each tilt, and the tilt whose contribution is the largest.
    typical = np.array([count * float(law.tilted(tilt) @ law.points) for tilt in tilts])
    likely = count * law.log_moments(tilts) - tilts * typical
    likely += np.interp(typical, values, logs, left=-1e300)
    resolution = float(tilts[np.argmax(likely)])
    # The narrowest window among tilts whose bound is near the least.
    cheap = tilts[bounds < bounds.min() + _LOG_PAYOFF_LOSS]
    frames = [
        _window(
            law, count, float(typical[tilts == tilt][0]), float(tilt), resolution, far_above=True
        )
        for tilt in cheap[:: 1 + cheap.size // 9]
    ]
    return min(frames, key=lambda frame: frame.below + frame.above)


def _saddle(law: CoarseSum, count: int, threshold: float) -> float:
    """Tilt under which the threshold is typical.

    Close to the mean and below it, a tilt of one over the sum's deviation.
    """
    distance = law.points - threshold / count
    if distance[-1] <= 0:
        raise NumericalError("the threshold lies beyond all that a step's ratios can reach")
    width = math.sqrt(float(law.masses @ distance**2))

    def reaches(log_tilt: float) -> bool:
        return not float(law.tilted(math.exp(log_tilt)) @ distance) < 0

    low, high = math.log(1e-12 / width), math.log(700.0 / distance[-1])
    high = bisected(reaches, low, high, halvings=50).holding
    masses = law.tilted(math.exp(high))
    variance = float(masses @ distance**2) - float(masses @ distance) ** 2
    deviation = math.sqrt(count * max(variance, 1e-12 * width**2))
    # Not so large a tilt that the cap itself, however unlikely, becomes typical.
    return max(math.exp(high), min(1.0 / deviation, _MOST_TILT / float(distance[-1])))


def _window(
    law: CoarseSum,
    count: int,
    centre: float,
    tilt: float,
    resolution: float,
    *,
    far_above: bool = False,
) -> SumFrame:
    """Frame of one tilt, by Chernoff bounds."""
    lost = int(np.sum(count * np.cumsum(law.tilted(tilt)) <= _LOST_BELOW))
    left = int(np.searchsorted(law.points, centre / count))
    low, high = float(law.points[max(min(lost - 1, left - 9), 0)]), float(law.points[-1])
    s = np.geomspace(1e-3, 1e2, 40) * tilt
    logs = count * law.log_moments(np.concatenate([[tilt], tilt + s, tilt - s]))
    logs = logs[1:] - logs[0] + _LOG_NEGLIGIBLE
    up, down = logs[: s.size] / s - centre, logs[s.size :] / s + centre
    i, j = int(np.argmin(up)), int(np.argmin(down))
    below = max(min(float(down[j]), centre - count * low), 1e-3 / tilt)
    far = max(min(float(up[i]), count * high - centre), 1e-3 / tilt)
    above = far if far_above else min(max(_LOG_FAR / tilt, far - below), far)
    return SumFrame(tilt, centre, resolution, low, high, below, above, float(s[j]), float(s[i]))


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """Hockey stick of Y and Q(Y > c) at points from far left to far right of its median."""

    step: Step
    points: FloatArray
    prices: FloatArray
    shares: FloatArray
    median: float
    unit: float

    @classmethod
    def of(cls, step: Step) -> Overview:
        """Overview of a step: points at growing distances, prices without the atom at infinity."""
        median = step.mean
        unit = max(float(step.upper(np.array([step.mean]))[0]) - step.infinite, 1e-300)
        distances = np.sinh(np.linspace(-120.0, 120.0, 601))
        for _ in range(12):  # where tails are heavy the mean is far from where most of the mass is
            points = median + unit * distances
            shares = step.share(points)
            quarter, median, rest = (
                float(points[np.argmax(shares <= share)]) for share in (0.75, 0.5, 0.25)
            )
            if rest > quarter:
                unit = max(0.02 * (rest - quarter), 0.01 * unit)
                continue
            # The points are too far apart, or half of the mass is one atom.
            least = 0.05 * float(step.upper(np.array([median]))[0] - step.infinite)
            unit = min(unit, max(0.02 * unit, least))
        points = median + unit * distances
        prices = step.upper(points) - step.infinite
        return cls(step, points, prices, step.share(points), median, unit)

    @property
    def low(self) -> float:
        """Value below which the mass of Y is negligible."""
        beyond = np.flatnonzero(self.shares >= 1.0 - 1e-14)
        return max(float(self.points[beyond[-1] if beyond.size else 0]), self.step.bottom)

    def first_below(self, values: FloatArray, threshold: float) -> float:
        """First point from which on ``values`` (falling) are at most a threshold."""
        small = np.flatnonzero(values <= threshold)
        return min(float(self.points[small[0] if small.size else -1]), self.step.top)

    def coarse(self, low: float, high: float) -> CoarseSum:
        """Distribution of Y on few points, cut at ``low`` and ``high``."""
        ends = np.arcsinh((np.array([low, high]) - self.median) / self.unit)
        points = self.median + self.unit * np.sinh(np.linspace(ends[0], ends[1], _POINTS))
        points[0], points[-1] = low, high
        prices = self.step.upper(points)
        slopes = np.diff(prices - prices[-1]) / np.diff(points)
        masses = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
        return CoarseSum(points, masses / masses.sum())


@dataclass(frozen=True, slots=True, eq=False)
class CoarseSum:
    """Distribution of Y spread onto few points, finer around its mean."""

    points: FloatArray
    masses: FloatArray

    def log_moments(self, exponents: FloatArray) -> FloatArray:
        """Ln E[e^{sY}] for each s."""
        product = np.multiply.outer(exponents, self.points)
        top = product.max(axis=1)
        return top + np.log(np.maximum(np.exp(product - top[:, None]) @ self.masses, 1e-300))

    def tilted(self, exponent: float) -> FloatArray:
        """Masses under the tilt."""
        product = exponent * self.points
        weights = self.masses * np.exp(np.minimum(product - product[self.masses > 0].max(), 0.0))
        return weights / weights.sum()
