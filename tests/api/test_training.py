"""Runs started from Python, from a path, a mapping or a plan, equal those of the command line."""

import json
import tomllib

import numpy as np
import pytest

from turnout.api.simulate import simulate
from turnout.api.train import train
from turnout.core.errors import ParameterError, StorageError
from turnout.learning.algorithm import FedSGD
from turnout.learning.optimizers import build_optimizer_of
from turnout.plans import Plan, example_plan
from turnout.runs import InterruptedRunError
from turnout.runs.execution import ReadyRun
from turnout.schemes import CheckIn, FixedSize, GaussianNoise, PoissonSampling, Scheme

PLAN = """
[data]
name = "digits"
clients = 200
[model]
name = "logistic"
[participation]
law = "check-in"
window = 5
windows = 2
[privacy]
relation = "add-remove"
noise_multiplier = 2.0
delta = 1e-4
[optimizer]
learning_rate = 0.5
"""
TABLES = tomllib.loads(PLAN)


def lasting(record: dict) -> dict:
    return {key: value for key, value in record.items() if key != "seconds"}


@pytest.fixture(scope="module")
def run():
    return train(TABLES)


def test_train_accepts_a_plan_as_a_path_a_mapping_or_an_object(run, tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    runs = [train(str(tmp_path / "plan.toml")), train(Plan.from_toml(PLAN))]
    assert runs == [run, run]
    other = train({**TABLES, "run": {"seed": 2}})
    assert other != run
    assert other.to_dict()["epsilon"] == run.to_dict()["epsilon"]
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]


def test_the_report_in_the_folder_equals_the_returned_result(run, tmp_path):
    out = tmp_path / "run"
    written = train(TABLES, out)
    assert written == run
    assert written.folder == out
    report = json.loads((out / "report.json").read_text())
    assert lasting(report) == lasting(run.to_dict())
    assert Plan.from_toml((out / "plan.toml").read_text()) == Plan.from_toml(PLAN)
    assert train(resume=str(out)) == run
    with pytest.raises(ParameterError, match="a new or empty folder"):
        train(TABLES, out)


def test_the_repr_of_a_run_states_its_accuracy_and_guarantee(run):
    assert run.folder is None
    assert run.guarantee.epsilon.upper == run.to_dict()["epsilon"]
    assert run.parameters.shape == (650,)
    assert run.history.metrics["accuracy"][-1] == run.accuracy == run.to_dict()["accuracy"]
    assert run.loss == run.to_dict()["loss"]
    assert repr(run).startswith(f"TrainingRun(accuracy {run.accuracy:.2%}, 10 steps; central, ε = ")
    assert repr(run).endswith("δ = 0.0001, add-remove, client)")
    assert "noise multiplier" in run._repr_html_()
    assert "ε spent so far" in run.plot().svg()
    assert json.loads(run.to_json()) == run.to_dict()


def test_a_run_without_a_folder_cannot_be_resumed(monkeypatch):
    seen = []

    def stopped(self, checkpoint, what, folder, watcher):
        seen.append((checkpoint, folder))
        raise InterruptedRunError(folder, 3, 10)

    monkeypatch.setattr(ReadyRun, "carried_out", stopped)
    with pytest.raises(InterruptedRunError) as stop:
        train(TABLES)
    assert str(stop.value) == "stopped after step 3 of 10"
    assert seen == [(None, None)]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (
            {},
            ParameterError,
            "plan = 'none of them': expected exactly one of plan, example and resume",
        ),
        ({"plan": TABLES, "example": "digits"}, ParameterError, "plan = 'plan, example'"),
        (
            {"example": "mnits"},
            ParameterError,
            "one of digits, fashion, mnist, mnist-sampled, ",
        ),
        ({"plan": "none.toml"}, ParameterError, "a TOML file that exists"),
        ({"plan": {**TABLES, "model": {}}}, ParameterError, "model.name"),
        ({"resume": "none"}, ParameterError, "a folder that holds a run"),
        (
            {"resume": "none", "out": "x"},
            ParameterError,
            "out = 'x': expected no value with resume",
        ),
        ({"plan": "."}, StorageError, "cannot be read"),
    ],
)
def test_training_an_invalid_plan_is_refused(given, error, said):
    with pytest.raises(error) as refused:
        train(**given)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["digits", "fashion", "mnist", "phones", "trial"])
def test_a_plan_is_unchanged_after_writing_it_as_text_and_reading_it(name):
    plan = Plan.from_toml(example_plan(name).read_text())
    assert Plan.from_toml(plan.to_toml()) == plan


def test_every_string_is_unchanged_after_writing_it_to_toml_and_reading_it():
    section = {"law": "availability", "window": 3, "trace": 'a"b\\c\tå😀.csv'}
    plan = Plan.from_mapping({**TABLES, "participation": section})
    assert Plan.from_toml(plan.to_toml()) == plan


@pytest.mark.parametrize(
    "law", [CheckIn(10, 3, 0.5), PoissonSampling(0.1, 30), FixedSize(500, 2_000, 30)], ids=str
)
def test_simulated_numbers_of_check_ins_agree_with_their_expectation(law):
    found = simulate(law, clients=2_000, seed=4)
    assert found.check_ins.shape == found.expected_check_ins.shape == (30,)
    # Independent clients: a step's variance is below its mean, and so is the whole run's.
    mean = found.expected_check_ins
    assert np.all(abs(found.check_ins - mean) <= 6.5 * np.sqrt(mean))
    assert np.any(abs(found.check_ins - 1.5 * mean) > 6.5 * np.sqrt(mean))
    assert found.to_dict()["participations"] == found.check_ins.sum()


def test_a_simulation_depends_only_on_its_seed():
    law = CheckIn(100, 4)
    one = simulate(law, clients=300, seed=1)
    assert one == simulate(Scheme(GaussianNoise(1.0), law, "add-remove"), clients=300, seed=1)
    assert one != simulate(law, clients=300, seed=2)
    assert one.empty_steps == np.count_nonzero(one.check_ins == 0) > 0
    assert repr(one) == (
        "SimulatedRun(CheckIn(window=100, windows=4, probability=1.0), 300 clients: 1,200 "
        f"check-ins, nobody came at {one.empty_steps} of 400 steps)"
    )
    assert "exact counts, not covered by ε" in one._repr_html_()
    assert one.plot().title == "Check-ins per step, and how many were expected"
    assert json.loads(one.to_json())["randomness"] == "simulation only (seed 1)"


def algorithm() -> FedSGD:
    """The algorithm of the plan above."""
    from turnout.runs.building import build_task
    from turnout.runs.workload import gather

    plan = Plan.from_toml(PLAN)
    task = build_task(gather(plan, example_plan("digits").parent))
    return FedSGD(task, build_optimizer_of(plan.optimizer, 10), plan.privacy.clip_norm)


def test_simulate_with_an_algorithm_equals_training_the_same_plan(run):
    scheme = Scheme(GaussianNoise(2.0), CheckIn(5, 2), "add-remove")
    found = simulate(scheme, algorithm=algorithm(), seed=1, evaluate_every=1)
    assert found.clients == 200
    assert found.parameters is not None
    assert np.array_equal(found.parameters, run.parameters)
    assert np.array_equal(found.check_ins, run.history.check_ins)
    assert found.to_dict()["evaluations"]["accuracy"][-1] == run.accuracy
    assert found == simulate(scheme, algorithm=algorithm(), seed=1)
    assert found != simulate(scheme, clients=200, seed=1)
    assert found != simulate(scheme, algorithm=algorithm(), seed=2)
    assert "accuracy" in found._repr_html_()


def test_ctrl_c_ends_a_simulation_with_an_error(monkeypatch):
    scheme = Scheme(GaussianNoise(2.0), CheckIn(5, 2), "add-remove")
    learner, turns = algorithm(), iter(range(3))
    step = FedSGD.server_update

    def stopped(self, *given):
        if next(turns, None) is None:
            raise KeyboardInterrupt
        return step(self, *given)

    monkeypatch.setattr(FedSGD, "server_update", stopped)
    with pytest.raises(InterruptedRunError, match=r"stopped after step 3 of 10$"):
        simulate(scheme, algorithm=learner)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "clients = None: expected the number of clients, or an algorithm"),
        ({"clients": 0}, "population"),
        ({"clients": 9, "algorithm": True}, "clients = 9"),
        ({"algorithm": True}, "a Scheme, which includes the randomizer"),
    ],
)
def test_invalid_simulations_are_refused(given, said):
    if "algorithm" in given:
        given = {**given, "algorithm": algorithm()}
    with pytest.raises(ParameterError) as refused:
        simulate(CheckIn(5, 2), **given)
    assert said in str(refused.value)
