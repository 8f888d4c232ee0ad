"""What must be computed for a scheme: runs of blocks, in one hop between neighbours or two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.accounting.divergence.blocks import Block
from turnout.accounting.divergence.curves import Direction

Run = Sequence[tuple[Block, int]]


@dataclass(frozen=True, slots=True)
class NeighbourBound:
    """One hop between neighbours: blocks that bound it from above and from below.

    Attributes:
        upper: composed, at least as bad as the truth.
        lower: composed, something an adversary really gets; the same blocks where the
            analysis is exact.
        method: the analysis, in a few words.
        tight: whether the blocks' bounds close in on each other.
        symmetric: whether both directions are the same.
        cap: an ε that holds at every δ, whatever the blocks say.
    """

    upper: Run
    lower: Run
    method: str
    tight: bool = True
    symmetric: bool = False
    cap: float = math.inf

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
    """What must be computed for a scheme.

    Attributes:
        present: her real record against her absence (the reference).
        other: the neighbouring record against the same reference, where the relation takes
            two hops (replace-one; zero-out where the null record displaces somebody); None
            where the reference *is* the neighbour.
    """

    present: NeighbourBound
    other: NeighbourBound | None = None


def merged(*runs: Run) -> Run:
    """One run after the other, equal blocks counted together."""
    counts: dict[Block, int] = {}
    for run in runs:
        for block, count in run:
            counts[block] = counts.get(block, 0) + count
    return [(block, count) for block, count in counts.items() if count > 0]


def joined(parts: Sequence[Decomposition]) -> Decomposition:
    """Several decompositions as one, about the same client.

    A part that takes one hop where others take two makes its whole way in the first of them.
    """
    hops = [part.present for part in parts]
    others = [part.other for part in parts if part.other is not None]
    return Decomposition(_in_a_row(hops), _in_a_row(others) if others else None)


def _in_a_row(hops: Sequence[NeighbourBound]) -> NeighbourBound:
    return NeighbourBound(
        merged(*(hop.upper for hop in hops)),
        merged(*(hop.lower for hop in hops)),
        "; ".join(dict.fromkeys(hop.method for hop in hops)) or "nothing released",
        all(hop.tight for hop in hops),
        bool(hops) and all(hop.symmetric for hop in hops),
        math.fsum(hop.cap for hop in hops),
    )
