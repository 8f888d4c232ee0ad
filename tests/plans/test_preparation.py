"""Preparation of plans: noise is calibrated or refused before a run."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from turnout.accounting import epsilon_upper, price
from turnout.core.errors import ParameterError
from turnout.plans import Plan, preparation, prepare
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    GaussianNoise,
    Relation,
    ReleaseRule,
    Scheme,
)
from turnout.schemes.participation.availability_check_in import costliest_clients


def scheme(available, window, probability=1.0) -> Scheme:
    participation = AvailabilityCheckIn(np.asarray(available, dtype=np.bool_), window, probability)
    return Scheme(GaussianNoise(1.2), participation, Relation.ADD_REMOVE)


def test_calibrated_noise_of_a_plan_meets_the_target_epsilon(small_plan):
    prepared = prepare(Plan.from_toml(small_plan), 1437)
    assert 2.9 < prepared.guarantee.epsilon.upper <= 3.0
    assert prepared.scheme.participation == CheckIn(10, 3)
    assert prepared.scheme.release is ReleaseRule.AGGREGATED
    assert prepared.population == 1437


@pytest.mark.parametrize("epsilon", [25.0, 1000.0])
def test_calibrated_noise_meets_the_target_epsilon_where_bounds_are_wide(small_plan, epsilon):
    prepared = prepare(Plan.from_toml(small_plan.replace("3.0", str(epsilon))), 1437)
    assert 0.9 * epsilon < prepared.guarantee.epsilon.upper <= epsilon


def test_noise_with_an_epsilon_above_the_target_is_refused(small_plan):
    text = small_plan.replace("epsilon = 3.0", "epsilon = 3.0\nnoise_multiplier = 0.5")
    with pytest.raises(ParameterError, match=re.escape("privacy.epsilon = 3.0: expected at least "
                       "")) as error:  # fmt: skip
        prepare(Plan.from_toml(text), 1437)
    assert "noise_multiplier = 0.5" in str(error.value)
    match = re.search(r"at least ([\d.]+),", str(error.value))
    assert match is not None
    named = float(match[1])
    kept = text.replace("epsilon = 3.0", f"epsilon = {named}")
    assert prepare(Plan.from_toml(kept), 1437).guarantee.epsilon.upper <= named


def test_a_plan_with_given_noise_has_a_guarantee(small_plan):
    text = small_plan.replace("epsilon = 3.0", "noise_multiplier = 2.0")
    prepared = prepare(Plan.from_toml(text), 1437)
    assert prepared.noise.noise_multiplier == 2.0
    assert prepared.guarantee.epsilon.upper > 0


def test_prepare_uses_a_participation_given_as_an_argument(small_plan):
    participation = scheme(np.ones((5, 8)), 4).participation
    text = small_plan.replace("epsilon = 3.0", "noise_multiplier = 2.0")
    prepared = prepare(Plan.from_toml(text), 5, participation)
    assert prepared.guarantee.clients is not None
    assert prepared.guarantee.clients.epsilon_upper.shape == (5,)


@pytest.mark.parametrize("seed", range(4))
def test_the_costliest_clients_have_the_largest_epsilon_of_all_clients(seed):
    available = np.random.default_rng(seed).random((12, 12)) < 0.3
    whole = scheme(available, 4)
    reduced = costliest_clients(whole)
    kept = reduced.participation
    assert isinstance(kept, AvailabilityCheckIn)
    assert kept.population < 12
    assert epsilon_upper(reduced, 1e-4) == pytest.approx(epsilon_upper(whole, 1e-4), rel=1e-12)


def test_costliest_clients_omits_exactly_the_clients_dominated_by_another_client():
    rows = [
        [1, 1, 1, 1, 0, 0, 0, 0],  # one window of 4
        [1, 0, 0, 0, 0, 0, 0, 0],  # one window of 1: dominates the first
        [1, 1, 0, 0, 1, 1, 0, 0],  # two windows of 2: neither dominates the other
        [0, 0, 1, 1, 0, 0, 1, 1],  # equal sizes
        [1, 1, 1, 0, 1, 1, 0, 0],  # windows of 3 and 2: dominated
        [0, 0, 0, 0, 0, 0, 0, 0],  # no window
    ]
    participation = costliest_clients(scheme(rows, 4)).participation
    assert isinstance(participation, AvailabilityCheckIn)
    assert sorted(map(tuple, participation.window_sizes().tolist())) == [(1, 0), (2, 2)]


def test_participations_without_a_trace_keep_all_clients():
    plain = Scheme(GaussianNoise(1.0), CheckIn(5), Relation.ADD_REMOVE)
    assert costliest_clients(plain) is plain
    nobody = scheme(np.zeros((3, 8)), 4)
    participation = costliest_clients(nobody).participation
    assert isinstance(participation, AvailabilityCheckIn)
    assert participation.population == 1


def test_noise_is_recalibrated_if_omitted_clients_have_a_larger_epsilon(small_plan, monkeypatch):
    rows = [[1, 1, 0, 0, 0, 0], [1, 0, 0, 1, 0, 0]]
    tried = []

    def wrong_first(scheme, most=None):
        tried.append(most)
        participation = scheme.participation
        return (
            scheme
            if most is None
            else replace(scheme, participation=participation.part(clients=[0]))
        )

    monkeypatch.setattr(preparation, "costliest_clients", wrong_first)
    prepared = prepare(Plan.from_toml(small_plan), 2, scheme(rows, 3).participation)
    assert {None} < set(tried)
    assert prepared.guarantee.clients is not None
    assert prepared.guarantee.clients.epsilon_upper.argmax() == 1
    assert 2.99 < prepared.guarantee.epsilon.upper <= 3.0


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.ZERO_OUT])
def test_epsilon_of_each_client_is_below_the_quick_bound_and_independent_of_others(relation):
    available = np.random.default_rng(3).random((8, 12)) < 0.4
    asked = replace(scheme(available, 4), relation=relation)
    found = price(asked, 1e-5)
    assert found.epsilon.upper <= epsilon_upper(asked, 1e-5)
    assert found.epsilon.lower <= found.epsilon.upper < 1.001 * found.epsilon.lower
    # One client's bound is its own, whoever else is there.
    assert found.clients is not None
    assert isinstance(asked.participation, AvailabilityCheckIn)
    for client, epsilon in enumerate(found.clients.epsilon_upper):
        alone = price(
            replace(asked, participation=asked.participation.part(clients=[client])), 1e-5
        )
        assert alone.epsilon.lower <= epsilon
        assert alone.epsilon.upper == pytest.approx(epsilon, rel=2e-3)


def test_a_run_of_too_many_steps_is_refused(small_plan):
    text = small_plan.replace("windows = 3", "windows = 100_000_000")
    assert text != small_plan
    with pytest.raises(ParameterError, match="steps = 1000000000: expected at most 10,000,000"):
        prepare(Plan.from_toml(text), 1437)
