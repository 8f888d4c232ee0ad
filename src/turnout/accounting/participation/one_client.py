"""One-client releases (Algorithm 1 of the check-in paper): privacy of each step and window.

In each step one client, uniform among those that check in, sends its noisy update; a step without
check-ins releases only noise. `one_client_pair` returns a pair that bounds the likelihood ratio of
a step from above, whatever the other clients do; `opposed_pair` returns the pair of an attack.
`OneClientBlock` is a window in which two records of a client are compared; the second record may be
the null record. `under_one_client` converts a run to such windows. `decomposition` uses these
blocks. docs/design/one-client.md has the proofs.

Notation: m other clients check in to a step, Q is the output of the step without the client and
P with it, X = dP/dQ under Q, C the clip norm, L_s the likelihood ratio of the noise for a move of
the update by s. The client is drawn with probability a = 1/(m + 1), so X = 1 − a + a·dM_u/dQ with
M_u the output of the client's update u.

* m = 0: the update of the client is released, and X is at most L_C in convex order.
* m ≥ 1: a ≤ ½, and Q is a mixture of outputs of updates at most 2C from u, so X is at most ½ +
  ½·L_2C in convex order. The bound is attained by one other client whose update is −u.

Take at each threshold the larger reverse hockey stick of the two cases. This function is convex
with the right limits, so it is the reverse hockey stick of a likelihood ratio Z, and X ≤_cx Z given
the past, the other clients and their steps.

**Two records.** Let P' be the output of a step with the other record and X' = dP'/dQ. For one K =
e^ε, δ depends on a step through Y = X − K·X', of mean 1 − K (docs/design/replacement.md). A smaller
a scales Y about its mean, so only the two cases m = 0 and a = ½ matter. With w = ½ − K/2 − c

    E[(Y − c)₊] ≤ sup over E of ½M(E) − (K/2)M'(E) + w·D(E)        (a = ½),

with M, M' and D the distributions of the output if the update of the first record, of the second
record, or of the other client is released. The bound is largest if the other client's update is as
far away as possible on the side that the sign of w gives: at distance C from the null record, or at
2C from one of the two records. The larger of the bounds for m = 0 and a = ½ is the hockey stick of
a distribution that is above Y in increasing convex order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from turnout.accounting.divergence.blocks import Block, CurvePair, PairBlock
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    Side,
    curve_through,
    nodes_down_to,
    nodes_near,
)
from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    GaussianPair,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
)
from turnout.accounting.divergence.work import remembered
from turnout.accounting.participation.antithetic import (
    antithetic_event,
    antithetic_thresholds,
    antithetic_upper,
)
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.fixed_size import interval_mass
from turnout.accounting.participation.replace_one_expectations import (
    Planner,
    Sum,
    excess,
    sum_threshold,
)
from turnout.accounting.participation.replace_one_steps import (
    AntitheticStep,
    Step,
)
from turnout.core import checks
from turnout.core.arrays import BoolArray, FloatArray
from turnout.core.errors import UnsupportedError

_DENSITY = 20.0  # nodes K of a composed curve, for each standard deviation of the loss
_REACHED = 0.9  # curves reach down to this part of the δ at which they may be cut off
_FLAT = 1e-9  # |w| below which an upper bound is taken at 0 or at this value
_ROUNDINGS = 32.0 * UNIT_ROUNDOFF  # relative error of a threshold, and of a sum of a few terms


@dataclass(frozen=True, slots=True)
class HalvedPair:
    """Pair of a step that releases a client's message or another message, each with chance ½.

    The likelihood ratio is ½ + X/2, with X the ratio of the base pair.

    Attributes:
        base: pair of the client's message against the other message, without an infinity mass.
    """

    base: Pair

    @property
    def second_moment(self) -> float:
        """Second moment E_Q[(½ + X/2)²] of the likelihood ratio."""
        return 0.75 + 0.25 * self.base.second_moment

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(½ + X/2 ≤ k) of the likelihood ratio."""
        inner = 2.0 * k - 1.0
        return np.where(inner < 0, 0.0, self.base.q_below(np.maximum(inner, 0.0)))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(½ + X/2 > k) of the likelihood ratio."""
        inner = 2.0 * k - 1.0
        return np.where(inner < 0, 1.0, self.base.q_above(np.maximum(inner, 0.0)))

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(½ + X/2 ≤ k), P being the mixture of both messages."""
        inner = 2.0 * k - 1.0
        at = np.maximum(inner, 0.0)
        mixed = 0.5 * (self.base.q_below(at) + self.base.p_below(at))
        return np.where(inner < 0, 0.0, mixed)

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(½ + X/2 > k), P being the mixture of both messages."""
        inner = 2.0 * k - 1.0
        at = np.maximum(inner, 0.0)
        mixed = 0.5 * (self.base.q_above(at) + self.base.p_above(at))
        return np.where(inner < 0, 1.0, mixed)


@dataclass(frozen=True, slots=True)
class LargestPair:
    """Pair with, at each threshold, the larger of the reverse hockey sticks of two pairs.

    The likelihood ratio of this pair is the least ratio in convex order that is above the ratios of
    both pairs. At each threshold the pair with the larger hockey stick, rounding errors included,
    gives the four tails. Where the hockey sticks cross, the ratio has an atom.

    Attributes:
        first, second: pairs without an infinity mass.
    """

    first: Pair
    second: Pair

    @property
    def second_moment(self) -> float:
        """Larger of the second moments of the two pairs' ratios, used only to choose grids."""
        return max(self.first.second_moment, self.second.second_moment)

    def _is_second(self, k: FloatArray) -> BoolArray:
        """Whether the second pair has the larger hockey stick at each threshold, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        low = k < 1.0
        result = np.zeros(k.shape, dtype=bool)
        # The reverse hockey stick is accurate below the mean 1, the hockey stick above it; their
        # difference 1 − k is the same for both pairs.
        for part, stick, rounding in (
            (low, reverse_hockey_stick, reverse_hockey_stick_rounding),
            (~low, hockey_stick, hockey_stick_rounding),
        ):
            if part.any():
                at = k[part]
                prices = [
                    stick(pair, at) + rounding(pair, at) for pair in (self.first, self.second)
                ]
                result[part] = prices[1] > prices[0]
        return result

    def q_below(self, k: FloatArray) -> FloatArray:
        """Probability Q(X ≤ k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.q_below(k), self.first.q_below(k))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Probability Q(X > k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.q_above(k), self.first.q_above(k))

    def p_below(self, k: FloatArray) -> FloatArray:
        """Probability P(X ≤ k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.p_below(k), self.first.p_below(k))

    def p_above(self, k: FloatArray) -> FloatArray:
        """Probability P(X > k) of the likelihood ratio X."""
        return np.where(self._is_second(k), self.second.p_above(k), self.first.p_above(k))


def opposed_pair(apart: Pair) -> HalvedPair:
    """Pair of a step to which the client and one other client with the opposite update check in.

    Args:
        apart: pair of two updates at distance 2C, without an infinity mass.
    """
    return HalvedPair(apart)


def one_client_pair(alone: Pair, apart: Pair) -> LargestPair:
    """Pair whose ratio is above a step's likelihood ratio in convex order, for any other clients.

    Source: docs/design/one-client.md, Theorem 1. The pair gives upper bounds on δ of windows of
    such steps in both directions, even if the other clients and their steps depend on earlier
    releases.

    Args:
        alone: pair of the client's update against a step without check-ins, at distance C.
        apart: pair of two updates at distance 2C.
    """
    return LargestPair(alone, HalvedPair(apart))


class _Case(NamedTuple):
    """Upper bounds on E[(Y − c)₊] in one case (m = 0 or a = ½), and a function for Q(Y > c)."""

    price: FloatArray
    share: Callable[[], FloatArray]


@dataclass(frozen=True)
class _RecordsStep:
    """Step that compares two records, by the larger bound of m = 0 and a = ½ (module header).

    Attributes:
        alone: pair of two updates at distance C.
        apart: pair of two updates at distance 2C.
        k: K = e^ε ≥ 1.
    """

    alone: Pair
    apart: Pair
    k: float

    @property
    def mean(self) -> float:
        """Mean E[Y] of Y = X − K·X'."""
        return 1.0 - self.k

    @property
    def bottom(self) -> float:
        """A number below all values of Y."""
        return -math.inf

    @property
    def top(self) -> float:
        """A number above all values of Y."""
        return math.inf

    @property
    def infinite(self) -> float:
        """Infinity mass of Y: pairs of this module have none."""
        return 0.0

    def upper(self, c: FloatArray) -> FloatArray:
        """Upper bound on E[(Y − c)₊], whatever the other clients do; shape of ``c``."""
        # The bounds fall in c, so those at a slightly smaller c cover the rounding of thresholds.
        c = c - _ROUNDINGS * (1.0 + self.k + np.abs(c))
        displacing = np.empty_like(c)
        for part, case in self._displacing(c):
            displacing[part] = case.price
        return np.maximum(self._without_others(c).price, displacing) * (1.0 + _ROUNDINGS)

    def share(self, c: FloatArray) -> FloatArray:
        """Approximate −d/dc of the bound on E[(Y − c)₊], shape of ``c``."""
        without = self._without_others(c)
        share = without.share()
        for part, case in self._displacing(c):
            share[part] = np.where(case.price > without.price[part], case.share(), share[part])
        return share

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values and slopes of the bound on E[(Y − c)₊] at each c, used only to choose grids."""
        return self.upper(c), -self.share(c)

    def _displacing(self, c: FloatArray) -> list[tuple[BoolArray, _Case]]:
        """Bounds on E[(Y − c)₊] if one other client checks in (a = ½), for each sign of w."""
        w = 0.5 - 0.5 * self.k - c
        low = w < -_FLAT
        return [(low, self._below(-w[low])), (~low, self._above(np.maximum(w[~low], _FLAT)))]

    def _without_others(self, c: FloatArray) -> _Case:
        """Bounds on E[(Y − c)₊] if no other client checks in."""
        raise NotImplementedError

    def _below(self, w: FloatArray) -> _Case:
        """Bounds on E[(Y − c)₊] if the one other client's update has the weight −w < 0 (a = ½)."""
        raise NotImplementedError

    def _above(self, w: FloatArray) -> _Case:
        """Bounds on E[(Y − c)₊] if the one other client's update has the weight w > 0 (a = ½)."""
        raise NotImplementedError


class _ReplaceStep(_RecordsStep):
    """Step of replace-one: both records are arbitrary."""

    def _without_others(self, c: FloatArray) -> _Case:
        step = AntitheticStep(self.alone, self.k)
        return _Case(step.upper(c), lambda: step.share(c))

    def _below(self, w: FloatArray) -> _Case:
        # The worst update of the other client is that of the other record.
        k = self.k + 2.0 * w
        return _Case(0.5 * self._farthest(k), lambda: self.apart.q_above(k))

    def _above(self, w: FloatArray) -> _Case:
        # The worst update of the other client is that of the client's record.
        weight = 0.5 + w
        k = 0.5 * self.k / weight
        return _Case(weight * self._farthest(k), lambda: self.apart.p_above(k))

    def _farthest(self, k: FloatArray) -> FloatArray:
        """Hockey stick of two updates at distance 2C, in the larger direction; rounded up."""
        forward = _call(self.apart, k)
        if isinstance(self.apart, GaussianPair):  # symmetric: both directions are equal
            return forward
        return np.maximum(forward, _put(self.apart, 1.0 / k) * k)


class _RecordStep(_RecordsStep):
    """Step of zero-out: X is the ratio of the client's record, and X' that of the null record."""

    def _without_others(self, c: FloatArray) -> _Case:
        k = self.k + c
        at, sure = np.maximum(k, 0.0), k < 0
        price = np.where(sure, 1.0 - k, _call(self.alone, at))
        return _Case(price, lambda: np.where(sure, 1.0, self.alone.q_above(at)))

    def _below(self, w: FloatArray) -> _Case:
        price, coupling = _antithetic(self.alone, 2.0 * w, np.full(w.shape, self.k))
        return _Case(0.5 * price, lambda: coupling()[1])

    def _above(self, w: FloatArray) -> _Case:
        weight = 0.5 + w
        k = 0.5 * self.k / weight
        return _Case(weight * _call(self.alone, k), lambda: self.alone.p_above(k))


class _NullStep(_RecordsStep):
    """Step of zero-out: X is the ratio of the null record, and X' that of the client's record."""

    def _without_others(self, c: FloatArray) -> _Case:
        k = np.maximum(1.0 - c, 0.0) / self.k
        return _Case(self.k * _put(self.alone, k), lambda: self.alone.q_below(k))

    def _below(self, w: FloatArray) -> _Case:
        weight = 0.5 * self.k + w
        k = 0.5 / weight
        return _Case(weight * _put(self.alone, k), lambda: self.alone.p_below(k))

    def _above(self, w: FloatArray) -> _Case:
        price, coupling = _antithetic(self.alone, 0.5 * self.k / w, -0.5 / w)
        return _Case(w * price, lambda: coupling()[0])


def _call(pair: Pair, k: FloatArray) -> FloatArray:
    """Hockey stick of a pair, rounded up."""
    return hockey_stick(pair, k) + hockey_stick_rounding(pair, k)


def _put(pair: Pair, k: FloatArray) -> FloatArray:
    """Reverse hockey stick of a pair, rounded up."""
    return reverse_hockey_stick(pair, k) + reverse_hockey_stick_rounding(pair, k)


def _antithetic(
    pair: Pair, k: FloatArray, c: FloatArray
) -> tuple[FloatArray, Callable[[], tuple[FloatArray, FloatArray, FloatArray]]]:
    """E[(X − kX' − c)₊] of the antithetic coupling, rounded up, and a function for event masses."""
    threshold, other = antithetic_thresholds(pair, k, c)
    price = antithetic_upper(pair, k, threshold, other)
    return price, lambda: antithetic_event(pair, threshold, other)


@dataclass(frozen=True)
class _OpposedStep:
    """Step of the attack under zero-out, with one other client that has the opposite update.

    With v the likelihood ratio of the null record against the other client's update, the likelihood
    ratio of the client's record against that update is e^{−μ²}·v². So Y − c is a quadratic function
    of v, and {Y > c} is an interval or its complement.

    Attributes:
        mu: C over the standard deviation of Gaussian noise, μ.
        k: K = e^ε ≥ 1.
        direction: remove: X belongs to the client's record and X' to the null record; add: X
            belongs to the null record and X' to the client's record.
    """

    mu: float
    k: float
    direction: Direction

    @property
    def mean(self) -> float:
        """Mean E[Y] of Y = X − K·X'."""
        return 1.0 - self.k

    @property
    def bottom(self) -> float:
        """Smallest value of Y, or a smaller number."""
        if self.direction is Direction.ADD:
            return -math.inf
        return 0.5 - 0.5 * self.k - self.k**2 * math.exp(self.mu**2) / 8.0 * (1.0 + 1e-12)

    @property
    def top(self) -> float:
        """Largest value of Y, or a larger number."""
        if self.direction is Direction.REMOVE:
            return math.inf
        most = math.exp(self.mu**2) / (8.0 * self.k) * (1.0 + 1e-12)
        return 0.5 - 0.5 * self.k + most + 1e-15 * self.k

    @property
    def infinite(self) -> float:
        """Infinity mass of Y: Gaussian noise has none."""
        return 0.0

    def upper(self, c: FloatArray) -> FloatArray:
        """Upper bound on E[(Y − c)₊], shape of ``c``; exact up to rounding."""
        value, share, error = self._line(c)
        least = np.maximum(self.mean - c, 0.0)
        return np.maximum(value, least) + error + _ROUNDINGS * (1.0 + self.k + np.abs(c)) * share

    def share(self, c: FloatArray) -> FloatArray:
        """Probability Q(Y > c), shape of ``c``."""
        return self._line(c)[1]

    def tangent(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values at ``c`` and slopes of lines below E[(Y − c)₊]; rounding errors are subtracted."""
        value, share, error = self._line(c)
        return value - error - _ROUNDINGS * (1.0 + self.k + np.abs(c)) * share, -share

    def _line(self, c: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Largest P(E) − K·P'(E) − c·Q(E) over events E, Q(E), and a bound on rounding errors."""
        # The masses of E under the other client's update, the null record and the client's record.
        up, w = self.direction is Direction.REMOVE, 0.5 - 0.5 * self.k - c
        low, high = self._ends(w)
        (share, null, record), error = zip(
            *(interval_mass(low, high, mean, outside=up) for mean in (0.0, self.mu, 2.0 * self.mu)),
            strict=True,
        )
        first, second = (record, null) if up else (null, record)
        value = 0.5 * first - 0.5 * self.k * second + w * share
        weights = (np.abs(w), 0.5 * self.k, 0.5) if up else (np.abs(w), 0.5, 0.5 * self.k)
        total = sum(weight * each for weight, each in zip(weights, error, strict=True))
        sizes = 0.5 * first + 0.5 * self.k * second + np.abs(w) * share
        return value, share, np.asarray(total) + _ROUNDINGS * sizes

    def _ends(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Standard normal scores of the two roots v of Y = c, shape of ``w`` each.

        The score of a root that is not positive is −∞. If no root is real, both scores are equal.
        """
        # Remove: e^{−μ²}v² − Kv + 2w. Add: Ke^{−μ²}v² − v − 2w.
        up, least = self.direction is Direction.REMOVE, math.exp(-(self.mu**2))
        a, b, d = (least, self.k, 2.0 * w) if up else (self.k * least, 1.0, -2.0 * w)
        root = np.sqrt(np.maximum(b * b - 4.0 * a * d, 0.0))
        large = (b + root) / (2.0 * a)
        small = d / (a * large)
        with np.errstate(divide="ignore"):
            scores = [
                (np.log(np.maximum(v, 0.0)) + 0.5 * self.mu**2) / self.mu for v in (small, large)
            ]
        return scores[0], scores[1]


@dataclass(frozen=True, slots=True)
class OneClientBlock:
    """Window in which a client takes part in one uniform step, with one of two records.

    Source: docs/design/one-client.md, Theorem 2. The upper curve is valid whatever the other
    clients do, also if the clients and the steps to which they check in depend on earlier releases.
    The lower curve exists for Gaussian noise under zero-out; an attack with one other client per
    step, with the update opposite to the client's, attains it.

    Attributes:
        alone: pair of two updates at distance C, without an infinity mass.
        apart: pair of two updates at distance 2C.
        window: t, steps of the window.
        probability: p₀, the probability that the client takes part at all.
        to_null: whether the other record is the null record (zero-out) or any record (replace-one).

    Raises:
        ParameterError: the window or the probability is out of range.
    """

    alone: Pair
    apart: Pair
    window: int
    probability: float = 1.0
    to_null: bool = False

    def __post_init__(self) -> None:
        checks.count(window=self.window)
        checks.probability(probability=self.probability)
        checks.positive(probability=self.probability)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, at most p₀."""
        largest = max(HalvedPair(self.apart).second_moment, self.alone.second_moment)
        return self.probability * min(1.0, math.sqrt(max(largest - 1.0, 0.0) / self.window))

    def delta(self, k: float, direction: Direction, side: Side, refinement: int = 0) -> float:
        """Upper bound on δ at one K = e^ε ≥ 1, or lower bound on δ of the attack, by ``side``."""
        return _DeltaBounds(self, self._named(direction), side, refinement)(k, side)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of one direction, sharp near one δ."""
        bounds = _DeltaBounds(self, self._named(direction), side, refinement)
        nodes = nodes_near(bounds, side, delta, self.loss_deviation)
        return curve_through(bounds, nodes, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions, sharp from δ = 1 down to the given δ.

        The curves do not depend on the refinement, since finer grids do not close the gap between
        upper and lower bound. All δ between two powers of ten get the same curves, so that bounds
        at several δ share the curves.
        """
        least = 10.0 ** math.floor(math.log10(delta) + 1e-9)
        remove, add = (
            _composed_curve(self, self._named(direction), side, least) for direction in Direction
        )
        return CurvePair(side, [remove], [add])

    def _named(self, direction: Direction) -> Direction:
        """The given direction under zero-out; REMOVE under replace-one, which is symmetric."""
        return direction if self.to_null else Direction.REMOVE


class _DeltaBounds:
    """Bounds on δ of a block in one direction, as a function of K that stores computed bounds.

    For an upper curve the bounds are valid whatever the other clients do. For a lower curve the
    bounds are upper or lower bounds on δ of the attack. ``refinement`` is None for a curve that
    will be composed.
    """

    def __init__(
        self, block: OneClientBlock, direction: Direction, curve: Side, refinement: int | None
    ) -> None:
        self._block, self._curve = block, curve
        self._composed, self._refinement = refinement is None, refinement or 0
        self._step = _step_of(block, direction, curve)
        self._known: dict[tuple[float, Side], float] = {}
        self._planner = Planner()

    def __call__(self, k: float, side: Side) -> float:
        if (k, side) not in self._known:
            chance, window = self._block.probability, self._block.window
            total = Sum(self._step(k), window, sum_threshold(k, window, chance))
            # Only the many K of a composed curve share their plans of grids: a plan that was made
            # for another K may raise δ by a few per cent.
            planner = self._planner if self._composed else Planner()
            value = excess(total, side, self._refinement, planner)
            self._known[k, side] = min(chance * value, 1.0)
        return self._known[k, side]


def _step_of(block: OneClientBlock, direction: Direction, side: Side) -> Callable[[float], Step]:
    """Function of K that returns the step of the upper bound or the step of the attack, by side."""
    alone, apart = block.alone, block.apart
    if side is Side.UPPER:
        kind = _ReplaceStep
        if block.to_null:
            kind = _RecordStep if direction is Direction.REMOVE else _NullStep
        return lambda k: kind(alone, apart, k)
    if not (block.to_null and isinstance(alone, GaussianPair)):
        raise UnsupportedError(
            "no lower bound is available for this window: expected Gaussian noise under zero-out"
        )
    return lambda k: _OpposedStep(alone.mu, k, direction)


@remembered
def _composed_curve(block: OneClientBlock, direction: Direction, side: Side, delta: float) -> Curve:
    bounds = _DeltaBounds(block, direction, side, None)
    nodes = nodes_down_to(bounds, _REACHED * delta, block.loss_deviation, _DENSITY)
    return curve_through(bounds, nodes, side)


def under_one_client(
    run: Sequence[tuple[Block, int]], alone: Pair, apart: Pair, *, to_null: bool
) -> list[tuple[Block, int]]:
    """Blocks that compare two records, from blocks that compare a record with its absence.

    Args:
        run: blocks, each with the number of times that it occurs: windows (`AllocationBlock`) and
            Poisson steps (`PairBlock`).
        alone: pair of two updates at distance C, without an infinity mass.
        apart: pair of two updates at distance 2C.
        to_null: whether the other record is the null record (zero-out) or any record (replace-one).

    Returns:
        Pairs (block, number of times that it occurs). The δ of these blocks is never below the true
        δ for two records.

    Raises:
        UnsupportedError: a block is neither a window nor a Poisson step.
    """
    converted: list[tuple[Block, int]] = []
    for block, count in run:
        if not isinstance(block, AllocationBlock | PairBlock):
            raise UnsupportedError(
                f"no bound for two records is known for a {type(block).__name__}"
            )
        window = block.window if isinstance(block, AllocationBlock) else 1
        one = OneClientBlock(alone, apart, window, block.probability, to_null)
        converted.append((one, count))
    return converted
