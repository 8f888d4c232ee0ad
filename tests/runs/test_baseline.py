"""A baseline run has the same plan, clients and steps as a private run, without privacy."""

import json

import numpy as np
import pytest

import turnout as tn

PLAN = {
    "data": {"name": "digits", "clients": 200},
    "model": {"name": "logistic", "features": "standardized"},
    "participation": {"law": "check-in", "window": 10, "windows": 3},
    "privacy": {
        "relation": "add-remove",
        "noise_multiplier": 3.0,
        "delta": 1e-4,
        "clip_norm": 0.5,
    },
    "optimizer": {"learning_rate": 0.05},
    "run": {"evaluate_every": 10},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baseline") / "run"
    return tn.train(PLAN, folder, baseline=True), folder


def test_the_baseline_run_has_the_same_clients_without_clipping(trained):
    run, _ = trained
    assert run.baseline is not None
    assert np.array_equal(run.baseline.check_ins, run.history.check_ins)
    assert not run.baseline.clipped.any()
    assert run.history.clipped.sum() > 0.9 * run.history.participations
    assert run.baseline.metrics["loss"][-1] < run.metrics["loss"]
    low, high = run.interval
    assert low < run.accuracy < high


def test_the_baseline_run_does_not_change_the_private_run(trained):
    run, _ = trained
    plain = tn.train(PLAN)
    assert plain == run
    assert plain.baseline is None


def test_the_baseline_is_reported_only_in_the_files_of_the_simulator(trained):
    run, folder = trained
    free = json.loads((folder / "simulator" / "counts.json").read_text())
    assert free["without_noise_and_clipping"]["loss"] == run.baseline.metrics["loss"][-1]
    assert (folder / "simulator" / "pictures" / "baseline.svg").is_file()
    assert "without noise and clipping" in (folder / "simulator" / "counts.html").read_text("utf-8")
    for shared in ("report.json", "report.html", "MODEL_CARD.md"):
        assert "without noise and clipping" not in (folder / shared).read_text("utf-8")


def test_a_resumed_run_reports_the_baseline(trained):
    run, folder = trained
    (folder / "report.json").unlink()
    again = tn.train(resume=folder)
    assert again == run
    assert np.array_equal(again.baseline.metrics["loss"], run.baseline.metrics["loss"])
