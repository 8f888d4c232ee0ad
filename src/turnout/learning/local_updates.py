"""Clipped updates of clients, computed for many clients at once.

A client's update is minus the way that local gradient descent on the mean loss over its own
examples moves the model; descending along it makes that loss smaller. One local step with
learning rate 1, the default, makes it the gradient.

Computations of the same sum:
    `VmappedUpdates`   any model, any number of local steps: ``torch.func`` over clients.
    `LayeredUpdates`   layered models, one step: gradients written out layer by layer.

A third, `turnout.learning.single_updates.SingleUpdates`, takes models that ``vmap`` cannot.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.func import grad, vmap

from turnout.learning import clipping
from turnout.learning.client_gradients import ClientGradients, ClippedSum, clipped_total
from turnout.learning.client_work import ClientBatch, LocalTraining, LocalUpdates
from turnout.learning.compute import CPU, Compute
from turnout.learning.examples import Examples
from turnout.learning.losses import LOSSES, Loss
from turnout.learning.models import Layered, Model
from turnout.learning.module_probes import (
    TRAINED,
    SlowUpdatesWarning,
    check_outputs,
    check_updates,
    layer_without_rule,
    made_up_batch,
    named_failures,
)
from turnout.learning.modules import ModuleModel
from turnout.learning.pooling import fast_max_pooling
from turnout.learning.recording import Recorded
from turnout.learning.single_updates import SingleUpdates

CROSS_ENTROPY = LOSSES["cross-entropy"]

LARGEST_UPDATES, LARGEST_UPDATES_ON_GPU = 1 << 22, 1 << 27
"""Floats of the clients' updates that are written out at once: 16 MiB, of which a CPU keeps freed
memory, and 512 MiB.
"""


@dataclass(frozen=True, slots=True)
class VmappedUpdates:
    """Any model, any number of local steps."""

    model: Model
    local: LocalTraining
    loss: Loss = CROSS_ENTROPY
    compute: Compute = CPU

    def clients_at_once(self, examples_each: int) -> int:
        """The number of clients of that many examples that make a good batch.

        Every client's update is written out: of large models there are fewer at once.
        """
        most, floats = (
            (128, LARGEST_UPDATES) if self.compute.on_cpu else (4096, LARGEST_UPDATES_ON_GPU)
        )
        return max(1, min(most, floats // max(self.model.dimension, 1)) // examples_each)

    def update(self, parameters: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """One client's update."""

        def loss(at: Tensor) -> Tensor:
            return (self.loss.each(self.model.logits(at, inputs), labels) * weights).sum()

        # Adding up the way moved, rather than subtracting the end from the start, keeps the
        # digits that a small step on large parameters would lose.
        moved = self.local.learning_rate * grad(loss)(parameters)
        for _ in range(1, self.local.steps):
            moved = moved + self.local.learning_rate * grad(loss)(parameters - moved)
        return moved

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Σ of the clipped updates, float32, (d,), and how many were clipped."""
        return clipped_total(self.rows(parameters, batch), clip_norm)

    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Each client's update as it is, float32, (c, d)."""
        each = vmap(self.update, in_dims=(None, 0, 0, 0))
        with fast_max_pooling(), self.compute.passes():
            return each(parameters, batch.inputs, batch.labels, batch.weights).detach()

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores (n, classes), for evaluation."""
        with torch.no_grad():
            return self.model.logits(parameters, inputs)


@dataclass(frozen=True, slots=True)
class LayeredUpdates:
    """Layered models, one local step, a loss with a derivative in closed form."""

    model: Layered
    local: LocalTraining
    loss: Loss = CROSS_ENTROPY

    def clients_at_once(self, examples_each: int) -> int:
        """The number of clients of that many examples that make a good batch."""
        floats_in_cache = 3 << 20
        return max(1, min(256, floats_in_cache // self.model.workspace) // examples_each)

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Σ of the clipped updates, float32, (d,), and how many were clipped."""
        if len(batch) == 0:
            return ClippedSum(torch.zeros_like(parameters), 0)
        bound = torch.tensor(clip_norm, dtype=torch.float64)
        total, norms = _recorded(self)(parameters, batch.inputs, batch.labels, batch.weights, bound)
        usable = clipping.is_usable(norms)
        if not usable.all():
            # Their rows hold NaN, and 0 · NaN is NaN: leave them out and start again.
            return self.clipped_sum(parameters, batch.only(usable), clip_norm)
        return ClippedSum(total, clipping.count_longer(norms, clip_norm))

    @torch.no_grad()
    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Each client's update as it is, float32, (c, d)."""
        return torch.cat([layer.rows() for layer in self._gradients(parameters, batch)], dim=1)

    def sum_and_norms(
        self, parameters: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor, clip_norm: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Σ of the clipped updates, (d,), and the squared norm of each before, float64, (c,)."""
        gradients = self._gradients(parameters, ClientBatch(inputs, labels, weights))
        norms = torch.stack([layer.squared_norms() for layer in gradients]).sum(0)
        factors = clipping.factors(norms, clip_norm)
        return torch.cat([layer.weighted_sum(factors) for layer in gradients]), norms

    def _gradients(self, parameters: Tensor, batch: ClientBatch) -> list[ClientGradients]:
        """Each layer's gradients of every client's loss, times the local learning rate."""
        layers, own = self.model.layers, self.model.slices(parameters)
        logits, saved = self._forward(own, batch.inputs)
        assert self.loss.derivative is not None
        upstream = self.loss.derivative(logits, batch.labels.flatten(0, 1))
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


@lru_cache(maxsize=16)
def _recorded(updates: LayeredUpdates) -> Recorded:
    """The computation of all `LayeredUpdates` with these settings."""
    return Recorded(updates.sum_and_norms)


def local_updates(
    model: Model,
    local: LocalTraining,
    loss: Loss = CROSS_ENTROPY,
    examples: Examples | None = None,
    compute: Compute = CPU,
) -> LocalUpdates:
    """The fastest exact computation for a model, local training and a loss.

    Args:
        model: what is trained.
        local: what a client does with it.
        loss: what a client lowers.
        examples: like those of clients, for what a module of the user's own is tried on.
        compute: the device, and the precision of passes.

    Raises:
        ParameterError: a module or a loss that cannot be trained with.
    """
    if (
        isinstance(model, Layered)
        and local.steps == 1
        and loss.derivative is not None
        and compute == CPU
    ):
        return LayeredUpdates(model, local, loss)
    mapped = VmappedUpdates(model, local, loss, compute)
    if not isinstance(model, ModuleModel) or examples is None:
        return mapped
    check_outputs(model, examples)
    start = compute.take(torch.from_numpy(model.start))
    clients = made_up_batch(examples, 3, 3).on(compute)

    def tried(updates: LocalUpdates) -> None:
        for batch in (clients, clients.only(torch.tensor([2, 1]))):
            updates.clipped_sum(start, batch, 1.0)

    layer = layer_without_rule(model, lambda: tried(mapped))
    if layer is None:
        check_updates(model, examples, VmappedUpdates(model, LocalTraining(), loss))
        return mapped
    single = SingleUpdates(model, local, loss, compute)
    with named_failures(model, TRAINED):
        tried(single)
    check_updates(model, examples, SingleUpdates(model, LocalTraining(), loss))
    warnings.warn(
        f"vmap has no rule for {layer}: clients' updates are computed one client at a time, "
        "which is exact but slower",
        SlowUpdatesWarning,
        stacklevel=3,
    )
    return single
