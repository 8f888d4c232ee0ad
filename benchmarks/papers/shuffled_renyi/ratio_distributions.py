"""Distributions of the likelihood ratio of shuffled messages, above the true one in convex order.

Notation
    N       messages of kind h or l          u = 2A − N, A ~ Bin(N, ½): how many more are h than l
    y       drift: the ratio of the two worlds is (y + u)/(y − u)
    t       the largest tanh(loss/2)         r = u/(t·y) in [0, 1]; the distribution of u is even

The mean of a convex even function of u/y under the computed distribution is at least the true mean:
every point is spread to its two neighbouring nodes with its mean kept, and mass of u outside the
computed range is moved outwards. The distribution of u for one N is called a walk of N steps.
Masses are stored as logarithms, since orders in the thousands depend on values hundreds of standard
deviations away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaln

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF

FloatArray = np.ndarray
_EXACT_STIRLING = 16  # largest k for which ln k! is taken from gammaln
_STEPS_A_DEVIATION = 50  # step of the nodes, relative to the walk's standard deviation
_GROWTH = 1.1  # ratio of steps of nodes beyond the reach
_AT_ONCE = 1 << 20  # largest orders × nodes of one array


def stirling_error(count: FloatArray) -> FloatArray:
    """Error of Stirling's formula, ln k! − ((k + ½) ln k − k + ½ ln 2π), to about 1e-16; k ≥ 1."""
    k = np.asarray(count, dtype=float)
    inverse = 1.0 / k
    square = inverse * inverse
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
    small = k < _EXACT_STIRLING
    if small.any():
        few = np.where(small, k, 1.0)
        exact = gammaln(few + 1) - (few + 0.5) * np.log(few) + few - 0.5 * math.log(2 * math.pi)
        series = np.where(small, exact, series)
    return series


def log_binomial_masses(trials: int, chance: float, counts: FloatArray) -> FloatArray:
    """Ln P(Bin(trials, chance) = k), accurate to about 1e-12 also for millions of trials.

    Source: Loader 2000 (loader2000fast): the deviance is computed directly, not as a difference of
    ln k!'s.

    Args:
        trials: N ≥ 0.
        chance: strictly between 0 and 1.
        counts: integers from 0 to N.

    Returns:
        One logarithm for each count.
    """
    k = np.asarray(counts, dtype=float)
    edge = (k == 0) | (k == trials)
    inside = np.where(edge, 0.5 * trials, k)
    rest = trials - inside
    away = inside - trials * chance
    mean, other = trials * chance, trials * (1 - chance)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviance = inside * np.log1p(away / mean) + rest * np.log1p(-away / other)
        logs = 0.5 * np.log(trials / (2 * math.pi * inside * rest)) - deviance
        logs += stirling_error(np.array(float(max(trials, 1))))
        logs -= stirling_error(inside) + stirling_error(rest)
    ends = np.where(k == 0, trials * math.log1p(-chance), trials * math.log(chance))
    return np.where(edge, ends, logs)


def log_below(trials: int, chance: float, count: float) -> float:
    """Chernoff's upper bound on ln P(Bin(trials, chance) ≤ count)."""
    chance = min(chance, 1 - 1e-15)  # the bound increases for a smaller ``chance``
    if count >= trials * chance:
        return 0.0
    divergence = trials * math.log1p(-chance)
    if count > 0:
        divergence = -count * math.log(count / (trials * chance))
        divergence -= (trials - count) * math.log1p(
            (trials * chance - count) / (trials * (1 - chance))
        )
    return min(divergence * (1 - 1e-12) + 1e-9, 0.0)


def walk_distribution(steps: int, reach: float) -> tuple[FloatArray, FloatArray]:
    """|u| from 0 up to ``reach``, and ln P(|u|)."""
    u = np.arange(steps % 2, min(float(steps), max(reach, 1.0)) + 1, 2)
    if not steps:
        return u, np.zeros(1)
    logs = log_binomial_masses(steps, 0.5, 0.5 * (steps + u))
    return u, np.where(u > 0, logs + math.log(2), logs)


def log_beyond(steps: int, distances: FloatArray) -> FloatArray:
    """Hoeffding's upper bound on ln P(|u| ≥ d)."""
    return math.log(2) - 0.5 * distances**2 / max(steps, 1)


def nodes(deviation: float, reach: float) -> FloatArray:
    """Values of r from 0 to 1: equidistant steps up to a reach, then increasing steps."""
    fine = max(2, math.ceil(_STEPS_A_DEVIATION * min(reach, 1.0) / deviation))
    points = np.linspace(0.0, min(reach, 1.0), fine + 1)
    if reach >= 1.0:
        return points
    wide = math.ceil(math.log(1.0 / reach) / math.log(_GROWTH))
    return np.concatenate([points, np.geomspace(reach, 1.0, wide + 1)[1:]])


@dataclass(slots=True, eq=False)
class RatioDistribution:
    """Distribution of r = tanh(|loss|/2)/t on nodes, with logarithms of masses.

    Attributes:
        lightest: 1 − t, the fraction of the rarer kind among the messages that the client may send.
        nodes: r's from 0 to 1 to which points are spread; None keeps every point.
        points: r's.
        logs: ln of their masses.
    """

    lightest: float
    nodes: FloatArray | None = None
    points: FloatArray = field(init=False)
    logs: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.points = np.empty(0) if self.nodes is None else self.nodes
        self.logs = np.full(self.points.size, -np.inf)

    def add(self, steps: int, reach: float, parts: list[tuple[float, float]]) -> None:
        """Add a walk of N steps, exact up to a reach, for each (ln weight, drift in units of r).

        No drift may be smaller than N.
        """
        u, masses = walk_distribution(steps, reach)
        for log_weight, drift in parts:
            if self.nodes is None:
                self.points = np.concatenate([self.points, u / drift])
                self.logs = np.concatenate([self.logs, masses + log_weight])
            else:
                self._spread(np.minimum(u / drift, 1.0), masses + log_weight)
                if float(u[-1]) < steps:
                    self._move_outwards(float(u[-1]), steps, log_weight, drift)

    def _spread(self, places: FloatArray, masses: FloatArray) -> None:
        """Spread increasing points to their neighbouring nodes."""
        cells = np.searchsorted(self.points, places, side="right") - 1
        cells = np.minimum(cells, self.points.size - 2)
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        left, right = self.points[cells], self.points[cells + 1]
        top = np.maximum.reduceat(masses, starts)
        sizes = np.diff(starts, append=places.size)
        scaled = np.exp(masses - np.repeat(top, sizes)) / (right - left)
        with np.errstate(divide="ignore"):
            to_left = top + np.log(np.add.reduceat(scaled * (right - places), starts))
            to_right = top + np.log(np.add.reduceat(scaled * (places - left), starts))
        cells = cells[starts]
        self.logs[cells] = np.logaddexp(self.logs[cells], to_left)
        self.logs[cells + 1] = np.logaddexp(self.logs[cells + 1], to_right)

    def _move_outwards(self, last: float, steps: int, log_weight: float, drift: float) -> None:
        """Add the walks beyond ``last``: the mass of each cell at its outer end."""
        cell = int(np.searchsorted(self.points, last / drift, side="right")) - 1
        cell = min(cell, self.points.size - 2)
        inner = np.maximum(self.points[cell:-1] * drift, last + 2)
        outwards = log_weight + log_beyond(steps, inner)
        self.logs[cell + 1 :] = np.logaddexp(self.logs[cell + 1 :], outwards)

    def log_excess(self, orders: FloatArray) -> FloatArray:
        """ln(E cosh((2α − 1)s)/cosh s − 1) with tanh s = t·r, at each order, rounded up."""
        alive = (self.points > 0) & np.isfinite(self.logs)
        if not alive.any():
            return np.full(orders.size, -np.inf)
        r, logs = self.points[alive], self.logs[alive]
        share = 1.0 - self.lightest
        short = self.lightest + share * (1.0 - r)  # 1 − t·r without cancellation
        s = 0.5 * (np.log1p(share * r) - np.log(short))
        # Effect of rounding 1 − r on s; none at r = 1.
        s = s + UNIT_ROUNDOFF * (8.0 * (1.0 + s) + np.where(r < 1.0, 2.0 / short, 0.0))
        logs = logs - np.log1p(np.exp(-2 * s))
        result = np.empty(orders.size)
        rows = max(1, _AT_ONCE // r.size)
        for start in range(0, orders.size, rows):
            part = slice(start, start + rows)
            a, b = 2 * orders[part, None] * s, 2 * (orders[part, None] - 1) * s
            exponents = logs + b
            top = exponents.max(axis=1)
            terms = np.exp(exponents - top[:, None]) * np.expm1(-a) * np.expm1(-b)
            result[part] = top + np.log(terms.sum(axis=1))
        return result
