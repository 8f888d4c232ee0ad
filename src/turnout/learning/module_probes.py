"""Trials of a module on made-up examples: what it does, whatever its layers are called."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from turnout.core.errors import ParameterError
from turnout.learning.client_work import ClientBatch
from turnout.learning.examples import Examples
from turnout.learning.modules import ModuleModel

_SEED, _EXAMPLES, _DISTURBANCE = 20_230_517, 3, 0.05
_UNMAPPED = "There is a performance drop"
"""How PyTorch says that ``vmap`` falls back to a loop inside of an operation."""


class SlowUpdatesWarning(UserWarning):
    """A module's updates are computed one client at a time."""


def made_up(examples: Examples, seed: int = _SEED, count: int = _EXAMPLES) -> Tensor:
    """Inputs of the right shape and type that are nobody's, (count, …)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, *examples.input_shape)
    if examples.inputs.dtype == np.int64:
        low, high = int(examples.inputs.min()), int(examples.inputs.max())
        return torch.randint(low, high + 1, shape, generator=generator)
    if examples.inputs.dtype == np.uint8:
        return torch.rand(shape, generator=generator)
    return torch.randn(shape, generator=generator)


def made_up_batch(examples: Examples) -> ClientBatch:
    """Two clients with one example each that is nobody's; their labels are 0."""
    inputs = made_up(examples, count=2)
    labels = torch.from_numpy(np.zeros((2, 1, *examples.labels.shape[1:]), examples.labels.dtype))
    return ClientBatch(inputs[:, None], labels, torch.ones(2, 1))


def check_behaviour(model: ModuleModel, examples: Examples) -> None:
    """A module whose outputs for an example are a function of it alone.

    Raises:
        ParameterError: outputs that are drawn at random, that change with the other examples of a
            batch, or a module that changes its own buffers.
    """
    generator = torch.Generator().manual_seed(_SEED)
    at = torch.from_numpy(model.start)
    # A start with zeros may hide what a layer does.
    at = at + _DISTURBANCE * torch.randn(at.shape, generator=generator)
    one, other = made_up(examples), made_up(examples, _SEED + 1)
    other[0] = one[0]
    before = {name: value.clone() for name, value in model.fixed.items()}
    with torch.no_grad():
        first, again = model.logits(at, one), model.logits(at, one)
        beside, alone = model.logits(at, other), model.logits(at, one[:1])
    for name, value in model.fixed.items():
        if not torch.equal(value.nan_to_num(), before[name].nan_to_num()):
            expected = f"a module that leaves its buffers as they are; it changes {name!r}"
            raise ParameterError("model.module", model.title, expected)
    if not _near(first, again):
        expected = "outputs that are not drawn at random (dropout 0, or .eval())"
        raise ParameterError("model.module", model.title, expected)
    if not (_near(first[0], beside[0]) and _near(first[0], alone[0])):
        expected = (
            "outputs of an example that do not change with the others of its batch "
            "(GroupNorm or LayerNorm in place of what mixes them)"
        )
        raise ParameterError("model.module", model.title, expected)


def _near(one: Tensor, other: Tensor) -> bool:
    """Whether outputs are the same up to rounding."""
    scale = float(one.abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)


def layer_without_rule(model: ModuleModel, compute: Callable[[], object]) -> str | None:
    """The layer in which a computation under ``vmap`` ends; None if it does not end early."""
    entered: list[str] = []
    try:
        with warnings.catch_warnings(), _watched(model, entered):
            warnings.filterwarnings("error", message=_UNMAPPED)
            compute()
    except Exception:  # whatever vmap or the user's forward raises; the slow path is tried next
        if not entered:
            return "the module's gradient"
        layer = dict(model.own_module().named_modules())[entered[-1]]
        named = f"layer {entered[-1]!r}" if entered[-1] else "the module's own forward"
        return f"{named} ({type(layer).__name__})"
    return None


@contextmanager
def _watched(model: ModuleModel, entered: list[str]) -> Iterator[None]:
    """Names of the layers that were entered and not left yet."""
    handles = []
    for name, layer in model.own_module().named_modules():
        handles.append(layer.register_forward_pre_hook(lambda *_, name=name: entered.append(name)))
        handles.append(layer.register_forward_hook(lambda *_: _left(entered)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _left(entered: list[str]) -> None:
    """A layer is left: a hook's result would replace the layer's."""
    entered.pop()
