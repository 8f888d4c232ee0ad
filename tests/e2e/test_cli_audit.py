"""``turnout audit``: its output, its files and its exit codes."""

import json

import pytest

import turnout
import turnout.api.audit
from turnout.cli.main import main
from turnout.core.bounds import Bounds

PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 5
windows = 2
[privacy]
relation = "add-remove"
noise_multiplier = 1.0
delta = 1e-4
[optimizer]
learning_rate = 1.0
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def run(*arguments):
    with pytest.raises(SystemExit) as end:
        main(["audit", *map(str, arguments)])
    return end.value.code


def test_audit_prints_json_and_writes_it_with_a_picture(plan, tmp_path, capsys):
    assert run(plan, "--trials", "5e3", "--json", "--out", tmp_path / "out") == 0
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads((tmp_path / "out" / "audit.json").read_text())
    assert record["consistent"]
    assert 0 < record["audit_lower"] < record["epsilon_lower"] <= record["epsilon"]
    assert {"remove", "add"} == set(record["directions"])
    assert record["also"][0]["delta"] == 0.05
    assert (tmp_path / "out" / "audit.svg").read_text().startswith("<?xml")


def test_audit_prints_its_verdict_in_the_table(plan, capsys):
    assert run(plan, "--trials", "2000") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "verdict consistent: the ε lower bound found" in shown
    assert "relation add-remove" in shown


def test_audit_prints_lower_bounds_rounded_down(plan, capsys):
    found = turnout.audit(plan, trials=2000)
    assert run(plan, "--trials", "2000") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (row,) = (words for words in lines if words[:4] == ["ε", "lower", "bound", "found"])
    assert 0 <= found.epsilon_lower - float(row[4]) < 1e-3
    assert "add-remove, client, central" in repr(found)


def test_audit_of_a_violated_guarantee_ends_with_exit_code_1(plan, capsys, monkeypatch):
    proved = turnout.api.audit.stated_by

    def too_small(guarantee):
        stated = proved(guarantee)
        halves = {name: Bounds(0.0, 0.2 * b.upper) for name, b in stated.directions.items()}
        return type(stated)(halves, stated.delta, stated.terms)

    monkeypatch.setattr(turnout.api.audit, "stated_by", too_small)
    assert run(plan, "--trials", "20000") == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "what runs is not what was priced" in shown


def test_audit_of_one_run_trains_the_model_together_with_canaries(plan, capsys):
    assert run(plan, "--one-run", "--canaries", "5000", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["canaries"] == 5000
    assert record["metrics"]["accuracy"] > 0.2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give PLAN, or --example NAME"),
        (["--example", "nothing"], "nothing"),
        (["--example", "digits", "--trials", "10"], "trials = 10"),
        (["--example", "digits", "--confidence", "1"], "confidence = 1"),
    ],
)
def test_audit_refuses_invalid_options_with_the_reason(arguments, words, capsys):
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err
