"""Self-sampled (ε₀, δ₀)-messages: the bound against its formula and against enumeration."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import shuffle_truths as truths

from turnout.accounting.shuffling.approximate import GaussianMessagesBlock
from turnout.accounting.shuffling.blanket_pairs import clones_pair, worst_pair
from turnout.accounting.shuffling.messages import UpperMessages
from turnout.accounting.shuffling.sampled_mixtures import Grain, Sample
from turnout.accounting.shuffling.sampled_rounds import SampledApproximate, sampled_price
from turnout.schemes import ApproximateRandomizer, GaussianNoise

GRAIN = Grain(64, 4000.0, 1e-14)
DELTA0 = 0.1


def approximate(local_epsilon: float, delta0: float, clients: int, rate: float):
    base = UpperMessages(ApproximateRandomizer(local_epsilon, delta0))
    found = sampled_price(Sample(base, clients, rate, identical_others=False), GRAIN)
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
def test_the_bound_for_sampled_approximate_messages_equals_its_formula(rate):
    """The sum of q·δ₀, the mixture of the pair and (K − 1 + 2D)τ with τ = (n − 1)qτ₁."""
    local_epsilon, delta0, clients, k = 1.0, 1e-3, 6, 1.05
    expected = math.inf
    for pair_of, distributions in ((worst_pair, 2), (clones_pair, 1)):
        pair = pair_of(local_epsilon - math.log1p(-delta0))
        tau = distributions * (clients - 1) * rate * delta0 / math.exp(local_epsilon)
        fewer = mixed(pair, clients - 1, rate, k) + (k - 1 + 2 * rate) * tau
        hidden = mixed(pair, clients, rate, k) + (k - 1 + 2 * fewer) * tau
        expected = min(expected, rate * delta0 + (1 - delta0) * hidden)
    price = float(approximate(local_epsilon, delta0, clients, rate).hidden_delta(np.array(k)))
    assert expected * (1 - 1e-9) <= price <= expected * (1 + 1e-4)


def by_number(pair_of, distributions: int, clients: int, rate: float, k: float) -> float:
    """Theorem 4 for every number of messages, each as a uniform subset, less what leaks; ε₀ = 1."""
    pair, kappa = pair_of(1.0 - math.log1p(-DELTA0)), distributions * DELTA0 / math.e
    total = 0.0
    for messages in range(1, clients + 1):
        share = messages / clients
        inner = 1 + (k - 1) / share
        tau = (messages - 1) * kappa
        fewer = truths.pair_delta(pair, messages - 1, inner) if messages > 1 else 0.0
        fewer = min(fewer + (1 + inner) * (messages - 2) * kappa, 1.0)
        value = truths.pair_delta(pair, messages, inner) + tau * (inner - 1 + 2 * fewer)
        total += math.comb(clients, messages) * (
            rate**messages * (1 - rate) ** (clients - messages) * share * value
        )
    return total


@pytest.mark.parametrize(
    ("way", "pair_of", "distributions"), [(0, worst_pair, 2), (1, clones_pair, 1)]
)
@pytest.mark.parametrize("rate", [0.05, 0.4, 0.95])
def test_the_mixture_bound_covers_every_number_of_messages(way, pair_of, distributions, rate):
    """The last inequality of the proof, where the blanket that other clients miss dominates."""
    for clients in (2, 3, 5):
        hidden = approximate(1.0, DELTA0, clients, rate).hidden[way]
        for k in (1.0, 1.02, 1 + rate, 2.5):
            least = by_number(pair_of, distributions, clients, rate, k)
            assert least <= float(hidden.delta(np.array(k))) * (1 + 1e-9)
            half = replace(hidden, slack=0.5 * hidden.slack)
            if rate == 0.95:  # Where nearly all participate, half of τ would be too small.
                assert least > float(half.delta(np.array(k)))


@pytest.mark.parametrize("rate", [0.3, 0.8])
@pytest.mark.parametrize("delta0", [1e-3, 0.05])
def test_sampled_responses_with_infinity_mass_stay_below_the_bound(rate, delta0):
    """Enumerated: each of three clients sends nothing, or a binary response that may leak."""
    local_epsilon, clients = 1.0, 3
    large = (1 - delta0) / (1 + math.exp(-local_epsilon))
    small = 1 - delta0 - large
    sent = [[large, small, delta0, 0.0], [small, large, 0.0, delta0]]
    distributions = [[1 - rate, *(rate * p for p in distribution)] for distribution in sent]
    price = approximate(local_epsilon, delta0, clients, rate)
    for k in (1.0, 1.05, 1.3, 2.0, 3.5):
        truth = truths.worst(distributions, clients, k)
        found = float(price.delta(np.array(k)))
        assert truth * (1 - 1e-9) <= found <= (2 if k < 1.1 else 4) * truth
    # Past K = e there are leaks alone, and she must come to leak.
    assert truths.worst(distributions, clients, 9.0) == pytest.approx(price.floor, rel=1e-9)


def test_participation_with_probability_one_has_the_bound_of_a_full_round():
    """At q = 1 the bound is that of the round itself, also for Gaussian noise."""
    k = np.exp([0.02, 0.1, 0.2])
    base = UpperMessages(GaussianNoise(4.0))
    sampled = sampled_price(Sample(base, 10**4, 1.0, identical_others=False), GRAIN)
    assert sampled is not None
    whole = GaussianMessagesBlock(4.0, 10**4).price(256).at(k)
    np.testing.assert_allclose(sampled.delta(k), whole, rtol=0.01)
