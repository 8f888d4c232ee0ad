"""The distinguishing game on whole runs: one client's reward is +1 or −1, all others' are known.

`make audits` plays 100,000 runs of each world and model.
"""

import os
from dataclasses import dataclass

import numpy as np
import pytest

from turnout.auditing import RewardGame
from turnout.auditing.confidence import rate_bounds
from turnout.bandits import CentralSums, Elimination, LocalBits, ShuffledBits
from turnout.bandits.mechanisms import randomized_bits
from turnout.bandits.printed import PrintedSums
from turnout.randomness import SimulationStreams

RUNS = int(os.environ.get("TURNOUT_BANDIT_RUNS", "2000"))
EPSILON, DELTA = 1.0, 1e-6
FALSE_ALARM = 1e-4


def lower_bound(mechanism, delta=0.0, runs=RUNS):
    """A lower bound on ε by the best of some thresholds, each with its share of the false alarm."""
    policy = Elimination(first=24, growth=2.0, commit=0.5, variances=False)
    game, worlds = RewardGame(mechanism, policy), []
    for world in (0, 1):
        source = SimulationStreams(0).source("audit", mechanism.word, world)
        worlds.append(game.outputs(world, runs, source))
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
            low, high = rate_bounds(more, runs, share)[0], rate_bounds(fewer, runs, share)[1]
            if low > delta:
                best = max(best, float(np.log((low - delta) / high)))
    return best


@pytest.mark.parametrize(
    ("mechanism", "delta"),
    [(CentralSums(EPSILON), 0.0), (LocalBits(EPSILON), 0.0), (ShuffledBits(EPSILON, DELTA), DELTA)],
    ids=["central", "local", "shuffled"],
)
def test_attacks_on_bandit_mechanisms_stay_within_epsilon(mechanism, delta):
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
def test_an_audit_detects_bandit_mechanisms_with_too_little_noise(mechanism, runs):
    found = lower_bound(mechanism, DELTA, runs)
    print(f"{type(mechanism).__name__}: epsilon of at least {found:.3f} where 1 is stated")
    assert found > EPSILON


def test_the_bandit_algorithm_of_the_thesis_has_twice_its_stated_epsilon():
    pulls = [np.array([5, 5])]
    assert PrintedSums("central", 1.0).epsilon(pulls).upper == 2.0
    assert PrintedSums("central", 1.0, sensitivity=2).epsilon(pulls).upper == 1.0
