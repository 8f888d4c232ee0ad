"""Low-rank adapters: a few trained numbers beside a fixed linear layer.

A layer x ↦ Wx + b becomes x ↦ Wx + b + (α/r)·B A x with W and b fixed, A (r, inputs) and
B (outputs, r) trained. B starts at zero, so the start is the base. Fewer coordinates get noise:
r·(inputs + outputs) in place of inputs·outputs.

Source: Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen, *LoRA: Low-Rank Adaptation of Large
    Language Models* (ICLR 2022), section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import sqrt

import torch
from torch import Tensor, nn

from turnout.core import checks
from turnout.core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Adapters:
    """Which linear layers get adapters, and how large.

    Attributes:
        rank: r, the rank of what is added.
        alpha: α; what is added is scaled by α/r.
        layers: patterns of names of linear layers such as "*.attn"; all of them by default.
    """

    rank: int = 4
    alpha: float = 8.0
    layers: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        checks.count(rank=self.rank)
        checks.positive(alpha=self.alpha)


class Adapted(nn.Module):
    """A linear layer with an adapter; its base is fixed."""

    def __init__(self, base: nn.Linear, adapters: Adapters) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        rank, (outputs, inputs) = adapters.rank, base.weight.shape
        bound = 1 / sqrt(inputs)
        self.down = nn.Parameter(torch.empty(rank, inputs).uniform_(-bound, bound))
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = adapters.alpha / rank

    def forward(self, inputs: Tensor) -> Tensor:
        """The base's outputs, and the adapter's on top."""
        return self.base(inputs) + self.scale * ((inputs @ self.down.T) @ self.up.T)


def adapt(module: nn.Module, adapters: Adapters) -> None:
    """Puts adapters on the module's linear layers, and fixes all its other parameters.

    Args:
        module: is changed. Its linear layers must be called, not have their weights read.
        adapters: on which layers.

    Raises:
        ParameterError: a pattern that no linear layer has, or a rank that saves nothing.
    """
    linear = {
        name: layer for name, layer in module.named_modules() if type(layer) is nn.Linear and name
    }
    for pattern in adapters.layers:
        if not any(fnmatchcase(name, pattern) for name in linear):
            known = ", ".join(list(linear)[:6]) or "there is none"
            expected = f"a pattern of linear layers inside of the module: {known}"
            raise ParameterError("model.lora.layers", pattern, expected)
    module.requires_grad_(False)
    for name, layer in linear.items():
        if any(fnmatchcase(name, pattern) for pattern in adapters.layers):
            least = min(layer.weight.shape)
            if adapters.rank > least:
                expected = f"at most {least}, the smaller side of layer {name!r}"
                raise ParameterError("model.lora.rank", adapters.rank, expected)
            parent, _, own = name.rpartition(".")
            setattr(module.get_submodule(parent), own, Adapted(layer, adapters))
