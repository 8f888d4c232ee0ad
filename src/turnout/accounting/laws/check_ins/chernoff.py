"""Exponential moments of a likelihood ratio: to choose grids by, and to bound what they miss.

Spreading a law onto fewer points makes it larger in convex order, and e^{sx} is convex: a few
hundred points bound the moments of a law on a million, and show where its sum lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.composition import log_sums
from turnout.accounting.divergence.pairs import Pair, hockey_stick, reverse_hockey_stick

FloatArray = np.ndarray
_POINTS = 160
_LARGEST_EXPONENT = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class CoarseLaw:
    """The law of X ∧ cap spread onto few points."""

    points: FloatArray
    masses: FloatArray

    @classmethod
    def of_pair(cls, pair: Pair, cap: float) -> CoarseLaw:
        """Few points, dense where the law is and near the cap; its masses are made to sum to 1."""
        low, middle, high = (_quantile(pair, mass) for mass in (1e-9, 0.01, 0.99))
        low = min(low, 0.01 * cap)
        points = [
            np.zeros(1),
            np.geomspace(low, cap, _POINTS),
            np.linspace(0.0, cap, _POINTS // 2)[1:-1],
            np.linspace(middle, high, _POINTS // 4),
        ]
        points = np.sort(np.minimum(np.concatenate(points), cap))
        points = points[np.diff(points, prepend=-1.0) > 0]
        # Prices below 1 come from reverse hockey sticks, above from hockey sticks: their
        # differences keep digits there.
        split = int(np.searchsorted(points, 1.0, side="right"))
        low, high = points[:split], points[max(split - 1, 0) :]
        reverse_hockey_sticks = np.diff(reverse_hockey_stick(pair, low)) / np.diff(low)
        hockey_sticks = np.diff(hockey_stick(pair, high)) / np.diff(high)
        masses = np.concatenate(
            [
                np.diff(reverse_hockey_sticks, prepend=0.0),
                [
                    1.0
                    + (hockey_sticks[0] if hockey_sticks.size else 0.0)
                    - (reverse_hockey_sticks[-1] if reverse_hockey_sticks.size else 0.0)
                ],
                np.diff(hockey_sticks, append=0.0) if hockey_sticks.size else [],
            ]
        )
        masses = np.maximum(masses, 0.0)
        return cls(points, masses / masses.sum())

    def log_moments(self, s: FloatArray) -> FloatArray:
        """Ln E[e^{sX}] for each s."""
        alive = self.masses > 0
        return log_sums(self.points[alive], self.masses[alive], s)

    def capped_moments(
        self, s: FloatArray, caps: FloatArray, tails: FloatArray
    ) -> tuple[FloatArray, ...]:
        """About E[Yⁿ e^{sY}] for Y = X ∧ cap and n = 0, 1, 2, each of shape (caps, s).

        Infinite where s·cap is too large. Points are too far apart for ``tails``, Q(X > cap).
        """
        exponents = np.multiply.outer(self.points, s)
        weights = self.masses[:, None] * np.exp(np.minimum(exponents, _LARGEST_EXPONENT))
        last = np.searchsorted(self.points, caps, side="right")  # an atom may lie on the last
        heights = np.multiply.outer(caps, s)
        at_cap = tails[:, None] * np.exp(np.minimum(heights, _LARGEST_EXPONENT))
        moments = []
        for power in range(3):
            sums = np.cumsum(weights * self.points[:, None] ** power, axis=0)
            sums = np.concatenate([np.zeros((1, s.size)), sums])[last]
            moment = sums + at_cap * caps[:, None] ** power
            moments.append(np.where(heights < _LARGEST_EXPONENT, moment, np.inf))
        return tuple(moments)


def _quantile(pair: Pair, mass: float) -> float:
    """About the k with Q(X ≤ k) = ``mass``."""
    low, high = -60.0, 60.0
    for _ in range(4):
        logs = np.linspace(low, high, 33)
        after = int(np.searchsorted(pair.q_below(np.exp(logs)), mass))
        low, high = float(logs[max(after - 1, 0)]), float(logs[min(after, 32)])
    return math.exp(high)


def log_moment(points: FloatArray, masses: FloatArray, s: float) -> float:
    """Ln Σ mass·e^{s·point} of the very law that is used, rounded up."""
    exponents = s * points[masses > 0]
    masses = masses[masses > 0]
    top = float(exponents.max())
    return top + math.log(float(np.exp(exponents - top) @ masses)) + 1e-13 * (1.0 + abs(top))
