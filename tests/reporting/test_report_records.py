"""Reports as data: report.json and the tables beside it."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from turnout.core.errors import StorageError
from turnout.reporting.folder import write, write_report
from turnout.reporting.summary import versions


def table(path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_record_of_a_run(summary):
    record = summary.record()
    assert record["accuracy"] == 0.9
    assert record["loss"] == 0.5
    assert (record["epsilon"], record["epsilon_lower"]) == (2.4356, 2.4321)
    assert record["directions"]["add"] == {"epsilon": 2.25, "epsilon_lower": 2.125}
    assert (record["relation"], record["unit"]) == ("add-remove", "client")
    assert (record["trust_model"], record["delta"]) == ("central", 1e-4)
    assert (record["dummy_steps"], record["expected_dummy_steps"]) == (1, 1.25)
    assert (record["skipped_steps"], record["expected_skipped_steps"]) == (0, 0.0)
    assert record["participations"] == 6
    assert record["expected_participations"] == pytest.approx(4)
    assert record["randomness"] == "simulation only (seed 1)"
    assert record["versions"] == versions()
    assert "clients_epsilon" not in record
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_record_of_a_trace(traced_summary):
    record = traced_summary.record()
    assert record["clients_epsilon"]["worst"] == record["epsilon"]
    assert record["clients_epsilon"]["never_come"] == 1
    assert record["clients_epsilon"]["percentiles"]["50"] == 2.4356
    trace = record["trace"]
    assert trace["known_fraction"] == pytest.approx(11 / 12)
    assert trace["available_fraction"] == pytest.approx(3 / 11)
    assert trace["never_available"] == 1
    assert trace["accuracy_lost_to_absence"] == pytest.approx(0.05)
    assert trace["all_present"]["accuracy"] == 0.95
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_epsilon_so_far_is_never_too_small(summary):
    outcome = summary.outcome
    assert outcome.epsilon_at(np.arange(7)).tolist() == [0, 1.5, 1.5, 1.5, 2.4356, 2.4356, 2.4356]


def test_the_folder_of_a_run(summary, tmp_path):
    write_report(tmp_path / "run", summary, "# the plan")
    names = sorted(str(p.relative_to(tmp_path / "run")) for p in (tmp_path / "run").rglob("*.*"))
    assert names == [
        "check_ins.csv",
        "history.csv",
        "pictures/check-ins.png",
        "pictures/check-ins.svg",
        "pictures/progress.png",
        "pictures/progress.svg",
        "report.html",
        "report.json",
    ]
    history = table(tmp_path / "run" / "history.csv")
    assert [row["participations"] for row in history] == ["0", "3", "6"]
    assert [row["epsilon"] for row in history] == ["0.0", "1.5", "2.4356"]
    came = table(tmp_path / "run" / "check_ins.csv")
    assert [row["dummy"] for row in came] == ["0", "1", "0", "0", "0", "0"]
    assert [row["step"] for row in came] == list("123456")


def test_the_folder_of_a_trace(traced_summary, tmp_path):
    write_report(tmp_path, traced_summary, "# the plan")
    clients = table(tmp_path / "clients.csv")
    assert [row["epsilon"] for row in clients] == ["2.4356", "0.0"]
    assert [row["available_steps"] for row in clients] == ["3", "0"]
    pictures = {path.stem for path in (tmp_path / "pictures").iterdir()}
    assert pictures == {"progress", "check-ins", "clients", "day", "absence"}


def test_a_file_is_whole_or_absent(tmp_path):
    write(tmp_path / "a" / "file.txt", "first")
    (tmp_path / "a" / "file.txt.new").mkdir()
    with pytest.raises(StorageError, match=r"file\.txt cannot be written"):
        write(tmp_path / "a" / "file.txt", "second")
    assert (tmp_path / "a" / "file.txt").read_text() == "first"
