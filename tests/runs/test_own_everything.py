"""Plans with data and a module of the user: training, report, saved model and prediction."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from torch import nn

import turnout as tn
from turnout.cli.training import predict
from turnout.core.errors import UnsupportedError
from turnout.runs.training import MODEL

PLAN = {
    "participation": {"law": "check-in", "window": 5, "windows": 4},
    "privacy": {"relation": "add-remove", "delta": 1e-4, "epsilon": 3.0},
    "optimizer": {"learning_rate": 1.0},
}


class Net(nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, outputs))

    def forward(self, inputs):
        return self.layers(inputs)


def held(target, random):
    inputs = random.normal(size=(900, 3)).astype(np.float32)
    towards = inputs @ np.array([2.0, -1.0, 0.5])
    labels = (towards > 0).astype(int) if target == "class" else towards[:, None]
    rest: dict[str, Any] = {"classes": 2} if target == "class" else {}
    clients = np.repeat(np.arange(300), 3)
    return tn.client_data((inputs, labels, clients), target=target, test=0.2, **rest)


@pytest.fixture(scope="module")
def data():
    return held("class", np.random.default_rng(1))


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return tn.train(PLAN, tmp_path_factory.mktemp("runs") / "run", data=data, module=Net)


def test_a_custom_module_class_trains_and_its_model_loads(run, data):
    assert run.accuracy > 0.6
    assert run.guarantee.epsilon.upper <= 3.0
    model = tn.load(run.folder, module=Net)
    right = model.predict(data.test.inputs) == data.test.labels
    assert np.mean(right) == pytest.approx(run.accuracy)
    assert "Net on" in repr(model)
    stated = float(repr(model).partition("ε = ")[2].partition(",")[0])
    assert stated >= run.guarantee.epsilon.upper
    assert str(run.folder.parent) not in (run.folder / MODEL).read_bytes().decode("latin-1")


def test_training_copies_a_module_instance_and_starts_at_its_parameters(data):
    module = Net()
    before = [each.clone() for each in module.parameters()]
    found = tn.train(PLAN, data=data, module=module)
    assert all((a == b).all() for a, b in zip(before, module.parameters(), strict=True))
    assert found.parameters.shape == (sum(each.numel() for each in before),)


def test_a_run_with_files_of_the_user_is_resumed(run, data):
    again = tn.train(resume=run.folder, data=data, module=Net)
    assert np.array_equal(again.parameters, run.parameters)


def test_loading_a_trained_model_with_a_module_of_another_size_is_refused(run, data):
    with pytest.raises(tn.ParameterError, match="a module with 50 parameters, as in the run"):
        tn.load(run.folder, module=lambda: Net(7)).scores(data.test.inputs)


@pytest.mark.parametrize(
    ("model", "module", "said"),
    [
        ({"name": "logistic"}, Net, "model.name = 'logistic': expected no name, since a module"),
        ({}, None, "model.name = (missing): expected either the name of a model"),
        ({"name": "logistic", "module": "a:b"}, None, "or your own module"),
        (
            {},
            nn.Linear(4, 2),
            "a module that takes inputs of shape (3,), but the module's own forward",
        ),
        ({}, 7, "model.module"),
    ],
)
def test_a_module_that_contradicts_the_model_of_the_plan_is_refused(data, model, module, said):
    with pytest.raises(tn.ParameterError) as refusal:
        tn.train(PLAN | {"model": model}, data=data, module=module)
    assert said in str(refusal.value)


def test_a_regression_reports_its_metrics_instead_of_accuracy(tmp_path):
    numbers = held("numbers", np.random.default_rng(2))
    run = tn.train(PLAN, tmp_path / "run", data=numbers, module=Net(1))
    assert run.folder is not None
    assert list(run.metrics) == ["rmse", "mae", "loss"]
    with pytest.raises(
        UnsupportedError, match="no accuracy; read metrics, which has rmse, mae, loss"
    ):
        _ = run.accuracy
    assert repr(run).startswith("TrainingRun(RMSE ")
    page = (run.folder / "report.html").read_text()
    assert "Test RMSE" in page
    assert "ccuracy" not in page
    record = json.loads((run.folder / "report.json").read_text())
    assert record["rmse"] == run.metrics["rmse"]
    found = tn.load(run.folder, module=Net(1)).predict(numbers.test.inputs)
    errors = np.sqrt(np.mean((found - numbers.test.labels) ** 2))
    assert errors == pytest.approx(run.metrics["rmse"], rel=1e-5)


ROWS = [f"p{i // 3},{i % 7},{'ab'[i % 2]},{int(i % 7 > 3)}" for i in range(600)]
TOML = """
[data]
path = "visits.csv"
client = "who"
inputs = ["x", "kind"]
label = "y"
classes = 2
test = 0.2
scaling = { x = [0, 6] }
categories = { kind = ["a", "b"] }
[model]
module = "ownnet:make"
[participation]
law = "check-in"
window = 5
windows = 4
[privacy]
relation = "add-remove"
delta = 1e-4
epsilon = 3.0
[optimizer]
learning_rate = 1.0
"""
CODE = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
"""


def test_a_plan_with_files_of_the_user_trains_and_predicts(tmp_path):
    place = tmp_path / "mine"
    place.mkdir()
    (place / "visits.csv").write_text("\n".join(["who,x,kind,y", *ROWS]))
    (place / "plan.toml").write_text(TOML)
    (place / "ownnet.py").write_text(CODE)
    run = tn.train(place / "plan.toml", tmp_path / "run")
    arguments = [str(run.folder), str(place / "visits.csv")]
    done = CliRunner().invoke(predict, arguments, catch_exceptions=False, standalone_mode=False)
    lines = done.output.splitlines()
    assert lines[0] == "class,score 0,score 1"
    assert len(lines) == 601
    assert {line[0] for line in lines[1:]} <= {"0", "1"}
