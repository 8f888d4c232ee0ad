"""Blanket pairs: five probabilities that bound what shuffled messages reveal about one client.

`BlanketPair` holds the five probabilities. `worst_pair` returns the pair of any ε₀-randomizers;
`clones_pair`, `stronger_clones_pair`, `trinomial_pair`, `kary_pair`, `hadamard_pair` and
`third_value_pair` return other pairs. `Cells` are the values to which the numbers of a pair's
messages are rounded, and the probabilities of these values; `points_of`, `group_chances` and
`first_of_groups` compute them. `blanket.BlanketCurve` turns a pair into δ(K); `messages` chooses
the pair of a randomizer. docs/design/shuffling.md has the proofs.

Neighbours differ in one client's record (replace-one). The client's message is of kind *high*,
*low* or neutral: in one world with masses (v_h, v_l, v₃), in the other with (v_l, v_h, v₃). Every
other client's message is, independently, high or low with mass β each and neutral with mass β₃;
otherwise the message's sender is known, and the message does not hide the client. The view is the
numbers of high, low and neutral messages among n.

Notation
    ε₀ > 0         of the local randomizer, under replacement; above 600 it counts as 600
    e, K           e^{ε₀}, e^ε
    v_h, v_l, v₃   `high`, `low`, `neutral`
    β, β₃          `share`, `neutral_share`
    p, q           distributions of a message that holds one or the other of two records
    m              max(p, q)/e or less: a lower bound on the distribution of any other message
    α              in (0, 1/(e + 1)]: the chance that the victim's message is low, if two of
                   the client's records differ as much as they can; total variation is (e − 1)α
    a₃(α)          1 − (e + 1)α

**The worst case over ε₀-randomizers.** Two distributions of an ε₀-randomizer at total variation
(e − 1)α, and max(p, q)/e, which bounds every other distribution from below, make a trinomial pair.
The gain of one message, (p − Kq)/m under m, then is

    A = e − K or B = 1 − eK   with chance α each,
    D = e(1 − K)              with chance (1 − (e + 1)α)/e,
    0                         else.

The probabilities are linear in α, the mean is 1 − K for every α, and D and 0 lie between B and A:
by the chord over [B, A] the gain rises with α in convex order. So δ(K), which is E[(sum of n
gains)₊]/n, rises with α for every K and n, and its supremum is attained at the largest α,
1/(e + 1): this is the pair of the stronger clones bound. If randomizers depend on earlier messages,
each gain is, given all earlier messages, at most this gain in convex order, which is enough where
the order of speaking is hidden (`turnout.schemes.SpeakingOrder`).

**Cells.** N, the number of high and low messages, is cut into groups, and c, the number of neutral
messages given N, is rounded to a few points. Either step moves the price (a term of δ(K), see
`blanket`) in one direction only. N − 1 and c are binomial:

    N − 1 ~ Bin(n − 1, 2β),   c | N ~ Bin(n − N, p),   p = β₃/(1 − 2β).

A price is convex in c and falls as c grows. The price rises if c is replaced by a variable that is
larger in convex order: the ends of the interval that contains c, weighted by how near they are
(hats). The price falls if c is replaced by a variable that is smaller in convex order: the mean of
each interval. One set of points is used for all N of about the same n − N: since the mean of
exchangeable trials is a martingale in reverse, (l/l')·Bin(l', p) is larger in convex order than
Bin(l, p) for l' ≤ l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import betainc, betaincc

from turnout.accounting.divergence.curves import Side
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import ParameterError

_LARGEST_LOCAL_EPSILON = 600.0  # a larger ε₀ gives no privacy: e^{ε₀} must be a float
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class BlanketPair:
    """Probabilities of the victim's message and of another client's message, by kind.

    Attributes:
        high: v_h, the mass of the likelier kind.
        low: v_l, the mass of the less likely kind, 0 < v_l < v_h.
        share: β in (0, ½], the probability that another client's message is high, which equals the
            probability that the message is low.
        neutral_share: β₃; positive if the victim's message may be neutral.

    Raises:
        ParameterError: a probability is outside its domain.
    """

    high: float
    low: float
    share: float
    neutral_share: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(high=self.high, low=self.low, share=self.share)
        checks.non_negative(neutral_share=self.neutral_share)
        if not self.low < self.high:
            raise ParameterError("low", self.low, f"below high = {self.high:g}")
        if self.high + self.low > 1.0 + _ROUNDING:
            raise ParameterError("high", self.high, f"at most 1 - low = {1 - self.low:g}")
        if 2 * self.share + self.neutral_share > 1.0 + _ROUNDING:
            raise ParameterError("share", self.share, f"at most {(1 - self.neutral_share) / 2:g}")
        if self.neutral > 0 and not self.neutral_share > 0:
            raise ParameterError("neutral_share", self.neutral_share, "a number above 0")

    @property
    def neutral(self) -> float:
        """Probability v₃ that the victim's message is neutral, equal in both worlds."""
        rest = 1.0 - self.high - self.low
        return rest if rest > _ROUNDING else 0.0

    @property
    def neutral_ratio(self) -> float:
        """Probability of a neutral message for the victim over that for another client, v₃/β₃.

        The ratio is 0 if no message is neutral.
        """
        return self.neutral / self.neutral_share if self.neutral > 0 else 0.0

    @property
    def local_epsilon(self) -> float:
        """ε₀ = ln(v_h/v_l) of the victim's message without other messages."""
        return math.log(self.high / self.low)


def worst_pair(local_epsilon: float, total_variation: float = 1.0) -> BlanketPair:
    """Pair that dominates shuffled messages of any ε₀-randomizers.

    Source: Theorems 2 and 3 of docs/design/shuffling.md. Without a bound on the total variation
    this is the pair of Feldman, McMillan and Talwar 2023 (feldman2023stronger), Theorem 3.1, by
    another proof.
    Status: proved, upper bound at every K and n, in both directions, in two cases. Theorem 2 is for
    one randomizer that is fixed before the round. Theorem 3 (ours, reviewed, not found in print) is
    for randomizers that differ from message to message and depend on earlier messages. It requires
    that any two clients' distributions of the same message are within a factor of e^{ε₀}, and that
    the order of speaking is uniform and unknown to the adversary and to the party that chooses the
    randomizers. The bound is never above that of `clones_pair`.

    Args:
        local_epsilon: ε₀ > 0 of each message, under replacement.
        total_variation: bound in (0, 1] on the total variation distance of any two distributions
            of one message; it changes the pair only if it is below (e^{ε₀} − 1)/(e^{ε₀} + 1).

    Raises:
        ParameterError: an argument is outside its domain.

    >>> worst_pair(1.0) == stronger_clones_pair(1.0)
    True
    """
    if not 0.0 < total_variation <= 1.0:
        raise ParameterError("total_variation", total_variation, "a number above 0, at most 1")
    widest = stronger_clones_pair(local_epsilon)
    alpha = total_variation / math.expm1(min(local_epsilon, _LARGEST_LOCAL_EPSILON))
    return widest if alpha >= widest.share else trinomial_pair(local_epsilon, alpha)


def clones_pair(local_epsilon: float) -> BlanketPair:
    """Blanket pair of the clones bound, for any ε₀-randomizers, including adaptive ones.

    Source: Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1.
    Status: proved, upper bound, if the order of speaking is hidden (`SpeakingOrder`) or one
    randomizer is fixed beforehand. The victim's message R(x) of its records x⁰ and x¹ has the
    distributions R(x⁰) = qU + (1 − q)V and R(x¹) = (1 − q)U + qV for some distributions U and V,
    with e = e^{ε₀} and q = e/(e + 1), and every other message has a distribution of at least
    ½(R(x⁰) + R(x¹))/e = ½(U + V)/e.

    Args:
        local_epsilon: ε₀ > 0 of each message, under replacement.

    >>> clones_pair(1.0).share == 0.5 * math.exp(-1)
    True
    """
    e, high, low = _response(local_epsilon)
    return BlanketPair(high, low, 0.5 / e)


def stronger_clones_pair(local_epsilon: float) -> BlanketPair:
    """Blanket pair of the stronger clones bound.

    Source: Feldman, McMillan and Talwar 2023 (feldman2023stronger), Theorem 3.1; an erratum
    withdraws its proof for general randomizers.
    Status: proved, upper bound, because the pair is `trinomial_pair` at the largest α; see
    `worst_pair`.

    Args:
        local_epsilon: ε₀ > 0 of each message, under replacement.
    """
    _, high, low = _response(local_epsilon)
    return BlanketPair(high, low, low)


def trinomial_pair(local_epsilon: float, alpha: float) -> BlanketPair:
    """Blanket pair of one non-adaptive randomizer and two records at distance (e^{ε₀} − 1)α.

    The distance is the total variation of the two records' distributions P and P'. Below,
    e = e^{ε₀} and a₃ = 1 − (e + 1)α.

    Source: the privacy blanket of P and P' (balle2019blanket).
    Status: proved, upper bound. Let Q₀ and Q₁ be (P − P')₊ and (P' − P)₊, scaled to distributions.
    Then P = eαQ₀ + αQ₁ + a₃Q* and P' = αQ₀ + eαQ₁ + a₃Q* for some distribution Q*, and every other
    record's distribution is at least max(P, P')/e = αQ₀ + αQ₁ + (a₃/e)Q*.

    Args:
        local_epsilon: ε₀ > 0 of each message, under replacement.
        alpha: α in (0, 1/(e^{ε₀} + 1)].

    Raises:
        ParameterError: an argument is outside its domain.
    """
    e, _, low = _response(local_epsilon)
    checks.positive(alpha=alpha)
    if alpha > low * (1.0 + _ROUNDING):
        raise ParameterError("alpha", alpha, f"at most 1/(exp(local_epsilon) + 1) = {low:g}")
    alpha = min(alpha, low)
    neutral = max(1.0 - (e + 1.0) * alpha, 0.0) if alpha < low else 0.0
    return BlanketPair(e * alpha, alpha, alpha, neutral / e)


def kary_pair(local_epsilon: float, values: int) -> BlanketPair:
    """Blanket pair of k-ary randomized response.

    Status: proved, upper bound. A message of any record has a probability of at least
    1/(e^{ε₀} + k − 1) at each of the k values. The victim's value in one world has the kind *high*;
    the victim's value in the other world has the kind *low*.

    Args:
        local_epsilon: ε₀ > 0 of each message, under replacement.
        values: k, number of values, at least 2.

    Returns:
        Pair whose δ(K) is never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.count(2, values=values)
    e, _, _ = _response(local_epsilon)
    alpha = 1.0 / (e + (values - 1))
    return BlanketPair(e * alpha, alpha, alpha, (values - 2) * alpha)


def hadamard_pair(local_epsilon: float) -> BlanketPair:
    """Blanket pair of Hadamard response, the same for every order of the Hadamard matrix.

    Status: proved, upper bound. Two records share half of their likely messages, so a quarter of
    all messages is likely for the first record only (high), and a quarter for the second record
    only (low). Every other message is either as likely as in the blanket or e^{ε₀} times as likely.
    If these other messages are replaced by fewer messages that are all e^{ε₀} times as likely, the
    gain is larger in convex order.

    Args:
        local_epsilon: ε₀ > 0 of each message, under replacement.
    """
    e, high, low = _response(local_epsilon)
    return BlanketPair(0.5 * high, 0.5 * low, 0.5 * low, 0.5 / e)


def third_value_pair(local_epsilon: float) -> BlanketPair:
    """Blanket pair of three-valued randomized response if all others hold the third value.

    Status: exact, so a lower bound for all ε₀-randomizers together.

    Args:
        local_epsilon: ε₀ > 0 of each message, under replacement.

    Returns:
        Pair whose δ(K) is the true value for these records.
    """
    e, _, _ = _response(local_epsilon)
    low = 1.0 / (e + 2.0)
    return BlanketPair(e * low, low, low, e * low)


def _response(local_epsilon: float) -> tuple[float, float, float]:
    """Factor e = e^{ε₀}, and the probabilities e/(e + 1) and 1/(e + 1) of binary response."""
    checks.positive(local_epsilon=local_epsilon)
    e = math.exp(min(local_epsilon, _LARGEST_LOCAL_EPSILON))
    return e, e / (e + 1.0), 1.0 / (e + 1.0)


_SLACK = 1e-9  # relative error that a binomial probability may have
_FURTHEST, _EVEN, _GROWTH = 30.0, 4.0, 0.5  # deviations covered; evenly up to; growth beyond
_REACH = _EVEN + _GROWTH * math.asinh((_FURTHEST - _EVEN) / _GROWTH)
_FINER, _MOST, _FEWER = 8.0, 2.5, 0.25  # groups of N, in `groups`: N to their width, their number
_WIDEST = 0.25  # and their width in deviations
_SURE = 1.0 - 1e-12  # p above which all that is not high or low is neutral
_ALIKE = 0.25  # largest relative difference of the n − N that share points
_EVERY = 40  # trials up to which every c is a point
_FINE, _COARSEST = 20.0, 4.0  # points of c: √(E c/(20·groups))/v₃ deviations apart, at most 4
_LEAST_SHARE = 0.1  # of v₃², for a δ that depends on few messages


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Values of N (number of high and low messages) and of c (number of neutral ones), as cells.

    Each array has the shape (cells,). y is the drift of the threshold in `blanket`.

    Attributes:
        coins: N − 1.
        excess: y·(v_h − v_l)/N − (v_h + v_l), the part of the threshold that neutral messages add.
        weight: probability of the cell.
    """

    coins: FloatArray
    excess: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, pair: BlanketPair, clients: int, side: Side, groups: int) -> Cells:
        """Cells whose weighted prices (largest gains of an event) add up to a bound on δ(K).

        Args:
            pair: blanket pair of the messages.
            clients: n, number of clients.
            side: UPPER if the weighted sum of δ over the cells is never below the true δ, LOWER if
                it is never above.
            groups: resolution; N is cut into groups about N/(8·groups) wide.
        """
        # Groups of N, or single values of N where there are few.
        others, chance = clients - 1, min(2.0 * pair.share, 1.0)
        few = others < (_MOST if pair.neutral == 0.0 else _FEWER) * groups
        first = np.arange(others + 1.0) if few else first_of_groups(others, chance, groups)
        last = np.append(first[1:] - 1.0, float(others))
        chances = group_chances(first, others, chance, side)
        near, far = (first, last) if side is Side.UPPER else (last, first)
        # Without neutral messages these are the cells.
        if pair.neutral == 0.0:
            return cls(near, np.zeros(near.size), chances)
        # Points of c for each group.
        rest = 1.0 - 2.0 * pair.share
        p = min(pair.neutral_share / rest, 1.0) if rest > 0 else 1.0
        fine = _FINE * groups * max(pair.neutral**2, _LEAST_SHARE)
        row, neutrals, weights = points_of(others - far, p if p < _SURE else 1.0, side, fine)
        drift = 2.0 * pair.neutral_ratio * pair.share * neutrals
        sums = pair.high + pair.low
        # The smaller of two bounds: by u/N (it loses in c/N), or by u (it loses in N).
        mean = np.bincount(row, weights * drift, minlength=far.size)
        by_mean = mean <= sums * (far + 1.0)
        moved = np.where(by_mean, 0.0, sums * (near - far))
        chances = chances * np.where(by_mean, 1.0, (far + 1.0) / (near + 1.0))
        excess = (moved[row] + drift) / (far[row] + 1.0)
        weights = chances[row] * weights
        kept = weights > 0
        coins = np.where(by_mean, near, far)[row]
        return cls(coins[kept], excess[kept], weights[kept])


def first_of_groups(others: int, chance: float, groups: int) -> FloatArray:
    """Smallest N − 1 of each group, shape (number of groups,); the first group starts at 0.

    Args:
        others: n − 1, the largest value of N − 1.
        chance: probability that another client's message is high or low.
        groups: resolution; more groups are narrower.
    """
    mean, deviation = others * chance, math.sqrt(others * chance * (1.0 - chance)) + 1.0
    width = max((1.0 + mean / (_FINER * groups)) / deviation, 2.0 * _REACH / (_MOST * groups))
    edges = np.clip(mean + deviation * stretched(min(width, _WIDEST)), 0.0, others)
    return np.unique(np.floor(np.append(0.0, edges)))


def group_chances(first: FloatArray, trials: float, chance: float, side: Side) -> FloatArray:
    """Probability of each group of values of a binomial variable, rounded to a side.

    Each probability is computed from the smaller of the two tails.

    Args:
        first: smallest value of each group, increasing, shape (groups,).
        trials: number of trials of the binomial variable.
        chance: probability of success in each trial.
        side: UPPER to round probabilities up, LOWER to round them down.
    """
    inner = np.maximum(first[1:], 1.0)
    rest = np.maximum(trials - inner + 1.0, 1.0)
    below = np.concatenate([[0.0], betaincc(inner, rest, chance), [1.0]])
    above = np.concatenate([[1.0], betainc(inner, rest, chance), [0.0]])
    left = below[1:] <= above[:-1]
    mass = np.maximum(np.where(left, np.diff(below), -np.diff(above)), 0.0)
    error = _SLACK * np.where(left, below[1:], above[:-1])
    return np.minimum(mass + error, 1.0) if side is Side.UPPER else np.maximum(mass - error, 0.0)


def points_of(
    trials: FloatArray, chance: float, side: Side, fine: float
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Points of a coarser distribution in place of Bin(trials, chance): row, value and weight.

    Args:
        trials: number of trials of each row, shape (rows,).
        chance: probability of success in each trial.
        side: UPPER for a distribution that is larger in convex order, LOWER for a smaller one.
        fine: density of the points.
    """
    everywhere = np.arange(trials.size)
    if chance == 1.0:
        return everywhere, trials * chance, np.ones(trials.size)
    rows, points, weights = [], [], []
    for block in _similar_slices(trials, 0.1 * chance / fine):
        own = trials[block]
        reference = float(own.min() if side is Side.UPPER else own.max())
        spread = _hats if side is Side.UPPER else _means
        values, chances = spread(reference, chance, fine)
        scaled = np.multiply.outer(own / max(reference, 1.0), values)
        rows.append(np.repeat(everywhere[block], values.size))
        points.append(scaled.ravel())
        weights.append(np.tile(chances, own.size))
    return np.concatenate(rows), np.concatenate(points), np.concatenate(weights)


def _similar_slices(trials: FloatArray, apart: float) -> list[slice]:
    """Slices of the decreasing vector ``trials``; numbers in one slice have about equal size."""
    cuts, size = [0], trials.size
    while cuts[-1] < size:
        most = trials[cuts[-1]]
        least = most if most <= _EVERY else most / (1.0 + min(apart * most, _ALIKE))
        cuts.append(int(np.searchsorted(-trials, -least, side="right")))
    return [slice(a, b) for a, b in pairwise(cuts)]


def _places(trials: float, chance: float, fine: float) -> FloatArray:
    """Increasing whole numbers, starting with 0, to which a binomial variable is rounded."""
    if trials <= _EVERY:
        return np.arange(trials + 1.0)
    mean = trials * chance
    deviation = math.sqrt(mean * (1.0 - chance)) + 1e-9
    apart = max(min(_COARSEST, math.sqrt(mean / fine)), 1.0 / deviation)
    places = np.append(mean + deviation * stretched(apart), mean + 10.0)
    return np.unique(np.append(0.0, np.clip(np.rint(places), 0.0, trials)))


def stretched(width: float) -> FloatArray:
    """Numbers (n,) from −30 to 30 with spacing ``width`` up to ±4 and increasing spacing beyond."""
    steps = np.arange(-math.ceil(_REACH / width), math.ceil(_REACH / width) + 1) * width
    beyond = np.copysign(np.clip(np.abs(steps) - _EVEN, 0.0, _REACH - _EVEN), steps)
    return np.clip(steps, -_EVEN, _EVEN) + _GROWTH * np.sinh(beyond / _GROWTH)


def _hats(trials: float, chance: float, fine: float) -> tuple[FloatArray, FloatArray]:
    """Points and weights of a variable that is larger in convex order than Bin(trials, chance)."""
    points = _places(trials, chance, fine)
    if points.size == 1:
        return points, np.ones(1)
    reverse_hockey_sticks, rounding = _reverse_hockey_sticks(points, trials, chance)
    # Σ weight·price = last price + Σ slope·(fall of the price from point to point): a slope that
    # is too large errs upwards.
    slopes = (np.diff(reverse_hockey_sticks) + rounding[1:] + rounding[:-1]) / np.diff(points)
    slopes = np.maximum.accumulate(np.clip(slopes, 0.0, 1.0))
    return points, np.diff(np.concatenate([[0.0], slopes, [1.0]]))


def _means(trials: float, chance: float, fine: float) -> tuple[FloatArray, FloatArray]:
    """Mean and probability of Bin(trials, chance) on each interval, rounded for a lower bound."""
    first = _places(trials, chance, fine)
    last = np.append(first[1:] - 1.0, trials)
    chances = group_chances(first, trials, chance, Side.LOWER)
    reverse_hockey_sticks, rounding = _reverse_hockey_sticks(
        np.append(first, trials + 1.0), trials, chance
    )
    edges = np.append(first, trials + 1.0)
    below = np.append(_below(first, trials, chance), 1.0)
    part = np.diff(edges * below - reverse_hockey_sticks) + rounding[1:] + rounding[:-1]
    means = np.clip(part / np.where(chances > 0, chances, 1.0), first, last)
    return means[chances > 0], chances[chances > 0]


def _below(count: FloatArray, trials: float, chance: float) -> FloatArray:
    """Probability P(Bin(trials, chance) < count), count from 0 to trials, shape of ``count``."""
    inner = np.maximum(count, 1.0)
    return np.where(count > 0, betaincc(inner, trials - inner + 1.0, chance), 0.0)


def _reverse_hockey_sticks(
    points: FloatArray, trials: float, chance: float
) -> tuple[FloatArray, FloatArray]:
    """Means E[(x − c)₊] of c ~ Bin(trials, chance) at the points x, and bounds on their errors."""
    inside = np.minimum(points, trials)
    whole = points * np.where(points <= trials, _below(inside, trials, chance), 1.0)
    fewer = np.maximum(inside - 1.0, 0.0)
    sure = (points > trials) | (trials <= 1)
    part = np.where(sure, 1.0 * (points > 1), _below(fewer, max(trials - 1.0, 1.0), chance))
    part = trials * chance * part
    return whole - part, _SLACK * (whole + part)
