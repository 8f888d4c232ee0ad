"""Exact distributions of shuffled output, computed independently of the package's bounds.

A world is the law of all that is seen, as an array; two worlds differ in one client's record.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import binom, hypergeom

World = np.ndarray
Worlds = Sequence[tuple[World, World]]


def hockey_stick(one: World, other: World, k: float) -> float:
    """The worse direction."""
    gains = np.maximum(one - k * other, 0).sum(), np.maximum(other - k * one, 0).sum()
    return float(max(gains))


def worst(worlds: Worlds, epsilon: float) -> float:
    """The largest δ at ε."""
    return max(hockey_stick(one, other, math.exp(epsilon)) for one, other in worlds)


def counts(rows: Sequence[np.ndarray]) -> World:
    """How many messages are of each kind, one row of chances a message."""
    kinds = len(rows[0])
    law = np.zeros((len(rows) + 1,) * (kinds - 1))
    law[(0,) * (kinds - 1)] = 1.0
    for row in rows:
        moved = [row[axis] * np.roll(law, 1, axis=axis) for axis in range(kinds - 1)]
        law = row[-1] * law + sum(moved)
    return law.ravel()


def ones(epsilon0: float, others: tuple[int, int], bit: int) -> World:
    """How many ones are sent where so many others hold a one and a zero."""
    true = 1 / (1 + math.exp(-epsilon0))
    law = np.convolve(
        binom.pmf(np.arange(others[0] + 1), others[0], true),
        binom.pmf(np.arange(others[1] + 1), others[1], 1 - true),
    )
    chance = true if bit else 1 - true
    return np.append(law, 0.0) * (1 - chance) + np.append(0.0, law) * chance


def splits(epsilon0: float, clients: int, some: Sequence[int]) -> Worlds:
    """Binary response where so many of the others hold a one."""
    pairs = [(held, clients - 1 - held) for held in sorted(set(some))]
    return [(ones(epsilon0, pair, 1), ones(epsilon0, pair, 0)) for pair in pairs]


def channel(epsilon0: float, kind: str) -> np.ndarray:
    """The chances of each message, one row a record."""
    e = math.exp(epsilon0)
    if kind == "hadamard":
        signs = np.array([[1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
        return np.where(signs > 0, e, 1.0) / (2 * (e + 1))
    if kind == "bits":
        words = list(itertools.product((0, 1), repeat=2))
        rows = [[e if w[i] == b else 1.0 for i in (0, 1) for b in (0, 1)] for w in words]
        return np.array(rows) / (2 * (e + 1))
    values = int(kind)
    return (np.ones((values, values)) + (e - 1) * np.eye(values)) / (e + values - 1)


def shuffled(rows: np.ndarray, two: tuple[int, int], others: Sequence[int]) -> tuple[World, World]:
    """The victim holds one or the other of two records."""
    rest = [rows[record] for record in others]
    return counts([*rest, rows[two[0]]]), counts([*rest, rows[two[1]]])


def composed(rounds: Worlds) -> tuple[World, World]:
    """Independent rounds."""
    one, other = rounds[0]
    for first, second in rounds[1:]:
        one, other = np.outer(one, first).ravel(), np.outer(other, second).ravel()
    return one, other


def subset(epsilon0: float, clients: int, size: int, held: int) -> tuple[World, World]:
    """A uniform subset sends bits; so many of the others hold a one."""
    rate = size / clients

    def mixed(draws: int, bit: int | None) -> World:
        law = np.zeros(size + 1)
        for some in range(max(0, draws - (clients - 1 - held)), min(held, draws) + 1):
            weight = hypergeom.pmf(some, clients - 1, held, draws) if clients > 1 else 1.0
            rest = (some, draws - some)
            if bit is not None:
                law += weight * ones(epsilon0, rest, bit)
            elif some:
                law += weight * ones(epsilon0, (some - 1, draws - some), 1)
            else:
                law += weight * ones(epsilon0, (0, draws - 1), 0)
        return law

    absent = (1 - rate) * mixed(size, None) if size < clients else 0.0
    return absent + rate * mixed(size - 1, 1), absent + rate * mixed(size - 1, 0)


def by_coins(epsilon0: float, clients: int, rate: float, held: int) -> tuple[World, World]:
    """Whoever tosses heads sends a bit, and how many do is seen."""
    nobody = np.array([(1 - rate) ** clients])
    one, other = [nobody], [nobody]
    for size in range(1, clients + 1):
        weight = binom.pmf(size, clients, rate)
        first, second = subset(epsilon0, clients, size, held)
        one.append(weight * first)
        other.append(weight * second)
    return np.concatenate(one), np.concatenate(other)


def window(
    records: tuple[Sequence[int], Sequence[int]],
    menu: Sequence[Sequence[float]],
    first: Sequence[float],
    chance: float,
    k: float,
) -> float:
    """δ of two slots whose sums and counts are seen; the second's response is chosen by the first.

    A response is the chance of a one by record.
    """
    cells: dict[tuple[int, int], list[np.ndarray]] = {}
    clients = len(records[0])
    for slots in itertools.product(range(3), repeat=clients):
        weight = math.prod((1 - chance, chance / 2, chance / 2)[slot] for slot in slots)
        one, two = ([i for i in range(clients) if slots[i] == slot] for slot in (1, 2))
        cell = cells.setdefault(
            (len(one), len(two)),
            [np.zeros((len(one) + 1, len(menu), len(two) + 1)) for _ in range(2)],
        )
        for world, held in zip(cell, records, strict=True):
            seen = sums([first[held[i]] for i in one])
            for choice, response in enumerate(menu):
                world[:, choice] += weight * np.outer(seen, sums([response[held[i]] for i in two]))
    gains = (np.maximum(p - k * q, 0).sum(axis=2).max(axis=1).sum() for p, q in cells.values())
    return float(sum(gains))


def sums(chances: Sequence[float]) -> World:
    """How many of independent bits are one."""
    law = np.ones(1)
    for chance in chances:
        law = np.append(law * (1 - chance), 0.0) + np.append(0.0, law * chance)
    return law
