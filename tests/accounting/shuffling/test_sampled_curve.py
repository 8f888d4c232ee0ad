"""Mixture bound for self-sampled messages, against the sum over all numbers of messages."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
import shuffle_truths as truths

from turnout.accounting.shuffling import sampled_mixtures
from turnout.accounting.shuffling.blanket import best_events
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    clones_pair,
    hadamard_pair,
    kary_pair,
    trinomial_pair,
    worst_pair,
)
from turnout.accounting.shuffling.sampled_mixtures import Grain, SampledCurve
from turnout.core.errors import ParameterError

RATIOS = (1.0, 1.02, 1.1, 1.3, 2.0)
PAIRS = {
    "clones": clones_pair(1.3),
    "worst": worst_pair(0.6),
    "4-ary": kary_pair(1.3, 4),
    "30-ary": kary_pair(2.0, 30),
    "Hadamard": hadamard_pair(0.8),
    "trinomial": trinomial_pair(1.0, 0.1),
}


@lru_cache
def truth(pair: BlanketPair, clients: int, rate: float, k: float) -> float:
    """The mixture over N, one N after the other."""
    total = 0.0
    for messages in range(1, clients + 1):
        share = messages / clients
        chance = math.comb(clients, messages) * rate**messages * (1 - rate) ** (clients - messages)
        total += chance * share * truths.pair_delta(pair, messages, 1 + (k - 1) / share)
    return total


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("clients", "rate"), [(1, 0.3), (6, 0.2), (6, 0.9), (3, 1.0), (10, 0.5)])
def test_the_mixture_over_participant_counts_is_exact_for_few_clients(name, clients, rate):
    curve = SampledCurve(PAIRS[name], clients, rate, Grain(16, 1000.0, 3e-14))
    found = curve.delta(np.array(RATIOS))
    for k, value in zip(RATIOS, found, strict=True):
        exact = truth(PAIRS[name], clients, rate, k)
        assert exact * (1 - 1e-9) - 1e-15 <= value <= exact * 1.01 + 1e-12


@pytest.fixture
def coarse(mutate):
    """Wide groups, and points far apart, however few messages there are."""
    mutate(sampled_mixtures, "_ALL", 0)
    mutate(sampled_mixtures, "_COARSEST", 4.0)
    cut(mutate, 0.0, 2.0, 6.0)


def cut(mutate, *edges: float) -> None:
    """Groups of B - 1 that begin there."""
    mutate(sampled_mixtures, "first_of_groups", lambda *_: np.array(edges))


def shortfall(name: str, clients: int = 12, rate: float = 0.6) -> float:
    """By how much a coarse curve lies below the truth, at most, relative."""
    found = SampledCurve(PAIRS[name], clients, rate, Grain(1, 1e-3, 3e-11)).delta(np.array(RATIOS))
    exact = np.array([truth(PAIRS[name], clients, rate, k) for k in RATIOS])
    return float(np.max((exact - found - 1e-15) / exact))


@pytest.mark.parametrize("name", PAIRS)
def test_wide_groups_of_participant_counts_give_an_upper_bound(name, coarse):
    assert shortfall(name) <= 1e-9


@pytest.mark.parametrize("name", PAIRS)
def test_an_upper_bound_that_assumes_convexity_is_detected_as_too_small(name, coarse, mutate):
    """A mutant: the curve is assumed to be convex in the number m of messages."""
    cut(mutate, *np.arange(12.0))
    assert shortfall(name) <= 1e-9
    mutate(sampled_mixtures, "_lowered", lambda m, _: np.ones(m.size))
    assert shortfall(name) > 1e-4


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "trinomial"])
def test_groups_that_use_their_largest_count_are_detected(name, coarse, mutate):
    """A mutant: the largest count of a group is used for the whole group."""

    def longest(pair, coins, excess, k):
        last = np.array([1.0, 5.0, 11.0])[np.searchsorted([2.0, 6.0], coins, side="right")]
        return best_events(pair, last, excess, k)

    mutate(sampled_mixtures, "best_events", longest)
    mutate(sampled_mixtures, "_lowered", lambda m, _: np.ones(m.size))
    assert shortfall(name, rate=0.9) > 1e-4


def test_the_probability_of_omitted_groups_is_added_in_full():
    pair = clones_pair(1.0)
    whole = SampledCurve(pair, 10**4, 0.05, Grain(16, 500.0, 1e-17))
    rough = SampledCurve(pair, 10**4, 0.05, Grain(16, 500.0, 1e-7))
    k = np.exp(np.array([0.0, 0.005, 0.02, 3.0]))
    assert (rough.delta(k) >= whole.delta(k) * (1 - 1e-9)).all()
    assert rough.delta(k)[-1] > 0.0
    assert rough.delta(k)[-1] < 1e-6


def test_finer_groups_of_participant_counts_give_sharper_bounds():
    for pair in (clones_pair(1.0), kary_pair(1.0, 10)):
        k = np.exp(np.array([0.0, 0.001, 0.004]))
        values = [
            SampledCurve(pair, 20_000, 0.1, Grain(8 * 4**i, 200.0 * 4**i, 1e-16)).delta(k)
            for i in range(3)
        ]
        assert (values[0] >= values[1] * (1 - 1e-9)).all()
        assert (values[1] >= values[2] * (1 - 1e-9)).all()
        assert (values[0] <= 1.3 * values[2]).all()


@pytest.mark.parametrize("rate", [-0.1, 1.5, math.nan])
def test_sampling_rates_out_of_range_are_refused(rate):
    with pytest.raises(ParameterError):
        SampledCurve(clones_pair(1.0), 10, rate, Grain(16, 300.0, 1e-11))
