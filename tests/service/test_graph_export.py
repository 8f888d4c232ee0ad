"""ONNX graphs exported from PyTorch compute the same as PyTorch, for any number of records."""

import asyncio

import numpy as np
import pytest
import torch
from fake_coordinator import charter_of
from small_model import ModuleModel

from turnout.core.errors import UnsupportedError
from turnout.learning.modules import Adapters, build_module
from turnout.schemes import CheckIn
from turnout.service.contract.computation import Computation
from turnout.service.graphs.updates import GraphUpdates

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
pytest.importorskip("onnxscript", reason="needs onnxscript")

SOURCE = np.random.default_rng(4)


def convolutional():
    """Model with convolution and both kinds of pooling, whose derivatives no ONNX operator has."""
    nn = torch.nn
    return ModuleModel(
        nn.Unflatten(1, (1, 12)),
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(3, 2, 2),
        nn.AvgPool2d(2, padding=1),
        nn.Flatten(),
        nn.Linear(2 * 3 * 3, 5),
    )


class Base(torch.nn.Module):
    """Pretrained base with fixed layers, buffers and a tensor attribute."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten())
        self.body[1](torch.randn(9, 3, 4, 4) + 1)
        self.body.eval()
        self.middle, self.head = nn.Linear(27, 11), nn.Linear(11, 5)
        self.kept = torch.randn(11)
        self.register_buffer("order", torch.randperm(11))

    def forward(self, images):
        hidden = self.middle(self.body(images.unsqueeze(1)))
        return self.head((hidden * self.kept)[:, self.order])


def charter(computation, dimension):
    return charter_of(CheckIn(2), dimension=dimension, computation=computation)


def by_graph(model, inputs, labels, parameters, features):
    """Clipped update of a device that runs the exported graph."""
    from turnout.service.graphs.task_graphs import graph_computation

    computation = Computation("logistic-1", "pixels-1", inputs.shape[1:], 5)
    example = features(torch.from_numpy(inputs[:1]))[0]
    made, contents = graph_computation(computation, model, example, features=features)
    assert not any(example.numpy().tobytes() in content for content in contents)
    held = {
        artefact.digest: content for artefact, content in zip(made.artefacts, contents, strict=True)
    }
    updates = GraphUpdates(charter(made, model.dimension), inputs, labels, 3)

    async def fetch(artefact):
        return artefact.checked(held[artefact.digest])

    try:
        asyncio.run(updates.fetch(fetch))
        return updates.update(parameters, 3)
    finally:
        updates.close()


def by_torch(model, inputs, labels, parameters):
    """Clipped update by PyTorch's automatic differentiation."""
    at = torch.from_numpy(parameters).requires_grad_()
    scores = model.logits(at, torch.from_numpy(inputs))
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
    gradient = torch.autograd.grad(loss, at)[0].double()
    bound = 0.5 * (1 - 2.0**-20)
    return (gradient * min(1.0, bound / float(gradient.norm()))).numpy()


def test_an_exported_onnx_graph_computes_the_same_update_as_pytorch():
    """Custom model and features; test_graph_task.py tests several local steps."""
    model, inputs = convolutional(), SOURCE.random((4, 12, 12)).astype(np.float32)
    labels = np.array([1, 0, 4, 4])
    parameters = (SOURCE.standard_normal(model.dimension) / 4).astype(np.float32)

    def features(records):
        return records.square() - records.flatten(1).mean(1)[:, None, None]

    told = features(torch.from_numpy(inputs))
    made = by_graph(model, inputs, labels, parameters, features)
    expected = by_torch(model, told.numpy(), labels, parameters)
    assert np.linalg.norm(made - expected) <= 1e-5 * np.linalg.norm(expected)


def test_fixed_parameters_are_stored_in_the_exported_onnx_graph():
    """Fixed layers lie before and after the trained layer; test_graph_labels.py trains the last."""
    model = build_module(Base, adapters=Adapters(2, 8.0, ("middle",)), trainable=("body.1.*",))
    inputs = SOURCE.random((4, 5, 5)).astype(np.float32)
    labels, moved = np.array([1, 0, 4, 4]), SOURCE.standard_normal(model.dimension) / 4
    parameters = model.start + moved.astype(np.float32)
    made = by_graph(model, inputs, labels, parameters, torch.clone)
    expected = by_torch(model, inputs, labels, parameters)
    assert np.linalg.norm(expected) > 0.01
    assert np.linalg.norm(made - expected) <= 1e-5 * np.linalg.norm(expected)


def test_exporting_an_unsupported_layer_is_refused_with_its_name():
    from turnout.service.graphs.exporting import update_graph

    grouped = ModuleModel(
        torch.nn.Unflatten(1, (2, 1)),
        torch.nn.Conv2d(2, 2, 1, groups=2),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 2),
    )
    with pytest.raises(UnsupportedError, match="grouped") as refusal:
        update_graph(grouped, torch.zeros(2, 2))
    assert "\n" not in str(refusal.value)
