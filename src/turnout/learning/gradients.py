"""Clipped sums of clients' gradients, and the device and precision of their computation.

`factors` and `clipped_total` bound each client's contribution to a sum. `Materialised` and
`OuterProducts` represent the gradients of many clients with respect to one layer. `LocalTraining`
has the settings of a client's training, and `ClientBatch` the examples of many clients.
`compute_on` chooses the device and the precision.

**Two representations.** `Materialised` stores each client's gradient in full. If a client has one
example, the gradient of a dense layer is an outer product g xᵀ, and `OuterProducts` stores g and x
only. Norms and sums then need no gradient in full: ‖g xᵀ‖ = ‖g‖ ‖x‖, and Σ fᵢ gᵢ xᵢᵀ is one matrix
product. Squared norms are float64, since float32 squares would round by more than the clipping
margin allows and could overflow.

Guarantees:
    Norms, clip factors and sums of updates are computed in IEEE float32 and float64 on every
    device, whatever precision PyTorch is set to in the process. With half-precision products, an
    update could exceed the clip norm by 0.2 %, whereas the clipping margin is a millionth.
    ``bfloat16`` applies to forward and backward passes only, and the resulting float32 update is
    clipped as usual.

    On a CPU the same run gives the same bits. On a GPU it may not, since some sums are added in the
    order in which their terms arrive.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes

MARGIN = 2.0**-20
"""Updates are scaled to C·(1 − MARGIN), so that float32 rounding cannot lift one above C.

Norms are computed in float64 from the float32 numbers that are added (relative error below 1e-12).
The remaining errors are the rounding of the factor to float32 and of factor · coordinate, at most
2⁻²⁴ each, and for an outer product one more rounding of this size: together below 2⁻²². The
margin is four times as large and reduces C by a millionth.
"""

LARGEST_NORM = 1e30
"""Largest ℓ2 norm of a usable update. The clip factor of a longer update would leave float32's
normal range."""


def is_usable(squared_norms: Tensor) -> Tensor:
    """Mask of the updates that are finite and not above `LARGEST_NORM`, bool, shape (clients,).

    All other updates count as the zero vector.
    """
    return squared_norms <= LARGEST_NORM**2


def factors(squared_norms: Tensor, clip_norm: float | Tensor) -> Tensor:
    """Factors min(1, clip_norm·(1 − MARGIN)/norm) that clip usable updates, float32, (clients,)."""
    target = clip_norm * (1 - MARGIN)
    return (target / squared_norms.sqrt()).clamp_(max=1.0).to(torch.float32)


def count_longer(squared_norms: Tensor, clip_norm: float) -> int:
    """Number of usable updates longer than ``clip_norm``; ``squared_norms`` is (clients,)."""
    return int(torch.count_nonzero(squared_norms > clip_norm**2))


class ClientGradients(Protocol):
    """Interface of the gradients of c clients with respect to a layer's p weights and biases."""

    def squared_norms(self) -> Tensor:
        """Squared ℓ2 norm of each gradient, float64, shape (clients,)."""
        ...

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Weighted sum Σ factors[i] · gradient[i], shape (parameters,)."""
        ...

    def rows(self) -> Tensor:
        """Gradients of the clients as rows, shape (clients, parameters)."""
        ...


def squared_norms(rows: Tensor) -> Tensor:
    """Squared ℓ2 norm of each row, (n, d) to (n,), summed in float64."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()


class ClippedSum(NamedTuple):
    """Sum of clipped updates, float32, and the number of updates longer than the clip norm."""

    total: Tensor
    clipped: int


def clipped_total(updates: Tensor, clip_norm: float) -> ClippedSum:
    """Sum of updates, (clients, parameters), each clipped to ℓ2 norm at most ``clip_norm``.

    Updates that are not usable (see `is_usable`) add nothing to the sum.
    """
    norms = squared_norms(updates)
    usable = is_usable(norms)
    if not usable.all():
        updates, norms = updates[usable], norms[usable]
    total = factors(norms, clip_norm) @ updates
    return ClippedSum(total, count_longer(norms, clip_norm))


@shows_shapes()
@dataclass(frozen=True, slots=True)
class Materialised:
    """Gradients of c clients, stored in full.

    Attributes:
        weights: gradients with respect to the weights, (c, O·K), for O outputs of K inputs each.
        biases: gradients with respect to the biases, (c, O).
    """

    weights: Tensor
    biases: Tensor

    @classmethod
    def of_products(cls, upstream: Tensor, inputs: Tensor) -> Materialised:
        """Gradient Σ g xᵀ of each client, where the sum is over positions or examples.

        Args:
            upstream: g, the gradients with respect to the outputs, (c, positions, O).
            inputs: x, the inputs of the layer, (c, positions, K).
        """
        return cls(torch.bmm(upstream.transpose(1, 2), inputs).flatten(1), upstream.sum(1))

    def squared_norms(self) -> Tensor:
        """Squared ℓ2 norm of each gradient, float64, shape (clients,)."""
        return squared_norms(self.weights) + squared_norms(self.biases)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Weighted sum Σ factors[i] · gradient[i], shape (parameters,)."""
        return torch.cat((factors @ self.weights, factors @ self.biases))

    def rows(self) -> Tensor:
        """Gradients of the clients as rows, shape (clients, parameters)."""
        return torch.cat((self.weights, self.biases), dim=1)


@shows_shapes()
@dataclass(frozen=True, slots=True)
class OuterProducts:
    """Gradients of c clients, stored as factors: g xᵀ for the weights and g for the biases.

    Attributes:
        inputs: x, the inputs of the layer, shape (c, inputs).
        upstream: g, the gradients with respect to the outputs, shape (c, outputs).
    """

    inputs: Tensor
    upstream: Tensor

    def squared_norms(self) -> Tensor:
        """Squared ℓ2 norm of each gradient, float64, shape (clients,)."""
        return (squared_norms(self.inputs) + 1) * squared_norms(self.upstream)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Weighted sum Σ factors[i] · gradient[i], shape (parameters,)."""
        scaled = self.upstream * factors[:, None]
        return torch.cat(((scaled.T @ self.inputs).flatten(), scaled.sum(0)))

    def rows(self) -> Tensor:
        """Gradients of the clients as rows, shape (clients, parameters)."""
        products = self.upstream[:, :, None] * self.inputs[:, None, :]
        return torch.cat((products.flatten(1), self.upstream), dim=1)


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """Settings of the local training that each client runs on the received model.

    Each local step is a gradient step over all examples of the client.

    Attributes:
        steps: number of local steps, at least 1.
        learning_rate: local learning rate, above 0.

    Raises:
        ParameterError: a value outside its domain.
    """

    steps: int = 1
    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        checks.count(steps=self.steps)
        checks.positive(learning_rate=self.learning_rate)


@shows_shapes()
@dataclass(frozen=True, slots=True)
class ClientBatch:
    """Batch of c clients with m examples each: inputs and labels (c, m, …), weights (c, m).

    A client's weights sum to 1; the weights of padding are 0.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, clients: Tensor) -> ClientBatch:
        """Batch restricted to some of its clients, given by positions or a mask (c,)."""
        return ClientBatch(self.inputs[clients], self.labels[clients], self.weights[clients])

    def on(self, compute: Compute) -> ClientBatch:
        """Batch moved to another device."""
        return ClientBatch(*map(compute.take, (self.inputs, self.labels, self.weights)))


class LocalUpdates(Protocol):
    """Interface that computes clients' local updates, their clipped sums and model outputs."""

    def clients_at_once(self, examples_each: int) -> int:
        """Number of clients in an efficient batch if each has ``examples_each`` examples."""
        ...

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Sum (parameters,) of a batch's clipped updates, and the number of clipped updates."""
        ...

    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Unclipped update of each client, float32, shape (clients, parameters)."""
        ...

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of the model, (n, …), for evaluation."""
        ...


class Precision(StrEnum):
    """Floating-point type of forward and backward passes."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class Compute:
    """Device, ``"cpu"`` or ``"cuda"``, and the precision of forward and backward passes."""

    device: str = "cpu"
    precision: Precision = Precision.FLOAT32

    @property
    def on_cpu(self) -> bool:
        """Whether the computation runs in the CPU threads of this process."""
        return self.device == "cpu"

    def take(self, tensor: Tensor) -> Tensor:
        """Tensor moved to the device."""
        return tensor.to(self.device)

    def passes(self) -> AbstractContextManager[object]:
        """Context of forward and backward passes in the chosen precision."""
        if self.precision is Precision.FLOAT32:
            return nullcontext()
        return torch.autocast(self.device, torch.bfloat16)


CPU = Compute()


def compute_on(device: str, precision: str = Precision.FLOAT32) -> Compute:
    """Device and precision of a computation.

    Args:
        device: "cpu", "cuda", or "auto" for a GPU if PyTorch finds one and the CPU otherwise.
        precision: "float32" or "bfloat16".

    Raises:
        ParameterError: "cuda", but PyTorch finds no GPU.
    """
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        expected = "a machine with a GPU that PyTorch can use, or device = 'auto'"
        raise ParameterError("run.device", device, expected)
    chosen = ("cuda" if available else "cpu") if device == "auto" else device
    return Compute(chosen, Precision(precision))


def exact_products() -> None:
    """Make PyTorch compute float32 matrix products in full precision, in the whole process.

    The import of a custom module may have changed this setting.
    """
    torch.set_float32_matmul_precision("highest")
