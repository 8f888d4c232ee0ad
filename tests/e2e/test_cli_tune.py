"""`turnout tune`: its results, interrupted and resumed searches, and its errors."""

from __future__ import annotations

import json

import pytest
from command_line import PLAN

from turnout.cli.main import main
from turnout.plans import Plan
from turnout.runs import InterruptedRunError
from turnout.runs.execution import ReadyRun

SEARCHED = f"""{PLAN}
[tune]
candidates = 2
data = {{ name = "digits" }}
[tune.ranges]
optimizer.learning_rate = {{ low = 0.1, high = 10.0, log = true }}
"""


def ended(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(each) for each in arguments])
    return int(end.value.code or 0)


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "plan.toml").write_text(SEARCHED)
    return tmp_path / "plan.toml"


def test_tune_writes_a_plan_with_the_best_settings(plan, tmp_path, capsys):
    assert ended("tune", plan, "--out", tmp_path / "out", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads((tmp_path / "out/tune.json").read_text())
    assert len(record["candidates"]) == 2
    chosen = Plan.from_toml((tmp_path / "out/plan.toml").read_text())
    assert chosen.optimizer.learning_rate == record["values"]["optimizer.learning_rate"]
    assert not (tmp_path / "out/model.safetensors").exists()


def test_an_interrupted_search_prints_the_command_that_resumes_it(
    plan, tmp_path, capsys, monkeypatch
):
    def stopped(*_: object) -> None:
        raise InterruptedRunError(None, 1, 24)

    with monkeypatch.context() as patched:
        patched.setattr(ReadyRun, "carried_out", stopped)
        assert ended("tune", plan, "--out", tmp_path / "out") == 130
    assert f"turnout tune --resume {tmp_path / 'out'}" in capsys.readouterr().err
    assert ended("tune", "--resume", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "none, by the plan's word" in printed
    assert "optimizer.learning_rate" in printed


@pytest.mark.parametrize(
    "arguments", [(), ("plan.toml",), ("--out", "x"), ("plan.toml", "--out", "x", "--resume", "y")]
)
def test_tune_refuses_incomplete_arguments_in_one_line(arguments, capsys):
    assert ended("tune", *arguments) == 2
    assert "give PLAN and --out DIR, or --resume DIR" in capsys.readouterr().err
