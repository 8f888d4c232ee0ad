"""Distribution of a blanket pair's likelihood ratio, by groups of numbers of blanket messages.

Notation
    β, β₃, v_h, v_l, v₃   of the pair, as in `blanket`
    m       messages among which the client's own is hidden: 1 + Bin(n − 1, 2β + β₃)
    N, c    those of kinds h and l, and neutral ones; N + c = m; given m, c ~ Bin(m, 1 − p),
            p = 2β/(2β + β₃)
    u       how many more are of kind h than of kind l, a fair walk of N steps
    κ       (v₃/β₃)·2β/(v_h + v_l)
    t       (v_h − v_l)/(v_h + v_l)

Drawn from the blanket alone, m messages have likelihoods 1 in (v_h + v_l)·(y ± t·u)/(p·m) for the
two worlds, y = N + κc. So an f-divergence is the mean of w·y·g(u/y), w = (v_h + v_l)/(p·m), with g
convex, even and 0 at 0.

**m** Fewer messages hide less, so each group of values of m is replaced by its smallest value.
**c** y·g(u/y) is convex in (u, y). For c in [c₁, c₂] the walk of m − c₁ steps is the largest in
convex order; with it the mean is convex in c, and c is spread to both ends. u/y must stay in [−1,
1]: c₂ − c₁ ≤ κc₂, or one c alone. y·g(u/y) decreases in y, which gives a bound beyond the windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from shuffled_renyi.ratio_distributions import (
    RatioDistribution,
    log_below,
    log_binomial_masses,
    nodes,
)
from turnout.accounting.shuffling.blanket_pairs import BlanketPair
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_DEVIATIONS = 9.0  # standard deviations of m, c and u around the relevant values
_TILT_REACH = 1.6  # window of a walk, relative to the range of the largest order
_FEW_CLIENTS, _FEW_WITH_NEUTRALS = 200, 40  # largest n for which all terms are summed
_FEWEST_GROUPS, _MOST_GROUPS = 64, 512
_FEWEST_OF_CELLS, _CELLS = 32, 24  # with neutral messages: groups of m, and cells of c in each
_USUAL_WALKS, _MOST_WALKS = 10_000, 40_000  # with neutral messages
_POINTS = 400_000  # approximate number of computed points of walks
_WIDENING = 1.5  # ratio of the widths of groups with little mass
_LARGEST_CHANCE = 1 - 1e-15


@dataclass(frozen=True, slots=True)
class _Typical:
    """Typical ranges of m, N, y and u, and the range that matters for a Rényi order.

    Attributes:
        chance: 2β + β₃, a little less if that is 1.
        informed: p.
        neutral_weight: κ.
        messages, steps, drift: m, N and y.
        ahead: typical u at the largest order, in units of N/y.
        shift: distance of the typical m at that order from its mean, in standard deviations.
        neutral_shift: distance of the typical c at that order from its mean, in the same unit.
    """

    chance: float
    informed: float
    neutral_weight: float
    messages: float
    steps: float
    drift: float
    ahead: float
    shift: float
    neutral_shift: float

    @classmethod
    def of(cls, pair: BlanketPair, clients: int, order: float) -> _Typical:
        shown = pair.high + pair.low if pair.neutral else 1.0
        whole = 2 * pair.share + (pair.neutral_share if pair.neutral else 0.0)
        chance, informed = min(whole, _LARGEST_CHANCE), 2 * pair.share / whole
        messages = 1 + (clients - 1) * chance
        steps = informed * messages
        drift = steps / shown
        ahead = 2 * order * (pair.high - pair.low) / shown
        square = (ahead / drift) ** 2 * steps  # largest tilt, in standard deviations of u
        weight = pair.neutral_ratio * 2 * pair.share / shown
        bend = abs(1 / steps + 2 * (weight - 1) / drift) if pair.neutral else 0.0
        neutral_shift = square / 2 * bend * math.sqrt(messages * informed * (1 - informed))
        shift = square / (2 * math.sqrt(messages))
        return cls(chance, informed, weight, messages, steps, drift, ahead, shift, neutral_shift)

    def reach(self, steps: float, drift: float) -> float:
        """Largest |u| of a walk that is computed exactly."""
        return _TILT_REACH * self.ahead * steps / drift + _DEVIATIONS * math.sqrt(steps)


@lru_cache(maxsize=16)
def ratio_distribution(pair: BlanketPair, clients: int, order: float) -> RatioDistribution:
    """Distribution of the ratio of n shuffled messages, in convex order above the true one.

    Args:
        pair: the blanket pair.
        clients: n ≥ 1.
        order: the largest α for which the distribution is close to the true one.

    Raises:
        NumericalError: κ is so small that there are too many walks to sum.
    """
    typical, others = _Typical.of(pair, clients, order), clients - 1
    shown = pair.high + pair.low if pair.neutral else 1.0
    lightest = 2 * pair.low / shown
    deviation = math.sqrt(typical.messages)
    exact = clients <= (_FEW_WITH_NEUTRALS if pair.neutral else _FEW_CLIENTS)
    # Few clients: every number of blanket messages by itself.
    if exact:
        first = np.arange(others + 1.0)
        masses, core = log_binomial_masses(others, typical.chance, first), 0
        distribution = RatioDistribution(lightest)
    else:
        # Many clients: groups of numbers, each replaced by its smallest number, which hides least.
        lowest = typical.messages - 1 - (_DEVIATIONS + 2 * typical.shift) * deviation
        lowest = max(lowest, 0.0)
        first, masses, core = _groups(others, typical.chance, lowest, _count(pair, typical))
        least = (lowest + 1) / typical.messages
        reach = typical.reach(least * typical.steps, least * typical.drift)
        step = math.sqrt(typical.steps) / typical.drift
        distribution = RatioDistribution(
            lightest, nodes(step, min(reach / (least * typical.drift), 1.0))
        )
    # Each group adds one walk, or one walk for each number of neutral messages.
    for index, (clones, mass) in enumerate(zip(first, masses, strict=True)):
        m = int(clones) + 1
        if not pair.neutral:
            reach = math.inf if exact else typical.reach(m, m)
            distribution.add(m, reach, [(float(mass), float(m))])
        else:
            _add_neutrals(distribution, typical, m, float(mass), exact=exact, core=index >= core)
    return distribution


def _count(pair: BlanketPair, typical: _Typical) -> int:
    """Number of groups of m."""
    points = 0.5 * min(typical.reach(typical.steps, typical.drift), typical.steps) + 1
    if pair.neutral:
        walks = len(_cells(typical, round(typical.messages))[2])
        if walks * _FEWEST_OF_CELLS > _MOST_WALKS:
            raise NumericalError(
                "the share of neutral messages is too small: too many walks to sum"
            )
        most = min(_POINTS / (6 * points), _USUAL_WALKS / walks)
        return int(np.clip(most, _FEWEST_OF_CELLS, _MOST_GROUPS / 4))
    return int(np.clip(_POINTS / points, _FEWEST_GROUPS, _MOST_GROUPS))


def _groups(
    trials: int, chance: float, lowest: float, count: int
) -> tuple[FloatArray, FloatArray, int]:
    """Smallest member and ln of a bound on the probability of each group, number of low groups.

    Groups are of equal size from ``lowest`` to 9 standard deviations above the mean of
    Bin(trials, chance), and wider below ``lowest``; those below are the low groups.
    """
    deviation = math.sqrt(trials * chance + 1)
    start = math.floor(lowest)
    end = min(trials, math.ceil(trials * chance + _DEVIATIONS * deviation))
    counts = np.arange(start, end + 1)
    logs = log_binomial_masses(trials, chance, counts)
    step = max(1, math.ceil(2 * _DEVIATIONS * deviation / count))
    starts = np.arange(0, counts.size, step)
    top = np.maximum.reduceat(logs, starts)
    sizes = np.diff(starts, append=counts.size)
    masses = top + np.log(np.add.reduceat(np.exp(logs - np.repeat(top, sizes)), starts))
    if end < trials:  # larger m count as the smallest m of the last group
        beyond = log_below(trials, 1 - chance, trials - end - 1)
        masses[-1] = np.logaddexp(masses[-1], beyond)
    edges, width = [float(start)], deviation
    while edges[-1] > 0:
        edges.append(max(0.0, math.floor(edges[-1] - width)))
        width *= _WIDENING
    low = [log_below(trials, chance, edge - 1) for edge in edges[:-1]]
    first = np.concatenate([edges[:0:-1], counts[starts]])
    return first, np.concatenate([low[::-1], masses]), len(low)


def _add_neutrals(
    distribution: RatioDistribution,
    typical: _Typical,
    m: int,
    mass: float,
    *,
    exact: bool,
    core: bool,
) -> None:
    """Add m messages to the distribution, over the number of neutral messages."""
    chance, weight = 1 - typical.informed, typical.neutral_weight
    # w·y is 1 on average.
    scale = mass + math.log(typical.steps / typical.drift / (typical.informed * m))
    low, high, edges = (0, m, list(range(m + 2))) if exact else _cells(typical, m)
    for left, right in pairwise(edges):
        inside = core and low <= left and right <= high + 1
        steps = m - left
        if inside:
            ends = _spread(m, chance, left, right)
        else:
            worse = left if weight >= 1 else right - 1  # upper bound where y is smaller
            ends = [(worse, _log_between(m, chance, left, right - 1))]
        if not steps:
            continue
        drifts = [(log_mass, m - c + weight * c) for c, log_mass in ends if log_mass > -math.inf]
        reach = math.inf if exact else typical.reach(steps, drifts[0][1]) if inside else 0.0
        distribution.add(
            steps, reach, [(scale + log_mass + math.log(y), y) for log_mass, y in drifts]
        )


def _cells(typical: _Typical, m: int) -> tuple[int, int, list[int]]:
    """Range of numbers c that matter, and boundaries of the cells of c, from 0 to m + 1.

    Each cell is no wider than κ times its end, or has one c alone.
    """
    chance, weight = 1 - typical.informed, typical.neutral_weight
    deviation = math.sqrt(m * chance * typical.informed) + 1
    width = (_DEVIATIONS + 2 * typical.neutral_shift) * deviation
    low, high = max(0, math.floor(m * chance - width)), min(m, math.ceil(m * chance + width))
    step = max(1.0, 2 * _DEVIATIONS * deviation / _CELLS)
    edges = [0]
    while edges[-1] <= m:
        c = edges[-1]
        if c < low:
            wanted = min(max(step, (low - c) / 3), low - c)
        elif c <= high:
            wanted = min(step, high + 1 - c)
        else:
            wanted = max(step, (c - high) / 2)
        edges.append(min(c + max(1, math.floor(min(wanted, weight * c))), m + 1))
    return low, high, edges


def _spread(m: int, chance: float, left: int, right: int) -> list[tuple[int, float]]:
    """Both ends of a cell, with ln of the mass of its numbers c that is moved there, mean kept."""
    counts = np.arange(left, right)
    logs = log_binomial_masses(m, chance, counts)
    if right - left == 1:
        return [(left, float(logs[0]))]
    end = min(right, m)
    top = float(logs.max())
    masses = np.exp(logs - top) / (end - left)
    with np.errstate(divide="ignore"):
        to_left = top + np.log(masses @ (end - counts))
        to_right = top + np.log(masses @ (counts - left))
    return [(left, float(to_left)), (end, float(to_right))]


def _log_between(m: int, chance: float, least: int, most: int) -> float:
    """Upper bound on ln P(least ≤ Bin(m, chance) ≤ most)."""
    return min(log_below(m, chance, most), log_below(m, 1 - chance, m - least))
