"""Fixtures with the summary of a finished run, without training."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.accounting import ClientGuarantees, Guarantee
from turnout.core.bounds import Bounds
from turnout.participation.traces import trace_statistics
from turnout.plans import Plan, PreparedPlan
from turnout.plans.spending import EpsilonCurve
from turnout.reporting.summary import Outcome, Summary, TestSet, TraceFindings
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    GaussianNoise,
    PrivacyUnit,
    Relation,
    Scheme,
    TrustModel,
)
from turnout.simulation import History

STEPS = 6
TRACE = np.array([[1, 1, 0, np.nan, 1, 0], [0, 0, 0, 0, 0, 0]])


def plan(**participation) -> Plan:
    return Plan.from_mapping(
        {
            "data": {"name": "digits"},
            "model": {"name": "logistic"},
            "participation": participation or {"law": "check-in", "window": 3, "windows": 2},
            "privacy": {"relation": "add-remove", "delta": 1e-4, "epsilon": 2.5},
            "optimizer": {"learning_rate": 1.0},
        }
    )


STEPS_PRICED = np.array([0, 3, 6])


def history(accuracy: float) -> History:
    return History(
        check_ins=np.array([2, 0, 1, 1, 1, 1]),
        served=np.array([2, 0, 1, 1, 1, 1]),
        dummy=np.array([0, 1, 0, 0, 0, 0], dtype=bool),
        skipped=np.zeros(STEPS, dtype=bool),
        clipped=np.array([1, 0, 1, 0, 1, 0]),
        signal=np.array([1.5, 0.0, 1.0, 0.5, 1.0, 0.5]),
        step=np.array([0, 3, 6]),
        seconds=np.array([0.0, 0.1, 0.2]),
        metrics={"accuracy": np.array([0.1, 0.5, accuracy]), "loss": np.array([2.3, 1.0, 0.5])},
    )


def outcome(
    plan: Plan, participation, accuracy: float, clients: ClientGuarantees | None
) -> Outcome:
    guarantee = Guarantee(
        Bounds(2.4321, 2.4356),
        1e-4,
        {"remove": Bounds(2.4321, 2.4356), "add": Bounds(2.125, 2.25)},
        Relation.ADD_REMOVE,
        PrivacyUnit.CLIENT,
        TrustModel.CENTRAL,
        "an analysis",
        clients,
    )
    scheme = Scheme(GaussianNoise(1.5), participation, Relation.ADD_REMOVE)
    return Outcome(
        PreparedPlan(plan, 2, scheme, guarantee),
        history(accuracy),
        0.25,
        np.full(STEPS, 2 / 3),
        1.25,
        EpsilonCurve(STEPS_PRICED, {3: 1.5}.__getitem__, 2.4356, STEPS_PRICED),
        np.zeros(2),
        np.zeros(2),
        TestSet(100, 0.25),
    )


@pytest.fixture
def summary() -> Summary:
    return Summary(outcome(plan(), CheckIn(3, 2), 0.9, None))


@pytest.fixture
def traced_summary() -> Summary:
    participation = AvailabilityCheckIn(TRACE == 1, 3)
    section = plan(law="availability", window=3, steps_per_day=3)
    clients = ClientGuarantees(lambda: np.array([2.4356, 0.0]), participation.window_sizes())
    everyone = outcome(section, CheckIn(3, 2), 0.95, None)
    findings = TraceFindings(trace_statistics(TRACE, 3), np.array([1.5, 0.5, 1.0]), everyone)
    return Summary(outcome(section, participation, 0.9, clients), findings)
