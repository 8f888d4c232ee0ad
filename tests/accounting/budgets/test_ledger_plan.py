"""Ledgers of phases that are fixed in advance: spent ε and remaining budget."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from turnout.accounting import epsilon_upper, price
from turnout.accounting.budgets import BudgetPhase, BudgetTerms, Ledger, remaining, running, spent
from turnout.accounting.budgets.plan import largest
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
    FixedSize,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
    SlidingWindow,
)
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict

DELTA = 1e-5
TERMS = BudgetTerms(Relation.ADD_REMOVE)


def scheme(sigma, participation, relation=Relation.ADD_REMOVE, release=ReleaseRule.AGGREGATED):
    return Scheme(GaussianNoise(sigma), participation, relation, release)


def gaussian_epsilon(mu: float, delta: float) -> float:
    def excess(epsilon):
        upper = ndtr(mu / 2 - epsilon / mu)
        return upper - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - delta

    return cast(float, brentq(excess, 0.0, 200.0, xtol=1e-13))


def test_squared_sensitivities_of_gaussian_phases_add_up():
    ledger = Ledger(TERMS).add(scheme(3.0, EveryStep(4))).add(scheme(5.0, EveryStep(9)), steps=7)
    exact = gaussian_epsilon(math.sqrt(4 / 9 + 7 / 25), DELTA)
    found = ledger.epsilon(DELTA)
    assert exact <= found <= 1.003 * exact
    # ε's themselves do not add up.
    assert found < 0.8 * sum(Ledger(TERMS, (phase,)).epsilon(DELTA) for phase in ledger.phases)


@pytest.mark.parametrize(
    "participation", [CheckIn(20, 6, 0.4), PoissonSampling(0.1, 60), KSubset(8, 2, 6)]
)
def test_a_plan_split_into_phases_has_the_epsilon_of_the_whole_plan(participation):
    halved = {"windows": 3} if hasattr(participation, "windows") else {"steps": 30}
    half = scheme(1.5, replace(participation, **halved))
    pieces = Ledger(TERMS).add(half).add(half)
    whole = epsilon_upper(scheme(1.5, participation), DELTA)
    assert pieces.epsilon(DELTA) == pytest.approx(whole, rel=1e-9)


def test_two_different_phases_have_less_epsilon_than_two_of_the_costlier_phase():
    mild, harsh = scheme(3.0, CheckIn(100, 3)), scheme(1.0, CheckIn(40, 3))
    ledger = Ledger(TERMS).add(mild).add(harsh)
    alone = [Ledger(TERMS).add(part).epsilon(DELTA) for part in (mild, harsh)]
    twice = epsilon_upper(scheme(1.0, CheckIn(40, 6)), DELTA)
    assert max(alone) < ledger.epsilon(DELTA) < min(sum(alone), twice)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("release", [ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT])
def test_equal_phases_compose_under_every_relation_and_release(relation, release):
    twice = Ledger(BudgetTerms(relation))
    for _ in range(2):
        twice = twice.add(scheme(2.0, CheckIn(2, 1), relation, release))
    whole = epsilon_upper(scheme(2.0, CheckIn(2, 2), relation, release), DELTA)
    assert twice.epsilon(DELTA) == pytest.approx(whole, rel=1e-9)


def test_phases_with_one_and_with_two_neighbour_bounds_compose():
    relation = Relation.REPLACE_ONE
    two, one = scheme(3.0, CheckIn(100, 2), relation), scheme(3.0, EveryStep(1), relation)
    ledger = Ledger(BudgetTerms(relation)).add(two).add(one)
    # The Gaussian step alone moves by 2C, as two steps at σ/2 under add-remove would.
    assert ledger.epsilon(DELTA) > max(epsilon_upper(s, DELTA) for s in (two, one))
    assert ledger.epsilon(DELTA) <= epsilon_upper(two, DELTA / 2) + epsilon_upper(one, DELTA / 40)


def test_an_empty_ledger_has_epsilon_zero():
    assert Ledger(TERMS).epsilon(DELTA) == 0
    assert Ledger(TERMS).add(scheme(1.0, CheckIn(5)), steps=0).epsilon(DELTA) == 0


def test_a_trace_composed_with_another_phase_is_refused():
    rows = np.array([[1, 0, 1, 1], [1, 1, 0, 1]], dtype=np.bool_)
    alone = Ledger(TERMS).add(scheme(2.0, AvailabilityCheckIn(rows, 2)))
    assert alone.epsilon(DELTA) == epsilon_upper(alone.phases[0].scheme, DELTA)
    with pytest.raises(UnsupportedError, match="cannot be composed with other phases"):
        alone.add(scheme(2.0, CheckIn(2))).epsilon(DELTA)


def test_a_phase_with_another_relation_or_too_many_steps_is_refused():
    with pytest.raises(ParameterError, match="'add-remove', as in the ledger"):
        Ledger(TERMS).add(scheme(1.0, CheckIn(5), Relation.ZERO_OUT))
    with pytest.raises(ParameterError, match="at most the scheme's steps = 5"):
        Ledger(TERMS).add(scheme(1.0, CheckIn(5)), steps=6)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_fits_returns_the_largest_number_of_windows_within_the_budget(epsilon):
    window = scheme(1.2, CheckIn(30))
    done = Ledger(TERMS).add(scheme(2.0, CheckIn(50, 2)))
    count = done.fits(window, epsilon, DELTA)
    assert count > 0
    assert done.add(scheme(1.2, CheckIn(30, count))).epsilon(DELTA) <= epsilon
    assert done.add(scheme(1.2, CheckIn(30, count + 1))).epsilon(DELTA) > epsilon
    assert done.fits(window, epsilon, DELTA, most=max(count - 1, 1)) == max(count - 1, 1)
    assert done.fits(scheme(1.2, CheckIn(30, 2)), epsilon, DELTA) == count // 2


def test_a_spent_budget_fits_no_further_window():
    done = Ledger(TERMS).add(scheme(1.0, CheckIn(10, 5)))
    assert done.fits(scheme(9.0, CheckIn(10)), 0.5 * done.epsilon(DELTA), DELTA) == 0
    with pytest.raises(BudgetExceededError) as refused:
        done.require(0.5, DELTA)
    assert refused.value.remaining == 0.5
    assert refused.value.requested == done.epsilon(DELTA)


def test_the_least_noise_of_a_further_phase_keeps_epsilon_within_the_budget():
    done = Ledger(TERMS).add(scheme(3.0, CheckIn(50, 2)))

    def further(sigma):
        return scheme(sigma, CheckIn(25, 4))

    sigma = done.noise(further, 2.0, DELTA)
    assert done.add(further(sigma)).epsilon(DELTA) <= 2.0
    assert done.add(further(sigma * (1 - 5e-4))).epsilon(DELTA) > 2.0
    assert sigma == float(f"{sigma:.6g}")
    with pytest.raises(BudgetExceededError):
        done.noise(further, 0.5 * done.epsilon(DELTA), DELTA)
    with pytest.raises(UnsupportedError, match="no noise multiplier"):
        done.noise(lambda sigma: scheme(sigma, EveryStep(10**12)), 2.0, DELTA)


def test_remaining_returns_the_spent_epsilon_and_the_windows_and_noise_left():
    plan = scheme(1.5, CheckIn(10, 4))
    state = remaining(plan, 15, 2.5, DELTA)
    assert state.spent == pytest.approx(spent(plan, DELTA, [15])[0], rel=1e-4)
    assert state.whole == epsilon_upper(plan, DELTA)
    begun = Ledger(TERMS).add(scheme(1.5, CheckIn(10, 2)))  # the second window has begun
    assert state.windows == begun.fits(scheme(1.5, CheckIn(10)), 2.5, DELTA)
    rest = begun.add(scheme(state.noise_multiplier, CheckIn(10, 2)))
    assert 2.49 < rest.epsilon(DELTA) <= 2.5
    assert remaining(plan, 0, 2.5, DELTA).spent == 0
    ended = remaining(plan, 40, 2.5, DELTA)
    assert ended.noise_multiplier is None
    assert ended.spent == ended.whole
    with pytest.raises(BudgetExceededError):
        remaining(plan, 35, 0.3, DELTA)


def test_remaining_refuses_a_plan_of_unequal_windows():
    with pytest.raises(UnsupportedError, match="not a sequence of equal windows"):
        remaining(scheme(1.0, SlidingWindow(5, 20)), 3, 2.0, DELTA)


PARTICIPATIONS = [
    EveryStep(3),
    PoissonSampling(0.2, 5),
    SelfSampling(0.1, 5),
    FixedSize(3, 10, 4),
    CheckIn(10, 2, 0.5),
    SlidingWindow(5, 20, 3),
    KSubset(6, 2, 3),
]


@pytest.mark.parametrize("participation", PARTICIPATIONS)
def test_schemes_round_trip_through_json(participation):
    written = scheme(1.25, participation, Relation.ZERO_OUT, ReleaseRule.ONE_CLIENT)
    assert scheme_from_dict(json.loads(json.dumps(scheme_to_dict(written)))) == written


def test_schemes_with_availability_traces_round_trip_through_json():
    rows = np.array([[1, 0, 1], [0, 0, 1]], dtype=np.bool_)
    written = scheme(1.0, AvailabilityCheckIn(rows, 2, 0.5))
    read = scheme_from_dict(json.loads(json.dumps(scheme_to_dict(written))))
    assert isinstance(read.participation, AvailabilityCheckIn)
    assert read.participation.available.dtype == np.bool_
    assert (read.participation.available == rows).all()
    assert read.participation.probability == 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"is": "Nonsense"},
        {"is": "CheckIn", "window": 3},
        {"surprise": 1},
        {"participation": {"is": "CheckIn", "window": 0}},
        {"relation": {"is": "Relation", "value": "made-up"}},
        {"is": None},
    ],
)
def test_a_dictionary_of_an_invalid_scheme_is_refused(change):
    data = scheme_to_dict(scheme(1.0, CheckIn(5))) | change
    with pytest.raises(ParameterError):
        scheme_from_dict(data)


def test_a_ledger_round_trips_through_json():
    ledger = Ledger(TERMS).add(scheme(1.0, CheckIn(5, 3)), steps=7, label="pilot")
    ledger = ledger.add(scheme(2.0, PoissonSampling(0.1, 9)))
    read = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert read == ledger
    assert read.phases[0] == BudgetPhase(scheme(1.0, CheckIn(5, 3)), 7, "pilot")


def test_a_smaller_bound_of_a_later_step_is_used_for_earlier_steps():
    jagged = {1: 0.5, 2: 0.9, 3: 0.8, 4: 1.0}
    assert running(jagged.__getitem__, [0, 2, 1, 3, 4]) == [0.0, 0.8, 0.5, 0.8, 1.0]
    assert running(jagged.__getitem__, [4, 1], whole=0.7) == [0.7, 0.5]


def test_a_step_without_a_bound_gets_the_bound_of_the_next_step():
    def bound(step):
        if step in (2, 3):
            raise NumericalError("not certified")
        return float(step)

    assert running(bound, [1, 2, 3, 4]) == [1.0, 4.0, 4.0, 4.0]
    assert running(bound, [1, 2, 3], whole=3.5) == [1.0, 3.5, 3.5]
    with pytest.raises(NumericalError, match="not certified"):
        running(bound, [1, 2, 3])
    with pytest.raises(ParameterError, match=r"steps\[1\]"):
        running(bound, [1, -1])


@settings(max_examples=50)
@given(st.integers(0, 2000), st.integers(1, 2000))
def test_the_search_for_a_count_finds_the_largest_valid_count_up_to_its_limit(true, most):
    tried = []

    def proved(count):
        tried.append(count)
        return count <= true

    assert largest(proved, most) == min(true, most)
    assert max(tried) <= most
    assert len(tried) <= 2 * math.log2(2 * most) + 2


def test_the_spent_epsilon_is_never_below_the_lower_bound():
    plan = scheme(1.0, CheckIn(10, 3))
    lower = price(scheme(1.0, CheckIn(10, 2)), DELTA).epsilon.lower
    assert spent(plan, DELTA, [20])[0] >= lower
