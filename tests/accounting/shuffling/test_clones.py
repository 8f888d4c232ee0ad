"""Clones bound: equal to the paper's computation, and above every small shuffle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom
from shuffle_truths import hockey_stick, response, shuffled, twice

from turnout.accounting.divergence.curves import Side
from turnout.accounting.shuffling.blanket import BlanketCurve, clones_2021
from turnout.accounting.shuffling.blanket_pairs import clones_pair
from turnout.core.errors import ParameterError


def clones_delta(local_epsilon: float, clients: int, epsilon: float, groups: int) -> float:
    curve = BlanketCurve(clones_pair(local_epsilon), clients, Side.UPPER, groups)
    return float(curve.delta(np.array(math.exp(epsilon))))


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
def test_grouping_counts_and_omitting_tails_raise_the_clones_bound_slightly(local_epsilon, clients):
    for epsilon in (0.01, 0.1, 0.4):
        truth = direct(local_epsilon, clients, epsilon)
        bound = clones_delta(local_epsilon, clients, epsilon, 256)
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
def test_the_clones_bound_of_one_round_equals_known_values(local_epsilon, clients, delta, epsilon):
    assert clones_2021(local_epsilon, clients, delta) == pytest.approx(epsilon, rel=5e-4)


def test_the_clones_bound_of_many_rounds_equals_a_known_value():
    assert clones_2021(0.5, 10**6, 1e-8, 1000) == pytest.approx(0.0910, rel=3e-3)


def test_the_clones_bound_for_few_messages_is_the_local_epsilon():
    assert clones_2021(1.0, 1, 1e-9) == pytest.approx(1.0, rel=1e-8)
    assert 3.0 * (1 - 1e-8) < clones_2021(1.0, 2, 1e-9, 3) <= 3.0


@pytest.mark.parametrize("delta", [0.2, 0.05, 0.01])
def test_the_clones_bound_of_two_rounds_is_above_two_enumerated_shuffles(delta):
    """Composed: above the exact distribution of two rounds of three clients."""
    zero, one = response(1.0, 2)
    first, second = (twice(shuffled([distribution, one, zero])) for distribution in (zero, one))
    k = math.exp(clones_2021(1.0, 3, delta, 2))
    assert hockey_stick(first, second, k) <= delta
    assert hockey_stick(second, first, k) <= delta


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: clones_2021(0.0, 10, 1e-6),
        lambda: clones_2021(1.0, 0, 1e-6),
        lambda: clones_2021(1.0, 10, 0.0),
        lambda: clones_2021(1.0, 10, 1e-6, 0),
    ],
)
def test_parameters_of_the_clones_bound_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError):
        wrong()
