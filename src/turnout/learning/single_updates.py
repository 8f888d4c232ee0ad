"""Clipped updates one client at a time: exact for any module, and slower than `vmap`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from turnout.learning.client_gradients import ClippedSum, clipped_total
from turnout.learning.client_work import ClientBatch, LocalTraining
from turnout.learning.compute import CPU, Compute
from turnout.learning.losses import Loss
from turnout.learning.models import Model

EXAMPLES_AT_ONCE = 256
"""A client with more of them has its gradient added up in parts of so many."""

LARGEST_SINGLE_UPDATES = 1 << 24
"""Floats of the clients' updates that are kept at once: 64 MiB."""


@dataclass(frozen=True, slots=True)
class SingleUpdates:
    """Any model, any number of local steps, by PyTorch's ordinary gradients.

    Guarantee: a client's update is computed from that client's own examples alone, without
    padding.
    """

    model: Model
    local: LocalTraining
    loss: Loss
    compute: Compute = CPU

    def clients_at_once(self, examples_each: int) -> int:
        """The number of clients of that many examples that make a good batch."""
        return max(
            1, min(64, LARGEST_SINGLE_UPDATES // max(self.model.dimension, 1)) // examples_each
        )

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Σ of the clipped updates, float32, (d,), and how many were clipped."""
        if len(batch) == 0:
            return ClippedSum(torch.zeros_like(parameters), 0)
        return clipped_total(self.rows(parameters, batch), clip_norm)

    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Each client's update as it is, float32, (c, d)."""
        return torch.stack([self._update(parameters, batch, i) for i in range(len(batch))])

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Outputs (n, ...), for evaluation."""
        with torch.no_grad():
            return self.model.logits(parameters, inputs)

    def _update(self, parameters: Tensor, batch: ClientBatch, client: int) -> Tensor:
        """One client's update, (d,)."""
        count = int((batch.weights[client] > 0).sum())  # what follows is padding
        inputs, labels = batch.inputs[client, :count], batch.labels[client, :count]
        moved = torch.zeros_like(parameters)
        for _ in range(self.local.steps):
            slope = self._gradient(parameters - moved, inputs, labels, batch.weights[client])
            moved = moved + self.local.learning_rate * slope
        return moved

    def _gradient(self, at: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """The gradient of the weighted loss, (d,)."""
        total = torch.zeros_like(at)
        for start in range(0, len(inputs), EXAMPLES_AT_ONCE):
            some = slice(start, start + EXAMPLES_AT_ONCE)
            own = at.detach().requires_grad_()
            with torch.enable_grad(), self.compute.passes():
                each = self.loss.each(self.model.logits(own, inputs[some]), labels[some])
                loss = (each * weights[: len(inputs)][some]).sum()
            total += torch.autograd.grad(loss, own)[0]
        return total
