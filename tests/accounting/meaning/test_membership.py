"""Membership inference: success and advantage of the best attacker."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from trade_off_truths import Law, average, phi, profile_of, randomized_response

from turnout.accounting.meaning.membership import TradeOff, bayes_success, posterior
from turnout.accounting.meaning.profile import Profile, privacy_profile
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, Relation, Scheme

GRID = np.linspace(0.0, 12.0, 1201)
PAGE = Path(__file__).parents[3] / "docs" / "explanation.md"
PRIORS = (0.5, 0.1, 0.9, 0.02, 0.37)


def profile(participation, sigma: float = 1.0) -> Profile:
    return privacy_profile(Scheme(GaussianNoise(sigma), participation, Relation.ADD_REMOVE), GRID)


def best_guess(participation: Law, prior: Fraction) -> Fraction:
    """The best of all deterministic answers to every view, tried one by one."""
    views = list(participation.items())
    return max(
        sum(
            (
                prior * mass * ratio if accused else (1 - prior) * mass
                for (ratio, mass), accused in zip(views, answers, strict=True)
            ),
            start=Fraction(0),
        )
        for answers in itertools.product((True, False), repeat=len(views))
    )


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_bayes_success_equals_that_of_the_best_enumerated_guess(steps, prior):
    participation = average(randomized_response(Fraction(8)), steps)
    truth = float(best_guess(participation, Fraction(prior)))
    mark = abs(math.log((1 - prior) / prior))
    exact = profile_of(participation, np.unique(np.append(np.linspace(0.0, 4.5, 20), mark)))
    success = bayes_success(exact, prior)
    assert success.lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= success.upper
    assert success.upper - success.lower < 1e-12
    coarse = bayes_success(profile_of(participation, np.linspace(0.0, 4.5, 20)), prior)
    assert coarse.lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= coarse.upper


def test_success_computed_with_swapped_directions_is_detected():
    """Negative control: at a prior other than ½ the two directions give different success."""
    participation = average(randomized_response(Fraction(20)), 5)
    exact = profile_of(participation, np.linspace(0.0, 4.5, 200))
    swapped = Profile(exact.backward, exact.forward, exact.relation)
    truth = float(best_guess(participation, Fraction(0.2)))
    assert bayes_success(exact, 0.2).lower <= truth <= bayes_success(exact, 0.2).upper
    wrong = bayes_success(swapped, 0.2)
    assert not wrong.lower <= truth <= wrong.upper


@pytest.mark.parametrize("prior", PRIORS)
def test_the_bayes_success_against_gaussian_noise_equals_the_closed_form(prior):
    """The best threshold of one Gaussian observation, in closed form."""
    mu = 1.3
    odds = math.log((1 - prior) / prior)
    threshold = odds / mu + mu / 2
    truth = prior * phi(mu - threshold) + (1 - prior) * phi(threshold)
    success = bayes_success(profile(EveryStep(1), 1 / mu), prior)
    assert success.lower <= truth <= success.upper
    assert success.upper - success.lower < 1e-5


def test_at_prior_one_half_success_is_half_of_one_plus_the_advantage():
    found = profile(CheckIn(30))
    success, advantage = bayes_success(found, 0.5), TradeOff.of(found).advantage
    assert success.upper == pytest.approx((1 + advantage.upper) / 2, rel=1e-13)
    assert success.lower == pytest.approx((1 + advantage.lower) / 2, rel=1e-13)


@hypothesis_settings(max_examples=12)
@given(st.floats(0.01, 0.99))
def test_the_bayes_risk_is_the_least_weighted_sum_of_both_errors(prior):
    """1 − success = min over α of (1 − π)α + π·f(α)."""
    found = profile_of(average(randomized_response(Fraction(8)), 2), np.linspace(0.0, 4.6, 60))
    alphas, success = np.linspace(0.0, 1.0, 501), bayes_success(found, prior)
    curve = TradeOff.of(found)
    for side, bound in ((curve.lower, success.upper), (curve.upper, success.lower)):
        risk = float(np.min((1 - prior) * alphas + prior * side(alphas)))
        assert 1 - bound == pytest.approx(risk, abs=2e-3)


@pytest.mark.parametrize("prior", [0.0, 1.0, -1.0, math.nan])
def test_a_prior_outside_the_open_interval_0_to_1_is_refused(prior):
    with pytest.raises(ParameterError, match="prior"):
        bayes_success(profile(EveryStep(1)), prior)
    with pytest.raises(ParameterError, match="prior"):
        posterior(prior, Bounds(1.0, 1.0))


def test_the_documented_success_table_bounds_every_attacker_at_small_delta():
    delta, rate = 1e-4, 0.01
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \|$", PAGE.read_text(), re.MULTILINE
    )
    assert [float(row[0]) for row in rows] == [0.5, 1, 2, 4]
    for epsilon, guesses, positives in (map(float, row) for row in rows):
        ratio = math.exp(epsilon)
        success = 100 * (ratio + delta) / (1 + ratio)
        caught = 100 * min(ratio * rate + delta, 1 - (1 - delta - rate) / ratio)
        assert success <= guesses < success + 0.1
        assert caught <= positives < caught + 0.1
