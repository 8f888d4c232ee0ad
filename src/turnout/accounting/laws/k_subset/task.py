"""One task: k of t steps, one direction, near one δ; and a search for the best bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnout.accounting.divergence.curves import Direction
from turnout.accounting.divergence.pairs import Pair


@dataclass(frozen=True, slots=True)
class Task:
    """Picks k of a window's t steps, 1 < k < t, and the δ at which a bound should be sharp."""

    pair: Pair
    window: int
    picks: int
    direction: Direction
    delta: float


_MOST_MOVES = 16


def valley(value: Callable[[float], float], start: float, factor: float) -> float:
    """The least point of a function with one valley on the grid start·factorⁿ, not too far away.

    >>> valley(lambda x: abs(x - 8.5), 1.0, 2.0)
    8.0
    """
    best = (value(start), start)
    for ratio in (factor, 1.0 / factor):
        before = best
        for _ in range(_MOST_MOVES):
            tried = value(best[1] * ratio), best[1] * ratio
            if not tried[0] < best[0]:
                break
            best = tried
        if best is not before:
            break
    return best[1]
