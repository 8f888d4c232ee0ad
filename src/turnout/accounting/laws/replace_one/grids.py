"""The law of one step on a grid, above or below the true one in increasing convex order.

A law on a grid has a piecewise linear hockey stick. Any convex polygon above a step's price is a
law above it, any one below it a law below it. Rounding errors of prices move the polygon to its
side and are then done with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.convex_order import convex_slopes
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.laws.replace_one.frames import Frame
from turnout.accounting.laws.replace_one.steps import Step
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
MOST_CELLS_LOG2 = 21
_INSIDE = 4e-12  # part of the range by which a lower law's top stays inside it
_SHARE_MARGIN = 1e-6  # relative error of Q(Y > c), more than a threshold found by bisection makes


@dataclass(frozen=True, slots=True, eq=False)
class GridLaw:
    """Masses on ``first + step·j``; they add up to at most 1, the rest being at −∞."""

    first: float
    step: float
    masses: FloatArray

    @property
    def points(self) -> FloatArray:
        """The grid points."""
        return self.first + self.step * np.arange(self.masses.size)


@dataclass(frozen=True, slots=True)
class Tail:
    """The part above a cap M: bounds on E[(Y − M)₊] and Q(Y > M) from one side."""

    step: Step
    side: Side
    cap: float
    price: float
    share: float

    @classmethod
    def of(cls, step: Step, side: Side, cap: float) -> Tail:
        """Upper or lower bounds."""
        at = np.array([cap])
        if side is Side.UPPER:
            share = float(step.share(at)[0]) * (1.0 + _SHARE_MARGIN)
            return cls(step, side, cap, float(step.upper(at)[0]), share)
        value, slope = (float(part[0]) for part in step.tangent(at))
        return cls(step, side, cap, max(value, 0.0), -slope * (1.0 - _SHARE_MARGIN))

    def below(self, c: FloatArray) -> FloatArray:
        """E[(Y − c)₊; Y > M] for c ≤ M."""
        return self.price + (self.cap - c) * self.share

    def __call__(self, c: FloatArray) -> FloatArray:
        """E[(Y − c)₊; Y > M]."""
        result, beyond = self.below(c), c > self.cap
        if beyond.any():
            far = c[beyond]
            upper = self.side is Side.UPPER
            result[beyond] = self.step.upper(far) if upper else self.step.tangent(far)[0]
        return np.maximum(result, 0.0)


def grid_law(step: Step, side: Side, frame: Frame, bins: int, tail: Tail | None) -> GridLaw:
    """The law of Y capped at the frame's end, or without what jumps above it.

    It lies above or below by the side; the window of the frame's sum is covered by so many bins.
    ``tail`` is an *upper* bound on what jumps, to be left out; None to cap instead.
    """
    anchored = frame.is_heavy or tail is not None
    points, width, whole = _lattice(step, side, frame, bins, anchored=anchored)
    if side is Side.UPPER:
        polygon = step.upper(points)
    else:
        polygon = _lower_polygon(step, points, whole=whole)
    mass = 1.0
    if tail is not None:
        polygon, mass = polygon - tail.below(points), 1.0 - tail.share
        # Below, the last chord must end at the cap or before it, above, at the cap or after it.
        last = points if side is Side.UPPER else points + width
        polygon[last > tail.cap] = 0.0
        if side is Side.UPPER:
            polygon = np.maximum(polygon, 0.0)
    if side is Side.LOWER:
        polygon[-1] = 0.0
        negative = np.flatnonzero(polygon < 0)
        if negative.size:
            polygon[max(negative[0] - 1, 0) :] = 0.0
        polygon *= 1.0 - 16 * UNIT_ROUNDOFF
    slopes = np.clip(convex_slopes(np.diff(polygon)) / width, -mass, 0.0)
    # An upper law gathers in its first point what lies below, a lower law drops it.
    start = -mass if whole or side is Side.UPPER else slopes[0]
    masses = np.diff(slopes, prepend=start, append=0.0)
    return GridLaw(float(points[0]), width, masses)


def _lattice(
    step: Step, side: Side, frame: Frame, bins: int, *, anchored: bool
) -> tuple[FloatArray, float, bool]:
    """The points, their distance, and whether nothing lies below the first."""
    width = (frame.below + frame.above) / (bins - 4)
    if (frame.high - frame.low) / width > 1 << MOST_CELLS_LOG2:
        raise NumericalError("one step's ratios reach too far for a grid")
    whole = frame.low <= step.bottom
    if whole or frame.high >= step.top:  # atoms may sit at both ends
        cells = max(2, math.ceil((frame.high - frame.low) / width))
        inside = _INSIDE * (frame.high - frame.low) if side is Side.LOWER else 0.0
        width, first = (frame.high - frame.low - inside) / cells, frame.low
    else:
        anchor = _anchor(step, width) if anchored else frame.low + width
        below = max(1, math.ceil((anchor - frame.low) / width))
        cells = below + max(1, math.ceil((frame.high - anchor) / width))
        first = anchor - below * width
    return first + width * np.arange(cells + 1), width, whole


def _anchor(step: Step, width: float) -> float:
    """A point that is the mean of Y given that Y lies in the cell around it.

    Where the grid is wide, most of the mass may lie close to one point. With that point on
    the grid, spreading moves it least, and contracting need not move it at all.
    """
    anchor = 0.0
    for _ in range(12):
        edges = anchor + np.array([-0.5, 0.5]) * width
        values, slopes = step.tangent(edges)
        if slopes[1] <= slopes[0]:
            break
        crossing = (values[0] - slopes[0] * edges[0]) - (values[1] - slopes[1] * edges[1])
        before, anchor = anchor, float(np.clip(crossing / (slopes[1] - slopes[0]), *edges))
        if abs(anchor - before) < 1e-3 * width:
            break
    return anchor


def _lower_polygon(step: Step, points: FloatArray, *, whole: bool) -> FloatArray:
    """A polygon below the hockey stick: in each cell it lies under one line below the price.

    The line is the tangent in the middle, or at the right end where the price falls so steeply
    that the former would turn negative. The line of the last cell passes through its end, so
    that an atom there is kept. ``whole``: nothing lies below the first point, where the price is
    mean − c.
    """
    middles, half = 0.5 * (points[1:] + points[:-1]), 0.5 * (points[1] - points[0])
    values, slopes = step.tangent(middles)
    steep = np.flatnonzero(values + slopes * half < 0.5 * np.append(values[1:], 0.0))
    at_end, slopes[steep] = step.tangent(points[steep + 1])
    values[steep] = at_end - slopes[steep] * half
    slopes[-1] = step.tangent(points[-1:])[1][0]
    values[-1] = slopes[-1] * (middles[-1] - points[-1])
    if whole:
        slopes[0], values[0] = -1.0, step.mean - middles[0]
    left, right = values - slopes * half, values + slopes * half
    return np.concatenate([left[:1], np.minimum(right[:-1], left[1:]), right[-1:]])
