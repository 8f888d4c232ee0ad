"""Curve of ε over the steps of a run."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.accounting import epsilon_upper
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.plans import Plan, PreparedPlan, prepare
from turnout.plans.spending import epsilon_curve
from turnout.schemes import AvailabilityCheckIn, CheckIn, GaussianNoise, Relation, Scheme

PLAN = Plan.from_mapping(
    {
        "data": {"name": "digits"},
        "model": {"name": "logistic"},
        "participation": {"law": "check-in", "window": 5, "windows": 4},
        "privacy": {"relation": "add-remove", "delta": 1e-4, "noise_multiplier": 2.0},
        "optimizer": {"learning_rate": 1.0},
    }
)


def test_spent_epsilon_rises_from_zero_to_that_of_the_whole_run():
    prepared = prepare(PLAN, 1437)
    curve = epsilon_curve(prepared, 3)
    assert curve.steps.tolist() == [0, 3, 6, 9, 12, 15, 18, 20]
    epsilon = curve.epsilon()
    assert epsilon[0] == 0
    assert (np.diff(epsilon) >= 0).all()
    assert epsilon[-1] == prepared.guarantee.epsilon.upper
    for step, here in zip(curve.steps, epsilon, strict=True):
        assert curve.at(step) >= here
    assert curve.at(5) == curve.at(10) > curve.at(3)
    assert curve.at(20) > curve.at(3) > curve.at(0) == 0


def test_the_client_with_the_largest_epsilon_may_change_during_a_run():
    # The first client has the larger ε until the second window of the second client.
    rows = np.array([[1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0]], dtype=np.bool_)
    participation = AvailabilityCheckIn(rows, 3)
    prepared = prepare(PLAN, 2, participation)
    curve = epsilon_curve(prepared, 1)
    alone = Scheme(GaussianNoise(2.0), AvailabilityCheckIn(rows[:1, :3], 3), Relation.ADD_REMOVE)
    assert curve.at(3) == pytest.approx(epsilon_upper(alone, 1e-4))
    assert curve.at(3) < curve.at(6)


@pytest.mark.parametrize("error", [NumericalError, UnsupportedError])
def test_a_step_without_a_certified_bound_uses_the_bound_of_the_next_step(error, monkeypatch):
    prepared = prepare(PLAN, 1437)
    whole = epsilon_curve(prepared, 5).epsilon().tolist()

    def fail_at_5(scheme, delta, step, **keys):
        if step == 5:
            raise error("not certified")
        return epsilon_upper(scheme, delta, step, **keys)

    monkeypatch.setattr("turnout.accounting.epsilon_upper", fail_at_5)
    curve = epsilon_curve(prepared, 5)
    assert curve.epsilon().tolist() == [0, whole[2], *whole[2:]]
    assert curve.at(5) == curve.at(10) == whole[2]


@pytest.mark.parametrize(
    ("participation", "relation", "points"),
    [
        (CheckIn(100), Relation.ADD_REMOVE, 11),
        (CheckIn(100), Relation.REPLACE_ONE, 5),
        (CheckIn(20, 5), Relation.ADD_REMOVE, 8),
        (CheckIn(5, 200), Relation.ADD_REMOVE, 11),
        (CheckIn(3), Relation.ADD_REMOVE, 2),
    ],
    ids=str,
)
def test_a_run_computes_epsilon_at_few_steps_and_the_report_at_the_remaining_ones(
    participation, relation, points, monkeypatch
):
    priced = []

    def count(scheme, delta, step, **keys):
        priced.append(step)
        return step / participation.steps

    monkeypatch.setattr("turnout.accounting.epsilon_upper", count)
    whole = prepare(PLAN, 1437)
    prepared = PreparedPlan(
        PLAN, 1437, Scheme(GaussianNoise(2.0), participation, relation), whole.guarantee
    )
    curve = epsilon_curve(prepared, 1)
    assert not priced
    assert curve.at(0) == 0
    assert len(priced) == points
    assert all(step <= participation.window or step % participation.window == 0 for step in priced)
    assert all(curve.at(step) >= step / participation.steps for step in range(participation.steps))
    assert len(priced) == points
    told = []
    assert (curve.epsilon(told.append) == np.arange(participation.steps + 1) / participation.steps)[
        :-1
    ].all()
    assert told == list(range(1, participation.steps))
    curve.epsilon()
    assert sorted(priced) == list(range(1, participation.steps))
