"""Filters and odometers: closed forms for Gaussian noise, accounts, refusals, what is written."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from turnout.accounting import epsilon_upper, price
from turnout.accounting.budgets import (
    GaussianFilter,
    Ledger,
    MenuFilter,
    MenuItem,
    Odometer,
    RenyiFilter,
    Terms,
    filter_for,
)
from turnout.accounting.budgets.gaussian_filter import block_charge
from turnout.accounting.budgets.odometer import mixture_epsilon, renyi_budget
from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.laws.check_ins.block import AllocationBlock
from turnout.core.errors import (
    BudgetExceededError,
    NumericalError,
    ParameterError,
    UnsupportedError,
)
from turnout.spec import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    Scheme,
)

DELTA = 1e-5
TERMS = Terms(Relation.ADD_REMOVE)


def scheme(sigma, law=None, relation=Relation.ADD_REMOVE):
    return Scheme(GaussianNoise(sigma), law or EveryStep(1), relation)


def gaussian_delta(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def every_filter(epsilon=4.0, delta=DELTA):
    menu = [MenuItem(scheme(2.0)), MenuItem(scheme(1.0), 4)]
    return [
        RenyiFilter.of(TERMS, epsilon, delta),
        GaussianFilter.of(TERMS, epsilon, delta),
        MenuFilter.within(menu, epsilon, delta),
    ]


def test_a_gaussian_filter_allows_what_a_plan_of_gaussian_noise_may_cost():
    start = GaussianFilter.of(TERMS, 2.0, DELTA)
    mu = math.sqrt(start.budget)
    assert gaussian_delta(mu, 2.0) <= DELTA
    assert gaussian_delta(mu * 1.003, 2.0) > DELTA
    # σ's in any order, whatever they were chosen from: only Σμ² counts.
    state = start
    for sigma in (9.0, 30.0, 12.0):
        state = state.spend(scheme(sigma))
    assert state.spent == pytest.approx(1 / 81 + 1 / 900 + 1 / 144, rel=1e-9)
    assert state.fits(scheme(20.0)) == math.floor((start.budget - state.spent) * 400 * (1 - 1e-9))


def test_a_renyi_filter_allows_what_its_order_says():
    start = RenyiFilter.of(TERMS, 2.0, DELTA)
    (order,) = start.odometer.orders
    budget = renyi_budget(2.0, 0.99 * DELTA, order)
    window = scheme(15.0)
    assert start.fits(window) == math.floor(budget / (order / 450))
    # It is the best order for Gaussian noise.
    others = [renyi_budget(2.0, 0.99 * DELTA, a) / (a / 450) for a in (order / 1.2, order * 1.2)]
    assert budget / (order / 450) > max(others)


def greedy_delta(epsilon: float, budget: float, share) -> float:
    """δ of two Gaussian steps, the second one's μ² a share of what is left that the first decides.

    By quadrature over the first step's privacy loss under P; remove direction.
    """
    first = 0.4 * budget
    scores = np.linspace(-12, 12, 20001)
    chance = np.exp(-(scores**2) / 2) / math.sqrt(2 * math.pi)
    losses = math.sqrt(first) * scores + first / 2
    second = np.sqrt((budget - first) * share(losses))
    inner = np.where(
        second > 0,
        gaussian_delta(np.maximum(second, 1e-12), epsilon - losses),
        np.maximum(1 - np.exp(epsilon - losses), 0.0),
    )
    return float(np.trapezoid(chance * inner, scores))


def test_no_choice_of_later_noise_beats_gaussian_noise_spent_at_once():
    epsilon, budget = 1.0, 0.25
    whole = float(gaussian_delta(math.sqrt(budget), epsilon))
    everything = greedy_delta(epsilon, budget, np.ones_like)
    assert everything == pytest.approx(whole, rel=1e-6)
    for threshold in (-0.5, 0.0, 0.3, 0.6):
        for side in (np.greater, np.less):
            part = greedy_delta(epsilon, budget, partial(side, threshold))
            assert part <= whole * (1 + 1e-9)
    # Adding up μ's instead of squares would not bound it.
    naive = float(gaussian_delta(math.sqrt(0.4 * budget), epsilon))
    assert everything > 2 * naive


@pytest.mark.parametrize(
    ("sigma", "window", "probability"), [(1.0, 64, 1.0), (2.0, 1000, 1.0), (0.8, 30, 0.3)]
)
def test_a_window_lies_under_its_gaussian_but_for_the_cut(sigma, window, probability):
    block = AllocationBlock(GaussianPair(sigma), window, probability)
    cut = 1e-7
    charge = block_charge(block, cut)
    assert charge.left_out <= cut
    epsilons = np.linspace(0.0, 8.0, 997)
    mu = math.sqrt(charge.square)
    gaussian = cut + (1 - cut) * gaussian_delta(mu, epsilons)
    smaller = cut + (1 - cut) * gaussian_delta(0.98 * mu, epsilons)
    highest = -math.inf
    for direction in Direction:
        for hint in (1e-1, 1e-3, 1e-5, 1e-6, 3e-7, 1.3e-7):
            lower = block.curve(direction, Side.LOWER, hint, 1).delta(np.exp(epsilons))
            assert (lower <= gaussian * (1 + 1e-9)).all()
            highest = max(highest, float((lower - smaller).max()))
    assert highest > 0  # two percent less would not do


@pytest.mark.parametrize("law", [CheckIn(50), PoissonSampling(0.05, 20)])
def test_filters_never_allow_more_than_a_plan_may(law):
    window = scheme(1.0, law)
    epsilon = 3.0
    allowed = Ledger(TERMS).fits(window, epsilon, DELTA)
    for start in (
        RenyiFilter.of(TERMS, epsilon, DELTA, expected=window),
        GaussianFilter.of(TERMS, epsilon, DELTA),
        MenuFilter.within([MenuItem(window)], epsilon, DELTA),
    ):
        assert start.fits(window) <= allowed
        assert start.fits(window) > 0 or isinstance(start, GaussianFilter)
    # A menu of one item is a plan.
    assert start.fits(window) >= 0.98 * allowed - 1


def test_a_menu_whose_worst_item_is_plain_costs_what_that_item_costs():
    menu = [MenuItem(scheme(s, CheckIn(t))) for s, t in ((1.0, 20), (1.5, 20), (1.0, 60))]
    found = MenuFilter.of_units(menu, 8, DELTA).epsilon
    plan = price(scheme(1.0, CheckIn(20, 8)), DELTA).epsilon
    assert plan.lower <= found <= plan.upper * 1.01


def test_an_item_may_be_several_windows_at_once():
    found = MenuFilter.of_units([MenuItem(scheme(1.0, CheckIn(20, 4)))], 2, DELTA).epsilon
    plan = price(scheme(1.0, CheckIn(20, 8)), DELTA).epsilon
    assert plan.lower <= found <= plan.upper * 1.01


def test_what_is_run_before_is_composed_exactly():
    before = Ledger(TERMS).add(scheme(2.0, CheckIn(40, 5)))
    menu = MenuFilter.of_units([MenuItem(scheme(2.0, CheckIn(40)))], 3, DELTA, before=before)
    whole = epsilon_upper(scheme(2.0, CheckIn(40, 8)), DELTA)
    assert menu.epsilon == pytest.approx(whole, rel=0.01)
    rest = GaussianFilter.of(TERMS, 2.0, DELTA, before=before)
    after = before.add(scheme(1 / math.sqrt(rest.budget), EveryStep(1)))
    assert 1.98 < after.epsilon(0.99 * DELTA) <= 2.0
    assert rest.budget < GaussianFilter.of(TERMS, 2.0, DELTA).budget
    with pytest.raises(BudgetExceededError):
        GaussianFilter.of(TERMS, 0.9 * before.epsilon(DELTA), DELTA, before=before)


@pytest.mark.parametrize("index", range(3))
def test_a_window_is_refused_before_it_runs_and_a_smaller_one_may_still_fit(index):
    state = every_filter()[index]
    count = state.fits(scheme(1.0))
    for _ in range(count):
        state = state.spend(scheme(1.0), "pilot")
    assert state.fits(scheme(1.0)) == 0
    with pytest.raises(BudgetExceededError) as refused:
        state.spend(scheme(1.0))
    assert refused.value.requested > refused.value.remaining >= 0
    small = 2.0 if index == 2 else 40.0
    if state.fits(scheme(small)):
        assert state.spend(scheme(small)).fits(scheme(small)) == state.fits(scheme(small)) - 1
    read = type(state).from_dict(json.loads(json.dumps(state.to_dict())))
    assert read == state
    assert read.fits(scheme(small)) == state.fits(scheme(small))
    with pytest.raises(ParameterError, match="kind"):
        type(state).from_dict(state.to_dict() | {"kind": "ledger"})


@pytest.mark.parametrize("index", range(3))
def test_spending_changes_no_filter(index):
    state = every_filter()[index]
    before = state.to_dict()
    later = state.spend(scheme(2.0))
    assert later is not state
    assert state.to_dict() == before
    assert later.fits(scheme(2.0)) == state.fits(scheme(2.0)) - 1


@pytest.mark.parametrize("index", range(3))
def test_other_terms_and_two_hops_are_refused(index):
    state = every_filter()[index]
    with pytest.raises(ParameterError, match="relation"):
        state.spend(scheme(1.0, relation=Relation.ZERO_OUT))
    rows = np.ones((2, 4), dtype=np.bool_)
    with pytest.raises(UnsupportedError, match="one account for all"):
        state.spend(scheme(1.0, AvailabilityCheckIn(rows, 2)))
    replace_one = Terms(Relation.REPLACE_ONE)
    with pytest.raises(UnsupportedError, match="two hops"):
        replace_one.run_of(scheme(1.0, KSubset(6, 2), Relation.REPLACE_ONE))


@pytest.mark.parametrize("index", range(2))
def test_more_windows_than_their_cuts_were_paid_for_are_refused(index):
    window = scheme(20.0, CheckIn(10))
    state = [
        RenyiFilter.of(TERMS, 4.0, DELTA, most_windows=2),
        GaussianFilter.of(TERMS, 4.0, DELTA, most_windows=2),
    ][index]
    assert state.fits(window) == 2
    state = state.spend(window).spend(window)
    assert state.fits(window) == 0
    with pytest.raises(BudgetExceededError, match="windows"):
        state.spend(window)


def test_a_menu_takes_what_is_proved_to_cost_no_more():
    menu = [MenuItem(scheme(1.0, CheckIn(20)), 3), MenuItem(scheme(2.0, CheckIn(50, 1, 0.5)))]
    state = MenuFilter.of_units(menu, 6, DELTA)
    assert state.charge(scheme(1.2, CheckIn(25, 1, 0.9))).cost == 3
    assert state.charge(scheme(2.5, CheckIn(50, 1, 0.5))).cost == 1
    for costlier in (scheme(0.9, CheckIn(20)), scheme(1.0, CheckIn(19)), scheme(5.0, EveryStep(1))):
        with pytest.raises(ParameterError, match="item of the menu"):
            state.spend(costlier)
    with pytest.raises(ParameterError, match="item of the menu"):
        state.spend(scheme(1.0, CheckIn(20, 2)))


def test_a_menu_within_a_budget_is_the_largest_that_fits():
    menu = [MenuItem(scheme(4.0, CheckIn(10))), MenuItem(scheme(2.0, CheckIn(10)), 3)]
    start = MenuFilter.within(menu, 2.0, DELTA)
    assert MenuFilter.of_units(menu, start.units, DELTA).epsilon <= 2.0
    assert MenuFilter.of_units(menu, start.units + 1, DELTA).epsilon > 2.0
    with pytest.raises(BudgetExceededError):
        MenuFilter.within([MenuItem(scheme(0.5))], 1.0, DELTA)
    with pytest.raises(ParameterError, match="at least one item"):
        MenuFilter.within([], 1.0, DELTA)


def test_the_filter_that_suits_is_chosen():
    assert isinstance(filter_for(scheme(20.0), 1.0, DELTA), GaussianFilter)
    assert isinstance(filter_for(scheme(1.0, CheckIn(1000)), 1.0, DELTA), RenyiFilter)
    assert isinstance(filter_for(scheme(300.0), 1e-3, 0.3), GaussianFilter)


def test_an_odometer_rises_and_stays_above_the_plans_price():
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


def test_an_odometer_made_for_a_run_is_sharper_there():
    window, plan = scheme(1.0, CheckIn(64)), epsilon_upper(scheme(1.0, CheckIn(64, 7)), DELTA)
    states = [Odometer(TERMS), Odometer.of(window, 7, DELTA), Odometer.of(window, 500, DELTA)]
    for _ in range(7):
        states = [state.record(window) for state in states]
    general, made, elsewhere = (state.bound(DELTA) for state in states)
    assert plan < made < 1.3 * plan
    assert made < general < 1.7 * plan
    assert made < elsewhere


def test_one_order_of_an_odometer_is_a_renyi_filters_bound():
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
def test_the_mixtures_epsilon_is_the_least_that_holds_at_every_loss(totals, delta):
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


def test_an_odometer_refuses_what_it_cannot_promise():
    with pytest.raises(ParameterError, match="cut tails"):
        Odometer(TERMS, left_out=1e-6, most_windows=1000).bound(1e-4)
    with pytest.raises(ParameterError, match="weights"):
        Odometer(TERMS, (2.0, 3.0), (0.6, 0.6))
    with pytest.raises(ParameterError, match="weights"):
        Odometer(TERMS, (2.0, 3.0), (1.0,))
    with pytest.raises(NumericalError, match="infinite"):
        mixture_epsilon((2.0,), (1.0,), (math.inf,), DELTA)
    with pytest.raises(ParameterError, match="enough for a Rényi filter"):
        RenyiFilter.of(TERMS, 1e-4, 1e-9)
    state = Odometer(TERMS, most_windows=1, left_out=1e-9).record(scheme(1.0))
    with pytest.raises(BudgetExceededError, match="windows"):
        state.record(scheme(1.0))


def test_a_filter_over_its_budget_cannot_be_built():
    odometer = Odometer(TERMS, (8.0,), (1.0,), 1e-12, 10).record(scheme(0.5))
    with pytest.raises(BudgetExceededError):
        RenyiFilter(1.0, DELTA, odometer)


def test_a_budget_larger_than_epsilon_allows_is_refused():
    start = GaussianFilter.of(TERMS, 1.0, DELTA)
    assert replace(start, budget=0.5 * start.budget).fits(scheme(20.0)) > 0
    with pytest.raises(ParameterError, match="keeps"):
        replace(start, budget=1.02 * start.budget)
    half = start.spend(scheme(1.5 / math.sqrt(start.budget)))
    with pytest.raises(BudgetExceededError):
        replace(half, budget=0.1 * start.budget)


def test_gaussian_blocks_are_charged_exactly_and_at_once():
    assert block_charge(PairBlock(GaussianPair(4.0)), 1e-9).square == pytest.approx(1 / 16)
    assert block_charge(PairBlock(GaussianPair(4.0)), 1e-9).left_out == 0
    ten = GaussianFilter.of(TERMS, 1.0, DELTA).charge(scheme(4.0, EveryStep(10)))
    assert ten.square == pytest.approx(10 / 16)
