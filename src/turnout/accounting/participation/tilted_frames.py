"""Frames: grid range and exponential tilt with which the sum over a window is computed.

`Framing` chooses a `Frame` for one pair, window, direction and δ from a `CoarseDistribution`, the
pair's distribution on few points. `log_moment` is used to bound the mass outside a grid. Only
`check_ins` uses the module.

Notation: X is the likelihood ratio of one step, S = X_1 + … + X_t the sum over the window (Σ in
formulas), K = e^ε, θ the tilt.

A frame is made for one δ: the distribution of the sum is weighted by e^{±θ·sum} so that the sum at
which the payoff starts (the *threshold*) is typical. Then errors from round-off and from the edges
of the grid are small relative to δ, however small δ is. Frames may be estimates: a badly chosen
frame makes bounds wide, never wrong.

Spreading a distribution onto fewer points makes it larger in convex order, and e^{sx} is convex. So
a distribution on a few hundred points bounds the moments of a distribution on a million points, and
shows which values of the sum are likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnout.accounting.divergence.curves import Direction
from turnout.accounting.divergence.pairs import Pair, hockey_stick, reverse_hockey_stick
from turnout.accounting.divergence.sums import log_sums, smooth_size
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError

_NEGLIGIBLE = 1e-5  # part of δ that the cap and the window may add to the error
_NOISE = 1e-4  # part of δ that round-off may add to the error at the threshold
_ROUNDING = (
    1e-13  # about the ℓ2 norm of round-off of a distribution, over the root of its number of bins
)
_AIM = 3e-4  # about a third of the relative width of ε that the first grid should reach
_FEWEST, _MOST_FIRST, _MOST = 1 << 8, 1 << 20, 1 << 22  # bins: least, most at first, most
_THRESHOLDS, _TILTS = 24, 48  # numbers that are tried
_EDGES = np.geomspace(1e-2, 30.0, 24)  # exponents of Chernoff bounds, in units of a deviation
_COMMON = 0.99  # mass of the ratios that are too small to reach a threshold alone
_ROUNDS, _TRIED = 4, 33  # finer and finer grids of a search, and their numbers of points
_LARGEST_LOG = 700.0  # logarithm of the largest cap
_CLOSER_LOOKS = 2  # rounds in which thresholds are tried between those next to δ
_LOW = 0.2  # a lower edge below this part of the upper edge is moved to 0
_MARGIN, _ADD_MARGIN = 0.3, 3.0  # distance of the cap above the threshold, in e-folds of δ


@dataclass(frozen=True, slots=True)
class Frame:
    """Grid and tilt of the sum, for one direction, one window and one δ.

    Attributes:
        direction: remove (a hockey stick of the sum, tilted up) or add (a reverse hockey stick,
            tilted down).
        window: t, steps.
        threshold: the sum at which the payoff starts: t·K (remove) or t/K (add).
        tilt: θ > 0; the distribution is weighted by e^{θ·sum} (remove) or e^{−θ·sum} (add).
        cap: largest value of one ratio; larger values are cut off.
        low, high: edges of the grid of the sum.
        below, above: exponents of the Chernoff bounds on the mass below ``low`` and above ``high``.
        short: exponent of the Chernoff bound on the probability that t − 1 ratios sum to less than
            threshold − cap.
        step: distance between the points of the coarsest grid.
    """

    direction: Direction
    window: int
    threshold: float
    tilt: float
    cap: float
    low: float
    high: float
    below: float
    above: float
    short: float
    step: float

    @property
    def signed_tilt(self) -> float:
        """Exponent of the weight: θ (remove) or −θ (add)."""
        return self.tilt if self.direction is Direction.REMOVE else -self.tilt

    def bins(self, refinement: int) -> int:
        """Number of bins, 2ⁿ or 3·2ⁿ; each level of refinement doubles the number."""
        wanted = min(max((self.high - self.low) / self.step, _FEWEST), _MOST_FIRST)
        return min(smooth_size(wanted) << refinement, _MOST)


@dataclass(frozen=True, slots=True, eq=False)
class Framing:
    """Estimates from which frames are chosen, for one pair, window and direction.

    Attributes:
        distribution: the pair's distribution on few points, up to a cap beyond which ratios are
            negligible at δ.
        log_delta: ln δ.
        thresholds: candidates for the threshold of the sum, ordered by falling δ, shape (n,).
        log_deltas: estimates of ln δ at each candidate, same shape.
    """

    pair: Pair
    direction: Direction
    window: int
    distribution: CoarseDistribution
    log_delta: float
    thresholds: FloatArray
    log_deltas: FloatArray

    @classmethod
    def of(cls, pair: Pair, window: int, direction: Direction, delta: float) -> Framing:
        """Estimates for one pair, window and direction, with candidates that are dense near δ."""
        # Cap of one ratio and estimates of δ, by direction.
        if direction is Direction.REMOVE:
            distribution = CoarseDistribution.of_pair(
                pair, _hockey_stick_threshold(pair, _NEGLIGIBLE * delta)
            )
            estimates: _HockeySticks | _ReverseHockeySticks = _HockeySticks(
                pair, distribution, window
            )
        else:
            cap = min(_tail_threshold(pair, _NEGLIGIBLE / window), float(window))
            distribution = CoarseDistribution.of_pair(pair, cap)
            estimates = _ReverseHockeySticks(distribution, window)
        # First candidates, then closer ones between those on either side of δ.
        log_delta = math.log(delta)
        candidates = estimates.candidates()
        thresholds, log_deltas = estimates.at(candidates)
        for _ in range(_CLOSER_LOOKS):
            after = int(np.argmax(log_deltas < log_delta)) if log_deltas.min() < log_delta else 0
            if after == 0:
                break
            first, last = max(after - 2, 0), min(after + 1, candidates.size - 1)
            candidates = _geometric(candidates[first], candidates[last], _THRESHOLDS)
            thresholds, log_deltas = estimates.at(candidates)
        return cls(pair, direction, window, distribution, log_delta, thresholds, log_deltas)

    def guess(self) -> float:
        """Estimate of the threshold of the sum that belongs to the given δ."""
        falling = np.minimum.accumulate(self.log_deltas)
        logs = np.log(self.thresholds)
        return math.exp(float(np.interp(-self.log_delta, -falling, logs)))

    def slope(self, threshold: float) -> float:
        """Estimate of |d ln δ / d threshold|, averaged over several neighbouring candidates."""
        order = np.argsort(self.thresholds)
        thresholds, logs = self.thresholds[order], self.log_deltas[order]
        at = int(np.clip(np.searchsorted(thresholds, threshold), 4, thresholds.size - 5))
        rise = abs(float(logs[at + 4] - logs[at - 4]))
        return max(rise, 1e-3) / float(thresholds[at + 4] - thresholds[at - 4])

    def frame(self, threshold: float, slope: float) -> Frame:
        """Frame for one threshold; ``slope`` is the fall of ln δ there, per unit of the sum."""
        # Cap of one ratio: just above the threshold minus the sum that the others almost surely
        # reach.
        sign = 1.0 if self.direction is Direction.REMOVE else -1.0
        exponents = _EDGES * _unit(self.distribution, self.window)
        lows = (
            -math.log(_NEGLIGIBLE) + (self.window - 1) * self.distribution.log_moments(-exponents)
        ) / exponents
        others = max(0.0, -float(lows.min())) if sign > 0 else 0.0
        margin = (_MARGIN if sign > 0 else _ADD_MARGIN) / slope
        cap = min(float(self.distribution.points[-1]), threshold - others + margin)
        distribution = CoarseDistribution.of_pair(self.pair, cap)
        # A sum contributes at most the maximum of the weighted payoff, 1/(eθ·scale).
        log_scale = 1.0 + math.log(self.window if sign > 0 else threshold)
        log_worth = self.log_delta + log_scale
        # Tilt; the mass beyond the edges of the grid should be a negligible part of δ.
        tilt = _tilt(distribution, self.window, threshold, sign, math.log(_NOISE) + log_worth)
        log_mass = math.log(_NEGLIGIBLE) + log_worth + sign * tilt * threshold + math.log(tilt)
        # Candidate edges, one for each exponent of a Chernoff bound; the closest ones are used.
        steps = _EDGES * _unit(distribution, self.window)
        step, variance = self._step(threshold, slope)
        up = (
            self._log_moments(distribution, sign * tilt + steps, step, variance) - log_mass
        ) / steps
        down = (
            log_mass - self._log_moments(distribution, sign * tilt - steps, step, variance)
        ) / steps
        above, below = int(np.argmin(up)), int(np.argmax(down))
        low = min(max(0.0, float(down[below])), 0.999 * threshold)
        high = max(float(up[above]), 1.0001 * threshold)
        if low < _LOW * high:  # a low edge saves few bins
            low = 0.0
        return Frame(
            self.direction,
            self.window,
            threshold,
            tilt,
            cap,
            low,
            max(high, low + 1.01 * cap),
            float(steps[below]),
            float(steps[above]),
            float(exponents[np.argmin(lows)]),
            step,
        )

    def _log_moments(
        self, distribution: CoarseDistribution, s: FloatArray, step: float, variance: float
    ) -> FloatArray:
        """Estimate of ln E[e^{sΣ}], including the variance that a grid adds to the sum."""
        height = np.minimum(s * step, 300.0)
        widening = variance / step**2 * (np.expm1(height) - height)
        return self.window * (distribution.log_moments(s) + widening)

    def _step(self, threshold: float, slope: float) -> tuple[float, float]:
        """Step of the coarsest grid, and the variance that this grid adds to one ratio.

        Spreading onto a grid of step h raises the variance of a ratio by v = min(h²/6, h·mean), and
        so raises ln δ by t·v·slope²/2; a chord raises ln δ by h²·slope²/8. h is chosen so that each
        of the two increases is at most 0.4 times the change of ln δ that moves ε by the relative
        accuracy `_AIM`.
        """
        epsilon = abs(math.log(threshold / self.window))
        fold = 0.4 * _AIM * max(epsilon * threshold * slope, 1.0)  # change of ln δ over the aim
        mean = min(1.0, threshold / self.window)
        variance = 2.0 * fold / (self.window * slope**2)
        widest = max(math.sqrt(6.0 * variance), variance / mean)
        step = max(min(widest, math.sqrt(8.0 * fold) / slope), 1e-300)
        return step, min(step**2 / 6.0, step * mean)


class _HockeySticks:
    """Estimates of ln δ for *remove*, at candidate values of ε.

    The estimate adds two cases. In the first case a single ratio reaches the threshold while all
    other ratios are at their mean. In the second case the sum of many ratios reaches the threshold
    (a saddle point), and no ratio exceeds about a third of the distance from the mean of the sum to
    the threshold, since larger ratios need exact tilts.
    """

    def __init__(self, pair: Pair, distribution: CoarseDistribution, window: int) -> None:
        self._pair, self._distribution, self._window = pair, distribution, window
        least = 1e-4 * _unit(distribution, window)
        self._tilts = np.array([least, 60.0 * max(1.0, _unit(distribution, window, 1.0))])

    def candidates(self) -> FloatArray:
        """First candidate values of ε, ordered by falling δ."""
        reach = max(float(np.log(self._distribution.points[-1])), 1e-6)
        return np.append(1e-7, _geometric(1e-6, 1.02 * reach, _THRESHOLDS))

    def at(self, candidates: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Threshold of the sum for each candidate ε, and an estimate of ln δ at each threshold."""
        # Tilts around those of the last call, and a cap for each threshold.
        window, thresholds = self._window, self._window * np.exp(candidates)
        tilts = _geometric(0.7 * self._tilts.min(), 1.4 * self._tilts.max(), _TILTS)
        points = self._distribution.points
        common = points[np.searchsorted(np.cumsum(self._distribution.masses), _COMMON)]
        caps = np.clip((thresholds - window) / 3.0 + 2.0, common, points[-1])
        # Saddle point: the tilt with the least exponent, and the deviation of the sum under it.
        moments = self._distribution.capped_moments(tilts, caps, self._pair.q_above(caps))
        with np.errstate(invalid="ignore"):
            exponents = window * np.log(moments[0]) - np.multiply.outer(thresholds, tilts)
        rows, best = np.arange(thresholds.size), np.argmin(exponents, axis=1)
        plain, first, second = (moment[rows, best] for moment in moments)
        deviations = _deviations(window, plain, first, second)
        self._tilts = tilts[best]  # the next call searches around these
        saddle = exponents[rows, best] + _saddle(deviations, self._tilts, float(window))
        # Add the case that one ratio reaches the threshold alone.
        with np.errstate(divide="ignore"):
            single = np.log(hockey_stick(self._pair, np.maximum(thresholds - (window - 1), 1.0)))
        return thresholds, np.logaddexp(saddle, single)


class _ReverseHockeySticks:
    """Estimates of ln δ for *add* by a saddle point, at candidate tilts."""

    def __init__(self, distribution: CoarseDistribution, window: int) -> None:
        self._distribution, self._window = distribution, window

    def candidates(self) -> FloatArray:
        least, most = (
            1e-4 * _unit(self._distribution, self._window),
            1e3 / float(self._distribution.points[1]),
        )
        return _geometric(least, most, 2 * _THRESHOLDS)

    def at(self, candidates: FloatArray) -> tuple[FloatArray, FloatArray]:
        distribution, window, tilts = self._distribution, self._window, candidates
        least = float(distribution.points[distribution.masses > 0][0])
        heights = np.multiply.outer(-tilts, np.maximum(distribution.points - least, 0.0))
        weights = np.exp(heights) * distribution.masses
        plain, first = weights.sum(axis=1), weights @ distribution.points
        alive = first > 1e-290 * plain  # beyond, only mass that spreading put at 0 is left
        weights, plain, first, tilts = weights[alive], plain[alive], first[alive], tilts[alive]
        thresholds = window * first / plain
        deviations = _deviations(window, plain, first, weights @ distribution.points**2)
        exponents = window * np.log(plain) + tilts * (thresholds - window * least)
        return thresholds, exponents + _saddle(deviations, tilts, thresholds)


def _deviations(
    window: int, plain: FloatArray, first: FloatArray, second: FloatArray
) -> FloatArray:
    """Standard deviation of the sum under each tilt, from weighted moments of one ratio."""
    means = first / plain
    return np.sqrt(window * np.maximum(second / plain - means**2, 1e-12 * means**2))


def _saddle(deviations: FloatArray, tilts: FloatArray, scale: FloatArray | float) -> FloatArray:
    """Approximation of ln E[(1 − S/k)₊ e^{−θ(k − S)}] for a normal S with mean k.

    With λ = θ·deviation, the expectation is (deviation/k)/(1 + 1.2533 λ + λ²)/√(2π) to a few per
    cent. ``scale`` is k.
    """
    reach = tilts * deviations
    damping = math.sqrt(2 * math.pi) * (1.0 + 1.2533 * reach + reach**2)
    with np.errstate(divide="ignore"):  # where the deviation underflows, E is 0
        return np.log(deviations / scale / damping)


def _unit(distribution: CoarseDistribution, window: int, cap: float | None = None) -> float:
    """Size of the exponent s from which E[e^{s·sum}] depends on the cap of the ratios."""
    cap = float(distribution.points[-1]) if cap is None else cap
    mean = float(distribution.masses @ distribution.points)
    variance = float(distribution.masses @ np.minimum(distribution.points - mean, cap) ** 2)
    return 1.0 / (math.sqrt(window * max(variance, 1e-300)) + 0.03 * cap)


def _tilt(
    distribution: CoarseDistribution, window: int, threshold: float, sign: float, log_target: float
) -> float:
    """Smallest tilt θ with little round-off at the threshold; the saddle-point tilt if none exists.

    With a smaller tilt the curve is accurate further from the threshold. The saddle-point tilt
    makes the threshold typical: it minimizes t·ln E[e^{±θX}] ∓ θ·threshold.
    """
    # The best tilt, on finer and finer grids.
    low = 1e-6 / (threshold + 1.0)
    high = max(
        600.0 / min(threshold, float(distribution.points[-1])), 100.0 * _unit(distribution, window)
    )
    for _ in range(4):
        tilts = _geometric(low, high, 24)
        exponents = window * distribution.log_moments(sign * tilts) - sign * tilts * threshold
        best = int(np.argmin(exponents))
        low, high = tilts[max(best - 1, 0)], tilts[min(best + 1, tilts.size - 1)]
    if sign < 0:
        return math.sqrt(low * high)
    # *Remove*: the smallest tilt, up to the best one, whose round-off meets the target.
    tilts = math.sqrt(low * high) * _geometric(1e-3, 1.0, 40)
    exponents = window * distribution.log_moments(sign * tilts) - sign * tilts * threshold
    enough = math.log(_ROUNDING) + exponents - np.log(tilts) <= log_target
    return float(tilts[np.argmax(enough)] if enough.any() else tilts[-1])


def _hockey_stick_threshold(pair: Pair, value: float) -> float:
    """Smallest cap found at which the hockey stick is at most ``value``."""
    cap = _first(lambda caps: ~(hockey_stick(pair, caps) > value), 0.0)
    if cap is None:
        raise NumericalError("delta is too small: the likelihood ratio has too heavy a tail")
    return cap


def _tail_threshold(pair: Pair, mass: float) -> float:
    """Smallest cap found above which Q has a mass of at most ``mass``."""
    cap = _first(lambda caps: ~(pair.q_above(caps) > mass), -60.0)
    return math.exp(_LARGEST_LOG) if cap is None else cap


def _first(holds: Callable[[FloatArray], NDArray[np.bool_]], low: float) -> float | None:
    """Smallest number found, from e^low on, at which a condition is true; None if there is none.

    The condition must stay true at larger numbers.
    """
    high = _LARGEST_LOG
    for _ in range(_ROUNDS):
        logs = np.linspace(low, high, _TRIED)
        holding = holds(np.exp(logs))
        after = int(np.argmax(holding))
        if not holding[after]:
            return None
        low, high = float(logs[max(after - 1, 0)]), float(logs[after])
    return math.exp(high)


def _geometric(first: float, last: float, count: int) -> FloatArray:
    """Numbers in geometric progression: a quick `numpy.geomspace` that checks nothing."""
    log = math.log(first)
    numbers = np.exp(log + _fractions(count) * (math.log(last) - log))
    numbers[0], numbers[-1] = first, last
    return numbers


@lru_cache(maxsize=16)
def _fractions(count: int) -> FloatArray:
    """Evenly spaced numbers from 0 to 1."""
    return np.linspace(0.0, 1.0, count)


_POINTS = 160
_MASSES = np.array([1e-9, 0.01, 0.99])  # of the quantiles between which points are dense
_LARGEST_EXPONENT = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class CoarseDistribution:
    """Distribution of X ∧ cap, spread onto few points."""

    points: FloatArray
    masses: FloatArray

    @classmethod
    def of_pair(cls, pair: Pair, cap: float) -> CoarseDistribution:
        """Distribution of a pair's ratio on few points, dense near the cap and near high mass."""
        # Points in geometric progression, evenly up to the cap, and between two quantiles.
        low, middle, high = _quantiles(pair)
        low = min(low, 0.01 * cap)
        points = [
            np.zeros(1),
            _geometric(low, cap, _POINTS),
            np.linspace(0.0, cap, _POINTS // 2)[1:-1],
            np.linspace(middle, high, _POINTS // 4),
        ]
        points = np.sort(np.minimum(np.concatenate(points), cap))
        points = points[np.append(True, points[1:] > points[:-1])]
        # Masses are differences of slopes, of reverse hockey sticks below 1 and of hockey sticks
        # above, where these keep their digits.
        split = int(np.searchsorted(points, 1.0, side="right"))
        low, high = points[:split], points[max(split - 1, 0) :]
        below = np.append(0.0, _slopes(low, reverse_hockey_stick(pair, low)))
        above = np.append(_slopes(high, hockey_stick(pair, high)), 0.0)
        middle = 1.0 + above[0] - below[-1]
        masses = np.concatenate([below[1:] - below[:-1], [middle], above[1:] - above[:-1]])
        masses = np.maximum(masses, 0.0)
        return cls(points, masses / masses.sum())

    def log_moments(self, s: FloatArray) -> FloatArray:
        """Logarithm of E[e^{sX}] for each s, shape of ``s``."""
        alive = self.masses > 0
        return log_sums(self.points[alive], self.masses[alive], s)

    def capped_moments(
        self, s: FloatArray, caps: FloatArray, tails: FloatArray
    ) -> tuple[FloatArray, ...]:
        """Estimates of E[Yⁿ e^{sY}] for Y = X ∧ cap and n = 0, 1, 2, each of shape (caps, s).

        The estimates are infinite where s·cap is too large. ``tails`` are the probabilities
        Q(X > cap), because the points are too far apart to determine them.
        """
        # Weights of the points, and of the mass that each cap gathers.
        exponents = np.multiply.outer(self.points, s)
        weights = self.masses[:, None] * np.exp(np.minimum(exponents, _LARGEST_EXPONENT))
        within = (self.points <= caps[:, None]).astype(float)  # an atom may lie at the cap
        heights = np.multiply.outer(caps, s)
        at_cap = tails[:, None] * np.exp(np.minimum(heights, _LARGEST_EXPONENT))
        # Each power multiplies the weights by one more factor Y.
        moments = []
        for _ in range(3):
            moment = within @ weights + at_cap
            moments.append(np.where(heights < _LARGEST_EXPONENT, moment, np.inf))
            weights, at_cap = weights * self.points[:, None], at_cap * caps[:, None]
        return tuple(moments)


def _slopes(points: FloatArray, values: FloatArray) -> FloatArray:
    """Slopes of the chords between neighbouring points."""
    return (values[1:] - values[:-1]) / (points[1:] - points[:-1])


@lru_cache(maxsize=16)
def _quantiles(pair: Pair) -> tuple[float, ...]:
    """Approximate quantiles of X under Q, one for each of the probabilities `_MASSES`."""
    low, high = np.full(len(_MASSES), -60.0), np.full(len(_MASSES), 60.0)
    each = np.arange(len(_MASSES))
    for _ in range(_ROUNDS):
        logs = np.linspace(low, high, _TRIED)
        after = np.sum(pair.q_below(np.exp(logs)) < _MASSES, axis=0)
        low, high = logs[np.maximum(after - 1, 0), each], logs[np.minimum(after, _TRIED - 1), each]
    return tuple(map(math.exp, high))


def log_moment(points: FloatArray, masses: FloatArray, s: float) -> float:
    """Upper bound on ln Σ mass·e^{s·point}, exact up to rounding.

    Args:
        points: values, shape (n,).
        masses: mass of each value, at least 0, same shape.
        s: exponent.
    """
    exponents = s * points[masses > 0]
    masses = masses[masses > 0]
    top = float(exponents.max())
    return top + math.log(float(np.exp(exponents - top) @ masses)) + 1e-13 * (1.0 + abs(top))
