"""Who comes, and uniform k-subsets of a window, for many clients at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.randomness import Source

_FULL_DRAW = 1 / 16
_CELLS = 2**22


def who_came(n: int, probability: float, source: Source) -> NDArray[np.int64]:
    """Which of ``n`` come when each does with ``probability`` on her own, ascending.

    Few: their number first, then who they are, so that the cost is that of the few. Many: a
    coin each, which then is cheaper.
    """
    if probability == 1:
        return np.arange(n)
    if probability > _FULL_DRAW:
        return np.flatnonzero(source.bernoulli(probability, n))
    return source.subset(n, source.binomial(n, probability))


def subset_each(clients: int, window: int, picks: int, source: Source) -> NDArray[np.integer]:
    """An independent uniform subset of ``picks`` of ``window`` slots for each client.

    Returns:
        int32 array of shape (clients, picks); the slots of a row differ and are in no
        particular order.
    """
    chosen = np.empty((clients, picks), dtype=np.int32)
    few = min(picks, window - picks)
    # Chunks keep the rounds in the processor's cache and the masks of `_complement` small.
    chunk = max(1, _CELLS // max(1, 16 * few, window if few < picks else 0))
    for start in range(0, clients, chunk):
        rows = chosen[start : start + chunk]
        drawn = _floyd(len(rows), window, few, source)
        rows[:] = drawn.T if few == picks else _complement(drawn, window)
    return chosen


def _floyd(clients: int, window: int, picks: int, source: Source) -> NDArray[np.int32]:
    """Floyd's algorithm, one round for all clients at a time; shape (picks, clients).

    Round r draws from {0, …, window − picks + r}; who hits a slot that she already holds
    takes the topmost one, which nobody can hold yet.
    """
    held = np.empty((picks, clients), dtype=np.int32)
    for r in range(picks):
        top = window - picks + r
        held[r] = source.below(top + 1, clients)
        repeated = np.zeros(clients, dtype=np.bool_)
        for earlier in held[:r]:
            repeated |= earlier == held[r]
        held[r][repeated] = top
    return held


def _complement(drawn: NDArray[np.int32], window: int) -> NDArray[np.integer]:
    """For each client the slots of the window that were not drawn, ascending."""
    picks, clients = drawn.shape
    free = np.ones((clients, window), dtype=np.bool_)
    free[np.arange(clients), drawn] = False
    return np.nonzero(free)[1].reshape(clients, window - picks)
