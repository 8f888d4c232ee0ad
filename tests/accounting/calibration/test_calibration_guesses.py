"""First guess of a calibration: it is near the result, and the result does not depend on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnout.accounting import UNKNOWNS, calibrate, calibrate_delta, epsilon_upper
from turnout.accounting.calibration import DELTA as DELTA_UNKNOWN
from turnout.accounting.calibration import guessed_delta, with_guessed_start
from turnout.schemes import (
    EveryStep,
    GaussianNoise,
    PureRandomizer,
    Relation,
    Scheme,
    SpeakingOrder,
    TrustModel,
)

DELTA = 1e-6


def shuffle(epsilon0=1.0, clients=10_000, rounds=1):
    return Scheme(
        PureRandomizer(epsilon0),
        EveryStep(rounds),
        Relation.REPLACE_ONE,
        trust=TrustModel.SHUFFLED,
        population=clients,
        order=SpeakingOrder.HIDDEN,
    )


def by(name):
    """A scheme as a function of one parameter."""
    return lambda value: shuffle(**{name: value})


CASES = [
    ("epsilon0", "epsilon0", 0.02),
    ("rounds", "rounds", 1.0),
    ("clients", "clients", 0.2),
]


@pytest.mark.parametrize(("name", "parameter", "epsilon"), CASES)
def test_first_guess_of_a_calibration_is_near_the_result(name, parameter, epsilon):
    unknown = with_guessed_start(by(parameter), UNKNOWNS[name], epsilon, DELTA)
    found = calibrate(by(parameter), unknown, epsilon, DELTA)
    assert unknown.start == pytest.approx(found.value, rel=0.05)
    assert found.evaluations <= 6


@pytest.mark.parametrize(("name", "parameter", "epsilon"), CASES)
@pytest.mark.parametrize("factor", [0.1, 30])
def test_a_bad_first_guess_does_not_change_the_result(name, parameter, epsilon, factor):
    unknown = with_guessed_start(by(parameter), UNKNOWNS[name], epsilon, DELTA)
    good = calibrate(by(parameter), unknown, epsilon, DELTA)
    start = max(unknown.start * factor, unknown.least)
    start = int(start) if unknown.whole else start
    bad = calibrate(by(parameter), replace(unknown, start=start), epsilon, DELTA)
    assert bad.epsilon <= epsilon
    assert epsilon_upper(by(parameter)(bad.value), DELTA) == bad.epsilon
    assert bad.value == pytest.approx(good.value, rel=5e-4)


def test_the_first_guess_is_near_the_result_also_if_amplification_is_not_needed():
    """One message of ε₀ = 5 meets ε = 5; the first guess must not be the limit, 300."""
    unknown = with_guessed_start(by("epsilon0"), UNKNOWNS["epsilon0"], 5.0, DELTA)
    assert 3 < unknown.start < 12
    assert calibrate(by("epsilon0"), unknown, 5.0, DELTA).value >= 5.0 * (1 - 1e-4)


def test_the_first_guess_for_an_unreachable_target_is_the_default():
    unknown = UNKNOWNS["rounds"]
    assert with_guessed_start(lambda n: shuffle(6.0, 100, int(n)), unknown, 1e-3, DELTA) == unknown


@pytest.mark.parametrize("epsilon", [0.05, 0.12])
def test_the_search_for_delta_starts_near_the_result(epsilon):
    near = guessed_delta(shuffle(), epsilon)
    found = calibrate_delta(shuffle(), epsilon, unknown=near)
    assert found.epsilon <= epsilon
    assert found.evaluations <= 7
    assert 0.1 < near.start / found.value < 10
    far = calibrate_delta(shuffle(), epsilon)
    if far.refused is not None:
        assert far.value == pytest.approx(found.value, rel=2e-2)


def test_calibrated_delta_of_gaussian_noise_equals_the_closed_form():
    scheme = Scheme(GaussianNoise(20.0), EveryStep(1), Relation.ADD_REMOVE)
    near = guessed_delta(scheme, 0.1)
    assert near == replace(DELTA_UNKNOWN, start=near.start)
    assert near.start == pytest.approx(calibrate_delta(scheme, 0.1).value, rel=0.05)
