"""Max pooling of images under ``vmap``, by PyTorch's kernel for channels that come last.

PyTorch has two kernels of the same results on a CPU: that for channels last is eight times as
fast, conversion included. A user's module cannot choose it under ``vmap``, which hides the memory
format, so the calls inside `fast_max_pooling` are taken over here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_CALL = inspect.signature(functional.max_pool2d_with_indices)


class fast_max_pooling(TorchFunctionMode):  # noqa: N801 - a context manager, named as such
    """A context in which ``max_pool2d`` runs the faster kernel; same values, same gradients."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The function's result."""
        if func in (torch.max_pool2d, functional.max_pool2d):
            return _pooled(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _pair(setting: int | Sequence[int]) -> list[int]:
    """A setting of both axes."""
    return [setting, setting] if isinstance(setting, int) else list(setting)


def _pooled(images: Tensor, *given: Any, **named: Any) -> Any:
    """The result of ``functional.max_pool2d``."""
    call = _CALL.bind(images, *given, **named)
    call.apply_defaults()
    _, kernel, stride, *rest, ceil_mode, wants_indices = call.arguments.values()
    if images.ndim != 4 or wants_indices or images.device.type != "cpu":
        return functional.max_pool2d(images, *given, **named)
    settings = [_pair(setting) for setting in (kernel, stride or kernel, *rest)]
    return _MaxPool.apply(images, (*settings, ceil_mode))[0]


class _MaxPool(Function):
    """Largest values of windows (n, c, h, w) and where they were."""

    @staticmethod
    def forward(images: Tensor, settings: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """The values and their indices."""
        images = images.contiguous(memory_format=torch.channels_last)
        values, indices = functional.max_pool2d_with_indices(images, *settings)
        return values.contiguous(), indices.contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps what the gradient needs."""
        ctx.settings = inputs[1]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        """The gradient at the images."""
        images, indices = ctx.saved_tensors
        back = torch.ops.aten.max_pool2d_with_indices_backward
        return back(upstream[0], images, *ctx.settings, indices), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """All clients' images as one batch."""
        images = args[0].movedim(in_dims[0], 0)
        found = _MaxPool.apply(images.flatten(0, 1), args[1])
        return tuple(each.unflatten(0, images.shape[:2]) for each in found), (0, 0)
