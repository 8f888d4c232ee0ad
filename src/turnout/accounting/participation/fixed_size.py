"""Cohorts: uniform client subsets of fixed size, as blocks of one step each.

In each step the server draws n of N clients. `ZeroOutCohortBlock` bounds a step from above under
zero-out (the neighbouring record is the null record), `SubstitutedCohortBlock` under replace-one
(the neighbouring record is any record). `OpposedCohortBlock` bounds a step from below by an attack
under zero-out. `cohort_bound` returns blocks of these three kinds to `decomposition`.
docs/design/fixed-sizes.md has the proofs and the attacks.

Notation: q = n/N, K = e^ε, M_u the output of a step whose sum moves by u, r the update of the
attacked client, b the update of the client that replaces the attacked client in the cohort if the
attacked client is not drawn. Given the rest of the cohort, the output of a step is P = (1 − q)M_b +
q·M_r with the client's record and P' = (1 − q)M_b + q·M_0 with the null record. X = dM_r/dM_0 is
the likelihood ratio of an update against the null record. The infinity mass ℓ is the mass that M_r
has where M_0 has none.

**Zero-out, from above.** For K ≥ 1 and an event E of null mass M_0(E)

    P(E) − K·P'(E) = q·M_r(E) − (1 − q)(K − 1)·M_b(E) − K·q·M_0(E),

so δ(K) ≤ q(ℓ + (1 − ℓ)·E[(X − κX' − K/(1 − ℓ))₊]), κ = (K − 1)(1 − q)/q, with X' = dM_b/dM_0. The
expectation is over the antithetic coupling of X and X': X is largest where X' is smallest. In the
add direction the bound is largest if the outputs of both updates have as little mass as possible on
E, so δ(K) ≤ q·δ'(1 + (K − 1)/q), with δ' the curve of the pair in the add direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from turnout.accounting.divergence.blocks import Block, CurvePair, NeighbourBound, PairBlock
from turnout.accounting.divergence.curves import (
    BestCurve,
    Curve,
    DilutedCurve,
    Direction,
    PairCurve,
    Side,
    diluted,
    with_infinity_mass,
)
from turnout.accounting.divergence.dominating_pairs import DominatingPair
from turnout.accounting.divergence.pairs import (
    UNIT_ROUNDOFF,
    GaussianPair,
    Pair,
    hockey_stick,
    hockey_stick_rounding,
    tail_rounding,
)
from turnout.accounting.participation.antithetic import (
    antithetic_event,
    antithetic_rounding,
    antithetic_thresholds,
    antithetic_upper,
)
from turnout.core.arrays import FloatArray

_LEAST_WEIGHT = 1e-12  # smallest κ for which the two thresholds are solved


@dataclass(frozen=True, slots=True)
class ZeroOutCurve:
    """Curve δ(K) of the remove direction under zero-out, for the worst updates.

    The attacked client has the update r. The client that is drawn in its place has the update b.

    Attributes:
        pair: dominating pair of an update against the null record, scaled to mean 1.
        rate: q = size / population, between 0 and 1, both excluded.
        infinity_mass: ℓ, mass of outputs that only an update can produce.
        side: side to which rounding errors move the bound; the curve is exact up to rounding.
    """

    pair: Pair
    rate: float
    infinity_mass: float
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """Bound on δ at each K ≥ 1, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        weight, height = self._weight(k), k / (1.0 - self.infinity_mass)
        threshold, other = antithetic_thresholds(self.pair, weight, height)
        if self.side is Side.LOWER:
            present, elsewhere, share = antithetic_event(self.pair, threshold, other)
            error = antithetic_rounding(self.pair, weight, threshold, other)
            return self._whole(present - weight * elsewhere - height * share - error)
        value = antithetic_upper(self.pair, weight, threshold, other)
        # A smaller κ never lowers the hockey stick, and at κ = 0 it is that of X alone.
        alone = hockey_stick(self.pair, height) + hockey_stick_rounding(self.pair, height)
        value = np.where(weight > _LEAST_WEIGHT, value, alone)
        return np.minimum(self._whole(value) * (1.0 + 8 * UNIT_ROUNDOFF), 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope of the line K ↦ P(E) − K·P'(E) of the event E that is best at each K ≥ 1.

        An event is best at K if its line is the largest there. The result has the shape of ``k``.
        The whole line lies below the curve.
        """
        k = np.asarray(k, dtype=float)
        weight, height = self._weight(k), k / (1.0 - self.infinity_mass)
        threshold, other = antithetic_thresholds(self.pair, weight, height)
        present, elsewhere, share = antithetic_event(self.pair, threshold, other)
        alive = present - weight * elsewhere - height * share > 0.0
        kept = (1.0 - self.rate) * (1.0 - self.infinity_mass)
        return np.where(alive, -kept * elsewhere - self.rate * share, 0.0)

    def _weight(self, k: FloatArray) -> FloatArray:
        """Weight κ of the ratio X' at each K, at least `_LEAST_WEIGHT`."""
        return np.maximum((k - 1.0) * (1.0 - self.rate) / self.rate, _LEAST_WEIGHT)

    def _whole(self, value: FloatArray) -> FloatArray:
        """δ of one step, from a hockey stick of the pair that is scaled to mean 1."""
        kept = np.maximum((1.0 - self.infinity_mass) * value, 0.0)
        return self.rate * (self.infinity_mass + kept)


@dataclass(frozen=True, slots=True)
class ZeroOutCohortBlock:
    """Step of a uniform subset of clients under zero-out, bounded from above.

    Attributes:
        pair: dominating pair of an update against the null record.
        rate: q = size / population, between 0 and 1, both excluded.
        infinity_mass: mass of outputs that only an update can produce.
        apart: dominating pair of two updates, with its own infinity mass, if one is known; Theorem
            11 of Balle, Barthe, Gaboardi 2018 then gives a second bound for the step, and the
            smaller bound is used.
    """

    pair: Pair
    rate: float
    infinity_mass: float = 0.0
    apart: DominatingPair | None = None

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, as for Poisson sampling."""
        return PairBlock(self.pair, self.rate).loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Upper curve of one direction."""
        if direction is Direction.REMOVE:
            curve: Curve = ZeroOutCurve(self.pair, self.rate, self.infinity_mass, side)
        else:
            base = PairCurve(self.pair, Direction.ADD, side)
            base = with_infinity_mass(base, Direction.ADD, side, self.infinity_mass)
            curve = DilutedCurve(base, Direction.REMOVE, self.rate)
        if self.apart is None:
            return curve
        block = SubstitutedCohortBlock(self.apart.pair, self.rate, self.apart.infinity_mass)
        return BestCurve(side, [curve, block.curve(direction, side, delta, refinement)])

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Upper curves of both directions."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        zero = float(self.pair.q_below(np.array(0.0)))
        return CurvePair(side, [remove], [add], (self.rate * self.infinity_mass, self.rate * zero))


@dataclass(frozen=True, slots=True)
class SubstitutedCohortBlock:
    """Step of a uniform subset of clients under replace-one: the neighbouring record is any record.

    The curves are upper bounds. Source: Balle, Barthe, Gaboardi 2018, Theorem 11: both directions
    are at most q·H_{K'}(P‖Q) with K' = 1 + (K − 1)/q, where H is the hockey stick of the
    *substitution* pair (sensitivity 2C, since another client is drawn in place of a client).

    Attributes:
        pair: dominating pair of two updates.
        rate: q = size / population.
        infinity_mass: mass of outputs that only one of the two updates can produce.
    """

    pair: Pair
    rate: float
    infinity_mass: float = 0.0

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, as for Poisson sampling."""
        return PairBlock(self.pair, self.rate).loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of either direction; both directions have the same curve."""
        base = PairCurve(self.pair, Direction.REMOVE, side)
        base = with_infinity_mass(base, Direction.REMOVE, side, self.infinity_mass)
        return diluted(base, Direction.REMOVE, self.rate)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions; the two curves are equal."""
        curve = self.curve(Direction.REMOVE, side, delta, refinement)
        floor = self.rate * self.infinity_mass
        return CurvePair(side, [curve], [curve], (floor, floor))


@dataclass(frozen=True, slots=True)
class OpposedCurve:
    """Lower curve under zero-out with Gaussian noise: δ of an attack with two opposite updates.

    The attacked client has the update r. The client that is drawn in its place has the update b =
    −r.

    At each K the best event is a half-line, an interval or the complement of an interval: with y =
    e^{μx} and w = e^{−μ²/2}, P > K·P' where q·w·y² − K·q·y − (K − 1)(1 − q)·w > 0. Any event gives
    a lower bound, so the bound stays valid when the ends of the interval are rounded.

    Attributes:
        mu: clip norm over the standard deviation of the noise, μ.
        rate: q = size / population.
        direction: REMOVE for P against P', the outputs with the client's record and with the null
            record.
    """

    mu: float
    rate: float
    direction: Direction

    def delta(self, k: FloatArray) -> FloatArray:
        """Lower bound on δ at each K ≥ 1, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        likelier, other, error = self._masses(k)
        return np.clip(likelier - k * other - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope of the line of the best event at each K ≥ 1, shape of ``k``."""
        k = np.asarray(k, dtype=float)
        likelier, other, _ = self._masses(k)
        return np.where(likelier > k * other, -other, 0.0)

    def _masses(self, k: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Masses of the best event in both worlds, the larger mass first, and a rounding error."""
        outer = self.direction is Direction.REMOVE
        ends = self._ends(k if outer else 1.0 / k)
        masses = {v: interval_mass(*ends, v, outside=outer) for v in (-self.mu, 0.0, self.mu)}
        with_client = self._mixed(masses, self.mu)
        without = self._mixed(masses, 0.0)
        likelier, other = (with_client, without) if outer else (without, with_client)
        # A sum of two masses rounds a few times more than its terms.
        error = 2.0 * (likelier[1] + k * other[1])
        return likelier[0], other[0], error

    def _mixed(
        self, masses: dict[float, tuple[FloatArray, FloatArray]], shift: float
    ) -> tuple[FloatArray, FloatArray]:
        """Mass of the event if the attacked client's move is ``shift``, and its rounding error."""
        rest, drawn = masses[-self.mu], masses[shift]
        value, error = (
            (1.0 - self.rate) * a + self.rate * b for a, b in zip(rest, drawn, strict=True)
        )
        return value, error

    def _ends(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the interval on which P ≤ K·P', at each K.

        Both ends are equal if the interval is empty; the lower end is −∞ if the interval is a
        half-line.
        """
        w, q = math.exp(-0.5 * self.mu**2), self.rate
        with np.errstate(over="ignore"):  # an infinite end leaves no event, which is a lower bound
            square = (k * q) ** 2 + 4.0 * q * (1.0 - q) * w * w * (k - 1.0)
        root = (k * q + np.sqrt(np.maximum(square, 0.0))) / (2.0 * q * w)
        product = np.maximum((1.0 - k) * (1.0 - q) / q, 0.0)  # of both roots
        with np.errstate(divide="ignore"):
            high = np.log(root) / self.mu
            low = np.where(product > 0.0, np.log(product / root) / self.mu, -np.inf)
        empty = (square < 0.0) | (low > high)
        return np.where(empty, high, low), high


def interval_mass(
    low: FloatArray, high: FloatArray, mean: float, *, outside: bool
) -> tuple[FloatArray, FloatArray]:
    """Mass of N(mean, 1) inside or outside an interval, and a bound on the mass's rounding error.

    Args:
        low: lower ends of the intervals, of any shape.
        high: upper ends of the intervals, same shape.
        mean: mean of the normal distribution.
        outside: whether to return the mass outside the interval.
    """
    if outside:
        below, above = ndtr(low - mean), ndtr(mean - high)
        return below + above, tail_rounding(below) + tail_rounding(above)
    # The tails on the side where they are small lose the fewest digits.
    right = low > mean
    wide = np.where(right, ndtr(mean - low), ndtr(high - mean))
    narrow = np.where(right, ndtr(mean - high), ndtr(low - mean))
    return np.maximum(wide - narrow, 0.0), tail_rounding(wide) + tail_rounding(narrow)


@dataclass(frozen=True, slots=True)
class OpposedCohortBlock:
    """Step of a uniform subset of clients under zero-out, with opposite updates and Gaussian noise.

    The curves are lower bounds on δ, since the other clients can have the opposite update in every
    step.

    Attributes:
        pair: Gaussian pair of the client's update against the null record.
        rate: q, between 0 and 1, both excluded.
    """

    pair: GaussianPair
    rate: float

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss, as for Poisson sampling."""
        return PairBlock(self.pair, self.rate).loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Lower curve of one direction."""
        return OpposedCurve(self.pair.mu, self.rate, direction)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Lower curves of both directions."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        return CurvePair(side, [remove], [add], (0.0, 0.0))


METHOD = "sampling without replacement, worst updates of the client and of its substitute, composed"
"""Short name of the analysis under zero-out."""
SUBSTITUTION_METHOD = (
    "sampling without replacement (Balle et al. 2018, Theorem 11), composed as PLD"
)
"""Short name of the analysis under replace-one."""


def cohort_bound(
    rate: float,
    steps: int,
    alone: DominatingPair,
    apart: DominatingPair | None,
    *,
    zero_out: bool,
    opposable: bool,
) -> NeighbourBound:
    """Neighbour bound of a run in which each step draws its own uniform subset of clients.

    Args:
        rate: q = size / population, at most 1.
        steps: number of steps.
        alone: dominating pair of an update against the null record.
        apart: dominating pair of two updates; None if no such pair is known, which is allowed under
            zero-out only.
        zero_out: whether the neighbouring record is the null record.
        opposable: whether two opposite updates attain the dominating pair ``apart``.

    Returns:
        Blocks of an upper bound, never below the true δ, and of lower bounds, never above it.
    """
    worst = alone if zero_out or apart is None else apart
    if rate == 1.0:
        # All clients take part in each step, so nothing is drawn: exact.
        run = [(PairBlock(worst.pair, 1.0, worst.infinity_mass), steps)]
        return NeighbourBound(run, run, "every step, composed as PLD")
    absent = [(PairBlock(alone.pair, rate, alone.infinity_mass), steps)]
    if not zero_out:
        upper: Block = SubstitutedCohortBlock(worst.pair, rate, worst.infinity_mass)
        attained = [(PairBlock(worst.pair, rate, worst.infinity_mass), steps)]
        bound = NeighbourBound([(upper, steps)], absent, SUBSTITUTION_METHOD, tight=False)
        return replace(bound, lower=attained) if opposable else bound
    # Theorem 11 is smaller for some randomizers that are known by ε₀ only.
    other = apart if not opposable else None
    upper = ZeroOutCohortBlock(alone.pair, rate, alone.infinity_mass, other)
    # A custom pair need not be attained by opposite updates, even if it is a Gaussian one.
    if not (opposable and isinstance(alone.pair, GaussianPair)):
        return NeighbourBound([(upper, steps)], absent, METHOD, tight=False)
    opposed = [(OpposedCohortBlock(alone.pair, rate), steps)]
    return NeighbourBound([(upper, steps)], opposed, METHOD, tight=False, attacks=(absent,))
