"""Distinguishing game on private LinUCB: one client's action, context and reward are replaced.

The two clients are as far apart as two can be, √4.5, and come first. `make audits` plays 100,000
runs of each world. δ is 0.01: at a small δ so few runs tell nothing of the tail that δ is about.
"""

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from turnout.auditing.confidence import rate_bounds
from turnout.bandits import Batch, BatchRelease, PrivateLinUCB, Problem
from turnout.bandits.mechanisms import Channels, randomized_bits
from turnout.randomness import SimulationStreams

RUNS = int(os.environ.get("TURNOUT_BANDIT_RUNS", "300"))
RUNS_OF_WRONG = max(RUNS, 2000)
EPSILON, DELTA, FALSE_ALARM = 1.0, 0.01, 1e-4
CLIENTS = np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]])  # ⟨a, b⟩ = 1/2; with rewards 1 and −1
LEVELS, NUMBERS = 5, 5
HORIZON = 2**LEVELS - 1  # a node of each level holds the first client and is released


def views(policy, world, runs):
    """Of each run the sum along s − s' of what is released that holds the client, shape (runs,).

    After 2^i batches a tree's prefix is its node of level i alone, whatever came between, so
    others' batches are left out. The policy's noise is a function of its sums: a reward of 1e-9
    times the run's number, known to the attacker, makes it fresh.
    """
    problem, found = Problem(CLIENTS, HORIZON), np.empty(runs)
    channels = Channels(np.array([1]), np.ones(1), np.inf)
    for run in range(runs):
        state, seen = policy.init(problem), 0.0
        for level in range(1 if policy.model == "local" else LEVELS):
            action, reward = (world, 1.0 - 2.0 * world) if level == 0 else (0, 0.0)
            batch = Batch(np.array([action]), np.array([1]))
            release = BatchRelease(batch, np.array([reward + 1e-9 * (run + 1)]), channels)
            state = policy.update(replace(state, batches=2**level - 1), release)
            others = level * np.array([1.0, 0.0, 0.0, 0.0, 0.0])
            seen += float((state.total + state.noise.sum(axis=0) - others) @ ALONG)
        found[run] = seen
    return found


def statistics(world):
    """(aaᵀ, r·a), off-diagonal numbers times √2."""
    (x, y), reward = CLIENTS[world], 1.0 - 2.0 * world
    return np.array([x * x, math.sqrt(2.0) * x * y, y * y, reward * x, reward * y])


ALONG = statistics(0) - statistics(1)


def shuffled_views(policy, world, runs):
    """Of each run the ones among all shuffled bits, where all others hold −1 in every number."""
    level = policy.bit_level(2)
    source = SimulationStreams(0).source("audit", "linucb", world)
    bits = np.full((runs, NUMBERS, policy.batch), -1)
    bits[:, :, 0] = 1 - 2 * world
    return randomized_bits(bits.ravel(), level, source).reshape(runs, -1).sum(axis=1)


def lower_bound(first, second, delta=DELTA):
    """A lower bound on ε by the best of some thresholds, each with its share of the false alarm."""
    runs, best = len(first), 0.0
    thresholds = np.unique(np.quantile(second, [0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98]))
    for threshold in thresholds:
        hits = [int((world > threshold).sum()) for world in (first, second)]
        for more, fewer in (hits, [runs - h for h in reversed(hits)]):
            share = FALSE_ALARM / (4 * thresholds.size)
            low, high = rate_bounds(more, runs, share)[0], rate_bounds(fewer, runs, share)[1]
            if low > delta:
                best = max(best, float(np.log((low - delta) / high)))
    return best


def found_of(policy, runs=RUNS):
    seen = shuffled_views if policy.model == "shuffled" else views
    return lower_bound(seen(policy, 0, runs), seen(policy, 1, runs))


def policy_of(model, kind=PrivateLinUCB):
    return kind(model, EPSILON, DELTA, 20 if model == "shuffled" else 1)


def test_private_linucb_attack_uses_the_most_distant_clients():
    assert np.linalg.norm(ALONG) == pytest.approx(math.sqrt(4.5))


@pytest.mark.parametrize("model", ["central", "local", "shuffled"])
def test_attacks_on_private_linucb_stay_within_its_epsilon(model):
    policy = policy_of(model)
    found, stated = found_of(policy), policy.epsilon(HORIZON, 2)
    print(f"{model}: epsilon of at least {found:.3f} in {RUNS:,} runs; stated: {stated}")
    assert found <= stated.upper


class OneNode(PrivateLinUCB):
    """A tree whose noise is for one node that holds a client, not for all five."""

    def deviation(self, horizon, dimension):
        nodes = self.levels(horizon) if self.model == "central" else 1
        return super().deviation(horizon, dimension) / math.sqrt(nodes)


class HalfTheDistance(PrivateLinUCB):
    """Noise for clients half as far apart as they can be."""

    def deviation(self, horizon, dimension):
        return super().deviation(horizon, dimension) / 2.0


class OneNumber(PrivateLinUCB):
    """Bits at the ε₀ that one number could have, for all D."""

    def bit_level(self, dimension):
        del dimension
        return super().bit_level(1) * 2.0  # d = 1 has two numbers


@pytest.mark.parametrize(
    ("model", "kind"),
    [("central", OneNode), ("local", HalfTheDistance), ("shuffled", OneNumber)],
    ids=["one node", "half the sensitivity", "one number"],
)
def test_an_audit_detects_wrong_noise_of_private_linucb(model, kind):
    found = found_of(policy_of(model, kind), RUNS_OF_WRONG)
    print(f"{kind.__name__}: epsilon of at least {found:.3f} where {EPSILON:g} is stated")
    assert found > EPSILON
