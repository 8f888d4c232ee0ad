"""Exact distributions of small shuffles and of the views of blanket pairs, by enumeration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

from turnout.accounting.shuffling.blanket_pairs import BlanketPair

Law = dict[tuple[int, ...], float]


def shuffled(messages: Sequence[Sequence[float]]) -> Law:
    """The law of how often each value comes, from each client's law over the values."""
    total: Law = {(0,) * len(messages[0]): 1.0}
    for message in messages:
        grown: Law = {}
        for counts, chance in total.items():
            for value, own in enumerate(message):
                key = (*counts[:value], counts[value] + 1, *counts[value + 1 :])
                grown[key] = grown.get(key, 0.0) + chance * own
        total = grown
    return total


def hockey_stick(one: Law, other: Law, k: float) -> float:
    """H_K(one‖other)."""
    return sum(max(chance - k * other.get(event, 0.0), 0.0) for event, chance in one.items())


def twice(law: Law) -> Law:
    """The law of two independent views."""
    return {(*a, *b): law[a] * law[b] for a in law for b in law}


def response(local_epsilon: float, values: int) -> list[list[float]]:
    """Randomized response over some values: the message's law for each record."""
    e = math.exp(local_epsilon)
    rest = 1.0 / (e + values - 1)
    return [[e * rest if i == j else rest for j in range(values)] for i in range(values)]


def neighbours(laws: Sequence[Sequence[float]], clients: int) -> Iterator[tuple[Law, Law]]:
    """The views of a victim with the first or second record, for all records of the others."""
    for records in combinations_with_replacement(range(len(laws)), clients - 1):
        others = [laws[record] for record in records]
        yield shuffled([laws[0], *others]), shuffled([laws[1], *others])


def worst(laws: Sequence[Sequence[float]], clients: int, k: float) -> float:
    """The largest δ(K) over both directions and all records of the others."""
    return max(
        max(hockey_stick(one, other, k), hockey_stick(other, one, k))
        for one, other in neighbours(laws, clients)
    )


def view(pair: BlanketPair, clients: int, *, swapped: bool = False) -> Law:
    """The law of the counts (high, low, neutral, known) of a blanket pair, by adding messages."""
    first, second = (pair.low, pair.high) if swapped else (pair.high, pair.low)
    blanket = [pair.share, pair.share, pair.neutral_share]
    other = [*blanket, max(1.0 - math.fsum(blanket), 0.0)]
    victim = [first, second, max(1.0 - first - second, 0.0), 0.0]
    return shuffled([victim, *[other] * (clients - 1)])


def pair_delta(pair: BlanketPair, clients: int, k: float) -> float:
    """δ(K) of a blanket pair, outcome by outcome."""
    return hockey_stick(view(pair, clients), view(pair, clients, swapped=True), k)
