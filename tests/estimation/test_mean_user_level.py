"""User-level means: estimated range, radius that covers all clients, noise from the range."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation.user_level_means import (
    UserLevelMean,
    concentration_radius,
    wrong_bin_chance,
)
from turnout.randomizers.vectors import LInfRandomizer
from turnout.randomness import SimulationStreams
from turnout.testing import assert_binomial, assert_rejects


def source(name: str):
    return SimulationStreams(31).source(name)


def means(scheme: UserLevelMean, centre: float, seed: int = 0) -> np.ndarray:
    spread = scheme.deviation / math.sqrt(scheme.samples)
    drawn = np.random.default_rng(seed).normal(size=(scheme.clients, scheme.dimension))
    return centre + spread * drawn


def test_the_concentration_radius_covers_all_clients_unlike_the_radius_of_the_thesis():
    n, chance = 1000, 0.01
    ours = concentration_radius(1.0, 1, n, chance)
    failure = -math.expm1(n * math.log1p(-2 * stats.norm.sf(ours)))
    assert failure <= chance
    printed = ours / math.sqrt(2)
    assert -math.expm1(n * math.log1p(-2 * stats.norm.sf(printed))) == pytest.approx(0.38, abs=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_bound_on_the_probability_of_a_wrong_bin_is_above_the_simulated_probability(epsilon):
    """Half of the clients in each of two bins, the worst case, simulated."""
    from turnout.estimation import FrequencyTally, estimate_frequencies
    from turnout.randomizers import OneBitHadamard

    bins, runs = 16, 300
    c = 1 / math.tanh(epsilon / 2)
    clients = int(8 * math.log(bins / 0.2) * (2 * c**2 + (2 * c + 0.5) / 6)) // 2 * 2
    stated = wrong_bin_chance(epsilon, bins, clients)
    assert 0.1 < stated < 0.3
    randomizer = OneBitHadamard(epsilon, bins)
    held = np.repeat([6, 7], clients // 2)
    wrong = 0
    for run in range(runs):
        sent = randomizer.encode(held, source(f"run {run}"))
        raw = estimate_frequencies(FrequencyTally.of(randomizer, sent), "raw").raw
        wrong += int(np.argmax(raw)) not in (6, 7)
    # An upper bound: not significantly exceeded.
    assert stats.binom.sf(wrong - 1, runs, stated) > 1e-9
    # With a fifth of the clients the bin is often wrong, so the bound is not vacuous.
    assert wrong_bin_chance(epsilon, bins, clients // 5) == 1.0


def test_the_thesis_bound_on_the_probability_of_a_wrong_bin_is_far_larger():
    c = 1 / math.tanh(0.25)
    printed = 2 * 100 * math.exp(-20_000 / (200 * c**2))
    assert wrong_bin_chance(0.5, 100, 20_000) < 1e-9 < printed


@pytest.mark.parametrize("dimension", [1, 3])
def test_user_level_means_are_accurate_with_the_declared_epsilon0(dimension):
    scheme = UserLevelMean(dimension, 2.0, 100.0, 5.0, 400, 6000, 0.001)
    held = means(scheme, 37.3)
    errors = []
    for run in range(40):
        estimate = scheme.estimate(held, source(f"default {dimension} {run}"))
        assert np.abs(estimate.centre - 37.3).max() <= 2 * scheme.radius
        errors.append(np.sum((estimate.value - held.mean(axis=0)) ** 2))
    assert np.mean(errors) < 1.8 * scheme.mse_bound
    assert scheme.epsilon0 <= 2.0
    assert scheme.failure <= 0.002
    first = scheme.range_randomizer
    assert first is not None
    assert scheme.epsilon0 == pytest.approx(first.epsilon0 + scheme.mean_randomizer.epsilon0)
    # Without the range the noise would be proportional to B: hundreds of times the variance.
    assert scheme.mean_randomizer.radius < 100.0 / 15
    words = str(scheme.estimate(held, source(f"text {dimension}")))
    for word in ("all its samples", "trust: local", "ε = 2", "replace-one"):
        assert word in words


def test_the_message_about_the_range_uses_only_as_much_epsilon_as_it_needs():
    ours = UserLevelMean(1, 2.0, 100.0, 5.0, 400, 6000)
    # The thesis halves ε₀.
    assert ours.range_epsilon < 0.6 * 1.0
    printed = LInfRandomizer.best(1, 1.0, ours.mean_randomizer.radius)
    assert ours.mse_bound < 0.7 * printed.mse_bound(6000)
    assert ours.failure <= 2 * ours.chance


def test_samples_that_violate_the_assumption_reduce_accuracy_but_not_privacy():
    scheme = UserLevelMean(1, 2.0, 100.0, 5.0, 400, 6000)
    held = means(scheme, 0.0)
    held[:10] = 1e9
    messages = scheme.range_messages(held, source("wild"))
    sent = scheme.mean_messages(held, scheme.centre(messages), source("wild"))
    assert sent.max() < max(scheme.mean_randomizer.radices)
    with pytest.raises(ParameterError, match="means"):
        scheme.mean_messages(np.full((2, 1), np.nan), np.zeros(1), source("nan"))


def test_more_samples_of_each_client_reduce_the_noise():
    few, many = (UserLevelMean(1, 2.0, 100.0, 5.0, m, 6000) for m in (100, 10_000))
    assert many.mse_bound < few.mse_bound / 50


def test_too_few_clients_for_the_range_are_refused():
    with pytest.raises(UnsupportedError, match="too few"):
        _ = UserLevelMean(1, 0.1, 100.0, 5.0, 400, 50).range_epsilon
    with pytest.raises(ParameterError, match="clients"):
        UserLevelMean(10, 1.0, 1.0, 1.0, 1, 5)
    narrow = UserLevelMean(1, 1.0, 1.0, 1.0, 1, 50)
    assert (narrow.bins, narrow.range_epsilon) == (1, 0.0)
    assert narrow.range_messages(np.zeros((3, 1)), source("none")) == []
    assert np.array_equal(narrow.centre([]), np.zeros(1))


def test_simulated_maxima_often_exceed_the_thesis_radius_but_rarely_the_proved_radius():
    """At most 20 of 400 simulated maxima exceed the proved radius, which fails with chance 0.01."""
    drawn = np.abs(np.random.default_rng(3).normal(size=(400, 1000))).max(axis=1)
    ours = concentration_radius(1.0, 1, 1000, 0.01)
    printed = ours / math.sqrt(2)
    out = int(np.count_nonzero(drawn > printed))
    chance = -math.expm1(1000 * math.log1p(-2 * stats.norm.sf(printed)))
    assert_binomial(out, 400, chance)
    assert_rejects(lambda p: assert_binomial(out, 400, p), {"what was claimed": 0.01})
    assert np.count_nonzero(drawn > ours) <= 20
