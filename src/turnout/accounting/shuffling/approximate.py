"""Shuffled messages of (ε₀, δ₀)-randomizers, Gaussian noise among them: upper bounds and blocks.

`ApproximateMessagesBlock` and `GaussianMessagesBlock` are the blocks of one round
(`PricedMessages`); `ApproximatePrice` and `GaussianPrice` are the bounds at any K.
`InfinityMassBlock` adds an infinity mass to a block and keeps lower bounds. `shuffled_gaussian`
returns the ε of several rounds, for users. `messages` makes the blocks, `sampled_rounds` uses the
bounds; this module builds on `blanket`.

Neighbours differ in one client's record (replace-one). A randomizer may depend on earlier messages
if the order of speaking is hidden. docs/design/shuffling.md ("Approximate randomizers") has the
proof.

Notation
    ε₀, δ₀  of the local randomizer, under replacement       e = e^{ε₀}     K = e^ε
    n       clients           ε₀'  ε₀ − ln(1 − δ₀)
    τ       the distance of all other messages from those of an ε₀'-randomizer
    D       a bound on δ(K) of n − 1 clients, without the infinity mass
    σ       standard deviation of Gaussian noise over the clip norm C; another record moves a
            message by up to 2C
    p, q    the two distributions of the victim's message if it is that of an ε₀-randomizer

With probability δ₀ the victim's message may identify the victim. Otherwise the message is that of
an ε₀-randomizer, by Kairouz, Oh and Viswanath 2015 (kairouz2015composition). The worst pair
requires that every other message's distribution is at least max(p, q)/e^{ε₀'}; some distribution
within distance 2δ₀/e of the message's meets this condition. The clones pair requires only
(p + q)/(2e^{ε₀'}), which holds within distance δ₀/e. The distances of all n − 1 messages add up to
τ = 2(n − 1)δ₀/e for the worst pair, and to half of that for the clones pair. If a message is drawn
from the missing part, the loss is at most that of n − 1 clients without it. So, at ε₀',

    δ(K) ≤ δ₀ + (1 − δ₀)·(δ_pair,n(K) + τ·(K − 1 + 2D)),   D = δ_pair,n−1(K) + (1 + K)·τ.

The true δ falls with K, but the right side may rise with K. Shuffling never loses more privacy than
a single message without shuffling: δ(K) ≤ δ₀ + (1 − δ₀)·(e − K)₊/(e + 1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from turnout.accounting.divergence.blocks import Block, CurvePair, PairBlock
from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PairCurve,
    PolygonCurve,
    Side,
    epsilon_at,
    upper_polygon,
)
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.blanket import BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import BlanketPair, clones_pair, worst_pair
from turnout.core import checks
from turnout.core.arrays import BoolArray, FloatArray
from turnout.core.errors import NumericalError, UnsupportedError

_LARGEST_LOCAL_EPSILON = 600.0  # a larger ε₀ gives no privacy: e^{ε₀} must be a float
_ALMOST_ONE = 1.0 - UNIT_ROUNDOFF
_ROUNDING = 32 * UNIT_ROUNDOFF
_DISTANCES = (2.0, 1.0)  # of one message by the worst pair and by clones, in units of δ₀/e
CHOICES = (0, 1)
_FEW_GROUPS = 16  # for what is multiplied by τ
_RUNGS = 12.0  # ε₀'s tried in each 2/σ; δ₀ about halves from one to the next
_LOOKED_AT = 10  # K's at which the best rung is searched
_FURTHEST = 39.0  # the last ε₀ over 2/σ, beyond which δ₀ underflows


class Blanket(NamedTuple):
    """Blanket pair for ε₀'-randomizers that approximate (ε₀, δ₀)-randomizers.

    Attributes:
        pair: blanket pair of ε₀'-randomizers, with ε₀' = ε₀ − ln(1 − δ₀).
        distance: largest total variation distance of a message of another client from a message of
            an ε₀'-randomizer.
    """

    pair: BlanketPair
    distance: float

    @classmethod
    def of(cls, epsilon0: float, delta0: float, choice: int) -> Blanket:
        """Blanket from the worst pair (choice 0) or from the clones pair (choice 1)."""
        pair = (worst_pair, clones_pair)[choice](epsilon0 - math.log1p(-min(delta0, _ALMOST_ONE)))
        return cls(pair, _DISTANCES[choice] * math.exp(-epsilon0) * delta0 * (1.0 + _ROUNDING))


@dataclass(frozen=True, slots=True)
class LocalCurve:
    """Upper curve of a single message of an ε₀-randomizer, for ε₀ ≤ 600."""

    epsilon0: float

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        rest = math.exp(-self.epsilon0)
        alone = np.maximum(1.0 - k * rest, 0.0) / (1.0 + rest) + 8 * UNIT_ROUNDOFF
        return np.where(k >= math.exp(self.epsilon0 * (1.0 + 1e-14)), 0.0, alone)

    def slope(self, k: FloatArray) -> FloatArray:
        """Zeros in the shape of ``k``, because only lower curves need slopes."""
        return np.zeros(np.shape(k))


@dataclass(frozen=True, slots=True)
class HiddenCurve:
    """Bound on (δ(K) − δ₀)/(1 − δ₀) if other messages hide the victim.

    Attributes:
        base: bound on δ for n clients if all others sent messages of ε₀'-randomizers.
        fewer: bound on δ for n − 1 such clients.
        slack: τ, the distance of the others' messages from messages of ε₀'-randomizers.
        coming: q, the probability that the victim sends a message.
    """

    base: Curve
    fewer: Curve
    slack: float
    coming: float = 1.0

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        fewer = self.fewer.delta(k) + self.slack * (k - 1.0 + 2.0 * self.coming)
        fewer = np.minimum(fewer, self.coming)
        return self.base.delta(k) + self.slack * (k - 1.0 + 2.0 * fewer)


@dataclass(frozen=True, slots=True, eq=False)
class ApproximatePrice:
    """Upper bound on δ(K) of (ε₀, δ₀)-messages: the smallest of several bounds.

    The bounds are those of the blanket pairs, and that of a single message without shuffling.

    Attributes:
        hidden: bounds if other messages hide the victim, one for each blanket pair.
        epsilon0: ε₀ of a message.
        delta0: δ₀ of a message.
    """

    hidden: Sequence[HiddenCurve]
    epsilon0: float
    delta0: float

    @classmethod
    def of(
        cls,
        epsilon0: float,
        delta0: float,
        clients: int,
        groups: int,
        choices: Sequence[int] = CHOICES,
    ) -> ApproximatePrice:
        """Upper bound for ``clients`` clients, at the resolution ``groups`` of `BlanketCurve`.

        Args:
            epsilon0: ε₀ of a message, under replacement.
            delta0: δ₀ of a message.
            clients: n, number of clients.
            groups: resolution of `BlanketCurve`; more groups give a smaller bound.
            choices: blanket pairs that are tried: 0 for `worst_pair`, 1 for `clones_pair`.
        """
        epsilon0 = min(epsilon0, _LARGEST_LOCAL_EPSILON)
        hidden: list[HiddenCurve] = []
        for choice in choices:
            pair, distance = Blanket.of(epsilon0, delta0, choice)
            base = BlanketCurve(pair, clients, Side.UPPER, groups)
            fewer = BlanketCurve(pair, max(clients - 1, 1), Side.UPPER, min(groups, _FEW_GROUPS))
            hidden.append(HiddenCurve(base, fewer, (clients - 1) * distance))
        return cls(hidden, epsilon0, delta0)

    @property
    def furthest(self) -> float:
        """Smallest ε found beyond which the bound on δ equals δ₀."""
        return self.epsilon0 * (1.0 + 1e-14)

    def roughly(self, k: FloatArray) -> FloatArray:
        """Estimate of δ at each K ≥ 1, shape of ``k``."""
        return self.at(k)

    def at(self, k: FloatArray) -> FloatArray:
        """Upper bound on δ at each K ≥ 1, shape of ``k``; the bound may rise from some K on."""
        value = LocalCurve(self.epsilon0).delta(k)
        for hidden in self.hidden:
            value = np.minimum(value, hidden.delta(k))
        value = self.delta0 + (1.0 - self.delta0) * value
        return np.minimum(value * (1.0 + _ROUNDING), 1.0)


@dataclass(frozen=True, slots=True)
class GaussianPrice:
    """Upper bound on δ(K) for Gaussian noise; nearly the smallest of the bounds of many ε₀.

    Attributes:
        noise_multiplier: σ, standard deviation of one message's noise over the clip norm C.
        clients: n, number of clients, each of which sends one message.
        groups: resolution of `BlanketCurve`.
    """

    noise_multiplier: float
    clients: int
    groups: int

    @property
    def alone(self) -> PairCurve:
        """Upper curve of a single Gaussian message, without shuffling."""
        return PairCurve(GaussianPair(self.noise_multiplier / 2), Direction.REMOVE, Side.UPPER)

    def roughly(self, k: FloatArray) -> FloatArray:
        """Estimate of δ at each K ≥ 1, shape of ``k``."""
        epsilons, deltas = _ladder(self.noise_multiplier)
        rungs = epsilons[:, None], deltas[:, None]
        about = [_estimated_bound(*rungs, self.clients, k, choice) for choice in CHOICES]
        return np.minimum(np.min(about, axis=(0, 1)), self.alone.delta(k))

    def at(self, k: FloatArray) -> FloatArray:
        """Upper bound on δ at each K ≥ 1, shape of ``k``."""
        ratios = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        values = self.alone.delta(ratios)
        for rung, chosen in rungs_by_ratio(self.noise_multiplier, self.clients, ratios):
            found = _rung(self, rung).at(ratios[chosen])
            values[chosen] = np.minimum(values[chosen], found)
        return values.reshape(np.shape(k))


class Rung(NamedTuple):
    """One candidate ε₀, the noise's δ₀ at this ε₀, and the index of a blanket pair in `CHOICES`."""

    epsilon0: float
    delta0: float
    choice: int


def rungs_by_ratio(
    noise_multiplier: float, clients: int, ratios: FloatArray
) -> Iterator[tuple[Rung, BoolArray]]:
    """Candidates (`Rung`) whose bound is nearly the smallest at some K, with a mask of these K.

    Args:
        noise_multiplier: σ, standard deviation of one message's noise over the clip norm C.
        clients: n, number of clients.
        ratios: values of K = e^ε ≥ 1, shape (m,).
    """
    # The best ε₀ rises with K, slowly, so it is searched at few K's.
    few = np.quantile(ratios, np.linspace(0.0, 1.0, min(_LOOKED_AT, ratios.size)))
    epsilons, deltas = _ladder(noise_multiplier)
    nearest, about = [], []
    for choice in CHOICES:
        values = _estimated_bound(epsilons[:, None], deltas[:, None], clients, few, choice)
        rungs = np.rint(np.interp(ratios, few, np.argmin(values, axis=0))).astype(np.int64)
        nearest.append(rungs)
        about.append(_estimated_bound(epsilons[rungs], deltas[rungs], clients, ratios, choice))
    choices = np.argmin(about, axis=0)
    rungs = np.choose(choices, nearest)
    for index, choice in set(zip(rungs.tolist(), choices.tolist(), strict=True)):
        rung = Rung(float(epsilons[index]), float(deltas[index]), choice)
        yield rung, (rungs == index) & (choices == choice)


@remembered
def _ladder(noise_multiplier: float) -> tuple[FloatArray, FloatArray]:
    """Candidate values of ε₀ and an upper bound on the noise's δ₀ at each, until δ₀ underflows."""
    mu = 2.0 / noise_multiplier
    last = min(_FURTHEST * mu + 0.5 * mu**2, _LARGEST_LOCAL_EPSILON)
    epsilons = np.arange(1, math.ceil(last * _RUNGS / mu) + 1) * (mu / _RUNGS)
    epsilons = np.minimum(epsilons, _LARGEST_LOCAL_EPSILON)
    message = PairCurve(GaussianPair(noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    return epsilons, message.delta(np.exp(epsilons))


def _estimated_bound(
    epsilon0: FloatArray, delta0: FloatArray, clients: int, k: FloatArray, choice: int
) -> FloatArray:
    """Estimate of the upper bound at each K and (ε₀, δ₀), by which the ε₀ to use are chosen.

    The estimate is the smaller of a Gaussian approximation of the pair's bound and of the bound for
    a single message, in the common shape of ``k`` and ``epsilon0``.
    """
    # Gaussian approximation of δ(K) of the pair with n clients.
    low = 1.0 / (np.exp(epsilon0) + 1.0)
    share = (low, 0.5 * np.exp(-epsilon0))[choice]
    gap = np.tanh(0.5 * epsilon0)
    spread = gap * np.sqrt(2.0 / (clients * share))
    score = np.log(k) / spread
    hidden = ndtr(0.5 * spread - score) - k * ndtr(-0.5 * spread - score)
    # A single message, and the probability that no other message hides it.
    alone = np.maximum(1.0 - low - k * low, 0.0)
    nobody = np.exp((clients - 1) * np.log1p(-np.minimum(2.0 * share, _ALMOST_ONE)))
    hidden = np.minimum(hidden + nobody * alone, alone)
    # Add the distance of the other messages from messages of ε₀'-randomizers.
    slack = _DISTANCES[choice] * (clients - 1) * np.exp(-epsilon0) * delta0
    fewer = np.minimum(hidden + (1.0 + k) * slack, 1.0)
    return delta0 + np.minimum(hidden + slack * (k - 1.0 + 2.0 * fewer), alone)


@remembered
def _rung(price: GaussianPrice, rung: Rung) -> ApproximatePrice:
    epsilon0, delta0, choice = rung
    return ApproximatePrice.of(epsilon0, delta0, price.clients, price.groups, (choice,))


_SINGLE, _COMPOSED = 256, 64  # groups of blanket messages for one round, for one of many
_ROUGH = 16  # and for a first guess
_COARSE, _DENSITY = 4.0, 20.0  # K's a standard deviation of the loss: to find a root, to compose
_CLOSE = 9.0  # standard deviations of the loss up to which K's lie close together
_APART = 1.05  # and the ratio of ε's from there on
_ABOUT = np.array([0.8, 0.9, 0.96, 1.02, 1.1, 1.3])  # times about δ's ε, to enclose it by
_CLOSER = (0.02, 3e-3)  # relative distances of ε's about δ's, one after the other


class PricedMessages(ABC):
    """Round of shuffled messages with an upper bound on δ at any K, equal in both directions."""

    __slots__ = ()

    @property
    @abstractmethod
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio, at most 1.

        If the value is small, the standard deviation of the privacy loss is nearly the same.
        """

    @property
    @abstractmethod
    def floor(self) -> float:
        """Limit of δ for large ε; no ε holds at a smaller δ."""

    @abstractmethod
    def price(self, groups: int) -> ApproximatePrice | GaussianPrice:
        """Upper bound on δ at any K; more ``groups``, the resolution, give a smaller bound."""

    @abstractmethod
    def end(self, delta: float) -> float:
        """Value of ε beyond which δ(ε) is constant, or negligible compared with the given δ."""

    @abstractmethod
    def wide(self, refinement: int) -> Curve:
        """Upper curve that is valid at every K, for callers that evaluate it at few K."""

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Upper polygon for both directions, tight near δ; UnsupportedError for LOWER."""
        require_upper(side)
        return _near(self, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Upper polygon for both directions, tight down to δ; UnsupportedError for LOWER."""
        require_upper(side)
        curve = _down_to(self, delta, refinement)
        return CurvePair(side, [curve], [curve], (self.floor, self.floor))


@dataclass(frozen=True, slots=True)
class ApproximateMessagesBlock(PricedMessages):
    """Round of n shuffled messages of (ε₀, δ₀)-randomizers, with upper bounds only.

    Randomizers may depend on earlier messages if the order of the clients is hidden. ε₀ is under
    replacement; a value above 600 is treated as 600.

    Attributes:
        epsilon0: ε₀ of each message.
        delta0: δ₀ of each message.
        clients: n, number of clients.
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
        """Approximate standard deviation of the finite likelihood ratio, at most 1."""
        half = min(0.5 * self.epsilon0, 300.0)
        return min(1.0, 2.0 * math.tanh(half), 2.0 * math.sinh(half) / math.sqrt(self.clients))

    @property
    def floor(self) -> float:
        """Limit δ₀ of δ for large ε; no ε holds at a smaller δ."""
        return min(self.delta0 * (1.0 + _ROUNDING), 1.0)

    def price(self, groups: int) -> ApproximatePrice:
        """Upper bound on δ at any K; more ``groups``, the resolution, give a smaller bound."""
        return ApproximatePrice.of(self.epsilon0, self.delta0, self.clients, groups)

    def end(self, delta: float) -> float:
        """Value of ε beyond which δ equals δ₀."""
        return self.price(1).furthest

    def wide(self, refinement: int) -> Curve:
        """Upper curve that is valid at every K and constant from the K at which the bound rises."""
        return _falling(self, refinement)


@dataclass(frozen=True, slots=True)
class GaussianMessagesBlock(PricedMessages):
    """Round of n shuffled messages with Gaussian noise each, with upper bounds only.

    At every K the bound is nearly the smallest of the bounds by many ε₀, each with the noise's δ₀
    at this ε₀, and of the bound for a single message. The bound holds in every dimension. σ is the
    standard deviation of one message's noise over the clip norm C; another record moves a message
    by up to 2C.
    """

    noise_multiplier: float
    clients: int

    def __post_init__(self) -> None:
        checks.positive(noise_multiplier=self.noise_multiplier)
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """About twice the likelihood ratio's standard deviation if all others hold one record."""
        growth = math.expm1(min((2.0 / self.noise_multiplier) ** 2, 600.0))
        return min(1.0, math.sqrt(growth), 2.0 * math.sqrt(growth / self.clients))

    @property
    def floor(self) -> float:
        """Limit of δ for large ε, always 0: every δ has a finite ε."""
        return 0.0

    def price(self, groups: int) -> GaussianPrice:
        """Upper bound on δ at any K; more ``groups``, the resolution, give a smaller bound."""
        return GaussianPrice(self.noise_multiplier, self.clients, groups)

    def end(self, delta: float) -> float:
        """ε of a single message at δ, or the largest ε that can be represented."""
        try:
            return epsilon_at(self.price(1).alone, delta, Side.UPPER)
        except NumericalError:
            return _LARGEST_LOCAL_EPSILON

    def wide(self, refinement: int) -> Curve:
        """Upper curve that is valid at every K."""
        return _PriceCurve(self.price(_COMPOSED << refinement))


@dataclass(frozen=True, slots=True)
class InfinityMassBlock:
    """Block of a round in which the victim's message identifies its record with probability δ₀.

    This is the worst case of (ε₀, δ₀)-randomizers (infinity mass δ₀). In both worlds the victim
    sends a message of the base block or, with probability δ₀, a message that no other record can
    produce. The other clients send messages of ε₀-randomizers. From a lower curve of the base block
    follows a lower curve of this block.

    Attributes:
        base: block of the messages that do not identify the victim's record.
        infinity_mass: δ₀.
    """

    base: Block
    infinity_mass: float

    def __post_init__(self) -> None:
        checks.probability(infinity_mass=self.infinity_mass)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio of the base block."""
        return self.base.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of the base block with the infinity mass, tight near the given δ."""
        hint = max(delta - self.infinity_mass, 0.01 * delta)
        curve = self.base.curve(direction, side, hint, refinement)
        return InfinityMassBound(curve, self.infinity_mass, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of the base block with the infinity mass, in both directions."""
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
    """Curve δ₀ + (1 − δ₀)·δ(K) of a base curve δ(K) and an infinity mass δ₀.

    Each world has an outcome of probability δ₀ that is impossible in the other world.
    """

    base: Curve
    infinity_mass: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        value = self.infinity_mass + (1.0 - self.infinity_mass) * self.base.delta(k)
        rounding = _ROUNDING if self.side is Side.UPPER else -_ROUNDING
        return np.minimum(value * (1.0 + rounding), 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK of the curve at each K ≥ 1, shape of ``k``."""
        return (1.0 - self.infinity_mass) * self.base.slope(k)


def shuffled_gaussian(
    noise_multiplier: float, clients: int, delta: float, rounds: int = 1
) -> float:
    """Upper bound on ε of shuffled Gaussian messages, composed over rounds.

    Source: `GaussianPrice` (docs/design/shuffling.md, "Approximate randomizers"), with ε₀ and δ₀ of
    the Gaussian. The result is the smaller of this bound and the ε of the messages without
    shuffling. All clients of a round apply the same randomizer. Each round has a new shuffle.

    Args:
        noise_multiplier: σ, the standard deviation of one message's noise over the clip norm C;
            another record moves a message by up to 2C.
        clients: n ≥ 1, number of clients of each round.
        delta: δ in (0, 1).
        rounds: number of rounds, at least 1.

    Returns:
        ε under replace-one, never below the true value. Where no smaller bound by shuffling can be
        certified, this is the ε of the messages without shuffling.

    Raises:
        ParameterError: an argument is outside its domain.
        NumericalError: neither bound can be certified.
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
    """Upper polygon through the bound at several K near the K at which the bound reaches δ."""
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
    """Values of K around the K at which the bound reaches δ, with rough upper bounds on δ(K)."""
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
    """Upper polygon down to δ, or to the K beyond which the bound is constant."""
    density = _DENSITY * 2**refinement
    ratios = np.exp(_epsilons(block.loss_deviation, block.end(0.5 * delta), density))
    return upper_polygon(ratios, block.price(_COMPOSED << refinement).at(ratios))


@dataclass(frozen=True, slots=True)
class _PriceCurve:
    """Upper curve that equals a bound at each K, up to a K from which the curve is constant."""

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
    """Values of ε from 0 to ``end``, dense up to a few standard deviations of the loss."""
    close = np.linspace(0.0, _CLOSE * loss_deviation, math.ceil(_CLOSE * density) + 1)
    further = max(math.ceil(math.log(max(end / close[-1], 1.0)) / math.log(_APART)), 1)
    far = np.geomspace(close[-1], max(end, close[-1]), further + 1)
    epsilons = np.concatenate([close, far])
    return np.unique(np.append(epsilons[epsilons < end], end))


def _root(curve: PolygonCurve, delta: float) -> float:
    """ε at which a polygon reaches δ; 0 if it starts below δ or never reaches δ."""
    nodes, values = curve.nodes, curve.values
    index = int(np.argmax(values <= delta))
    if index == 0:
        return 0.0
    share = (values[index - 1] - delta) / (values[index - 1] - values[index])
    return math.log(nodes[index - 1] + share * (nodes[index] - nodes[index - 1]))


def require_upper(side: Side) -> None:
    """Raise an UnsupportedError if a lower bound is requested.

    Raises:
        UnsupportedError: ``side`` is LOWER.
    """
    if side is Side.LOWER:
        raise UnsupportedError("no lower bound is known for messages of approximate randomizers")
