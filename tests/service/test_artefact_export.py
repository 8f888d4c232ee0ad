"""Graphs written from PyTorch give what PyTorch gives, for any number of records."""

import asyncio

import numpy as np
import pytest
import torch
from fake_coordinator import charter_of
from graph_samples import CLASSES, SHAPE
from small_model import SmallModel

from turnout.core.errors import UnsupportedError
from turnout.learning.local_updates import LocalTraining
from turnout.service.artefacts.updates import GraphUpdates
from turnout.service.computation import Computation
from turnout.spec import CheckIn

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
pytest.importorskip("onnxscript", reason="needs onnxscript")

SOURCE = np.random.default_rng(4)


class Wrapped(SmallModel):
    """A module of a user's own, as a function of one vector."""

    def __init__(self, *layers):
        self._net = torch.nn.Sequential(*layers)
        self._shapes = {name: part.shape for name, part in self._net.named_parameters()}
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self.dimension = sum(self._sizes)


def convolutional():
    """What PyTorch has derivatives of that no graph has: convolution and both kinds of pools."""
    nn = torch.nn
    return Wrapped(
        nn.Unflatten(1, (1, 12)),
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(3, 2, 2),
        nn.AvgPool2d(2, padding=1),
        nn.Flatten(),
        nn.Linear(2 * 3 * 3, 5),
    )


def charter(computation, dimension):
    return charter_of(CheckIn(2), dimension=dimension, computation=computation)


def by_graph(model, computation, inputs, labels, parameters, **more):
    """The clipped update of a device that fetched the graph."""
    from turnout.service.artefacts.of_model import as_graph

    example = torch.from_numpy(inputs[0])
    made, contents = as_graph(computation, model, more.pop("featured", example), **more)
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


def by_torch(model, local, inputs, labels, parameters):
    """The clipped update, by autograd."""
    moved = torch.zeros(model.dimension, dtype=torch.float64)
    for _ in range(local.steps):
        at = (torch.from_numpy(parameters).double() - moved).float().requires_grad_()
        scores = model.logits(at, torch.from_numpy(inputs))
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
        moved = moved + local.learning_rate * torch.autograd.grad(loss, at)[0].double()
    bound = 0.5 * (1 - 2.0**-20)
    return (moved * min(1.0, bound / float(moved.norm()))).numpy()


def test_a_graph_gives_what_pytorch_gives():
    model, inputs = convolutional(), SOURCE.random((4, 12, 12)).astype(np.float32)
    labels = np.array([1, 0, 4, 4])
    parameters = (SOURCE.standard_normal(model.dimension) / 4).astype(np.float32)
    computation = Computation("logistic-1", "pixels-1", (12, 12), 5)
    made = by_graph(model, computation, inputs, labels, parameters)
    expected = by_torch(model, LocalTraining(), inputs, labels, parameters)
    assert np.linalg.norm(made - expected) <= 1e-5 * np.linalg.norm(expected)


def test_features_of_a_user_s_own_and_local_steps_are_a_graph_too():
    model = Wrapped(torch.nn.Linear(6, 4))
    inputs = SOURCE.random((3, *SHAPE)).astype(np.float32)
    labels, parameters = np.array([0, 1, 3]), np.full(model.dimension, 0.1, np.float32)
    computation = Computation("logistic-1", "pixels-1", SHAPE, CLASSES, 2, 0.5)

    def features(records):
        return records.flatten(1).square() - 0.25

    told = features(torch.from_numpy(inputs))
    made = by_graph(
        model, computation, inputs, labels, parameters, featured=told[0], features=features
    )
    expected = by_torch(model, LocalTraining(2, 0.5), told.numpy(), labels, parameters)
    assert np.linalg.norm(made - expected) <= 1e-5 * np.linalg.norm(expected)


def test_a_layer_that_no_graph_can_say_is_named():
    from turnout.service.artefacts.exporting import update_graph

    grouped = Wrapped(
        torch.nn.Unflatten(1, (2, 1)),
        torch.nn.Conv2d(2, 2, 1, groups=2),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 2),
    )
    with pytest.raises(UnsupportedError, match="grouped") as refusal:
        update_graph(grouped, torch.zeros(2, 2))
    assert "\n" not in str(refusal.value)
