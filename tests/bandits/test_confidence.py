"""Confidence widths: exact moments, coverage over whole runs, and widths that are too small."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turnout.bandits import (
    BareSums,
    CentralSums,
    Elimination,
    LinearEnvironment,
    LocalBits,
    simulate_bandit,
    two_best_environment,
)
from turnout.bandits.mechanisms import Channels, bit_log_moments, laplace_log_moments
from turnout.bandits.policy import BatchRelease, Estimates, Widths
from turnout.randomness import SimulationStreams

HARD_TO_TELL = two_best_environment(0.01, 3)


@pytest.mark.parametrize("x", [-40.0, -2.0, -0.3, -1e-3, 1e-4, 2e-3, 0.7, 5.0])
@pytest.mark.parametrize("means", [(-1.0, 1.0), (0.8, 0.95), (-0.2, 0.1), (1.0, 1.0)])
def test_log_moments_of_a_bit_equal_the_maximum_over_all_means(x, means):
    m = np.linspace(means[0], means[1], 4001)
    with np.errstate(divide="ignore"):
        brute = np.logaddexp(x + np.log((1 + m) / 2), -x + np.log((1 - m) / 2)) - m * x
    found = float(bit_log_moments(np.array([x]), *(np.array([b]) for b in means))[0])
    assert brute.max() - 1e-15 <= found <= brute.max() * (1 + 1e-3) + 1e-12
    assert bit_log_moments(np.array([x]), np.array([-1.0]), np.array([1.0]))[0] <= x**2 / 2 * 1.001


def test_the_log_moment_of_laplace_noise_agrees_with_summation():
    rate, places = 0.5, np.arange(-600, 601)
    distribution = np.exp(-rate * np.abs(places))
    distribution /= distribution.sum()
    for x in (0.01, -0.2, 0.45):
        brute = np.log(distribution @ np.exp(x * places))
        assert laplace_log_moments(np.array([x]), rate)[0] == pytest.approx(brute, rel=1e-9)
    assert np.isinf(laplace_log_moments(np.array([0.5, -0.7]), rate)).all()
    # A gaussian of the same variance would have a smaller one: Lemma E.1.2's mistake.
    assert laplace_log_moments(np.array([0.45]), rate)[0] > 0.45**2 * (distribution @ places**2) / 2


def test_the_cubic_bound_for_many_sums_is_above_the_exact_moments():
    generator = np.random.default_rng(5)
    few, rest = 40, 360
    low = generator.uniform(-1, 0.8, few)
    pulls, kappa = generator.integers(1, 50, few), np.full(few, 0.7)
    weights, scales = generator.normal(size=(5, few)) / 20, np.array([[0.1, 0.5, 1.0, 2.0]] * 5)
    exact = Channels(pulls, kappa, 2.0).log_moments(weights, scales, low, low + 0.1)
    # The same sums beside others whose weight is 0: now there are many.
    channels = Channels(np.append(pulls, np.ones(rest, int)), np.full(few + rest, 0.7), 2.0)
    means = np.append(low, np.zeros(rest))
    wide = np.hstack([weights, np.zeros((5, rest))])
    bounds = channels.log_moments(wide, scales, means, means + 0.1)
    assert np.all(bounds >= exact)
    assert np.all(bounds[:, 0] <= 1.2 * exact[:, 0])
    assert np.isinf(channels.log_moments(wide, 1000.0 * scales, means, means)).all()


class Narrowed(Widths):
    """A tenth of what holds."""

    def lower(self, evidence, contrasts):
        found = super().lower(evidence, contrasts)
        return Estimates(found.values, found.radii / 10)


class Careless(Elimination):
    """An elimination on widths that do not hold."""

    def _widths(self, state, contrasts):
        sound = super()._widths(state, contrasts)
        return Narrowed(sound.failure, sound.contrasts, sound.horizon, sound.pooled)


class WithoutNoise(Elimination):
    """An elimination that takes estimates as if rewards had come as they are."""

    def _evidence(self, state, release):
        pulls = release.batch.pulls
        bare = Channels(pulls, np.ones(pulls.size), np.inf)
        sums: Any = release.means * pulls
        return super()._evidence(state, BatchRelease(release.batch, sums, bare))


def wrongly_dropped(policy, mechanism, environment, runs, horizon):
    """Runs that drop the best action."""
    lost = 0
    for seed in range(runs):
        run = simulate_bandit(policy, environment, mechanism, horizon, SimulationStreams(seed))
        lost += environment.best not in run.state.active
    return lost


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("mechanism", [CentralSums(1.0), LocalBits(2.0)], ids=lambda m: m.word)
def test_the_best_action_is_eliminated_no_more_often_than_stated(mechanism, reuse):
    policy = Elimination(0.1, reuse=reuse, commit=0.0, first=100)
    most = 15  # of 6 expected at most: chance below 1e-3
    assert wrongly_dropped(policy, mechanism, HARD_TO_TELL, 60, 4000) <= most
    careless = Careless(failure=0.1, reuse=reuse, commit=0.0, first=100)
    assert wrongly_dropped(careless, mechanism, HARD_TO_TELL, 60, 4000) > most


@pytest.mark.parametrize("mechanism", [CentralSums(0.1), LocalBits(0.3)], ids=lambda m: m.word)
def test_confidence_widths_without_the_noise_do_not_cover_the_means(mechanism):
    environment = LinearEnvironment(np.eye(2), np.array([5e-5, -5e-5]))
    options = {"failure": 0.1, "commit": 0.0, "variances": False}
    most = 15  # as above
    assert wrongly_dropped(Elimination(**options), mechanism, environment, 60, 500) <= most
    assert wrongly_dropped(WithoutNoise(**options), mechanism, environment, 60, 500) > most


@pytest.mark.parametrize("option", ["contrasts", "reuse", "variances"])
def test_switching_off_an_option_of_elimination_increases_regret(option):
    environment = two_best_environment(0.1, 8)

    def regret(policy):
        runs = (
            simulate_bandit(policy, environment, BareSums(), 20_000, SimulationStreams(seed))
            for seed in range(8)
        )
        return np.mean([run.regret[-1] for run in runs])

    ours = Elimination()
    assert regret(ours) < regret(replace(ours, **{option: False}))
