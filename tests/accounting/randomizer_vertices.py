"""Small ε₀-randomizers and the exact distributions of their shuffles, for tests of bounds.

A randomizer is an array of chances, shape (records, outputs).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

FloatArray = np.ndarray
Strategy = Callable[[tuple[int, ...]], FloatArray]
"""The randomizer of the next message, by the messages before."""


@lru_cache(maxsize=64)
def vertices(local_epsilon: float, records: int) -> tuple[FloatArray, ...]:
    """Every extreme ε₀-randomizer that says anything, up to the names of its outputs.

    Each output's chances are c or e·c, and no mixture of others has the same chances.
    """
    e = math.exp(local_epsilon)
    columns = [np.where(pattern, e, 1.0) for pattern in itertools.product([0, 1], repeat=records)]
    found = {}
    for chosen in itertools.combinations(columns, records):
        matrix = np.stack(chosen, axis=1)
        if abs(np.linalg.det(matrix)) < 1e-9:
            continue
        weights = np.linalg.solve(matrix, np.ones(records))
        used = weights > 1e-12
        if (weights > -1e-12).all() and used.sum() > 1:
            found[tuple(matrix[:, used].ravel())] = matrix[:, used] * weights[used]
    return tuple(found.values())


def labelled_mixture(parts: Sequence[tuple[float, FloatArray]]) -> FloatArray:
    """One of several randomizers, by chance; the message says which."""
    return np.concatenate([chance * part for chance, part in parts], axis=1)


def shuffle_laws(randomizer: FloatArray, clients: int) -> list[tuple[FloatArray, FloatArray]]:
    """The laws of all counts in the two worlds, for each multiset of the others' records."""
    laws = []
    for others in itertools.combinations_with_replacement(range(len(randomizer)), clients - 1):
        base = {(0,) * randomizer.shape[1]: 1.0}
        for record in others:
            base = _grown(base, randomizer[record])
        zero, one = _grown(base, randomizer[0]), _grown(base, randomizer[1])
        laws.append((np.array(list(zero.values())), np.array([one[key] for key in zero])))
    return laws


def _grown(law: dict[tuple[int, ...], float], row: FloatArray) -> dict[tuple[int, ...], float]:
    grown: dict[tuple[int, ...], float] = {}
    for counts, chance in law.items():
        for output, own in enumerate(row):
            key = (*counts[:output], counts[output] + 1, *counts[output + 1 :])
            grown[key] = grown.get(key, 0.0) + chance * own
    return grown


def adaptive_laws(strategy: Strategy, others: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """The laws of all messages in order, in the two worlds, speakers in a random order."""
    orders = np.array(list(itertools.permutations(range(len(others) + 1))))
    records = np.array([[world, *others] for world in (0, 1)])[:, orders]  # (2, orders, steps)
    found: list[FloatArray] = []

    def extend(history: tuple[int, ...], chance: FloatArray) -> None:
        if len(history) == len(others) + 1:
            found.append(chance.mean(axis=1))
            return
        randomizer = strategy(history)
        for output in range(randomizer.shape[1]):
            own = randomizer[records[:, :, len(history)], output]
            extend((*history, output), chance * own)

    extend((), np.ones((2, len(orders))))
    zero, one = np.array(found).T
    return zero, one


def worse_direction(laws: tuple[FloatArray, FloatArray], k: float) -> float:
    """The larger of the two hockey sticks."""
    zero, one = laws
    return max(np.maximum(zero - k * one, 0.0).sum(), np.maximum(one - k * zero, 0.0).sum())


def summed_gains(gains: Sequence[tuple[float, float]], clients: int) -> float:
    """E[(sum of n independent gains)₊]/n, exactly, for up to three gains (value, chance) and 0."""
    gains = [gain for gain in gains if gain[1] > 0]
    rest = 1.0 - sum(chance for _, chance in gains)
    if rest > 1e-15:
        gains = [*gains, (0.0, rest)]
    grids = np.meshgrid(*[np.arange(clients + 1)] * (len(gains) - 1), indexing="ij")
    last = clients - sum(grids) if grids else np.array(clients)
    inside = last >= 0
    counts = [grid[inside] for grid in (*grids, last)]
    log_factorial = np.array([math.lgamma(i + 1.0) for i in range(clients + 1)])
    exponent = log_factorial[clients] - sum(log_factorial[count] for count in counts)
    for count, (_, chance) in zip(counts, gains, strict=True):
        exponent = exponent + count * math.log(chance)
    total = sum(count * value for count, (value, _) in zip(counts, gains, strict=True))
    return float(np.exp(exponent) @ np.maximum(total, 0.0)) / clients
