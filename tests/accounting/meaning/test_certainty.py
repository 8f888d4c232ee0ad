"""Certainty of an attacker, exceeded with probability at most δ: bounds against simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, norm
from trade_off_truths import average, gaussian_delta, phi, profile_of, randomized_response

from turnout.accounting import epsilon_upper, price
from turnout.accounting.meaning.membership import (
    TradeOff,
    certainty,
    largest_shift,
    posterior,
    scheme_certainty,
)
from turnout.accounting.meaning.profile import privacy_profile, profile_down_to
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    KSubset,
    Relation,
    Scheme,
)

FALSE_ALARM = 1e-9
WINDOW, WINDOWS, SIGMA, DELTA = 10, 30, 2.2231, 1e-4
DEMO = Scheme(GaussianNoise(SIGMA), CheckIn(WINDOW, windows=WINDOWS), Relation.ADD_REMOVE)
"""examples/digits.toml: ε = 3 at δ = 1e-4."""


def gaussian_curve(mu: float, steps: int = 1, delta: float = 1e-6) -> TradeOff:
    scheme = Scheme(GaussianNoise(1 / mu), EveryStep(steps), Relation.ADD_REMOVE)
    return TradeOff.of(profile_down_to(scheme, delta))


def log_ratios(generator: np.random.Generator, runs: int, present: bool) -> np.ndarray:
    """ln P/Q of the demo's releases, whose clients send updates as large as clipping allows."""
    total = np.zeros(runs)
    for _ in range(WINDOWS):
        seen = generator.standard_normal((runs, WINDOW), dtype=np.float32) / SIGMA
        seen[:, 0] += present / SIGMA**2  # which step is hers makes no difference to the law
        total += np.log(np.mean(np.exp(seen - 0.5 / SIGMA**2), axis=1))
    return total


def rejected(exceeded: np.ndarray, delta: float) -> bool:
    """Whether the runs that exceeded refute a chance of at most δ, with a false alarm of 1e-9."""
    return bool(binom.sf(np.count_nonzero(exceeded) - 1, exceeded.size, delta) < FALSE_ALARM)


@pytest.fixture(scope="module")
def demo():
    return scheme_certainty(DEMO, DELTA)


@pytest.mark.parametrize("present", [True, False])
def test_simulated_certainty_exceeds_its_bound_with_probability_at_most_delta(demo, present):
    runs = 120_000
    drawn = log_ratios(np.random.default_rng(20), runs, present) * (1 if present else -1)
    shown = (demo.presence if present else demo.absence).upper
    assert not rejected(1 / (1 + np.exp(-drawn)) > shown, DELTA)
    # Negative control: e^ε/(1 + e^ε) at the quoted ε, which does not follow from (ε, δ).
    epsilon = price(DEMO, DELTA).directions["remove" if present else "add"].upper
    assert rejected(drawn > epsilon, DELTA)


def test_certainty_of_the_demo_plan_has_its_documented_value(demo):
    assert 0.9722 < demo.presence.lower <= demo.presence.upper <= 0.9723
    assert 0.9715 < demo.absence.lower <= demo.absence.upper <= 0.9716


def test_the_log_ratio_if_a_client_stops_sending_exceeds_the_gaussian_tail_but_not_the_bound():
    """The updates are zero once the ratio is high, as clipping allows, so the ratio stays high."""
    mu, steps, runs, delta = 0.2, 100, 100_000, 0.01
    drawn = np.random.default_rng(21).normal(mu * mu / 2, mu, (runs, steps))
    highest = np.cumsum(drawn, axis=1).max(axis=1)
    tail = norm.isf(delta, steps * mu * mu / 2, mu * math.sqrt(steps))
    assert rejected(highest > tail, delta)
    shift = largest_shift(gaussian_curve(mu, steps, delta), delta)
    assert not rejected(highest > shift.upper, delta)


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_the_largest_shift_is_the_log_ratio_of_true_to_false_positives_at_delta(delta):
    mu = 1.0
    shift = largest_shift(gaussian_curve(mu, delta=delta), delta)
    # The best test with δ true positives has Φ(Φ⁻¹(δ) − μ) false ones.
    reached = math.log(delta) - float(norm.logcdf(norm.ppf(delta) - mu))
    assert shift.lower <= reached <= shift.upper
    assert shift.upper - shift.lower < 2e-3


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_the_likelihood_ratio_exceeds_the_shift_with_probability_at_most_delta(delta):
    """Under P the log-ratio of Gaussian noise is N(μ²/2, μ²)."""
    mu = 1.0
    shift = largest_shift(gaussian_curve(mu, delta=delta), delta).upper

    def chance(epsilon: float) -> float:
        return phi(mu / 2 - epsilon / mu)

    assert chance(shift) <= delta
    # Negative control: ε at δ itself is exceeded with a larger chance than δ.
    epsilons = np.linspace(0.0, 8.0, 8001)
    epsilon = next(e for e in epsilons if gaussian_delta(float(e), mu) <= delta)
    assert chance(float(epsilon)) > 1.5 * delta


@pytest.mark.parametrize("delta", [0.3, 0.05, 1e-3])
def test_certainty_bounds_enclose_the_posterior_of_an_enumerated_mechanism(delta):
    """All outcomes of an enumerated mechanism, sorted by ratio, and half of the last one."""
    distribution = average(randomized_response(Fraction(8)), 5)
    curve = TradeOff.of(profile_of(distribution, np.linspace(0.0, 2.2, 400)))
    shift, back = largest_shift(curve, delta), largest_shift(curve.inverse(), delta)
    assert (
        sum(x * m for x, m in distribution.items() if x > Fraction(math.exp(shift.upper))) <= delta
    )
    assert sum(m for x, m in distribution.items() if x < Fraction(math.exp(-back.upper))) <= delta
    for found, rows in (
        (shift, [(x * m, m) for x, m in sorted(distribution.items(), reverse=True)]),
        (back, [(m, x * m) for x, m in sorted(distribution.items())]),
    ):
        true = false = Fraction(0)
        for hit, wrong in rows:  # randomized at the last, so that there are δ true positives
            share = min(Fraction(1), (Fraction(delta) - true) / hit)
            true, false = true + share * hit, false + share * wrong
        assert found.lower <= math.log(true / false) * (1 + 1e-12)
        assert math.log(true / false) <= found.upper * (1 + 1e-12)
        assert found.upper - found.lower < 0.02


def test_the_largest_shift_is_refused_if_the_privacy_profile_stays_above_delta():
    scheme = Scheme(GaussianNoise(1.0), EveryStep(1), Relation.ADD_REMOVE)
    curve = TradeOff.of(privacy_profile(scheme, np.array([0.1])))
    with pytest.raises(NumericalError, match="does not fall below"):
        largest_shift(curve, 1e-6)


def test_the_posterior_log_odds_equal_the_prior_log_odds_plus_the_shift():
    def after(prior: float, shift: float) -> Bounds:
        return posterior(prior, Bounds(shift, shift))

    assert after(0.5, 0.0).upper == pytest.approx(0.5)
    assert after(0.25, math.log(9)).upper == pytest.approx(0.75)
    assert after(0.5, 800.0).upper == 1.0
    assert after(0.5, 2.0).lower < 1 / (1 + math.exp(-2.0)) <= after(0.5, 2.0).upper
    assert posterior(0.5, Bounds(0.0, 2.0)).lower == pytest.approx(0.5)


def test_the_certainty_of_a_partial_run_follows_from_one_bound_on_epsilon(demo):
    part = scheme_certainty(DEMO, DELTA, steps=150)
    assert 0.5 < part.presence.upper < demo.presence.upper
    whole = scheme_certainty(DEMO, DELTA, steps=300)
    assert demo.presence.upper <= whole.presence.upper < demo.presence.upper + 1e-3
    assert whole.presence.lower == pytest.approx(0.5)
    trace = np.array([[True] * 6, [True, False] * 3])
    own = Scheme(GaussianNoise(1.5), AvailabilityCheckIn(trace, 6), Relation.ADD_REMOVE)
    worst = Scheme(GaussianNoise(1.5), CheckIn(3), Relation.ADD_REMOVE)
    found, hers = scheme_certainty(own, 1e-3), scheme_certainty(worst, 1e-3)
    assert max(hers.sides) <= found.presence.upper < max(hers.sides) + 0.01


def test_the_certainty_under_k_subsets_follows_from_one_bound_on_epsilon():
    subset = Scheme(GaussianNoise(2.0), KSubset(4, picks=2), Relation.ADD_REMOVE)
    found = scheme_certainty(subset, 1e-3)
    assert found.presence.lower == pytest.approx(0.5)
    shift = epsilon_upper(subset, 1e-3 / 5) - math.log1p(-1 / 5)
    assert found.presence.upper == pytest.approx(1 / (1 + math.exp(-shift)), rel=1e-12)
    assert found.sides[0] == found.sides[1]


@pytest.mark.parametrize("prior", [0.0, 1.0, math.nan])
def test_a_prior_or_delta_outside_the_open_interval_0_to_1_is_refused(prior):
    profile = privacy_profile(DEMO, np.array([4.0]))
    with pytest.raises(ParameterError, match="prior"):
        certainty(profile, prior, 0.1)
    with pytest.raises(ParameterError, match="delta"):
        certainty(profile, 0.5, prior)
