"""Frames of tilted sums: tilt, range of one Y, window around the threshold.

Nothing here is a bound: it is chosen from a law on a few hundred points, and `excess` bounds
afterwards what lies outside.

Notation: κ(θ) = ln E[e^{θY}], Σ a sum of n steps, g the payoff, c₀ the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turnout.accounting.laws.replace_one.steps import Step
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_POINTS = 300
_LOG_NEGLIGIBLE = 37.0  # −ln of the tilted mass that may lie outside the window
_LOG_FAR = 45.0  # −ln of the payoff's weight from where the window may end in any case
_LOST_BELOW = 1e-7  # part of δ that values of one Y below its range may cost
_LOG_TILT_LOSS = 12.0  # ln of the factor that a smaller tilt may add to round-off
_LOG_PAYOFF_LOSS = 10.0  # the same, of a payoff that falls slowly
_MOST_TILT = 10.0  # over the distance of the cap, unless the threshold asks for more
_HEAVY = 0.2  # the range of one Y over the window, where tails are heavy


@dataclass(frozen=True, slots=True)
class Frame:
    """The tilt and the range in which a sum must be known.

    Attributes:
        centre: the value of the sum that matters most, such as the threshold.
        resolution: the tilt that steers the grid's step.
        low, high: least value of one Y that matters, and its cap.
        below, above: how far from the centre the sum's window reaches.
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
        """Whether one Y reaches over much of the sum's window."""
        return self.high - self.low > _HEAVY * (self.below + self.above)


@dataclass(frozen=True, slots=True, eq=False)
class CoarseLaw:
    """A spread of the law of Y on few points, finer around its mean."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """The hockey stick of Y, and Q(Y > c), from far left to far right of its median."""

    step: Step
    points: FloatArray
    prices: FloatArray
    shares: FloatArray
    median: float
    unit: float

    @classmethod
    def of(cls, step: Step) -> Overview:
        """Points at growing distances; prices without the atom at infinity."""
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
        """A value below which next to nothing of Y lies."""
        beyond = np.flatnonzero(self.shares >= 1.0 - 1e-14)
        return max(float(self.points[beyond[-1] if beyond.size else 0]), self.step.bottom)

    def first_below(self, values: FloatArray, threshold: float) -> float:
        """The first point from which on ``values`` (falling) are at most a threshold."""
        small = np.flatnonzero(values <= threshold)
        return min(float(self.points[small[0] if small.size else -1]), self.step.top)

    def coarse(self, low: float, high: float) -> CoarseLaw:
        """The law of Y cut at ``low`` and ``high``."""
        ends = np.arcsinh((np.array([low, high]) - self.median) / self.unit)
        points = self.median + self.unit * np.sinh(np.linspace(ends[0], ends[1], _POINTS))
        points[0], points[-1] = low, high
        prices = self.step.upper(points)
        slopes = np.diff(prices - prices[-1]) / np.diff(points)
        masses = np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)
        return CoarseLaw(points, masses / masses.sum())


def hockey_stick_frame(law: CoarseLaw, count: int, threshold: float) -> Frame:
    """The frame of E[(Σ − c₀)₊]: the narrowest window over tilts that cost little round-off.

    Under the saddle's own tilt a heavy tail stands up again at its cap, and the window must hold
    several such jumps; a smaller tilt keeps it down.
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
    law: CoarseLaw,
    count: int,
    payoff: Callable[[FloatArray], FloatArray],
    floor: float,
    threshold: float,
) -> Frame:
    """The frame of E[g(Σ)], g counted from ``floor`` on only.

    The narrowest window over tilts with a bound e^{nκ(θ)}·max g(z)e^{−θz} near its least.
    """
    unit = max(threshold - floor, 1e-300)
    values = floor + unit * np.append(0.0, np.geomspace(1e-6, 1.0, 300))
    logs = np.log(np.maximum(payoff(values), 1e-300))
    tilts = np.geomspace(1e-3, 1e5, 160) / unit
    peaks = np.argmax(logs[None, :] - tilts[:, None] * values[None, :], axis=1)
    bounds = count * law.log_moments(tilts) + logs[peaks] - tilts * values[peaks]
    typical = np.array([count * float(law.tilted(tilt) @ law.points) for tilt in tilts])
    likely = count * law.log_moments(tilts) - tilts * typical
    likely += np.interp(typical, values, logs, left=-1e300)
    resolution = float(tilts[np.argmax(likely)])
    cheap = tilts[bounds < bounds.min() + _LOG_PAYOFF_LOSS]
    frames = [
        _window(
            law, count, float(typical[tilts == tilt][0]), float(tilt), resolution, far_above=True
        )
        for tilt in cheap[:: 1 + cheap.size // 9]
    ]
    return min(frames, key=lambda frame: frame.below + frame.above)


def _saddle(law: CoarseLaw, count: int, threshold: float) -> float:
    """The tilt under which the threshold is typical.

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
    law: CoarseLaw,
    count: int,
    centre: float,
    tilt: float,
    resolution: float,
    *,
    far_above: bool = False,
) -> Frame:
    """The frame of one tilt, by Chernoff bounds."""
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
    return Frame(tilt, centre, resolution, low, high, below, above, float(s[j]), float(s[i]))
