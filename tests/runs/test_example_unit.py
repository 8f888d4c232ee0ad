"""With unit = "example" each record draws its steps, is clipped and is protected separately."""

import numpy as np
import pytest

import turnout as tn
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.plans import Plan
from turnout.reporting.summary import model_card
from turnout.runs.training import read_model
from turnout.service.contract.charter import Timing
from turnout.service.coordinator.new_task import new_task

RECORDS, HELD = 60, 5
PLAN = {
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 6, "windows": 2},
    "privacy": {
        "relation": "add-remove",
        "noise_multiplier": 2.0,
        "delta": 1e-4,
        "clip_norm": 0.1,
        "unit": "example",
    },
    "optimizer": {"learning_rate": 1.0},
}


def data(clients):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(RECORDS + 20, 3)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    return tn.client_data(
        (inputs[:RECORDS], labels[:RECORDS], clients),
        test=(inputs[RECORDS:], labels[RECORDS:]),
        classes=2,
    )


def plan_with(**privacy):
    return {**PLAN, "privacy": {**PLAN["privacy"], **privacy}}


@pytest.fixture(scope="module")
def held_by_a_few(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example") / "run"
    run = tn.train(plan_with(), data=data(np.arange(RECORDS) // HELD), out=folder)
    return run, folder


def test_with_unit_example_the_result_does_not_depend_on_which_client_holds_a_record(held_by_a_few):
    run, _ = held_by_a_few
    alone = tn.train(plan_with(unit="client"), data=data(np.arange(RECORDS)))
    assert np.array_equal(run.parameters, alone.parameters)
    assert run.history.check_ins.sum() == 2 * RECORDS
    assert run.guarantee.epsilon == alone.guarantee.epsilon
    assert (run.guarantee.unit.value, alone.guarantee.unit.value) == ("example", "client")


def test_with_unit_client_all_records_of_a_client_participate_together(held_by_a_few):
    """Negative control: with unit = "client" one draw decides for five records."""
    run, _ = held_by_a_few
    together = tn.train(plan_with(unit="client"), data=data(np.arange(RECORDS) // HELD))
    assert together.history.check_ins.sum() == 2 * RECORDS // HELD
    assert not np.array_equal(run.parameters, together.parameters)


def test_reports_with_unit_example_name_records_as_the_protected_unit(held_by_a_few):
    _, folder = held_by_a_few
    page = (folder / "report.html").read_text("utf-8")
    assert "Take any one record and two worlds: this record took part" in page
    assert "one record, which draws its steps and is clipped by itself" in page
    card = model_card(read_model(folder).facts)
    assert "60 examples, " in card
    assert "all records of one client together" in card


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({"data": {"name": "digits", "clients": 30}}, "data.clients"),
        (
            {
                "data": {"name": "digits"},
                "participation": {"law": "availability", "window": 48},
            },
            "privacy.unit",
        ),
        ({"privacy": {**PLAN["privacy"], "unit": "user"}}, "privacy.unit"),
    ],
)
def test_settings_of_clients_are_refused_with_unit_example(tables, name):
    given = {**PLAN, "data": {"name": "digits"}, **tables}
    with pytest.raises(ParameterError) as refused:
        tn.train(given)
    assert refused.value.name == name


def test_serving_a_plan_with_unit_example_is_refused(tmp_path):
    plan = Plan.from_mapping({**PLAN, "data": {"name": "digits"}})
    with pytest.raises(UnsupportedError, match="protects clients and not single records"):
        new_task(plan.to_toml(), tmp_path, Timing.of(60.0))
