"""``turnout bandit``: refusals before anything is written, and runs that end in the same bits."""

import json
from pathlib import Path

import numpy as np
import pytest

from turnout.cli.main import main
from turnout.core.errors import ParameterError
from turnout.plans.bandit import BanditPlan
from turnout.runs import InterruptedRunError
from turnout.runs.bandit import resume_bandit, run_bandit

ROOT = Path(__file__).parents[2]
PLAN = """
[environment]
horizon = 3000
actions = 6
[privacy]
trust = "central"
epsilon = 1.0
[policy]
name = "elimination"
[run]
seeds = 4
"""


def quiet(done, seeds, words):
    """Tells nobody."""


def written(tmp_path, text=PLAN):
    path = tmp_path / "bandit.toml"
    path.write_text(text)
    return path


def report(folder):
    """What was found, running time apart."""
    found = json.loads((folder / "report.json").read_text())
    del found["seconds"]
    return found


def end_of(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_the_bandit_report_has_both_bounds_on_epsilon_and_the_regret(tmp_path, capsys):
    out = tmp_path / "out"
    assert end_of(["bandit", str(written(tmp_path)), "--out", str(out)]) == 0
    found = report(out)
    assert 0.999 < found["epsilon_lower"] <= found["epsilon"] <= 1.0
    assert (found["relation"], found["unit"]) == ("replace-one", "client")
    assert found["trust_model"] == "central"
    assert 0 < found["regret"] < found["regret_of_uniform_play"]
    assert len(found["regret_of_each_run"]) == 4
    assert "regret" in capsys.readouterr().out
    for name in ("report.html", "regret.csv", "pictures/regret.png", "plan.toml"):
        assert (out / name).stat().st_size > 0
    # A finished run is reported again, the same.
    assert end_of(["bandit", "--resume", str(out)]) == 0
    assert report(out) == found


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_resumed_bandit_run_gives_the_same_results_bit_for_bit(tmp_path, stop):
    plan = written(tmp_path)
    whole = run_bandit(plan, tmp_path / "whole", quiet)

    def interrupting(done, seeds, words):
        assert ("regret" in words) == (done > 0)
        if done == stop:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match="turnout bandit --resume"):
        run_bandit(plan, tmp_path / "part", interrupting)
    assert not (tmp_path / "part" / "report.json").exists()
    resumed = resume_bandit(tmp_path / "part", quiet)
    assert np.array_equal(resumed.regret, whole.regret)
    assert report(tmp_path / "part") == report(tmp_path / "whole")


def test_ctrl_c_ends_a_bandit_run_with_exit_code_130_and_prints_the_resume_command(
    tmp_path, monkeypatch, capsys
):
    def interrupted(*_):
        raise InterruptedRunError(tmp_path, 1, 4, unit="run", command="bandit")

    monkeypatch.setattr("turnout.runs.bandit.run_bandit", interrupted)
    code = end_of(["bandit", str(written(tmp_path)), "--out", str(tmp_path / "out")])
    assert code == 130
    assert "stopped after run 1 of 4" in capsys.readouterr().err


def test_a_checkpoint_of_another_bandit_plan_is_refused(tmp_path, capsys):
    out = tmp_path / "out"
    run_bandit(written(tmp_path), out, quiet)
    (out / "plan.toml").write_text(PLAN.replace("epsilon = 1.0", "epsilon = 2.0"))
    assert end_of(["bandit", "--resume", str(out)]) == 2
    error = capsys.readouterr().err
    assert "resume" in error
    assert str(out) in error


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("epsilon = 1.0", "epsilon = 0.0", "privacy.epsilon = 0.0"),
        ("epsilon = 1.0", "epsilon = -1", "privacy.epsilon = -1"),
        ("epsilon = 1.0", "epsilon = nan", "privacy.epsilon = nan"),
        ("epsilon = 1.0", "epsilon = inf", "privacy.epsilon = inf"),
        ("epsilon = 1.0", "epsilon = 1e-60", "privacy.epsilon = 1e-60"),
        ("epsilon = 1.0", "", "privacy.epsilon = (missing)"),
        ("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6", "privacy.delta = 1e-06"),
        ('trust = "central"', 'trust = "shuffled"', "privacy.delta = (missing)"),
        ('trust = "central"', 'trust = "shuffled"\ndelta = 0', "privacy.delta = 0"),
        ('trust = "central"', 'trust = "none"', "privacy.epsilon = 1.0"),
        ("horizon = 3000", "horizon = 49", "environment.horizon = 49"),
        ("actions = 6", "actions = 0", "environment.actions = 0"),
        ("actions = 6", "", "environment.actions = (missing)"),
        (
            "actions = 6",
            "features = [[1.0, 0.0], [0.9, 0.9]]\nparameter = [1.0, 0.0]",
            "environment.features[1] = [0.9, 0.9]",
        ),
        (
            "actions = 6",
            "features = [[nan, 0.0]]\nparameter = [1.0, 0.0]",
            "environment.features[0] = [nan, 0.0]",
        ),
        (
            "actions = 6",
            "features = [[0.0, 0.0]]\nparameter = [1.0, 0.0]",
            "environment.features = 'all zero'",
        ),
        ("actions = 6", "features = [[1.0, 0.0]]", "environment.parameter = (missing)"),
        ('name = "elimination"', "growth = 1.0", "policy.growth = 1.0"),
        ('name = "elimination"', "guard = true", "policy.guard = True"),
        ("seeds = 4", "seeds = 0", "run.seeds = 0"),
        ('name = "elimination"', 'name = "private-linucb"', "privacy.delta = (missing)"),
    ],
)
def test_an_invalid_bandit_plan_is_refused_in_one_line_and_writes_no_files(
    tmp_path, capsys, old, new, said
):
    assert old in PLAN
    plan, out = written(tmp_path, PLAN.replace(old, new)), tmp_path / "out"
    assert end_of(["bandit", str(plan), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()


LOGGED = """
[environment]
horizon = 120
features = [[1.0, 0.0], [0.0, 1.0]]
log = "log.csv"
[privacy]
trust = "local"
epsilon = 2.0
[run]
seeds = 2
"""


def test_a_checkpoint_of_another_reward_log_is_refused(tmp_path, capsys):
    plan, out = written(tmp_path, LOGGED), tmp_path / "out"
    lines = [f"client-{i},{i % 3 - 1},0.5" for i in range(120)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["client,reward_0,reward_1", *lines]))
    assert run_bandit(plan, out, quiet).guarantee is not None
    assert not report(out)["regret_covered_by_epsilon"]
    assert end_of(["bandit", "--resume", str(out)]) == 0
    log.write_text("\n".join(["client,reward_0,reward_1", *lines[:119], "client-119,1,1"]))
    assert end_of(["bandit", "--resume", str(out)]) == 2
    for wrong, said in (
        ("client-119,1,1.01", "reward_1 = 1.01"),
        ("client-118,1,1", "client 'client-118'"),
        (None, "environment.horizon = 120"),
    ):
        log.write_text(
            "\n".join(["client,reward_0,reward_1", *lines[:119], *filter(None, [wrong])])
        )
        assert end_of(["bandit", str(plan), "--out", str(tmp_path / "other")]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "other").exists()


def test_a_bandit_run_refuses_a_folder_that_contains_files(tmp_path):
    plan = written(tmp_path)
    with pytest.raises(ParameterError, match="out"):
        run_bandit(plan, tmp_path, quiet)
    with pytest.raises(ParameterError, match="resume"):
        resume_bandit(tmp_path / "none", quiet)
    assert end_of(["bandit", str(plan)]) == 2


@pytest.mark.parametrize("name", ["thompson", "linucb", "phased-elimination"])
@pytest.mark.parametrize("trust", ["none", "local"])
def test_every_bandit_policy_runs_without_privacy_and_with_local_privacy(tmp_path, name, trust):
    text = PLAN.replace("elimination", name).replace("seeds = 4", "seeds = 2")
    text = text.replace("central", trust)
    if trust == "none":
        text = text.replace("epsilon = 1.0", "")
    summary = run_bandit(written(tmp_path, text), tmp_path / "out", quiet)
    assert (summary.guarantee is None) == (trust == "none")
    assert summary.regret.shape[0] == 2
    assert report(tmp_path / "out")["epsilon"] == (None if trust == "none" else 1.0)


def test_the_reported_epsilon_of_private_linucb_meets_the_target(tmp_path):
    text = PLAN.replace('"elimination"', '"private-linucb"\nfirst = 300')
    text = text.replace("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6").replace("s = 4", "s = 1")
    run_bandit(written(tmp_path, text), tmp_path / "out", quiet)
    found = report(tmp_path / "out")
    assert 0.99 < found["epsilon_lower"] <= found["epsilon"] <= 1.0
    assert (found["delta"], found["trust_model"]) == (1e-6, "central")


def test_the_bandit_example_is_a_valid_plan():
    text = (ROOT / "examples" / "bandit.toml").read_text()
    plan = BanditPlan.from_toml(text)
    assert BanditPlan.from_toml(plan.to_toml()) == plan
