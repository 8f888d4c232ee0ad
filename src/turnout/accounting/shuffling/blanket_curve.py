"""δ(K) of a blanket pair, from above or below, in a millisecond a K.

Notation (see also `blanket`)
    n    clients                       K = e^ε
    N    high and low messages in all  c    neutral ones
    A    high ones of the N            u = 2A − N, a walk of N fair steps

The view's law is a mixture: it is that of n messages of the blanket alone, times A/(nβ),
(N − A)/(nβ) or c/(nβ₃) where the victim's message is high, low or neutral. So, with N − 1 ~
Bin(n − 1, 2β) and c | N ~ Bin(n − N, β₃/(1 − 2β)) (the size-biased binomial, as in the privacy
blanket, balle2019blanket),

    δ(K) = (K + 1)(v_h − v_l)·E[(u/N − θ·y/N)₊],   θ = (K − 1)/(K + 1),
    y = ((v_h + v_l)·N + 2(v₃/β₃)β·c)/(v_h − v_l),

the same in both directions by symmetry. N is cut into groups N₁ ≤ N ≤ N₂. E[(u/N − t)₊] falls in
N, for the mean of N exchangeable steps is a martingale in reverse, and falls and is convex in t;
E[(u − s)₊] rises in N. So the group is worth at most
  * u/N at N₁ with the drift y/N at its least (c at N₂ over N₂), or
  * u at N₂ with the drift y at its least (N₁, and c at N₂), divided by N₁,
and at least the same with N₁ and N₂ exchanged. Which is sharper depends on what the drift is made
of; without neutral messages it is the first, with nothing lost in t. In c the price is convex and
falls: from above c is spread over a few points that keep its mean (hat weights), from below it
is put on its mean (Jensen).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, betaincc

from turnout.accounting.curves import Side
from turnout.accounting.pairs import UNIT_ROUNDOFF
from turnout.accounting.shuffling.blanket import BlanketPair
from turnout.accounting.shuffling.coins import at_least, heads
from turnout.core import checks

FloatArray = np.ndarray
_BEND, _FURTHEST = 4.0, 30.0  # deviations of N up to which groups are narrow, and which they cover
_SPARED = 2.5  # that many times the groups there may be if each is then a single N
_SLACK = 1e-9  # relative error that a binomial probability may have
_AT_ONCE = 1 << 17  # prices, so that arrays stay small
_COARSEST, _FINE = 2.0, 6000.0  # points of c: at most 2 deviations apart, and √(c/6000)
_INNER, _OUTER = 6.0, np.array([-30.0, -18.0, -10.0])  # deviations of c
_SURE = 1.0 - 1e-12  # β₃/(1 − 2β) above which all that is not high or low is neutral


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """What N and c are taken to be, and how often, shape (cells,) each.

    Attributes:
        coins: steps of the walk but one.
        excess: (y·(v_h − v_l))/N − (v_h + v_l), which moves the strike.
        weight: chance.
    """

    coins: FloatArray
    excess: FloatArray
    weight: FloatArray


@dataclass(frozen=True)
class BlanketCurve:
    """δ(K) of a blanket pair; both directions are the same.

    Attributes:
        pair: the pair.
        clients: n ≥ 1.
        side: on which side of the pair's δ the curve lies.
        groups: about how many groups N is cut into.
    """

    pair: BlanketPair
    clients: int
    side: Side
    groups: int = 256

    def __post_init__(self) -> None:
        checks.count(clients=self.clients, groups=self.groups)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        flat = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        step = max(1, _AT_ONCE // self._cells.weight.size)
        parts = [self._deltas(flat[i : i + step]) for i in range(0, flat.size, step)]
        return np.concatenate(parts).reshape(np.shape(k))

    def slope(self, k: FloatArray) -> FloatArray:
        """Always 0, which lies above the true slope: lower curves are composed as polygons."""
        return np.zeros(np.shape(k))

    def _deltas(self, k: FloatArray) -> FloatArray:
        cells, k = self._cells, k[None, :]
        high, low = self.pair.high, self.pair.low
        coins, excess = cells.coins[:, None], cells.excess[:, None]
        # What an event gains at most, all of the N messages being high; it never does below 0.
        most = high - k * low - 0.5 * (k - 1.0) * excess
        rounding = 8 * UNIT_ROUNDOFF * (high + k * low + 0.5 * (k - 1.0) * np.abs(excess))
        possible = most >= -rounding
        # The share of A in N from which on the one world is likelier by more than K.
        share = high - low / k + 0.5 * (1.0 - 1.0 / k) * excess
        share = np.where(possible, share / ((1.0 + 1.0 / k) * (high - low)), 1.0)
        above = np.minimum(np.floor((coins + 1.0) * share), coins)
        mass, tail = heads(coins, above), at_least(coins, above + 1.0)
        gain, loss = mass * most, (k - 1.0) * (high + low + excess) * tail
        value = np.where(possible, gain - loss, 0.0)
        slack = np.where(possible, _SLACK * (np.abs(gain) + loss) + mass * rounding, 0.0)
        if self.side is Side.UPPER:
            total = cells.weight @ (np.maximum(value, 0.0) + slack)
            return np.minimum(total * (1.0 + _SLACK), 1.0)
        return (cells.weight @ np.maximum(value - slack, 0.0)) * (1.0 - _SLACK)

    @cached_property
    def _cells(self) -> _Cells:
        """Groups of N, each with all the points that c is put on."""
        first, last, chance = self._groups
        if self.pair.neutral == 0.0:
            coins = first if self.side is Side.UPPER else last
            return _Cells(coins, np.zeros(coins.size), chance)
        near, far = (first, last) if self.side is Side.UPPER else (last, first)
        neutrals, weights = self._neutrals(far)
        sums = self.pair.high + self.pair.low
        drift = 2.0 * self.pair.neutral_ratio * self.pair.share * neutrals
        # By the mean of the walk the price loses in the share of c, by the walk in that of N.
        by_mean = np.sum(weights * drift, axis=1) <= sums * (far + 1.0)
        moved = np.where(by_mean, 0.0, sums * (near - far))
        excess = (moved[:, None] + drift) / (far[:, None] + 1.0)
        chance = chance * np.where(by_mean, 1.0, (far + 1.0) / (near + 1.0))
        weights = chance[:, None] * weights
        coins = np.broadcast_to(np.where(by_mean, near, far)[:, None], weights.shape)
        kept = weights > 0
        return _Cells(coins[kept], excess[kept], weights[kept])

    @cached_property
    def _groups(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """First and last N − 1 of each group and its chance, moved to the side of the curve."""
        others, chance = self.clients - 1, min(2.0 * self.pair.share, 1.0)
        if others < _SPARED * self.groups:
            first = np.arange(others + 1.0)
        else:
            mean, deviation = others * chance, math.sqrt(others * chance * (1.0 - chance)) + 1.0
            reach = _BEND * math.asinh(_FURTHEST / _BEND)
            singles = math.ceil(2.0 * reach * deviation)
            count = singles if singles <= _SPARED * self.groups else self.groups
            edges = np.sinh(np.linspace(-reach, reach, count + 1) / _BEND)
            edges = np.clip(mean + _BEND * deviation * edges, 0.0, others)
            first = np.unique(np.floor(np.append(0.0, edges)))
        last = np.append(first[1:] - 1.0, float(others))
        return first, last, _between(first, others, chance, self.side)

    def _neutrals(self, others: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points that stand for c given N − 1, and their weights, shape (groups, points)."""
        rest = 1.0 - 2.0 * self.pair.share
        sure = self.pair.neutral_share >= _SURE * rest
        chance = 1.0 if sure else self.pair.neutral_share / rest
        trials = (self.clients - 1.0 - others)[:, None]
        if sure or self.side is Side.LOWER:
            return trials * chance, np.ones(trials.shape)
        return _hats(trials, chance)


def _between(first: FloatArray, trials: int, chance: float, side: Side) -> FloatArray:
    """The chance of each group of a binomial, from the smaller tail, on the right side."""
    inner = np.maximum(first[1:], 1.0)
    rest = np.maximum(trials - inner + 1.0, 1.0)
    below = np.concatenate([[0.0], betaincc(inner, rest, chance), [1.0]])
    above = np.concatenate([[1.0], betainc(inner, rest, chance), [0.0]])
    left = below[1:] <= above[:-1]
    mass = np.where(left, np.diff(below), -np.diff(above))
    error = _SLACK * np.where(left, below[1:], above[:-1])
    if side is Side.UPPER:
        return np.minimum(np.maximum(mass, 0.0) + error, 1.0)
    return np.maximum(mass - error, 0.0)


def _hats(trials: FloatArray, chance: float) -> tuple[FloatArray, FloatArray]:
    """Points for a binomial number, and weights with which a price there is no smaller.

    The price is convex and falls, so a number between two points may count as both of them, in
    proportion, and one beyond the last point as the last.
    """
    mean = trials * chance
    deviation = np.sqrt(mean * (1.0 - chance)) + 1e-9
    apart = min(_COARSEST, math.sqrt((float(np.max(mean)) + 1.0) / _FINE))
    apart = max(apart, 1.0 / float(np.max(deviation)))
    inner = np.append(_OUTER, np.arange(-_INNER, _INNER + apart, apart))
    points = np.clip(np.rint(mean + inner * deviation), 0.0, trials)
    points = np.concatenate([np.zeros_like(mean), points], axis=1)
    puts, rounding = _puts(points, trials, chance)
    gaps = np.diff(points, axis=1)
    # Σ weight·price = last price + Σ slope of the put·(fall of the price from point to point).
    slopes = (np.diff(puts, axis=1) + rounding[:, 1:]) / np.where(gaps > 0, gaps, 1.0)
    slopes = np.maximum.accumulate(np.clip(np.where(gaps > 0, slopes, 0.0), 0.0, 1.0), axis=1)
    steps = np.concatenate([np.zeros_like(mean), slopes, np.ones_like(mean)], axis=1)
    return points, np.diff(steps, axis=1)


def _puts(points: FloatArray, trials: FloatArray, chance: float) -> tuple[FloatArray, FloatArray]:
    """E[(x − c)₊] of a binomial c at each point, and a bound on the rounding of its two parts."""
    inside = (points < trials) & (points >= 0)
    x, n = np.where(inside, points, 0.0), np.where(inside, trials, 1.0)
    whole = x * betaincc(x + 1.0, n - x, chance)
    most = n > 1
    fewer = np.where(
        most & (x > 0), betaincc(np.maximum(x, 1.0), np.maximum(n - x, 1.0), chance), 0.0
    )
    part = n * chance * fewer
    puts = np.where(inside, whole - part, points - trials * chance)
    return puts, _SLACK * np.where(inside, whole + part, points + trials * chance)
