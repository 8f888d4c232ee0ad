"""One shuffle of one message a client, as a block of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.accounting.curves import Curve, Direction, Side
from turnout.accounting.losses import CurvePair
from turnout.accounting.polygons import (
    PricedSide,
    nodes_down_to,
    nodes_near,
    upper_polygon,
)
from turnout.accounting.shuffling.blanket import BlanketPair
from turnout.accounting.shuffling.blanket_curve import BlanketCurve
from turnout.core import checks
from turnout.core.errors import UnsupportedError

FloatArray = np.ndarray
_SINGLE, _COMPOSED, _ROUGH = 256, 128, 16  # groups of one round, of many, to place K's by
_DENSITY = 40.0  # K's a standard deviation of the loss, for a curve to be composed
_CLOSE = 0.01  # how close about δ's root K's lie, of two that enclose it
_REACHED = 0.9  # the part of the δ at which curves may be cut off down to which they are made
_ROUNDING = 1e-8  # of slopes, and of points between nodes
_LARGEST_LOCAL_EPSILON = 140.0  # from which on roots may lie too far away for `polygons`


@dataclass(frozen=True, slots=True)
class BlanketBlock:
    """One round of n shuffled messages, by blanket pairs; the same in both directions.

    Attributes:
        upper: a pair that is worth at least as much as any two records of the victim.
        clients: n ≥ 1.
        lower: a pair that somebody attains, or None where none is known.
    """

    upper: BlanketPair
    clients: int
    lower: BlanketPair | None = None

    def __post_init__(self) -> None:
        checks.count(clients=self.clients)

    @property
    def spread(self) -> float:
        """About the standard deviation of the likelihood ratio, at most 1."""
        return _spread(self.upper, self.clients)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The same curve in both directions, through few K's of which two enclose δ's.

        Raises:
            UnsupportedError: a lower curve where no pair is attained.
        """
        return _near(self._pair(side), self.clients, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The same curve in both directions, sharp from 1 down to δ.

        Raises:
            UnsupportedError: a lower curve where no pair is attained.
        """
        curve = _down_to(self._pair(side), self.clients, side, delta, refinement)
        return CurvePair(side, [curve], [curve])

    def _pair(self, side: Side) -> BlanketPair:
        if side is Side.UPPER:
            return self.upper
        if self.lower is None:
            raise UnsupportedError("nobody is known to attain this bound on shuffled messages")
        return self.lower


def _spread(pair: BlanketPair, clients: int) -> float:
    return min(1.0, (pair.high - pair.low) * math.sqrt(2.0 / (clients * pair.share)))


@lru_cache(maxsize=256)
def _near(pair: BlanketPair, clients: int, side: Side, delta: float, refinement: int) -> Curve:
    groups = _SINGLE << refinement
    curve = BlanketCurve(pair, clients, side, groups)
    if pair.local_epsilon > _LARGEST_LOCAL_EPSILON:
        return curve
    nodes = _closer(curve, delta, nodes_near(_priced(curve), side, delta, _spread(pair, clients)))
    return _polygon(pair, clients, side, nodes, groups)


@lru_cache(maxsize=256)
def _down_to(pair: BlanketPair, clients: int, side: Side, delta: float, refinement: int) -> Curve:
    groups, density = _COMPOSED << refinement, _DENSITY * 2**refinement
    curve = BlanketCurve(pair, clients, Side.UPPER, _ROUGH)
    if pair.local_epsilon > _LARGEST_LOCAL_EPSILON:
        if side is Side.UPPER:
            return BlanketCurve(pair, clients, side, groups)
        nodes = np.exp(np.linspace(0.0, pair.local_epsilon, int(20 * density)))
    else:
        spread = _spread(pair, clients)
        nodes = nodes_down_to(_priced(curve), _REACHED * delta, spread, density)
    return _polygon(pair, clients, side, nodes, groups)


def _closer(curve: BlanketCurve, delta: float, nodes: FloatArray) -> FloatArray:
    """More K's about the one at which a curve reaches δ, by a chord of ln δ over ε."""
    values = np.maximum(curve.delta(nodes), 1e-300)
    index = int(np.argmax(values <= delta))
    if index == 0 or values[index - 1] <= delta:
        return nodes
    epsilons, logs = np.log(nodes[index - 1 : index + 1]), np.log(values[index - 1 : index + 1])
    targets = math.log(delta) - (logs[1] - logs[0]) * np.array([-_CLOSE, 0.0, _CLOSE])
    between = np.interp(-targets, -logs, epsilons)
    return np.unique(np.concatenate([nodes, np.exp(between)]))


def _priced(curve: BlanketCurve) -> PricedSide:
    """One K after the other."""

    def priced(k: float, _: Side) -> float:
        return float(curve.delta(np.array(k)))

    return priced


def _polygon(pair: BlanketPair, clients: int, side: Side, nodes: FloatArray, groups: int) -> Curve:
    """The polygon through computed points, and 0 at e^{ε₀} from above."""
    curve = BlanketCurve(pair, clients, side, groups)
    if side is Side.LOWER:
        return _under_tangents(nodes, *curve.delta_and_slope(nodes))
    alone = math.exp(pair.local_epsilon * (1.0 + 1e-14))
    inside = nodes[nodes < alone]
    return upper_polygon(np.append(inside, alone), np.append(curve.delta(inside), 0.0))


def _under_tangents(nodes: FloatArray, values: FloatArray, slopes: FloatArray) -> Curve:
    """A polygon of which each side lies on or below the tangent at a node, 0 at the end."""
    gaps, apart = np.diff(nodes), np.diff(slopes)
    crossing = values[:-1] - values[1:] + slopes[1:] * gaps
    crossing = np.where(apart > 0, crossing / np.where(apart > 0, apart, 1.0), 0.5 * gaps)
    crossing = np.clip(crossing, 0.0, gaps)
    left = values[:-1] + slopes[:-1] * (1.0 + _ROUNDING) * crossing
    right = values[1:] - slopes[1:] * (1.0 - _ROUNDING) * (gaps - crossing)
    last = -values[-1] / slopes[-1] if slopes[-1] < 0 else 0.0
    ends = [nodes[-1] + last * (1.0 - _ROUNDING)]
    points = np.concatenate([nodes[:1], nodes[:-1] + crossing, ends])
    values = np.concatenate([values[:1], np.minimum(left, right), [0.0]])
    points, first = np.unique(points, return_index=True)
    # The convex polygon below these points, whose sides only move down.
    return upper_polygon(points, np.maximum(values[first], 0.0) * (1.0 - _ROUNDING))
