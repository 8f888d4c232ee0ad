"""Hockey-stick curves: δ as a function of K = e^ε in one direction.

A curve is convex and decreasing in K with slope in [−1, 0]. Curves are stated for K ≥ 1; below
1 the other direction gives H_K(P‖Q) = 1 − K + K·H_{1/K}(Q‖P) (see `composition`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.core import checks
from turnout.core.errors import NumericalError
from turnout.schemes.parameters import hold_members

FloatArray = np.ndarray
_LARGEST_RATIO = 1e290  # where K of a diluted curve would overflow, δ is 0 to three hundred digits
_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-7, 10.0, 900), np.arange(10.1, 600.0, 0.1)])


class Direction(StrEnum):
    """Which of the two worlds the adversary gains from."""

    REMOVE = "remove"
    """H_K(P‖Q): the client is present, and an event is likelier for it."""
    ADD = "add"
    """H_K(Q‖P): the client is absent, and an event is likelier for it."""


class Side(StrEnum):
    """On which side of the truth a computed curve lies."""

    UPPER = "upper"
    LOWER = "lower"


class Curve(Protocol):
    """δ(K) in one direction, on one proved side of the truth or exact."""

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, same shape."""
        ...

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1, same shape."""
        ...


@dataclass(frozen=True, slots=True)
class PairCurve:
    """The curve of one dominating pair (no amplification), exact but for rounding."""

    pair: Pair
    direction: Direction
    side: Side

    def __post_init__(self) -> None:
        hold_members(self, direction=Direction, side=Side)

    def delta(self, k: FloatArray) -> FloatArray:
        """H_K(P‖Q) or H_K(Q‖P)."""
        if self.direction is Direction.REMOVE:
            value, error = hockey_stick(self.pair, k), hockey_stick_rounding(self.pair, k)
        else:
            value, error = (
                k * reverse_hockey_stick(self.pair, 1.0 / k),
                k * reverse_hockey_stick_rounding(self.pair, 1.0 / k),
            )
        return np.clip(value + error if self.side is Side.UPPER else value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """−Q(X > K), or −P(X < 1/K)."""
        if self.direction is Direction.REMOVE:
            return -self.pair.q_above(k)
        return -self.pair.p_below(1.0 / k)


@dataclass(frozen=True, slots=True)
class DilutedCurve:
    """The curve of (1 − p) Q + p P against Q: the client comes with probability p only.

    Source: accounting.md, "Check-in probability": X becomes (1 − p) + pX. Exact.
    """

    base: Curve
    direction: Direction
    probability: float

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1."""
        if self.direction is Direction.REMOVE:
            return self.probability * self.base.delta(self._undiluted(k))
        weight, alive, _, inner = self._weighed(k)
        return np.where(alive, weight * self.base.delta(inner), 0.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        p = self.probability
        if self.direction is Direction.REMOVE:
            return self.base.slope(self._undiluted(k))
        _, alive, safe, inner = self._weighed(k)
        chain = -(1.0 - p) * self.base.delta(inner) + self.base.slope(inner) * p / safe
        return np.where(alive, chain, 0.0)

    def _weighed(self, k: FloatArray) -> tuple[FloatArray, ...]:
        """Add: a weight, where it is positive, itself or 1, and the K of the base."""
        p = self.probability
        weight = p - (k - 1.0) * (1.0 - p)
        alive = weight > 0
        safe = np.where(alive, weight, 1.0)
        return weight, alive, safe, np.where(alive, k * p / safe, 1.0)

    def _undiluted(self, k: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return 1.0 + np.minimum((k - 1.0) / self.probability, _LARGEST_RATIO)


@dataclass(frozen=True, slots=True)
class InfinityMassCurve:
    """The curve of a pair of which P has some mass where Q has none: the infinity mass.

    δ = m + (1 − m)·δ'(K/(1 − m)) in the remove direction, δ'(K·(1 − m)) in the add
    direction, δ' being the curve of the ratio scaled to mean 1. Exact but for rounding, and for
    K·(1 − m) < 1 in the add direction; the infinity mass counts once, however many steps a window
    has, for the client takes part in one.
    """

    base: Curve
    direction: Direction
    side: Side
    infinity_mass: float

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1."""
        kept = 1.0 - self.infinity_mass
        if self.direction is Direction.REMOVE:
            rounding = 8.0 * UNIT_ROUNDOFF * (1.0 if self.side is Side.UPPER else -1.0)
            value = self.infinity_mass + kept * self.base.delta(k / kept)
            return np.minimum(value * (1.0 + rounding), 1.0)
        inner = k * kept
        # Below K = 1 the curve is at most 1 − K above its value at 1, and never below it.
        short = np.maximum(1.0 - inner, 0.0) if self.side is Side.UPPER else 0.0
        return np.minimum(self.base.delta(np.maximum(inner, 1.0)) + short, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        kept = 1.0 - self.infinity_mass
        if self.direction is Direction.REMOVE:
            return self.base.slope(k / kept)
        return kept * self.base.slope(np.maximum(k * kept, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class BestCurve:
    """The smallest of some upper curves, or the largest of some lower ones, at each K."""

    side: Side
    curves: Sequence[Curve]

    def _best(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        values = np.stack([curve.delta(k) for curve in self.curves])
        pick = np.argmin if self.side is Side.UPPER else np.argmax
        return values, np.expand_dims(pick(values, axis=0), 0)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1."""
        values, index = self._best(np.asarray(k, dtype=float))
        return np.take_along_axis(values, index, axis=0)[0]

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        _, index = self._best(np.asarray(k, dtype=float))
        slopes = np.stack([curve.slope(k) for curve in self.curves])
        return np.take_along_axis(slopes, index, axis=0)[0]


def running_sums(values: FloatArray, direction: Direction) -> FloatArray:
    """Sums from each value on (remove) or before it (add), and one for none of them."""
    if direction is Direction.REMOVE:
        return np.append(np.cumsum(values[::-1])[::-1], 0.0)
    return np.append(0.0, np.cumsum(values))


def with_infinity_mass(
    base: Curve, direction: Direction, side: Side, infinity_mass: float
) -> Curve:
    """``base`` itself where there is no infinity mass."""
    return base if infinity_mass == 0.0 else InfinityMassCurve(base, direction, side, infinity_mass)


def diluted(base: Curve, direction: Direction, probability: float) -> Curve:
    """``base`` itself where the client surely comes."""
    return base if probability == 1.0 else DilutedCurve(base, direction, probability)


def epsilon_at(curve: Curve, delta: float, side: Side, near: float = 0.0) -> float:
    """The ε at which a curve reaches δ, on the private side of the root.

    That is, of an upper curve an ε with curve(ε) ≤ δ, of a lower one the largest ε found with
    curve(ε) > δ, or 0. A curve that is sharp ``near`` an ε only is looked at more closely below it.

    Raises:
        NumericalError: an upper curve that does not come down to δ (below its error floor).
    """
    side = checks.choice(Side, side=side)
    closely = near * (1.0 - np.geomspace(1e-6, 0.5, 60)) if near > 0 else []
    epsilons = np.sort(np.concatenate([_EPSILONS, closely]))
    epsilons = epsilons[np.diff(epsilons, prepend=-1.0) > 0]
    values = curve.delta(np.exp(epsilons))
    if np.isnan(values).any():
        raise NumericalError("a privacy curve is not a number")
    # The true curve decreases. Far from where it was made sharp a computed one need not, but
    # one point below δ (above, for a lower curve) already proves the bound.
    if side is Side.UPPER:
        below = np.flatnonzero(values <= delta)
        if not below.size:
            raise NumericalError(f"delta = {delta:.3g} lies below what can be certified here")
        index = int(below[0])
    else:
        index = int(np.flatnonzero(values > delta)[-1]) + 1 if (values > delta).any() else 0
    if index in (0, epsilons.size):
        return float(epsilons[min(index, epsilons.size - 1)])
    low, high = float(epsilons[index - 1]), float(epsilons[index])
    while high - low > 1e-12 + 1e-9 * high:
        between = np.linspace(low, high, 34)[1:-1]
        above = curve.delta(np.exp(between)) > delta
        first = int(np.argmin(above)) if not above.all() else between.size
        low, high = (
            float(between[first - 1]) if first > 0 else low,
            float(between[first]) if first < between.size else high,
        )
    rounding = 4 * UNIT_ROUNDOFF * (1.0 + high)  # of K = e^ε
    return high + rounding if side is Side.UPPER else max(low - rounding, 0.0)
