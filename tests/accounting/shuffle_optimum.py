"""Exact largest δ of a shuffle of few clients over all adaptive ε₀-randomizers, in fractions.

Nothing of turnout is used here. What is looked for is the largest δ(K) over all kernels R_i(past,
client) of which any two clients' laws for the same message are within a factor e, with any number
of outputs, in a uniform order that nobody knows.

Notation
    x, x'   the victim's two records; clients that are alike otherwise are one type
    column  the chances of one output under x, x' and each type of the others
    A(u)    likelihood of the messages so far, summed over all ways in which u others of each type
            have sent them; D(u) the same with the victim among the senders, under x minus K times
            under x'

A message of column c moves (A, D) linearly. After n messages the view is worth D(all)₊; before, the
best kernel is worth the largest Σ over its columns of what the next state is worth, V. As V is
convex and V(tc) = tV(c), only columns of 1's and e's times a weight need be tried, and of their
weights w ≥ 0 with Σ w·column = 1 only the vertices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

Column = tuple[Fraction, ...]
Kernel = tuple[Column, ...]
State = dict[tuple[int, ...], tuple[Fraction, Fraction]]
"""u ↦ (A(u), D(u))."""
ZERO = Fraction(0)


def theorem_3(clients: int, e: Fraction, k: Fraction, alpha: Fraction | None = None) -> Fraction:
    """The bound: E of the positive part of n gains' sum, over n.

    Args:
        clients: n.
        e: e^{ε₀}.
        k: K.
        alpha: of the trinomial pair; the largest, 1/(e + 1), if None.
    """
    alpha = 1 / (e + 1) if alpha is None else alpha
    neutral = (1 - (e + 1) * alpha) / e
    law = {e - k: alpha, 1 - e * k: alpha}
    law[e * (1 - k)] = law.get(e * (1 - k), ZERO) + neutral
    law[ZERO] = law.get(ZERO, ZERO) + 1 - 2 * alpha - neutral
    total = {ZERO: Fraction(1)}
    for _ in range(clients):
        grown: dict[Fraction, Fraction] = {}
        for (so_far, chance), (gain, own) in itertools.product(total.items(), law.items()):
            grown[so_far + gain] = grown.get(so_far + gain, ZERO) + chance * own
        total = grown
    return sum((max(gain, ZERO) * chance for gain, chance in total.items()), ZERO) / clients


@lru_cache(maxsize=16)
def extreme_kernels(e: Fraction, rows: int) -> tuple[Kernel, ...]:
    """All vertices of the kernels whose columns are multiples of 1's and e's."""
    patterns = [
        column for column in itertools.product((Fraction(1), e), repeat=rows) if set(column) != {e}
    ]
    found = set()
    for chosen in itertools.combinations(patterns, rows):
        weights = _solved([[column[row] for column in chosen] for row in range(rows)])
        if weights is not None and min(weights) >= 0:
            pairs = zip(weights, chosen, strict=True)
            found.add(tuple(tuple(w * c for c in column) for w, column in pairs if w))
    return tuple(found)


def _solved(matrix: list[list[Fraction]]) -> list[Fraction] | None:
    """Weights with which every row adds up to 1; None if there is not one solution."""
    size, rows = len(matrix), [[*row, Fraction(1)] for row in matrix]
    for pivot in range(size):
        other = next((i for i in range(pivot, size) if rows[i][pivot]), None)
        if other is None:
            return None
        rows[pivot], rows[other] = rows[other], rows[pivot]
        rows[pivot] = [x / rows[pivot][pivot] for x in rows[pivot]]
        for i in range(size):
            if i != pivot and rows[i][pivot]:
                factor = rows[i][pivot]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[pivot], strict=True)]
    return [row[size] for row in rows]


@dataclass
class Optimum:
    """The best adaptive kernels against one victim.

    Attributes:
        e: e^{ε₀}.
        k: K.
        types: how many other clients there are of each type.
        choices: the best kernel after each state that was met.
    """

    e: Fraction
    k: Fraction
    types: tuple[int, ...]
    choices: dict[tuple, tuple[Fraction, Kernel]] = field(default_factory=dict)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return 1 + sum(self.types)

    @property
    def start(self) -> State:
        """Before the first message."""
        return {(0,) * len(self.types): (Fraction(1), ZERO)}

    def delta(self) -> Fraction:
        """The largest δ(K) of all kernels."""
        return self.worth(self.start, self.clients) / math.factorial(self.clients)

    def step(self, state: State, column: Sequence[Fraction]) -> State:
        """The state after one more message."""
        moved: State = {}

        def add(used: tuple[int, ...], without: Fraction, having: Fraction) -> None:
            a, d = moved.get(used, (ZERO, ZERO))
            moved[used] = (a + without, d + having)

        for used, (a, d) in state.items():
            add(used, ZERO, a * (column[0] - self.k * column[1]))
            for kind, (spoken, all_) in enumerate(zip(used, self.types, strict=True)):
                if spoken < all_:
                    chance = (all_ - spoken) * column[2 + kind]
                    more = (*used[:kind], spoken + 1, *used[kind + 1 :])
                    add(more, a * chance, d * chance)
        return moved

    def worth(self, state: State, left: int) -> Fraction:
        """The most that a state is worth with so many messages to come."""
        if left == 0:
            return max(state[self.types][1], ZERO)
        return self._best(state, left)[0]

    def kernel(self, state: State, left: int) -> Kernel:
        """The best next kernel."""
        return self._best(state, left)[1]

    def _best(self, state: State, left: int) -> tuple[Fraction, Kernel]:
        key = (left, tuple(sorted(state.items())))
        if key not in self.choices:
            worths: dict[Column, Fraction] = {}

            def of(column: Column) -> Fraction:
                largest = max(column)
                shape = tuple(x / largest for x in column)
                if shape not in worths:
                    worths[shape] = self.worth(self.step(state, shape), left - 1)
                return largest * worths[shape]

            kernels = extreme_kernels(self.e, 2 + len(self.types))
            priced = ((sum(map(of, kernel), ZERO), kernel) for kernel in kernels)
            self.choices[key] = max(priced, key=lambda pair: pair[0])
        return self.choices[key]


def replayed(optimum: Optimum) -> tuple[Fraction, Fraction]:
    """δ(K) of the best kernels in both directions, from the definition: over all orders."""
    rows = [2 + kind for kind, count in enumerate(optimum.types) for _ in range(count)]
    orders = list(itertools.permutations(range(optimum.clients)))
    laws: list[list[Fraction]] = [[], []]

    def extend(state: State, left: int, chances: list[list[Fraction]]) -> None:
        if left == 0:
            for law, chance in zip(laws, chances, strict=True):
                law.append(sum(chance, ZERO) / len(orders))
            return
        place = optimum.clients - left
        for column in optimum.kernel(state, left):
            grown = [
                [
                    chance * column[world if order[place] == 0 else rows[order[place] - 1]]
                    for chance, order in zip(chances[world], orders, strict=True)
                ]
                for world in (0, 1)
            ]
            extend(optimum.step(state, column), left - 1, grown)

    extend(optimum.start, optimum.clients, [[Fraction(1)] * len(orders) for _ in (0, 1)])
    assert sum(laws[0]) == 1 == sum(laws[1])
    one, other = laws
    return tuple(
        sum((max(p - optimum.k * q, ZERO) for p, q in zip(*pair, strict=True)), ZERO)
        for pair in ((one, other), (other, one))
    )
