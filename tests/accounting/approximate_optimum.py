"""Exact largest δ(K) of a shuffle over all adaptive randomizers with given privacy claims.

At every place and for every past, the kernels of the n clients and of the victim's other record are
one matrix: a column for each message, a row for each law that can be told apart (the victim's two,
then one for each kind of other client). Let A and D be the sums, over the ways to place some of the
other clients first, of the likelihood without the victim, and with her: world 0 less K times world
1. What is left to gain is V(A, D), the largest Σ_columns V(A', D') over the matrices that the
promise allows, and D₊ in the end. V is convex and positively homogeneous in a column, and what the
promise bounds, Σ_columns of some positive parts, is linear on each cone of a fan. So only the fan's
rays are needed as columns, in any number, and the best matrix is a linear programme over their
weights. The promises are

  * `approximate`: any two laws are (ε₀, δ₀)-close, Σ (c_r − e·c_s)₊ ≤ δ₀;
  * `near_pure`: the victim's laws p, q are within a factor e of each other, and every other law r
    is near one above a blanket m, Σ (m − r)₊ ≤ κ, m being max(p, q)/e or (p + q)/(2e).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog


@dataclass(frozen=True)
class Promise:
    """Columns that are enough, shape (columns, laws), and what sums over them may be."""

    columns: np.ndarray
    leaks: np.ndarray
    room: float


def approximate(others: int, e: float, delta0: float) -> Promise:
    """Any two of the laws are (ε₀, δ₀)-close."""
    laws = 2 + others
    columns: list[list[float]] = []
    for levels in itertools.product(range(-1, laws), repeat=laws):  # -1: never sent by that one
        used = sorted({level for level in levels if level >= 0})
        single = sum(level >= 0 for level in levels) == 1
        if used and used == list(range(len(used))) and (single or len(used) > 1):
            columns.append([e**level if level >= 0 else 0.0 for level in levels])
    matrix = np.array(columns)
    pairs = itertools.permutations(range(laws), 2)
    leaks = [np.maximum(matrix[:, r] - e * matrix[:, s], 0.0) for r, s in pairs]
    return Promise(matrix, np.array(leaks), delta0)


def near_pure(others: int, e: float, missing: float, *, mean: bool) -> Promise:
    """The others' laws miss little of the blanket, the mean of the victim's or the larger one."""
    columns = [[0.0, 0.0, *row] for row in np.eye(others)]
    for p, q in [(e, 1.0), (1.0, e)] + ([] if mean else [(1.0, 1.0)]):
        blanket = (p + q) / (2.0 * e) if mean else max(p, q) / e
        columns += [[p, q, *rest] for rest in itertools.product((0.0, blanket), repeat=others)]
    matrix = np.array(columns)
    blankets = (matrix[:, 0] + matrix[:, 1]) / 2.0 if mean else matrix[:, :2].max(axis=1)
    leaks = np.maximum(blankets[:, None] / e - matrix[:, 2:], 0.0).T
    return Promise(matrix, leaks, missing)


class LargestDelta:
    """The largest δ(K) under a promise.

    Args:
        promise: of as many kinds of other clients as there are.
        kinds: how many other clients there are of each kind; those of a kind hold one record.
        k: K.
    """

    def __init__(self, promise: Promise, kinds: Sequence[int], k: float) -> None:
        """Numbers the subsets of the other clients."""
        self.promise, self.kinds, self.k = promise, list(kinds), k
        self.subsets = list(itertools.product(*(range(count + 1) for count in kinds)))
        self.index = {subset: i for i, subset in enumerate(self.subsets)}
        self.known: dict[tuple[int, bytes], float] = {}

    def value(self) -> float:
        """δ(K), up to the tolerance of the solver."""
        state = np.zeros((2, len(self.subsets)))
        state[0, 0] = 1.0
        clients = 1 + sum(self.kinds)
        return self._gain(clients, state) / math.factorial(clients)

    def _gain(self, left: int, state: np.ndarray) -> float:
        if left == 0:
            return max(float(state[1, -1]), 0.0)
        scale = float(np.abs(state).max())
        if scale == 0.0:
            return 0.0
        key = left, np.round(state / scale, 12).tobytes()
        if key not in self.known:
            columns = self.promise.columns
            gains = [self._gain(left - 1, self._after(state / scale, c)) for c in columns]
            self.known[key] = self._best(np.array(gains))
        return scale * self.known[key]

    def _best(self, gains: np.ndarray) -> float:
        """The most that columns gain together."""
        columns, leaks = self.promise.columns, self.promise.leaks
        room, ones = np.full(len(leaks), self.promise.room), np.ones(columns.shape[1])
        limits = (leaks, room) if len(leaks) else (None, None)
        found = linprog(-gains, *limits, columns.T, ones, method="highs")
        assert found.status == 0, found.message
        return -float(found.fun)

    def _after(self, state: np.ndarray, column: np.ndarray) -> np.ndarray:
        """A and D after one more message."""
        after = np.zeros_like(state)
        after[1] += state[0] * (column[0] - self.k * column[1])
        for i, subset in enumerate(self.subsets):
            for kind, count in enumerate(self.kinds):
                if subset[kind] < count:
                    more = tuple(n + (j == kind) for j, n in enumerate(subset))
                    ways = (count - subset[kind]) * column[2 + kind]
                    after[:, self.index[more]] += ways * state[:, i]
        return after
