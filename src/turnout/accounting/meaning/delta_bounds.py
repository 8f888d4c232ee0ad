"""Bounds on one direction's δ as a function of ε, at some ε and everywhere between them.

δ(K), K = e^ε ≥ 1, is convex and decreasing with slope in [−1, 0]. Everything that is done to
computed bounds here follows from that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_ROUNDING = 16.0 * UNIT_ROUNDOFF  # more than a sum of two positive products errs by


@dataclass(frozen=True, eq=False)
class DeltaBounds:
    """Bounds on one decreasing, convex δ(K) at increasing ε, shape ``(n,)`` each, n ≥ 2.

    The first ε is 0; ``upper`` is decreasing and convex in K.

    Raises:
        NumericalError: bounds that are not ordered.
    """

    epsilons: FloatArray
    lower: FloatArray
    upper: FloatArray

    def __post_init__(self) -> None:
        if not np.all(self.lower <= self.upper):  # also where one of them is not a number
            raise NumericalError("bounds of a privacy profile are not ordered")

    @classmethod
    def of(cls, epsilons: FloatArray, lower: FloatArray, upper: FloatArray) -> DeltaBounds:
        """Bounds sharpened by what every δ(K) obeys: it decreases and is convex."""
        upper = np.minimum.accumulate(upper)
        lower = np.maximum.accumulate(lower[::-1])[::-1]
        return cls(epsilons, lower, _convex_minorant(np.exp(epsilons), upper))

    def __or__(self, other: DeltaBounds) -> DeltaBounds:
        """Bounds on the larger of two, at the same ε."""
        lower, upper = np.maximum(self.lower, other.lower), np.maximum(self.upper, other.upper)
        return DeltaBounds(self.epsilons, lower, upper)

    @property
    def ratios(self) -> FloatArray:
        """K = e^ε, shape ``(n,)``."""
        return np.exp(self.epsilons)

    def at(self, epsilon: float) -> Bounds:
        """Bounds at any ε ≥ 0; between the ε's by chords from above and `polygon` from below."""
        known = np.flatnonzero(self.epsilons == epsilon)
        if known.size:
            return Bounds(float(self.lower[known[0]]), float(self.upper[known[0]]))
        ratio, last = math.exp(epsilon), self.ratios[-1]
        before, after = max(ratio * (1.0 - _ROUNDING), 1.0), ratio * (1.0 + _ROUNDING)
        upper = _on_chords(np.array([min(before, last)]), self.ratios, self.upper)
        lower = 0.0 if after >= last else float(np.interp(after, *self.polygon))
        return Bounds(max(lower * (1.0 - _ROUNDING), 0.0), min(float(upper[0]), 1.0))

    @cached_property
    def polygon(self) -> tuple[FloatArray, FloatArray]:
        """K and δ of the corners of a polygon that nowhere exceeds δ(K); 0 beyond the last.

        A convex function lies above each of its chords *outside* of it. So in the cell from K_i
        to K_{i+1} two lines lie below δ: from (K_{i−1}, upper) through (K_i, lower), and from
        (K_{i+2}, upper) through (K_{i+1}, lower). Slopes are held in [−1, 0], which covers the
        first and the last cell.
        """
        ratios, lower, upper = self.ratios, self.lower, self.upper
        width = np.diff(ratios)
        falls = np.maximum((lower[1:] - upper[:-1]) / width, -1.0)
        from_left = np.append(-1.0, falls[:-1])
        rises = np.minimum((upper[1:] - lower[:-1]) / width, 0.0)
        from_right = np.append(rises[1:], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = (lower[1:] - lower[:-1] - from_right * width) / (from_left - from_right)
        crossing = np.clip(np.nan_to_num(crossing), 0.0, width)
        steps = np.stack([np.zeros_like(width), crossing, width], axis=1)
        left = lower[:-1, None] + from_left[:, None] * steps
        right = lower[1:, None] - from_right[:, None] * (width[:, None] - steps)
        steepest = np.maximum(-from_left, -from_right) * ratios[1:]
        rounding = _ROUNDING * (lower[:-1] + steepest)[:, None]
        corners = np.maximum(np.maximum(left, right) - rounding, 0.0)
        places = (ratios[:-1, None] + steps).ravel()
        return np.append(places, ratios[-1]), np.append(corners.ravel(), 0.0)


def _on_chords(at: FloatArray, ratios: FloatArray, values: FloatArray) -> FloatArray:
    """The polygon through (ratios, values) at some K within it, rounded up.

    A convex combination of two positive numbers, so that small values keep all their digits.
    """
    right = np.clip(np.searchsorted(ratios, at, side="left"), 1, ratios.size - 1)
    share = (at - ratios[right - 1]) / (ratios[right] - ratios[right - 1])
    rest = (ratios[right] - at) / (ratios[right] - ratios[right - 1])
    return (rest * values[right - 1] + share * values[right]) * (1.0 + _ROUNDING)


def _convex_minorant(ratios: FloatArray, values: FloatArray) -> FloatArray:
    """The greatest convex function under some points, at these points, rounded up."""
    corners: list[int] = []
    for i in range(ratios.size):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            before = (values[b] - values[a]) * (ratios[i] - ratios[b])
            if before < (values[i] - values[b]) * (ratios[b] - ratios[a]):
                break
            corners.pop()
        corners.append(i)
    return np.minimum(values, _on_chords(ratios, ratios[corners], values[corners]))
