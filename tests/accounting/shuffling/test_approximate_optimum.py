"""Bound for shuffled (ε₀, δ₀)-messages against the largest δ over all adaptive randomizers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from approximate_optimum import LargestDelta, Promise, approximate, near_pure

from turnout.accounting.divergence.curves import Side
from turnout.accounting.shuffling.approximate import ApproximatePrice, HiddenCurve
from turnout.accounting.shuffling.blanket import BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import clones_pair, worst_pair

SOLVED = 1e-7  # relative, of a linear programme and the ones inside it
PAIRS = (worst_pair, clones_pair)


def largest(promise: Promise, kinds: list[int], k: float) -> float:
    return LargestDelta(promise, kinds, k).value()


def test_pure_messages_of_two_clients_attain_the_bound_of_the_worst_pair():
    """The numerical optimum for pure randomizers equals Theorem 3, which is attained at n = 2."""
    for k in (1.0, 1.2, 2.0):
        found = largest(near_pure(1, math.e, 0.0, mean=False), [1], k)
        curve = BlanketCurve(worst_pair(1.0), 2, Side.UPPER)
        assert float(curve.delta(np.array(k))) == pytest.approx(found, rel=SOLVED)


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize(
    ("kinds", "local_epsilon", "missing"),
    [([1], 0.5, 0.01), ([1], 2.0, 0.1), ([2], 1.0, 0.01), ([1, 1], 1.0, 0.001), ([3], 1.0, 0.01)],
)
def test_the_bound_is_nearly_attained_by_clients_that_miss_part_of_the_blanket(
    kinds, local_epsilon, missing, way
):
    """Steps 4 and 5 of the proof: distributions of other clients that miss κ of the blanket each.

    Negative controls: without τ, with (K − 1)τ alone and with half of the price it is too low.
    """
    clients, e = 1 + sum(kinds), math.exp(local_epsilon)
    promise = near_pure(len(kinds), e, missing, mean=bool(way))
    pair, tau = PAIRS[way](local_epsilon), (clients - 1) * missing
    base, fewer = (BlanketCurve(pair, n, Side.UPPER) for n in (clients, clients - 1))
    found = []
    for k in (1.0, 1.1, math.exp(0.8 * local_epsilon)):
        truth, ratio = largest(promise, kinds, k), np.array(k)
        price = float(HiddenCurve(base, fewer, tau).delta(ratio))
        without = float(base.delta(ratio))
        found.append((truth, price, without))
        assert price >= truth * (1 - SOLVED)
        assert without < truth * (1 - 1e-4)
    truth, price, without = found[0]  # K = 1, where (K − 1)τ is nothing
    assert without + 0.2 * (price - without) < truth * (1 - SOLVED)
    if clients == 2 and missing <= 0.01:
        assert without + 0.65 * (price - without) < truth


@pytest.mark.parametrize("local_epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("delta0", [1e-3, 0.1])
def test_the_bound_for_a_single_message_is_exact(local_epsilon, delta0):
    promise = approximate(0, math.exp(local_epsilon), delta0)
    for k in (1.0, 1.3):
        price = float(ApproximatePrice.of(local_epsilon, delta0, 1, 64).at(np.array(k)))
        assert price == pytest.approx(largest(promise, [], k), rel=SOLVED)


@pytest.mark.parametrize(
    ("others", "local_epsilon", "delta0", "k"),
    [
        (1, 0.5, 1e-3, 1.0),
        (1, 1.0, 0.01, 1.1),
        (1, 1.0, 0.1, 1.3),
        (1, 2.0, 0.01, 4.0),
        (2, 1.0, 0.01, 1.0),
        (2, 0.5, 0.1, 1.3),
    ],
)
def test_no_adaptive_approximate_randomizers_exceed_the_bound(others, local_epsilon, delta0, k):
    """Never below the largest δ. Negative control: the pure bound at ε₀ plus δ₀ is below it."""
    clients, e = 1 + others, math.exp(local_epsilon)
    truth = largest(approximate(1, e, delta0), [others], k)
    price = float(ApproximatePrice.of(local_epsilon, delta0, clients, 64).at(np.array(k)))
    assert truth * (1 - SOLVED) <= price <= 1.5 * truth
    pure = BlanketCurve(worst_pair(local_epsilon), clients, Side.UPPER).delta(np.array(k))
    if others == 1:  # where the pure price is attained
        assert delta0 + (1 - delta0) * float(pure) < truth * (1 - 1e-5)
