"""A client's work, many clients' examples side by side, and what computes on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from turnout.core import checks
from turnout.core.showing import shows_shapes
from turnout.learning.client_gradients import ClippedSum
from turnout.learning.compute import Compute


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


@shows_shapes()
@dataclass(frozen=True, slots=True)
class ClientBatch:
    """c clients with m examples each: inputs and labels (c, m, ...), weights (c, m).

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

    def on(self, compute: Compute) -> ClientBatch:
        """The batch on a device."""
        return ClientBatch(*map(compute.take, (self.inputs, self.labels, self.weights)))


class LocalUpdates(Protocol):
    """Sums of clipped updates, and the scores that the same model gives."""

    def clients_at_once(self, examples_each: int) -> int:
        """The number of clients of that many examples that just fit the cache."""
        ...

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Σ over the batch's clients of the clipped update, and how many were clipped."""
        ...

    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Each client's update as it is, float32, (c, d)."""
        ...

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores (n, classes), for evaluation."""
        ...
