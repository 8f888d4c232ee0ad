"""Plans with a data file of the user on the command line: training, resuming and errors."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from turnout.cli.main import main
from turnout.core.errors import ParameterError
from turnout.plans import Plan
from turnout.runs.building import build_task
from turnout.runs.workload import gather

PLAN = """
[data]
path = "visits.npz"
client = "who"
inputs = ["x"]
label = "y"
classes = 2
test = "held"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 4
[privacy]
relation = "add-remove"
noise_multiplier = 1.0
delta = 1e-4
[optimizer]
learning_rate = 2.0
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    generator = np.random.default_rng(1)
    x = generator.normal(size=(400, 3))
    held = np.arange(400) % 4 == 0
    who = np.char.add("p", (np.arange(400) // 4).astype("U3"))
    np.savez(tmp_path / "visits.npz", x=x, y=(x[:, 0] > 0).astype(int), who=who, held=held)
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path


def ran(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code, *capsys.readouterr()  # pyright: ignore[reportReturnType]


def test_a_run_on_a_data_file_reports_public_data_and_resumes_from_any_folder(
    folder, capsys, monkeypatch
):
    code, said, told = ran(capsys, "train", folder / "plan.toml", "--out", folder / "run")
    assert code == 0
    assert "logistic on visits.npz" in said
    assert "'held', as the plan says; no ε covers it" in said
    assert "classes: public, from the plan" in said
    assert told.count("\n") == 1
    assert "visits.npz laid out by client in " in told
    record = json.loads((folder / "run" / "report.json").read_text())
    shutil.rmtree(folder / "cache")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    code, _, _ = ran(capsys, "train", "--resume", folder / "run")
    assert code == 0
    again = json.loads((folder / "run" / "report.json").read_text())
    assert {**again, "seconds": 0} == {**record, "seconds": 0}
    assert str(folder) not in (folder / "run" / "report.json").read_text()
    assert str(folder) not in (folder / "run" / "report.html").read_text()


def test_resuming_with_a_changed_data_file_is_refused(folder, capsys):
    assert ran(capsys, "train", folder / "plan.toml", "--out", folder / "run")[0] == 0
    with np.load(folder / "visits.npz") as arrays:
        held = {**arrays, "x": arrays["x"] + 1}
    np.savez(folder / "visits.npz", **held)
    code, _, told = ran(capsys, "train", "--resume", folder / "run")
    assert code == 4
    assert "the checkpoint is of a run on other data" in told


def test_each_client_of_a_data_file_holds_its_own_records(folder):
    workload = gather(Plan.from_toml(PLAN), folder)
    assert workload.population == build_task(workload).population == 100
    assert workload.data.holdings is not None
    assert set(np.diff(workload.data.holdings.offsets)) == {3}


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"who"', '"whom"', "data.client = 'whom': expected a column of the data: x, y, who, held"),
        (
            "classes = 2",
            "classes = 1",
            "data.classes = 1: expected the number of classes, at least 2",
        ),
        ("visits.npz", "none.npz", "data.path = '"),
        ('"y"', '"held"', "data.label"),
        ("classes = 2", "", "data.target = None: expected 'class' (with classes), 'tags'"),
    ],
)
def test_an_invalid_data_file_is_refused_in_one_line_and_writes_no_files(
    old, new, line, folder, capsys
):
    (folder / "plan.toml").write_text(PLAN.replace(old, new))
    if line == "data.label":
        with np.load(folder / "visits.npz") as arrays:
            labels = {**arrays, "y": np.where(np.arange(400) == 7, 9, arrays["y"])}
        np.savez(folder / "visits.npz", **labels)
        (folder / "plan.toml").write_text(PLAN)
        line = "data.label = 'y': expected whole numbers from 0 to 1; invalid: row 7 (counted"
    code, said, told = ran(capsys, "train", folder / "plan.toml", "--out", folder / "run")
    assert (code, said) == (2, "")
    assert told.startswith(f"turnout: {line}")
    assert told.count("\n") == 1
    assert not (folder / "run").exists()
    layouts = folder / "cache" / "turnout" / "layouts"
    assert not layouts.exists() or not [one for one in layouts.iterdir() if one.is_dir()]


def test_a_truncated_data_file_is_reported_as_damaged(folder, capsys):
    path = folder / "visits.npz"
    path.write_bytes(path.read_bytes()[:500])
    code, _, told = ran(capsys, "train", folder / "plan.toml", "--out", folder / "run")
    assert (code, told.count("\n")) == (2, 1)
    assert not (folder / "run").exists()


def test_a_missing_gpu_is_refused_and_bfloat16_is_reported(folder, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plan = folder / "plan.toml"
    plan.write_text(f'{PLAN}[run]\ndevice = "cuda"\n')
    code, _, told = ran(capsys, "train", plan, "--out", folder / "run")
    assert code == 2
    assert (
        "turnout: run.device = 'cuda': expected a machine with a GPU that PyTorch can use" in told
    )
    assert not (folder / "run").exists()
    plan.write_text(f'{PLAN}[run]\ndevice = "auto"\nprecision = "bfloat16"\n')
    assert ran(capsys, "train", plan, "--out", folder / "run")[0] == 0
    page = (folder / "run" / "report.html").read_text()
    assert "on auto, forward and backward passes in bfloat16" in page


def test_a_trace_and_a_data_file_with_different_clients_are_refused(folder):
    (folder / "trace.csv").write_text("device,slot_start,slot_end,available\n0,0,4,1\n1,0,4,1\n")
    law = {"law": "availability", "trace": "trace.csv", "window": 2}
    tables = Plan.from_toml(PLAN).model_dump(mode="json", exclude_none=True)
    with pytest.raises(ParameterError, match=r"data\.clients = 100: expected 2, as in the trace"):
        gather(Plan.from_mapping({**tables, "participation": law}), folder)
