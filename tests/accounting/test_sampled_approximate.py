"""Self-sampled (ε₀, δ₀)-messages: the price against its formula and against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shuffle_truths as truths

from turnout.accounting.shuffling.approximate.blocks import GaussianMessagesBlock
from turnout.accounting.shuffling.blanket.pair import clones_pair
from turnout.accounting.shuffling.blanket.supremum import worst_pair
from turnout.accounting.shuffling.messages import UpperMessages
from turnout.accounting.shuffling.sampling.cells import Grain
from turnout.accounting.shuffling.sampling.mixtures import Sample
from turnout.accounting.shuffling.sampling.prices import SampledApproximate, sampled_price
from turnout.spec import ApproximateRandomizer, GaussianNoise

GRAIN = Grain(64, 4000.0, 1e-14)


def approximate(local_epsilon: float, delta0: float, clients: int, rate: float):
    base = UpperMessages(ApproximateRandomizer(local_epsilon, delta0))
    found = sampled_price(Sample(base, clients, rate, alike=False), GRAIN)
    assert isinstance(found, SampledApproximate)
    return found


def mixed(pair, clients: int, rate: float, k: float) -> float:
    """What a pair is worth over the number of messages."""
    total = 0.0
    for messages in range(1, clients + 1):
        chance = math.comb(clients, messages) * rate**messages * (1 - rate) ** (clients - messages)
        share = messages / clients
        total += chance * share * truths.pair_delta(pair, messages, 1 + (k - 1) / share)
    return total


@pytest.mark.parametrize("rate", [0.2, 0.7])
def test_the_price_is_its_formula(rate):
    """q·δ₀, the pair's mixture and (K − 1 + 2D)τ with τ = (n − 1)qτ₁; half of τ would show."""
    local_epsilon, delta0, clients, k = 1.0, 1e-3, 6, 1.05
    expected = math.inf
    for pair_of, laws in ((worst_pair, 2), (clones_pair, 1)):
        pair = pair_of(local_epsilon - math.log1p(-delta0))
        tau = laws * (clients - 1) * rate * delta0 / math.exp(local_epsilon)
        fewer = mixed(pair, clients - 1, rate, k) + (k - 1 + 2 * rate) * tau
        hidden = mixed(pair, clients, rate, k) + (k - 1 + 2 * fewer) * tau
        expected = min(expected, rate * delta0 + (1 - delta0) * hidden)
    price = float(approximate(local_epsilon, delta0, clients, rate).hidden_delta(np.array(k)))
    assert expected * (1 - 1e-9) <= price <= expected * (1 + 1e-4)


@pytest.mark.parametrize("rate", [0.3, 0.8])
@pytest.mark.parametrize("delta0", [1e-3, 0.05])
def test_leaky_responses_of_some_cost_no_more(rate, delta0):
    """Enumerated: each of three clients sends nothing, or a binary response that may leak."""
    local_epsilon, clients = 1.0, 3
    large = (1 - delta0) / (1 + math.exp(-local_epsilon))
    small = 1 - delta0 - large
    sent = [[large, small, delta0, 0.0], [small, large, 0.0, delta0]]
    laws = [[1 - rate, *(rate * p for p in law)] for law in sent]
    price = approximate(local_epsilon, delta0, clients, rate)
    for k in (1.0, 1.05, 1.3, 2.0, 3.5):
        truth = truths.worst(laws, clients, k)
        found = float(price.delta(np.array(k)))
        assert truth * (1 - 1e-9) <= found <= (2 if k < 1.1 else 4) * truth
    # Past K = e there are leaks alone, and she must come to leak.
    assert truths.worst(laws, clients, 9.0) == pytest.approx(price.floor, rel=1e-9)


def test_all_who_come_for_sure_are_a_round():
    """q = 1: the price of the round itself, for Gaussian noise too."""
    k = np.exp([0.02, 0.1, 0.2])
    base = UpperMessages(GaussianNoise(4.0))
    sampled = sampled_price(Sample(base, 10**4, 1.0, alike=False), GRAIN)
    assert sampled is not None
    whole = GaussianMessagesBlock(4.0, 10**4).price(256).at(k)
    np.testing.assert_allclose(sampled.delta(k), whole, rtol=0.01)
