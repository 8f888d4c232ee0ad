"""Losses: how far a model's outputs are from an example's label, one number an example.

Notation:
    n     examples
    K     outputs: classes, tags, numbers, or tokens of the vocabulary
    L     tokens of a sequence
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from turnout.core.errors import ParameterError
from turnout.learning.references import Reference

IGNORED = -1
"""The label of a token that is not predicted, such as padding."""

Function = Callable[[Tensor, Tensor], Tensor]
"""Of outputs (n, ...) and labels (n, ...)."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss, with its derivative where it has a closed form.

    Attributes:
        name: as a plan gives it.
        target: the kind of label that it takes; "" for any.
        each: the loss of each example, (n,); differentiable and vmap-able.
        total: their sum, as a scalar.
        derivative: of each example's loss by its outputs, (n, K); None without a closed form.
        reference: where a loss of the user's own comes from.
    """

    name: str
    target: str
    each: Function
    total: Function
    derivative: Function | None = None
    reference: Reference | None = None

    def resume_parts(self) -> Mapping[str, object]:
        """The name, and the code of a loss of the user's own."""
        return {"name": self.name, "reference": self.reference}


def _cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


def _cross_entropy_total(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, labels, reduction="sum")


def _cross_entropy_derivative(outputs: Tensor, labels: Tensor) -> Tensor:
    """The softmax minus the label's unit vector."""
    derivative = outputs.softmax(1)
    places = labels.reshape(-1, 1)
    return derivative.scatter_add_(1, places, derivative.new_full(places.shape, -1.0))


def _squared(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs - labels).square().flatten(1).mean(1)


def _squared_derivative(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs - labels) * (2 / outputs.shape[1])


def _binary(outputs: Tensor, labels: Tensor) -> Tensor:
    each = functional.binary_cross_entropy_with_logits(
        outputs, labels.to(outputs.dtype), reduction="none"
    )
    return each.flatten(1).mean(1)


def _binary_derivative(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.sigmoid() - labels) / outputs.shape[1]


def token_losses(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each token, 0 where it is ignored, and which ones count; both (n, L)."""
    counted = labels != IGNORED
    logits = outputs.log_softmax(-1)
    each = -logits.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(counted, each, torch.zeros_like(each)), counted


def _tokens(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean over the tokens that count; 0 for an example that has none."""
    each, counted = token_losses(outputs, labels)
    return each.sum(-1) / counted.sum(-1).clamp(min=1)


def _summed(each: Function) -> Function:
    """The sum of a loss."""
    return lambda outputs, labels: each(outputs, labels).sum()


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss(
            "cross-entropy",
            "class",
            _cross_entropy,
            _cross_entropy_total,
            _cross_entropy_derivative,
        ),
        Loss("squared", "numbers", _squared, _summed(_squared), _squared_derivative),
        Loss("binary cross-entropy", "tags", _binary, _summed(_binary), _binary_derivative),
        Loss("token cross-entropy", "tokens", _tokens, _summed(_tokens)),
    )
}
"""Losses by the name that a plan gives them."""

DEFAULTS = {loss.target: loss for loss in LOSSES.values()}
"""The loss of each kind of label."""


def own_loss(function: Function, reference: Reference | None, name: str = "own") -> Loss:
    """The loss of a function of the user's own: (outputs, labels) to a loss an example, (n,)."""

    def each(outputs: Tensor, labels: Tensor) -> Tensor:
        found = function(outputs, labels)
        if found.shape != outputs.shape[:1]:
            expected = f"a loss an example, shape {tuple(outputs.shape[:1])}"
            raise ParameterError("model.loss", tuple(found.shape), expected)
        return found

    return Loss(name, "", each, _summed(each), reference=reference)
