"""Self-sampling: mixtures over the number of clients that send a message.

`Mixture` is a bound on δ(K) of a `Sample` of clients in one direction, computed by groups of N
(`groups`). `SampledCurve` is a tighter upper bound for a blanket pair, by `SampledCells`: cells of
the distribution of the numbers of messages, at the resolution of a `Grain`.
`sampled_rounds` makes blocks of both; `schemes` uses `groups_from`. docs/design/shuffling.md
("Sampling") has the proofs.

Notation (see also `blanket_pairs`)
    n    number of clients
    q    probability that a client sends a message
    N    number of messages of a round, Bin(n, q); the senders are a uniform subset
    γ    N/n; ρ is its inverse       K = e^ε
    δ_N  δ(K) of N shuffled messages, the worst case over all records; falls in N, convex in K
    B    number of high and low messages     c    number of neutral messages
    m    N − B                               r    v₃/β₃

**Mixture.** Given N, which is observed, the round is that of a uniform subset: δ(K) is at most the
mean over N of h(N) = γ·δ_N(1 + (K − 1)/γ) (`sampled_rounds.SubsampledBlock`). If one fixed curve
replaces δ_N, h rises with γ and is convex in γ (a perspective). So for N₁ ≤ N ≤ N₂ the curve of N₁
gives an upper bound if N is spread on N₁ and N₂ with its mean unchanged, and the curve of N₂ gives
a lower bound if N is replaced by its mean. The same holds for both directions of a diluted pair,
(1 − γ)Q + γP against Q.

**Blanket pairs.** δ_N itself is a mean over B and c (`blanket`). Together with N, these numbers
have the distributions

    B − 1 ~ Bin(n − 1, 2βq),   m | B ~ Bin(n − B, q(1 − 2β)/(1 − 2βq)),   c | m ~ Bin(m, p),

p = β₃/(1 − 2β), and δ(K) is q times the mean of a price (the largest gain of an event, as in
`blanket`) at 1 + (K − 1)ρ. The gain of an event is a constant less a multiple of
ρ·(v_h + v_l + 2rβc/B), so that the price is convex in ρ and ρc together and falls in both. An upper
bound uses:

  * For B in [B₁, B₂] the cells are as in `blanket_pairs.Cells`, with the distribution of m at B₂
    and N = B₂ + m. (With the same coins of the others, this m is at most the true m, and this N at
    least the true N.)
  * For m between two points a < b and c = m·x, the price is convex along any line of (ρ, ρc). Of
    these ρc = nx·m/N is concave in m, so it lies above its chord; and ρ is above
    4·N_a·N_b/(N_a + N_b)² times its chord. If ρ at both ends is multiplied by this factor, the
    price lies below the chord of the prices at the ends.
  * For all m from m' on, c | m is replaced by m/m'·Bin(m', p), which is larger in convex order.
  * Cells of negligible probability are left out, and the bound adds their probability, since a
    price is at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, betaincc

from turnout.accounting.divergence.blocks import Block, CurvePair
from turnout.accounting.divergence.composition import RepeatedBlock
from turnout.accounting.divergence.curves import Curve, Direction, Side, diluted
from turnout.accounting.shuffling.approximate import PricedMessages, require_upper
from turnout.accounting.shuffling.blanket import BlanketBlock, BlanketCurve, best_events
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    first_of_groups,
    group_chances,
    points_of,
    stretched,
)
from turnout.accounting.shuffling.lower_bounds import IdenticalGaussianBlock
from turnout.core import checks
from turnout.core.arrays import BoolArray, FloatArray, IntArray

_SLACK = 1e-9  # relative error that a binomial probability may have
_EVERY = 1.5  # distance of numbers up to which none lies between
_COARSEST = 3.0  # deviations between points, at most
_SURE = 1.0 - 1e-12  # p above which all that is not high or low is neutral
_LEAST_SHARE = 0.1  # of v₃², for a δ that depends on few messages
_ALL = 60  # so few numbers that each is a point


class Grain(NamedTuple):
    """Resolution at which the numbers of messages are discretised.

    Attributes:
        groups: groups of B, the number of high and low messages, are about B/(8·groups) wide, or
            single values.
        fine: the spacing of the points of m, the number of messages that are neither high nor low,
            is about m/√fine; that of c, the number of neutral messages, about c/(v₃·√fine).
        lost: approximate limit on the total probability of the cells that are left out.
    """

    groups: int
    fine: float
    lost: float


@dataclass(frozen=True, slots=True, eq=False)
class SampledCells:
    """Cells of the distribution of the numbers of messages, for an upper bound on δ(K).

    Each cell is one value of B (high and low messages), of c (neutral messages) and of N (all
    messages). Each array has the shape (cells,).

    Attributes:
        coins: B − 1.
        excess: part of the threshold that neutral messages add, as in `blanket_pairs.Cells`, with
            c·``rate``·n/N in place of c.
        rate: value used in place of γ = N/n, never below it.
        weight: probability of the cell times q, the probability that a client sends.
        lost: upper bound on the total probability of all cells that are left out.
    """

    coins: FloatArray
    excess: FloatArray
    rate: FloatArray
    weight: FloatArray
    lost: float

    @classmethod
    def of(cls, pair: BlanketPair, population: int, rate: float, grain: Grain) -> SampledCells:
        """Cells whose weighted prices, plus ``lost``, add up to an upper bound on δ(K).

        Args:
            pair: blanket pair of the messages.
            population: n, number of clients.
            rate: q, probability that a client sends a message, in (0, 1].
            grain: resolution of the numbers of messages.
        """
        # Groups of B.
        others, chance = population - 1, min(2.0 * pair.share * rate, 1.0)
        first = first_of_groups(others, chance, grain.groups)
        near, far = first, np.append(first[1:] - 1.0, float(others))
        chances = rate * group_chances(first, others, chance, Side.UPPER)
        kept, lost = _heavy(chances, grain.lost)
        near, far, chances = near[kept], far[kept], chances[kept]
        # Points of m for each group, with N and 1/ρ.
        present = rate * (1.0 - 2.0 * pair.share) / (1.0 - chance) if chance < 1 else 0.0
        row, m, weights, least = _spread(others - far, min(present, 1.0), grain.fine)
        messages = far[row] + 1.0 + m
        rates = messages / population / _lowered(messages, row)
        weights = weights * chances[row]
        kept, left_out = _heavy(weights, grain.lost)
        lost += left_out
        # Drop cells of negligible probability.
        near, far, m, least = near[row[kept]], far[row[kept]], m[kept], least[kept]
        messages, rates, weights = messages[kept], rates[kept], weights[kept]
        # Points of c for each cell, if messages may be neutral.
        if pair.neutral == 0.0:
            return cls(near, np.zeros(near.size), rates, weights, lost)
        cell, c, shares = _neutrals(pair, m, least, grain.fine)
        c = c * (population * rates / messages)[cell]
        coins, excess, weights = _moved(pair, near, far, weights, (cell, c, shares))
        kept, left_out = _heavy(weights, grain.lost)
        return cls(coins[kept], excess[kept], rates[cell[kept]], weights[kept], lost + left_out)


def _heavy(weights: FloatArray, lost: float) -> tuple[BoolArray, float]:
    """Mask of the weights to keep, and an upper bound on the sum of all other weights.

    The largest weight is always kept.
    """
    kept = weights >= min(lost / max(weights.size, 1), float(weights.max()))
    return kept, float(weights[~kept].sum()) * (1.0 + _SLACK)


def _moved(
    pair: BlanketPair,
    near: FloatArray,
    far: FloatArray,
    weights: FloatArray,
    neutrals: tuple[IntArray, FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fields ``coins``, ``excess`` and ``weight`` of `SampledCells`, with one cell for each c.

    Every given cell is split by the number c of neutral messages.
    """
    cell, c, shares = neutrals
    drift = 2.0 * pair.neutral_ratio * pair.share * c
    sums = pair.high + pair.low
    by_mean = np.bincount(cell, shares * drift, minlength=far.size) <= sums * (far + 1.0)
    moved = np.where(by_mean, 0.0, sums * (near - far))
    weights = weights * np.where(by_mean, 1.0, (far + 1.0) / (near + 1.0))
    excess = (moved[cell] + drift) / (far[cell] + 1.0)
    return np.where(by_mean, near, far)[cell], excess, shares * weights[cell]


def _lowered(messages: FloatArray, row: IntArray) -> FloatArray:
    """Factor that reduces 1/N at each point, so that chords of the reduced 1/N lie below 1/N."""
    a, b = messages[:-1], messages[1:]
    same = (row[1:] == row[:-1]) & (b - a > _EVERY)
    factor = np.where(same, 4.0 * a * b / (a + b) ** 2, 1.0)
    return np.minimum(np.append(factor, 1.0), np.append(1.0, factor)) * (1.0 - 1e-15)


def _spread(
    trials: FloatArray, chance: float, fine: float
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Points of a coarser distribution in place of Bin(trials, chance) in each row.

    The first three arrays are the row, value and weight of each point. The mean of a price over the
    points is an upper bound if the price lies below its chords between points. The last array holds
    the smallest number that the chord of each point covers.
    """
    # Points around the mean of each row, at distances that follow from the grain.
    mean = trials * chance
    deviation = np.sqrt(mean * (1.0 - chance)) + 1e-9
    typical, wide = float(np.median(mean)), float(np.median(deviation))
    apart = max(min(_COARSEST, typical / math.sqrt(fine) / wide), 1.0 / wide)
    offsets = stretched(apart)
    points = np.rint(mean[:, None] + deviation[:, None] * offsets)
    # Neighbours of the mean, so that no long chord ends at the mean for small deviations.
    about = np.rint(mean)[:, None] + np.arange(-1.0, 2.0)
    points = np.concatenate([about, points], axis=1)
    # All small numbers where the mean is small, and the ends of the range.
    if typical < _ALL:
        points = np.concatenate([np.tile(np.arange(_ALL + 1.0), (trials.size, 1)), points], axis=1)
    points = np.clip(points, 0.0, trials[:, None])
    ends = np.zeros((trials.size, 1)), trials[:, None]
    points = np.sort(np.concatenate([ends[0], points, ends[1]], axis=1), axis=1)
    # Drop repeated points; weights by hats.
    kept = np.diff(points, axis=1, prepend=-1.0) > 0
    row = np.nonzero(kept)[0]
    x = points[kept]
    weights = _hats(x, row, trials[row], chance)
    below = np.where(np.diff(row, prepend=-1) > 0, x, np.append(0.0, x[:-1]) + 1.0)
    return row, x, weights, below


def _hats(x: FloatArray, row: IntArray, trials: FloatArray, chance: float) -> FloatArray:
    """Upper bound on the mean of each hat function of a binomial variable.

    The hats have their peaks at the points ``x``, which in each row range from 0 to ``trials``.
    """
    # Hockey sticks above the mean and reverse hockey sticks below, from the smaller tails.
    high = x > trials * chance
    outer, inner = _tail(x, trials, chance, high=high)
    part = trials * chance * inner
    price = np.maximum(np.where(high, part - x * outer, x * outer - part), 0.0)
    rounding = _SLACK * (part + x * outer)
    # Both kinds at every point; they differ by a line.
    start, end = np.diff(row, prepend=-1) > 0, np.diff(row, append=-1) != 0
    gaps = np.where(end, 1.0, np.append(x[1:], 0.0) - x)
    shift = x - trials * chance  # of a reverse hockey stick from a hockey stick
    reverse_hockey_stick, hockey_stick = (
        np.where(high, price + shift, price),
        np.where(high, price, price - shift),
    )

    def slopes(values: FloatArray) -> FloatArray:
        return (np.append(values[1:], 0.0) - values) / gaps

    # The mean of a hat is the slope after its point minus the slope before it.
    after = np.where(
        high,
        np.where(end, 0.0, slopes(hockey_stick)),
        np.where(end, 1.0, slopes(reverse_hockey_stick)),
    )
    # The slope before a point, of the same kind as the point's own.
    before_reverse = np.where(start, 0.0, np.append(0.0, slopes(reverse_hockey_stick)[:-1]))
    before_hockey_stick = np.where(start, -1.0, np.append(0.0, slopes(hockey_stick)[:-1]))
    before = np.where(high, before_hockey_stick, before_reverse)
    # Add the rounding error: still an upper bound.
    near = np.append(0.0, rounding[:-1]), np.append(rounding[1:], 0.0)
    error = np.where(start, 0.0, (rounding + near[0]) / np.append(1.0, gaps[:-1]))
    error = error + np.where(end, 0.0, (rounding + near[1]) / gaps)
    return np.clip(after - before, 0.0, 1.0) + error


def _tail(
    x: FloatArray, trials: FloatArray, chance: float, *, high: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Two upper tail probabilities of binomial variables where ``high``, else two lower ones.

    With l = ``trials``, the results are P(Bin(l) > x) and P(Bin(l − 1) ≥ x) if ``high``, else
    P(Bin(l) < x) and P(Bin(l − 1) < x − 1).
    """
    # Upper tails, for points above the mean: of l trials, and of l − 1.
    less = np.maximum(trials - 1.0, 1.0)
    above = high & (x < trials)
    up = np.where(above, x + 1.0, 1.0)
    outer_high = np.where(above, betainc(up, np.where(above, trials - x, 1.0), chance), 0.0)
    inside = above & (x >= 1)
    up = np.where(inside, x, 1.0)
    inner_high = betainc(up, np.where(inside, less - x + 1.0, 1.0), chance)
    inner_high = np.where(inside, inner_high, np.where(above, 1.0, 0.0))
    # Lower tails, for all other points.
    low = ~high & (x >= 1)
    outer_low = betaincc(np.where(low, x, 1.0), np.where(low, trials - x + 1.0, 1.0), chance)
    lower = ~high & (x >= 2)
    inner_low = betaincc(
        np.where(lower, x - 1.0, 1.0), np.where(lower, less - x + 2.0, 1.0), chance
    )
    # Each point takes the smaller of its two tails.
    outer = np.where(high, outer_high, np.where(low, outer_low, 0.0))
    return outer, np.where(high, inner_high, np.where(lower, inner_low, 0.0))


def _neutrals(
    pair: BlanketPair, m: FloatArray, least: FloatArray, fine: float
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Cell, value and weight of each point for the number c of neutral messages given m.

    The points give an upper bound for every number of messages from ``least`` to ``m`` that are
    not high or low.
    """
    rest = 1.0 - 2.0 * pair.share
    p = min(pair.neutral_share / rest, 1.0) if rest > 0 else 1.0
    least = np.minimum(least, m)
    order = np.argsort(-least, kind="stable")
    fine = fine * max(pair.neutral**2, _LEAST_SHARE)
    chance = p if p < _SURE else 1.0
    index, points, weights = points_of(least[order], chance, Side.UPPER, fine)
    cell = order[index]
    return cell, points * (m / np.maximum(least, 1.0))[cell], weights


_AT_ONCE = 1 << 17  # prices, so that arrays stay small


@dataclass(frozen=True)
class SampledCurve:
    """Upper bound on the mean of γ·δ_N(1 + (K − 1)/γ) over N ~ Bin(n, q), with γ = N/n.

    δ_N(K) is the δ of N shuffled messages by the blanket pair.

    Attributes:
        pair: blanket pair of the messages.
        population: n, number of clients.
        rate: q, probability that a client sends a message, in (0, 1].
        grain: resolution of the numbers of messages.
    """

    pair: BlanketPair
    population: int
    rate: float
    grain: Grain

    def __post_init__(self) -> None:
        checks.count(population=self.population, groups=self.grain.groups)
        checks.probability(rate=self.rate)
        checks.positive(fine=self.grain.fine, lost=self.grain.lost)

    @property
    def floor(self) -> float:
        """Limit of δ for large ε, always 0: no view is more than e^{ε₀} times as likely."""
        return 0.0

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        flat = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        step = max(1, _AT_ONCE // max(self._cells.weight.size, 1))
        parts = [self._priced(flat[i : i + step]) for i in range(0, flat.size, step)]
        return np.concatenate(parts).reshape(np.shape(k))

    def slope(self, k: FloatArray) -> FloatArray:
        """Zeros in the shape of ``k``, because only lower curves need slopes."""
        return np.zeros(np.shape(k))

    def _priced(self, k: FloatArray) -> FloatArray:
        cells = self._cells
        ratios = 1.0 + (k[None, :] - 1.0) / cells.rate[:, None]
        events = best_events(self.pair, cells.coins, cells.excess, ratios)
        total = cells.weight @ events.most + cells.lost
        return np.minimum(total * (1.0 + _SLACK), 1.0)

    @cached_property
    def _cells(self) -> SampledCells:
        return SampledCells.of(self.pair, self.population, self.rate, self.grain)


MessageBlocks = Callable[[int], Block]
"""Function from a number of messages of one randomizer to the block of a round of them.

If the blocks are `BlanketBlock`s, all have the same pair. Functions that return equal blocks must
compare equal, so instances of a frozen dataclass are used."""

_LARGEST_HINT = 0.5

_INNER, _OUTER = 3.0, (5.0, 9.0)  # deviations of N: narrow groups, and where wide ones end
_FEWEST, _MOST = 4, 24
_COMPOSED = (-7.0, -3.0, -1.0, 1.0, 4.0)  # where groups begin whose curves are compositions
_FEW = 24  # N's about the mean that are single groups
_WIDTH = 1e-3  # of a group, relative to N; about four times the error that it makes in ε
_GROUPS_OF_BLANKET = 64  # number of groups into which numbers of blanket messages are divided


class RoundGroup(NamedTuple):
    """Group of numbers of messages N₁ ≤ N ≤ N₂: its probability, and the mean of N in it."""

    first: int
    last: int
    chance: float
    mean: float


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Curve that bounds δ(K) of N messages for a group of N, and weighted rates γ = N/n."""

    curve: Curve
    dilutions: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Sample:
    """Round in which each of n clients sends a message with probability q.

    Attributes:
        base: function from the number of messages to the block of a round of them.
        population: n, the number of clients.
        rate: q in (0, 1].
        identical_others: whether the blocks assume that all other clients hold identical records.
    """

    base: MessageBlocks
    population: int
    rate: float
    identical_others: bool


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Upper or lower bound on δ(K) of a self-sampling round in one direction."""

    parts: Sequence[_Part]
    dilution: Direction
    side: Side
    floor: float

    @classmethod
    def of(
        cls, sample: Sample, direction: Direction, side: Side, delta: float, refinement: int
    ) -> Mixture:
        """Mixture of the curves of all groups of N, tight where δ(K) is at least the given δ."""
        # One curve for each group, at the end of the group that is valid for the side.
        parts: list[_Part] = []
        floor = 0.0
        mixed = _groups_of(sample, side, refinement)
        for group in mixed:
            # A curve may stay constant below its hint, so the hints together must stay below δ.
            weight = len(mixed) * sample.rate * max(group.chance, 1e-300)
            hint = min(_LARGEST_HINT, delta / weight)
            block = sample.base(group.first if side is Side.UPPER else group.last)
            spread = dilutions(group, sample.population, side)
            parts.append(_Part(wide_curve(block, direction, side, hint, refinement), spread))
            floor += sum(rate * weight for rate, weight in spread) * floor_of(block, side)
        # A victim that may stay away makes no outcome impossible.
        if sample.identical_others and direction is Direction.ADD and sample.rate < 1:
            floor = 0.0
        return cls(
            parts, dilution_of(direction, identical_others=sample.identical_others), side, floor
        )

    @classmethod
    def alone(cls, sample: Sample, curve: Curve) -> Mixture:
        """Upper mixture from one upper curve, which is valid for every number of messages."""
        parts = [
            _Part(curve, dilutions(group, sample.population, Side.UPPER))
            for group in groups(sample.population, sample.rate, Side.UPPER, 0)
        ]
        return cls(parts, Direction.REMOVE, Side.UPPER, 0.0)

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        total = np.zeros(np.shape(k))
        for part in self.parts:
            for rate, weight in part.dilutions:
                total = total + weight * diluted(part.curve, self.dilution, rate).delta(k)
        if self.side is Side.UPPER:
            return np.minimum(total * (1.0 + _SLACK), 1.0)
        return total * (1.0 - _SLACK)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope dδ/dK at each K ≥ 1, shape of ``k``.

        The line with this slope through any lower bound on δ(K) lies below the curve.
        """
        total = np.zeros(np.shape(k))
        for part in self.parts:
            for rate, weight in part.dilutions:
                total = total + weight * diluted(part.curve, self.dilution, rate).slope(k)
        return total * (1.0 - _SLACK)


@dataclass(frozen=True, slots=True, eq=False)
class _BestCurve:
    """Curve with the smallest of several upper bounds, or the largest lower bound, at each K."""

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
    """Curve of a block in one direction, tight where δ(K) is at least the given δ.

    Raises:
        UnsupportedError: ``side`` is LOWER and the block has upper bounds only.
    """
    if isinstance(block, PricedMessages):
        require_upper(side)
        return block.wide(refinement)
    if isinstance(block, BlanketBlock):  # few K need no polygon
        pair = block.upper if side is Side.UPPER else block.lower
        if pair is not None:
            return BlanketCurve(
                pair, block.clients, side, round(_GROUPS_OF_BLANKET * 2 ** (refinement / 2))
            )
    return best_curve(block.curves(side, delta, refinement), direction)


def best_curve(pair: CurvePair, direction: Direction) -> Curve:
    """Curve of one direction: the tightest of the curves that a `CurvePair` holds, at each K."""
    curves = pair.remove if direction is Direction.REMOVE else pair.add
    return curves[0] if len(curves) == 1 else _BestCurve(pair, direction)


def dilution_of(direction: Direction, *, identical_others: bool) -> Direction:
    """Direction whose dilution formula is used; without identical others always REMOVE."""
    return direction if identical_others else Direction.REMOVE


def floor_of(block: Block, side: Side) -> float:
    """Limit of a block's δ for large ε."""
    if isinstance(block, BlanketBlock):
        return 0.0
    if isinstance(block, PricedMessages):
        return block.floor
    return max(block.curves(side, _LARGEST_HINT, 0).floors)


def groups(population: int, rate: float, side: Side, refinement: int) -> list[RoundGroup]:
    """Groups of N ~ Bin(n, q), N ≥ 1, with probabilities and means rounded to one side.

    Args:
        population: n, number of clients.
        rate: q, probability that a client sends a message, in (0, 1].
        side: UPPER to round probabilities up, LOWER to round them down.
        refinement: each unit doubles the number of groups.
    """
    mean = population * rate
    if rate == 1.0:
        return [RoundGroup(population, population, 1.0, float(population))]
    deviation = math.sqrt(mean * (1.0 - rate)) + 1.0
    narrow = math.ceil(2 * _INNER * deviation / (_WIDTH * mean))
    count = min(max(narrow, _FEWEST), _MOST) << refinement
    scores = [*(-s for s in reversed(_OUTER)), *np.linspace(-_INNER, _INNER, count + 1), *_OUTER]
    edges = np.clip(np.rint(mean + deviation * np.array(scores)), 1, population)
    singles = np.arange(math.floor(mean) - _FEW // 2, math.ceil(mean) + _FEW // 2 + 1)
    inner = singles if deviation < _FEW / 6 else edges
    first = np.unique(np.clip(np.concatenate([[1], edges, inner]), 1, population)).astype(np.int64)
    return groups_from(first, population, rate, side)


def groups_from(first: IntArray, population: int, rate: float, side: Side) -> list[RoundGroup]:
    """Groups of N whose smallest numbers are ``first``, with probabilities rounded to one side.

    Args:
        first: smallest N of each group, increasing, shape (groups,).
        population: n, number of clients.
        rate: q, probability that a client sends a message, in (0, 1].
        side: UPPER to round probabilities up, LOWER to round them down.
    """
    # Probability of each group, and its part of the mean by the size-biased binomial.
    mean = population * rate
    last = np.append(first[1:] - 1, population)
    chances, errors = _between(first, population, rate)
    sums, off = _between(first - 1, population - 1, rate)
    found: list[RoundGroup] = []
    for i in range(first.size):
        # Round the probability and the total of N to the side; the mean stays within the group.
        lowest, highest = int(first[i]), int(last[i])
        if side is Side.UPPER:
            chance = min(chances[i] + errors[i], 1.0)
            total = mean * (sums[i] + off[i]) + highest * errors[i]
        else:
            chance = max(chances[i] - errors[i], 0.0)
            total = mean * (sums[i] - off[i]) - highest * errors[i]
        if chance > 0:
            centre = min(max(total / chance, lowest), highest)
            found.append(RoundGroup(lowest, highest, float(chance), float(centre)))
    return found


def _groups_of(sample: Sample, side: Side, refinement: int) -> list[RoundGroup]:
    """Groups of N of a sample; the groups are few if each group's curve is slow to compute."""
    population, rate = sample.population, sample.rate
    if isinstance(sample.base(population), RepeatedBlock):
        mean = population * rate
        edges = mean + math.sqrt(mean * (1.0 - rate)) * np.array(_COMPOSED)
        first = np.unique(np.clip(np.rint([1.0, *edges]), 1, population)).astype(np.int64)
        return groups_from(first, population, rate, side)
    if side is Side.LOWER and isinstance(sample.base(population), IdenticalGaussianBlock):
        mean = population * rate
        deviation = math.sqrt(mean * (1.0 - rate))
        edges = [1.0, math.floor(mean) + 1.0, math.ceil(mean + 2.0 * deviation) + 1.0]
        first = np.unique(np.clip(edges, 1, population)).astype(np.int64)
        # The group of the largest N has a small probability, and needs the slow curve of all
        # clients: a lower bound may leave it out.
        return groups_from(first, population, rate, side)[:2]
    return groups(population, rate, side, refinement)


def _between(first: IntArray, trials: int, chance: float) -> tuple[FloatArray, FloatArray]:
    """Probability of each group of values of a binomial variable, and bounds on the errors."""
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


def dilutions(group: RoundGroup, population: int, side: Side) -> list[tuple[float, float]]:
    """Rates γ = N/n, each with a weight, that replace all values N₁ ≤ N ≤ N₂ of one group.

    N is the number of messages. For an upper bound the group's probability is divided between the
    rates of its smallest and its largest N, such that the mean of N is unchanged. For a lower bound
    one rate, that of the mean of N, has the whole probability.
    """
    first, last, chance, mean = group
    if side is Side.LOWER or first == last:
        return [(mean / population, chance)]
    high = chance * (mean - first) / (last - first)
    return [(first / population, chance - high), (last / population, high)]
