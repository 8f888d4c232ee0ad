"""Exact distributions of small shuffles, computed by adding one client after the other."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import binom

Law = Sequence[float]
"""Chances of messages 0, 1, …"""
Shuffle = dict[tuple[int, ...], float]
"""Chances of histograms of messages."""


def binary_law(local_epsilon: float, ones: int, zeros: int) -> np.ndarray:
    """Masses of the number of ones among the others' messages."""
    q = 1 / (1 + math.exp(-local_epsilon))
    first = binom.pmf(np.arange(ones + 1), ones, q)
    return np.convolve(first, binom.pmf(np.arange(zeros + 1), zeros, 1 - q))


def binary_delta(local_epsilon: float, ones: int, zeros: int, epsilon: float) -> float:
    """δ(ε) of a one against a zero, where the others' bits are known."""
    q, k = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon)
    p = q * math.exp(-local_epsilon)
    law = np.concatenate([[0.0], binary_law(local_epsilon, ones, zeros), [0.0]])
    gains = (q - k * p) * law[:-1] - (k * q - p) * law[1:]
    return float(np.maximum(gains, 0.0).sum())


def kary_laws(local_epsilon: float, categories: int) -> list[Law]:
    """Rows of k-ary response."""
    e = math.exp(local_epsilon)
    return [
        [(e if message == value else 1.0) / (e + categories - 1) for message in range(categories)]
        for value in range(categories)
    ]


def hadamard_laws(local_epsilon: float, categories: int) -> list[Law]:
    """Rows of Hadamard response with as many messages, a power of two."""
    e = math.exp(local_epsilon)
    return [
        [
            2 * (e if (message & value).bit_count() % 2 == 0 else 1.0) / categories / (e + 1)
            for message in range(categories)
        ]
        for value in range(1, categories)
    ]


def bit_laws(local_epsilon: float, coordinates: int) -> list[Law]:
    """A uniform coordinate and its bit, for every word of so many bits."""
    e = math.exp(local_epsilon)
    return [
        [
            (e if bit == word[i] else 1.0) / (e + 1) / coordinates
            for i in range(coordinates)
            for bit in (0, 1)
        ]
        for word in itertools.product((0, 1), repeat=coordinates)
    ]


def shuffled(laws: Sequence[Law]) -> Shuffle:
    """The exact distribution of the histogram of messages, one of each law."""
    total: Shuffle = {(0,) * len(laws[0]): 1.0}
    for law in laws:
        grown: Counter[tuple[int, ...]] = Counter()
        for histogram, chance in total.items():
            for message, own in enumerate(law):
                if own:
                    more = list(histogram)
                    more[message] += 1
                    grown[tuple(more)] += chance * own
        total = dict(grown)
    return total


def hockey_stick(one: Shuffle, other: Shuffle, epsilon: float) -> float:
    """Σ (one − e^ε·other)₊."""
    k = math.exp(epsilon)
    return math.fsum(max(chance - k * other.get(event, 0.0), 0.0) for event, chance in one.items())


def neighbours(laws: Sequence[Law], clients: int) -> Iterator[tuple[Shuffle, Shuffle]]:
    """Every two neighbouring shuffles up to order, over all records of victim and others."""
    for others in itertools.combinations_with_replacement(laws, clients - 1):
        shuffles = [shuffled([law, *others]) for law in laws]
        yield from itertools.permutations(shuffles, 2)


def worst(laws: Sequence[Law], clients: int, epsilons: Sequence[float]) -> np.ndarray:
    """The largest δ at each ε over all neighbours."""
    found = np.zeros(len(epsilons))
    for one, other in neighbours(laws, clients):
        found = np.maximum(found, [hockey_stick(one, other, epsilon) for epsilon in epsilons])
    return found
