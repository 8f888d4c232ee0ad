"""PyTorch modules as functions of one flat vector: that of the parameters that are trained."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from turnout.core.errors import ParameterError
from turnout.learning.module_checks import check_layers
from turnout.learning.references import Reference, reference_of


class ModuleModel:
    """A module of the user's own, as a function of the parameters that are trained.

    All other parameters and all buffers are fixed public constants. Each layer keeps the mode,
    training or evaluation, in which the module came.

    Guarantees:
        The module that is given is not changed.
        The same module, parameters and inputs give the same bits in every thread.

    Attributes:
        names: of the trained parameters, in the order of the flat vector.
        shapes: of the trained parameters.
        start: the parameters that training starts from, float32, (d,).
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        trainable: tuple[str, ...] = (),
        reference: Reference | None = None,
    ) -> None:
        """A model of a module.

        Args:
            module: with parameters; its forward takes inputs (n, …) and gives outputs (n, …).
            trainable: patterns of parameter names such as "head.*"; empty for all parameters
                that require a gradient.
            reference: where the module comes from; None for what its class says.

        Raises:
            ParameterError: no parameter to train, a pattern that no parameter has, or a layer
                that mixes examples or draws at random.
        """
        title = reference.name if reference else type(module).__name__
        plain_attention()
        check_layers(module, title)
        self.reference = reference or reference_of(module)
        self.title = title
        self._module = copied(module, title)
        self.names = _trained(self._module, trainable, title)
        own = dict(self._module.named_parameters())
        self.shapes = tuple(tuple(own[name].shape) for name in self.names)
        self._sizes = [prod(shape) for shape in self.shapes]
        for name in self.names:
            if not own[name].is_floating_point():
                kind = str(own[name].dtype).removeprefix("torch.")
                expected = f"trained parameters of real numbers, not {name!r} of {kind}"
                raise ParameterError("model.module", title, expected)
        flat = torch.cat([own[name].detach().reshape(-1) for name in self.names])
        self.start: NDArray[np.float32] = flat.numpy().copy()
        chosen = set(self.names)
        self._fixed = {
            name: value.detach()
            for name, value in [*own.items(), *self._module.named_buffers()]
            if name not in chosen
        }
        self._elsewhere: dict[torch.device, dict[str, Tensor]] = {}
        self._threads = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        """All but the copies for threads and devices of this process."""
        return {**vars(self), "_elsewhere": {}, "_threads": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy in another process computes as this one does."""
        vars(self).update(state)
        self._threads = threading.local()
        plain_attention()

    @property
    def dimension(self) -> int:
        """Trained parameters, d."""
        return self.start.size

    @property
    def fixed(self) -> Mapping[str, Tensor]:
        """The fixed parameters and buffers, by name."""
        return self._fixed

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """The parameters that the module came with, (d,); nothing is drawn here."""
        return self.start.copy()

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """The module's outputs (n, …), from float32 (d,) and (n, …); differentiable."""
        return functional_call(self.own_module(), self.state(parameters), (inputs,))

    def state(self, parameters: Tensor) -> dict[str, Tensor]:
        """Trained and fixed parameters and buffers by name; the trained ones are views."""
        parts = torch.split(parameters, self._sizes)
        views = (part.view(shape) for part, shape in zip(parts, self.shapes, strict=True))
        return {**self._fixed_on(parameters.device), **dict(zip(self.names, views, strict=True))}

    def _fixed_on(self, device: torch.device) -> Mapping[str, Tensor]:
        """The fixed parameters and buffers on a device, copied there once."""
        if device.type == "cpu":
            return self._fixed
        if device not in self._elsewhere:
            self._elsewhere[device] = {
                name: value.to(device) for name, value in self._fixed.items()
            }
        return self._elsewhere[device]

    def resume_parts(self) -> Mapping[str, object]:
        """The module's code and structure, its start and its constants, for checkpoints."""
        return {
            "reference": self.reference,
            "structure": repr(self._module),
            "trained": self.names,
            "start": self.start,
            "fixed": {name: value.numpy() for name, value in self._fixed.items()},
        }

    def own_module(self) -> nn.Module:
        """This thread's own copy of the module, which shares the tensors of all others.

        Calling a module with other parameters swaps them in and out, which two threads must not do
        to one module.
        """
        found = getattr(self._threads, "module", None)
        if found is None:
            tensors = [*self._module.parameters(), *self._module.buffers()]
            memo = {id(tensor): tensor for tensor in tensors}
            found = self._threads.module = copy.deepcopy(self._module, memo)
        return found

    def forget_copies(self) -> None:
        """Later calls get new copies, without what the module kept on the way."""
        self._threads = threading.local()


@cache
def plain_attention() -> None:
    """Has attention computed by plain matrix products, in the whole process.

    ``vmap`` has no rule for the fused kernels, and a model must compute the same wherever it runs.
    """
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.mha.set_fastpath_enabled(False)


def copied(module: nn.Module, title: str) -> nn.Module:
    """A copy of the module on the CPU, its real numbers in float32."""
    # What a layer computed and kept, as older weight norms do, is copied as a constant.
    kept = [value for layer in module.modules() for value in vars(layer).values()]
    computed = [each for each in kept if isinstance(each, Tensor) and not each.is_leaf]
    try:
        copied = copy.deepcopy(module, {id(each): each.detach().clone() for each in computed})
        return copied._apply(_plain)  # pyright: ignore[reportPrivateUsage] - as .to() does
    except Exception as error:  # whatever the user's layers raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ParameterError("model.module", title, f"a module to copy, but {reason}") from None


def _plain(tensor: Tensor) -> Tensor:
    """The tensor on the CPU; float32 if its numbers are real."""
    return tensor.to("cpu", torch.float32 if tensor.is_floating_point() else None)


def _trained(module: nn.Module, patterns: tuple[str, ...], title: str) -> tuple[str, ...]:
    """Names of the parameters that are trained."""
    known = dict(module.named_parameters())
    if not known:
        raise ParameterError("model.module", title, "a module with parameters")
    if not patterns:
        chosen = [name for name, value in known.items() if value.requires_grad]
        if not chosen:
            raise ParameterError("model.module", title, "a parameter that requires a gradient")
        return tuple(chosen)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            some = ", ".join(list(known)[:6])
            raise ParameterError("model.trainable", pattern, f"a pattern of parameters: {some} …")
    return tuple(name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns))
