"""Shuffled binary response as curves and as a block of a run: exact for known others, else close.

docs/design/shuffling.md, "Binary response", says why; `responses.splits` computes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.polygons import (
    PricedSide,
    nodes_down_to,
    nodes_near,
    upper_polygon,
)
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.blanket.curve import BlanketCurve
from turnout.accounting.shuffling.blanket.pair import stronger_clones_pair
from turnout.accounting.shuffling.responses.splits import SplitPrices, split_prices, worst_split
from turnout.core import checks
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError

FloatArray = np.ndarray
_LARGEST_LOCAL_EPSILON, _LARGEST_KNOWN = 600.0, 300.0
FAR = 140.0
"""ε₀ from which on roots may lie too far away for `polygons`, and shuffling is no help."""
_ALL_SPLITS = 256  # others so few that every split is looked at
_LOOSE, _LOOSEST = 2e-3, 0.05  # relative width of a bracket on δ, as a multiple of 1 + z²
_DENSITY = 6.0  # nodes a standard deviation of a composed round's upper curve
_AHEAD = 1.001  # how far above the ε of the split that is mostly the worst the last K may lie
_REACHED = 0.9  # how far below the last δ a curve goes


@dataclass(frozen=True, slots=True)
class BinaryResponseCurve:
    """δ(K) of shuffled binary response where the others' bits are known, exact but for rounding.

    Source: docs/design/shuffling.md, "Binary response".

    Attributes:
        ones: how many of the n − 1 others hold a 1.
        direction: REMOVE: events that a victim who holds 1 makes likelier; ADD: one who holds 0.
        side: on which side rounding falls.

    >>> curve = BinaryResponseCurve(1.0, 100_000, 99_999, Direction.REMOVE, Side.LOWER)
    >>> f"{float(curve.delta(np.exp(0.01014))):.2e}"
    '1.00e-06'
    """

    local_epsilon: float
    clients: int
    ones: int
    direction: Direction
    side: Side

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(clients=self.clients)
        checks.count(0, ones=self.ones)
        if self.ones >= self.clients:
            raise ParameterError("ones", self.ones, f"at most clients - 1 = {self.clients - 1}")

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        if self.side is Side.LOWER:
            return self._prices(k).lower
        if self.local_epsilon > _LARGEST_KNOWN:
            raise UnsupportedError(f"bits are priced from above up to epsilon0 = {_LARGEST_KNOWN}")
        upper = self._prices(k).upper
        if np.isinf(upper).any():
            raise NumericalError("rounding hides which event tells two shuffled bits apart best")
        return upper

    def slope(self, k: FloatArray) -> FloatArray:
        """Minus the chance of the best event in the world in which it is less likely."""
        return self._prices(k).slope

    def _prices(self, k: FloatArray) -> SplitPrices:
        identical_others, opposed = self.ones, self.clients - 1 - self.ones
        if self.direction is Direction.ADD:
            identical_others, opposed = opposed, identical_others
        epsilon = min(self.local_epsilon, _LARGEST_KNOWN)
        return split_prices(epsilon, np.array(identical_others), np.array(opposed), k)


@dataclass(frozen=True, slots=True)
class Bits:
    """One message of each of n ≥ 1 clients, as private as shuffled binary response is."""

    local_epsilon: float
    clients: int

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """About the standard deviation of the likelihood ratio, at most 1."""
        half = min(0.5 * self.local_epsilon, 0.5 * _LARGEST_LOCAL_EPSILON)
        return min(1.0, 2.0 * math.sinh(half) / math.sqrt(self.clients))


@dataclass(frozen=True, slots=True)
class BinaryResponseBlock(Bits):
    """One round of shuffled binary response, whatever bits the others hold.

    UPPER is the supremum over all splits of the others at each K; the pair for any randomizers
    where rounding hides it, from some 1e9 clients on. LOWER is one split, all others
    identical_others: as REMOVE the direction in which they share the bit of the likelier world,
    mostly the worst one, as ADD the other.
    """

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """LOWER: exact at every K, in the worse direction. UPPER: sharp near one δ."""
        if side is Side.LOWER:
            return self._alike(Direction.REMOVE)
        return _near(self, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """LOWER: both directions of one split. UPPER: the same curve in both directions."""
        if side is Side.LOWER:
            return CurvePair(side, [self._alike(Direction.REMOVE)], [self._alike(Direction.ADD)])
        curve = _composed(self, delta, refinement)
        return CurvePair(side, [curve], [curve])

    def supremum(self, k: float, refinement: int) -> float:
        """The largest δ(K) over all splits of the others, from above."""
        return _supremum(self.local_epsilon, self.clients - 1, k, self.width(k, refinement))

    def width(self, k: float, refinement: int) -> float:
        """The relative width to which the supremum is found."""
        if self.clients - 1 <= _ALL_SPLITS:
            return 0.0
        deviations = math.log(k) / self.loss_deviation
        return min(_LOOSE * (1.0 + deviations**2), _LOOSEST) / 2**refinement

    def _alike(self, direction: Direction) -> Curve:
        others = self.clients - 1
        return BinaryResponseCurve(self.local_epsilon, self.clients, others, direction, Side.LOWER)


@remembered
def _supremum(local_epsilon: float, others: int, k: float, width: float) -> float:
    upper = worst_split(min(local_epsilon, _LARGEST_LOCAL_EPSILON), others, k, width)[1]
    if math.isinf(upper):
        pair = stronger_clones_pair(local_epsilon)
        return float(BlanketCurve(pair, others + 1, Side.UPPER).delta(np.array(k)))
    return upper


@remembered
def _near(block: BinaryResponseBlock, delta: float, refinement: int) -> Curve:
    """Sharp near δ: K's are placed by the split that mostly is the worst."""
    identical_others = block.curve(Direction.REMOVE, Side.LOWER, delta, refinement)

    def roughly(k: float, _: Side) -> float:
        return float(identical_others.delta(np.array(k))) * (1.0 + block.width(k, refinement))

    def priced(k: float, _: Side) -> float:
        return block.supremum(k, refinement)

    if block.local_epsilon > FAR:
        return through(priced, np.ones(1), block.local_epsilon)
    nodes = nodes_near(roughly, Side.UPPER, delta, block.loss_deviation)
    nodes = np.append(nodes, nodes[-1] ** _AHEAD)
    if priced(float(nodes[-1]), Side.UPPER) > delta:
        nodes = nodes_near(priced, Side.UPPER, delta, block.loss_deviation)
    return through(priced, nodes, block.local_epsilon)


@remembered
def _composed(block: BinaryResponseBlock, delta: float, refinement: int) -> Curve:
    def priced(k: float, _: Side) -> float:
        return block.supremum(k, refinement)

    if block.local_epsilon > FAR:
        return through(priced, np.ones(1), block.local_epsilon)
    density = _DENSITY * 2**refinement
    nodes = nodes_down_to(priced, _REACHED * delta, block.loss_deviation, density)
    return through(priced, nodes, block.local_epsilon)


def through(priced: PricedSide, nodes: FloatArray, local_epsilon: float) -> Curve:
    """The upper curve through computed points, none beyond ε₀, where nothing is left."""
    if local_epsilon > _LARGEST_LOCAL_EPSILON:
        return upper_polygon(np.array([1.0, math.exp(_LARGEST_LOCAL_EPSILON)]), np.ones(2))
    if nodes.size == 1 or math.log(nodes[-1]) > local_epsilon:
        end = math.exp(local_epsilon) * (1.0 + 1e-12)
        nodes = np.append(nodes[nodes < end], end)
    return upper_polygon(nodes, np.array([priced(float(k), Side.UPPER) for k in nodes]))
