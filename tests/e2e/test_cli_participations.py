"""`turnout train` under each participation and release rule with a sound analysis."""

from __future__ import annotations

import json

import pytest
from command_line import PLAN

CHECK_IN = 'law = "check-in"\nwindow = 8\nwindows = 3'
TRACE = "device,slot_start,slot_end,available\n" + "\n".join(
    f"{client},{client % 5},{client % 5 + 4},1" for client in range(40)
)


@pytest.mark.parametrize(
    ("law", "release", "steps"),
    [
        ('law = "every-step"\nsteps = 3', "aggregated", 3),
        ('law = "poisson"\nrate = 0.05\nsteps = 5', "aggregated", 5),
        ('law = "self-sampling"\nrate = 0.05\nsteps = 5', "aggregated", 5),
        ('law = "sliding"\nwindow = 20\nclients_per_slot = 3', "aggregated", 460),
        ('law = "k-subset"\nwindow = 8\npicks = 2', "aggregated", 8),
        ('law = "fixed-assignment"\nwindow = 8\nepochs = 3', "aggregated", 24),
        (CHECK_IN, "one-client", 24),
        (CHECK_IN, "averaged", 24),
        ('law = "availability"\ntrace = "trace.csv"\nwindow = 4', "aggregated", 8),
    ],
    ids=lambda value: str(value).replace("\n", " ").replace('"', ""),
)
def test_a_plan_trains_under_each_participation_and_release_rule(
    turnout, tmp_path, law, release, steps
):
    (tmp_path / "trace.csv").write_text(TRACE)
    text = PLAN.replace(CHECK_IN, law).replace(
        "[optimizer]", f'[protocol]\nrelease = "{release}"\n[optimizer]'
    )
    if release == "averaged":
        text = text.replace("add-remove", "replace-one").replace("= 2.0", "= 6.0")
    (tmp_path / "plan.toml").write_text(text.replace("evaluate_every = 4", "evaluate_every = 500"))
    done = turnout("train", "plan.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["steps"] == steps
    assert 0 < report["epsilon"] < 100
    assert report["epsilon_lower"] <= report["epsilon"]
    if "trace" in law:
        assert report["clients_epsilon"]["clients"] == 40
        assert "all_present" in report["trace"]


def test_the_availability_trace_of_a_plan_is_copied_into_the_folder_of_the_run(turnout, tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    law = 'law = "availability"\ntrace = "trace.csv"\nwindow = 4'
    (tmp_path / "plan.toml").write_text(PLAN.replace(CHECK_IN, law))
    assert turnout("train", "plan.toml", "--out", "run").returncode == 0
    before = json.loads((tmp_path / "run" / "report.json").read_text())
    (tmp_path / "trace.csv").unlink()
    assert turnout("train", "--resume", "run").returncode == 0
    after = json.loads((tmp_path / "run" / "report.json").read_text())
    assert after["accuracy"] == before["accuracy"]
    assert after["clients_epsilon"] == before["clients_epsilon"]


def test_a_plan_without_a_sound_analysis_is_refused_before_it_runs(turnout, tmp_path):
    text = PLAN.replace(CHECK_IN, 'law = "k-subset"\nwindow = 8\npicks = 2')
    text = text.replace("[optimizer]", '[protocol]\nrelease = "averaged"\n[optimizer]')
    (tmp_path / "plan.toml").write_text(text)
    done = turnout("train", "plan.toml", "--out", "run")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
