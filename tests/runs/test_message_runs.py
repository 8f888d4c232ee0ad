"""Runs of plans whose clients randomize their own updates, from the plan to the report."""

from __future__ import annotations

import json

import numpy as np
import pytest

import turnout as tn
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning.algorithm import FedSGD, RecordSGD
from turnout.learning.optimizers import SGD
from turnout.plans import Plan
from turnout.randomizers.vectors import LInfRandomizer
from turnout.runs.building import build_task
from turnout.runs.workload import gather
from turnout.schemes import RepeatedMessages, Scheme
from turnout.schemes.scheme import shuffled
from turnout.service.contract.charter import Timing
from turnout.service.coordinator.new_task import new_task

STEPS = 4
TABLES = {
    "data": {"name": "digits"},
    "model": {"name": "logistic", "features": "standardized"},
    "participation": {"law": "fixed-size", "size": 500, "steps": STEPS},
    "privacy": {"trust": "shuffled", "relation": "replace-one", "delta": 1e-4, "clip_norm": 0.02},
    "randomizer": {"norm": "linf", "epsilon0": 3.0},
    "optimizer": {"learning_rate": 0.5},
    "run": {"evaluate_every": STEPS},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tn.train(TABLES, tmp_path_factory.mktemp("messages") / "run", baseline=True)


def test_a_plan_and_the_python_api_send_the_same_messages(run, tmp_path):
    """The same seed gives the same bits from a plan and from `tn.simulate`."""
    plan = Plan.from_mapping(TABLES)
    task = build_task(gather(plan, tmp_path))
    randomizer = LInfRandomizer(task.dimension, 3.0, 0.02)
    scheme = shuffled(randomizer.priced_as, 1437, STEPS, sampled=500)
    algorithm = FedSGD(task, SGD(0.5), 0.02)
    other = tn.simulate(scheme, algorithm=algorithm, messages=randomizer, seed=1)
    assert np.array_equal(other.parameters, run.parameters)
    another = tn.simulate(scheme, algorithm=algorithm, messages=randomizer, seed=2)
    assert not np.array_equal(another.parameters, run.parameters)


def test_the_report_states_the_messages_and_their_epsilon(run):
    record = json.loads((run.folder / "report.json").read_text())
    assert record["trust_model"] == "shuffled"
    assert record["relation"] == "replace-one"
    assert record["epsilon"] == run.guarantee.epsilon.upper
    assert 0 < record["epsilon_lower"] <= record["epsilon"]
    assert (record["epsilon0"], record["message"]) == (3.0, "LInfRandomizer")
    assert record["message_bits"] == LInfRandomizer(650, 3.0).message_bits
    assert "noise_multiplier" not in record
    page = (run.folder / "report.html").read_text("utf-8")
    assert min(record["thesis_epsilon"].values()) > record["epsilon"]
    assert "ε by the thesis, to compare" in page
    for said in ("ε₀ of a message alone", "LInfRandomizer, 11 bits", "cut at ±0.02"):
        assert said in page
        assert said in (run.folder / "MODEL_CARD.md").read_text("utf-8") or "alone" not in said


def test_the_baseline_of_a_message_plan_uses_unclipped_updates(run):
    assert run.baseline is not None
    assert np.array_equal(run.baseline.check_ins, run.history.check_ins)
    assert run.baseline.metrics["loss"][-1] < run.loss


def test_a_resumed_run_with_messages_gives_the_same_bits(run, tmp_path):
    plan = TABLES | {"run": {"evaluate_every": STEPS, "checkpoint_every": 2}}
    folder = tmp_path / "run"
    whole = tn.train(plan, folder)
    again = tn.train(resume=folder)
    assert np.array_equal(whole.parameters, run.parameters)
    assert np.array_equal(again.parameters, run.parameters)


def test_serving_a_plan_under_shuffled_trust_is_refused(tmp_path):
    text = Plan.from_mapping(TABLES).to_toml()
    with pytest.raises(UnsupportedError, match=r"privacy\.trust = 'shuffled' needs a shuffler"):
        new_task(text, tmp_path, Timing(60.0, 40.0, 10.0))


SEVERAL = TABLES | {
    "data": {"name": "digits", "clients": 200},
    "participation": {"law": "fixed-size", "size": 80, "steps": STEPS},
    "randomizer": {"norm": "linf", "epsilon0": 3.0, "messages": 3, "each": "record"},
}


def test_a_plan_whose_clients_sample_records_for_messages_trains(tmp_path):
    found = tn.train(SEVERAL, tmp_path / "run")
    record = json.loads((found.folder / "report.json").read_text())
    assert (record["messages"], record["epsilon0"]) == (3, 3.0)
    page = (found.folder / "report.html").read_text("utf-8")
    assert record["step_bits"] == LInfRandomizer(650, 3.0).histogram_bits(3) < 33
    assert f"3 a client and step in one histogram of {record['step_bits']} bits" in page
    assert "each of one record" in page
    assert record["thesis_epsilon"] == {}
    assert "none: no theorem is about such a run" in page
    assert "3 in each step" in (found.folder / "MODEL_CARD.md").read_text("utf-8")
    plan = Plan.from_mapping(SEVERAL)
    task = build_task(gather(plan, tmp_path))
    randomizer = LInfRandomizer(task.dimension, 3.0, 0.02)
    scheme = Scheme(
        RepeatedMessages.of(randomizer.priced_as, 3), tn.FixedSize(80, 200, STEPS), "replace-one",
        trust="shuffled", population=200,
    )  # fmt: skip
    algorithm = RecordSGD(task, SGD(0.5), 0.02)
    other = tn.simulate(scheme, algorithm=algorithm, messages=randomizer, seed=1)
    assert np.array_equal(other.parameters, found.parameters)
    whole = tn.simulate(scheme, algorithm=FedSGD(task, SGD(0.5), 0.02), messages=randomizer, seed=1)
    assert not np.array_equal(whole.parameters, found.parameters)


def test_sampling_more_records_than_a_client_holds_is_refused(tmp_path):
    too_many = SEVERAL | {"randomizer": SEVERAL["randomizer"] | {"messages": 8}}
    with pytest.raises(
        ParameterError, match=r"randomizer\.messages = 8: expected at most 7, the smallest"
    ):
        tn.train(too_many, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("keys", "words"), [({"messages": 2}, "one message in a step"), ({"each": "record"}, "record")]
)
def test_serving_a_plan_with_several_messages_or_sampled_records_is_refused(keys, words, tmp_path):
    privacy = TABLES["privacy"] | {"trust": "local"}
    law = {"law": "check-in", "window": 4}
    randomizer = TABLES["randomizer"] | keys
    text = Plan.from_mapping(
        TABLES | {"privacy": privacy, "participation": law, "randomizer": randomizer}
    ).to_toml()
    with pytest.raises(UnsupportedError, match=words):
        new_task(text, tmp_path, Timing())
