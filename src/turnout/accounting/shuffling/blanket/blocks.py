"""One shuffle of one message a client, as a block of a run, and the clones bound by it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.polygons import (
    PricedSide,
    nodes_down_to,
    nodes_near,
    upper_polygon,
)
from turnout.accounting.divergence.runs import run_epsilon
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.blanket.curve import BlanketCurve
from turnout.accounting.shuffling.blanket.pair import BlanketPair, clones_pair
from turnout.core import checks
from turnout.core.errors import UnsupportedError

FloatArray = np.ndarray
_SINGLE, _COMPOSED, _ROUGH = 256, 128, 16  # groups of one round, of many, to place K's by
_DENSITY = 40.0  # K's a standard deviation of the loss, for a curve to be composed
_CLOSE, _MOST_STEPS = 1e-4, 40  # relative width of the ε's that enclose a root, and tries
_REACHED = 0.9  # the part of the δ at which curves may be cut off down to which they are made
_ROUNDING = 1e-8  # of slopes, and of points between nodes
_LARGEST_LOCAL_EPSILON = 140.0  # from which on roots may lie too far away for `polygons`


@dataclass(frozen=True, slots=True)
class BlanketBlock:
    """One round of n shuffled messages, by blanket pairs; the same in both directions.

    Attributes:
        upper: a pair that is worth at least as much as any two records of the victim.
        lower: a pair that somebody attains, or None where none is known.
    """

    upper: BlanketPair
    clients: int
    lower: BlanketPair | None = None

    def __post_init__(self) -> None:
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """About the standard deviation of the likelihood ratio, at most 1."""
        return _loss_deviation(self.upper, self.clients)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The same curve in both directions, through few K's of which two enclose δ's."""
        return _near(self._pair(side), self.clients, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The same curve in both directions, sharp from 1 down to δ."""
        curve = _down_to(self._pair(side), self.clients, side, delta, refinement)
        return CurvePair(side, [curve], [curve])

    def _pair(self, side: Side) -> BlanketPair:
        if side is Side.UPPER:
            return self.upper
        if self.lower is None:
            raise UnsupportedError("nobody is known to attain this bound on shuffled messages")
        return self.lower


def _loss_deviation(pair: BlanketPair, clients: int) -> float:
    return min(1.0, (pair.high - pair.low) * math.sqrt(2.0 / (clients * pair.share)))


@remembered
def _near(pair: BlanketPair, clients: int, side: Side, delta: float, refinement: int) -> Curve:
    curve = BlanketCurve(pair, clients, side, _SINGLE << refinement)
    if pair.local_epsilon > _LARGEST_LOCAL_EPSILON:
        return curve
    rough = BlanketCurve(pair, clients, Side.UPPER, _ROUGH)
    guess = math.log(
        nodes_near(_priced(rough), Side.UPPER, delta, _loss_deviation(pair, clients))[-1]
    )
    return _polygon(pair, side, *_about(curve, delta, guess))


@remembered
def _down_to(pair: BlanketPair, clients: int, side: Side, delta: float, refinement: int) -> Curve:
    curve = BlanketCurve(pair, clients, side, _COMPOSED << refinement)
    density = _DENSITY * 2**refinement
    if pair.local_epsilon <= _LARGEST_LOCAL_EPSILON:
        rough = BlanketCurve(pair, clients, Side.UPPER, _ROUGH)
        loss_deviation = _loss_deviation(pair, clients)
        nodes = nodes_down_to(_priced(rough), _REACHED * delta, loss_deviation, density)
    elif side is Side.UPPER:
        return curve
    else:
        nodes = np.exp(np.linspace(0.0, pair.local_epsilon, int(20 * density)))
    return _polygon(pair, side, nodes, *curve.delta_and_slope(nodes))


def _priced(curve: BlanketCurve) -> PricedSide:
    """One K after the other."""

    def priced(k: float, _: Side) -> float:
        return float(curve.delta(np.array(k)))

    return priced


def _about(
    curve: BlanketCurve, delta: float, guess: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """K = 1 and K's that enclose the one at which a curve reaches δ; δ's and slopes there."""
    epsilons = guess * np.array([0.0, 0.94, 1.0, 1.03])
    values, slopes = curve.delta_and_slope(np.exp(epsilons))
    for _ in range(_MOST_STEPS):
        index = int(np.argmax(values <= delta)) if values[-1] <= delta else values.size
        if index == 0:
            break
        if index == values.size:
            more = epsilons[-1:] * 1.3
        elif epsilons[index] - epsilons[index - 1] <= _CLOSE * epsilons[index]:
            break
        else:
            more = _between(epsilons[index - 1 : index + 1], values[index - 1 : index + 1], delta)
        found = curve.delta_and_slope(np.exp(more))
        epsilons, first = np.unique(np.append(epsilons, more), return_index=True)
        values, slopes = np.append(values, found[0])[first], np.append(slopes, found[1])[first]
    return np.exp(epsilons), values, slopes


def _between(ends: FloatArray, values: FloatArray, delta: float) -> FloatArray:
    """Three ε's close about where ln δ, a straight line over ε², is reached between two."""
    logs = np.log(np.maximum(values, 1e-300))
    share = min(max((logs[0] - math.log(delta)) / max(logs[0] - logs[1], 1e-300), 0.0), 1.0)
    middle = math.sqrt(ends[0] ** 2 + share * (ends[1] ** 2 - ends[0] ** 2))
    aside = 0.02 * (ends[1] - ends[0])
    beside = np.array([middle - aside, middle, middle + aside])
    return np.clip(beside, ends[0] + aside, ends[1] - aside)


def _polygon(
    pair: BlanketPair, side: Side, nodes: FloatArray, values: FloatArray, slopes: FloatArray
) -> Curve:
    """The polygon by a curve's values at some K's, and 0 at e^{ε₀} from above."""
    if side is Side.LOWER:
        return _under_tangents(nodes, values, slopes)
    alone = math.exp(pair.local_epsilon * (1.0 + 1e-14))
    inside = nodes < alone
    return upper_polygon(np.append(nodes[inside], alone), np.append(values[inside], 0.0))


def _under_tangents(nodes: FloatArray, values: FloatArray, slopes: FloatArray) -> Curve:
    """A polygon of which each side lies on or below the tangent at a node, 0 at the end."""
    gaps = np.diff(nodes)
    # Each tangent is turned down about its node by what its slope may be rounded.
    right, left = slopes[:-1] * (1.0 + _ROUNDING), slopes[1:] * (1.0 - _ROUNDING)
    apart = left - right
    meet = values[:-1] - values[1:] + left * gaps
    # A little before they meet the later one is the lower, whatever the earlier one's rounding.
    meet = (1.0 - _ROUNDING) * meet / np.where(apart > 0, apart, 1.0)
    proper = (apart > 0) & (meet > 0) & (meet < gaps)
    meet = np.where(proper, meet, 0.5 * gaps)
    later = values[1:] - left * (gaps - meet)
    corners = np.where(proper, later, np.minimum(later, values[:-1] + right * meet))
    last = -values[-1] / slopes[-1] if slopes[-1] < 0 else 0.0
    points = np.concatenate([nodes[:1], nodes[:-1] + meet, [nodes[-1] + last * (1 - _ROUNDING)]])
    values = np.concatenate([values[:1], np.maximum(corners, 0.0), [0.0]])
    points, first = np.unique(points, return_index=True)
    # The convex polygon below these points, whose sides only move down.
    return upper_polygon(points, values[first] * (1.0 - _ROUNDING))


def clones_2021(local_epsilon: float, clients: int, delta: float, rounds: int = 1) -> float:
    """ε of shuffled ε₀-messages, composed over rounds, by the clones pair.

    Source: Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1, numerically: the
    smallest published bound for adaptive randomizers, which needs an order of speaking that is
    uniform and unknown to the adversary and to whoever chooses the next randomizer.
    `turnout.accounting.price` quotes `worst_pair`, up to 30 % less.

    Returns:
        ε under replace-one, never below the true one; hardly above r·ε₀, rounded up.

    >>> round(clones_2021(1.0, 100_000, 1e-6), 4)
    0.0153
    """
    return pair_epsilon(clones_pair(local_epsilon), clients, delta, rounds)


def pair_epsilon(pair: BlanketPair, clients: int, delta: float, rounds: int = 1) -> float:
    """ε of a blanket pair's messages, composed over rounds.

    Returns:
        ε in either direction, never below the pair's; hardly above r times the pair's own ε₀.
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    run = [(BlanketBlock(pair, clients), rounds)]
    amplified = run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, 0)
    return min(amplified, rounds * pair.local_epsilon * (1.0 + 8 * UNIT_ROUNDOFF))
