"""Privacy profile: its bounds hold in both directions, at grid points and between them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from test_quadrature import add_delta, remove_delta
from trade_off_truths import (
    average,
    backward_delta,
    forward_delta,
    gaussian_delta,
    profile_of,
    randomized_response,
)

from turnout.accounting.meaning.profile import (
    LARGEST_EPSILON,
    DeltaBounds,
    privacy_profile,
    profile_curves,
)
from turnout.accounting.pricing import price
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
)

GRID = np.linspace(0.0, 4.0, 41)


def scheme(
    participation, sigma: float = 1.0, relation: Relation = Relation.ADD_REMOVE, **rest
) -> Scheme:
    return Scheme(GaussianNoise(sigma), participation, relation, **rest)


def holds(bounds: DeltaBounds, truth) -> bool:
    """Whether bounds hold a true curve at each of their ε."""
    values = np.array([truth(e) for e in bounds.epsilons])
    slack = 1e-13 + 1e-8 * values
    return bool(np.all(bounds.lower <= values + slack) and np.all(values <= bounds.upper + slack))


@pytest.mark.parametrize(("steps", "sigma"), [(1, 0.5), (1, 3.0), (9, 2.0)])
def test_the_profile_of_gaussian_noise_in_every_step_is_exact(steps, sigma):
    profile = privacy_profile(scheme(EveryStep(steps), sigma), GRID)
    mu = math.sqrt(steps) / sigma
    for bounds in (profile.forward, profile.backward):
        assert holds(bounds, lambda e: gaussian_delta(e, mu))
        assert np.all(bounds.upper - bounds.lower <= 1e-12)
    assert not holds(profile.forward, lambda e: gaussian_delta(e, 1.01 * mu))


def test_the_profile_of_replacing_a_record_has_twice_the_gaussian_sensitivity():
    profile = privacy_profile(scheme(EveryStep(1), 2.0, Relation.REPLACE_ONE), GRID)
    assert list(profile.directions) == ["replace"]
    assert holds(profile.directions["replace"], lambda e: gaussian_delta(e, 1.0))


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_the_profile_of_one_of_two_steps_agrees_with_quadrature(sigma):
    epsilons = np.array([0.0, 0.05, 0.4, 1.0, 2.0])
    profile = privacy_profile(scheme(CheckIn(2), sigma), epsilons)
    truths = {
        "remove": lambda e: remove_delta(e, 2, sigma),
        "add": lambda e: add_delta(e, 2, sigma),
    }
    for name, other in (("remove", "add"), ("add", "remove")):
        bounds = profile.directions[name]
        assert holds(bounds, truths[name])
        assert np.all(bounds.upper - bounds.lower <= 2e-3 * bounds.upper + 1e-9)
        # Negative control: one direction taken for the other would be noticed.
        assert not holds(bounds, truths[other])


@pytest.mark.parametrize(
    "participation",
    [CheckIn(50), CheckIn(20, 5), CheckIn(30, 1, 0.5), PoissonSampling(0.02, 50)],
    ids=repr,
)
def test_upper_profiles_are_decreasing_convex_and_equal_in_both_directions_at_epsilon_zero(
    participation,
):
    profile = privacy_profile(scheme(participation), np.linspace(0.0, 1.5, 61))
    for bounds in (profile.forward, profile.backward):
        slopes = np.diff(bounds.upper) / np.diff(bounds.ratios)
        assert np.all(slopes <= 0)
        assert np.all(np.diff(slopes) >= -1e-12)
        assert np.all(np.diff(bounds.lower) <= 0)
    assert profile.forward.upper[0] == profile.backward.upper[0]
    assert profile.forward.lower[0] == profile.backward.lower[0]


@pytest.mark.parametrize(
    ("participation", "relation"),
    [
        (CheckIn(100), Relation.ADD_REMOVE),
        (CheckIn(20, 5), Relation.ZERO_OUT),
        (CheckIn(20), Relation.REPLACE_ONE),
        (KSubset(6, 2), Relation.ADD_REMOVE),
        (PoissonSampling(0.01, 100), Relation.REPLACE_ONE),
    ],
    ids=repr,
)
def test_the_bounds_on_epsilon_and_the_profile_describe_one_curve(participation, relation):
    """At the bounds on ε, the bounds on δ enclose the given δ."""
    delta = 1e-5
    epsilon = price(scheme(participation, relation=relation), delta).epsilon
    profile = privacy_profile(
        scheme(participation, relation=relation),
        np.array([epsilon.lower, epsilon.upper]),
        sharp_to=delta / 5,
    )
    worst = profile.worst
    assert worst.upper[1] >= delta * (1 - 1e-12)
    assert worst.lower[2] <= delta * (1 + 1e-12)
    # Not looser than the price, over two hops neither; both are upper bounds of one truth.
    assert delta * 0.95 <= worst.upper[2] <= delta * 1.05


def replaced_poisson_delta(epsilon: float, rate: float) -> float:
    """H_K of (1 − q)N(0, 1) + qN(1, 1) against the same with N(−1, 1), by a fine sum."""
    z, step = np.linspace(-12.0, 12.0, 200_001, retstep=True)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    up, down = (1 - rate + rate * np.exp(s * z - 0.5) for s in (1.0, -1.0))
    return float(np.sum(density * np.maximum(up - math.exp(epsilon) * down, 0.0)) * step)


def test_exact_delta_under_replacement_is_within_its_bounds_and_above_that_of_removal():
    participation = PoissonSampling(0.3, 1)
    epsilons = np.linspace(0.0, 1.5, 16)
    replaced = privacy_profile(scheme(participation, relation=Relation.REPLACE_ONE), epsilons).worst
    truth = np.array([replaced_poisson_delta(e, 0.3) for e in epsilons])
    assert np.all(replaced.lower <= truth + 1e-8)
    assert np.all(truth <= replaced.upper + 1e-8)
    # Negative control: the δ of adding or removing the client is too low.
    removed = privacy_profile(scheme(participation), epsilons).worst
    assert np.any(removed.upper < truth - 1e-4)


def test_delta_of_one_client_releases_under_zero_out_is_at_least_that_of_summed_releases():
    one = scheme(CheckIn(4), relation=Relation.ZERO_OUT, release=ReleaseRule.ONE_CLIENT)
    profile = privacy_profile(one, np.linspace(0.0, 6.0, 7), sharp_to=1e-5)
    single = privacy_profile(scheme(CheckIn(4)), np.linspace(0.0, 6.0, 7), sharp_to=1e-5)
    assert list(profile.directions) == ["remove", "add"]
    for name, bounds in profile.directions.items():
        assert np.all(bounds.upper >= single.directions[name].lower)


def test_a_client_that_never_participates_has_delta_zero():
    profile = privacy_profile(scheme(PoissonSampling(0.0, 10)), np.array([0.1]))
    assert not profile.worst.upper.any()


@pytest.mark.parametrize("points", [4, 9, 40])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_profile_bounds_hold_between_grid_points(points, steps):
    participation = average(randomized_response(Fraction(6)), steps)
    profile = profile_of(participation, np.linspace(0.0, 1.6, points))
    truths = ((profile.forward, forward_delta), (profile.backward, backward_delta))
    for bounds, delta in truths:
        for epsilon in np.linspace(0.0, 2.0, 81):
            truth, found = (
                float(delta(participation, Fraction(math.exp(epsilon)))),
                bounds.at(float(epsilon)),
            )
            assert found.lower <= truth * (1 + 1e-12)
            assert truth * (1 - 1e-12) <= found.upper


@pytest.mark.parametrize("seed", range(8))
def test_loose_profile_bounds_hold_between_grid_points(seed):
    """Where bounds are wide, chords run from the upper bound through the lower bound."""
    participation = average(randomized_response(Fraction(6)), 3)
    exact = profile_of(participation, np.linspace(0.0, 1.7, 12)).forward
    loose = np.random.default_rng(seed).uniform(0.0, 0.2, (2, exact.epsilons.size))
    bounds = DeltaBounds.of(
        exact.epsilons, exact.lower * (1 - loose[0]), exact.upper * (1 + loose[1])
    )
    for epsilon in np.linspace(0.0, 2.0, 161):
        truth, found = (
            float(forward_delta(participation, Fraction(math.exp(epsilon)))),
            bounds.at(epsilon),
        )
        assert found.lower <= truth * (1 + 1e-12)
        assert truth * (1 - 1e-12) <= found.upper


def test_chords_between_lower_bounds_on_delta_are_no_lower_bound():
    """Negative control: chords, which bound from above, would fail from below."""
    participation = average(randomized_response(Fraction(6)), 2)
    bounds = profile_of(participation, np.linspace(0.0, 1.6, 6)).forward
    # Between these two ε lies an atom of the likelihood ratio, where δ(K) bends.
    middle = float(0.5 * (bounds.epsilons[3] + bounds.epsilons[4]))
    chord = float(np.interp(math.exp(middle), bounds.ratios, bounds.lower))
    assert chord > float(forward_delta(participation, Fraction(math.exp(middle)))) * (1 + 1e-6)


def test_bounds_combined_from_several_curves_are_the_tightest():
    curves = profile_curves(scheme(CheckIn(100)), sharp_to=1e-8, refinement=2)
    profile = curves.at(np.linspace(0.0, curves.reach(1e-8), 60))
    width = profile.worst.upper - profile.worst.lower
    assert np.all(width <= 1e-3 * profile.worst.upper)


def test_delta_of_a_window_is_at_most_that_of_one_step_with_certain_participation():
    """At small σ a window's grid is coarse where δ is large; one step's closed form is not."""
    profile = privacy_profile(scheme(CheckIn(2), 0.25), np.linspace(0.0, 1.0, 5))
    for bounds in (profile.forward, profile.backward):
        assert np.all(bounds.upper <= [gaussian_delta(e, 4.0) + 1e-12 for e in profile.epsilons])
    assert holds(profile.backward, lambda e: add_delta(e, 2, 0.25))


def test_the_reach_of_a_profile_is_at_least_and_close_to_epsilon_at_the_given_delta():
    curves = profile_curves(scheme(CheckIn(100)), sharp_to=1e-6)
    reach = curves.reach(1e-5)
    assert curves.at(np.array([reach])).worst.upper[-1] <= 1e-5
    assert curves.at(np.array([reach / 1.03])).worst.lower[-1] > 1e-5
    with pytest.raises(NumericalError, match="no epsilon can be certified"):
        profile_curves(scheme(CheckIn(20, 5)), sharp_to=0.1).reach(1e-12)


@pytest.mark.parametrize(
    "epsilons", [[-0.1], [math.nan], [math.inf], [LARGEST_EPSILON + 1], [], [0.0]]
)
def test_an_epsilon_out_of_range_is_refused(epsilons):
    with pytest.raises(ParameterError, match="epsilons"):
        privacy_profile(scheme(EveryStep(1)), np.array(epsilons))


def test_schemes_whose_clients_have_different_profiles_are_refused():
    participation = AvailabilityCheckIn(np.ones((2, 4), dtype=bool), 2)
    with pytest.raises(UnsupportedError, match="no one profile"):
        privacy_profile(scheme(participation), GRID)
    with pytest.raises(ParameterError, match="sharp_to"):
        privacy_profile(scheme(EveryStep(1)), GRID, sharp_to=0.0)


def test_lower_bounds_above_upper_bounds_are_refused():
    for lower in ([0.6, 0.1], [math.nan, 0.1]):
        with pytest.raises(NumericalError, match="not ordered"):
            DeltaBounds(np.array([0.0, 1.0]), np.array(lower), np.array([0.5, 0.2]))
