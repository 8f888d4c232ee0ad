"""Independent blocks, of which a run is made, and what must be computed for a scheme: runs of them.

A scheme's neighbours are one neighbour bound apart or two, each a run from above and from below.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from turnout.accounting.divergence.composition import GridTooLargeError
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PairCurve,
    Side,
    diluted,
    with_infinity_mass,
)
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.pairs import Pair
from turnout.accounting.divergence.unhidden import ANYTHING, Unhidden
from turnout.accounting.divergence.work import size_of

_LARGEST_HINT, _BELOW_THE_CUT = 0.1, 0.9
_MOST_BYTES = 640 << 20  # of the curves of a block


class Block(Protocol):
    """One chunk of a run that is independent of the others given the past.

    Curves that cannot be certified at so small a δ raise a NumericalError, those of a side from
    which nothing is known an UnsupportedError.
    """

    @property
    def loss_deviation(self) -> float:
        """About the standard deviation of the block's privacy loss (only steers grids)."""
        ...

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """A curve made sharp near one δ."""
        ...

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves that are sharp from 1 down to a δ at which they may be cut off."""
        ...


@dataclass(frozen=True, slots=True)
class PairBlock:
    """One step in which the client takes part with a probability, independently of other steps."""

    pair: Pair
    probability: float = 1.0
    infinity_mass: float = 0.0

    @property
    def loss_deviation(self) -> float:
        """Standard deviation of the diluted likelihood ratio, at most 1."""
        return self.probability * min(1.0, math.sqrt(max(self.pair.second_moment - 1.0, 0.0)))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The exact curve, whatever the side."""
        curve = with_infinity_mass(
            PairCurve(self.pair, direction, side), direction, side, self.infinity_mass
        )
        return diluted(curve, direction, self.probability)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The exact curves."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        # Without the client nothing is impossible with it, unless it surely comes.
        zero = float(self.pair.q_below(np.array(0.0))) if self.probability == 1.0 else 0.0
        return CurvePair(side, [remove], [add], (self.probability * self.infinity_mass, zero))


@dataclass(frozen=True, slots=True)
class FixedSizeBlock:
    """One step that serves a uniform subset of fixed size, under replace-one or zero-out.

    Source: Balle, Barthe, Gaboardi 2018, Theorem 11: both directions are at most
    q·H_{K'}(P‖Q), K' = 1 + (K − 1)/q, of the *substitution* pair (sensitivity 2C: whoever is
    not drawn makes room for somebody else).

    Attributes:
        rate: q = size / population.
    """

    pair: Pair
    rate: float
    infinity_mass: float = 0.0

    @property
    def loss_deviation(self) -> float:
        """As of Poisson sampling at the same rate."""
        return PairBlock(self.pair, self.rate).loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The same curve in both directions."""
        base = PairCurve(self.pair, Direction.REMOVE, side)
        base = with_infinity_mass(base, Direction.REMOVE, side, self.infinity_mass)
        return diluted(base, Direction.REMOVE, self.rate)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The same curve in both directions."""
        curve = self.curve(Direction.REMOVE, side, delta, refinement)
        return CurvePair(
            side, [curve], [curve], (self.rate * self.infinity_mass, self.rate * self.infinity_mass)
        )


def curves_apart(
    block: Block, side: Side, delta: float, refinement: int, ratio: float
) -> list[list[Curve]]:
    """Curves of both directions, sharp at δ's that lie a ratio apart, down to just below one δ.

    Raises:
        GridTooLargeError: together they are more than can be held.
    """
    found: list[list[Curve]] = [[], []]
    held = 0
    for curves, direction in zip(found, Direction, strict=True):
        for hint in hints_apart(delta, ratio):
            curves.append(block.curve(direction, side, hint, refinement))
            held += size_of(curves[-1])
            if held > _MOST_BYTES:
                raise GridTooLargeError("the curves of a block are more than can be held")
    return found


def hints_apart(delta: float, ratio: float) -> list[float]:
    """δ's that lie a ratio apart, rising from just below one."""
    least = _BELOW_THE_CUT * delta
    steps = math.log(max(_LARGEST_HINT / least, 1.0)) / math.log(ratio)
    return np.geomspace(least, max(least, _LARGEST_HINT), math.ceil(steps) + 1).tolist()


Run = Sequence[tuple[Block, int]]


@dataclass(frozen=True, slots=True)
class NeighbourBound:
    """A neighbour bound: blocks that bound one pair of neighbours from above and from below.

    Attributes:
        upper: composed, at least as bad as the truth.
        lower: composed, something an adversary really gets; the same blocks where the
            analysis is exact.
        tight: whether the blocks' bounds close in on each other.
        symmetric: whether both directions are the same.
    """

    upper: Run
    lower: Run
    method: str
    tight: bool = True
    symmetric: bool = False

    @property
    def exact(self) -> bool:
        """Whether finer grids make the bracket as narrow as asked."""
        return self.tight and self.upper == self.lower

    @property
    def directions(self) -> Sequence[Direction]:
        """Those that have to be computed."""
        return [Direction.REMOVE] if self.symmetric else list(Direction)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The neighbour bounds that must be computed for a scheme.

    Attributes:
        record_against_null: the client's record against the null record (the reference).
        replacement_against_null: the neighbouring record against the same reference,
            where the relation takes two neighbour bounds (replace-one; zero-out where the null
            record displaces somebody); None where the reference *is* the neighbour.
        unhidden: the client's releases without what hides them, which bound ε whatever the
            blocks say.
    """

    record_against_null: NeighbourBound
    replacement_against_null: NeighbourBound | None = None
    unhidden: Unhidden = ANYTHING


Counted = TypeVar("Counted", bound=Hashable)


def merged(*runs: Sequence[tuple[Counted, int]]) -> list[tuple[Counted, int]]:
    """One run after the other, equal blocks counted together."""
    counts: dict[Counted, int] = {}
    for run in runs:
        for block, count in run:
            counts[block] = counts.get(block, 0) + count
    return [(block, count) for block, count in counts.items() if count > 0]


def joined(parts: Sequence[Decomposition]) -> Decomposition:
    """Several decompositions as one, about the same client.

    A part that takes one neighbour bound where others take two counts in the first of them alone.
    """
    bounds = [part.record_against_null for part in parts]
    others = [
        part.replacement_against_null for part in parts if part.replacement_against_null is not None
    ]
    above, below = (
        merged(*(getattr(part.unhidden, side) for part in parts)) for side in ("above", "below")
    )
    return Decomposition(
        _in_a_row(bounds), _in_a_row(others) if others else None, Unhidden(above, below)
    )


def _in_a_row(bounds: Sequence[NeighbourBound]) -> NeighbourBound:
    return NeighbourBound(
        merged(*(bound.upper for bound in bounds)),
        merged(*(bound.lower for bound in bounds)),
        "; ".join(dict.fromkeys(bound.method for bound in bounds)) or "nothing released",
        all(bound.tight for bound in bounds),
        bool(bounds) and all(bound.symmetric for bound in bounds),
    )
