"""Composition of privacy curves by + and *, and conversion from and to dp-accounting."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from turnout.accounting import price
from turnout.accounting.privacy_curve import PrivacyCurve
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    KaryResponse,
    LaplaceNoise,
    PoissonSampling,
    Relation,
    Scheme,
)
from turnout.schemes.scheme import shuffled

ADD = Relation.ADD_REMOVE


def scheme(law, sigma=1.0, relation=ADD) -> Scheme:
    return Scheme(GaussianNoise(sigma), law, relation)


def test_a_curve_times_three_equals_three_added_curves():
    one = PrivacyCurve.of(scheme(CheckIn(30)))
    other = PrivacyCurve.of(scheme(PoissonSampling(0.1, 5)))
    assert one * 3 == one + one + one == 3 * one
    assert (one + other) * 2 == one * 2 + other * 2
    assert one * 3 != one + one
    assert (one * 3).epsilon(1e-6) == (one + one + one).epsilon(1e-6)


def test_the_sum_of_three_window_curves_equals_a_run_of_three_windows():
    one, run = scheme(CheckIn(30)), scheme(CheckIn(30, 3))
    assert (PrivacyCurve.of(one) * 3).directions(1e-6) == dict(price(run, 1e-6).directions)


def test_epsilon_rises_with_the_number_of_windows():
    week, survey = (
        PrivacyCurve.of(scheme(CheckIn(50))),
        PrivacyCurve.of(Scheme(LaplaceNoise(3.0), EveryStep(1), ADD)),
    )
    both, alone = (week + survey).directions(1e-6), week.directions(1e-6)
    for direction, bounds in both.items():
        assert bounds.lower > alone[direction].upper


def test_a_gaussian_of_dp_accounting_composes_with_turnout_curves():
    ours = PrivacyCurve.of(scheme(EveryStep(1), 2.0))
    plds = [
        pld.from_gaussian_mechanism(
            2.0, value_discretization_interval=1e-3, pessimistic_estimate=side
        )
        for side in (True, False)
    ]
    theirs = PrivacyCurve.from_dp_accounting(plds[0], ADD, plds[1])
    together = (ours + theirs).directions(1e-6)
    truth = PrivacyCurve.of(scheme(EveryStep(2), 2.0)).directions(1e-6)
    for direction, bounds in together.items():
        assert bounds.lower <= truth[direction].lower
        assert truth[direction].upper <= bounds.upper
        assert bounds.upper - bounds.lower <= 5e-3 * bounds.upper


@pytest.mark.parametrize(
    "mine",
    [
        scheme(CheckIn(64)),
        scheme(CheckIn(64, 4)),
        Scheme(ApproximateRandomizer(1.0, 1e-8), CheckIn(100, 2), ADD),
    ],
    ids=["one window", "four windows", "with_infinity_mass"],
)
def test_an_exported_loss_distribution_is_a_sharp_upper_bound(mine):
    mechanism = PrivacyCurve.of(mine)
    exported = mechanism.to_dp_accounting(1e-8)
    bounds = mechanism.epsilon(1e-6)
    found = exported.get_epsilon_for_delta(1e-6)
    assert bounds.lower <= found <= 1.01 * bounds.upper
    composed = exported.compose(
        pld.from_gaussian_mechanism(
            5.0, value_discretization_interval=exported._pmf_remove._discretization
        )
    )
    assert composed.get_epsilon_for_delta(1e-6) > found


@pytest.mark.parametrize(
    ("law", "relation"),
    [
        (CheckIn(30), ADD),
        (PoissonSampling(0.1, 5), Relation.ZERO_OUT),
        (EveryStep(1), Relation.REPLACE_ONE),
    ],
)
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-11])
def test_delta_of_a_curve_is_the_inverse_of_epsilon(law, relation, delta):
    curve = PrivacyCurve.of(scheme(law, relation=relation)) * 2
    epsilon = curve.epsilon(delta)
    assert curve.delta(epsilon.upper).lower <= delta <= curve.delta(epsilon.lower).upper
    assert curve.delta(epsilon.upper).upper == pytest.approx(delta, rel=0.02)


def test_delta_of_one_gaussian_release_equals_the_closed_form():
    curve = PrivacyCurve.of(scheme(EveryStep(1)))
    assert repr(curve) == "PrivacyCurve(1 block; add-remove, client, central)"
    for epsilon in (0.0, 0.5, 3.0):
        bounds = curve.delta(epsilon)
        truth = norm.cdf(0.5 - epsilon) - np.exp(epsilon) * norm.cdf(-0.5 - epsilon)
        assert bounds.lower <= truth * (1 + 1e-12)
        assert truth * (1 - 1e-12) <= bounds.upper <= truth * (1 + 1e-5)
    for refused in (-1.0, 601.0, float("nan")):
        with pytest.raises(ParameterError, match="epsilon"):
            curve.delta(refused)


def test_delta_is_zero_beyond_the_sum_of_local_epsilons():
    curve = PrivacyCurve.of(shuffled(KaryResponse(0.7), clients=20, rounds=3))
    assert curve.delta(2.11) == Bounds(0.0, 0.0)
    assert curve.delta(0.7).lower > 0
    two_bounds = PrivacyCurve.of(scheme(EveryStep(1), relation=Relation.REPLACE_ONE))
    assert two_bounds.delta(3.0).lower > 0


def test_invalid_compositions_of_curves_are_refused():
    one = PrivacyCurve.of(scheme(CheckIn(30)))
    with pytest.raises(ParameterError, match="replace-one"):
        one + PrivacyCurve.of(scheme(CheckIn(30), relation=Relation.REPLACE_ONE))
    with pytest.raises(ParameterError, match="times"):
        one * 0
    with pytest.raises(ParameterError, match="pessimistic"):
        PrivacyCurve.from_dp_accounting(
            pld.from_laplace_mechanism(1.0, pessimistic_estimate=False), ADD
        )
    with pytest.raises(UnsupportedError, match="trace"):
        PrivacyCurve.of(scheme(AvailabilityCheckIn(np.ones((2, 4), dtype=bool), 2)))
