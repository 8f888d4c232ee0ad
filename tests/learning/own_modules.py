"""Examples of users' modules, and a loop over clients with which their updates are compared."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import nn

from turnout.learning.examples import Examples
from turnout.learning.holdings import Holdings
from turnout.learning.metrics import build_objective
from turnout.learning.module_trials import SlowUpdatesWarning
from turnout.learning.tasks import SupervisedTask

CLIENTS, CLASSES, SIDE, TOKENS, LENGTH = 6, 3, 8, 7, 5


class Convolutional(nn.Module):
    """Convolutional module from images (n, 1, 8, 8) to ``outputs`` scores."""

    def __init__(self, outputs: int = CLASSES, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), norm or nn.GroupNorm(2, 4), nn.ReLU())
        self.head = nn.Linear(4 * 6 * 6, outputs)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))


class Recurrent(nn.Module):
    """Recurrent module from tokens (n, 5) to scores of the next tokens, (n, 5, 7)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 4)
        self.memory = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, TOKENS)

    def forward(self, tokens):
        return self.head(self.memory(self.embedding(tokens))[0])


class Attentive(nn.Module):
    """Module with causal attention from tokens to scores; head and embedding share weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 4)
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, TOKENS)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.block(self.embedding(tokens), src_mask=mask, is_causal=True))


def examples(target: str = "class", seed: int = 0, count: int = 3 * CLIENTS) -> Examples:
    """Synthetic examples with the given kind of label."""
    random = np.random.default_rng(seed)
    images = random.normal(size=(count, 1, SIDE, SIDE)).astype(np.float32)
    if target == "class":
        return Examples(images, random.integers(0, CLASSES, count))
    if target == "tags":
        return Examples(images, random.integers(0, 2, (count, 2)), target)
    if target == "numbers":
        return Examples(images, random.normal(size=(count, 2)), target)
    tokens = random.integers(0, TOKENS, (count, LENGTH + 1))
    labels = tokens[:, 1:].copy()
    for row, length in enumerate(random.integers(1, LENGTH + 1, count)):
        labels[row, length:] = -1
    return Examples(tokens[:, :-1], labels, target)


def holdings(seed: int = 0, count: int = 3 * CLIENTS) -> Holdings:
    """Holdings in which the last client has no examples and all others have at least one."""
    owners = np.random.default_rng(seed).integers(0, CLIENTS - 1, count)
    owners[: CLIENTS - 1] = np.arange(CLIENTS - 1)
    return Holdings.from_owners(owners, CLIENTS)


def plain_sum(
    module: nn.Module, data: Examples, held: Holdings, clip_norm: float, trained: list[str]
) -> np.ndarray:
    """Sum of clipped gradients in float64, computed by PyTorch's backward pass for each client."""
    loss = build_objective(data.target).loss
    module = module.double()
    total = 0.0
    for client in range(held.population):
        own = held.records[held.offsets[client] : held.offsets[client + 1]]
        if not own.size:
            continue
        inputs = torch.tensor(data.inputs[own])
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        module.zero_grad()
        loss.each(module(inputs), torch.tensor(data.labels[own])).mean().backward()
        parameters = dict(module.named_parameters())
        gradient = torch.cat([parameters[name].grad.reshape(-1) for name in trained]).numpy()
        norm = float(np.linalg.norm(gradient))
        total = total + gradient * min(1.0, clip_norm / norm)
    return np.asarray(total)


def quiet_task(model, data, **options):
    """Task that is built without the warning about slow updates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowUpdatesWarning)
        return SupervisedTask(model, data, data, **options)
