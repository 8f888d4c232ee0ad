"""Loop over clients with which all computations of clipped sums are compared.

It computes one client at a time, with `torch.nn` modules in PyTorch's own layout and in double
precision. Tanh is applied *before* the pooling, as in the papers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LayeredUpdates, LocalTraining, VmappedUpdates
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD
from turnout.learning.tasks import SupervisedTask

SIDE, CLASSES = 16, 5


def network(name: str, side: int = SIDE, classes: int = CLASSES) -> nn.Sequential:
    if name == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(side * side, classes)).double()
    filters = {"tanh-cnn-13k": 16, "tanh-cnn-26k": 32}[name]
    width = (((side - 2) // 2 - 1) - 4) // 2
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, filters, 4, 2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(width * width * filters, 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    ).double()


def layer_views(module: nn.Sequential) -> list[tuple[nn.Parameter, tuple[int, ...], bool]]:
    """Parameters in the order of the flat vector, with their shapes in the vector."""
    views, channels, dense = [], 1, 0
    for layer in module:
        if isinstance(layer, nn.Conv2d):
            out, into, height, width = layer.weight.shape
            views.append((layer.weight, (out, height, width, into), True))
            views.append((layer.bias, (out,), False))
            channels = out
        if isinstance(layer, nn.Linear):
            out, into = layer.weight.shape
            side = round((into / channels) ** 0.5) if dense == 0 else 1
            from_image = dense == 0 and side * side * channels == into and channels > 1
            shape = (out, side, side, channels) if from_image else (out, into)
            views.append((layer.weight, shape, from_image))
            views.append((layer.bias, (out,), False))
            dense += 1
    return views


def load(module: nn.Sequential, flat: np.ndarray) -> None:
    start = 0
    for parameter, shape, channels_last in layer_views(module):
        values = torch.tensor(flat[start : start + parameter.numel()]).double().view(shape)
        if channels_last:
            values = values.permute(0, 3, 1, 2)
        parameter.data.copy_(values.reshape(parameter.shape))
        start += parameter.numel()
    assert start == flat.size


def flat_gradient(module: nn.Sequential) -> np.ndarray:
    parts = []
    for parameter, shape, channels_last in layer_views(module):
        gradient = parameter.grad
        if channels_last:
            out, height, width, into = shape
            gradient = gradient.view(out, into, height, width).permute(0, 2, 3, 1)
        parts.append(gradient.reshape(-1).numpy())
    return np.concatenate(parts)


def gradient(module: nn.Sequential, at: np.ndarray, inputs: Tensor, labels: Tensor) -> np.ndarray:
    load(module, at)
    module.zero_grad()
    nn.functional.cross_entropy(module(inputs[:, None].double()), labels).backward()
    return flat_gradient(module)


@dataclass(frozen=True)
class Case:
    """Small task with all settings that the loop over clients needs."""

    name: str
    examples: Examples
    holdings: Holdings
    local: LocalTraining
    clip_norm: float
    parameters: np.ndarray

    def task(self, path: str = "fastest") -> FedSGD:
        model = build_model(self.name, (SIDE, SIDE), CLASSES)
        made = {
            "fastest": lambda: None,
            "layered": lambda: LayeredUpdates(model, self.local),
            "vmapped": lambda: VmappedUpdates(model, self.local),
        }[path]()
        task = SupervisedTask(
            model,
            self.examples,
            self.examples,
            holdings=self.holdings,
            local=self.local,
            updates=made,
        )
        return FedSGD(task, SGD(1.0), self.clip_norm)

    def update(self, client: int) -> np.ndarray:
        """Update of one client before clipping."""
        own = self.holdings.records[
            self.holdings.offsets[client] : self.holdings.offsets[client + 1]
        ]
        moved = np.zeros(self.parameters.size)
        if own.size == 0:
            return moved
        inputs = torch.tensor(self.examples.inputs[own]).float()
        if self.examples.inputs.dtype == np.uint8:
            inputs = inputs / 255
        labels = torch.tensor(self.examples.labels[own])
        module = network(self.name)
        for _ in range(self.local.steps):
            at = self.parameters - moved
            moved = moved + self.local.learning_rate * gradient(module, at, inputs, labels)
        return moved

    def clipped_sum(self, clients: np.ndarray) -> np.ndarray:
        total = np.zeros(self.parameters.size)
        for client in clients:
            update = self.update(int(client))
            norm = np.linalg.norm(update)
            total += update * min(1.0, self.clip_norm / norm) if norm else update
        return total


def case(
    name: str,
    *,
    seed: int = 0,
    clip_norm: float = 1.0,
    many: bool = False,
    bytes_: bool = False,
    local: LocalTraining | None = None,
    population: int = 9,
) -> Case:
    """Case with one example for each client or, if ``many``, with 0 to 5."""
    random = np.random.default_rng(seed)
    size = population if not many else 3 * population
    inputs = random.uniform(0, 1, (size, SIDE, SIDE)).astype(np.float32)
    if bytes_:
        inputs = (255 * inputs).astype(np.uint8)
    examples = Examples(inputs, random.integers(0, CLASSES, size))
    holdings = Holdings.one_each(population)
    if many:
        owners = random.integers(0, population - 1, size)  # the last client holds nothing
        holdings = Holdings.from_owners(owners, population)
    model = build_model(name, (SIDE, SIDE), CLASSES)
    parameters = random.normal(0, 0.2, model.dimension).astype(np.float32)
    return Case(name, examples, holdings, local or LocalTraining(), clip_norm, parameters)
