"""Plans with personal models: runs, reports, resume and refusals."""

import numpy as np
import pytest

import turnout as tn
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.plans import Plan
from turnout.service.contract.charter import Timing
from turnout.service.coordinator.new_task import new_task

CLIENTS, EACH = 12, 6
PLAN = {
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 3, "windows": 3},
    "privacy": {
        "relation": "add-remove",
        "noise_multiplier": 0.5,
        "delta": 1e-4,
        "clip_norm": 1.0,
    },
    "client": {"rule": "adaped", "steps": 5, "learning_rate": 1.0, "psi": 0.5, "finish": 3},
    "optimizer": {"learning_rate": 0.5},
}


def data():
    """Clients each of whom holds two of three classes."""
    rng = np.random.default_rng(1)
    owners = np.repeat(np.arange(CLIENTS), EACH)
    labels = (owners + np.tile(np.arange(EACH) % 2, CLIENTS)) % 3
    centres = 2 * np.eye(3)

    def inputs(classes):
        return (centres[classes] + rng.normal(0, 0.3, (classes.size, 3))).astype(np.float32)

    judged = np.arange(30) % 3
    train = (inputs(labels), labels, owners)
    return tn.client_data(train, test=(inputs(judged), judged), classes=3)


def plan_with(section="client", **keys):
    return {**PLAN, section: {**PLAN[section], **keys}}


RULES = {
    "fedavg": {"rule": "fedavg", "steps": 2, "learning_rate": 0.5, "judged": 5},
    "adaped": PLAN["client"],
    "ridge": {"rule": "ridge", "steps": 5, "learning_rate": 1.0, "strength": 0.2},
}


@pytest.mark.parametrize("rule", RULES)
def test_a_plan_with_personal_models_reports_personal_accuracy(rule):
    record = tn.train({**PLAN, "client": RULES[rule]}, data=data()).to_dict()
    assert 0.9 <= record["own_class_accuracy"] <= 1
    assert record["epsilon"] > 0
    assert ("shared_accuracy" in record) == (rule != "fedavg")
    assert "personal_accuracy_interval" not in record
    assert "chance_level" not in record


def test_personal_models_are_restored_on_resume_and_are_in_no_public_file(tmp_path):
    run = tn.train(PLAN, data=data(), out=tmp_path / "run")
    assert tn.train(resume=tmp_path / "run", data=data()) == run
    assert "personal accuracy" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert tn.load(tmp_path / "run").parameters.shape == run.parameters.shape
    checkpoint = np.load(tmp_path / "run" / "simulator" / "checkpoint.npz")
    models = checkpoint["clients.model"]
    assert models.shape == (CLIENTS, 12)
    handed_out = [path for path in (tmp_path / "run").iterdir() if path.is_file()]
    assert handed_out
    for path in handed_out:
        content = path.read_bytes()
        assert not any(model.tobytes()[:8] in content for model in models), path


@pytest.mark.parametrize(
    ("section", "keys", "named"),
    [
        ("client", {"steps": 0}, "client.steps = 0"),
        ("client", {"psi": 0.0}, "client.psi = 0"),
        ("client", {"psi": float("nan")}, "client.psi = nan"),
        ("client", {"psi": 0.01}, "client.psi = 0.01: expected from 0.05"),
        ("client", {"strength": 1.0}, "strength = 1.0: expected no value with rule = 'adaped'"),
        ("client", {"judged": 0}, "client.judged = 0"),
        ("client", {"rule": "fedsgd"}, "no value with rule = 'fedsgd'"),
        ("client", {"rule": "alone"}, "client.rule"),
        ("privacy", {"unit": "example"}, "privacy.unit = 'example': expected 'client'"),
        ("model", {"metrics": ("accuracy",)}, "model.metrics"),
    ],
)
def test_a_plan_with_invalid_settings_of_personal_models_is_refused_in_one_line(
    section, keys, named, tmp_path
):
    with pytest.raises(ParameterError) as refused:
        tn.train(plan_with(section, **keys), data=data(), out=tmp_path / "run")
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_serving_a_plan_with_personal_models_is_refused(tmp_path):
    plan = Plan.from_mapping({**PLAN, "data": {"name": "digits", "clients": 40}})
    with pytest.raises(UnsupportedError, match="personal models"):
        new_task(plan.to_toml(), tmp_path, Timing.of(60.0))
