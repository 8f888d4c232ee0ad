"""Losses and metrics have the right values, and invalid objectives are refused."""

import numpy as np
import pytest
import torch
from own_modules import Convolutional, examples
from torch import Tensor
from torch.func import vmap

from turnout.core.errors import ParameterError
from turnout.learning.examples import Examples
from turnout.learning.local_updates import LayeredUpdates, LocalTraining, VmappedUpdates
from turnout.learning.losses import LOSSES
from turnout.learning.metrics import area_under_curve, build_objective, metric_named
from turnout.learning.models import build_model
from turnout.learning.modules import build_module
from turnout.learning.tasks import SupervisedTask

LABELS = {
    "class": torch.tensor([0, 2, 1, 2]),
    "tags": torch.tensor([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.uint8),
    "numbers": torch.tensor([[0.5, 1.0, -2.0]]).repeat(4, 1),
}


def outputs(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.derivative])
def test_closed_form_derivatives_of_losses_agree_with_autograd(name):
    loss = LOSSES[name]
    at, labels = outputs(4, 3).requires_grad_(), LABELS[loss.target]
    each = loss.each(at, labels)
    assert each.shape == (4,)
    (gradient,) = torch.autograd.grad(each.sum(), at)
    assert torch.allclose(loss.derivative(at.detach(), labels), gradient, atol=1e-12)
    assert torch.allclose(loss.total(at, labels), each.sum())


def test_ignored_tokens_do_not_change_loss_or_gradient():
    loss = LOSSES["token cross-entropy"]
    at, labels = outputs(3, 4, 5), torch.tensor([[0, 1, -1, -1], [4, 3, 2, 1], [-1] * 4])
    expected = [
        torch.nn.functional.cross_entropy(at[i], labels[i], ignore_index=-1) for i in (0, 1)
    ]
    found = loss.each(at, labels)
    assert torch.allclose(found, torch.stack([*expected, torch.zeros(()).double()]))
    beyond = at.clone()
    beyond[0, 2:] = torch.nan
    assert torch.equal(loss.each(beyond, labels), found)
    one_by_one = vmap(lambda a, b: loss.each(a[None], b[None])[0])(at, labels)
    assert torch.allclose(one_by_one, found)


@pytest.mark.parametrize("target", ["tags", "numbers"])
def test_layered_updates_support_losses_for_tags_and_numbers(target):
    data = examples(target)
    model = build_model("logistic", data.input_shape, 2)
    loss = build_objective(target).loss
    start = np.random.default_rng(0).normal(0, 0.1, model.dimension).astype(np.float32)
    sums = []
    for kind in (LayeredUpdates, VmappedUpdates):
        updates = kind(model, LocalTraining(), loss)
        task = SupervisedTask(model, data, data, updates=updates)
        sums.append(task.clipped_sum(start, np.arange(len(data)), 0.3).total)
    assert np.linalg.norm(sums[0] - sums[1]) <= 2e-5 * np.linalg.norm(sums[1])
    assert isinstance(SupervisedTask(model, data, data)._updates, LayeredUpdates)


def evaluated(target: str, metrics, values: Tensor, labels: np.ndarray):
    """Metrics of a module whose outputs are its inputs, ``values``."""
    data = Examples(values.float().numpy(), labels, target)

    class Given(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.ones(()))

        def forward(self, inputs):
            return self.factor * inputs

    objective = build_objective(target, None, metrics)
    task = SupervisedTask(build_module(Given), data, data, objective=objective)
    assert task.metrics == (*(m if isinstance(m, str) else m.__name__ for m in metrics), "loss")
    return task.evaluate(np.ones(1, np.float32))


def test_metrics_of_classes_agree_with_scikit_learn():
    scores = torch.tensor([[3.0, 2, 1, 0]]).repeat(4, 1)
    found = evaluated("class", ("top-2", "accuracy", "top-9"), scores, np.array([0, 1, 2, 3]))
    assert list(found) == ["top-2", "accuracy", "top-9", "loss"]
    assert (found["accuracy"], found["top-2"], found["top-9"]) == (0.25, 0.5, 1.0)


def test_metrics_of_numbers_agree_with_their_formulas():
    errors = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    found = evaluated("numbers", ("mae", "rmse"), errors, np.zeros((2, 2)))
    assert found == {"mae": 1.75, "rmse": 2.5, "loss": 6.25}


def test_metrics_of_tags_and_two_classes_agree_with_their_formulas():
    scores = torch.tensor([[0.9, -1.0], [0.2, -1.0], [-0.5, -1.0], [0.4, -1.0]])
    tags = np.array([[1, 0], [0, 0], [0, 0], [1, 0]])
    found = evaluated("tags", ("auc", "accuracy"), scores, tags)
    assert (found["auc"], found["accuracy"]) == (1.0, 0.875)
    two = torch.stack([torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, 3.0])], 1)
    found = evaluated("class", ("auc",), two, np.array([0, 1, 1, 0]))
    assert found["auc"] == 0.625  # of four pairs two are in order, and one is a tie


def test_metrics_of_tokens_are_means_over_counted_tokens():
    values = torch.zeros(2, 3, 4)
    values[0, 0, 2] = 9.0
    labels = np.array([[2, -1, -1], [0, 1, 3]])
    found = evaluated("tokens", ("perplexity", "accuracy"), values, labels)
    first = -float(values[0, 0].log_softmax(0)[2])
    assert found["perplexity"] == pytest.approx(np.exp((first + 3 * np.log(4)) / 4))
    assert found["loss"] == pytest.approx((first + np.log(4)) / 2)
    assert found["accuracy"] == 0.5


@pytest.mark.parametrize("ties", [False, True])
def test_the_area_under_the_roc_curve_is_the_fraction_of_correctly_ordered_pairs(ties):
    random = np.random.default_rng(4)
    scores = random.integers(0, 5, 40) if ties else random.normal(size=40)
    positive = random.random(40) < 0.4
    pairs = scores[positive][:, None] - scores[~positive][None, :]
    expected = np.mean((pairs > 0) + 0.5 * (pairs == 0))
    found = area_under_curve(torch.tensor(scores), torch.tensor(positive))
    assert found == pytest.approx(expected)
    assert np.isnan(area_under_curve(torch.tensor(scores), torch.ones(40, dtype=torch.bool)))


def test_custom_objectives_are_accepted():
    def hinge(scores, labels):
        right = scores.gather(1, labels[:, None])
        return (scores - right + 1).clamp(min=0).sum(1)

    def worst(scores, labels):
        return (scores.argmax(1) != labels).float().max()

    worst.higher_is_better = False
    objective = build_objective("class", hinge, (worst, "accuracy"))
    assert (objective.names, objective.higher_is_better) == (("worst", "accuracy", "loss"), False)
    data = examples()
    task = SupervisedTask(build_module(Convolutional), data, data, objective=objective)
    assert task.evaluate(task.model.start)["worst"] == 1.0
    assert np.linalg.norm(task.clipped_sum(task.model.start, np.arange(4), 1.0).total) > 0.1


def build(target="class", loss=None, metric=None):
    data = examples(target)
    columns = 3 if target == "class" else 2
    module = build_module(Convolutional, arguments={"outputs": columns})
    objective = build_objective(target, loss, metric)
    return SupervisedTask(module, data, data, objective=objective)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"target": "pixels"}, "target = 'pixels'"),
        ({"loss": "squared"}, "model.loss = 'squared': expected 'cross-entropy' for target"),
        ({"loss": "no.such:loss"}, "model.loss.*ModuleNotFoundError"),
        ({"loss": lambda a, b: (a[:, 0]).sum()}, "one loss for each example, shape"),
        ({"loss": lambda a, b: a @ a}, "one number for each example.*RuntimeError"),
        ({"metric": ("rmse",)}, "model.metrics = 'rmse': expected accuracy"),
        ({"metric": ("top-0",)}, "model.metrics = 'top-0'"),
        ({"metric": ("accuracy", "accuracy")}, "different names"),
        ({"metric": ("auc",)}, "two classes, not 3"),
        ({"target": "numbers", "metric": ("accuracy",)}, "rmse, mae for target"),
    ],
)
def test_invalid_objectives_are_refused(options, line):
    with pytest.raises(ParameterError, match=line) as caught:
        build(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (lambda outputs, labels: outputs[:, 9].mean(), "IndexError"),
        (lambda outputs, labels: float("two\nlines"), "ValueError: could not convert"),
        (lambda outputs, labels: None, "TypeError"),
    ],
)
def test_a_metric_that_returns_no_number_raises_a_one_line_error(metric, reason):
    with pytest.raises(ParameterError, match=f"returns a number .{reason}") as refusal:
        evaluated("numbers", (metric,), torch.ones(2, 2), np.zeros((2, 2)))
    assert "\n" not in str(refusal.value)


def test_the_area_under_the_roc_curve_needs_positive_and_negative_labels():
    data = Examples(np.ones((3, 1, 8, 8), np.float32), np.ones((3, 2)), "tags")
    with pytest.raises(ParameterError, match="positive and negative labels"):
        SupervisedTask(build_module(lambda: Convolutional(2)), data, data)


@pytest.mark.parametrize(
    ("labels", "target", "line"),
    [
        ([0, 1], "tags", "one row of numbers"),
        ([[0, 2], [1, 1]], "tags", "0 or 1"),
        ([[0.0, np.nan], [1.0, 1.0]], "numbers", "row 0"),
        ([[0, -2], [1, 1]], "tokens", "numbered from -1"),
        ([[0.5, 1], [1, 1]], "tokens", "whole numbers"),
        ([[0], [1], [1]], "numbers", "shape"),
    ],
)
def test_labels_of_the_wrong_kind_are_refused(labels, target, line):
    with pytest.raises(ParameterError, match=line):
        Examples(np.ones((2, 3)), labels, target)


def test_metrics_are_selected_by_name():
    assert metric_named("top-5").name == "top-5"
    assert metric_named("top-x") is None
