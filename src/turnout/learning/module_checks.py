"""Layers that are refused, by their class: those that mix examples, and those that draw.

One client's update is a function of that client's own data and of the model alone, the same each
time it is computed: on another number of threads, after a checkpoint, or on another device. Dropout
in training would need a secret stream a client and a step for what the noise does already, which
is to keep a model from learning its examples by heart; so it is refused rather than switched off
behind the user's back. A layer in evaluation mode is a fixed function, and is taken.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.instancenorm import _InstanceNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.lazy import LazyModuleMixin

from turnout.core.errors import ParameterError


def check_layers(module: nn.Module, title: str) -> None:
    """A module whose layers each look at one example, and draw nothing.

    Raises:
        ParameterError: a layer, by its name, with what to use instead.
    """
    for name, layer in module.named_modules():
        instead = _instead(layer)
        if instead:
            where = f"layer {name!r}" if name else "the module itself"
            expected = f"{instead} in place of {where} ({type(layer).__name__})"
            raise ParameterError("model.module", title, expected)


def _instead(layer: nn.Module) -> str:
    """What to use in place of a layer; "" where nothing is wrong with it."""
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():  # pyright: ignore
        return "a layer whose sizes are given"
    if not layer.training:
        return ""
    if isinstance(layer, _BatchNorm):
        return "GroupNorm or LayerNorm, which do not mix examples,"
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        return "GroupNorm, or InstanceNorm with track_running_stats=False,"
    draws = layer.p if isinstance(layer, _DropoutNd) else _fraction(layer)
    return "dropout 0, or .eval() on that layer, as the noise regularises already," if draws else ""


def _fraction(layer: nn.Module) -> float:
    """The share that a recurrent or attention layer drops by itself."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout
    return 0.0
