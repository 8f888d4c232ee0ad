"""Machine-readable reports: report.json and its tables."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from turnout.core.errors import StorageError
from turnout.core.files import write
from turnout.reporting.drawing import Picture
from turnout.reporting.summary import Outcome, Summary
from turnout.reporting.surroundings import TRACKED, machine, measured_on, versions
from turnout.reporting.training_report import write_report


def table(path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_record_of_a_run_contains_every_result_and_is_valid_json(summary):
    record = summary.record()
    assert record["accuracy"] == 0.9
    assert record["loss"] == 0.5
    assert (record["epsilon"], record["epsilon_lower"]) == (2.4356, 2.4321)
    assert record["directions"]["add"] == {"epsilon": 2.25, "epsilon_lower": 2.125}
    assert (record["relation"], record["unit"]) == ("add-remove", "client")
    assert (record["trust_model"], record["delta"]) == ("central", 1e-4)
    assert (record["expected_dummy_steps"], record["expected_skipped_steps"]) == (1.25, 0.0)
    assert record["expected_participations"] == pytest.approx(4)
    assert record["randomness"] == "simulation only (seed 1)"
    assert record["versions"] == versions()
    assert record["machine"] == machine()
    assert "clients_epsilon" not in record
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_tracked_package_versions_are_of_runtime_dependencies():
    lock = (Path(__file__).parents[2] / "requirements" / "runtime.lock").read_text()
    locked = {line.partition("==")[0] for line in lock.splitlines()}
    assert set(TRACKED) <= locked


def test_the_line_above_a_benchmark_has_date_versions_and_processor():
    line = measured_on()
    assert re.match(r"\*Measured on \d{4}-\d\d-\d\d: turnout \d", line)
    assert [name for name, version in versions().items() if f"{name} {version}" not in line] == []
    assert machine()["processor"] in line


def test_the_machine_record_has_the_processor_and_its_instruction_sets(monkeypatch):
    import torch

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX9")
    found = machine()
    assert found["torch"] == "AVX9"
    assert found["processor"]
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    assert found["numpy"].split() == [*extensions["baseline"], *extensions.get("found", [])]
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert {"torch", "blas"}.isdisjoint(machine())


def test_the_simulator_record_contains_the_participation_counts_of_a_run(summary, traced_summary):
    counts = summary.counts()
    assert "not cover" in counts.pop("note")
    assert counts == {
        "participations": 6,
        "steps_without_anybody": 1,
        "dummy_steps": 1,
        "skipped_steps": 0,
        "clipped_share": pytest.approx(0.5),  # over steps with participants: ½, 1, 0, 1, 0
        "signal_to_noise": pytest.approx(1.0 / (1.5 * np.sqrt(2))),  # noise σ·C·√d = 1.5·√2
    }
    assert traced_summary.counts()["all_present"] == counts


def test_the_baseline_without_noise_is_only_in_the_simulator_record(summary):
    free = replace(summary.outcome.history, metrics={"accuracy": np.array([0.1, 0.97])})
    counts = replace(summary, baseline=free).counts()
    assert counts["without_noise_and_clipping"] == {"accuracy": 0.97}
    assert "0.97" not in json.dumps(replace(summary, baseline=free).record())


def test_the_record_of_a_run_has_a_wilson_interval_of_the_accuracy(summary):
    record = summary.record()
    assert (record["test_records"], record["chance_level"]) == (100, 0.25)
    found = binomtest(90, 100).proportion_ci(method="wilson")
    assert record["accuracy_interval"] == pytest.approx([found.low, found.high])


def test_the_record_of_a_run_with_a_trace_has_epsilon_by_client_and_availability(traced_summary):
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


def test_the_reported_epsilon_so_far_is_never_too_small(summary):
    outcome = summary.outcome
    assert outcome.epsilon_at(np.arange(7)).tolist() == [0, 1.5, 1.5, 1.5, 2.4356, 2.4356, 2.4356]


def test_the_folder_of_a_run_has_every_report_file(summary, tmp_path):
    write_report(tmp_path / "run", summary, "# the plan")
    names = sorted(str(p.relative_to(tmp_path / "run")) for p in (tmp_path / "run").rglob("*.*"))
    assert names == [
        "history.csv",
        "pictures/progress.png",
        "pictures/progress.svg",
        "report.html",
        "report.json",
        "simulator/check_ins.csv",
        "simulator/counts.html",
        "simulator/counts.json",
        "simulator/pictures/check-ins.png",
        "simulator/pictures/check-ins.svg",
        "simulator/pictures/updates.png",
        "simulator/pictures/updates.svg",
    ]
    history = table(tmp_path / "run" / "history.csv")
    assert [row["epsilon"] for row in history] == ["0.0", "1.5", "2.4356"]
    came = table(tmp_path / "run" / "simulator" / "check_ins.csv")
    assert [row["dummy"] for row in came] == ["0", "1", "0", "0", "0", "0"]
    assert [row["step"] for row in came] == list("123456")


def test_the_folder_of_a_run_with_a_trace_has_its_tables_and_pictures(traced_summary, tmp_path):
    write_report(tmp_path, traced_summary, "# the plan")
    clients = table(tmp_path / "clients.csv")
    assert [row["epsilon"] for row in clients] == ["2.4356", "0.0"]
    assert [row["available_steps"] for row in clients] == ["3", "0"]
    pictures = {path.stem for path in (tmp_path / "pictures").iterdir()}
    assert pictures == {"progress", "clients", "availability", "absence"}
    counts = {path.stem for path in (tmp_path / "simulator" / "pictures").iterdir()}
    assert counts == {"check-ins", "day", "updates"}


def test_public_report_parts_do_not_depend_on_participation(traced_summary, tmp_path, monkeypatch):
    """Two runs that differ only in participation counts differ only in the simulator's files."""
    monkeypatch.setattr(Picture, "png", lambda self: self.text.encode())  # drawn as SVG too
    few = np.array([1, 1, 0, 0, 1, 2])
    counts = {"check_ins": few, "served": few, "dummy": few == 0, "skipped": few == 2}

    def recounted(run: Outcome) -> Outcome:
        return replace(run, history=replace(run.history, **counts))

    slots, trace = np.array([0.5, 2.5, 2.0]), traced_summary.trace
    if trace is not None:
        trace = replace(trace, check_ins_per_slot=slots, everyone=recounted(trace.everyone))
    changed = Summary(recounted(traced_summary.outcome), trace)
    written = []
    for name, run in (("one", traced_summary), ("other", changed)):
        write_report(tmp_path / name, run, "# the plan")
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        written.append({str(p.relative_to(tmp_path / name)): p.read_bytes() for p in files})
    one, another = written
    assert one.keys() == another.keys()
    # Negative control: each of the simulator's files differs, and no other file.
    assert {name for name in one if one[name] != another[name]} == {
        name for name in one if name.startswith("simulator/")
    }
    assert len(one) >= 10


def test_a_failed_write_leaves_the_previous_file_unchanged(tmp_path):
    write(tmp_path / "a" / "file.txt", "first")
    (tmp_path / "a" / "file.txt.new").mkdir()
    with pytest.raises(StorageError, match=r"file\.txt cannot be written"):
        write(tmp_path / "a" / "file.txt", "second")
    assert (tmp_path / "a" / "file.txt").read_text() == "first"
