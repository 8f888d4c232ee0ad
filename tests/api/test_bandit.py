"""`tn.bandit`: the command's answer, and runs on contexts and rewards in memory."""

from __future__ import annotations

import json

import numpy as np
import pytest

import turnout as tn
from turnout.bandits import (
    CentralSums,
    Elimination,
    contextual_environment,
    parameter_net,
    simulate_bandit,
)
from turnout.randomness import SimulationStreams
from turnout.runs import InterruptedRunError

PARAMETER = [0.6, 0.8]
TEXT = """
[environment]
horizon = 2000
actions = 5
[privacy]
trust = "central"
epsilon = 1.0
[run]
seeds = 2
"""
PRIVACY = {"privacy": {"trust": "central", "epsilon": 1.0}, "run": {"seeds": 2}}
SIMULATED = {"environment": {"horizon": 4000, "parameter": PARAMETER}, **PRIVACY}
REPLAYED = {"environment": {"horizon": 3000}, **PRIVACY}


def features(count, seed):
    drawn = np.random.default_rng(seed).standard_normal((count, 3, 2))
    return drawn / np.maximum(np.linalg.norm(drawn, axis=2, keepdims=True), 1)


CONTEXTS = features(200, 1)


def clients_and_rewards():
    own = features(3000, 2)
    likely = np.random.default_rng(3).random(own.shape[:2]) < (1 + own @ PARAMETER) / 2
    return {"client_contexts": own, "rewards": np.where(likely, 1.0, -1.0)}


def lasting(record):
    return {key: value for key, value in record.items() if key != "seconds"}


def test_to_dict_of_a_bandit_run_equals_the_report_file(tmp_path):
    (tmp_path / "plan.toml").write_text(TEXT)
    run = tn.bandit(tmp_path / "plan.toml", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == run.to_dict()
    for same in (TEXT, tn.bandit(TEXT).summary.plan):
        other = tn.bandit(same)
        assert other == run
        assert (other.folder, run.folder) == (None, tmp_path / "out")
    assert tn.bandit(resume=tmp_path / "out") == run
    assert run != tn.bandit(TEXT.replace("epsilon = 1.0", "epsilon = 2.0"))


def test_a_bandit_run_can_be_shown_as_text_table_and_picture():
    run = tn.bandit(TEXT)
    assert repr(run).endswith("2 runs; central, ε = 1, replace-one, client)")
    assert "regret" in run._repr_html_()
    assert run.plot().svg().startswith("<?xml")
    assert run.guarantee is not None
    assert run.guarantee.epsilon.lower <= 1.0 == run.guarantee.epsilon.upper
    bare = tn.bandit(TEXT.replace('"central"\nepsilon = 1.0', '"none"'))
    assert bare.guarantee is None
    assert repr(bare).endswith("no privacy)")


def test_a_bandit_run_with_contexts_equals_one_built_from_policy_and_environment():
    net = parameter_net(2, 0.2)
    run = tn.bandit(SIMULATED, contexts=CONTEXTS)
    environment = contextual_environment(CONTEXTS, np.array(PARAMETER), net)
    parts = simulate_bandit(
        Elimination(), environment, CentralSums(1.0), 4000, SimulationStreams(0)
    )
    assert run.regret[0, -1] == parts.regret[-1]
    assert run.to_dict()["contexts"] == len(CONTEXTS)
    assert "context and reward together" in run.summary.rows()["contexts"]
    assert run == tn.bandit(SIMULATED, contexts=CONTEXTS, candidates=net)


def test_regret_falls_only_if_rewards_depend_on_the_contexts():
    given = clients_and_rewards()
    run = tn.bandit(REPLAYED, contexts=CONTEXTS, **given)
    assert run.regret[:, -1].max() < 0.5 * run.uniform.min()
    # Negative control: rewards that do not depend on the context leave nothing to learn.
    shuffled = np.random.default_rng(4).permutation(given["rewards"].ravel()).reshape(-1, 3)
    given["rewards"] = shuffled
    other = tn.bandit(REPLAYED, contexts=CONTEXTS, **given)
    assert not other.regret[:, -1].max() < 0.5 * other.uniform.min()
    assert other.guarantee is not None
    assert run.guarantee is not None
    assert other.guarantee.epsilon == run.guarantee.epsilon


def test_published_features_depend_only_on_public_contexts():
    given = clients_and_rewards()
    first = tn.bandit(REPLAYED, contexts=CONTEXTS, **given)
    given["client_contexts"] = given["client_contexts"][::-1]
    second = tn.bandit(REPLAYED, contexts=CONTEXTS, **given)
    assert first.summary.plan == second.summary.plan
    assert not np.array_equal(first.regret, second.regret)
    # Negative control: other public contexts are other features.
    other = tn.bandit(REPLAYED, contexts=features(200, 9), **given)
    assert first.summary.plan != other.summary.plan


def test_rewards_in_memory_and_in_a_log_file_give_equal_runs(tmp_path):
    actions = [[1.0, 0.0], [0.0, 1.0]]
    rewards = np.random.default_rng(5).choice([-1.0, 0.5], (1000, 2))
    lines = [f"client-{i},{a},{b}" for i, (a, b) in enumerate(rewards.tolist())]
    (tmp_path / "log.csv").write_text("\n".join(["client,reward_0,reward_1", *lines]))
    environment = {"horizon": 900, "features": actions}
    run = tn.bandit({"environment": environment, **PRIVACY}, rewards=rewards)
    plan = {"environment": {**environment, "log": str(tmp_path / "log.csv")}, **PRIVACY}
    assert np.array_equal(tn.bandit(plan).regret, run.regret)


def test_a_bandit_run_resumes_only_with_the_same_arrays(tmp_path, mutate):
    given, out = clients_and_rewards(), tmp_path / "out"
    run = tn.bandit(REPLAYED, out, contexts=CONTEXTS, **given)
    assert tn.bandit(resume=out, contexts=CONTEXTS, **given) == run
    given["rewards"] = -given["rewards"]
    with pytest.raises(tn.ParameterError, match="resume"):
        tn.bandit(resume=out, contexts=CONTEXTS, **given)
    with pytest.raises(tn.ParameterError, match="environment"):
        tn.bandit(resume=out)

    def interrupt(*_):
        raise KeyboardInterrupt

    mutate("turnout.runs.bandit", "_one_run", interrupt)
    with pytest.raises(InterruptedRunError, match=r"stopped after run 0 of 2$"):
        tn.bandit(REPLAYED, contexts=CONTEXTS, **clients_and_rewards())


@pytest.mark.parametrize(
    ("environment", "given", "line"),
    [
        (
            {},
            {"candidates": [[1.0, 0.0]]},
            "candidates = 'an array': expected no value, since contexts is",
        ),
        ({}, {"contexts": CONTEXTS, "rewards": [[1]]}, "client_contexts = None"),
        ({}, {"contexts": CONTEXTS, "client_contexts": CONTEXTS}, "rewards = None"),
        (
            {},
            {"contexts": CONTEXTS[0]},
            "contexts = 'array of shape (3, 2)': expected shape (contexts, actions, coordinates)",
        ),
        ({}, {"contexts": 9 * CONTEXTS}, "contexts = 'a vector with a norm above 1"),
        ({}, {"contexts": CONTEXTS * np.nan}, "contexts = 'a vector with a norm above 1 or a NaN'"),
        (
            {},
            {"contexts": CONTEXTS, "candidates": [[1.0]]},
            "candidates = 'array of shape (1, 1)': expected rows of 2 numbers",
        ),
        ({}, {"contexts": CONTEXTS, "candidates": [[np.inf, 0]]}, "candidates = 'infinite"),
        ({}, {"contexts": CONTEXTS}, "environment.parameter = (missing)"),
        (
            {"actions": 5},
            {"contexts": CONTEXTS},
            "environment.actions = 5: expected no value, since",
        ),
        ({"parameter": [1.0]}, {"contexts": CONTEXTS}, "environment.parameter = [1.0]"),
        ({"features": [[1.0]], "log": "x"}, {"rewards": [[1]]}, "environment.log = 'x': expected"),
        ({"features": [[1.0]]}, {"rewards": [[1.5]]}, "rewards[0][0] = 1.5"),
        ({"features": [[1.0]]}, {"rewards": [[1.0]]}, "environment.horizon = 100: expected at"),
    ],
)
def test_context_and_reward_arrays_of_a_wrong_shape_are_refused(environment, given, line):
    plan = {"environment": {"horizon": 100, **environment}, **PRIVACY}
    with pytest.raises(tn.ParameterError) as refusal:
        tn.bandit(plan, **given)
    assert str(refusal.value).startswith(line)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"client_contexts": features(3000, 2)[:, :2]},
            "client_contexts = 'array of shape (3000, 2, 2)'",
        ),
        (
            {"rewards": np.ones((3000, 2))},
            "rewards = 'array of shape (3000, 2)': expected shape (3000, 3)",
        ),
        ({"rewards": np.full((3000, 3), 2.0)}, "rewards[0][0] = 2.0"),
    ],
)
def test_invalid_client_contexts_and_rewards_are_refused(changed, line):
    with pytest.raises(tn.ParameterError) as refusal:
        tn.bandit(REPLAYED, contexts=CONTEXTS, **{**clients_and_rewards(), **changed})
    assert str(refusal.value).startswith(line)


def test_a_bandit_needs_either_a_plan_or_a_folder_to_resume(tmp_path):
    for given in ({}, {"plan": TEXT, "resume": tmp_path}, {"resume": tmp_path, "out": tmp_path}):
        with pytest.raises(tn.ParameterError, match="plan = "):
            tn.bandit(**given)
    with pytest.raises(tn.ParameterError, match="expected a TOML file that exists"):
        tn.bandit(tmp_path / "none.toml")
