"""ε over the steps of a run."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.accounting import epsilon_upper
from turnout.core.errors import NumericalError
from turnout.plans import Plan, prepare
from turnout.runs.execution import epsilon_curve
from turnout.schemes import AvailabilityCheckIn, GaussianNoise, Relation, Scheme

PLAN = Plan.from_mapping(
    {
        "data": {"name": "digits"},
        "model": {"name": "logistic"},
        "participation": {"law": "check-in", "window": 5, "windows": 4},
        "privacy": {"relation": "add-remove", "delta": 1e-4, "noise_multiplier": 2.0},
        "optimizer": {"learning_rate": 1.0},
    }
)


def test_the_curve_rises_from_nothing_to_the_whole():
    prepared = prepare(PLAN, 1437)
    curve = epsilon_curve(prepared, 3)
    assert curve.steps.tolist() == [0, 3, 6, 9, 12, 15, 18, 20]
    assert curve.epsilon[0] == 0
    assert (np.diff(curve.epsilon) >= 0).all()
    assert curve.epsilon[-1] == prepared.guarantee.epsilon.upper
    assert curve.at(4) == curve.at(6)
    assert curve.at(20) > curve.at(3) > curve.at(0) == 0


def test_the_worst_client_of_a_part_need_not_be_the_worst_of_the_whole():
    # The first client is worse than the second until the second's second window.
    rows = np.array([[1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0]], dtype=np.bool_)
    law = AvailabilityCheckIn(rows, 3)
    prepared = prepare(PLAN, 2, law)
    curve = epsilon_curve(prepared, 1)
    alone = Scheme(GaussianNoise(2.0), AvailabilityCheckIn(rows[:1, :3], 3), Relation.ADD_REMOVE)
    assert curve.at(3) == pytest.approx(epsilon_upper(alone, 1e-4))
    assert curve.at(3) < curve.at(6)


def test_a_point_that_cannot_be_certified_takes_the_next_ones_value(monkeypatch):
    prepared = prepare(PLAN, 1437)
    whole = epsilon_curve(prepared, 5)

    def fail_at_5(scheme, delta, step, **keys):
        if step == 5:
            raise NumericalError("not certified")
        return epsilon_upper(scheme, delta, step, **keys)

    monkeypatch.setattr("turnout.accounting.epsilon_upper", fail_at_5)
    curve = epsilon_curve(prepared, 5)
    assert curve.at(5) == curve.at(10) == whole.at(10)
    assert curve.epsilon[2:].tolist() == whole.epsilon[2:].tolist()
