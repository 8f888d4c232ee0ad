"""Privacy filters and odometers: closed forms for Gaussian noise, spending, errors, JSON."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.accounting import epsilon_upper, price
from turnout.accounting.budgets import (
    BudgetTerms,
    Ledger,
    Odometer,
    RenyiFilter,
)
from turnout.accounting.budgets.odometer import mixture_epsilon, renyi_budget
from turnout.core.errors import (
    BudgetExceededError,
    NumericalError,
    ParameterError,
    UnsupportedError,
)
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    PoissonSampling,
    Relation,
    Scheme,
    TableRandomizer,
)

DELTA = 1e-5
TERMS = BudgetTerms(Relation.ADD_REMOVE)


def scheme(sigma, participation=None, relation=Relation.ADD_REMOVE):
    return Scheme(GaussianNoise(sigma), participation or EveryStep(1), relation)


def test_a_renyi_filter_allows_as_many_windows_as_the_best_order_permits():
    start = RenyiFilter.of(TERMS, 2.0, DELTA)
    (order,) = start.odometer.orders
    budget = renyi_budget(2.0, 0.99 * DELTA, order)
    window = scheme(15.0)
    assert start.fits(window) == math.floor(budget / (order / 450))
    # It is the best order for Gaussian noise.
    others = [renyi_budget(2.0, 0.99 * DELTA, a) / (a / 450) for a in (order / 1.2, order * 1.2)]
    assert budget / (order / 450) > max(others)


@pytest.mark.parametrize("participation", [CheckIn(50), PoissonSampling(0.05, 20)])
def test_a_filter_never_allows_more_windows_than_a_fixed_plan(participation):
    window, epsilon = scheme(1.0, participation), 3.0
    start = RenyiFilter.of(TERMS, epsilon, DELTA, expected=window)
    assert 0 < start.fits(window) <= Ledger(TERMS).fits(window, epsilon, DELTA)


def test_a_filter_refuses_a_window_over_budget_and_accepts_a_smaller_one():
    state = RenyiFilter.of(TERMS, 4.0, DELTA)
    count = state.fits(scheme(1.0))
    for _ in range(count):
        state = state.spend(scheme(1.0), "pilot")
    assert state.fits(scheme(1.0)) == 0
    with pytest.raises(BudgetExceededError) as refused:
        state.spend(scheme(1.0))
    assert refused.value.requested > refused.value.remaining >= 0
    small = scheme(40.0)
    assert state.fits(small) > 0
    assert state.spend(small).fits(small) == state.fits(small) - 1
    read = RenyiFilter.from_dict(json.loads(json.dumps(state.to_dict())))
    assert read == state
    assert read.fits(small) == state.fits(small)
    with pytest.raises(ParameterError, match="kind"):
        RenyiFilter.from_dict(state.to_dict() | {"kind": "ledger"})


def test_spend_returns_a_new_filter_and_keeps_the_old_one():
    state = RenyiFilter.of(TERMS, 4.0, DELTA)
    before = state.to_dict()
    later = state.spend(scheme(2.0))
    assert later is not state
    assert state.to_dict() == before
    assert later.fits(scheme(2.0)) == state.fits(scheme(2.0)) - 1


def test_a_filter_refuses_schemes_with_traces_two_neighbour_bounds_or_another_relation():
    state = RenyiFilter.of(TERMS, 4.0, DELTA)
    with pytest.raises(ParameterError, match="relation"):
        state.spend(scheme(1.0, relation=Relation.ZERO_OUT))
    rows = np.ones((2, 4), dtype=np.bool_)
    with pytest.raises(UnsupportedError, match="one bound for all"):
        state.spend(scheme(1.0, AvailabilityCheckIn(rows, 2)))
    replace_one = BudgetTerms(Relation.REPLACE_ONE)
    table = TableRandomizer([0.7, 0.3], [0.5, 0.5])
    with pytest.raises(UnsupportedError, match="two neighbour bounds"):
        replace_one.run_of(Scheme(table, CheckIn(6), Relation.REPLACE_ONE))


def test_a_filter_refuses_more_windows_than_its_maximum():
    window = scheme(20.0, CheckIn(10))
    state = RenyiFilter.of(TERMS, 4.0, DELTA, most_windows=2)
    assert state.fits(window) == 2
    state = state.spend(window).spend(window)
    assert state.fits(window) == 0
    with pytest.raises(BudgetExceededError, match="windows"):
        state.spend(window)


def test_an_odometer_bound_increases_and_is_at_least_the_epsilon_of_the_plan():
    state = Odometer(TERMS)
    assert state.bound(DELTA) == 0
    bounds = []
    for count in range(1, 8):
        state = state.record(scheme(1.0, CheckIn(64)))
        bounds.append(state.bound(DELTA))
        assert bounds[-1] >= price(scheme(1.0, CheckIn(64, count)), DELTA).epsilon.lower
    assert all(a < b for a, b in itertools.pairwise(bounds))
    assert state.bound(1e-4) < state.bound(DELTA)
    assert Odometer.from_dict(json.loads(json.dumps(state.to_dict()))) == state
    assert state.windows == 7


def test_after_n_windows_the_odometer_made_for_n_windows_has_the_smallest_bound():
    window, plan = scheme(1.0, CheckIn(64)), epsilon_upper(scheme(1.0, CheckIn(64, 7)), DELTA)
    states = [Odometer(TERMS), Odometer.of(window, 7, DELTA), Odometer.of(window, 500, DELTA)]
    for _ in range(7):
        states = [state.record(window) for state in states]
    general, made, elsewhere = (state.bound(DELTA) for state in states)
    assert plan < made < 1.3 * plan
    assert made < general < 1.7 * plan
    assert made < elsewhere


def test_an_odometer_with_one_renyi_order_has_the_closed_form_bound():
    for order, total in ((2.0, 0.3), (8.0, 1.0), (33.0, 0.01)):
        found = mixture_epsilon((order,), (1.0,), (total,), DELTA)
        log_c = -math.log(order) + (order - 1) * math.log1p(-1 / order)
        exact = total + (log_c - math.log(DELTA)) / (order - 1)
        assert exact <= found <= exact * (1 + 1e-9)


@settings(max_examples=60)
@given(
    st.lists(st.floats(1e-4, 8.0), min_size=3, max_size=3),
    st.sampled_from([1e-10, 1e-5, 0.01, 0.3]),
)
def test_the_epsilon_of_weighted_renyi_orders_is_the_least_valid_one(totals, delta):
    orders, weights = (1.5, 3.0, 17.0), (0.2, 0.5, 0.3)
    found = mixture_epsilon(orders, weights, tuple(totals), delta)
    losses = np.linspace(found - 1.0, found + 40.0, 40001)
    log_right = np.logaddexp.reduce(
        [
            math.log(w * delta) + (a - 1) * (losses - r)
            for a, w, r in zip(orders, weights, totals, strict=True)
        ]
    )
    left = np.maximum(-np.expm1(found - losses), 0.0)
    assert (np.log(np.maximum(left, 1e-300)) <= log_right + 1e-9).all()
    if found > 1e-3:
        smaller = np.maximum(-np.expm1(found - 1e-2 - losses), 0.0)
        assert (np.log(np.maximum(smaller, 1e-300)) > log_right).any()
    # No order alone with its share does better; the plain minimum would be smaller.
    alone = [
        mixture_epsilon((a,), (w,), (r,), delta)
        for a, w, r in zip(orders, weights, totals, strict=True)
    ]
    assert found <= min(alone) * (1 + 1e-9)


def test_odometers_and_filters_refuse_invalid_parameters():
    with pytest.raises(ParameterError, match="cut tails"):
        Odometer(TERMS, left_out=1e-6, most_windows=1000).bound(1e-4)
    with pytest.raises(ParameterError, match="weights"):
        Odometer(TERMS, (2.0, 3.0), (0.6, 0.6))
    with pytest.raises(ParameterError, match="weights"):
        Odometer(TERMS, (2.0, 3.0), (1.0,))
    with pytest.raises(NumericalError, match="infinite"):
        mixture_epsilon((2.0,), (1.0,), (math.inf,), DELTA)
    with pytest.raises(ParameterError, match="no Rényi order allows any divergence"):
        RenyiFilter.of(TERMS, 1e-4, 1e-9)
    state = Odometer(TERMS, most_windows=1, left_out=1e-9).record(scheme(1.0))
    with pytest.raises(BudgetExceededError, match="windows"):
        state.record(scheme(1.0))


def test_a_filter_whose_odometer_exceeds_its_budget_is_refused():
    odometer = Odometer(TERMS, (8.0,), (1.0,), 1e-12, 10).record(scheme(0.5))
    with pytest.raises(BudgetExceededError):
        RenyiFilter(1.0, DELTA, odometer)
