"""The unit in which a search compares costs, and how a cost moves with a parameter.

A cost (ε, δ) is worth the μ of the Gaussian pair N(μ, 1), N(0, 1) with the same ε at the same δ. In
this unit a scheme costs about a power of each of its parameters, since composition and averaging
add up variances: t^(−1/2) for a window, r^(1/2) for a number of windows, p for a probability.
Nothing here is part of a guarantee; it only says where to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import log_ndtr

from turnout.accounting.calibration.unknowns import Unknown
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError

_LEAST_LOG_MU, _MOST_LOG_MU = math.log(1e-300), math.log(1e4)
_SMOOTH = 1e-3  # nearer points would show the grids' own unevenness, not a slope
_FLATTEST, _DELTA_SLOPES = 0.2, (-1.0, 0.01)  # what a slope may be, against noise


@dataclass(frozen=True, slots=True)
class Tried:
    """A value and the proved bound there; both infinite where nothing could be certified.

    Attributes:
        position: ln value, growing towards the private side.
        log_mu: ln μ of it.
        excess: ``log_mu`` less that of the target.
    """

    value: float
    position: float
    epsilon: float
    log_mu: float
    excess: float

    @property
    def certified(self) -> bool:
        """Whether there is a bound at all."""
        return math.isfinite(self.epsilon)


@dataclass(frozen=True, slots=True)
class Target:
    """A bound at a value, and the ε that it must not exceed.

    Attributes:
        cost: a proved upper bound on ε at a value; may raise NumericalError.
        delta: δ at a value (a constant, unless δ itself is the unknown).
    """

    cost: Callable[[float], float]
    epsilon: float
    delta: Callable[[float], float]

    def tried(self, unknown: Unknown, value: float) -> Tried:
        """The bound at a value."""
        position = unknown.position(value)
        try:
            epsilon = self.cost(value)
        except NumericalError:
            return Tried(value, position, math.inf, math.inf, math.inf)
        log_mu = log_gaussian_mu(epsilon, self.delta(value))
        return Tried(value, position, epsilon, log_mu, log_mu - self.required(value))

    def required(self, value: float) -> float:
        """The ln μ of the target at a value."""
        return log_gaussian_mu(self.epsilon, self.delta(value))


@dataclass(slots=True)
class CostModel:
    """ln μ over positions as a line, with a slope, through the point nearest to the target."""

    unknown: Unknown
    target: Target
    slope: float

    def learn(self, one: Tried, other: Tried) -> None:
        """Takes the slope between two points for the line's."""
        distance = other.position - one.position
        if abs(distance) < _SMOOTH or not (one.certified and other.certified):
            return
        slope = (other.log_mu - one.log_mu) / distance
        # The sign of a slope is known, and its size nearly; μ hardly moves with δ.
        power, (low, high) = self.unknown.power, _DELTA_SLOPES
        self.slope = min(slope, -_FLATTEST * power) if power else min(max(slope, low), high)

    def root(self, near: Tried) -> float:
        """The position at which the line through a point meets the target; NaN if none."""
        if self.unknown.power:  # δ is given, so what is required is the same everywhere
            return near.position - near.excess / self.slope

        def excess(position: float) -> float:
            modelled = near.log_mu + self.slope * (position - near.position)
            return modelled - self.target.required(math.exp(position))

        ends = math.log(self.unknown.least), math.log(self.unknown.most)
        if excess(ends[0]) <= 0 or excess(ends[1]) >= 0:
            return math.nan
        return _falling_root(excess, *ends)


def log_gaussian_mu(epsilon: float, delta: float) -> float:
    """The ln μ of the Gaussian pair N(μ, 1), N(0, 1) with this ε at this δ, about.

    δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        first = float(log_ndtr(-epsilon / mu + mu / 2))
        second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
        if not second < first:  # digits ran out, far below any δ
            return -math.inf
        return first + math.log(-math.expm1(second - first)) - math.log(delta)

    return _falling_root(lambda log_mu: -excess(log_mu), _LEAST_LOG_MU, _MOST_LOG_MU)


def _falling_root(excess: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a falling function; the nearer end where there is none."""
    return bisected(lambda at: not excess(at) > 0, low, high, gap=1e-9).middle
