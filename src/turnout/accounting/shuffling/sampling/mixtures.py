"""The mixture over how many of n clients send a message, each with chance q (self-sampling).

Notation
    n    clients           N    messages of a round, Bin(n, q); who sent them is a uniform subset
    q    each one's chance of sending one           γ    N/n           K = e^ε
    δ_N  of N shuffled messages, at worst over all records: falls in N, convex in K

Given N, which is seen, the round is that of a uniform subset: δ(K) is the mean over N of
h(N) = γ·δ_N(1 + (K − 1)/γ), no more (`blocks.SubsampledBlock`). For one fixed curve in the place
of δ_N this rises with γ and is convex in it (a perspective). So for N₁ ≤ N ≤ N₂ the curve of N₁,
with N spread on N₁ and N₂ so that its mean stays, bounds from above; that of N₂, with N at its
mean, from below. The same holds of both directions of a diluted pair, (1 − γ)Q + γP against Q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, betaincc

from turnout.accounting.divergence.blocks import Block
from turnout.accounting.divergence.curves import Curve, Direction, Side, diluted
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.repeats import RepeatedBlock
from turnout.accounting.shuffling.approximate.blocks import PricedMessages, require_upper
from turnout.accounting.shuffling.blanket.blocks import BlanketBlock
from turnout.accounting.shuffling.blanket.curve import BlanketCurve
from turnout.accounting.shuffling.responses.attained import IdenticalGaussianBlock

FloatArray = np.ndarray
MessageBlocks = Callable[[int], Block]
"""A block for every number of messages, all of one randomizer: of `BlanketBlock`s the pair is the
same. A frozen dataclass, so that equal ones are equal."""

_LARGEST_HINT = 0.5
_SLACK = 1e-9  # relative error that a binomial tail may have
_INNER, _OUTER = 3.0, (5.0, 9.0)  # deviations of N: narrow groups, and where wide ones end
_FEWEST, _MOST = 4, 24
_COMPOSED = (-7.0, -3.0, -1.0, 1.0, 4.0)  # where groups begin whose curves are compositions
_FEW = 24  # N's about the mean that are each a group of their own
_WIDTH = 1e-3  # of a group, relative to N; about four times the error that it makes in ε
_COINS = 64  # groups that the number of blanket messages is cut into


class Group(NamedTuple):
    """N₁ ≤ N ≤ N₂, how likely, and the mean of N in it."""

    first: int
    last: int
    chance: float
    mean: float


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The curve that a group of N's is priced by, and the rates γ it is diluted to, weighted."""

    curve: Curve
    dilutions: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Sample:
    """A mixture: n clients of whom each sends one of the base's messages with chance q.

    ``identical_others``: whether the base is the law of a record among others that are alike.
    """

    base: MessageBlocks
    population: int
    rate: float
    identical_others: bool


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """δ(K) of a self-sampling round in one direction, from one side."""

    parts: Sequence[_Part]
    dilution: Direction
    side: Side
    floor: float

    @classmethod
    def of(
        cls, sample: Sample, direction: Direction, side: Side, delta: float, refinement: int
    ) -> Mixture:
        """Sharp from 1 down to δ."""
        parts: list[_Part] = []
        floor = 0.0
        mixed = _groups_of(sample, side, refinement)
        for group in mixed:
            # Past its hint a curve need not fall: all that is left of them must stay below δ.
            weight = len(mixed) * sample.rate * max(group.chance, 1e-300)
            hint = min(_LARGEST_HINT, delta / weight)
            block = sample.base(group.first if side is Side.UPPER else group.last)
            spread = dilutions(group, sample.population, side)
            parts.append(_Part(wide_curve(block, direction, side, hint, refinement), spread))
            floor += sum(rate * weight for rate, weight in spread) * floor_of(block, side)
        if sample.identical_others and direction is Direction.ADD and sample.rate < 1:
            floor = 0.0  # nothing is impossible with the victim, which may stay away
        return cls(
            parts, dilution_of(direction, identical_others=sample.identical_others), side, floor
        )

    @classmethod
    def alone(cls, sample: Sample, curve: Curve) -> Mixture:
        """From above, where one curve holds for every number of messages."""
        parts = [
            _Part(curve, dilutions(group, sample.population, Side.UPPER))
            for group in groups(sample.population, sample.rate, Side.UPPER, 0)
        ]
        return cls(parts, Direction.REMOVE, Side.UPPER, 0.0)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        total = np.zeros(np.shape(k))
        for part in self.parts:
            for rate, weight in part.dilutions:
                total = total + weight * diluted(part.curve, self.dilution, rate).delta(k)
        if self.side is Side.UPPER:
            return np.minimum(total * (1.0 + _SLACK), 1.0)
        return total * (1.0 - _SLACK)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1, shape of ``k``; with it a lower δ is a line below the curve."""
        total = np.zeros(np.shape(k))
        for part in self.parts:
            for rate, weight in part.dilutions:
                total = total + weight * diluted(part.curve, self.dilution, rate).slope(k)
        return total * (1.0 - _SLACK)


@dataclass(frozen=True, slots=True, eq=False)
class _BestCurve:
    """The sharpest of several curves at each K."""

    pair: CurvePair
    direction: Direction

    def delta(self, k: FloatArray) -> FloatArray:
        flat = np.atleast_1d(np.asarray(k, dtype=float))
        return self.pair.price_and_slope(self.direction, flat)[0].reshape(np.shape(k))

    def slope(self, k: FloatArray) -> FloatArray:
        flat = np.atleast_1d(np.asarray(k, dtype=float))
        return self.pair.price_and_slope(self.direction, flat)[1].reshape(np.shape(k))


def wide_curve(
    block: Block, direction: Direction, side: Side, delta: float, refinement: int
) -> Curve:
    """A curve that is sharp from 1 down to δ."""
    if isinstance(block, PricedMessages):
        require_upper(side)
        return block.wide(refinement)
    if isinstance(block, BlanketBlock):  # of a few K's alone no polygon need be made
        pair = block.upper if side is Side.UPPER else block.lower
        if pair is not None:
            return BlanketCurve(pair, block.clients, side, round(_COINS * 2 ** (refinement / 2)))
    return best_curve(block.curves(side, delta, refinement), direction)


def best_curve(pair: CurvePair, direction: Direction) -> Curve:
    """The sharpest curve of one direction at each K."""
    curves = pair.remove if direction is Direction.REMOVE else pair.add
    return curves[0] if len(curves) == 1 else _BestCurve(pair, direction)


def dilution_of(direction: Direction, *, identical_others: bool) -> Direction:
    """The formula by which a sample's curve follows: `Direction.REMOVE` bounds both directions."""
    return direction if identical_others else Direction.REMOVE


def floor_of(block: Block, side: Side) -> float:
    """The δ that no ε goes below."""
    if isinstance(block, BlanketBlock):
        return 0.0
    if isinstance(block, PricedMessages):
        return block.floor
    return max(block.curves(side, _LARGEST_HINT, 0).floors)


def groups(population: int, rate: float, side: Side, refinement: int) -> list[Group]:
    """Groups of N ~ Bin(n, q), N ≥ 1, with chances and means moved to one side."""
    mean = population * rate
    if rate == 1.0:
        return [Group(population, population, 1.0, float(population))]
    deviation = math.sqrt(mean * (1.0 - rate)) + 1.0
    narrow = math.ceil(2 * _INNER * deviation / (_WIDTH * mean))
    count = min(max(narrow, _FEWEST), _MOST) << refinement
    scores = [*(-s for s in reversed(_OUTER)), *np.linspace(-_INNER, _INNER, count + 1), *_OUTER]
    edges = np.clip(np.rint(mean + deviation * np.array(scores)), 1, population)
    singles = np.arange(math.floor(mean) - _FEW // 2, math.ceil(mean) + _FEW // 2 + 1)
    inner = singles if deviation < _FEW / 6 else edges
    first = np.unique(np.clip(np.concatenate([[1], edges, inner]), 1, population)).astype(np.int64)
    return grouped(first, population, rate, side)


def grouped(first: np.ndarray, population: int, rate: float, side: Side) -> list[Group]:
    """Groups that begin at these numbers."""
    mean = population * rate
    last = np.append(first[1:] - 1, population)
    chances, errors = _between(first, population, rate)
    sums, off = _between(first - 1, population - 1, rate)
    found: list[Group] = []
    for i in range(first.size):
        lowest, highest = int(first[i]), int(last[i])
        if side is Side.UPPER:
            chance = min(chances[i] + errors[i], 1.0)
            total = mean * (sums[i] + off[i]) + highest * errors[i]
        else:
            chance = max(chances[i] - errors[i], 0.0)
            total = mean * (sums[i] - off[i]) - highest * errors[i]
        if chance > 0:
            centre = min(max(total / chance, lowest), highest)
            found.append(Group(lowest, highest, float(chance), float(centre)))
    return found


def _groups_of(sample: Sample, side: Side, refinement: int) -> list[Group]:
    """The groups; but few where each takes long."""
    population, rate = sample.population, sample.rate
    if isinstance(sample.base(population), RepeatedBlock):
        mean = population * rate
        edges = mean + math.sqrt(mean * (1.0 - rate)) * np.array(_COMPOSED)
        first = np.unique(np.clip(np.rint([1.0, *edges]), 1, population)).astype(np.int64)
        return grouped(first, population, rate, side)
    if side is Side.LOWER and isinstance(sample.base(population), IdenticalGaussianBlock):
        mean = population * rate
        deviation = math.sqrt(mean * (1.0 - rate))
        edges = [1.0, math.floor(mean) + 1.0, math.ceil(mean + 2.0 * deviation) + 1.0]
        first = np.unique(np.clip(edges, 1, population)).astype(np.int64)
        # Those of many more come seldom, and their curve is that of all clients.
        return grouped(first, population, rate, side)[:2]
    return groups(population, rate, side, refinement)


def _between(first: FloatArray, trials: int, chance: float) -> tuple[FloatArray, FloatArray]:
    """The chance of each group of a binomial from a first number on, and bounds on its error."""
    inner = first.astype(float)
    inside = inner >= 1
    start, rest = np.where(inside, inner, 1.0), np.maximum(trials - inner + 1.0, 1.0)
    possible = inner <= trials
    below = np.where(inside, betaincc(start, rest, chance), 0.0)
    above = np.where(inside, betainc(start, rest, chance), 1.0)
    below = np.append(np.where(possible, below, 1.0), 1.0)
    above = np.append(np.where(possible, above, 0.0), 0.0)
    left = below[1:] <= above[:-1]
    mass = np.where(left, np.diff(below), -np.diff(above))
    return np.maximum(mass, 0.0), _SLACK * np.where(left, below[1:], above[:-1])


def dilutions(group: Group, population: int, side: Side) -> list[tuple[float, float]]:
    """Rates γ and weights that stand for the N's of a group."""
    first, last, chance, mean = group
    if side is Side.LOWER or first == last:
        return [(mean / population, chance)]
    high = chance * (mean - first) / (last - first)
    return [(first / population, chance - high), (last / population, high)]
