"""Plans with custom modules, losses and metrics in files beside the plan."""

import numpy as np
import pytest

import turnout
from turnout.core.errors import ParameterError
from turnout.plans import Plan, read_plan
from turnout.runs.building import build_task
from turnout.runs.workload import gather

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Linear(64, width)
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(torch.tanh(self.body(images.flatten(1))))

def hinge(scores, labels):
    return (scores - scores.gather(1, labels[:, None]) + 1).clamp(min=0).sum(1)

def errors(scores, labels):
    return (scores.argmax(1) != labels).float().mean()

errors.higher_is_better = False
not_callable = 3
"""
PLAN = """
[data]
name = "digits"
[model]
module = "mymodels:Net"
features = "standardized"
{model}
[participation]
law = "check-in"
window = 4
windows = {windows}
[privacy]
relation = "add-remove"
delta = 1e-4
noise_multiplier = 1.0
clip_norm = 0.5
[optimizer]
learning_rate = 2.0
"""


def written(folder, model="", windows=1, code=CODE):
    (folder / "mymodels.py").write_text(code)
    (folder / "plan.toml").write_text(PLAN.format(model=model, windows=windows))
    return folder / "plan.toml"


def task_of(folder, model="", **options):
    text = read_plan(written(folder, model, **options))
    return build_task(gather(Plan.from_toml(text), folder))


def test_a_module_in_a_file_beside_the_plan_is_trained(tmp_path):
    run = turnout.train(written(tmp_path, "metrics = ['top-3', 'accuracy']", windows=15))
    assert list(run.history.metrics) == ["top-3", "accuracy", "loss"]
    first, last = run.history.metrics["accuracy"][[0, -1]]
    assert first < 0.3 < 0.6 < last < run.history.metrics["top-3"][-1]


def test_a_plan_sets_arguments_and_layers_of_a_custom_module(tmp_path):
    task = task_of(
        tmp_path,
        "arguments = { width = 5 }\nloss = 'mymodels:hinge'\n"
        "metrics = ['mymodels:errors', 'accuracy']\nlora = { rank = 2, layers = ['body'] }\n"
        "trainable = ['head.bias']",
    )
    assert task.metrics == ("errors", "accuracy", "loss")
    assert not task.higher_is_better
    assert task.dimension == 10 + 2 * (64 + 5)
    found = task.evaluate(task.initial_parameters(np.random.default_rng(0)))
    assert found["errors"] == pytest.approx(1 - found["accuracy"])


def test_a_plan_with_a_module_round_trips_as_text(tmp_path):
    text = read_plan(written(tmp_path, "arguments = { width = 5 }\nlora = { rank = 2 }"))
    plan = Plan.from_toml(text)
    assert Plan.from_toml(plan.to_toml()) == plan
    assert plan.model.title == "mymodels:Net"


def test_plans_in_two_folders_use_the_module_files_in_their_own_folders(tmp_path):
    sizes = []
    for name, code in (("one", CODE), ("two", CODE.replace("12", "3"))):
        (tmp_path / name).mkdir()
        sizes.append(task_of(tmp_path / name, code=code).dimension)
    assert sizes == [64 * 12 + 12 + 130, 64 * 3 + 3 + 40]
    changed = task_of(tmp_path / "one", code=CODE.replace("12", "4"))
    assert changed.dimension == 64 * 4 + 4 + 50


def test_the_initial_parameters_depend_on_the_seed_of_the_plan_only(tmp_path):
    starts = []
    for seed in (1, 1, 2):
        text = read_plan(written(tmp_path)) + f"[run]\nseed = {seed}\n"
        task = build_task(gather(Plan.from_toml(text), tmp_path))
        starts.append(task.initial_parameters(np.random.default_rng(0)))
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])


REFUSED = {
    "model.module = 'nomodels:Net': .*ModuleNotFoundError": "module = 'nomodels:Net'",
    "model.module = 'mymodels:Web': .*has no Web": "module = 'mymodels:Web'",
    "model.module = 'mymodels': .*such as": "module = 'mymodels'",
    "model.module = 'mymodels:errors'.*TypeError": "module = 'mymodels:errors'",
    "model.module = 'mymodels:Net'.*unexpected keyword": "arguments = { wide = 5 }",
    "model.loss = 'mymodels:not_callable'|model.loss = '3'": "loss = 'mymodels:not_callable'",
    "model.metrics = 'rmse'": "metrics = ['rmse']",
    "model.loss = 'squared'": "loss = 'squared'",
    "model.name = 'logistic': .*your own module": "name = 'logistic'",
    "model.lora.rank = 0": "lora = { rank = 0 }",
    "model.trainable = 'tail'": "trainable = ['tail']",
    "model.pretrained = '.*none.safetensors'": "pretrained = 'none.safetensors'",
}


@pytest.mark.parametrize("line", REFUSED)
def test_invalid_module_plans_are_refused_in_one_line(line, tmp_path):
    if "pretrained" in line:
        pytest.importorskip("safetensors")
    text = PLAN.format(model="", windows=1)
    if REFUSED[line].startswith("module"):
        text = text.replace('module = "mymodels:Net"', REFUSED[line])
    else:
        text = PLAN.format(model=REFUSED[line], windows=1)
    (tmp_path / "mymodels.py").write_text(CODE)
    with pytest.raises(ParameterError, match=line) as caught:
        build_task(gather(Plan.from_toml(text), tmp_path))
    assert "\n" not in str(caught.value)


def test_an_error_in_a_module_file_names_the_file(tmp_path):
    with pytest.raises(ParameterError, match="ZeroDivisionError: division by zero"):
        task_of(tmp_path, code="1 / 0")
    with pytest.raises(ParameterError, match="SyntaxError"):
        task_of(tmp_path, code="class:")


def test_module_settings_are_refused_for_a_built_in_model(tmp_path):
    for key in ("arguments = { a = 1 }", "pretrained = 'a'", "trainable = ['a']", "lora = {}"):
        text = PLAN.format(model=key, windows=1).replace(
            'module = "mymodels:Net"', 'name = "logistic"'
        )
        with pytest.raises(ParameterError, match="no value with name = 'logistic'"):
            Plan.from_toml(text)
