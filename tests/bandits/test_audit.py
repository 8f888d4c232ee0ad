"""The distinguishing game on whole runs: one client's reward is +1 or −1, all others' are known.

`make audits` plays 100,000 runs of each world and model.
"""

import os
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import beta

from turnout.bandits import (
    Batch,
    CentralSums,
    Elimination,
    LocalBits,
    Problem,
    Release,
    ShuffledBits,
)
from turnout.bandits.mechanisms import randomized_bits
from turnout.bandits.printed import PrintedSums
from turnout.randomness import SimulationStreams
from turnout.spec import TrustModel

RUNS = int(os.environ.get("TURNOUT_BANDIT_RUNS", "2000"))
ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0]])
HORIZON, EPSILON, DELTA = 48, 1.0, 1e-6
FALSE_ALARM = 1e-4


def seen(mechanism, policy, reward, runs, source):
    """The view of each run: the client's own sum (or message, if nobody is trusted), and the pulls
    of action 0, shape (runs, 2).

    All others hold −1, which for shuffled bits is the worst that they can hold. Runs of equal
    releases have equal states, so they are planned together; every message is drawn.
    """
    views = np.empty((runs, 2))
    root = policy.init(Problem(ACTIONS, HORIZON))
    groups = [(root, np.arange(runs), 0)]
    while groups:
        state, members, pulled = groups.pop()
        batch: Batch = policy.plan(state, np.random.default_rng(0))
        pulled += int(batch.pulls[batch.actions == 0].sum())
        own = reward if state is root else -1
        messages, sums = released(mechanism, batch, own, members.size, source)
        if state is root:
            views[:, 0] = messages if mechanism.trust is TrustModel.LOCAL else sums[:, 0]
        if batch.size == state.left:
            views[members, 1] = pulled
            continue
        different, which = np.unique(sums, axis=0, return_inverse=True)
        for number, row in enumerate(different):
            release = Release(batch, row, mechanism.channels(batch.pulls))
            chosen = members[which.ravel() == number]
            groups.append((policy.update(state, release), chosen, pulled))
    return views


def released(mechanism, batch, reward, runs, source):
    """The client's messages and the released sums, shape (runs, actions), of many equal batches."""
    totals, first = [], np.empty(0)
    for action, pulls in enumerate(batch.pulls.tolist()):
        rewards = np.full((runs, pulls), -1)
        rewards[:, 0] = reward if action == 0 else -1
        messages = mechanism.messages(rewards.ravel(), pulls, source).reshape(runs, pulls)
        totals.append(messages.sum(axis=1))
        first = messages[:, 0] if action == 0 else first
    sums = mechanism.release(np.array(totals).T.ravel(), source)
    return first, sums.reshape(runs, batch.pulls.size)


def lower_bound(mechanism, delta=0.0, runs=RUNS):
    """A lower bound on ε by the best of some thresholds, each with its share of the false alarm."""
    policy = Elimination(first=24, growth=2.0, commit=0.5, variances=False)
    worlds = []
    for world, reward in enumerate((1, -1)):
        source = SimulationStreams(0).source("audit", mechanism.word, world)
        worlds.append(seen(mechanism, policy, reward, runs, source))
    best = 0.0
    tries = [
        (column, threshold)
        for column in (0, 1)
        for threshold in np.unique(np.quantile(worlds[1][:, column], [0.0, 0.5, 0.8, 0.9, 0.97]))
    ]
    for column, threshold in tries:
        hits = [int((world[:, column] > threshold).sum()) for world in worlds]
        for more, fewer in (hits, [runs - h for h in reversed(hits)]):
            share = FALSE_ALARM / (4 * len(tries))
            low = beta.ppf(share, more, runs - more + 1) if more else 0.0
            high = beta.ppf(1 - share, fewer + 1, runs - fewer) if fewer < runs else 1.0
            if low > delta:
                best = max(best, float(np.log((low - delta) / high)))
    return best


@pytest.mark.parametrize(
    ("mechanism", "delta"),
    [(CentralSums(EPSILON), 0.0), (LocalBits(EPSILON), 0.0), (ShuffledBits(EPSILON, DELTA), DELTA)],
    ids=["central", "local", "shuffled"],
)
def test_no_attacker_finds_more_than_is_stated(mechanism, delta):
    found = lower_bound(mechanism, delta=delta)
    print(f"{mechanism.word}: epsilon of at least {found:.3f} in {RUNS:,} runs of each world")
    assert found <= EPSILON


class PrintedNoise(CentralSums):
    """Algorithm 6.3.1's Lap(1/ε): noise for a sensitivity of 1."""

    def release(self, totals, source):
        return CentralSums(2.0 * self.epsilon_asked).release(totals, source)


class AnsweredTwice(LocalBits):
    """Two randomized bits of one reward, as their sum."""

    def messages(self, rewards, pulls, source):
        drawn = [super(AnsweredTwice, self).messages(rewards, pulls, source) for _ in range(2)]
        return drawn[0] + drawn[1]


class ReleasedTwice(CentralSums):
    """The smaller of two releases of one sum, which anybody can form who sees both."""

    def release(self, totals, source):
        return np.minimum(super().release(totals, source), super().release(totals, source))


@dataclass(frozen=True)
class HiddenByOthers(ShuffledBits):
    """Algorithm 6.4.1: ε₀ as if 10,000 pulls of other actions hid the client."""

    def messages(self, rewards, pulls, source):
        return randomized_bits(rewards, 5.461, source)


@pytest.mark.parametrize(
    ("mechanism", "runs"),
    [
        (PrintedNoise(EPSILON), RUNS),
        (ReleasedTwice(EPSILON), 2 * RUNS),
        (AnsweredTwice(EPSILON), RUNS),
        (HiddenByOthers(EPSILON, DELTA), RUNS),
    ],
    ids=["as printed", "released twice", "answered twice", "whole batch"],
)
def test_mechanisms_that_break_their_promise_are_caught(mechanism, runs):
    found = lower_bound(mechanism, DELTA, runs)
    print(f"{type(mechanism).__name__}: epsilon of at least {found:.3f} where 1 is stated")
    assert found > EPSILON


def test_the_printed_epsilon_is_twice_the_stated_one():
    pulls = [np.array([5, 5])]
    assert PrintedSums("central", 1.0).epsilon(pulls).upper == 2.0
    assert PrintedSums("central", 1.0, sensitivity=2).epsilon(pulls).upper == 1.0
