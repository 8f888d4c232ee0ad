"""Composition: hockey-stick curves become privacy loss distributions of dp-accounting.

Upper: the polygon through the values of an upper curve at e^{jΔ} is the tightest pessimistic
PLD on that grid (Doroshenko et al. 2022, "Connect the Dots"). Lower: the same construction on
a polygon under the tangents of a lower curve, which is the curve of a pair that the true one
can simulate. Everything that happens to the distributions afterwards is dp-accounting's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from turnout.accounting.convex_order import UNIT_ROUNDOFF, trimmed_call_polygon, under_tangents
from turnout.accounting.curves import Curve, Direction, Side
from turnout.core.errors import NumericalError

if TYPE_CHECKING:  # importing dp-accounting takes most of a second
    from dp_accounting.pld.pld_pmf import DensePLDPmf as PLDPmf

FloatArray = np.ndarray
_TRUNCATION = 1e-15  # tail mass that one composition may move to infinity


@dataclass(frozen=True, slots=True)
class CurvePair:
    """Both directions of one mechanism on one side, each by one or more curves.

    Where there are several curves the sharpest counts at each K: the smallest upper or the
    largest lower one.
    """

    side: Side
    remove: Sequence[Curve]
    add: Sequence[Curve]

    def _best(self, curves: Sequence[Curve], k: FloatArray) -> tuple[FloatArray, FloatArray]:
        values = np.stack([curve.delta(k) for curve in curves])
        slopes = np.stack([curve.slope(k) for curve in curves])
        index = np.argmin(values, axis=0) if self.side is Side.UPPER else np.argmax(values, axis=0)
        rows = np.arange(k.size)
        return values[index, rows], slopes[index, rows]

    def delta_and_slope(self, direction: Direction, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """δ(K) and dδ/dK for any K > 0, shapes of ``k``.

        Below 1 by H_K(P‖Q) = 1 − K + K·H_{1/K}(Q‖P).
        """
        own, other = (
            (self.remove, self.add) if direction is Direction.REMOVE else (self.add, self.remove)
        )
        delta, slope = self._best(own, np.maximum(k, 1.0))
        small = k < 1.0
        if small.any():
            inner = 1.0 / k[small]
            value, derivative = self._best(other, inner)
            delta[small] = 1.0 - k[small] + k[small] * value
            slope[small] = -1.0 + value - derivative * inner
        return delta, slope


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
        deltas = pair.delta_and_slope(direction, points)[0]
    else:
        middles = np.exp(epsilons[:-1] + 0.5 * gap)
        deltas = under_tangents(points, middles, *pair.delta_and_slope(direction, middles))
        deltas[0], deltas[-1] = max(1.0 - points[0], 0.0), 0.0
        deltas = trimmed_call_polygon(points, deltas)
    deltas = np.clip(_convex(points, deltas), 0.0, 1.0)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(gap, -reach, reach, deltas)
    return pmf.to_dense_pmf()


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

    ``tail_mass[i]`` and ``tail_inverse[i]`` are Σ p and Σ p·e^{−loss} over losses from i on.
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
        # A power of a transform errs by count·γ times the power before it, whose ℓ2 norm is
        # close to the result's once many terms have smoothed it, and below the largest part's.
        norm = max(float(np.linalg.norm(_probabilities(pmf))) for pmf, _ in parts)
        if count >= 16:
            norm = min(norm, 2.0 * float(np.linalg.norm(probabilities)))
        slack = math.sqrt(total.size) * count * gamma * norm + (len(parts) + 1) * _TRUNCATION
        relative = math.expm1(sum(repeats * _mass_rounding(pmf) for pmf, repeats in parts))
        losses = total._discretization * (total._lower_loss + np.arange(total.size))
        return cls(
            side,
            losses,
            np.append(np.cumsum(probabilities[::-1])[::-1], 0.0),
            np.append(np.cumsum((probabilities * np.exp(-losses))[::-1])[::-1], 0.0),
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


def _mass_rounding(pmf: PLDPmf) -> float:
    """Bound on the total error of a PLD's masses, which are differences of δ's over e^Δ − 1.

    Each rounds by a few u·δ/Δ; the δ's are the double tail sums of the masses.
    """
    gap, probabilities = pmf._discretization, _probabilities(pmf)
    deltas = gap * np.minimum(np.cumsum(np.cumsum(probabilities[::-1])), 1.0 / gap)
    return 4.0 * UNIT_ROUNDOFF * float(deltas.sum()) / gap


def _probabilities(pmf: PLDPmf) -> FloatArray:
    return np.asarray(pmf.to_dense_pmf()._probs, dtype=float)


def reach_of(pair: CurvePair, tail: float) -> float:
    """The ε from which on both directions are below ``tail``."""
    candidates = np.geomspace(1e-6, 400.0, 800)
    worst = np.maximum(
        *(pair.delta_and_slope(direction, np.exp(candidates))[0] for direction in Direction)
    )
    below = np.flatnonzero(worst <= tail)
    if not below.size:
        raise NumericalError(f"a privacy curve does not fall below {tail:.3g}")
    return float(candidates[below[0]])


def _convex(points: FloatArray, values: FloatArray) -> FloatArray:
    """The greatest convex minorant of values at non-uniform points."""
    widths = np.diff(points)
    slopes = np.diff(values) / widths
    if np.all(np.diff(slopes) >= 0):
        return values
    from scipy.optimize import isotonic_regression  # rarely needed, and slow to import

    fitted = isotonic_regression(slopes, weights=widths).x
    return values[0] + np.append(0.0, np.cumsum(fitted * widths))
