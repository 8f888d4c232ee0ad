"""Clipped updates of clients, computed for many clients at once.

`local_updates` chooses one of three computations:
    `LayeredUpdates`   layered models, one local step: gradients written out layer by layer.
    `VmappedUpdates`   any model, any number of local steps: ``torch.func.vmap`` over clients.
    `SingleUpdates`    models that ``vmap`` does not support: one client at a time.

A client's update is the model before minus the model after local gradient descent on the client's
mean loss; descending along the update reduces that loss. With one local step of learning rate 1,
the default, the update is the gradient.

**Recorded graphs** (`Recorded`). A batch needs about sixty small operations. If Python calls them,
each operation waits for the interpreter's lock, and two cores trained a small network only 1.2
times as fast as one core. A recorded graph runs in one call without the lock: two cores were then
1.8 times as fast as one, and one core needed a fifth less time than before. TorchScript runs the
graph with its optimizer off, because the optimizer changes the order of sums. TorchScript is
deprecated, but PyTorch has no replacement that works on a machine without a compiler. Python runs
a function that cannot be recorded, with the same bits.

**Pooling** (`fast_max_pooling`). PyTorch has two max-pooling kernels on a CPU, with the same
results. The kernel for channels-last images is eight times as fast, conversion included. Under
``vmap``, which hides the memory format, a custom module cannot choose this kernel. So
`fast_max_pooling` redirects the calls of max pooling to the faster kernel.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import Function
from torch.func import grad, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from turnout.learning import gradients as clipping
from turnout.learning.examples import Examples
from turnout.learning.gradients import (
    CPU,
    ClientBatch,
    ClientGradients,
    ClippedSum,
    Compute,
    LocalTraining,
    LocalUpdates,
    clipped_total,
)
from turnout.learning.losses import LOSSES, Loss
from turnout.learning.models import Layered, Model
from turnout.learning.module_trials import (
    TRAINED,
    SlowUpdatesWarning,
    check_outputs,
    check_updates,
    layer_without_rule,
    made_up_batch,
    named_failures,
)
from turnout.learning.modules import ModuleModel

_CALL = inspect.signature(functional.max_pool2d_with_indices)


class fast_max_pooling(TorchFunctionMode):  # noqa: N801 - a context manager, named as such
    """Context in which ``max_pool2d`` runs a faster kernel with the same results."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Result of a PyTorch call, with max pooling redirected to the faster kernel."""
        if func in (torch.max_pool2d, functional.max_pool2d):
            return _pooled(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _pair(setting: int | Sequence[int]) -> list[int]:
    """Setting for both image axes, from one number or a pair of numbers."""
    return [setting, setting] if isinstance(setting, int) else list(setting)


def _pooled(images: Tensor, *given: Any, **named: Any) -> Any:
    """Result of ``functional.max_pool2d``, computed by the faster kernel."""
    call = _CALL.bind(images, *given, **named)
    call.apply_defaults()
    _, kernel, stride, *rest, ceil_mode, wants_indices = call.arguments.values()
    if images.ndim != 4 or wants_indices or images.device.type != "cpu":
        return functional.max_pool2d(images, *given, **named)
    settings = [_pair(setting) for setting in (kernel, stride or kernel, *rest)]
    return _MaxPool.apply(images, (*settings, ceil_mode))[0]


class _MaxPool(Function):
    """Differentiable function: maxima of the windows of (n, c, h, w), and their positions."""

    @staticmethod
    def forward(images: Tensor, settings: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Maxima of the windows, and their indices."""
        images = images.contiguous(memory_format=torch.channels_last)
        values, indices = functional.max_pool2d_with_indices(images, *settings)
        return values.contiguous(), indices.contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the indices and settings for the backward pass."""
        ctx.settings = inputs[1]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        """Gradient of the maxima with respect to the images."""
        images, indices = ctx.saved_tensors
        back = torch.ops.aten.max_pool2d_with_indices_backward
        return back(upstream[0], images, *ctx.settings, indices), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Maxima for all clients' images, computed as one batch."""
        images = args[0].movedim(in_dims[0], 0)
        found = _MaxPool.apply(images.flatten(0, 1), args[1])
        return tuple(each.unflatten(0, images.shape[:2]) for each in found), (0, 0)


TensorFunction = Callable[..., tuple[Tensor, ...]]

CALLS_BEFORE, LARGEST_COUNT = 8, 16
"""Number of the call, from 1, at which a graph for its shapes is recorded; and largest number of
graphs of one function."""


class Recorded:
    """Tensor function that is recorded as a PyTorch graph for each frequent set of shapes.

    Guarantee: a call returns the same bits as a call of the function, in every thread.
    """

    def __init__(self, function: TensorFunction) -> None:
        """Prepare to record a function.

        Args:
            function: function of tensors; its sequence of operations may depend on the tensors'
                shapes only, not on their values.
        """
        self._function = function
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._graphs: dict[tuple[torch.Size, ...], TensorFunction] = {}
        self._lock = threading.Lock()

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Result of the function, without gradients."""
        shapes = tuple(tensor.shape for tensor in tensors)
        with torch.no_grad():
            graph = self._graphs.get(shapes) or self._counted(shapes, tensors)
            # This setting holds for the current thread only, so each call makes it.
            with torch.jit.optimized_execution(False):  # pyright: ignore[reportPrivateImportUsage]
                return graph(*tensors)

    @property
    def shapes(self) -> int:
        """Number of sets of tensor shapes with a recorded graph."""
        return sum(graph is not self._function for graph in self._graphs.values())

    def _counted(
        self, shapes: tuple[torch.Size, ...], tensors: tuple[Tensor, ...]
    ) -> TensorFunction:
        """Recorded graph for these shapes; the plain function while the shapes are infrequent."""
        with self._lock:
            if len(self._graphs) >= LARGEST_COUNT:
                return self._function
            self._calls[shapes] += 1
            if self._calls[shapes] < CALLS_BEFORE:
                return self._function
            if shapes not in self._graphs:
                self._graphs[shapes] = _graph(self._function, tensors)
            return self._graphs[shapes]


def _graph(function: TensorFunction, tensors: tuple[Tensor, ...]) -> TensorFunction:
    """Recorded graph at these shapes; the plain function if PyTorch cannot record it."""
    with warnings.catch_warnings():
        # Ignore the warnings that shapes become constants and that TorchScript is deprecated.
        warnings.simplefilter("ignore")
        try:
            return cast(TensorFunction, torch.jit.trace(function, tensors, check_trace=False))
        except (RuntimeError, AttributeError):
            return function


EXAMPLES_AT_ONCE = 256
"""Largest number of a client's examples in one backward pass; the gradients of parts are added."""

LARGEST_SINGLE_UPDATES = 1 << 24
"""Largest number of floats of clients' updates in memory at once: 64 MiB."""


@dataclass(frozen=True, slots=True)
class SingleUpdates:
    """Updates of any model with any number of local steps, computed client by client.

    Guarantee: a client's update is computed from that client's own examples alone, without
    padding.
    """

    model: Model
    local: LocalTraining
    loss: Loss
    compute: Compute = CPU

    def clients_at_once(self, examples_each: int) -> int:
        """Number of clients in an efficient batch if each has ``examples_each`` examples."""
        return max(
            1, min(64, LARGEST_SINGLE_UPDATES // max(self.model.dimension, 1)) // examples_each
        )

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Sum of the clipped updates, float32, (parameters,), and the number of clipped updates."""
        if len(batch) == 0:
            return ClippedSum(torch.zeros_like(parameters), 0)
        return clipped_total(self.rows(parameters, batch), clip_norm)

    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Unclipped update of each client, float32, shape (clients, parameters)."""
        return torch.stack([self._update(parameters, batch, i) for i in range(len(batch))])

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of the model, (n, …), for evaluation."""
        with torch.no_grad():
            return self.model.logits(parameters, inputs)

    def _update(self, parameters: Tensor, batch: ClientBatch, client: int) -> Tensor:
        """Update of one client, shape (parameters,)."""
        count = int((batch.weights[client] > 0).sum())  # the remaining entries are padding
        inputs, labels = batch.inputs[client, :count], batch.labels[client, :count]
        moved = torch.zeros_like(parameters)
        for _ in range(self.local.steps):
            slope = self._gradient(parameters - moved, inputs, labels, batch.weights[client])
            moved = moved + self.local.learning_rate * slope
        return moved

    def _gradient(self, at: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Gradient of one client's weighted mean loss, shape (parameters,)."""
        total = torch.zeros_like(at)
        for start in range(0, len(inputs), EXAMPLES_AT_ONCE):
            some = slice(start, start + EXAMPLES_AT_ONCE)
            own = at.detach().requires_grad_()
            with torch.enable_grad(), self.compute.passes():
                each = self.loss.each(self.model.logits(own, inputs[some]), labels[some])
                loss = (each * weights[: len(inputs)][some]).sum()
            total += torch.autograd.grad(loss, own)[0]
        return total


CROSS_ENTROPY = LOSSES["cross-entropy"]

LARGEST_UPDATES, LARGEST_UPDATES_ON_GPU = 1 << 22, 1 << 27
"""Largest number of floats of clients' updates in memory at once: 16 MiB on a CPU, within the size
of blocks that `turnout.learning.features.keep_freed_memory` keeps, and 512 MiB on a GPU.
"""


@dataclass(frozen=True, slots=True)
class VmappedUpdates:
    """Updates of any model with any number of local steps, vectorised by ``torch.func``."""

    model: Model
    local: LocalTraining
    loss: Loss = CROSS_ENTROPY
    compute: Compute = CPU

    def clients_at_once(self, examples_each: int) -> int:
        """Number of clients in an efficient batch if each has ``examples_each`` examples.

        Every client's update is stored in memory, so batches of large models have fewer clients.
        """
        most, floats = (
            (128, LARGEST_UPDATES) if self.compute.on_cpu else (4096, LARGEST_UPDATES_ON_GPU)
        )
        return max(1, min(most, floats // max(self.model.dimension, 1)) // examples_each)

    def update(self, parameters: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Update of one client, shape (parameters,)."""

        def loss(at: Tensor) -> Tensor:
            return (self.loss.each(self.model.logits(at, inputs), labels) * weights).sum()

        # The steps are added up: the difference of the first and last parameters would lose digits
        # where a step is small and the parameters are large.
        moved = self.local.learning_rate * grad(loss)(parameters)
        for _ in range(1, self.local.steps):
            moved = moved + self.local.learning_rate * grad(loss)(parameters - moved)
        return moved

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Sum of the clipped updates, float32, (parameters,), and the number of clipped updates."""
        return clipped_total(self.rows(parameters, batch), clip_norm)

    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Unclipped update of each client, float32, shape (clients, parameters)."""
        each = vmap(self.update, in_dims=(None, 0, 0, 0))
        with fast_max_pooling(), self.compute.passes():
            return each(parameters, batch.inputs, batch.labels, batch.weights).detach()

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of the model, (n, …), for evaluation."""
        with torch.no_grad():
            return self.model.logits(parameters, inputs)


@dataclass(frozen=True, slots=True)
class LayeredUpdates:
    """Updates of layered models with one local step and a loss with a closed-form derivative."""

    model: Layered
    local: LocalTraining
    loss: Loss = CROSS_ENTROPY

    def clients_at_once(self, examples_each: int) -> int:
        """Number of clients in an efficient batch if each has ``examples_each`` examples."""
        floats_in_cache = 3 << 20
        return max(1, min(256, floats_in_cache // self.model.workspace) // examples_each)

    def clipped_sum(self, parameters: Tensor, batch: ClientBatch, clip_norm: float) -> ClippedSum:
        """Sum of the clipped updates, float32, (parameters,), and the number of clipped updates."""
        if len(batch) == 0:
            return ClippedSum(torch.zeros_like(parameters), 0)
        bound = torch.tensor(clip_norm, dtype=torch.float64)
        total, norms = _recorded(self)(parameters, batch.inputs, batch.labels, batch.weights, bound)
        usable = clipping.is_usable(norms)
        if not usable.all():
            # Rows of unusable updates may have NaN, and 0 · NaN is NaN: compute without them.
            return self.clipped_sum(parameters, batch.only(usable), clip_norm)
        return ClippedSum(total, clipping.count_longer(norms, clip_norm))

    @torch.no_grad()
    def rows(self, parameters: Tensor, batch: ClientBatch) -> Tensor:
        """Unclipped update of each client, float32, shape (clients, parameters)."""
        return torch.cat([layer.rows() for layer in self._gradients(parameters, batch)], dim=1)

    def sum_and_norms(
        self, parameters: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor, clip_norm: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sum of clipped updates, (parameters,), and squared norms before clipping, (clients,)."""
        gradients = self._gradients(parameters, ClientBatch(inputs, labels, weights))
        norms = torch.stack([layer.squared_norms() for layer in gradients]).sum(0)
        factors = clipping.factors(norms, clip_norm)
        return torch.cat([layer.weighted_sum(factors) for layer in gradients]), norms

    def _gradients(self, parameters: Tensor, batch: ClientBatch) -> list[ClientGradients]:
        """Gradients of each client's loss, layer by layer, times the local learning rate."""
        layers, own = self.model.layers, self.model.slices(parameters)
        logits, saved = self._forward(own, batch.inputs)
        assert self.loss.derivative is not None
        upstream = self.loss.derivative(logits, batch.labels.flatten(0, 1))
        upstream *= self.local.learning_rate * batch.weights.reshape(-1, 1)
        gradients: list[ClientGradients] = []
        for k in reversed(range(len(layers))):
            gradients.append(layers[k].client_gradients(saved[k], upstream, len(batch)))
            if k > 0:
                upstream = layers[k].backward(own[k], saved[k], upstream)
        return gradients[::-1]

    def _forward(self, own: list[Tensor], inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Scores of the classes, and the values of each layer that the backward pass needs."""
        values, saved = self.model.viewed(inputs), []
        for layer, parameters in zip(self.model.layers, own, strict=True):
            values, kept = layer.forward(parameters, values)
            saved.append(kept)
        return values, saved

    @torch.no_grad()
    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Outputs of the model, (n, …), for evaluation."""
        return self._forward(self.model.slices(parameters), inputs)[0]


@lru_cache(maxsize=16)
def _recorded(updates: LayeredUpdates) -> Recorded:
    """Recorded computation shared by all `LayeredUpdates` with these settings."""
    return Recorded(updates.sum_and_norms)


def local_updates(
    model: Model,
    local: LocalTraining,
    loss: Loss = CROSS_ENTROPY,
    examples: Examples | None = None,
    compute: Compute = CPU,
) -> LocalUpdates:
    """Fastest exact computation of clients' updates, for a model, a loss and local training.

    Updates of a custom module that ``torch.func.vmap`` does not support are computed client by
    client, with a `SlowUpdatesWarning`.

    Args:
        model: model to train.
        local: settings of local training.
        loss: loss that clients minimise.
        examples: examples like those of the clients, for trials of a custom module; None skips
            the trials.
        compute: device, and precision of forward and backward passes.

    Raises:
        ParameterError: a trial shows that the module or the loss fails, draws random numbers,
            keeps state, or mixes examples.
    """
    # Layered models with one step on a CPU: explicit gradients, the fastest computation.
    if (
        isinstance(model, Layered)
        and local.steps == 1
        and loss.derivative is not None
        and compute == CPU
    ):
        return LayeredUpdates(model, local, loss)
    # Other built-in models: ``torch.func.vmap`` over clients, which supports their layers.
    mapped = VmappedUpdates(model, local, loss, compute)
    if not isinstance(model, ModuleModel) or examples is None:
        return mapped
    # A custom module: check that outputs depend on one example, then try ``vmap``.
    check_outputs(model, examples)
    start = compute.take(torch.from_numpy(model.start))
    clients = made_up_batch(examples, 3, 3).on(compute)

    def tried(updates: LocalUpdates) -> None:
        for batch in (clients, clients.only(torch.tensor([2, 1]))):
            updates.clipped_sum(start, batch, 1.0)

    # If ``vmap`` works, check that it does not mix the examples of a client.
    layer = layer_without_rule(model, lambda: tried(mapped))
    if layer is None:
        check_updates(model, examples, VmappedUpdates(model, LocalTraining(), loss))
        return mapped
    # Else compute client by client, with the same checks and a warning.
    single = SingleUpdates(model, local, loss, compute)
    with named_failures(model, TRAINED):
        tried(single)
    check_updates(model, examples, SingleUpdates(model, LocalTraining(), loss))
    warnings.warn(
        f"vmap has no rule for {layer}: clients' updates are computed one client at a time, "
        "which is exact but slower",
        SlowUpdatesWarning,
        stacklevel=3,
    )
    return single
