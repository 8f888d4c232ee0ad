"""Hyperparameter searches: held-out clients, public and private searches, stored results."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from turnout.accounting import selected
from turnout.api.train import load
from turnout.api.tune import tune
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.data import ClientData, PredictionTarget, Records, digits
from turnout.learning.holdings import Holdings
from turnout.plans import Plan
from turnout.runs import InterruptedRunError, Unwatched
from turnout.runs import workload as featuring
from turnout.runs.execution import ReadyRun
from turnout.runs.search import HeldOut, Search, drawn_values, with_values
from turnout.runs.workload import UnseenPhase, gather
from turnout.schemes import EveryStep, GaussianNoise, Relation, Scheme

TABLES = tomllib.loads("""
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 4
[privacy]
relation = "add-remove"
epsilon = 3.0
delta = 1e-4
clip_norm = 1.0
[optimizer]
learning_rate = 0.5
[tune]
candidates = 4
held_out = 0.2
[tune.ranges]
optimizer.learning_rate = { low = 0.001, high = 10.0, log = true }
""")
PUBLIC = {**TABLES, "tune": {**TABLES["tune"], "data": {"name": "digits"}}}
UNREAD = {"path": "nowhere.parquet", "inputs": ["a"], "label": "b", "classes": 10, "test": 0.1}
NOT_READ = {**PUBLIC, "data": UNREAD}


def without(tables, table, **settings):
    return {**tables, table: {**tables[table], **settings}}


@pytest.fixture(scope="module")
def free():
    return tune(NOT_READ)


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private") / "search"
    return tune(TABLES, folder)


def values(search, number):
    return drawn_values(search.plan, search.ranges, number)


def held_out(share=0.3, **settings):
    workload = gather(Plan.from_mapping({**TABLES, **settings}), Path())
    owners = np.arange(len(workload.data.train)) % 50
    return workload, HeldOut.of(workload, Holdings.from_owners(owners, 50), share)


def test_each_client_is_held_out_with_all_its_records_or_none():
    workload, held = held_out()
    ours = held.workload.data.holdings
    assert ours.population + held.clients == 50
    assert held.workload.population == ours.population
    owners = np.arange(len(workload.data.train)) % 50
    kept = set(owners[ours.records])
    assert all(np.isin(np.flatnonzero(owners == client), ours.records).all() for client in kept)
    assert ours.records.size + held.owners.size == owners.size
    out = np.concatenate([np.flatnonzero(owners == c) for c in range(50) if c not in kept])
    np.testing.assert_array_equal(held.workload.data.test.labels, workload.data.train.labels[out])


def test_a_client_changes_the_mean_accuracy_by_at_most_one_over_the_client_count():
    data = replace(
        digits(),
        test=Records(np.zeros((10, 2), np.float32), np.zeros(10, dtype=np.int64)),
    )
    workload = replace(held_out()[0], data=data)
    held = HeldOut(workload, 4, np.array([0, 0, 0, 0, 0, 0, 0, 1, 2, 2]))  # client 3 holds nothing
    worst = np.where(held.owners == 0, 1, 0)
    best = np.zeros(10, dtype=np.int64)
    moved = held.mean_accuracy(lambda: best) - held.mean_accuracy(lambda: worst)
    assert moved == pytest.approx(1 / 4)
    assert np.mean(best == 0) - np.mean(worst == 0) > 1 / 4  # what a mean over records would do
    assert held.mean_accuracy(lambda: best) == pytest.approx(3 / 4)


def test_a_search_on_public_data_reads_no_private_data(free):
    record = free.to_dict()
    assert record["price"] == "none: nothing of the plan's own clients was read"
    assert free.guarantee is None
    assert free.parameters is None
    scores = [score for _, score in free.candidates]
    assert len(scores) == 4
    assert free.score == max(scores)
    assert free.plan.optimizer.learning_rate == free.values["optimizer.learning_rate"]
    assert free.plan.data.path == "nowhere.parquet"
    assert free.plan.tune is None


def test_a_search_reports_that_data_declared_as_public_were_read():
    found = tune(without(PUBLIC, "tune", candidates=1))
    assert found.to_dict()["price"] == "none, by the plan's word that its own data are public"


def test_a_search_never_reads_the_test_set(free):
    data = digits()
    labels = np.full_like(data.test.labels, 3)
    blind = replace(data, test=Records(np.zeros_like(data.test.inputs), labels))
    assert tune({**TABLES, "data": {}}, public_data=blind).candidates == free.candidates


def test_a_private_search_meets_the_target_epsilon_and_states_its_scope(private):
    guarantee, record = private.guarantee, private.to_dict()
    assert 2.9 < guarantee.epsilon.upper <= 3.0
    assert record["one_run_epsilon"] < 0.9 * guarantee.epsilon.upper
    assert guarantee.epsilon.lower <= record["one_run_epsilon"]
    assert record["mean_candidates"] == pytest.approx(4.0)
    noise = record["score_deviation"] * record["held_out_clients"]
    score = Scheme(GaussianNoise(noise), EveryStep(1), Relation.ADD_REMOVE)
    judged = selected(score, private.found.price.stopping, 1e-4).epsilon.upper
    assert 2.9 < judged <= 3.0 + 1e-6
    model = load(private.folder)
    np.testing.assert_array_equal(model.parameters, private.parameters)
    assert model.guarantee["epsilon"] == guarantee.epsilon.upper
    assert model.saved.facts["metrics"] == {}
    assert "The search is in ε" in model.card


def test_a_private_search_stores_only_the_best_run(private):
    assert private.candidates == []
    assert "candidates" not in private.to_dict()
    files = {str(path.relative_to(private.folder)) for path in private.folder.rglob("*.*")}
    report = {"tune.json", "plan.toml", "search.toml", "model.safetensors", "MODEL_CARD.md"}
    assert files == report | {"simulator/place.txt"}
    assert json.loads((private.folder / "tune.json").read_text()) == private.to_dict()


def test_the_best_of_several_private_runs_has_the_largest_noisy_score(mutate, private):
    mutate(Search, "_count", lambda self: 3)
    search = Search.of(Plan.from_mapping(TABLES), Path(), Unwatched())
    scores = [search._run(number, values(search, number))[0] for number in range(3)]
    found = search.finished(Unwatched())
    assert found.best.score == max(scores)
    assert found.best.values == values(search, int(np.argmax(scores)))
    exact = found.outcome.result
    assert exact != found.best.score
    assert abs(exact - found.best.score) < 6 * found.price.score_deviation
    assert search.price.score_deviation > 0.3 / search.held.clients


@pytest.mark.parametrize("tables", [PUBLIC, TABLES], ids=["public", "private"])
def test_a_resumed_search_gives_the_same_result(tables, tmp_path, monkeypatch, mutate):
    mutate(Search, "_count", lambda self: 3)
    whole = tune(tables)
    carried_out, calls = ReadyRun.carried_out, []

    def stopping(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedRunError(None, 1, 4)
        return carried_out(self, *arguments)

    monkeypatch.setattr(ReadyRun, "carried_out", stopping)
    with pytest.raises(InterruptedRunError):
        tune(tables, tmp_path / "search")
    assert len(json.loads((tmp_path / "search/simulator/search.json").read_text())) == 2
    assert not (tmp_path / "search/tune.json").exists()
    again = tune(resume=tmp_path / "search")
    assert again == whole
    assert not (tmp_path / "search/simulator/search.json").exists()
    assert len(calls) in (4, 5)  # the best run is done again where it was done before the stop


def test_search_ranges_can_be_given_as_an_argument(free):
    found = tune(
        {key: value for key, value in TABLES.items() if key != "tune"},
        ranges={"optimizer.learning_rate": {"low": 0.001, "high": 10.0, "log": True}},
        candidates=4,
        held_out=0.2,
        public_data=digits(),
    )
    assert found.candidates == free.candidates


def numbers():
    rng = np.random.default_rng(1)
    inputs = rng.random((60, 3), dtype=np.float32)
    records = Records(inputs, rng.random((60, 1), dtype=np.float32))
    return ClientData("numbers", records, records, 1, PredictionTarget.NUMBERS)


@pytest.mark.parametrize(
    ("tables", "error", "words"),
    [
        ({**TABLES, "tune": None}, ParameterError, "a table \\[tune\\]"),
        (without(TABLES, "tune", held_out=1e-9), ParameterError, "tune.held_out"),
        (without(TABLES, "model", metrics=["top-5"]), UnsupportedError, "compares accuracies"),
        (without(TABLES, "privacy", noise_multiplier=0.5), ParameterError, "privacy.epsilon"),
        (
            without(TABLES, "tune", ranges={"optimizer.learning_rate": [-1.0]}),
            ParameterError,
            "optimizer.learning_rate",
        ),
        (
            without(
                TABLES,
                "tune",
                ranges={"optimizer.name": ["adam", "sgd"], "optimizer.momentum": [0.0, 0.5]},
            ),
            ParameterError,
            "optimizer.momentum = 0.5",
        ),
        (
            {**TABLES, "participation": {"law": "availability", "trace": "x", "window": 2}},
            UnsupportedError,
            "a trace",
        ),
    ],
)
def test_invalid_searches_are_refused_in_one_line(tables, error, words, tmp_path):
    with pytest.raises(error, match=words):
        tune(tables, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_private_search_refuses_metrics_other_than_accuracy():
    tables = {**TABLES, "data": {}}
    with pytest.raises(UnsupportedError, match="compares accuracies"):
        tune(tables, data=numbers())


def test_a_search_refuses_folders_that_are_not_its_own(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="a new or empty folder"):
        tune(TABLES, tmp_path)
    with pytest.raises(ParameterError, match="a folder that holds a search"):
        tune(resume=tmp_path)
    with pytest.raises(ParameterError, match="resume without a plan"):
        tune(TABLES, resume=tmp_path)


def test_a_search_with_precomputed_features_gives_the_same_model(monkeypatch):
    tables = without(PUBLIC, "model", features="standardized")
    plan = Plan.from_mapping(tables)
    search = Search.of(plan, Path(), Unwatched())
    calls, apply = [], featuring.apply_features
    monkeypatch.setattr(
        featuring,
        "apply_features",
        lambda features, inputs: calls.append(features.text) or apply(features, inputs),
    )
    scores = [search._run(number, values(search, number))[0] for number in range(2)]
    assert calls.count("standardized") == 2  # of the runs, and of the clients who judge
    chosen = with_values(plan, values(search, 0))
    seed = search._run(0, values(search, 0))[1].prepared.plan.run.seed
    run = chosen.run.model_copy(update={"seed": seed, "evaluate_every": 4})
    alone = replace(search.held.workload, plan=chosen.model_copy(update={"run": run}))
    ready = ReadyRun.of(alone, replace(search.prepared, plan=alone.plan), UnseenPhase())
    assert ready.carried_out(None, "", None, Unwatched()).result == scores[0]


@pytest.mark.parametrize("unit", ["client", "example"])
def test_the_guarantee_of_a_search_names_its_privacy_unit(unit):
    plan = Plan.from_mapping(without(TABLES, "privacy", unit=unit))
    price = Search.of(plan, Path(), Unwatched()).price
    assert price is not None
    assert price.guarantee.unit.value == unit
