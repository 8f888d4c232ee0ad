"""Mechanisms of bandits: equal distributions pull by pull and at once, and bounds on ε."""

import math

import numpy as np
import pytest

from turnout.accounting import price, shuffled_price
from turnout.bandits import BareSums, CentralSums, LocalBits, ShuffledBits, rounded_rewards
from turnout.bandits.mechanisms import local_epsilon
from turnout.core.errors import ParameterError
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.schemes import KaryResponse
from turnout.schemes.scheme import shuffled
from turnout.testing.frequencies import assert_frequencies, assert_rejects

MECHANISMS = [BareSums(), CentralSums(1.0), LocalBits(1.0), ShuffledBits(1.0, 1e-6)]
PULLS, MEAN, RUNS = 40, 0.6, 2000


def pull_by_pull(mechanism, runs, source, mean=MEAN):
    """Sums of rounded rewards, each randomized by its client."""
    rewards = rounded_rewards(np.full(runs * PULLS, mean), source)
    messages = mechanism.messages(rewards, PULLS, source).reshape(runs, PULLS)
    return mechanism.release(messages.sum(axis=1), source)


def at_once(mechanism, runs, source, mean=MEAN):
    return np.concatenate(
        [
            mechanism.simulated(np.array([PULLS] * 5), np.full(5, mean), source)
            for _ in range(runs // 5)
        ]
    )


def distribution(mechanism):
    """The exact distribution of a sum from −80 to 80, by convolution."""
    kappa = float(mechanism.channels(np.array([PULLS])).attenuation[0])
    bit = np.zeros(3)
    bit[[0, 2]] = 0.5 - 0.5 * kappa * MEAN, 0.5 + 0.5 * kappa * MEAN
    found = np.ones(1)
    for _ in range(PULLS):
        found = np.convolve(found, bit)
    if isinstance(mechanism, CentralSums):
        t, s = mechanism.noise.scale
        q = math.exp(-s / t)
        noise = (1 - q) / (1 + q) * q ** np.abs(np.arange(-PULLS, PULLS + 1))
        found = np.convolve(found, noise)
    else:
        found = np.pad(found, PULLS)
    return found / found.sum()


def counted(sums):
    return np.bincount(np.clip(sums, -2 * PULLS, 2 * PULLS) + 2 * PULLS, minlength=4 * PULLS + 1)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.word)
def test_simulated_noisy_sums_have_the_distribution_of_sums_of_messages(mechanism):
    expected, streams = distribution(mechanism), SimulationStreams(1)

    def agrees(counts):
        assert_frequencies(counts, expected)

    agrees(counted(pull_by_pull(mechanism, RUNS, streams.source("pulls"))))
    agrees(counted(at_once(mechanism, RUNS, streams.source("batches"))))
    wrong = {"another mean": counted(at_once(mechanism, RUNS, streams.source("wrong"), 0.4))}
    if mechanism.trust is not None:
        wrong["no noise"] = counted(at_once(BareSums(), RUNS, streams.source("bare")))
    assert_rejects(agrees, wrong)


def test_noisy_sums_can_be_drawn_from_system_randomness():
    for mechanism in MECHANISMS:
        sums = pull_by_pull(mechanism, 3, OSRandomness())
        assert sums.shape == (3,)


def test_central_epsilon_equals_the_likelihood_ratio_of_neighbouring_sums():
    mechanism = CentralSums(1.0)
    t, s = mechanism.noise.scale
    bounds = mechanism.epsilon([np.array([3, 4]), np.array([10])])
    assert bounds.upper <= 1.0
    assert bounds.lower <= 2 * s / t <= bounds.upper
    assert bounds.relative_width < 1e-9
    # As printed, the noise is for sums one apart: twice ε. A sum released twice costs twice, too.
    printed = CentralSums(2.0)
    assert printed.noise.deviation == pytest.approx(math.sqrt(2), rel=0.05)
    assert printed.epsilon([np.array([3])]).lower > 1.99


def test_randomized_bits_under_local_trust_attain_their_epsilon():
    bounds = LocalBits(0.7).epsilon([np.array([3])])
    assert bounds.lower == pytest.approx(0.7, abs=1e-12)
    assert bounds.upper <= 0.7


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_shuffled_bits_meet_epsilon_among_the_pulls_of_one_action(epsilon):
    before = 0.0
    for pulls in (1, 7, 30, 100, 400):
        level = local_epsilon(epsilon, 1e-6, pulls)
        assert shuffled_price([(KaryResponse(level, 2), 1)], pulls, 1e-6) <= epsilon
        assert level >= max(before, epsilon)
        before = level
    assert local_epsilon(epsilon, 1e-6, 3) == epsilon
    if epsilon == 1.0:  # and hardly more would do
        assert shuffled_price([(KaryResponse(1.08 * before, 2), 1)], 400, 1e-6) > epsilon


def test_epsilon_of_a_bandit_run_equals_the_largest_epsilon_of_its_batches():
    mechanism = ShuffledBits(1.0, 1e-6)
    one = mechanism.epsilon([np.array([200, 400])])
    many = mechanism.epsilon([np.array([200, 400])] * 5 + [np.array([200])])
    assert one == many
    assert 0.9 < one.lower <= one.upper <= 1.0


def test_shuffled_epsilon_counts_only_pulls_of_the_same_action():
    """Algorithm 6.4.1's ε₀ from n_i = 10,000 pulls, of which each of two actions has half."""
    assert price(shuffled(KaryResponse(5.461, 2), 5000), 1e-6).epsilon.lower > 1.5
    claimed = local_epsilon(1.0, 1e-6, 400)
    assert price(shuffled(KaryResponse(claimed, 2), 200), 1e-6).epsilon.lower > 1.0
    ours = ShuffledBits(1.0, 1e-6).epsilon([np.array([200, 200])])
    assert ours.upper <= 1.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_an_epsilon_of_a_bandit_mechanism_outside_its_domain_is_refused(epsilon):
    for make in (CentralSums, LocalBits, lambda e: ShuffledBits(e, 1e-6)):
        with pytest.raises(ParameterError, match="epsilon"):
            make(epsilon)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_delta_of_a_bandit_mechanism_outside_its_domain_is_refused(delta):
    with pytest.raises(ParameterError, match="delta"):
        ShuffledBits(1.0, delta)


@pytest.mark.parametrize("reward", [1.0001, -2.0, math.nan])
def test_rewards_out_of_range_are_refused_instead_of_clipped(reward):
    with pytest.raises(ParameterError, match="rewards"):
        rounded_rewards([0.0, reward], OSRandomness())
