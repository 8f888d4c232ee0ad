"""Tests, on synthetic examples, that a custom module treats each example separately.

`check_outputs` and `check_updates` test the behaviour of a module before training, whatever its
layers are. `check_outputs` requires that

* outputs are finite and the same in every call, and a call changes no parameter, buffer or input;
* each example has the same outputs in a separate call and in batches of several sizes and orders.

`check_updates` requires that clients' updates can be computed, and that

* a client's update is the weighted sum of the updates of its single examples. So neither the
  backward pass nor the loss mixes examples, and padding has no effect. (The amount of padding
  depends on other clients' data.)

Results count as equal if they differ by at most a tolerance for rounding. The tolerance is the
change of the same results when parameters and inputs are perturbed by a relative 2⁻¹⁶, or by more
if the module computes in a coarser type than float32. In all measurements, the rounding errors of
attention, convolution and recurrent layers were below a fifth of the tolerance.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from turnout.core.errors import ParameterError, TurnoutError
from turnout.learning.examples import Examples, as_floats
from turnout.learning.gradients import ClientBatch, LocalUpdates, exact_products
from turnout.learning.modules import ModuleModel

_SEED, _READ = 20_230_517, 256
_ROWS, _FEWEST, _FLOATS, _SIZES = 64, 12, 1 << 24, tuple(range(2, 11))
"""Number of rows of the largest batch; least number of rows of this batch if outputs are large;
largest number of floats in the batch's outputs (64 MiB); and sizes of the smaller batches."""
_DISTURBANCE, _ROUNDING = 0.05, 2.0**-20
_COMPUTED, TRAINED = "a module that can be computed", "a module that can be trained"
_UNMAPPED = "There is a performance drop"
"""Start of PyTorch's warning that ``vmap`` computes an operation in a loop."""


Outputs = Callable[[Tensor], Tensor]
"""Function from rows (n, …) to outputs (n, …)."""


class SlowUpdatesWarning(UserWarning):
    """Warning that updates of a module are computed one client at a time."""


def made_up_batch(examples: Examples, clients: int, each: int) -> ClientBatch:
    """Synthetic batch of clients with ``each`` examples; each client's last one is padding."""
    random, count = np.random.default_rng(_SEED), clients * each
    inputs = _made_up_inputs(examples, random, count)
    labels = torch.from_numpy(_made_up(examples.labels, random, count))
    weights = torch.from_numpy(random.dirichlet(np.ones(each - 1), clients)).float()
    return ClientBatch(
        inputs.view(clients, each, *inputs.shape[1:]),
        labels.view(clients, each, *labels.shape[1:]),
        torch.cat([weights, torch.zeros(clients, 1)], 1),
    )


def _made_up_inputs(examples: Examples, random: np.random.Generator, count: int) -> Tensor:
    """Synthetic inputs with the shape and dtype of the examples."""
    return as_floats(torch.from_numpy(_made_up(examples.inputs, random, count)))


def _made_up(array: NDArray[Any], random: np.random.Generator, count: int) -> NDArray[Any]:
    """Synthetic rows (count, …): each value is copied from the same position of a random row.

    So categories, tokens and positive numbers stay valid values.
    """
    some = np.asarray(array[:_READ])
    some = some[np.isfinite(some).reshape(len(some), -1).all(axis=1)]
    shape = (count, *array.shape[1:])
    if len(some) == 0:
        return random.standard_normal(shape).astype(array.dtype)
    return np.take_along_axis(some, random.integers(len(some), size=shape), axis=0)


def check_outputs(model: ModuleModel, examples: Examples) -> None:
    """Raise an error if an example's outputs depend on more than the example and the parameters.

    Raises:
        ParameterError: the module raises an error, has no finite outputs, draws random numbers,
            changes its parameters, buffers or inputs, keeps state between calls, or mixes the
            examples of a batch.
    """
    # Synthetic inputs, fewer where the outputs would need too much memory.
    random = np.random.default_rng(_SEED)
    rows, start = _made_up_inputs(examples, random, _ROWS), torch.tensor(model.start)
    disturbance = _DISTURBANCE * _normal(start, random)
    with named_failures(model, _COMPUTED), torch.no_grad():
        rows = rows[: max(_FEWEST, _FLOATS // max(1, model.logits(start, rows[:1]).numel()))]
        at = start + disturbance  # parameters of zero could hide that a layer mixes examples
        if not _mostly_finite(_unchanging(model, at, rows)):
            at = start
            _require_finite(model, at, rows)
        # Outputs at other parameters, to detect state that is kept between calls.
        elsewhere = model.logits(start - disturbance, rows)
    # A second call must return the same outputs.
    with named_failures(model, _COMPUTED), torch.no_grad():
        again = model.logits(start - disturbance, rows)
        if not _same(again, elsewhere, _limit(elsewhere, elsewhere)):
            expected = (
                "outputs that are the same in every call, without random draws (dropout 0, or "
                ".eval()) and without state that is kept between calls"
            )
            raise _refusal(model, expected)

        # Outputs of each row must be the same with and without other rows in the batch.
        def moved(move: float) -> Outputs:
            return partial(model.logits, _moved(at, move, random))

        if not stands_alone(partial(model.logits, at), rows, moved):
            expected = (
                "outputs of an example that do not depend on other examples of the batch "
                f"({_batch_first(model)}GroupNorm or LayerNorm in place of layers that mix them)"
            )
            raise _refusal(model, expected)


def _unchanging(model: ModuleModel, at: Tensor, rows: Tensor) -> Tensor:
    """Outputs (n, …), after a check that the call changes no parameter, buffer or input."""
    tensors = {**model.fixed, "its parameters": at, "its inputs": rows}
    before = {name: value.clone() for name, value in tensors.items()}
    outputs = model.logits(at, rows)
    for name, value in tensors.items():
        if not torch.equal(value.nan_to_num(), before[name].nan_to_num()):
            what = name if name.startswith("its ") else repr(name)
            expected = "a module that does not change its parameters, buffers and inputs"
            raise _refusal(model, f"{expected}; this module changes {what}")
    return outputs


def _require_finite(model: ModuleModel, at: Tensor, rows: Tensor) -> None:
    """Unless most model outputs are finite, raise an error in the first layer that fails."""
    if _mostly_finite(model.logits(at, rows)):
        return
    for layer in model.own_module().modules():
        layer.register_forward_hook(_stop_at_nan, prepend=True)
    model.logits(at, rows)


def _stop_at_nan(layer: nn.Module, given: tuple[Any, ...], made: object) -> None:
    """Raise an error if a layer's inputs are finite and its output is not (forward hook)."""
    known = all(bool(each.isfinite().all()) for each in given if isinstance(each, Tensor))
    if known and isinstance(made, Tensor) and not made.isfinite().all():
        raise FloatingPointError("NaN or infinity in the output for finite inputs")


def stands_alone(compute: Outputs, rows: Tensor, moved: Callable[[float], Outputs]) -> bool:
    """Whether each row has the same outputs when computed alone and among other rows.

    Args:
        compute: function from rows (n, …) to outputs (n, …).
        rows: rows on which to test the function.
        moved: function that returns ``compute`` with parameters perturbed by a relative amount.
    """
    exact_products()
    random = np.random.default_rng(_SEED)
    with _Coarsest() as coarsest:
        alone = _one_by_one(compute, rows)
    moving = _moved(rows, coarsest.move, random)
    limit = _limit(alone, _one_by_one(moved(coarsest.move), moving))
    every, dealt = np.arange(len(rows)), random.permutation(len(rows))
    companies = (every, every[::-1].copy(), *np.split(dealt, np.cumsum(_SIZES)))
    return all(_same(compute(rows[i]), alone[i], limit) for i in companies if i.size)


def _one_by_one(compute: Outputs, rows: Tensor) -> Tensor:
    """Outputs (n, …), with each row computed in a separate call."""
    return torch.cat([compute(row) for row in rows.split(1)])


class _Coarsest(TorchFunctionMode):
    """PyTorch hook that records the coarsest floating-point type of a module's computations."""

    def __init__(self) -> None:
        super().__init__()
        self._eps = torch.finfo(torch.float32).eps

    @property
    def move(self) -> float:
        """Relative size of test perturbations: 2⁻¹⁶ in float32, 2⁻⁵ in bfloat16."""
        return min(2**7 * self._eps, 2**-5)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.is_floating_point():
            self._eps = max(self._eps, torch.finfo(made.dtype).eps)
        return made


def check_updates(model: ModuleModel, examples: Examples, updates: LocalUpdates) -> None:
    """Raise an error if a client's update depends on more than the client's own examples.

    Args:
        model: the module.
        examples: examples like those of clients.
        updates: computation of one local step with learning rate 1, on the CPU.

    Raises:
        ParameterError: the outputs have no gradient, no gradient is finite, or a client's update is
            not the weighted sum of the updates of its examples.
    """
    # A synthetic client, and the initial parameters of the module.
    random = np.random.default_rng(_SEED)
    batch, start = made_up_batch(examples, 1, 6), torch.tensor(model.start)
    with named_failures(model, TRAINED):
        # The outputs must be differentiable; record the coarsest type of the computation.
        with _Coarsest() as coarsest:
            outputs = model.logits(start.clone().requires_grad_(), batch.inputs[0])
        if not outputs.requires_grad:
            raise _refusal(model, "outputs with a gradient with respect to the trained parameters")
        # Updates of single examples at disturbed parameters, so that no gradient is 0 by chance;
        # at the initial parameters if the disturbed ones give no finite updates.
        at = start + _DISTURBANCE * _normal(start, random)
        alone = _alone(updates, at, batch)
        if not _mostly_finite(alone):
            at, alone = start, _alone(updates, start, batch)
        if not _mostly_finite(alone):
            raise _refusal(model, "a finite gradient; the initial parameters give NaN or infinity")
        # Change of the updates under a small perturbation: the tolerance for rounding.
        kept, move = alone.isfinite().all(1), coarsest.move
        batch, alone = _only(batch, kept), alone[kept]
        moved = ClientBatch(_moved(batch.inputs, move, random), batch.labels, batch.weights)
        change = _alone(updates, _moved(at, move, random), moved) - alone
        # The update of all examples together must equal the weighted sum, up to this tolerance.
        total = batch.weights[0].double() @ alone
        gap = updates.rows(at, batch)[0].double() - total
        if not gap.norm() <= change.norm() + _ROUNDING * total.norm():
            expected = (
                "a gradient and a loss that do not mix a client's examples, so that the client's "
                "update is the weighted sum of the updates of its examples"
            )
            raise _refusal(model, expected)


def _alone(updates: LocalUpdates, at: Tensor, batch: ClientBatch) -> Tensor:
    """Update as if a client held one example only, for each; shape (examples, parameters)."""
    count = batch.weights.shape[1]
    each = ClientBatch(batch.inputs[0][:, None], batch.labels[0][:, None], torch.ones(count, 1))
    made = [updates.rows(at, each.only(torch.tensor([i]))) for i in range(count)]
    return torch.cat(made).double()


def _only(batch: ClientBatch, kept: Tensor) -> ClientBatch:
    """Batch of some examples of a client; the last example is padding."""
    weights = batch.weights[:, kept].clone()
    weights[:, -1] = 0
    return ClientBatch(batch.inputs[:, kept], batch.labels[:, kept], weights / weights.sum())


def _normal(like: Tensor, random: np.random.Generator) -> Tensor:
    """Tensor of standard normal random numbers, float32."""
    return torch.from_numpy(random.standard_normal(like.shape, np.float32))


def _moved(values: Tensor, move: float, random: np.random.Generator) -> Tensor:
    """Values perturbed by the relative amount ``move``; tokens stay unchanged."""
    return values * (1 + move * _normal(values, random)) if values.is_floating_point() else values


def _mostly_finite(values: Tensor) -> bool:
    """Whether more than half of the rows are finite."""
    return bool(values.isfinite().flatten(1).all(1).double().mean() > 1 / 2)


def _limit(outputs: Tensor, moved: Tensor) -> Tensor:
    """Largest difference that counts as a rounding error, for each number of a row."""
    known, change = outputs.double(), (outputs.double() - moved.double()).abs()
    largest = known.abs().nan_to_num(0.0, 0.0).amax(0)
    return change.nan_to_num(0.0, 0.0).amax(0) + _ROUNDING * largest


def _same(found: object, expected: Tensor, limit: Tensor) -> bool:
    """Whether two outputs have the same shape and are equal up to rounding."""
    if not isinstance(found, Tensor) or found.shape != expected.shape:
        return False
    one, other = found.double(), expected.double()
    near = ((one - other).abs() <= limit) | (one == other) | (one.isnan() & other.isnan())
    return bool(near.all())


def _refusal(model: ModuleModel, expected: str) -> ParameterError:
    """ParameterError about a module, with the expected behaviour of the module."""
    return ParameterError("model.module", model.title, expected)


def _batch_first(model: ModuleModel) -> str:
    """Advice for a recurrent or attention layer that reads the first axis as time."""
    for name, layer in model.own_module().named_modules():
        if getattr(layer, "batch_first", True) is False:
            return f"batch_first=True in layer {name!r} ({type(layer).__name__}), or "
    return ""


def layer_without_rule(model: ModuleModel, compute: Callable[[], object]) -> str | None:
    """Name of the layer at which ``vmap`` fails; None if the computation succeeds."""
    with _watched(model) as path:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=_UNMAPPED)
                compute()
        except Exception:  # whatever vmap or custom code raises; the slow path is tried next
            return path.place()
    return None


@contextmanager
def named_failures(model: ModuleModel, expected: str) -> Iterator[None]:
    """Context that turns any error of a trial into a one-line error that names the layer.

    Raises:
        ParameterError: in place of any error of PyTorch or of the custom code.
    """
    with _watched(model) as path:
        try:
            yield
        except TurnoutError:
            raise
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise _refusal(model, f"{expected}, but {path.place()} raises {reason}") from None


class _Path:
    """Stack of the module's layers under computation, to locate a failure."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        self._layers = layers
        self._inside: list[str] = []
        self._outputs: list[Tensor] = []
        self._backwards: list[str] = []

    def enter(self, name: str) -> None:
        """Push a layer onto the stack when it is called."""
        if not self._inside:
            self._outputs.clear()
            self._backwards.clear()
        self._inside.append(name)

    def leave(self, name: str, given: tuple[Any, ...], made: object) -> None:
        """Pop a layer from the stack; gradients of its outputs are attributed to this layer."""
        self._inside.pop()
        if not isinstance(made, Tensor):
            return
        if made.requires_grad and not any(made is known for known in self._outputs):
            self._outputs.append(made)
            made.register_hook(lambda _: self._backwards.append(name))

    def place(self) -> str:
        """Name of the current layer, as text."""
        if self._inside:
            return self._described(self._inside[-1])
        if self._backwards:
            return f"the gradient of {self._described(self._backwards[-1])}"
        return "the loss or its gradient"

    def _described(self, name: str) -> str:
        """Name and class of a layer, as text."""
        kind = type(self._layers[name]).__name__
        return f"layer {name!r} ({kind})" if name else f"the module's own forward ({kind})"


@contextmanager
def _watched(model: ModuleModel) -> Iterator[_Path]:
    """Context that tracks the current layer and discards state that the module keeps."""
    # Hooks on every layer keep the stack of layers under computation.
    layers = dict(model.own_module().named_modules())
    path, handles = _Path(layers), []
    for name, layer in layers.items():
        if isinstance(layer, torch.jit.ScriptModule):
            continue  # takes no hooks
        handles.append(layer.register_forward_pre_hook(lambda *_, name=name: path.enter(name)))
        handles.append(
            layer.register_forward_hook(
                lambda _, given, made, name=name: path.leave(name, given, made)
            )
        )
    # Remove the hooks, and the copies with any state that the module kept.
    try:
        yield path
    finally:
        for handle in handles:
            handle.remove()
        model.forget_copies()
