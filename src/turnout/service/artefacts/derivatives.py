"""Batch normalisation by fixed statistics, and derivatives of convolutions and pools, said in
operators that a graph has.

PyTorch's own are single operators without a counterpart in ONNX. Each function here has the
signature of the one that it replaces, and gives the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from turnout.core.errors import UnsupportedError

aten = torch.ops.aten


def convolution_backward(  # noqa: PLR0917 - PyTorch calls it so
    upstream: Tensor,
    inputs: Tensor,
    weights: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of ``aten.convolution`` at inputs (n, c, …), weights (o, c, …) and biases (o,).

    Raises:
        UnsupportedError: a transposed convolution, or one in groups.
    """
    del bias_sizes, output_padding
    if transposed or groups != 1:
        raise UnsupportedError("a graph has no derivative of a grouped or transposed convolution")
    at_inputs = at_weights = at_biases = None
    space = list(range(2, inputs.ndim))
    if output_mask[0]:
        left = [
            inputs.shape[i] - ((upstream.shape[i] - 1) * s - 2 * p + d * (weights.shape[i] - 1) + 1)
            for i, s, p, d in zip(space, stride, padding, dilation, strict=True)
        ]
        at_inputs = aten.convolution(
            upstream, weights, None, stride, padding, dilation, True, left, 1
        )
    if output_mask[1]:
        # The batch is what is summed over: it takes the place of the channels.
        products = aten.convolution(
            inputs.transpose(0, 1),
            upstream.transpose(0, 1),
            None,
            dilation,
            padding,
            stride,
            False,
            [0] * len(space),
            1,
        )
        for i in space:
            products = products.narrow(i, 0, weights.shape[i])
        at_weights = products.transpose(0, 1)
    if output_mask[2]:
        at_biases = upstream.sum([0, *space])
    return at_inputs, at_weights, at_biases


def max_pool2d_backward(  # noqa: PLR0917 - PyTorch calls it so
    upstream: Tensor,
    inputs: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Gradient of ``aten.max_pool2d_with_indices`` at its inputs (n, c, h, w)."""
    del kernel_size, stride, padding, dilation, ceil_mode
    flat = torch.zeros_like(inputs).flatten(-2)
    return flat.scatter_add(-1, indices.flatten(-2), upstream.flatten(-2)).view(inputs.shape)


def avg_pool2d_backward(  # noqa: PLR0917 - PyTorch calls it so
    upstream: Tensor,
    inputs: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Gradient of ``aten.avg_pool2d`` at its inputs (n, c, h, w).

    Raises:
        UnsupportedError: windows that end outside, or a mean over other numbers than a window's.
    """
    if ceil_mode or divisor_override or (any(padding) and not count_include_pad):
        raise UnsupportedError("a graph has no derivative of an average over uneven windows")
    sides = list(zip(kernel_size, stride or kernel_size, padding, strict=True))
    steps, edges = [each[1] for each in sides], [each[2] for each in sides]
    left = [
        inputs.shape[i] - ((upstream.shape[i] - 1) * s - 2 * p + k)
        for i, (k, s, p) in zip((-2, -1), sides, strict=True)
    ]
    window = upstream.new_full((1, 1, *kernel_size), 1 / (kernel_size[0] * kernel_size[1]))
    alone = upstream.reshape(-1, 1, *upstream.shape[-2:])
    spread = aten.convolution(alone, window, None, steps, edges, [1, 1], True, left, 1)
    return spread.view(inputs.shape)


def batch_norm(  # noqa: PLR0917 - PyTorch calls it so
    inputs: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """``aten._native_batch_norm_legit_no_training``: a fixed function of each of (n, c, …)."""
    del momentum
    shape = [1, -1, *[1] * (inputs.ndim - 2)]
    made = (inputs - running_mean.view(shape)) * (running_var + eps).rsqrt().view(shape)
    made = made if weight is None else made * weight.view(shape)
    return (
        made if bias is None else made + bias.view(shape),
        inputs.new_empty(0),
        inputs.new_empty(0),
    )


def empty_permuted(size: Sequence[int], order: Sequence[int], **kind: Any) -> Tensor:
    """Numbers that are written before they are read, ``size``; in a graph they are zeros."""
    del order
    return torch.zeros(size, dtype=kind.get("dtype"))


DERIVATIVES: dict[Any, Callable[..., Any]] = {
    aten.avg_pool2d_backward.default: avg_pool2d_backward,
    aten._native_batch_norm_legit_no_training.default: batch_norm,
    aten.empty_permuted.default: empty_permuted,
    aten.convolution_backward.default: convolution_backward,
    aten.max_pool2d_with_indices_backward.default: max_pool2d_backward,
}
"""Replacements by operator, as `make_fx` takes them."""
