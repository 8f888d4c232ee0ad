"""Upper bounds on the hockey sticks of S in a cell, given its moments and its range.

A parabola above the payoff on the whole range of S has an expectation that the moments give:

* (S − K + c)²/(4c) is above (S − K)₊ for every c > 0 (Scarf 1958);
* with S ≤ U also α(S − l)², which meets the payoff at U, where 2(U − K) ≤ U − l;
* with 0 ≤ S ≤ U also the chord S·(U − K)/U;

and the mirror images for reverse ones with S ≥ L. c and l are chosen well from the moments, but any
choice is a bound. The range follows from the statistic: S is extremal, with A = Σ ln(1 + r·x)
given, where a few x's are at their ends and the others equal, because along a pair (u, w) with
(1 + ru)(1 + rw) fixed e_k is affine in u + w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from turnout.accounting.laws.k_subset.moments import Cells

FloatArray = np.ndarray
_MARGIN = 1e-9  # relative, far above the rounding of ranges
_COARSE, _FINE = 32, 400  # points at which the smallest ratio is computed
_WORK = 1_500_000  # of them, times n·k, at most
_LARGEST_THRESHOLD = 1e150


def log_binomial(n: FloatArray | int, k: FloatArray | int) -> FloatArray:
    """The logarithm of C(n, k)."""
    count, chosen = np.asarray(n, dtype=float), np.asarray(k, dtype=float)
    return gammaln(count + 1) - gammaln(chosen + 1) - gammaln(count - chosen + 1)


def largest_ratios(statistic: FloatArray, scale: float, groups: int, picks: int) -> FloatArray:
    """At least the largest S for each value of A: m x's are equal, the others 0, k ≤ m ≤ n."""
    best = np.zeros_like(statistic)
    total = float(log_binomial(groups, picks))
    for positive in range(picks, groups + 1):
        # The root of C(m, k)/C(n, k) is taken first, so that one expm1 is all a value needs.
        factor = math.exp((float(log_binomial(positive, picks)) - total) / picks) / scale
        np.maximum(best, factor * np.expm1(statistic / positive), out=best)
    with np.errstate(over="ignore"):
        return (best * (1.0 + _MARGIN)) ** picks


@dataclass(frozen=True, slots=True)
class Range:
    """The range of x: the scale r of the statistic, and the least and the largest x."""

    scale: float
    least: float
    most: float

    def statistic(self, x: float) -> float:
        """One x's share of A."""
        return math.log1p(self.scale * x)

    def value(self, statistic: FloatArray) -> FloatArray:
        """The x with this share of A."""
        return np.expm1(statistic) / self.scale


def smallest_ratios(statistic: FloatArray, ranges: Range, groups: int, picks: int) -> FloatArray:
    """At most the smallest S for each increasing value of A, shape of A; precise below 1.

    It increases with A, so that its value at any smaller A is a bound: a coarse grid finds where
    it passes 1, above which no reverse hockey stick has its threshold, and a finer one ends there.
    """
    ends = _Mixture.of(ranges, groups, picks)
    low, high = groups * ranges.statistic(ranges.least), float(statistic[-1])
    coarse = np.linspace(low, high, _COARSE)
    passed = np.flatnonzero(ends.least(coarse) >= 1.0)
    high = float(coarse[passed[0]]) if passed.size else high
    grid = np.linspace(low, high, max(_COARSE, min(_FINE, _WORK // (groups * picks))))
    index = np.searchsorted(grid * (1.0 + _MARGIN), statistic, side="right") - 1
    values = ends.least(grid) * (1.0 - 8 * picks * _MARGIN)
    return values[np.maximum(index, 0)]


@dataclass(frozen=True, slots=True, eq=False)
class _Mixture:
    """S of n x's: some at the upper end, one of its own, the others equal.

    ``ways[i, j]`` is C(i, j)·C(n, k)^{−1/2}, so that products of two stay in range.
    """

    ranges: Range
    picks: int
    ways: FloatArray

    @classmethod
    def of(cls, ranges: Range, groups: int, picks: int) -> _Mixture:
        counts, chosen = np.arange(groups + 1.0)[:, None], np.arange(picks + 1.0)
        logs = log_binomial(np.maximum(counts, chosen), chosen)
        logs = np.where(counts >= chosen, logs, -math.inf)
        return cls(ranges, picks, np.exp(logs - 0.5 * float(log_binomial(groups, picks))))

    def least(self, grid: FloatArray) -> FloatArray:
        """The smallest S at increasing values of A.

        Either all x's but one are at an end of their range, or none is at the lower end and
        those that are not at the upper end are equal.
        """
        ranges, groups = self.ranges, self.ways.shape[0] - 1
        low, high = ranges.statistic(ranges.least), ranges.statistic(ranges.most)
        over = np.maximum(grid - groups * low, 0.0)
        whole = np.minimum(np.floor(over / (high - low)), groups - 1).astype(np.int64)
        odd = ranges.value(low + over - whole * (high - low))
        best = self._means(whole, np.full_like(odd, ranges.least), odd)
        capped = np.arange(int(whole[-1]) + 1)[:, None]
        share = (grid - capped * high) / (groups - capped)
        equal = ranges.value(np.clip(share, low, high))
        feasible = (share >= low) & (share <= high * (1.0 + _MARGIN))
        mixed = np.where(feasible, self._means(capped, equal, equal), math.inf)
        return np.minimum(best, mixed.min(axis=0))

    def _means(self, capped: FloatArray, value: FloatArray, odd: FloatArray) -> FloatArray:
        """S for each number of x's at the upper end, one at ``odd`` and the others at ``value``."""
        equal = self.ways.shape[0] - 2 - capped
        share, own = value / self.ranges.most, odd / self.ranges.most
        total, power = np.zeros_like(odd), np.ones_like(share)
        for rest in range(self.picks + 1):
            others = self.ways[equal, rest] * power
            total += self.ways[capped, self.picks - rest] * others
            if rest < self.picks:
                total += self.ways[capped, self.picks - rest - 1] * own * others
            power = power * share
        return total * math.exp(min(700.0, self.picks * math.log(self.ranges.most)))


def hockey_stick_bound(cells: Cells, largest: FloatArray, threshold: float) -> float:
    """At least E_Q[(S − K)₊] over the cells, if S ≤ ``largest`` in each."""
    alive = (largest > threshold) & (cells.mass > 0)
    # A hockey stick is worth no more at a larger threshold, whose square may be no float.
    return _bound(cells.only(alive), largest[alive], min(threshold, _LARGEST_THRESHOLD), 1.0)


def reverse_hockey_stick_bound(cells: Cells, smallest: FloatArray, threshold: float) -> float:
    """At least E_Q[(κ − S)₊] over the cells, if S ≥ ``smallest`` in each."""
    alive = (smallest < threshold) & (cells.mass > 0)
    return _bound(cells.only(alive), smallest[alive], threshold, -1.0)


def _bound(cells: Cells, end: FloatArray, threshold: float, sign: float) -> float:
    """Sum of the least of the bounds; ``sign`` is 1 for a hockey stick, −1 for a reverse one."""
    q, m1, m2 = cells.mass, cells.first, cells.second
    error = 1.1 * cells.rounding + 1e-14

    def square(centre: FloatArray | float) -> FloatArray:
        """At least E[(S − centre)²] in each cell."""
        value = m2 - 2 * centre * m1 + centre**2 * q
        return np.maximum(value, 0.0) + error * (m2 + 2 * np.abs(centre) * m1 + centre**2 * q)

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = sign * (m1 - threshold * q) + error * (m1 + threshold * q)
        best = 0.5 * (np.sqrt(q * square(threshold)) * (1.0 + error) + excess)
        mean = m1 / q
        gap = sign * (end - mean)
        centre = mean - sign * np.maximum(m2 / q - mean**2, 0.0) / gap
        reach, height = sign * (end - centre), sign * (end - threshold)
        parabola = height / reach**2 * square(centre)
        fits = (gap > 0) & (2 * height <= reach)
        best = np.where(fits & (parabola < best), parabola, best)
        chord = m1 * height / end if sign > 0 else height * q
        best = np.minimum(best, chord * (1.0 + error))
    return float(np.maximum(best, 0.0).sum()) * (1.0 + _MARGIN)
