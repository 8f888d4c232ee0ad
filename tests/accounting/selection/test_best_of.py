"""ε of the best of K runs, against exact distributions, published bounds and wrong formulas."""

from __future__ import annotations

import numpy as np
import pytest

from tests.accounting.selection_truths import (
    exact_profile,
    pairs,
    reported_count,
    worst_over_orders,
)
from turnout.accounting import (
    Stopping,
    calibrate_selection,
    price,
    selected,
    selected_deltas,
    selection_epsilon,
)
from turnout.accounting.meaning.profile import privacy_profile
from turnout.core.errors import NumericalError, ParameterError
from turnout.schemes import EveryStep, GaussianNoise, PoissonSampling, Relation, Scheme

GRID = np.linspace(0.0, 6.0, 301)
ASKED = np.array([0.2, 0.5, 1.0, 1.5, 2.5])
LAWS = {
    "geometric": Stopping.negative_binomial(4.0, 1.0),
    "logarithmic": Stopping.negative_binomial(6.0, 0.0),
    "below zero": Stopping.negative_binomial(3.0, -0.5),
    "short": Stopping.negative_binomial(3.0, 0.0, most=4),
    "poisson": Stopping.poisson(5.0),
    "fixed": Stopping.fixed(3),
    "one": Stopping.fixed(1),
}


@pytest.mark.parametrize("distribution", LAWS)
def test_the_bound_of_a_search_is_above_the_exact_delta_for_any_ranking(distribution):
    for p, q in pairs():
        truth = worst_over_orders(p, q, LAWS[distribution], ASKED)
        bound = selected_deltas(exact_profile(p, q, GRID), LAWS[distribution], ASKED)
        assert np.all(bound >= truth - 1e-13)


def test_a_search_of_one_run_has_the_delta_of_the_run():
    for p, q in pairs():
        profile = exact_profile(p, q, GRID)
        one = selected_deltas(profile, LAWS["one"], ASKED)
        truth = worst_over_orders(p, q, LAWS["one"], ASKED)
        assert np.all(one <= truth + 0.01)
    response = np.array([0.75, 0.25])
    profile = exact_profile(response, response[::-1], GRID)
    epsilons = np.linspace(0.0, 4.0, 401)
    truth = worst_over_orders(response, response[::-1], LAWS["geometric"], epsilons)
    reached = epsilons[np.flatnonzero(truth <= 1e-6)[0]]
    assert 0.7 < reached / selection_epsilon(profile, LAWS["geometric"], 1e-6) <= 1.01


@pytest.mark.parametrize(
    ("drawn", "priced"),
    [
        ("geometric", "one"),  # the search is forgotten
        ("fixed", "one"),
        ("logarithmic", "short"),  # another mean and a shorter table
    ],
)
def test_a_wrong_distribution_of_the_number_of_runs_is_detected(drawn, priced):
    caught = []
    for p, q in pairs():
        truth = worst_over_orders(p, q, LAWS[drawn], ASKED)
        bound = selected_deltas(exact_profile(p, q, GRID), LAWS[priced], ASKED)
        caught.append(np.any(truth > bound * 1.01 + 1e-9))
    assert any(caught)


def test_the_bound_of_a_search_does_not_cover_a_released_number_of_runs():
    distribution, caught = LAWS["geometric"], False
    for p, q in pairs():
        bound = selected_deltas(exact_profile(p, q, GRID), distribution, ASKED)
        both = ((p, q), (q, p), (p[::-1], q[::-1]), (q[::-1], p[::-1]))
        caught |= any(
            np.any(reported_count(*distributions, distribution, ASKED) > bound * 1.01)
            for distributions in both
        )
    assert caught


def test_the_mean_number_of_runs_times_delta_of_one_run_is_no_bound():
    distribution, caught = LAWS["geometric"], False
    for p, q in pairs():
        profile = exact_profile(p, q, GRID)
        naive = distribution.mean * np.interp(ASKED, GRID, profile.worst.upper)
        caught |= bool(np.any(worst_over_orders(p, q, distribution, ASKED) > naive + 1e-9))
    assert caught


def test_selection_of_pure_runs_is_at_most_the_bound_of_papernot_and_steinke():
    # Their Theorem 2 at infinite order: (2 + η) ε₀ for a negative binomial count.
    half = 0.5
    response = np.array([np.exp(half), 1.0]) / (1.0 + np.exp(half))
    profile = exact_profile(response, response[::-1], np.linspace(0.0, 1.0, 1001))
    for shape in (0.0, 1.0, 2.0):
        distribution = Stopping.negative_binomial(20.0, shape, most=500)
        assert selection_epsilon(profile, distribution, 1e-6) <= (2.0 + shape) * half + 2e-3


def published(profile, mean, gamma, shape, epsilon):
    """Koskela, Redberg & Wang 2024, Theorem for the negative binomial law."""
    epsilons, deltas = profile.epsilons, profile.worst.upper
    shifts = (shape + 1.0) * np.log(np.exp(epsilons) + (1.0 - gamma) / gamma * deltas)
    left = epsilon - shifts.min()
    return 1.0 if left < 0 else min(1.0, mean * np.interp(left, epsilons, deltas))


def test_the_bound_of_a_search_is_below_the_published_profile_bound():
    gamma = 0.1
    scheme = Scheme(GaussianNoise(2.0), EveryStep(1), Relation.ADD_REMOVE)
    profile = privacy_profile(scheme, np.linspace(0.0, 4.0, 801), sharp_to=1e-7)
    distribution = Stopping.negative_binomial(1.0 / gamma, 1.0, most=400)
    for epsilon in (1.5, 2.0, 2.5, 3.0):
        ours = float(selected_deltas(profile, distribution, np.array([epsilon]))[0])
        assert ours < published(profile, 1.0 / gamma, gamma, 1.0, epsilon)


def test_epsilon_of_a_search_exceeds_that_of_a_run_and_rises_with_the_mean():
    scheme = Scheme(GaussianNoise(1.2), PoissonSampling(0.02, 200), Relation.ADD_REMOVE)
    one = price(scheme, 1e-5).epsilon
    found = [selected(scheme, Stopping.negative_binomial(m), 1e-5) for m in (2.0, 10.0)]
    assert one.upper < found[0].epsilon.upper < found[1].epsilon.upper
    assert all(each.epsilon.lower == one.lower for each in found)
    assert set(found[0].directions) == {"remove", "add"}


def test_noise_calibrated_for_a_search_meets_the_target_epsilon():
    distribution = Stopping.negative_binomial(5.0)

    def scheme_for(noise):
        return Scheme(GaussianNoise(noise), EveryStep(1), Relation.REPLACE_ONE)

    noise, guarantee = calibrate_selection(scheme_for, distribution, 2.0, 1e-5)
    assert guarantee.epsilon.upper <= 2.0
    assert guarantee.epsilon.upper > 1.99
    again = selected(scheme_for(noise), distribution, 1e-5)
    assert again.epsilon == guarantee.epsilon
    assert selected(scheme_for(0.99 * noise), distribution, 1e-5).epsilon.upper > 2.0


def test_a_delta_that_no_epsilon_of_a_search_reaches_is_refused():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5])
    with pytest.raises(NumericalError, match="delta = "):
        selection_epsilon(exact_profile(p, q, GRID), Stopping.fixed(2), 1e-3)
    with pytest.raises(ParameterError, match="delta"):
        selection_epsilon(exact_profile(p, q, GRID), Stopping.fixed(2), 0.0)
