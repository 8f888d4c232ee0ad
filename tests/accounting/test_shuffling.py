"""The clones bound: above every shuffle of small randomizers, and where the paper puts it."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom

from turnout.accounting.curves import Direction, Side
from turnout.accounting.shuffling.blanket import BlanketPair, clones_pair
from turnout.accounting.shuffling.blanket_curve import BlanketCurve
from turnout.accounting.shuffling.blocks import BlanketBlock
from turnout.accounting.shuffling.clones import clones_2021
from turnout.core.errors import ParameterError, UnsupportedError

Law = dict[int, float]


def shuffled(laws: list[Law]) -> dict[tuple[int, ...], float]:
    """The exact law of the multiset of messages, one of each law."""
    total: Counter[tuple[int, ...]] = Counter({(): 1.0})
    for law in laws:
        grown: Counter[tuple[int, ...]] = Counter()
        for messages, chance in total.items():
            for value, own in law.items():
                grown[tuple(sorted((*messages, value)))] += chance * own
        total = grown
    return total


def hockey_stick(one: dict, other: dict, epsilon: float) -> float:
    k = math.exp(epsilon)
    return sum(max(chance - k * other.get(event, 0.0), 0.0) for event, chance in one.items())


def responses(local_epsilon: float, local_delta: float = 0.0) -> tuple[Law, Law]:
    """Randomized response that tells the truth with chance δ₀: messages 2 and 3 give it away."""
    large = (1 - local_delta) / (1 + math.exp(-local_epsilon))
    small = 1 - local_delta - large
    return {0: large, 1: small, 2: local_delta}, {0: small, 1: large, 3: local_delta}


def worst(local_epsilon: float, local_delta: float, clients: int, epsilon: float) -> float:
    """The largest δ over both directions and all records of the others."""
    zero, one = responses(local_epsilon, local_delta)
    found = 0.0
    for ones in range(clients):
        others = [one] * ones + [zero] * (clients - 1 - ones)
        first, second = shuffled([zero, *others]), shuffled([one, *others])
        found = max(
            found, hockey_stick(first, second, epsilon), hockey_stick(second, first, epsilon)
        )
    return found


def clones_delta(local_epsilon: float, clients: int, epsilon: float, groups: int = 256) -> float:
    curve = BlanketCurve(clones_pair(local_epsilon), clients, Side.UPPER, groups)
    return float(curve.delta(np.array(math.exp(epsilon))))


@pytest.mark.parametrize("local_epsilon", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("clients", [1, 2, 3, 6])
def test_it_lies_above_every_shuffle_of_randomized_response(local_epsilon, clients):
    for epsilon in (0.0, 0.05, 0.2, 0.7, 1.5):
        truth = worst(local_epsilon, 0.0, clients, epsilon)
        assert clones_delta(local_epsilon, clients, epsilon) >= truth * (1 - 1e-12)


@pytest.mark.parametrize("local_epsilon", [0.5, 2.0, 4.0])
def test_others_who_send_a_third_message_are_no_worse(local_epsilon):
    """Three-valued response with the others on the third value beats two-valued (errata)."""
    e = math.exp(local_epsilon)
    laws = [{j: (e if i == j else 1.0) / (e + 2) for j in range(3)} for i in range(3)]
    for clients in (2, 4, 6):
        first, second = (shuffled([law, *[laws[2]] * (clients - 1)]) for law in laws[:2])
        for epsilon in (0.0, 0.2, 0.9, 2.0):
            assert clones_delta(local_epsilon, clients, epsilon) >= hockey_stick(
                first, second, epsilon
            ) * (1 - 1e-12)


def test_one_client_alone_is_not_amplified():
    assert clones_delta(1.3, 1, 0.4) == pytest.approx(worst(1.3, 0.0, 1, 0.4), rel=1e-7)


def test_fewer_clones_than_claimed_are_noticed():
    """A mutant: clones with chance e^{−ε₀/4}, that is, more of them than there are."""

    right = clones_pair(4.0)
    wrong = BlanketPair(right.high, right.low, 0.5 * math.exp(-1.0))
    curve = {n: BlanketCurve(wrong, n, Side.UPPER) for n in (6,)}
    cases = [(1.0, 6), (2.0, 6), (3.0, 6)]
    assert any(
        float(curve[n].delta(np.array(math.exp(e)))) < worst(4.0, 0.0, n, e) for e, n in cases
    )


def direct(local_epsilon: float, clients: int, epsilon: float) -> float:
    """The clones pair's δ, one C after the other."""
    q, k = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon)
    total = 0.0
    for clones in range(clients):
        count = np.arange(clones + 2)
        one, none = binom.pmf(count - 1, clones, 0.5), binom.pmf(count, clones, 0.5)
        first, second = q * one + (1 - q) * none, (1 - q) * one + q * none
        chance = binom.pmf(clones, clients - 1, math.exp(-local_epsilon))
        total += chance * np.maximum(first - k * second, 0.0).sum()
    return total


@pytest.mark.parametrize(("local_epsilon", "clients"), [(0.5, 40), (2.0, 300), (1.0, 1000)])
def test_groups_and_tails_only_add_a_little(local_epsilon, clients):
    for epsilon in (0.01, 0.1, 0.4):
        truth = direct(local_epsilon, clients, epsilon)
        bound = clones_delta(local_epsilon, clients, epsilon)
        assert truth * (1 - 1e-12) <= bound <= truth * 1.02 + 1e-15
        coarse = clones_delta(local_epsilon, clients, epsilon, 16)
        assert coarse >= bound * (1 - 1e-9)


@pytest.mark.parametrize(
    ("local_epsilon", "clients", "delta", "epsilon"),
    [
        (0.5, 10**4, 1e-6, 0.02040),
        (1.0, 10**5, 1e-6, 0.01528),
        (2.0, 10**6, 1e-8, 0.01756),
        (4.0, 10**6, 1e-8, 0.06420),
    ],
)
def test_known_values_of_one_round(local_epsilon, clients, delta, epsilon):
    assert clones_2021(local_epsilon, clients, delta) == pytest.approx(epsilon, rel=5e-4)


def test_a_known_value_of_many_rounds():
    assert clones_2021(0.5, 10**6, 1e-8, 1000) == pytest.approx(0.0910, rel=3e-3)


def test_few_messages_are_worth_what_each_is_worth_alone():
    assert clones_2021(1.0, 1, 1e-9) == pytest.approx(1.0, rel=1e-8)
    assert 3.0 * (1 - 1e-8) < clones_2021(1.0, 2, 1e-9, 3) <= 3.0


def test_two_rounds_of_a_small_shuffle():
    """Composed: above the exact law of two rounds of three clients."""
    local_epsilon, clients = 1.0, 3
    zero, one = responses(local_epsilon)
    first, second = shuffled([zero, one, zero]), shuffled([one, one, zero])

    def twice(law):
        pairs = itertools.product(law.items(), repeat=2)
        return {(a, b): chance * other for (a, chance), (b, other) in pairs}

    for delta in (0.2, 0.05, 0.01):
        epsilon = clones_2021(local_epsilon, clients, delta, 2)
        assert hockey_stick(twice(first), twice(second), epsilon) <= delta
        assert hockey_stick(twice(second), twice(first), epsilon) <= delta


def test_nothing_is_said_from_below():
    with pytest.raises(UnsupportedError, match="attain"):
        BlanketBlock(clones_pair(1.0), 10).curve(Direction.ADD, Side.LOWER, 1e-6, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: clones_2021(0.0, 10, 1e-6),
        lambda: clones_2021(1.0, 0, 1e-6),
        lambda: clones_2021(1.0, 10, 0.0),
        lambda: clones_2021(1.0, 10, 1e-6, 0),
    ],
)
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(ParameterError):
        wrong()
