"""Data, clients and participation that the names in a plan select."""

from __future__ import annotations

import re

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.plans import Plan
from turnout.runs.building import build_task
from turnout.runs.workload import gather
from turnout.schemes import AvailabilityCheckIn, CheckIn

TABLES = {
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 5, "windows": 4},
    "privacy": {"relation": "add-remove", "delta": 1e-4, "noise_multiplier": 2.0},
    "optimizer": {"learning_rate": 1.0},
}
TRACE = "device,slot_start,slot_end,available\n0,0,6,1\n1,1,3,1\n1,3,5,0\n2,0,2,0\n"


def plan(**tables) -> Plan:
    return Plan.from_mapping({**TABLES, **tables})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    return tmp_path


def traced(**fields) -> dict:
    return {"law": "availability", "trace": "trace.csv", "window": 3, **fields}


def test_each_record_is_a_client_by_default(tmp_path):
    workload = gather(plan(), tmp_path)
    assert workload.population == 1437
    assert workload.participation == CheckIn(5, 4)
    assert workload.trace is None
    few = gather(plan(data={"name": "digits", "clients": 100}), tmp_path)
    assert few.population == build_task(few).population == 100


def test_the_assignment_of_records_depends_on_the_seed_alone(tmp_path):
    data = {"name": "digits", "clients": 100, "dealing": "by-label"}
    sums = [
        build_task(gather(plan(data=data, run={"seed": seed}), tmp_path))
        .clipped_sum(np.zeros(650, dtype=np.float32), np.arange(10), 1.0)
        .total
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(sums[0], sums[1])
    assert not np.array_equal(sums[0], sums[2])


def test_the_trace_of_a_plan_determines_the_clients_and_unknown_means_unavailable(folder):
    workload = gather(plan(participation=traced()), folder)
    assert workload.population == 3
    law = workload.participation
    assert isinstance(law, AvailabilityCheckIn)
    assert law.available.astype(int).tolist() == [
        [1, 1, 1, 1, 1, 1],
        [0, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    cut = gather(plan(participation=traced(steps=4, probability=0.5)), folder)
    assert cut.trace is not None
    assert cut.trace.shape == (3, 4)


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        (
            {"data": {"name": "digits", "clients": 1438}},
            "data.clients = 1438: expected at most 1437, the number of records",
        ),
        (
            {"participation": traced(), "data": {"name": "digits", "clients": 4}},
            "data.clients = 4: expected 3, as in the trace",
        ),
        (
            {"participation": traced(steps=7)},
            "participation.steps = 7: expected at most 6, the steps of the trace",
        ),
        (
            {"participation": traced(window=7)},
            "participation.window = 7: expected at most 6, the steps of the run",
        ),
        (
            {"participation": traced(first_slot=48)},
            "participation.first_slot = 48: expected at most 47, the last slot of a day",
        ),
        (
            {"participation": traced(trace="none.csv")},
            "participation.trace = 'none.csv': expected a trace on this machine; trace",
        ),
    ],
)
def test_plans_whose_settings_contradict_the_data_are_refused(folder, tables, line):
    with pytest.raises(ParameterError, match=re.escape(line)):
        gather(plan(**tables), folder)


def test_a_model_that_does_not_accept_the_shape_of_the_data_is_refused(tmp_path):
    line = "model.name = 'tanh-cnn-13k': expected a model for inputs of 8×8"
    with pytest.raises(ParameterError, match=re.escape(line)):
        build_task(gather(plan(model={"name": "tanh-cnn-13k"}), tmp_path))
