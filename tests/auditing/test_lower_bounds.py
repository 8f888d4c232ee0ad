"""Lower bounds on ε by counts and guesses against other software and exact distributions."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from turnout.accounting import gaussian_epsilon
from turnout.auditing import (
    epsilon_by_counts,
    epsilon_by_guesses,
    gaussian_mu_by_counts,
    gaussian_mu_by_guesses,
)
from turnout.auditing.canaries import bounds_by_guesses, p_value
from turnout.auditing.confidence import Event, best_event, counted, rate_bounds

# m, r, v, δ, error, then ε by _epsilon_one_run and by _epsilon_one_run_fdp of jax_privacy 2.0.0's
# auditing.py (found to 1e-6).
JAX_PRIVACY = [
    (1000, 100, 99, 1e-5, 0.05, 3.002832256676205, 4.726715076744276),
    (1000, 500, 400, 1e-5, 0.05, 1.1979685996776859, 2.076806928840693),
    (5000, 100, 95, 1e-4, 0.001, 0.0, 1.582169532962027),
    (2000, 2000, 1300, 1e-6, 0.01, 0.5092887365319623, 0.8832827622477952),
    (100, 50, 50, 1e-5, 0.05, 2.781889334332235, 5.839971200876487),
    (1000, 100, 55, 1e-5, 0.05, 0.0, 0.0),
]


@pytest.mark.parametrize("case", JAX_PRIVACY)
def test_lower_bounds_from_guesses_agree_with_jax_privacy(case):
    m, r, v, delta, error, plain, gaussian = case
    assert epsilon_by_guesses(m, r, v, delta, error) == pytest.approx(plain, abs=2e-6)
    mu = gaussian_mu_by_guesses(m, r, v, error)
    found = gaussian_epsilon(1 / mu, delta) if mu else 0.0
    assert found == pytest.approx(gaussian, abs=2e-6)


def test_the_lower_bound_from_guesses_is_the_largest_rejected_epsilon():
    found = epsilon_by_guesses(1000, 200, 180, 1e-5, 0.01)
    assert p_value(1000, 200, 180, found, 1e-5) <= 0.01
    assert p_value(1000, 200, 180, found + 1e-6, 1e-5) > 0.01


def test_the_p_value_of_guesses_at_delta_zero_is_a_binomial_tail():
    for v in range(0, 21):
        rate = math.e / (1 + math.e)
        assert p_value(50, 20, v, 1.0, 0.0) == pytest.approx(binom.sf(v - 1, 20, rate))


def test_confidence_bounds_on_error_rates_equal_clopper_pearson_bounds():
    for count, trials in itertools.product((0, 1, 7, 10), (10,)):
        low, high = rate_bounds(count, trials, 0.01)
        assert float(low) == (beta.ppf(0.01, count, trials - count + 1) if count else 0.0)
        expected = beta.ppf(0.99, count + 1, trials - count) if count < trials else 1.0
        assert float(high) == expected


def test_a_lower_bound_from_counts_fails_with_at_most_its_stated_probability():
    """Exact probability that the bound exceeds ε, at the worst (ε, δ)-DP event."""
    trials, delta, epsilon, error = 200, 0.01, 1.0, 0.05
    counts = np.arange(trials + 1)
    bounds = epsilon_by_counts(counts[:, None], counts[None, :], trials, delta, error)
    worst = 0.0
    for rare in (0.005, 0.02, 0.1, 0.3):
        likely = min(math.exp(epsilon) * rare + delta, 1.0)
        chance = binom.pmf(counts, trials, likely)[:, None] * binom.pmf(counts, trials, rare)
        worst = max(worst, float(chance[bounds > epsilon].sum()))
    assert 0.0 < worst <= error
    # A bound that takes the shares as they are, which the same check refuses.
    naive = np.log(np.maximum(counts[:, None] / trials - delta, 1e-9) / ((counts + 1) / trials))
    assert float(chance[naive > epsilon].sum()) > error


def test_a_gaussian_lower_bound_fails_with_at_most_its_stated_probability():
    trials, mu, error = 200, 1.0, 0.05
    counts = np.arange(trials + 1)
    bounds = gaussian_mu_by_counts(counts[:, None], counts[None, :], trials, error)
    worst = 0.0
    for rare in (0.02, 0.2, 0.5):
        likely = norm.cdf(norm.ppf(rare) + mu)
        chance = binom.pmf(counts, trials, likely)[:, None] * binom.pmf(counts, trials, rare)
        worst = max(worst, float(chance[bounds > mu].sum()))
        assert float((chance * bounds).sum()) > 0.3
    assert 0.0 < worst <= error


def test_the_best_event_is_more_likely_in_the_first_world():
    generator = np.random.default_rng(3)
    high, low = generator.normal(1.0, 1.0, 20_000), generator.normal(0.0, 1.0, 20_000)
    event, promised = best_event({"x": high}, {"x": low}, 20_000, 1e-5, 1e-3)
    assert event.above
    assert promised > 1.0
    other, _ = best_event({"x": low}, {"x": high}, 20_000, 1e-5, 1e-3)
    assert not other.above
    fresh = counted(event, generator.normal(1.0, 1.0, 50_000), generator.normal(size=50_000),
                    1e-5, 1e-3)  # fmt: skip
    assert 0.5 < fresh.epsilon < gaussian_epsilon(1.0, 1e-5)


@pytest.mark.parametrize("above", [True, False])
def test_an_event_does_not_include_scores_equal_to_its_threshold(above):
    event = Event("x", above, 1.0)
    assert event.count(np.array([0.0, 1.0, 2.0, 3.0])) == 2


def test_random_guesses_give_epsilon_zero():
    generator = np.random.default_rng(0)
    inside = generator.random(2000) < 0.5
    by_chance = bounds_by_guesses(generator.normal(size=2000), inside, 1e-6, 0.001)
    assert (by_chance.epsilon, by_chance.gaussian_mu) == (0.0, 0.0)
    told = bounds_by_guesses(inside + generator.normal(0, 0.3, 2000), inside, 1e-6, 0.001)
    truth = gaussian_epsilon(0.3, 1e-6)
    assert 2.0 < told.epsilon < truth
    assert 1.0 < told.gaussian_mu < 1 / 0.3
    assert norm.cdf(told.gaussian_mu / 2) < 1.0
