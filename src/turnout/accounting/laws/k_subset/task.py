"""What is to be bounded: k of t steps, in one direction, near one δ."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.accounting.divergence.curves import Direction
from turnout.accounting.divergence.pairs import Pair


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be bounded, and at which δ the bound should be sharp.

    Attributes:
        pair: the randomizer's dominating pair.
        window: t.
        picks: k, 1 < k < t.
        direction: remove or add.
        delta: where the bound should be sharp; it holds everywhere.
    """

    pair: Pair
    window: int
    picks: int
    direction: Direction
    delta: float
