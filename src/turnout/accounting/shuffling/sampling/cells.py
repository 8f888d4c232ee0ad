"""δ(K) of a blanket pair whose messages come from self-sampling, from above.

What the numbers of messages are taken to be, and how often.

Notation (see also `blanket.pair` and `blanket.cells`)
    n    clients           q    each one's chance of sending a message
    N    messages          B    high and low ones     c    neutral ones     m    N − B
    ρ    n/N               K = e^ε                    r    v₃/β₃

The round is worth the mean of γ·δ_N(1 + (K − 1)/γ) over N (`mixtures`), γ = N/n, and δ_N that over
B and c (`blanket.curve`). Both γ and B count as chances there, so that together

    B − 1 ~ Bin(n − 1, 2βq),   m | B ~ Bin(n − B, q(1 − 2β)/(1 − 2βq)),   c | m ~ Bin(m, p),

p = β₃/(1 − 2β), and δ(K) is q times the mean of a price at 1 + (K − 1)ρ. What an event gains there
is a constant less a multiple of ρ·(v_h + v_l + 2rβc/B), so that the price is convex in ρ and ρc
together and falls in both; from above:

  * B in [B₁, B₂]: as in `blanket.cells`, with m that of B₂ and N = B₂ + m. (With the same coins of
    the others, m is no larger than the true one and N no smaller.)
  * m between two points a < b, c = m·x: the price is convex along any line of (ρ, ρc). Of these
    ρc = nx·m/N is concave in m, so above its chord; and ρ is above 4·N_a·N_b/(N_a + N_b)² times its
    chord. With ρ at both ends so much less, the price lies below the chord of its ends' prices.
  * c | m for all m from m' on: m/m'·Bin(m', p), which is larger in convex order.
  * Cells that are hardly ever met count as lost: a price is at most 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, betaincc

from turnout.accounting.divergence.curves import Side
from turnout.accounting.shuffling.blanket.cells import (
    first_of_groups,
    group_chances,
    points_of,
    stretched,
)
from turnout.accounting.shuffling.blanket.curve import best_events
from turnout.accounting.shuffling.blanket.pair import BlanketPair
from turnout.core import checks

FloatArray = np.ndarray
_SLACK = 1e-9  # relative error that a binomial probability may have
_EVERY = 1.5  # distance of numbers up to which none lies between
_COARSEST = 3.0  # deviations between points, at most
_SURE = 1.0 - 1e-12  # p above which all that is not high or low is neutral
_LEAST_SHARE = 0.1  # of v₃², for a price that turns on few messages
_ALL = 60  # numbers that are each a point of their own


class Grain(NamedTuple):
    """The resolution at which numbers of messages are told apart.

    Attributes:
        groups: groups of B are about B/(8·groups) wide, or single.
        fine: points of m are about m/√fine apart, those of c about c/(v₃·√fine).
        lost: what the cells that are left out may weigh, about.
    """

    groups: int
    fine: float
    lost: float


@dataclass(frozen=True, slots=True, eq=False)
class SampledCells:
    """Numbers of messages, shape (cells,) each, for a price from above.

    Attributes:
        coins: B − 1, steps of the walk but one.
        excess: as in `blanket.cells.Cells`, of ρc over the ρ here.
        rate: 1/ρ, no smaller than N/n.
        weight: chance, the factor q included.
        lost: what all cells that are left out weigh.
    """

    coins: FloatArray
    excess: FloatArray
    rate: FloatArray
    weight: FloatArray
    lost: float

    @classmethod
    def of(cls, pair: BlanketPair, population: int, rate: float, grain: Grain) -> SampledCells:
        """Cells in which the price is no less than the truth."""
        others, chance = population - 1, min(2.0 * pair.share * rate, 1.0)
        first = first_of_groups(others, chance, grain.groups)
        near, far = first, np.append(first[1:] - 1.0, float(others))
        chances = rate * group_chances(first, others, chance, Side.UPPER)
        kept, lost = _heavy(chances, grain.lost)
        near, far, chances = near[kept], far[kept], chances[kept]
        present = rate * (1.0 - 2.0 * pair.share) / (1.0 - chance) if chance < 1 else 0.0
        row, m, weights, least = _spread(others - far, min(present, 1.0), grain.fine)
        messages = far[row] + 1.0 + m
        rates = messages / population / _lowered(messages, row)
        weights = weights * chances[row]
        kept, left_out = _heavy(weights, grain.lost)
        lost += left_out
        near, far, m, least = near[row[kept]], far[row[kept]], m[kept], least[kept]
        messages, rates, weights = messages[kept], rates[kept], weights[kept]
        if pair.neutral == 0.0:
            return cls(near, np.zeros(near.size), rates, weights, lost)
        cell, c, shares = _neutrals(pair, m, least, grain.fine)
        c = c * (population * rates / messages)[cell]
        coins, excess, weights = _moved(pair, near, far, weights, (cell, c, shares))
        kept, left_out = _heavy(weights, grain.lost)
        return cls(coins[kept], excess[kept], rates[cell[kept]], weights[kept], lost + left_out)


def _heavy(weights: FloatArray, lost: float) -> tuple[np.ndarray, float]:
    """Which weights to keep, the largest always, and what the others sum to, from above."""
    kept = weights >= min(lost / max(weights.size, 1), float(weights.max()))
    return kept, float(weights[~kept].sum()) * (1.0 + _SLACK)


def _moved(
    pair: BlanketPair,
    near: FloatArray,
    far: FloatArray,
    weights: FloatArray,
    neutrals: tuple[np.ndarray, FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Coins, excess and weight of the numbers of neutral messages, as in `blanket.cells`."""
    cell, c, shares = neutrals
    drift = 2.0 * pair.neutral_ratio * pair.share * c
    sums = pair.high + pair.low
    by_mean = np.bincount(cell, shares * drift, minlength=far.size) <= sums * (far + 1.0)
    moved = np.where(by_mean, 0.0, sums * (near - far))
    weights = weights * np.where(by_mean, 1.0, (far + 1.0) / (near + 1.0))
    excess = (moved[cell] + drift) / (far[cell] + 1.0)
    return np.where(by_mean, near, far)[cell], excess, shares * weights[cell]


def _lowered(messages: FloatArray, row: np.ndarray) -> FloatArray:
    """The factor that puts chords of 1/N below it at each point."""
    a, b = messages[:-1], messages[1:]
    same = (row[1:] == row[:-1]) & (b - a > _EVERY)
    factor = np.where(same, 4.0 * a * b / (a + b) ** 2, 1.0)
    return np.minimum(np.append(factor, 1.0), np.append(1.0, factor)) * (1.0 - 1e-15)


def _spread(
    trials: FloatArray, chance: float, fine: float
) -> tuple[np.ndarray, FloatArray, FloatArray, FloatArray]:
    """Points that stand for Bin(trials, chance) in each row, from above for prices that are chords.

    Row, point, weight, and the least number that the chord into the point stands for.
    """
    mean = trials * chance
    deviation = np.sqrt(mean * (1.0 - chance)) + 1e-9
    typical, wide = float(np.median(mean)), float(np.median(deviation))
    apart = max(min(_COARSEST, typical / math.sqrt(fine) / wide), 1.0 / wide)
    offsets = stretched(apart)
    points = np.rint(mean[:, None] + deviation[:, None] * offsets)
    # However little it deviates, no long chord ends at the mean.
    about = np.rint(mean)[:, None] + np.arange(-1.0, 2.0)
    points = np.concatenate([about, points], axis=1)
    if typical < _ALL:
        points = np.concatenate([np.tile(np.arange(_ALL + 1.0), (trials.size, 1)), points], axis=1)
    points = np.clip(points, 0.0, trials[:, None])
    ends = np.zeros((trials.size, 1)), trials[:, None]
    points = np.sort(np.concatenate([ends[0], points, ends[1]], axis=1), axis=1)
    kept = np.diff(points, axis=1, prepend=-1.0) > 0
    row = np.nonzero(kept)[0]
    x = points[kept]
    weights = _hats(x, row, trials[row], chance)
    below = np.where(np.diff(row, prepend=-1) > 0, x, np.append(0.0, x[:-1]) + 1.0)
    return row, x, weights, below


def _hats(x: FloatArray, row: np.ndarray, trials: FloatArray, chance: float) -> FloatArray:
    """The mean of each hat of a binomial number, the points of a row from 0 to all; from above."""
    high = x > trials * chance
    outer, inner = _tail(x, trials, chance, high=high)
    part = trials * chance * inner
    price = np.maximum(np.where(high, part - x * outer, x * outer - part), 0.0)
    rounding = _SLACK * (part + x * outer)
    start, end = np.diff(row, prepend=-1) > 0, np.diff(row, append=-1) != 0
    gaps = np.where(end, 1.0, np.append(x[1:], 0.0) - x)
    shift = x - trials * chance  # of a reverse hockey stick from a hockey stick
    reverse_hockey_stick, hockey_stick = (
        np.where(high, price + shift, price),
        np.where(high, price, price - shift),
    )

    def slopes(values: FloatArray) -> FloatArray:
        return (np.append(values[1:], 0.0) - values) / gaps

    after = np.where(
        high,
        np.where(end, 0.0, slopes(hockey_stick)),
        np.where(end, 1.0, slopes(reverse_hockey_stick)),
    )
    # The slope before a point, of the same kind as the point's own.
    before_reverse = np.where(start, 0.0, np.append(0.0, slopes(reverse_hockey_stick)[:-1]))
    before_hockey_stick = np.where(start, -1.0, np.append(0.0, slopes(hockey_stick)[:-1]))
    before = np.where(high, before_hockey_stick, before_reverse)
    near = np.append(0.0, rounding[:-1]), np.append(rounding[1:], 0.0)
    error = np.where(start, 0.0, (rounding + near[0]) / np.append(1.0, gaps[:-1]))
    error = error + np.where(end, 0.0, (rounding + near[1]) / gaps)
    return np.clip(after - before, 0.0, 1.0) + error


def _tail(
    x: FloatArray, trials: FloatArray, chance: float, *, high: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """P(Bin(l) > x) and P(Bin(l − 1) ≥ x), or else P(Bin(l) < x) and P(Bin(l − 1) < x − 1)."""
    less = np.maximum(trials - 1.0, 1.0)
    above = high & (x < trials)
    up = np.where(above, x + 1.0, 1.0)
    outer_high = np.where(above, betainc(up, np.where(above, trials - x, 1.0), chance), 0.0)
    inside = above & (x >= 1)
    up = np.where(inside, x, 1.0)
    inner_high = betainc(up, np.where(inside, less - x + 1.0, 1.0), chance)
    inner_high = np.where(inside, inner_high, np.where(above, 1.0, 0.0))
    low = ~high & (x >= 1)
    outer_low = betaincc(np.where(low, x, 1.0), np.where(low, trials - x + 1.0, 1.0), chance)
    lower = ~high & (x >= 2)
    inner_low = betaincc(
        np.where(lower, x - 1.0, 1.0), np.where(lower, less - x + 2.0, 1.0), chance
    )
    outer = np.where(high, outer_high, np.where(low, outer_low, 0.0))
    return outer, np.where(high, inner_high, np.where(lower, inner_low, 0.0))


def _neutrals(
    pair: BlanketPair, m: FloatArray, least: FloatArray, fine: float
) -> tuple[np.ndarray, FloatArray, FloatArray]:
    """Points for c | m, as all m from a least one on are spread: cell, point and weight."""
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
    """The mean of γ·δ_N(1 + (K − 1)/γ) over N ~ Bin(n, q), γ = N/n, from above."""

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
        """0: no view is likelier by more than in the local worlds."""
        return 0.0

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        flat = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        step = max(1, _AT_ONCE // max(self._cells.weight.size, 1))
        parts = [self._priced(flat[i : i + step]) for i in range(0, flat.size, step)]
        return np.concatenate(parts).reshape(np.shape(k))

    def slope(self, k: FloatArray) -> FloatArray:
        """Always 0: slopes serve lower curves, and this is none."""
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
