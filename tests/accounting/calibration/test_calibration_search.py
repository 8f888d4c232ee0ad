"""Calibration search on known cost functions: private side, nearest value, few evaluations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turnout.accounting.bisection import (
    DELTA,
    UNKNOWNS,
    BisectionSearch,
    CostModel,
    CostTarget,
    Unknown,
    log_gaussian_mu,
)
from turnout.core.errors import NumericalError

TOLERANCE = 1e-4
DEMO = Unknown("demo", False, 1e-6, 1e6, start=1.0, power=1.0)


def searched(unknown, cost, epsilon=1.0, most=10):
    model = CostModel(unknown, CostTarget(cost, epsilon, lambda _: 1e-6), -unknown.power)
    search = BisectionSearch(model, TOLERANCE)
    search.run(lambda s: s.met is not None and s.evaluations >= most, unknown.start)
    return search


@given(
    unknown=st.sampled_from([*UNKNOWNS.values(), DEMO]),
    root=st.floats(0.01, 0.99),
    power=st.floats(0.5, 2.0),
    curvature=st.floats(-0.02, 0.02),
)
def test_a_search_returns_the_more_private_end_of_its_bracket(unknown, root, power, curvature):
    span = math.log(unknown.most / unknown.least)
    answer = unknown.least * math.exp(span * root)
    assume(1e-4 < answer < 1e5)
    sign = -1 if unknown.falling else 1

    def cost(value):
        distance = math.log(value / answer)
        slope = unknown.power * power + curvature * abs(distance)
        return math.exp(sign * max(slope, 0.2 * unknown.power) * distance)

    search = searched(unknown, cost, most=40)
    met, missed = search.met, search.missed
    assert met is not None
    assert cost(met.value) <= 1.0
    if missed is None:  # the limit of the search itself meets the target
        assert met.value == unknown.costly_limit
    elif unknown.whole:
        assert cost(missed.value) > 1.0
        assert missed.value == met.value + sign
    else:
        assert cost(missed.value) > 1.0
        assert abs(math.log(met.value / missed.value)) <= TOLERANCE


@given(st.floats(-8.0, 8.0), st.floats(0.7, 1.5))
def test_a_search_needs_few_evaluations_if_epsilon_is_a_power_of_the_noise(log_answer, power):
    search = searched(DEMO, lambda value: (value / math.exp(log_answer)) ** power)
    assert search.evaluations <= 8
    assert search.missed is not None
    assert search.missed.position > -math.inf


@given(st.integers(2, 900_000), st.floats(0.0, 1e-4), st.integers(0, 2**32))
def test_non_monotone_bounds_never_lead_to_a_value_above_the_target(answer, unevenness, seed):
    unknown = UNKNOWNS["windows"]

    def cost(value):
        noise = math.sin(value * 12.9898 + seed) * unevenness
        return math.sqrt(value / answer) * (1 + noise)

    search = searched(unknown, cost)
    assert search.met is not None
    assert cost(search.met.value) <= 1.0
    assert search.evaluations <= 10
    if search.missed is not None:
        assert cost(search.missed.value) > 1.0
        assert search.missed.value > search.met.value


def test_a_search_whose_limit_meets_the_target_ends_at_once():
    probability = UNKNOWNS["probability"]
    search = searched(probability, lambda value: 0.3 * value)
    assert (search.met.value, search.missed, search.evaluations) == (1.0, None, 1)


def test_a_search_whose_limit_misses_the_target_has_no_result():
    search = searched(UNKNOWNS["windows"], lambda value: 2.0 + value)
    assert search.met is None
    assert search.missed.value == 1
    assert search.evaluations == 1
    search = searched(UNKNOWNS["window"], lambda value: 2.0 + 1 / value)
    assert search.met is None
    assert search.missed.value == 10**7


@pytest.mark.parametrize("border", [0.5, 0.031, 7.0])
def test_values_without_a_certified_bound_count_as_above_the_target(border):
    def cost(sigma):
        if sigma < border:
            raise NumericalError("no")
        return 0.2 / sigma

    search = searched(UNKNOWNS["noise-multiplier"], cost, most=60)
    assert search.met.value == pytest.approx(max(border, 0.2), rel=2e-4)
    assert cost(search.met.value) <= 1.0


def test_a_search_accepts_values_at_which_epsilon_is_zero():
    """Where δ alone suffices, ε is 0 and gives no distance to the target."""
    search = searched(UNKNOWNS["rate"], lambda rate: max(0.0, 100 * rate - 5), most=20)
    assert search.met.value == pytest.approx(0.06, rel=2e-4)
    assert search.met.value <= 0.06


def test_a_search_over_a_step_function_ends_at_the_exact_whole_number():
    cost = {t: 10.0 / (t // 7) for t in range(7, 10_000)}
    window = replace(UNKNOWNS["window"], least=7, most=9_999)
    search = searched(window, cost.__getitem__, most=40)
    assert (search.met.value, search.missed.value) == (70, 69)


@pytest.mark.parametrize(
    ("unknown", "value", "printed"),
    [
        (UNKNOWNS["windows"], 14.99, 14),
        (UNKNOWNS["window"], 14.01, 15),
        (UNKNOWNS["windows"], 14.0, 14),
        (UNKNOWNS["window"], 14.0, 14),
        (UNKNOWNS["windows"], 0.2, 1),
        (UNKNOWNS["noise-multiplier"], 1.23456789, 1.23457),
        (UNKNOWNS["probability"], 7.0, 1.0),
        (DELTA, 1.23456789e-9, 1.23457e-9),
    ],
)
def test_values_of_a_search_are_rounded_to_the_printed_digits(unknown, value, printed):
    assert unknown.value(unknown.position(value)) == printed


@pytest.mark.parametrize(("mu", "delta"), [(0.1, 1e-6), (1.0, 1e-3), (3.0, 1e-12), (20.0, 1e-5)])
def test_the_search_cost_of_a_gaussian_mechanism_is_its_mu(mu, delta):
    from mpmath import erfc, exp, mp, mpf, sqrt

    def gap(epsilon):
        def tail(z):
            return erfc(z / sqrt(2)) / 2

        return tail(epsilon / mu - mpf(mu) / 2) - exp(epsilon) * tail(epsilon / mu + mpf(mu) / 2)

    with mp.workdps(40):
        low, high = mpf(0), mpf(mu * mu / 2 + 10 * mu)
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if gap(middle) > delta else (low, middle)
    assert log_gaussian_mu(float(high), delta) == pytest.approx(math.log(mu), abs=1e-6)
