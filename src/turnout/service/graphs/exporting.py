"""Graphs of what a device computes, written from PyTorch: the clipped update, and features.

`update_graph` traces the gradient through ``torch.func.grad``, so a graph holds the whole update
and a device needs neither PyTorch nor the model's code; `features_graph` writes features. The
number of records is left open. PyTorch's derivatives of convolutions and pools are single operators
without a counterpart in ONNX; each function here that replaces one has its signature and gives the
same up to rounding.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim, default_decompositions
from torch.func import grad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from turnout.core.errors import UnsupportedError
from turnout.learning.gradients import MARGIN
from turnout.learning.local_updates import LocalTraining
from turnout.learning.models import Model
from turnout.service.contract.computation import Labels
from turnout.service.graphs.format import IR_VERSIONS, OPSETS

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


UPDATE_INPUTS = ("parameters", "inputs", "labels", "weights", "clip_norm")

Loss = Callable[[Tensor, Tensor], Tensor]
"""Loss (n,) of each record, from scores (n, …) and labels (n,) or (n, count)."""

_MOST_RECORDS = 1 << 16


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """−ln of the label's softmax, (n,) from (n, classes) and (n,)."""
    return -functional.log_softmax(scores, 1).gather(1, labels.unsqueeze(1)).squeeze(1)


def update_function(
    model: Model,
    local: LocalTraining | None = None,
    loss: Loss = cross_entropy,
    form: Labels | None = None,
) -> Callable[..., Tensor]:
    """The clipped update as a function of `UPDATE_INPUTS`; ``weights`` sum to 1."""
    local = local or LocalTraining()

    tags = form is not None and form.kind == "tags"

    def update(
        parameters: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor, clip_norm: Tensor
    ) -> Tensor:
        known = labels.to(torch.uint8) if tags else labels  # as a simulation has them

        def total(at: Tensor) -> Tensor:
            return (loss(model.logits(at, inputs), known) * weights).sum()

        moved = local.learning_rate * grad(total)(parameters)
        for _ in range(1, local.steps):
            moved = moved + local.learning_rate * grad(total)(parameters - moved)
        norm = moved.double().square().sum().sqrt()
        return moved * (clip_norm * (1 - MARGIN) / norm).clamp(max=1.0).float()

    return update


def update_graph(
    model: Model,
    example: Tensor,
    local: LocalTraining | None = None,
    loss: Loss = cross_entropy,
    form: Labels | None = None,
) -> bytes:
    """The graph of a model's update.

    Args:
        model: any whose scores PyTorch can trace.
        example: a record as the model sees it, float32 or int64; only type and shape count.
        local: what a client does in a step.
        loss: of each record.
        form: of labels that are not classes.

    Raises:
        UnsupportedError: the model uses what a graph cannot say; the message names it.
    """
    count = _unlike(model.dimension, *example.shape, *(() if form is None else (form.count,)))
    arguments = (
        torch.linspace(-0.1, 0.1, model.dimension),
        torch.zeros(count, *example.shape, dtype=example.dtype),
        _blank_labels(form, count),
        torch.full((count,), 1 / count),
        torch.ones((), dtype=torch.float64),
    )
    function = update_function(model, local, loss, form)
    return _exported(function, arguments, {1, 2, 3}, UPDATE_INPUTS, "update")


def _blank_labels(form: Labels | None, count: int) -> Tensor:
    """Labels of so many records, all 0."""
    if form is None:
        return torch.zeros(count, dtype=torch.int64)
    return torch.from_numpy(np.zeros((count, form.count), form.dtype))


def features_graph(function: Callable[[Tensor], Tensor], example: Tensor) -> bytes:
    """The graph ``onnx-features-1`` of a function of inputs, float32 ``(n, …)`` to ``(n, …)``.

    Raises:
        UnsupportedError: the function uses what a graph cannot say; the message names it.
    """
    count = _unlike(*example.shape)
    inputs = torch.zeros(count, *example.shape, dtype=example.dtype)
    return _exported(function, (inputs,), {0}, ("inputs",), "features")


def _unlike(*sides: int) -> int:
    """A number of records that no side has, lest tracing takes one for the other."""
    return next(n for n in (11, 13, 17, 19, 23, 29, 31, 37, 41, 43) if n not in sides)


def _exported(
    function: Callable[..., Tensor],
    arguments: tuple[Tensor, ...],
    by_record: set[int],
    names: tuple[str, ...],
    output: str,
) -> bytes:
    """The graph of a function, whose arguments in these places have a row a record."""
    records = Dim("records", min=1, max=_MOST_RECORDS)
    shapes = tuple({0: records} if i in by_record else None for i in range(len(arguments)))
    table = {**default_decompositions(), **DERIVATIVES}
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), _OpenLinear():
            warnings.simplefilter("ignore")  # of PyTorch about its own parts
            function(*arguments)  # what a module makes at its first call is no part of the graph
            traced = make_fx(
                function,
                decomposition_table=table,
                tracing_mode="symbolic",
                _allow_non_fake_inputs=True,  # fixed parameters and buffers become initializers
            )(*arguments)
            program = torch.export.export(traced, arguments, dynamic_shapes=shapes)
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                opset_version=OPSETS[-1] - 1,
                input_names=names,
                output_names=(output,),
                optimize=False,  # whose rules take a number near 1 for 1
            )
    except UnsupportedError:
        raise
    except Exception as error:  # PyTorch raises many kinds, each with a page of advice
        raise UnsupportedError(f"a device cannot be sent this model: {_reason(error)}") from None
    finally:
        noisy.setLevel(level)
    assert made is not None
    return _bare(_folded(made.model))


class _OpenLinear(TorchFunctionMode):
    """Dense layers of sequences as a product: PyTorch's own freeze the number of records."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is functional.linear and args[0].ndim > 2:
            return _linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`functional.linear`, (…, k) from (…, d)."""
    made = inputs @ weight.T
    return made if bias is None else made + bias


def _folded(model: Any) -> Any:
    """The model without functions, and without what does not depend on its inputs."""
    from onnxscript import ir, optimizer  # pyright: ignore[reportMissingImports]

    optimizer.inline(model)
    optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)
    return ir.serde.serialize_model(model)


def _reason(error: BaseException) -> str:
    """The first line of what was wrong at the bottom of it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]


def _bare(proto: Any) -> bytes:
    """The same model without what a device does not read: names of lines, texts, shapes within."""
    import onnx  # pyright: ignore[reportMissingImports]
    from onnx import numpy_helper  # pyright: ignore[reportMissingImports]

    graph = onnx.GraphProto(name="update")
    for node in proto.graph.node:
        kept = graph.node.add(op_type=node.op_type, input=node.input, output=node.output)
        for attribute in node.attribute:
            copy = kept.attribute.add()
            copy.CopyFrom(attribute)
            copy.ClearField("doc_string")
            if attribute.type == onnx.AttributeProto.TENSOR:
                plain = numpy_helper.from_array(numpy_helper.to_array(attribute.t))
                copy.t.CopyFrom(plain)
    for tensor in proto.graph.initializer:
        graph.initializer.append(
            numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
        )
    for ports, kept in ((proto.graph.input, graph.input), (proto.graph.output, graph.output)):
        for port in ports:
            kept.add(name=port.name).type.tensor_type.CopyFrom(port.type.tensor_type)
    (opset,) = [each for each in proto.opset_import if each.domain in ("", "ai.onnx")]
    bare = onnx.ModelProto(ir_version=min(proto.ir_version, IR_VERSIONS[-1]), graph=graph)
    bare.opset_import.add(domain="", version=opset.version)
    return bare.SerializeToString(deterministic=True)
