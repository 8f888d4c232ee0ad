"""Blocks, the independent parts of a run, with privacy curves and privacy loss distributions.

`Block` is the interface; `PairBlock` is a block of one step. A `CurvePair` holds the curves of a
block, and `loss_distribution` turns it into a `LossDistribution`, the privacy loss distribution on
a grid. A `Run` is a sequence of blocks with counts. A `NeighbourBound` has a run whose divergence
is an upper bound on that of two neighbours, and a run whose divergence is a lower bound. A
`Decomposition` holds the neighbour bounds of a scheme: one, or two if the neighbours are compared
through a reference world.

`participation` and `shuffling` make blocks, `decomposition` combines them into the bounds of a
scheme, and `composition` composes the loss distributions of the blocks.

**Loss distributions.** P and Q are the two worlds, K = e^ε, and Δ is the step of the grid. Upper:
the polygon through the values of an upper curve at e^{jΔ} is the tightest pessimistic PLD (privacy
loss distribution) on that grid (Doroshenko et al. 2022, "Connect the Dots"). Lower: the same
construction is applied to a polygon under the tangents of a lower curve; this polygon is the curve
of a pair that is a function of the true pair's output. Masses are second differences of *prices*.
The price at K is δ(K) − (1 − K)₊, not δ(K): otherwise the masses of losses below 0 would be
differences of numbers near 1 − K, whose rounding errors, divided by Δ, exceed the masses if Δ is
small.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np

from turnout.accounting.divergence.convex_order import convex_slopes, under_tangents
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PairCurve,
    Side,
    diluted,
    with_infinity_mass,
)
from turnout.accounting.divergence.pairs import Pair
from turnout.accounting.divergence.unhidden import ANYTHING, Unhidden
from turnout.accounting.divergence.work import charge, size_of
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import DensePLDPmf as PLDPmf


_UNITS_A_POINT = 20  # of work, of a curve and its slope


class GridTooLargeError(NumericalError):
    """Error for a composition whose loss grid, or whose curves, do not fit in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class LossDistribution:
    """Distribution of the privacy loss ln(P/Q) under P on the points (lowest + j)·gap.

    Attributes:
        gap: distance between neighbouring points.
        lowest: number of the first point, a whole number that may be negative.
        masses: P's mass on each point, shape (n,).
        infinity: P's mass where Q has no mass.
    """

    gap: float
    lowest: int
    masses: FloatArray
    infinity: float

    @property
    def losses(self) -> FloatArray:
        """Privacy losses at the grid points, shape of ``masses``."""
        return self.gap * (self.lowest + np.arange(self.masses.size, dtype=np.float64))

    def to_dp_accounting(self) -> PLDPmf:
        """Same distribution as a dp-accounting object, marked as pessimistic."""
        from dp_accounting.pld import pld_pmf

        return pld_pmf.DensePLDPmf(self.gap, self.lowest, self.masses, self.infinity, True)


@dataclass(frozen=True, slots=True)
class CurvePair:
    """Curves δ(K) of one mechanism in both directions, all on one side of the true curves.

    If a direction has several curves, the tightest is used at each K: the smallest upper curve or
    the largest lower curve. ``floors`` are the limits of δ (remove, add) for large ε.
    """

    side: Side
    remove: Sequence[Curve]
    add: Sequence[Curve]
    floors: tuple[float, float] = (0.0, 0.0)

    def floor(self, direction: Direction) -> float:
        """Limit of δ in one direction for large ε.

        For *remove* the limit is P's mass where Q has no mass; for *add* it is Q's mass where P has
        no mass.
        """
        return self.floors[0 if direction is Direction.REMOVE else 1]

    def _best(self, curves: Sequence[Curve], k: FloatArray) -> tuple[FloatArray, FloatArray]:
        charge(_UNITS_A_POINT * len(curves) * k.size)
        values = np.stack([curve.delta(k) for curve in curves])
        slopes = np.stack([curve.slope(k) for curve in curves])
        index = np.argmin(values, axis=0) if self.side is Side.UPPER else np.argmax(values, axis=0)
        rows = np.arange(k.size)
        best = values[index, rows]
        # A lower curve that was cut off at 0 proves no more than the tangent 0.
        return best, np.where(best > 0, slopes[index, rows], 0.0)

    def price_and_slope(self, direction: Direction, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Value and derivative of δ(K) − (1 − K)₊ at any K > 0, each in the shape of ``k``.

        For K < 1 the value is K·H_{1/K} of the other direction.
        """
        own, other = (
            (self.remove, self.add) if direction is Direction.REMOVE else (self.add, self.remove)
        )
        price, slope = self._best(own, np.maximum(k, 1.0))
        small = k < 1.0
        if small.any():
            inner = 1.0 / k[small]
            value, derivative = self._best(other, inner)
            price[small] = k[small] * value
            slope[small] = value - derivative * inner
        return price, slope


def loss_distribution(
    pair: CurvePair, direction: Direction, gap: float, tail: float
) -> LossDistribution:
    """Privacy loss distribution of one direction, on the same side of the truth as the curves.

    The grid has the step ``gap`` and ends at the loss `reach_of`, where δ is at most ``tail`` above
    its limit. If the curves are upper bounds, the mass beyond this loss is moved to an infinite
    loss.

    Raises:
        NumericalError: the curves do not reach ``tail`` (`reach_of`).
    """
    # Grid of losses up to the ε at which δ is the tail.
    reach = math.ceil(reach_of(pair, tail) / gap) + 1
    epsilons = gap * np.arange(-reach, reach + 1)
    points = np.exp(epsilons)
    # Polygon of prices: chords of an upper curve, or below the tangents of a lower curve.
    if pair.side is Side.UPPER:
        prices = np.minimum(pair.price_and_slope(direction, points)[0], np.minimum(points, 1.0))
    else:
        middles = np.exp(epsilons[:-1] + 0.5 * gap)
        prices = under_tangents(points, middles, *pair.price_and_slope(direction, middles))
        _trim(prices, reach, pair.floor(direction))
    # Masses under Q are the jumps of the slope, which jumps by 1 more at K = 1.
    widths = points[:-1] * math.expm1(gap)
    below, above = _convex(np.diff(prices) / widths, widths, reach)
    masses = np.concatenate(
        [
            [below[0] - prices[0] / points[0]],
            np.diff(below),
            [1.0 - below[-1] + above[0]],
            np.diff(above),
            [-above[-1]],
        ]
    )
    # Masses under P: a loss of ln K has K times the mass under Q.
    return LossDistribution(gap, -reach, np.maximum(masses * points, 0.0), float(prices[-1]))


def reach_of(pair: CurvePair, tail: float) -> float:
    """Smallest ε of a grid at which δ is at most ``tail`` above its limit for large ε.

    The condition must hold in both directions.

    Raises:
        NumericalError: δ stays further above its limit at every ε up to 400.
    """
    candidates = np.geomspace(1e-6, 400.0, 800)
    points = np.exp(candidates)
    above = [
        pair.price_and_slope(direction, points)[0] - pair.floor(direction) * (1.0 + 1e-9)
        for direction in Direction
    ]
    below = np.flatnonzero(np.maximum(*above) <= tail)
    if not below.size:
        raise NumericalError(
            f"delta does not come within {tail:.3g} of its limit at any epsilon up to 400"
        )
    return float(candidates[below[0]])


def _trim(prices: FloatArray, middle: int, floor: float) -> None:
    """Lower a polygon of prices below a curve, in place, so that it ends at the curve's limits.

    The price at K is δ(K) − (1 − K)₊. Its limit is 0 for K → 0 and ``floor`` for K → ∞. On each
    side of K = 1, going outwards, the first price below the limit, the price before it and all
    prices beyond it are set to the limit.
    """
    prices[0], prices[-1] = 0.0, floor
    low = np.flatnonzero(prices[: middle + 1] < 0)
    if low.size:
        prices[: low[-1] + 2] = 0.0
    low = np.flatnonzero(prices[middle:] < floor)
    if low.size:
        prices[middle + max(low[0] - 1, 0) :] = floor


def _convex(slopes: FloatArray, widths: FloatArray, middle: int) -> tuple[FloatArray, FloatArray]:
    """Slopes of the greatest convex function below a polygon, left and right of K = 1.

    The polygon is that of the prices δ(K) − (1 − K)₊. Since (1 − K)₊ has a kink at K = 1, the slope
    of the price may fall there by up to 1. The polygons left and right of K = 1 are made convex
    separately, which keeps their smallest slopes exact. If the slope would then fall by more than 1
    at K = 1, they are made convex together.
    """
    below = convex_slopes(slopes[:middle], widths[:middle])
    above = convex_slopes(slopes[middle:], widths[middle:])
    if below[-1] - above[0] > 1.0:
        whole = convex_slopes(np.append(slopes[:middle] - 1.0, slopes[middle:]), widths)
        below, above = whole[:middle] + 1.0, whole[middle:]
    return below, above


_LARGEST_HINT, _BELOW_THE_CUT = 0.1, 0.9

_MOST_BYTES = 640 << 20  # of the curves of a block


class Block(Protocol):
    """Part of a run that is independent of all other parts, given earlier releases.

    The methods raise a NumericalError if a curve cannot be certified at the given δ, and an
    UnsupportedError if no bound is known on the requested side.
    """

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the block's privacy loss, used only to choose grids."""
        ...

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of one direction, tight near the given δ."""
        ...

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions, tight from δ = 1 down to the given δ."""
        ...


@dataclass(frozen=True, slots=True)
class PairBlock:
    """One step in which the client takes part with a probability, independently of other steps."""

    pair: Pair
    probability: float = 1.0
    infinity_mass: float = 0.0

    @property
    def loss_deviation(self) -> float:
        """Participation probability times the ratio's standard deviation, the latter at most 1."""
        return self.probability * min(1.0, math.sqrt(max(self.pair.second_moment - 1.0, 0.0)))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Exact curve, which is both an upper and a lower bound."""
        curve = with_infinity_mass(
            PairCurve(self.pair, direction, side), direction, side, self.infinity_mass
        )
        return diluted(curve, direction, self.probability)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Exact curves of both directions."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        # A client that may be absent makes no output impossible; one that surely takes part may.
        zero = float(self.pair.q_below(np.array(0.0))) if self.probability == 1.0 else 0.0
        return CurvePair(side, [remove], [add], (self.probability * self.infinity_mass, zero))


def curves_apart(
    block: Block, side: Side, delta: float, refinement: int, ratio: float
) -> list[list[Curve]]:
    """Curves of both directions, each tight near one of several values of δ (`hints_apart`).

    The smallest of these values is just below the given δ.

    Raises:
        GridTooLargeError: the curves together need too much memory.
    """
    found: list[list[Curve]] = [[], []]
    held = 0
    for curves, direction in zip(found, Direction, strict=True):
        for hint in hints_apart(delta, ratio):
            curves.append(block.curve(direction, side, hint, refinement))
            held += size_of(curves[-1])
            if held > _MOST_BYTES:
                raise GridTooLargeError("the curves of a block need too much memory")
    return found


def hints_apart(delta: float, ratio: float) -> list[float]:
    """Geometric sequence of δ, up from just below the given δ, with a factor of up to ``ratio``."""
    least = _BELOW_THE_CUT * delta
    steps = math.log(max(_LARGEST_HINT / least, 1.0)) / math.log(ratio)
    return np.geomspace(least, max(least, _LARGEST_HINT), math.ceil(steps) + 1).tolist()


Run = Sequence[tuple[Block, int]]


@runtime_checkable
class ShareableBlock(Protocol):
    """Block that can be replaced, in upper bounds, by a block that similar blocks share."""

    @property
    def shared(self) -> Block:
        """Block that replaces several similar blocks, with upper curves at least as high."""
        ...


def shared_run(run: Run) -> Run:
    """Run with upper curves at least as high, in which similar blocks are replaced by one block."""
    return [
        (block.shared if isinstance(block, ShareableBlock) else block, count)
        for block, count in run
    ]


@dataclass(frozen=True, slots=True)
class NeighbourBound:
    """Blocks that bound the divergence of one neighbouring pair from above and from below.

    Attributes:
        upper: blocks whose composition is an upper bound.
        lower: blocks whose composition is a lower bound, attained by some adversary; the same
            blocks as ``upper`` if the analysis is exact.
        tight: whether finer grids bring upper and lower bound together.
        symmetric: whether both directions have the same curve.
        attacks: runs of further adversaries. Each gives a lower bound; the largest one is used.
    """

    upper: Run
    lower: Run
    method: str
    tight: bool = True
    symmetric: bool = False
    attacks: tuple[Run, ...] = ()

    @property
    def lowers(self) -> tuple[Run, ...]:
        """Runs of all adversaries; each is a lower bound."""
        return (self.lower, *self.attacks)

    @property
    def exact(self) -> bool:
        """Whether finer grids narrow the bounds on ε to any requested width."""
        return self.tight and self.upper == self.lower

    @property
    def directions(self) -> Sequence[Direction]:
        """Directions whose curves must be computed: one direction if both curves are equal."""
        return [Direction.REMOVE] if self.symmetric else list(Direction)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Neighbour bounds from which ε of a scheme is computed.

    Attributes:
        record_against_null: bound for the client's record against the null record (the reference).
        replacement_against_null: bound for the neighbouring record against the same reference, if
            the relation needs two neighbour bounds (replace-one; zero-out if the null record
            displaces another client); None if the reference *is* the neighbour.
        through_null: bound for either record against the reference, if `record_against_null`
            compares the two records directly; else None. The path from one record to the reference
            and on to the other record gives another upper bound on ε; the smaller upper bound is
            used.
        unhidden: the client's releases if participation is observed; they bound ε independently of
            the blocks.
    """

    record_against_null: NeighbourBound
    replacement_against_null: NeighbourBound | None = None
    through_null: NeighbourBound | None = None
    unhidden: Unhidden = ANYTHING


Counted = TypeVar("Counted", bound=Hashable)


def merged_runs(*runs: Sequence[tuple[Counted, int]]) -> list[tuple[Counted, int]]:
    """Concatenation of runs, in which the counts of equal blocks are added."""
    counts: dict[Counted, int] = {}
    for run in runs:
        for block, count in run:
            counts[block] = counts.get(block, 0) + count
    return [(block, count) for block, count in counts.items() if count > 0]


def joined_decompositions(parts: Sequence[Decomposition]) -> Decomposition:
    """Decomposition of several mechanisms that release data of the same client.

    If some mechanisms have two neighbour bounds, the blocks of a mechanism with one bound are added
    to the first bound only.
    """
    bounds = [part.record_against_null for part in parts]
    others = [
        part.replacement_against_null for part in parts if part.replacement_against_null is not None
    ]
    above, below = (
        merged_runs(*(getattr(part.unhidden, side) for part in parts))
        for side in ("above", "below")
    )
    # The way through the reference is known only if it is known for all mechanisms.
    through = [part.through_null for part in parts if part.through_null is not None]
    return Decomposition(
        _in_a_row(bounds),
        _in_a_row(others) if others else None,
        _in_a_row(through) if through and len(through) == len(parts) else None,
        Unhidden(above, below),
    )


def _in_a_row(bounds: Sequence[NeighbourBound]) -> NeighbourBound:
    # Attack number i of the whole is attack number i of each part, or the last one that it has.
    attacks = [
        merged_runs(*(bound.lowers[min(i, len(bound.attacks))] for bound in bounds))
        for i in range(1 + max((len(bound.attacks) for bound in bounds), default=0))
    ]
    return NeighbourBound(
        merged_runs(*(bound.upper for bound in bounds)),
        attacks[0],
        "; ".join(dict.fromkeys(bound.method for bound in bounds)) or "nothing released",
        all(bound.tight for bound in bounds),
        bool(bounds) and all(bound.symmetric for bound in bounds),
        tuple(attacks[1:]),
    )
