"""One layer's gradients for many clients: their norms, and a weighted sum of them.

Two representations. Where a gradient is small or has no structure it is written out; where it
is one outer product g xᵀ a client (a dense layer, one example each), neither norms nor sums
need it: ‖g xᵀ‖ = ‖g‖ ‖x‖, and Σ fᵢ gᵢ xᵢᵀ is one matrix product.

Squared norms are float64: their error must not eat into the clipping margin
(`turnout.learning.clipping`), and squares of large float32 numbers must not overflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from turnout.core.showing import shows_shapes
from turnout.learning import clipping


class ClientGradients(Protocol):
    """c clients' gradients at p parameters (weights, then biases)."""

    def squared_norms(self) -> Tensor:
        """Squared ℓ2 norm of each, float64, (c,)."""
        ...

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Σ factors[i] · gradient[i], (p,)."""
        ...

    def rows(self) -> Tensor:
        """Each gradient written out, (c, p)."""
        ...


def squared_norms(rows: Tensor) -> Tensor:
    """Squared ℓ2 norm of each row, accumulated in float64."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()


class ClippedSum(NamedTuple):
    """A sum of clipped updates, float32, (d,), and how many of them were longer than C."""

    total: Tensor
    clipped: int


def clipped_total(updates: Tensor, clip_norm: float) -> ClippedSum:
    """Σ of the updates (c, d), each clipped, those that are not finite left out."""
    norms = squared_norms(updates)
    usable = clipping.is_usable(norms)
    if not usable.all():
        updates, norms = updates[usable], norms[usable]
    total = clipping.factors(norms, clip_norm) @ updates
    return ClippedSum(total, clipping.count_longer(norms, clip_norm))


@shows_shapes()
@dataclass(frozen=True, slots=True)
class Materialised:
    """Written out: weights (c, O·K) and biases (c, O)."""

    weights: Tensor
    biases: Tensor

    @classmethod
    def of_products(cls, upstream: Tensor, inputs: Tensor) -> Materialised:
        """Σ over positions of g xᵀ, from (c, positions, O) and (c, positions, K)."""
        return cls(torch.bmm(upstream.transpose(1, 2), inputs).flatten(1), upstream.sum(1))

    def squared_norms(self) -> Tensor:
        """Squared ℓ2 norm of each, float64, (c,)."""
        return squared_norms(self.weights) + squared_norms(self.biases)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Σ factors[i] · gradient[i], (p,)."""
        return torch.cat((factors @ self.weights, factors @ self.biases))

    def rows(self) -> Tensor:
        """Each gradient written out, (c, p)."""
        return torch.cat((self.weights, self.biases), dim=1)


@shows_shapes()
@dataclass(frozen=True, slots=True)
class OuterProducts:
    """Client i's gradient is g xᵀ at the weights and g at the biases: x (c, K), g (c, O)."""

    inputs: Tensor
    upstream: Tensor

    def squared_norms(self) -> Tensor:
        """Squared ℓ2 norm of each, float64, (c,)."""
        return (squared_norms(self.inputs) + 1) * squared_norms(self.upstream)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Σ factors[i] · gradient[i], (p,)."""
        scaled = self.upstream * factors[:, None]
        return torch.cat(((scaled.T @ self.inputs).flatten(), scaled.sum(0)))

    def rows(self) -> Tensor:
        """Each gradient written out, (c, p)."""
        products = self.upstream[:, :, None] * self.inputs[:, None, :]
        return torch.cat((products.flatten(1), self.upstream), dim=1)
