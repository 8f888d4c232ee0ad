"""ONNX graphs of a device's computation, traced from PyTorch: the clipped update, and features.

`update_graph` traces the gradient through ``torch.func.grad``, so that the graph computes the whole
update and a device needs neither PyTorch nor the model's code; `features_graph` traces a feature
function. `task_graphs` calls both when a task is created. A graph accepts any number of records.

PyTorch's derivatives of convolutions and pools are single operators without a counterpart in ONNX.
`DERIVATIVES` maps each such operator to a function with the same signature and, up to rounding, the
same result.
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


def convolution_backward(  # noqa: PLR0917 - PyTorch's signature
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
    """Gradients of ``aten.convolution`` by inputs (n, c, …), weights (o, c, …) and biases (o,).

    Raises:
        UnsupportedError: the convolution is transposed or grouped.
    """
    del bias_sizes, output_padding
    if transposed or groups != 1:
        raise UnsupportedError(
            "a graph cannot have the derivative of a grouped or transposed convolution"
        )
    at_inputs = at_weights = at_biases = None
    space = list(range(2, inputs.ndim))
    # In the inputs: the transposed convolution, padded to the inputs' size.
    if output_mask[0]:
        left = [
            inputs.shape[i] - ((upstream.shape[i] - 1) * s - 2 * p + d * (weights.shape[i] - 1) + 1)
            for i, s, p, d in zip(space, stride, padding, dilation, strict=True)
        ]
        at_inputs = aten.convolution(
            upstream, weights, None, stride, padding, dilation, True, left, 1
        )
    # In the weights: a convolution of inputs and gradients that sums over the batch, which
    # therefore takes the place of the channels; strides and dilations change places.
    if output_mask[1]:
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
    # In the biases: the sum over batch and space.
    if output_mask[2]:
        at_biases = upstream.sum([0, *space])
    return at_inputs, at_weights, at_biases


def max_pool2d_backward(  # noqa: PLR0917 - PyTorch's signature
    upstream: Tensor,
    inputs: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Gradient of ``aten.max_pool2d_with_indices`` with respect to its inputs (n, c, h, w)."""
    del kernel_size, stride, padding, dilation, ceil_mode
    flat = torch.zeros_like(inputs).flatten(-2)
    return flat.scatter_add(-1, indices.flatten(-2), upstream.flatten(-2)).view(inputs.shape)


def avg_pool2d_backward(  # noqa: PLR0917 - PyTorch's signature
    upstream: Tensor,
    inputs: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Gradient of ``aten.avg_pool2d`` with respect to its inputs (n, c, h, w).

    Raises:
        UnsupportedError: a window crosses the border, or a mean has a divisor other than the
            window's size.
    """
    if ceil_mode or divisor_override or (any(padding) and not count_include_pad):
        raise UnsupportedError(
            "a graph cannot have the derivative of an average pooling whose windows differ in size"
        )
    # The transposed convolution of each channel with a constant window, padded to the inputs' size.
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


def batch_norm(  # noqa: PLR0917 - PyTorch's signature
    inputs: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalization with fixed statistics, of inputs (n, c, …), as PyTorch's operator."""
    # The running statistics are constants of the model; each is a row along the channels.
    del momentum
    shape = [1, -1, *[1] * (inputs.ndim - 2)]
    made = (inputs - running_mean.view(shape)) * (running_var + eps).rsqrt().view(shape)
    made = made if weight is None else made * weight.view(shape)
    # PyTorch's operator also returns two empty tensors.
    return (
        made if bias is None else made + bias.view(shape),
        inputs.new_empty(0),
        inputs.new_empty(0),
    )


def empty_permuted(size: Sequence[int], order: Sequence[int], **kind: Any) -> Tensor:
    """Zeros of shape ``size``, for a buffer that is written before it is read."""
    del order
    return torch.zeros(size, dtype=kind.get("dtype"))


DERIVATIVES: dict[Any, Callable[..., Any]] = {
    aten.avg_pool2d_backward.default: avg_pool2d_backward,
    aten._native_batch_norm_legit_no_training.default: batch_norm,
    aten.empty_permuted.default: empty_permuted,
    aten.convolution_backward.default: convolution_backward,
    aten.max_pool2d_with_indices_backward.default: max_pool2d_backward,
}
"""Replacement of each operator, in the form of `make_fx`."""


UPDATE_INPUTS = ("parameters", "inputs", "labels", "weights", "clip_norm")

Loss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each record ``(n,)``, from scores ``(n, …)`` and labels ``(n,)`` or ``(n, count)``."""

_MOST_RECORDS = 1 << 16


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each record ``(n,)``, from scores ``(n, classes)`` and labels ``(n,)``."""
    return -functional.log_softmax(scores, 1).gather(1, labels.unsqueeze(1)).squeeze(1)


def update_function(
    model: Model,
    local: LocalTraining | None = None,
    loss: Loss = cross_entropy,
    form: Labels | None = None,
) -> Callable[..., Tensor]:
    """The clipped update as a function of `UPDATE_INPUTS`.

    Args:
        model: model that returns scores.
        local: number and learning rate of the client's gradient steps; one step by default.
        loss: loss function of each record.
        form: format of labels that are not classes.

    Returns:
        A function whose arguments are the parameters ``(d,)``, records, labels, weights ``(n,)``
        that sum to 1, and the clip norm. It returns an update ``(d,)`` of ℓ2 norm at most the clip
        norm.
    """
    local = local or LocalTraining()

    tags = form is not None and form.kind == "tags"

    def update(
        parameters: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor, clip_norm: Tensor
    ) -> Tensor:
        known = labels.to(torch.uint8) if tags else labels  # the type that a simulation uses

        def total(at: Tensor) -> Tensor:
            return (loss(model.logits(at, inputs), known) * weights).sum()

        # Local gradient steps; the update is the start minus the end.
        moved = local.learning_rate * grad(total)(parameters)
        for _ in range(1, local.steps):
            moved = moved + local.learning_rate * grad(total)(parameters - moved)
        # Clipped to a margin below the norm, so that rounding does not exceed it.
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
    """ONNX graph of a model's clipped update.

    Args:
        model: a model whose scores PyTorch can trace.
        example: a record in the form of the model's input, float32 or int64; its values are not
            used.
        local: number and learning rate of the client's gradient steps.
        loss: loss function of each record.
        form: format of labels that are not classes.

    Raises:
        UnsupportedError: ONNX cannot express an operation of the model; the error names the
            operation.
    """
    # Example arguments for the tracer; their number of records equals no other side.
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
    """Labels of ``count`` records, all 0."""
    if form is None:
        return torch.zeros(count, dtype=torch.int64)
    return torch.from_numpy(np.zeros((count, form.count), form.dtype))


def features_graph(function: Callable[[Tensor], Tensor], example: Tensor) -> bytes:
    """ONNX graph in the format ``onnx-features-1`` of a feature function.

    Args:
        function: feature function, from inputs (n, …) to features (n, …).
        example: one input, without the axis of inputs; its values are not used.

    Raises:
        UnsupportedError: ONNX cannot express an operation of the function; the error names the
            operation.
    """
    count = _unlike(*example.shape)
    inputs = torch.zeros(count, *example.shape, dtype=example.dtype)
    return _exported(function, (inputs,), {0}, ("inputs",), "features")


def _unlike(*sides: int) -> int:
    """Number of records that differs from all given sides, so that the tracer can tell it apart."""
    return next(n for n in (11, 13, 17, 19, 23, 29, 31, 37, 41, 43) if n not in sides)


def _exported(
    function: Callable[..., Tensor],
    arguments: tuple[Tensor, ...],
    by_record: set[int],
    names: tuple[str, ...],
    output: str,
) -> bytes:
    """ONNX graph of a function.

    Args:
        function: function to trace.
        arguments: example tensors, on which the function is traced.
        by_record: positions of the arguments that have one row for each record.
        names: names of the graph's inputs.
        output: name of the graph's output.
    """
    records = Dim("records", min=1, max=_MOST_RECORDS)
    shapes = tuple({0: records} if i in by_record else None for i in range(len(arguments)))
    table = {**default_decompositions(), **DERIVATIVES}
    # PyTorch logs and warns about its own parts during an export.
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), _OpenLinear():
            warnings.simplefilter("ignore")
            function(*arguments)  # buffers made at a first call do not belong to the graph
            # Trace the gradient into basic operators, then export these with a variable count.
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
                optimize=False,  # the optimizer rounds a constant near 1 to 1
            )
    except UnsupportedError:
        raise
    except Exception as error:  # PyTorch raises many kinds, with long messages
        raise UnsupportedError(f"this model cannot become a graph: {_reason(error)}") from None
    finally:
        noisy.setLevel(level)
    assert made is not None
    return _reduced(_folded(made.model))


class _OpenLinear(TorchFunctionMode):
    """Dense layers of sequences as matrix products.

    PyTorch's own operator would fix the number of records in the graph.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is functional.linear and args[0].ndim > 2:
            return _linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`functional.linear` as a matrix product: inputs ``(…, d)`` give a result ``(…, k)``."""
    made = inputs @ weight.T
    return made if bias is None else made + bias


def _folded(model: Any) -> Any:
    """The ONNX model with functions inlined, constants folded and unused nodes removed."""
    from onnxscript import ir, optimizer  # pyright: ignore[reportMissingImports]

    optimizer.inline(model)
    optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)
    return ir.serde.serialize_model(model)


def _reason(error: BaseException) -> str:
    """First line of an error's innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]


def _reduced(proto: Any) -> bytes:
    """The same ONNX model with only the fields that `format.read_graph` accepts."""
    import onnx  # pyright: ignore[reportMissingImports]
    from onnx import numpy_helper  # pyright: ignore[reportMissingImports]

    # Nodes without names and texts; tensors of attributes as plain bytes.
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
    # Initializers as plain bytes, inputs and outputs with type and shape.
    for tensor in proto.graph.initializer:
        graph.initializer.append(
            numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
        )
    for ports, kept in ((proto.graph.input, graph.input), (proto.graph.output, graph.output)):
        for port in ports:
            kept.add(name=port.name).type.tensor_type.CopyFrom(port.type.tensor_type)
    # One operator set, and bytes that are the same for the same model.
    (opset,) = [each for each in proto.opset_import if each.domain in ("", "ai.onnx")]
    reduced = onnx.ModelProto(ir_version=min(proto.ir_version, IR_VERSIONS[-1]), graph=graph)
    reduced.opset_import.add(domain="", version=opset.version)
    return reduced.SerializeToString(deterministic=True)
