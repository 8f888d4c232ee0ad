"""Composition: hockey-stick curves become privacy loss distributions of dp-accounting.

Upper: the polygon through the values of an upper curve at e^{jΔ} is the tightest pessimistic
PLD on that grid (Doroshenko et al. 2022, "Connect the Dots"). Lower: the same construction on
a polygon under the tangents of a lower curve, which is the curve of a pair that the true one
can simulate. Everything that happens to the distributions afterwards is dp-accounting's.

Masses are second differences of prices. For K < 1 the price is δ(K) − (1 − K), not δ(K): the
losses below 0 would else be differences of numbers near 1 − K, whose rounding, divided by Δ, is
larger than the masses where Δ is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from turnout.accounting.convex_order import under_tangents
from turnout.accounting.curves import Curve, Direction, Side
from turnout.accounting.pairs import UNIT_ROUNDOFF
from turnout.core.errors import NumericalError

if TYPE_CHECKING:  # importing dp-accounting takes most of a second
    from dp_accounting.pld.pld_pmf import DensePLDPmf as PLDPmf

FloatArray = np.ndarray
_TRUNCATION = 1e-15  # tail mass that one composition may move to infinity
# A price is the sum of its slopes over the cells beyond and a mass a difference of slopes, so all
# roundings of masses together change a price by a few u of itself. Who is within 1 ± η of a curve
# is within (1 + η)ⁿ after n repetitions: the smaller one is the larger one seen with probability
# 1/(1 + η) only.
_ROUNDINGS_A_MASS = 64.0


@dataclass(frozen=True, slots=True)
class CurvePair:
    """Both directions of one mechanism on one side, each by one or more curves.

    Where there are several curves the sharpest counts at each K: the smallest upper or the
    largest lower one. ``floors`` are the δ's (remove, add) below which no ε helps.
    """

    side: Side
    remove: Sequence[Curve]
    add: Sequence[Curve]
    floors: tuple[float, float] = (0.0, 0.0)

    def floor(self, direction: Direction) -> float:
        """The δ of one direction for ε without end: mass that the other world does not have."""
        return self.floors[0 if direction is Direction.REMOVE else 1]

    def _best(self, curves: Sequence[Curve], k: FloatArray) -> tuple[FloatArray, FloatArray]:
        values = np.stack([curve.delta(k) for curve in curves])
        slopes = np.stack([curve.slope(k) for curve in curves])
        index = np.argmin(values, axis=0) if self.side is Side.UPPER else np.argmax(values, axis=0)
        rows = np.arange(k.size)
        best = values[index, rows]
        # A lower curve that was cut off at 0 proves no more than the tangent 0.
        return best, np.where(best > 0, slopes[index, rows], 0.0)

    def price_and_slope(self, direction: Direction, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """δ(K) − (1 − K)₊ and its derivative for any K > 0, shapes of ``k``.

        Below 1 this is K·H_{1/K} of the other direction.
        """
        own, other = (
            (self.remove, self.add) if direction is Direction.REMOVE else (self.add, self.remove)
        )
        price, slope = self._best(own, np.maximum(k, 1.0))
        small = k < 1.0
        if small.any():
            inner = 1.0 / k[small]
            value, derivative = self._best(other, inner)
            price[small] = k[small] * value
            slope[small] = value - derivative * inner
        return price, slope


def to_pld(pair: CurvePair, direction: Direction, gap: float, tail: float) -> PLDPmf:
    """The privacy loss distribution of one direction, pessimistic or optimistic by side.

    Args:
        pair: the mechanism's curves.
        direction: which hockey stick the distribution must reproduce.
        gap: Δ, the step of the loss grid.
        tail: the δ at which the grid ends; for upper curves this becomes the mass at infinity.
    """
    from dp_accounting.pld import pld_pmf

    reach = math.ceil(reach_of(pair, tail) / gap) + 1
    epsilons = gap * np.arange(-reach, reach + 1)
    points = np.exp(epsilons)
    if pair.side is Side.UPPER:
        prices = np.minimum(pair.price_and_slope(direction, points)[0], np.minimum(points, 1.0))
    else:
        middles = np.exp(epsilons[:-1] + 0.5 * gap)
        prices = under_tangents(points, middles, *pair.price_and_slope(direction, middles))
        _trim(prices, reach, pair.floor(direction))
    widths = points[:-1] * math.expm1(gap)
    below, above = _convex(np.diff(prices) / widths, widths, reach)
    masses = np.concatenate(
        [
            [below[0] - prices[0] / points[0]],
            np.diff(below),
            [1.0 - below[-1] + above[0]],
            np.diff(above),
            [-above[-1]],
        ]
    )
    masses = np.maximum(masses * points, 0.0)
    return pld_pmf.DensePLDPmf(gap, -reach, masses, float(prices[-1]), True)


def compose(parts: Sequence[tuple[PLDPmf, int]]) -> PLDPmf:
    """Adaptive composition of each part repeated its number of times."""
    pmfs = [
        pmf if count == 1 else pmf.self_compose(count, tail_mass_truncation=_TRUNCATION)
        for pmf, count in parts
    ]
    total = pmfs[0]
    for pmf in pmfs[1:]:
        total = total.compose(pmf, tail_mass_truncation=_TRUNCATION)
    return total.to_dense_pmf()


@dataclass(frozen=True, slots=True, eq=False)
class ComposedCurve:
    """δ(K) of a composed PLD, moved to the proved side by a bound on what rounding did.

    ``tail_mass[i]`` and ``tail_inverse[i]`` are Σ p and Σ p·e^{−loss} over losses from i on;
    losses below 0 count as 0, which no K ≥ 1 sees.
    """

    side: Side
    losses: FloatArray
    tail_mass: FloatArray
    tail_inverse: FloatArray
    infinity: float
    slack: float
    relative_slack: float

    @classmethod
    def of(cls, side: Side, parts: Sequence[tuple[PLDPmf, int]]) -> ComposedCurve:
        """Compose, and bound the round-off of the FFTs and the truncated tails."""
        total = compose(parts)
        probabilities = _probabilities(total)
        count = sum(repeats for _, repeats in parts)
        gamma = (8.0 * math.log2(total.size + 2) + 32.0) * UNIT_ROUNDOFF
        # A transform errs by γ√N times the ℓ2 norm of its part; it is at most 1 in modulus, so
        # its power errs by count times that.
        norm = max(float(np.linalg.norm(_probabilities(pmf))) for pmf, _ in parts)
        slack = math.sqrt(total.size) * count * gamma * norm + 3 * len(parts) * _TRUNCATION
        relative = math.expm1(_ROUNDINGS_A_MASS * UNIT_ROUNDOFF * count)
        losses = total._discretization * (total._lower_loss + np.arange(total.size))
        return cls(
            side,
            losses,
            np.append(np.cumsum(probabilities[::-1])[::-1], 0.0),
            np.append(
                np.cumsum((probabilities * np.exp(-np.maximum(losses, 0.0)))[::-1])[::-1], 0.0
            ),
            total._infinity_mass,
            slack,
            relative,
        )

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1."""
        index = np.searchsorted(self.losses, np.log(k), side="right")
        values = self.infinity + self.tail_mass[index] - k * self.tail_inverse[index]
        slack = self.slack + self.relative_slack * values
        moved = values + slack if self.side is Side.UPPER else values - slack
        return np.clip(moved, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        return -self.tail_inverse[np.searchsorted(self.losses, np.log(k), side="right")]


def _probabilities(pmf: PLDPmf) -> FloatArray:
    return np.asarray(pmf.to_dense_pmf()._probs, dtype=float)


def reach_of(pair: CurvePair, tail: float) -> float:
    """The ε from which on both directions are below ``tail``."""
    candidates = np.geomspace(1e-6, 400.0, 800)
    points = np.exp(candidates)
    above = [
        pair.price_and_slope(direction, points)[0] - pair.floor(direction) * (1.0 + 1e-9)
        for direction in Direction
    ]
    below = np.flatnonzero(np.maximum(*above) <= tail)
    if not below.size:
        raise NumericalError(f"a privacy curve does not fall below {tail:.3g}")
    return float(candidates[below[0]])


def _trim(prices: FloatArray, middle: int, floor: float) -> None:
    """Lowers a polygon under the prices of a lower curve to where it may end.

    That is 0 to the left and the floor to the right. Each half reaches it one point before its
    first value below it, seen from K = 1.
    """
    prices[0], prices[-1] = 0.0, floor
    low = np.flatnonzero(prices[: middle + 1] < 0)
    if low.size:
        prices[: low[-1] + 2] = 0.0
    low = np.flatnonzero(prices[middle:] < floor)
    if low.size:
        prices[middle + max(low[0] - 1, 0) :] = floor


def _convex(slopes: FloatArray, widths: FloatArray, middle: int) -> tuple[FloatArray, FloatArray]:
    """Slopes of the greatest convex minorant of a price, left and right of K = 1.

    The price falls by 1 − K from K = 0 to 1, so its slope jumps by 1 at K = 1. Each half is made
    convex by itself, which keeps its smallest slopes sharp, unless the two then do not fit.
    """
    below = _increasing(slopes[:middle], widths[:middle])
    above = _increasing(slopes[middle:], widths[middle:])
    if below[-1] - above[0] > 1.0:
        whole = _increasing(np.append(slopes[:middle] - 1.0, slopes[middle:]), widths)
        below, above = whole[:middle] + 1.0, whole[middle:]
    return below, above


def _increasing(slopes: FloatArray, widths: FloatArray) -> FloatArray:
    if np.all(np.diff(slopes) >= 0):
        return slopes
    from scipy.optimize import isotonic_regression  # rarely needed, and slow to import

    return isotonic_regression(slopes, weights=widths).x
