"""Lower bounds on δ of a window under replace-one, from events under one attack.

`event_lines` returns `Lines` K ↦ P(E) − K·P'(E), which lie below δ at every K ≥ 1, whatever the
event E. `under_lines` returns a lower `PolygonCurve` from the largest of these lines. `replace_one`
uses these lines and curves for its blocks; this module builds on `replace_one_capped`,
`replace_one_grids` and `replace_one_steps`. docs/design/replacement.md has the proofs ("Lines of
events"); the notation is that of `replace_one_steps`.

**Event.** Let g be a score of one step that rises with Y = X − K₀·X', with values on a lattice, and
E = {Σg > τ}. P(E) is the same whichever of the t steps the client takes part in: the mass above τ
of one step with the client's record and t − 1 steps without the client. So one Fourier transform
gives the lines of all τ. The score is Y itself, rounded to the lattice and clipped; E then has
nearly the largest line at K₀. A few K₀ are enough, since the line falls below δ only by about the
square of the distance from K₀.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from turnout.accounting.divergence.curves import PolygonCurve, Side
from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    GaussianPair,
    LaplacePair,
    tail_rounding,
)
from turnout.accounting.participation.antithetic import (
    antithetic_event,
)
from turnout.accounting.participation.replace_one_capped import (
    Outline,
    bins_of,
    frame_of,
    outlined,
    unit_of,
)
from turnout.accounting.participation.replace_one_grids import MassGrid, half_line_masses
from turnout.accounting.participation.replace_one_steps import (
    AntitheticStep,
    SumFrame,
)
from turnout.core.arrays import FloatArray

_LEAST_TAIL = 1e-200  # cells above the event of this probability are merged into one cell
_REACH, _DEVIATIONS = 1.5, 20.0  # range of scores: distances to the threshold, and deviations
_TRIES, _CLOSE, _UNLIKELY = 3, 0.3, 1e-3  # windows, and by how much a guess may be too high
_BISECTED_LOG2 = 13  # most bins where thresholds take a bisection
_LEAST_FALL = 1e-290  # difference of slopes below which two lines do not cross
_ROUNDINGS = 32.0 * UNIT_ROUNDOFF  # relative rounding of a line's two terms, and of a product


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Lines K ↦ height − slope·K, each of which lies below δ(K) at every K ≥ 1.

    Attributes:
        heights, slopes: height and slope of each line, shape (n,) each.
    """

    heights: FloatArray
    slopes: FloatArray

    def at(self, k: FloatArray) -> FloatArray:
        """Values of all n lines at each K, rounded down, shape (m, n) for ``k`` of shape (m,)."""
        return _lowered(self.heights, self.slopes, k[:, None])


_NO_LINES = Lines(np.zeros(1), np.zeros(1))


@dataclass(frozen=True, slots=True)
class Part:
    """Participation of the client in a window.

    Attributes:
        count: t, steps of the window, at least 2.
        probability: p₀, the probability that the client takes part at all.
        infinity_mass: ℓ, probability of an output that only the client's participation can produce.
    """

    count: int
    probability: float
    infinity_mass: float


def event_lines(
    step: AntitheticStep, part: Part, near: FloatArray, guess: float | None, refinement: int
) -> Lines:
    """Lines that are close to δ, from below, at each K of ``near``.

    Args:
        step: one step at K₀, which is close to the K of ``near``; the score of an output is the
            value of Y.
        part: participation in the window.
        near: values of K ≥ 1, shape (m,).
        guess: estimate of the excess E[(ΣY − c₀)₊]/t at K₀; None if there is none.
        refinement: level of the lattice, at least 0; each level halves the lattice's step.
    """
    count, kept = part.count, part.probability * (1.0 - part.infinity_mass)
    threshold = count * (step.k - 1.0) * (1.0 - part.probability) / kept
    cap = _cap(step, count, threshold)
    if not cap > threshold / count:  # no sum of scores reaches the threshold
        return _NO_LINES
    outline = Outline.of(step, count, threshold, cap)
    if guess is None:
        guess = outlined(step, count, threshold, None, refinement)[1]
    here = np.array([step.k])
    lines = _NO_LINES
    for _ in range(_TRIES):
        # Tilt and window. Mass outside the window adds an error of 1, not 1/(eθ), times the mass,
        # and K times as much under P'.
        worth = guess / (4.0 * step.k * max(1.0, math.e * count * outline.tilt))
        frame = frame_of(outline, count, threshold, worth)
        bins = bins_of(frame, count, refinement)
        if not isinstance(step.pair, GaussianPair | LaplacePair):  # thresholds by bisection
            bins = min(bins, 1 << _BISECTED_LOG2 + refinement)
        scores = _Scores.of(step, frame, bins)
        lines = _all_lines(scores, part, frame)
        # A guess that was far too high made the window too narrow.
        found = max(float(lines.at(here).max()) / part.probability, _UNLIKELY * guess)
        if found > _CLOSE * guess:
            break
        guess = found
    # The largest line at each K.
    best = np.unique(np.argmax(lines.at(near), axis=1))
    return Lines(lines.heights[best], lines.slopes[best])


def _all_lines(scores: _Scores, part: Part, frame: SumFrame) -> Lines:
    """Lines of the events {sum of scores > τ}, one line for each threshold τ on the lattice."""
    # Lower bounds on masses under P, upper bounds on masses under P' and Q.
    count, kept = part.count, part.probability * (1.0 - part.infinity_mass)
    up, down = math.exp(count * scores.error), math.exp(-count * scores.error)
    absent = (scores.absent, count - 1)
    under_p = half_line_masses([absent, (scores.present, 1)], Side.LOWER, frame) * down
    under_other = half_line_masses([absent, (scores.elsewhere, 1)], Side.UPPER, frame) * up
    heights, slopes = part.probability * part.infinity_mass + kept * under_p, kept * under_other
    if part.probability == 1.0:
        return Lines(heights, slopes)
    # Without the client both worlds are alike.
    without = half_line_masses([(scores.absent, count)], Side.UPPER, frame) * up
    alike = (1.0 - part.probability) * without
    return Lines(heights + alike, slopes + alike)


def _cap(step: AntitheticStep, count: int, threshold: float) -> float:
    """Largest score; all values of Y above it are clipped to this score."""
    distance = threshold - count * step.mean
    deviation = math.sqrt(count) * unit_of(step)
    return min(step.mean + _REACH * distance + _DEVIATIONS * deviation, step.top)


class _Scores(NamedTuple):
    """Distributions of the score of one step under Q, P and P'.

    Attributes:
        absent, present, elsewhere: masses on the lattice under Q, P and P'. Tails under P may be
            smaller than the true tails, tails under P' larger.
        error: bound on the relative rounding errors of tails and of differences of tails.
    """

    absent: MassGrid
    present: MassGrid
    elsewhere: MassGrid
    error: float

    @classmethod
    def of(cls, step: AntitheticStep, frame: SumFrame, bins: int) -> _Scores:
        """Distributions of Y, clipped to the range of the frame and rounded to a lattice."""
        # Tails {Y > b} at the edges b of the cells, as far as they are not tiny.
        gap = (frame.below + frame.above) / (bins - 4)
        cells = max(math.ceil((frame.high - frame.low) / gap), 1)
        edges = frame.low + gap * (0.5 + np.arange(1, cells, dtype=np.float64))
        tails = [_falling(tail) for tail in event_masses(step, edges)]
        kept = int(np.sum(np.minimum.reduce(tails) > _LEAST_TAIL))
        # Masses are differences of tails; the lowest cell has all that lies below, the highest
        # all that lies above.
        present, elsewhere, absent = (
            MassGrid(frame.low + gap, gap, -np.diff(np.concatenate([[1.0], tail[:kept], [0.0]])))
            for tail in tails
        )
        least = min(float(tail[kept - 1]) for tail in tails) if kept else 1.0
        error = UNIT_ROUNDOFF * (24.0 - 8.0 * math.log(least))
        return cls(absent, present, elsewhere, error)


def event_masses(step: AntitheticStep, c: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Masses of the nested events {Y > c} under P, under P' and under Q, shape of ``c`` each.

    The mass under P may be smaller than the true mass, and the mass under P' larger. Rounding
    errors, which `pairs.tail_rounding` bounds, are not included.

    Args:
        step: one step at K = K₀.
        c: thresholds of Y, increasing, shape (n,).
    """
    threshold, other = step.thresholds(c)
    if isinstance(step.pair, GaussianPair):
        # An event {score > z} of a normal score, whose mean is μ under P and −μ under P'.
        z, mu = step.pair.scores(threshold)[0], step.pair.mu
        return ndtr(mu - z), ndtr(-mu - z), ndtr(-z)
    present, elsewhere, share = antithetic_event(step.pair, threshold, other)
    # The Q-mass of {X' ≤ κ} rounds too, which matters where E contains a part of an atom.
    parted = share != step.pair.q_below(other)
    extra = 1.01 * other * tail_rounding(share)
    return present, np.where(parted, elsewhere + extra, elsewhere), share


def _falling(tails: FloatArray) -> FloatArray:
    """Tails of nested events, clipped to [0, 1] and raised where the next tail is larger."""
    return np.maximum.accumulate(np.clip(tails, 0.0, 1.0)[::-1])[::-1]


def under_lines(lines: Sequence[Lines], near: FloatArray, floor: float) -> PolygonCurve:
    """Lower curve whose value at each K is the largest of the floor and of given lines.

    Args:
        lines: lines below δ; only those that are the largest at some K of ``near`` are used.
        near: increasing values of K, the first at least 1, shape (m,).
        floor: lower bound on δ at every K.
    """
    heights = np.concatenate([part.heights for part in lines])
    slopes = np.concatenate([part.slopes for part in lines])
    floor = max(floor, float(heights[slopes == 0].max(initial=0.0)))
    every, floor_at = Lines(np.append(heights, floor), np.append(slopes, 0.0)), heights.size
    # The lines that are the largest somewhere, the steepest first and the floor last.
    best = np.unique(np.append(np.argmax(every.at(near), axis=1), floor_at))
    kept = _envelope(every.heights[best], every.slopes[best])
    heights, slopes = every.heights[best][kept], every.slopes[best][kept]
    # Where neighbours cross. The polygon lies below both lines there, so below one in between.
    crossing = np.maximum((heights[:-1] - heights[1:]) / (slopes[:-1] - slopes[1:]), 1.0)
    nodes = np.append(1.0, np.maximum.accumulate(crossing))
    values = _lowered(heights, slopes, nodes)
    values[1:] = np.minimum(values[1:], _lowered(heights[:-1], slopes[:-1], nodes[1:]))
    nodes, first = np.unique(nodes, return_index=True)
    return _positive(nodes, np.minimum(np.minimum.reduceat(values, first), 1.0))


def _envelope(heights: FloatArray, slopes: FloatArray) -> list[int]:
    """Indices of the lines height − slope·K that are the largest somewhere, the steepest first."""
    kept: list[int] = []
    for i in np.lexsort((heights, -slopes)):
        while kept:
            last = kept[-1]
            fall, rise = slopes[last] - slopes[i], heights[last] - heights[i]
            # Drop a line that is nowhere the largest: where it crosses the line before it, the new
            # line is above both.
            if fall > _LEAST_FALL and len(kept) > 1:
                before = kept[-2]
                over = (heights[before] - heights[last]) / (slopes[before] - slopes[last])
                if rise > over * fall:
                    break
            elif fall > _LEAST_FALL:
                break
            kept.pop()
        kept.append(int(i))
    return kept


def _positive(nodes: FloatArray, values: FloatArray) -> PolygonCurve:
    """Polygon that stays at 0 from the point at which the given polygon becomes negative."""
    negative = np.flatnonzero(values < 0)
    if not negative.size:
        return PolygonCurve(nodes, values)
    end = int(negative[0])
    if end == 0:
        return PolygonCurve(np.array([1.0, 2.0]), np.zeros(2))
    share = values[end - 1] / (values[end - 1] - values[end])
    root = nodes[end - 1] + share * (nodes[end] - nodes[end - 1]) * (1.0 - _ROUNDINGS)
    return PolygonCurve(np.append(nodes[:end], root), np.append(values[:end], 0.0))


def _lowered(heights: FloatArray, slopes: FloatArray, k: FloatArray) -> FloatArray:
    """Values height − slope·K, rounded down."""
    return heights - slopes * k - _ROUNDINGS * (heights + slopes * k)
