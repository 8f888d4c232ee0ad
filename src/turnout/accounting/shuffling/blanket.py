"""Bounds on δ(K) of a blanket pair, and the block of one round of shuffled messages.

`BlanketCurve` computes a bound from the `best_events` of its cells, in about a millisecond per K.
`BlanketBlock` is the block of a round. `pair_epsilon` returns the ε of a pair composed over rounds,
and `clones_2021` the ε of the clones pair. `messages`, `approximate` and `lower_bounds` build on
this module; `blanket_pairs` has the pairs and the cells.

Notation (see also `blanket_pairs`)
    n    clients                       K = e^ε
    N    number of high and low        c    number of neutral messages
         messages together             u = 2A − N, a walk of N fair steps
    A    number of high messages

The distribution of the view is a mixture over the kind of the victim's message: it is that of n
messages of the blanket alone, times A/(nβ) if this message is high, (N − A)/(nβ) if it is low and
c/(nβ₃) if it is neutral. So, with
N − 1 ~ Bin(n − 1, 2β) and c | N ~ Bin(n − N, β₃/(1 − 2β)) (the size-biased binomial, as in the
privacy blanket, balle2019blanket),

    δ(K) = (K + 1)(v_h − v_l)·E[(u/N − θ·y/N)₊],   θ = (K − 1)/(K + 1),
    y = ((v_h + v_l)·N + 2(v₃/β₃)β·c)/(v_h − v_l),

the same in both directions by symmetry. N is cut into groups N₁ ≤ N ≤ N₂. E[(u/N − t)₊] falls as N
grows, because the mean of N exchangeable steps is a martingale in reverse; it falls and is convex
in t. E[(u − s)₊] rises with N. So the group contributes at most the smaller of two terms:
  * the first term has u/N at N₁ and the smallest drift y/N, which has c at N₂ and the divisor N₂;
  * the second term has u at N₂ and the smallest drift y (N₁, and c at N₂), and is divided by N₁.
The group contributes at least the same terms with N₁ and N₂ exchanged. Which term is tighter
depends on the two parts of the drift; without neutral messages the first is tighter, and exact in
t. The *price* of a cell, its term of δ(K) for one N and c, is convex in c and falls as c grows. For
an upper bound c is spread over a few points, such that the mean of c is unchanged (hat weights).
For a lower bound c is put on the means of few intervals (Jensen).

The price of a cell is the largest gain Pr₀ − K·Pr₁ of an event A ≥ a, and the slope of the price in
K is −Pr₁ of this event. At another K the largest gain is no less than the gain of this event, so
the line with this slope lies below the price.

**Fair coins**, from one to 10⁹: `heads` is the probability of a number of heads, and
`chance_of_at_least` (by `betainc`) that of as many or more. Both relative errors stay below 1e-11
while the probability is above e^{−700}. The deviance form of the mass (Loader 2000) avoids the
cancellation of differences of ln Γ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, gammaln, xlogy

from turnout.accounting.divergence.blocks import CurvePair
from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PricedSide,
    Side,
    nodes_down_to,
    nodes_near,
    upper_polygon,
)
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge, remembered
from turnout.accounting.shuffling.blanket_pairs import BlanketPair, Cells, clones_pair
from turnout.core import checks
from turnout.core.arrays import BoolArray, FloatArray
from turnout.core.errors import UnsupportedError

_SLACK = 1e-9  # relative error that a binomial probability may have

_UNITS_AN_EVENT = 30  # of work

_AT_ONCE = 1 << 17  # prices, so that arrays stay small


@dataclass(frozen=True)
class BlanketCurve:
    """Bound on the curve δ(K) of a blanket pair, upper or lower by ``side``.

    Both directions are equal.

    Attributes:
        pair: blanket pair of the messages.
        clients: n, number of clients.
        side: UPPER if the curve is never below the pair's δ, LOWER if it is never above.
        groups: resolution; N, the number of high and low messages, is cut into groups about
            N/(8·groups) wide, or into single values.
    """

    pair: BlanketPair
    clients: int
    side: Side
    groups: int = 256

    def __post_init__(self) -> None:
        checks.count(clients=self.clients, groups=self.groups)

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        return self.delta_and_slope(k)[0]

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope of a line through δ(K) below the pair's curve, shape of ``k``; 0 for side UPPER."""
        return self.delta_and_slope(k)[1]

    def delta_and_slope(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values δ(K) and slopes of the curve at each K ≥ 1, each in the shape of ``k``."""
        flat = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        step = max(1, _AT_ONCE // self._cells.weight.size)
        parts = [self._priced(flat[i : i + step]) for i in range(0, flat.size, step)]
        deltas, slopes = (
            np.concatenate(part).reshape(np.shape(k)) for part in zip(*parts, strict=True)
        )
        return deltas, slopes

    def _priced(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        cells = self._cells
        events = best_events(self.pair, cells.coins, cells.excess, k[None, :])
        if self.side is Side.UPPER:
            total = cells.weight @ events.most
            total = np.minimum(total * (1.0 + _SLACK), 1.0)
            return total, np.zeros(total.shape)
        value, fall = events.least
        return (cells.weight @ value) * (1.0 - _SLACK), -(cells.weight @ fall)

    @cached_property
    def _cells(self) -> Cells:
        return Cells.of(self.pair, self.clients, self.side, self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Gain and probability of the event with the largest gain, by cell (row) and K (column).

    A cell is one value of N and c (`blanket_pairs.Cells`). The gain of an event E is P(E) − K·Q(E),
    where P is the world in which the client's message is high with probability v_h = `pair.high`,
    and Q the world in which this probability is v_l = `pair.low`. All numbers are to be multiplied
    by the weight of the cell.

    Attributes:
        value: gain of the event, shape (cells, values of K).
        slack: bound on the rounding error of the gain, same shape.
        chance: Q(E), the probability of the event in the world in which it is less likely, same
            shape.
        impossible: whether K > v_h/v_l, where no event has a gain; shape (values of K,).
    """

    value: FloatArray
    slack: FloatArray
    chance: FloatArray
    impossible: BoolArray

    @property
    def most(self) -> FloatArray:
        """Upper bound on the gain of each event, shape of `value`."""
        # No view is likelier by more than v_h/v_l, so beyond it the gain is 0 in every cell.
        return np.where(self.impossible, 0.0, np.maximum(self.value, 0.0) + self.slack)

    @property
    def least(self) -> tuple[FloatArray, FloatArray]:
        """Lower bound on the gain of each event, and the rate at which this bound falls with K.

        Both have the shape of `value`. The gain of the same event at another K is at most the
        largest gain there.
        """
        fall = np.where(self.value > self.slack, self.chance, 0.0)
        return np.maximum(self.value - self.slack, 0.0), fall


def best_events(pair: BlanketPair, coins: FloatArray, excess: FloatArray, k: FloatArray) -> Events:
    """Gain and probability of the event A ≥ a with the largest gain at each K, one row per cell.

    A is the number of high messages.

    Args:
        pair: blanket pair of the messages.
        coins: N − 1 of each cell, where N is the number of high and low messages, shape (cells,).
        excess: part of the threshold that the neutral messages add (see `Cells`), shape (cells,).
        k: values of K ≥ 1, shape (columns,).

    Returns:
        The events, with arrays of shape (cells, columns).
    """
    charge(_UNITS_AN_EVENT * coins.size * k.shape[-1])
    coins, excess = coins[:, None], excess[:, None]
    high, low = pair.high, pair.low
    # Largest gain of an event, all of the N messages being high; below 0 no event gains.
    most = high - k * low - 0.5 * (k - 1.0) * excess
    rounding = 8 * UNIT_ROUNDOFF * (high + k * low + 0.5 * (k - 1.0) * np.abs(excess))
    possible = most >= -rounding
    # The share of A in N from which on the one world is likelier by more than K.
    share = high - low / k + 0.5 * (1.0 - 1.0 / k) * excess
    share = np.where(possible, share / ((1.0 + 1.0 / k) * (high - low)), 1.0)
    above = np.minimum(np.floor((coins + 1.0) * share), coins)
    mass, tail = heads(coins, above), (high + low + excess) * chance_of_at_least(coins, above + 1.0)
    gain, loss = mass * most, (k - 1.0) * tail
    value = np.where(possible, gain - loss, 0.0)
    slack = np.where(possible, _SLACK * (np.abs(gain) + loss) + mass * rounding, 0.0)
    impossible = k * low > high * (1.0 + 4 * UNIT_ROUNDOFF)
    return Events(value, slack, mass * (low + 0.5 * excess) + tail, impossible)


_NEAR = 0.3  # |share of heads − ½|·2 up to which the deviance is taken from its series at 0

_TABLE = 16


def heads(coins: FloatArray, count: FloatArray) -> FloatArray:
    """Probability P(Bin(coins, ½) = count) for counts from 0 to coins, elementwise."""
    tails = coins - count
    mixed = (count > 0) & (tails > 0)
    some, up, down = (np.where(mixed, x, 1.0) for x in (coins, count, tails))
    x = np.where(mixed, (up - down) / some, 0.0)
    exponent = 0.5 * some * (np.log1p(-np.minimum(x * x, 0.5)))
    exponent += np.where(mixed, up - down, 0.0) * np.arctanh(np.clip(x, -_NEAR, _NEAR))
    far = np.abs(x) > _NEAR
    if far.any():
        direct = xlogy(up, 2.0 * up / some) + xlogy(down, 2.0 * down / some)
        exponent = np.where(far, direct, exponent)
    correction = _stirling(some) - _stirling(up) - _stirling(down)
    mass = np.exp(correction - exponent) * np.sqrt(some / (2.0 * math.pi * up * down))
    return np.where(mixed, mass, np.exp2(-coins))


def chance_of_at_least(coins: FloatArray, count: FloatArray) -> FloatArray:
    """Probability P(Bin(coins, ½) ≥ count), elementwise."""
    inside = (count >= 1) & (count <= coins)
    first = np.where(inside, count, 1.0)
    tail = betainc(first, np.where(inside, coins - first + 1.0, 1.0), 0.5)
    return np.where(inside, tail, np.where(count < 1, 1.0, 0.0))


def _stirling(n: FloatArray) -> FloatArray:
    """Stirling's error ln n! − (n + ½) ln n + n − ½ ln 2π for whole n ≥ 1."""
    large = np.maximum(n, _TABLE)
    square = large * large
    series = 1 / 1260 - (1 / 1680 - (1 / 1188) / square) / square
    series = (1 / 12 - (1 / 360 - series / square) / square) / large
    if float(np.min(n, initial=_TABLE)) >= _TABLE:
        return series
    return np.where(n < _TABLE, _SMALL[np.minimum(n, _TABLE - 1).astype(np.intp)], series)


_WHOLE = np.arange(1.0, _TABLE)

_SMALL = np.append(
    0.0,
    gammaln(_WHOLE + 1.0) - (_WHOLE + 0.5) * np.log(_WHOLE) + _WHOLE - 0.5 * math.log(2 * math.pi),
)

_SINGLE, _COMPOSED, _ROUGH = 256, 128, 16  # groups of one round, of many, to place K's by

_DENSITY = 40.0  # K's a standard deviation of the loss, for a curve to be composed

_CLOSE, _MOST_STEPS = 1e-4, 40  # relative width of the ε's that enclose a root, and tries

_REACHED = 0.9  # curves are made down to this part of the δ at which they may be cut off

_ROUNDING = 1e-8  # of slopes, and of points between nodes

_LARGEST_LOCAL_EPSILON = 140.0  # from which on the search for roots may fail


@dataclass(frozen=True, slots=True)
class BlanketBlock:
    """Round of n shuffled messages, bounded by blanket pairs; both directions are equal.

    Attributes:
        upper: blanket pair that bounds any two records of the victim.
        lower: blanket pair that some records attain, or None if no such pair is known.
    """

    upper: BlanketPair
    clients: int
    lower: BlanketPair | None = None

    def __post_init__(self) -> None:
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio, at most 1."""
        return _loss_deviation(self.upper, self.clients)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of both directions through a few K, two of which enclose the K with δ(K) = δ."""
        return _near(self._pair(side), self.clients, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curve of both directions, tight from δ = 1 down to the given δ."""
        curve = _down_to(self._pair(side), self.clients, side, delta, refinement)
        return CurvePair(side, [curve], [curve])

    def _pair(self, side: Side) -> BlanketPair:
        if side is Side.UPPER:
            return self.upper
        if self.lower is None:
            raise UnsupportedError("no lower bound is known for messages of this randomizer")
        return self.lower


def _loss_deviation(pair: BlanketPair, clients: int) -> float:
    return min(1.0, (pair.high - pair.low) * math.sqrt(2.0 / (clients * pair.share)))


@remembered
def _near(pair: BlanketPair, clients: int, side: Side, delta: float, refinement: int) -> Curve:
    curve = BlanketCurve(pair, clients, side, _SINGLE << refinement)
    if pair.local_epsilon > _LARGEST_LOCAL_EPSILON:
        return curve
    rough = BlanketCurve(pair, clients, Side.UPPER, _ROUGH)
    guess = math.log(
        nodes_near(_priced(rough), Side.UPPER, delta, _loss_deviation(pair, clients))[-1]
    )
    return _polygon(pair, side, *_enclosing_points(curve, delta, guess))


@remembered
def _down_to(pair: BlanketPair, clients: int, side: Side, delta: float, refinement: int) -> Curve:
    curve = BlanketCurve(pair, clients, side, _COMPOSED << refinement)
    density = _DENSITY * 2**refinement
    if pair.local_epsilon <= _LARGEST_LOCAL_EPSILON:
        rough = BlanketCurve(pair, clients, Side.UPPER, _ROUGH)
        loss_deviation = _loss_deviation(pair, clients)
        nodes = nodes_down_to(_priced(rough), _REACHED * delta, loss_deviation, density)
    elif side is Side.UPPER:
        return curve
    else:
        nodes = np.exp(np.linspace(0.0, pair.local_epsilon, int(20 * density)))
    return _polygon(pair, side, nodes, *curve.delta_and_slope(nodes))


def _priced(curve: BlanketCurve) -> PricedSide:
    """Function of K and a side that returns the value of ``curve`` at K and ignores the side."""

    def priced(k: float, _: Side) -> float:
        return float(curve.delta(np.array(k)))

    return priced


def _enclosing_points(
    curve: BlanketCurve, delta: float, guess: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values of K around the K at which a curve equals δ, with the curve's values and slopes.

    The first value is K = 1.
    """
    # Start with values around the guess.
    epsilons = guess * np.array([0.0, 0.94, 1.0, 1.03])
    values, slopes = curve.delta_and_slope(np.exp(epsilons))
    for _ in range(_MOST_STEPS):
        # Stop if two neighbouring ε enclose the root closely; else add values beyond or between.
        index = int(np.argmax(values <= delta)) if values[-1] <= delta else values.size
        if index == 0:
            break
        if index == values.size:
            more = epsilons[-1:] * 1.3
        elif epsilons[index] - epsilons[index - 1] <= _CLOSE * epsilons[index]:
            break
        else:
            more = _between(epsilons[index - 1 : index + 1], values[index - 1 : index + 1], delta)
        # Insert the new points in order.
        found = curve.delta_and_slope(np.exp(more))
        epsilons, first = np.unique(np.append(epsilons, more), return_index=True)
        values, slopes = np.append(values, found[0])[first], np.append(slopes, found[1])[first]
    return np.exp(epsilons), values, slopes


def _between(ends: FloatArray, values: FloatArray, delta: float) -> FloatArray:
    """Three values of ε near a root, found as if ln δ were linear in ε² between the two ends."""
    logs = np.log(np.maximum(values, 1e-300))
    share = min(max((logs[0] - math.log(delta)) / max(logs[0] - logs[1], 1e-300), 0.0), 1.0)
    middle = math.sqrt(ends[0] ** 2 + share * (ends[1] ** 2 - ends[0] ** 2))
    aside = 0.02 * (ends[1] - ends[0])
    beside = np.array([middle - aside, middle, middle + aside])
    return np.clip(beside, ends[0] + aside, ends[1] - aside)


def _polygon(
    pair: BlanketPair, side: Side, nodes: FloatArray, values: FloatArray, slopes: FloatArray
) -> Curve:
    """Upper or lower polygon from a curve's values and slopes at the nodes.

    An upper polygon is 0 for all K ≥ e^{ε₀}.
    """
    if side is Side.LOWER:
        return _under_tangents(nodes, values, slopes)
    alone = math.exp(pair.local_epsilon * (1.0 + 1e-14))
    inside = nodes < alone
    return upper_polygon(np.append(nodes[inside], alone), np.append(values[inside], 0.0))


def _under_tangents(nodes: FloatArray, values: FloatArray, slopes: FloatArray) -> Curve:
    """Lower polygon whose edges lie on or below the tangents at the nodes; its last value is 0."""
    gaps = np.diff(nodes)
    # Each tangent is lowered on both sides of its node by the rounding error of its slope.
    right, left = slopes[:-1] * (1.0 + _ROUNDING), slopes[1:] * (1.0 - _ROUNDING)
    apart = left - right
    meet = values[:-1] - values[1:] + left * gaps
    # Slightly before the crossing the later tangent is the lower one, whatever the rounding.
    meet = (1.0 - _ROUNDING) * meet / np.where(apart > 0, apart, 1.0)
    proper = (apart > 0) & (meet > 0) & (meet < gaps)
    meet = np.where(proper, meet, 0.5 * gaps)
    later = values[1:] - left * (gaps - meet)
    corners = np.where(proper, later, np.minimum(later, values[:-1] + right * meet))
    last = -values[-1] / slopes[-1] if slopes[-1] < 0 else 0.0
    points = np.concatenate([nodes[:1], nodes[:-1] + meet, [nodes[-1] + last * (1 - _ROUNDING)]])
    values = np.concatenate([values[:1], np.maximum(corners, 0.0), [0.0]])
    points, first = np.unique(points, return_index=True)
    # The convex polygon below these points, which lies at or below the tangents.
    return upper_polygon(points, values[first] * (1.0 - _ROUNDING))


def clones_2021(local_epsilon: float, clients: int, delta: float, rounds: int = 1) -> float:
    """Upper bound on ε of shuffled ε₀-messages, composed over rounds, by the clones pair.

    Source: Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1, evaluated
    numerically. This is the smallest published bound for adaptive randomizers. The theorem needs an
    order of speaking that is uniform and unknown to the adversary and to the party that chooses the
    next randomizer. `turnout.accounting.price` uses `worst_pair`, whose ε is up to 30 % smaller.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.
        rounds: number of rounds, at least 1.

    Returns:
        ε under replace-one, never below the true value; at most rounds·ε₀ up to rounding up.

    Raises:
        ParameterError: an argument is outside its domain.
        NumericalError: no finite ε can be certified.

    >>> round(clones_2021(1.0, 100_000, 1e-6), 4)
    0.0153
    """
    return pair_epsilon(clones_pair(local_epsilon), clients, delta, rounds)


def pair_epsilon(pair: BlanketPair, clients: int, delta: float, rounds: int = 1) -> float:
    """Upper bound on ε of shuffled messages with a blanket pair, composed over rounds.

    Args:
        pair: blanket pair of the messages of one round.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.
        rounds: r, number of rounds, at least 1.

    Returns:
        ε in either direction, never below that of the pair; at most r times the pair's ε₀ up to
        rounding up.

    Raises:
        ParameterError: an argument is outside its domain.
        NumericalError: no finite ε can be certified.
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    run = [(BlanketBlock(pair, clients), rounds)]
    amplified = run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, 0)
    return min(amplified, rounds * pair.local_epsilon * (1.0 + 8 * UNIT_ROUNDOFF))
