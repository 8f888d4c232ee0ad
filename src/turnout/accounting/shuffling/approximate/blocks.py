"""Shuffled messages of (ε₀, δ₀)-randomizers, Gaussian noise among them, as blocks of a run.

Neighbours differ in one client's record (replace-one). `approximate.price` has the bounds and
docs/design/shuffling.md ("Approximate randomizers") the proof.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import Block, PairBlock
from turnout.accounting.divergence.curves import Curve, Direction, Side, epsilon_at
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.polygons import PolygonCurve, upper_polygon
from turnout.accounting.divergence.runs import run_epsilon
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.approximate.price import ApproximatePrice, GaussianPrice
from turnout.core import checks
from turnout.core.errors import NumericalError, UnsupportedError

FloatArray = np.ndarray
_SINGLE, _COMPOSED = 256, 64  # groups of blanket messages for one round, for one of many
_ROUGH = 16  # and for a first guess
_COARSE, _DENSITY = 4.0, 20.0  # K's a standard deviation of the loss: to find a root, to compose
_CLOSE = 9.0  # standard deviations of the loss up to which K's lie close
_APART = 1.05  # and the ratio of ε's from there on
_ABOUT = np.array([0.8, 0.9, 0.96, 1.02, 1.1, 1.3])  # times about δ's ε, to enclose it by
_CLOSER = (0.02, 3e-3)  # relative distances of ε's about δ's, one after the other
_LARGEST_LOCAL_EPSILON = 600.0
_ROUNDING = 32 * UNIT_ROUNDOFF


class PricedMessages(ABC):
    """One round whose δ is priced from above at any K, the same in both directions."""

    __slots__ = ()

    @property
    @abstractmethod
    def loss_deviation(self) -> float:
        """About the standard deviation of the likelihood ratio, at most 1."""

    @property
    @abstractmethod
    def floor(self) -> float:
        """The δ below which no ε helps."""

    @abstractmethod
    def price(self, groups: int) -> ApproximatePrice | GaussianPrice:
        """The bound at any K."""

    @abstractmethod
    def end(self, delta: float) -> float:
        """The ε from which on nothing more is proved that matters at δ."""

    @abstractmethod
    def wide(self, refinement: int) -> Curve:
        """An upper curve for few K's that are not known beforehand."""

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The same polygon in both directions, sharp near one δ."""
        require_upper(side)
        return _near(self, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The same polygon in both directions, from 1 down to δ."""
        require_upper(side)
        curve = _down_to(self, delta, refinement)
        return CurvePair(side, [curve], [curve], (self.floor, self.floor))


@dataclass(frozen=True, slots=True)
class ApproximateMessagesBlock(PricedMessages):
    """One round of n shuffled messages of (ε₀, δ₀)-randomizers, from above.

    Randomizers may be chosen by the messages before, as long as the order of speaking is hidden.
    ε₀ is under replacement; above 600 it counts as 600.
    """

    epsilon0: float
    delta0: float
    clients: int

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0)
        checks.open_unit(delta0=self.delta0)
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """About the standard deviation of the likelihood ratio without infinity mass, at most 1."""
        half = min(0.5 * self.epsilon0, 300.0)
        return min(1.0, 2.0 * math.tanh(half), 2.0 * math.sinh(half) / math.sqrt(self.clients))

    @property
    def floor(self) -> float:
        """δ₀, below which no ε helps."""
        return min(self.delta0 * (1.0 + _ROUNDING), 1.0)

    def price(self, groups: int) -> ApproximatePrice:
        """The bound at any K."""
        return ApproximatePrice.of(self.epsilon0, self.delta0, self.clients, groups)

    def end(self, delta: float) -> float:
        """The ε from which on δ is δ₀."""
        return self.price(1).furthest

    def wide(self, refinement: int) -> Curve:
        """The price, which from where it would rise stays as it is."""
        return _falling(self, refinement)


@dataclass(frozen=True, slots=True)
class GaussianMessagesBlock(PricedMessages):
    """One round of n shuffled messages that carry Gaussian noise each, from above.

    At every K about the best of many ε₀, each with the δ₀ that the noise has there, and of what a
    message is worth alone. Whatever the dimension. σ is the standard deviation of one message's
    noise over the clip norm C; another record moves a message by up to 2C.
    """

    noise_multiplier: float
    clients: int

    def __post_init__(self) -> None:
        checks.positive(noise_multiplier=self.noise_multiplier)
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """About twice the standard deviation of the likelihood ratio if all others are alike."""
        growth = math.expm1(min((2.0 / self.noise_multiplier) ** 2, 600.0))
        return min(1.0, math.sqrt(growth), 2.0 * math.sqrt(growth / self.clients))

    @property
    def floor(self) -> float:
        """0: some ε is enough for any δ."""
        return 0.0

    def price(self, groups: int) -> GaussianPrice:
        """The bound at any K."""
        return GaussianPrice(self.noise_multiplier, self.clients, groups)

    def end(self, delta: float) -> float:
        """The ε at which a message alone is worth δ, if that can be written down."""
        try:
            return epsilon_at(self.price(1).alone, delta, Side.UPPER)
        except NumericalError:
            return _LARGEST_LOCAL_EPSILON

    def wide(self, refinement: int) -> Curve:
        """The price at any K."""
        return _PriceCurve(self.price(_COMPOSED << refinement))


@dataclass(frozen=True, slots=True)
class InfinityMassBlock:
    """A block of messages where the victim's gives it away with some chance, in both worlds.

    What (ε₀, δ₀)-randomizers may do: the victim sends one of the base's messages, or with chance δ₀
    one that nobody else can; the others send messages of ε₀-randomizers. A lower bound if the
    base's is one.
    """

    base: Block
    infinity_mass: float

    def __post_init__(self) -> None:
        checks.probability(infinity_mass=self.infinity_mass)

    @property
    def loss_deviation(self) -> float:
        """The base's."""
        return self.base.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """A curve made sharp near one δ."""
        hint = max(delta - self.infinity_mass, 0.01 * delta)
        curve = self.base.curve(direction, side, hint, refinement)
        return InfinityMassBound(curve, self.infinity_mass, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The base's curves, with the infinity mass."""
        base = self.base.curves(side, delta, refinement)
        remove, add = (
            [InfinityMassBound(curve, self.infinity_mass, side) for curve in curves]
            for curves in (base.remove, base.add)
        )
        rounding = _ROUNDING if side is Side.UPPER else -_ROUNDING
        floors = [
            (self.infinity_mass + (1.0 - self.infinity_mass) * f) * (1.0 + rounding)
            for f in base.floors
        ]
        return CurvePair(side, remove, add, (floors[0], floors[1]))


@dataclass(frozen=True, slots=True)
class InfinityMassBound:
    """δ₀ + (1 − δ₀)·δ(K): either world has an outcome of chance δ₀ that the other has not."""

    base: Curve
    infinity_mass: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        value = self.infinity_mass + (1.0 - self.infinity_mass) * self.base.delta(k)
        rounding = _ROUNDING if self.side is Side.UPPER else -_ROUNDING
        return np.minimum(value * (1.0 + rounding), 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1, shape of ``k``."""
        return (1.0 - self.infinity_mass) * self.base.slope(k)


def shuffled_gaussian(
    noise_multiplier: float, clients: int, delta: float, rounds: int = 1
) -> float:
    """ε of shuffled messages that carry Gaussian noise each, composed over rounds.

    Source: `approximate.price`, with ε₀ and δ₀ of the Gaussian. The least of this and of what the
    messages are worth on their own. All clients of a round do the same to their records. σ and n
    are those of `GaussianMessagesBlock`; each round is shuffled afresh.

    Returns:
        ε under replace-one, never below the true one; what the messages are worth on their own
        where shuffling proves, or can be certified to prove, no more.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(clients=clients, rounds=rounds)
    checks.open_unit(delta=delta)
    alone = [(PairBlock(GaussianPair(noise_multiplier / (2 * math.sqrt(rounds)))), 1)]
    run = [(GaussianMessagesBlock(noise_multiplier, clients), rounds)]
    found: list[float] = []
    for candidate in (alone, run):
        try:
            found.append(run_epsilon(candidate, Direction.REMOVE, Side.UPPER, delta, 0))
        except NumericalError:
            if candidate is run and not found:
                raise
    return min(found)


@remembered
def _near(block: PricedMessages, delta: float, refinement: int) -> PolygonCurve:
    """A polygon through K's that are ever closer to the one at which it reaches δ."""
    end = block.end(0.999 * delta)
    ratios, values = _enclosing(block, delta, end)
    sharp = block.price(_SINGLE << refinement)
    for width in _CLOSER:
        root = _root(upper_polygon(ratios, values), delta)
        if root <= 0.0:
            break
        # The polygon lies above: δ's ε is a little less, or this one.
        further = np.exp(np.minimum(root * (1.0 + width * np.array([-3.0, -2, -1, 0, 1])), end))
        order = np.argsort(np.append(ratios, further))
        ratios = np.append(ratios, further)[order]
        values = np.append(values, sharp.at(further))[order]
        ratios, first = np.unique(ratios, return_index=True)
        values = np.minimum.reduceat(values, first)
    return upper_polygon(ratios, values)


@remembered
def _enclosing(block: PricedMessages, delta: float, end: float) -> tuple[FloatArray, FloatArray]:
    """Some K's among which δ is reached, if it is, and rough bounds there."""
    epsilons = _epsilons(block.loss_deviation, end, _COARSE)
    rough = block.price(_ROUGH).roughly(np.exp(epsilons))
    guess = float(epsilons[np.argmax(rough <= delta)])
    ratios = np.exp(np.unique(np.append(0.0, np.minimum(guess * _ABOUT, end))))
    values = block.price(_COMPOSED).at(ratios)
    if guess == 0.0 or not values[1] > delta >= values.min():
        ratios = np.exp(epsilons)
        values = block.price(_COMPOSED).at(ratios)
    return ratios, values


@remembered
def _down_to(block: PricedMessages, delta: float, refinement: int) -> PolygonCurve:
    """A polygon down to δ, or to where nothing more is proved."""
    density = _DENSITY * 2**refinement
    ratios = np.exp(_epsilons(block.loss_deviation, block.end(0.5 * delta), density))
    return upper_polygon(ratios, block.price(_COMPOSED << refinement).at(ratios))


@dataclass(frozen=True, slots=True)
class _PriceCurve:
    """A price at every K; from some K on, where it would rise, at that one."""

    price: ApproximatePrice | GaussianPrice
    turn: float = math.inf

    def delta(self, k: FloatArray) -> FloatArray:
        value = self.price.at(k)
        if math.isinf(self.turn):
            return value
        return np.minimum(value, self.price.at(np.minimum(k, self.turn)))

    def slope(self, k: FloatArray) -> FloatArray:
        return np.zeros(np.shape(k))


@remembered
def _falling(block: ApproximateMessagesBlock, refinement: int) -> _PriceCurve:
    price = block.price(_COMPOSED << refinement)
    ratios = np.exp(_epsilons(block.loss_deviation, block.end(1.0), 1.0))
    ratios = ratios[ratios < math.exp(price.furthest)]
    return _PriceCurve(price, float(ratios[np.argmin(price.at(ratios))]))


def _epsilons(loss_deviation: float, end: float, density: float) -> FloatArray:
    """ε's from 0 to an end, close up to a few standard deviations of the loss."""
    close = np.linspace(0.0, _CLOSE * loss_deviation, math.ceil(_CLOSE * density) + 1)
    further = max(math.ceil(math.log(max(end / close[-1], 1.0)) / math.log(_APART)), 1)
    far = np.geomspace(close[-1], max(end, close[-1]), further + 1)
    epsilons = np.concatenate([close, far])
    return np.unique(np.append(epsilons[epsilons < end], end))


def _root(curve: PolygonCurve, delta: float) -> float:
    """The ε at which a polygon reaches δ; 0 if it begins below or never does."""
    nodes, values = curve.nodes, curve.values
    index = int(np.argmax(values <= delta))
    if index == 0:
        return 0.0
    share = (values[index - 1] - delta) / (values[index - 1] - values[index])
    return math.log(nodes[index - 1] + share * (nodes[index] - nodes[index - 1]))


def require_upper(side: Side) -> None:
    """Refuses what asks for a lower bound."""
    if side is Side.LOWER:
        raise UnsupportedError("the bound for approximate randomizers says nothing from below")
