"""Clipped updates of clients, computed for many clients at once.

A client's update is minus the way that local gradient descent on the mean loss over its own
examples moves the model; descending along it makes that loss smaller. One local step with
learning rate 1, the default, makes it the gradient.

Two computations of the same sum:
    `VmappedUpdates`   any model, any number of local steps: ``torch.func`` over clients.
    `LayeredUpdates`   layered models, one step: gradients written out layer by layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from turnout.core import checks
from turnout.learning import clipping
from turnout.learning.client_gradients import ClientGradients, squared_norms
from turnout.learning.models import Layered, Model


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """A client's work on the model that it is sent.

    Each of its steps is a gradient step over all its examples.
    """

    steps: int = 1
    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        checks.count(steps=self.steps)
        checks.positive(learning_rate=self.learning_rate)


@dataclass(frozen=True, slots=True)
class ClientBatch:
    """c clients with m examples each: inputs (c, m, ...), labels and weights (c, m).

    A client's weights sum to 1; those of padding are 0.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, clients: Tensor) -> ClientBatch:
        """Some of the clients."""
        return ClientBatch(self.inputs[clients], self.labels[clients], self.weights[clients])


class LocalUpdates(Protocol):
    """Sums of clipped updates, and the scores that the same model gives."""

    def clients_at_once(self, examples_each: int) -> int:
        """The number of clients of that many examples that just fit the cache."""
        ...

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> Tensor:
        """Σ over the batch's clients of the clipped update, float32, (d,)."""
        ...

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores (n, classes), for evaluation."""
        ...


@dataclass(frozen=True, slots=True)
class VmappedUpdates:
    """Any model, any number of local steps."""

    model: Model
    local: LocalTraining

    def clients_at_once(self, examples_each: int) -> int:
        """The number of clients of that many examples that make a good batch."""
        return max(1, 128 // examples_each)

    def _update(
        self, parameters: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor
    ) -> Tensor:
        """One client's update."""

        def loss(at: Tensor) -> Tensor:
            logits = self.model.logits(at, inputs)
            return (functional.cross_entropy(logits, labels, reduction="none") * weights).sum()

        # Adding up the way moved, rather than subtracting the end from the start, keeps the
        # digits that a small step on large parameters would lose.
        moved = self.local.learning_rate * grad(loss)(parameters)
        for _ in range(1, self.local.steps):
            moved = moved + self.local.learning_rate * grad(loss)(parameters - moved)
        return moved

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> Tensor:
        """Σ of the clipped updates, float32, (d,)."""
        each = vmap(self._update, in_dims=(None, 0, 0, 0))
        updates = each(parameters, batch.inputs, batch.labels, batch.weights).detach()
        norms = squared_norms(updates)
        usable = clipping.is_usable(norms)
        if not usable.all():
            updates, norms = updates[usable], norms[usable]
        return clipping.factors(norms, clip_norm) @ updates

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores (n, classes), for evaluation."""
        with torch.no_grad():
            return self.model.logits(parameters, inputs)


@dataclass(frozen=True, slots=True)
class LayeredUpdates:
    """Layered models, one local step."""

    model: Layered
    local: LocalTraining

    def clients_at_once(self, examples_each: int) -> int:
        """The number of clients of that many examples that make a good batch."""
        floats_in_cache = 3 << 19
        return max(1, min(512, floats_in_cache // self.model.workspace) // examples_each)

    @torch.no_grad()
    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> Tensor:
        """Σ of the clipped updates, float32, (d,)."""
        if len(batch) == 0:
            return torch.zeros_like(parameters)
        gradients = self._gradients(parameters, batch)
        norms = torch.stack([layer.squared_norms() for layer in gradients]).sum(0)
        usable = clipping.is_usable(norms)
        if not usable.all():
            # Their rows hold NaN, and 0 · NaN is NaN: leave them out and start again.
            return self.clipped_sum(parameters, batch.only(usable), clip_norm)
        factors = clipping.factors(norms, clip_norm)
        return torch.cat([layer.weighted_sum(factors) for layer in gradients])

    def _gradients(self, parameters: Tensor, batch: ClientBatch) -> list[ClientGradients]:
        """Each layer's gradients of every client's loss, times the local learning rate."""
        layers, own = self.model.layers, self.model.slices(parameters)
        logits, saved = self._forward(own, batch.inputs)
        upstream = logits.softmax(1)
        labels = batch.labels.reshape(-1, 1)
        upstream.scatter_add_(1, labels, upstream.new_full(labels.shape, -1.0))
        upstream *= self.local.learning_rate * batch.weights.reshape(-1, 1)
        gradients: list[ClientGradients] = []
        for k in reversed(range(len(layers))):
            gradients.append(layers[k].client_gradients(saved[k], upstream, len(batch)))
            if k > 0:
                upstream = layers[k].backward(own[k], saved[k], upstream)
        return gradients[::-1]

    def _forward(self, own: list[Tensor], inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Scores, and what each layer saved."""
        values, saved = self.model.viewed(inputs), []
        for layer, parameters in zip(self.model.layers, own, strict=True):
            values, kept = layer.forward(parameters, values)
            saved.append(kept)
        return values, saved

    @torch.no_grad()
    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores (n, classes), for evaluation."""
        return self._forward(self.model.slices(parameters), inputs)[0]


def local_updates(model: Model, local: LocalTraining) -> LocalUpdates:
    """The fastest exact computation for a model and local training."""
    if isinstance(model, Layered) and local.steps == 1:
        return LayeredUpdates(model, local)
    return VmappedUpdates(model, local)
