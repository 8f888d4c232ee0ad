"""PyTorch modules as functions of the flat vector of their trained parameters.

`build_module` builds a `ModuleModel` from custom code, with optional pretrained parameters, a
choice of trained parameters, and low-rank adapters (`adapt`). `check_layers` raises an error for
layers of unsupported classes. `turnout.learning.module_trials` runs a module on synthetic examples
and raises an error for unsupported behaviour.

**Unsupported layers.** A client's update must depend only on the model and on that client's data,
and must be the same each time it is computed, for example with more threads or after a checkpoint.
Dropout in training would need a secret random stream for each client and step. The privacy noise
already limits memorization of examples, so dropout is an error; it is not silently switched off. A
layer in evaluation mode is a fixed function and is accepted.

**Low-rank adapters.** A layer x ↦ Wx + b becomes x ↦ Wx + b + (α/r)·B A x with W and b fixed,
A (r, inputs) and B (outputs, r) trained. B starts at zero, so the adapted module starts as the
given module. Noise is added to r·(inputs + outputs) coordinates in place of inputs·outputs.

Source: Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen, *LoRA: Low-Rank Adaptation of Large
    Language Models* (ICLR 2022), section 4.1.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

from turnout.core import checks
from turnout.core.errors import MissingExtraError, ParameterError, StorageError
from turnout.learning.losses import Reference, imported, reference_of


def check_layers(module: nn.Module, title: str) -> None:
    """Raise an error if a layer of the module mixes examples or draws random numbers.

    Raises:
        ParameterError: a layer that mixes examples or draws random numbers; the error names the
            layer and a replacement.
    """
    for name, layer in module.named_modules():
        instead = _instead(layer)
        if instead:
            where = f"layer {name!r}" if name else "the module itself"
            expected = f"{instead} in place of {where} ({type(layer).__name__})"
            raise ParameterError("model.module", title, expected)


def _instead(layer: nn.Module) -> str:
    """Name of a replacement for an unsupported layer; empty for a supported layer."""
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():  # pyright: ignore
        return "a layer with fixed sizes"
    if not layer.training:
        return ""
    if isinstance(layer, _BatchNorm):
        return "GroupNorm or LayerNorm, which do not mix examples,"
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        return "GroupNorm, or InstanceNorm with track_running_stats=False,"
    draws = layer.p if isinstance(layer, _DropoutNd) else _fraction(layer)
    return (
        "dropout 0, or .eval() on that layer, since the privacy noise already regularises,"
        if draws
        else ""
    )


def _fraction(layer: nn.Module) -> float:
    """Dropout rate of a recurrent or attention layer."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout
    return 0.0


class ModuleModel:
    """Model of a custom PyTorch module, as a function of the trained parameters.

    All other parameters and all buffers are fixed public constants. Each layer keeps the mode
    (training or evaluation) that it has in the given module.

    Guarantees:
        The given module is not changed.
        The same module, parameters and inputs give the same bits in every thread.

    Attributes:
        names: names of the trained parameters, in the order of the flat vector.
        shapes: shapes of the trained parameters.
        start: initial values of the trained parameters, float32, shape (parameters,).
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        trainable: tuple[str, ...] = (),
        reference: Reference | None = None,
    ) -> None:
        """Build the model of a PyTorch module.

        Args:
            module: module with parameters, from inputs (n, …) to outputs (n, …).
            trainable: patterns of parameter names such as "head.*"; empty for all parameters
                that require a gradient.
            reference: name and code digest of the module; None derives them from its class.

        Raises:
            ParameterError: no parameter to train, a pattern that matches no parameter, trained
                parameters that are not real numbers, a layer that mixes examples or draws random
                numbers, or a module that cannot be copied.
        """
        # Refuse unsupported layers before the module is copied.
        title = reference.name if reference else type(module).__name__
        plain_attention()
        check_layers(module, title)
        self.reference = reference or reference_of(module)
        self.title = title
        # The model works on a copy, whose trained parameters form one flat vector.
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
        # Initial values of the trained parameters; all other parameters and buffers stay fixed.
        flat = torch.cat([own[name].detach().reshape(-1) for name in self.names])
        self.start: NDArray[np.float32] = flat.numpy().copy()
        chosen = set(self.names)
        self._fixed = {
            name: value.detach()
            for name, value in [*own.items(), *self._module.named_buffers()]
            if name not in chosen
        }
        # Copies for other devices and threads are made on demand.
        self._elsewhere: dict[torch.device, dict[str, Tensor]] = {}
        self._threads = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        """Pickled state, without the module copies of this process's threads and devices."""
        return {**vars(self), "_elsewhere": {}, "_threads": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the model in another process, with the same results."""
        vars(self).update(state)
        self._threads = threading.local()
        plain_attention()

    @property
    def dimension(self) -> int:
        """Number of trained parameters, d."""
        return self.start.size

    @property
    def fixed(self) -> Mapping[str, Tensor]:
        """Fixed (untrained) parameters and buffers, by name."""
        return self._fixed

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Initial parameters, (d,), copied from the module; no random numbers are drawn."""
        return self.start.copy()

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Outputs (n, …) of the module from float32 parameters (d,) and inputs; differentiable."""
        return functional_call(self.own_module(), self.state(parameters), (inputs,))

    def state(self, parameters: Tensor) -> dict[str, Tensor]:
        """All parameters and buffers by name, the trained ones as views of ``parameters``, (d,)."""
        parts = torch.split(parameters, self._sizes)
        views = (part.view(shape) for part, shape in zip(parts, self.shapes, strict=True))
        return {**self._fixed_on(parameters.device), **dict(zip(self.names, views, strict=True))}

    def _fixed_on(self, device: torch.device) -> Mapping[str, Tensor]:
        """Fixed parameters and buffers on a device, copied to the device once."""
        if device.type == "cpu":
            return self._fixed
        if device not in self._elsewhere:
            self._elsewhere[device] = {
                name: value.to(device) for name, value in self._fixed.items()
            }
        return self._elsewhere[device]

    def resume_parts(self) -> Mapping[str, object]:
        """Code, structure, initial parameters and constants of the module, for checkpoints."""
        return {
            "reference": self.reference,
            "structure": repr(self._module),
            "trained": self.names,
            "start": self.start,
            "fixed": {name: value.numpy() for name, value in self._fixed.items()},
        }

    def own_module(self) -> nn.Module:
        """Copy of the module for the current thread; all copies share their tensors.

        `logits` replaces the module's parameters while it runs, so two threads must not share one
        module.
        """
        found = getattr(self._threads, "module", None)
        if found is None:
            tensors = [*self._module.parameters(), *self._module.buffers()]
            memo = {id(tensor): tensor for tensor in tensors}
            found = self._threads.module = copy.deepcopy(self._module, memo)
        return found

    def forget_copies(self) -> None:
        """Discard all copies of the module, with any state kept between calls."""
        self._threads = threading.local()


@cache
def plain_attention() -> None:
    """Make PyTorch compute attention by plain matrix products, in the whole process.

    ``vmap`` has no rule for the fused kernels, and a model must give the same outputs on all
    machines.
    """
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.mha.set_fastpath_enabled(False)


def copied(module: nn.Module, title: str) -> nn.Module:
    """Copy of the module on the CPU, with real numbers in float32.

    Raises:
        ParameterError: a module that cannot be copied.
    """
    # Tensors that a layer computed and stored, as older weight norms do, are copied as constants.
    kept = [value for layer in module.modules() for value in vars(layer).values()]
    computed = [each for each in kept if isinstance(each, Tensor) and not each.is_leaf]
    try:
        copied = copy.deepcopy(module, {id(each): each.detach().clone() for each in computed})
        return copied._apply(_plain)  # pyright: ignore[reportPrivateUsage] - as .to() does
    except Exception as error:  # whatever the custom layers raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ParameterError(
            "model.module", title, f"a module that can be copied, but {reason}"
        ) from None


def _plain(tensor: Tensor) -> Tensor:
    """Tensor on the CPU, in float32 if the tensor is real."""
    return tensor.to("cpu", torch.float32 if tensor.is_floating_point() else None)


def _trained(module: nn.Module, patterns: tuple[str, ...], title: str) -> tuple[str, ...]:
    """Names of the trained parameters of a module."""
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
            raise ParameterError(
                "model.trainable", pattern, f"a pattern that matches parameters: {some} …"
            )
    return tuple(name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns))


@dataclass(frozen=True, slots=True)
class Adapters:
    """Settings of low-rank adapters for linear layers: rank, scale and layers.

    Attributes:
        rank: r, the rank of the added matrix.
        alpha: α; the added matrix is scaled by α/r.
        layers: patterns of names of linear layers such as "*.attn"; by default all linear layers.

    Raises:
        ParameterError: a rank below 1, or an α that is not positive.
    """

    rank: int = 4
    alpha: float = 8.0
    layers: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        checks.count(rank=self.rank)
        checks.positive(alpha=self.alpha)


class Adapted(nn.Module):
    """Fixed linear layer with a trained low-rank adapter."""

    def __init__(self, base: nn.Linear, adapters: Adapters) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        rank, (outputs, inputs) = adapters.rank, base.weight.shape
        bound = 1 / sqrt(inputs)
        self.down = nn.Parameter(torch.empty(rank, inputs).uniform_(-bound, bound))
        self.up = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = adapters.alpha / rank

    def forward(self, inputs: Tensor) -> Tensor:
        """Sum of the outputs of fixed layer and adapter, (…, inputs) to (…, outputs)."""
        return self.base(inputs) + self.scale * ((inputs @ self.down.T) @ self.up.T)


def adapt(module: nn.Module, adapters: Adapters) -> None:
    """Add low-rank adapters to the module's linear layers, and fix all other parameters.

    Args:
        module: module to change in place. Its code must call the linear layers, not read their
            weights.
        adapters: layers, rank and scale.

    Raises:
        ParameterError: a pattern matches no linear layer, or the rank is above the smaller side of
            an adapted layer's weight matrix.
    """
    # Every pattern must match a linear layer inside the module.
    linear = {
        name: layer for name, layer in module.named_modules() if type(layer) is nn.Linear and name
    }
    for pattern in adapters.layers:
        if not any(fnmatchcase(name, pattern) for name in linear):
            known = ", ".join(list(linear)[:6]) or "there is none"
            expected = f"a pattern of linear layers inside the module: {known}"
            raise ParameterError("model.lora.layers", pattern, expected)
    # Fix all parameters, then wrap the matching layers; only the adapters are trained.
    module.requires_grad_(False)
    for name, layer in linear.items():
        if any(fnmatchcase(name, pattern) for pattern in adapters.layers):
            least = min(layer.weight.shape)
            if adapters.rank > least:
                expected = f"at most {least}, the smaller side of layer {name!r}"
                raise ParameterError("model.lora.rank", adapters.rank, expected)
            # Replace the layer in its parent module.
            parent, _, own = name.rpartition(".")
            setattr(module.get_submodule(parent), own, Adapted(layer, adapters))


Given = str | nn.Module | Callable[..., nn.Module]
"""User's module: a reference "module:name", a module, or a class or function that builds one."""


def build_module(
    given: Given,
    *,
    arguments: Mapping[str, Any] | None = None,
    folder: Path = Path(),
    seed: int = 1,
    pretrained: str | None = None,
    trainable: tuple[str, ...] = (),
    adapters: Adapters | None = None,
) -> ModuleModel:
    """Model from a custom PyTorch module, with optional parameter file and adapters.

    Args:
        given: module, class or function that builds the module, or reference "module:name" to one
            of these.
        arguments: keyword arguments of that class or function.
        folder: folder of the plan, which is searched first for the code, and which contains the
            pretrained file.
        seed: seed of PyTorch's generator for the initial parameters.
        pretrained: name of a .safetensors file with the module's parameters. Parameters that match
            a pattern of ``trainable`` may be missing. The file is read without running code.
        trainable: patterns of names of trained parameters, such as "head.*". Without patterns, all
            parameters that require a gradient are trained or, with adapters, the adapters alone.
        adapters: low-rank adapters of linear layers, whose parameters are trained in addition.

    Raises:
        ParameterError: code that cannot be imported or called, or that builds no module; a
            pretrained file that does not exist or does not fit the module; a pattern that matches
            no parameter or layer; a module that `ModuleModel` does not support.
        MissingExtraError: a pretrained file, but the package safetensors is not installed.
        StorageError: a damaged pretrained file.
    """
    # Build the module, then load the public parameters.
    module, reference = _made(given, dict(arguments or {}), folder, seed)
    if pretrained is not None:
        _load(module, folder / pretrained, trainable)
    # Without adapters, patterns alone choose the trained parameters.
    if adapters is None:
        return ModuleModel(module, trainable=trainable, reference=reference)
    # With adapters, also train parameters that match a pattern.
    with _seeded(seed):
        adapt(module, adapters)
    for pattern in trainable:
        chosen = [p for name, p in module.named_parameters() if fnmatchcase(name, pattern)]
        if not chosen:
            raise ParameterError(
                "model.trainable", pattern, "a pattern that matches names of parameters"
            )
        for parameter in chosen:
            parameter.requires_grad_(True)
    return ModuleModel(module, reference=reference)


def _made(
    given: Given, arguments: dict[str, Any], folder: Path, seed: int
) -> tuple[nn.Module, Reference]:
    """Module from custom code or a given object, with the name and digest of its code."""
    # The custom object, with a reference that identifies its code.
    key, title = "model.module", given if isinstance(given, str) else repr(given)
    if isinstance(given, str):
        found, reference = imported(key, given, folder)
    else:
        found, reference = given, reference_of(given)
    # A module that is already built takes no arguments.
    if isinstance(found, nn.Module):
        if arguments:
            raise ParameterError(
                "model.arguments", arguments, "none, since the module is already built"
            )
        # Adapters and pretrained parameters change a module in place, so they get a copy.
        return copied(found, reference.name), reference
    # A class or function builds the module, with seeded initial parameters.
    try:
        with _seeded(seed):
            made = found(**arguments)
    except (Exception, SystemExit) as error:  # whatever custom code raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        what = f"from arguments {arguments}" if arguments else "without arguments"
        raise ParameterError(
            key, title, f"a class or function that builds a module {what}, but {reason}"
        ) from None
    if not isinstance(made, nn.Module):
        raise ParameterError(
            key,
            title,
            f"a torch.nn.Module, or a class or function that builds one, not {type(made).__name__}",
        )
    return made, reference


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Context with a seeded PyTorch generator; the former state is restored at the end."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _load(module: nn.Module, file: Path, trainable: tuple[str, ...]) -> None:
    """Load the parameters in a file into the module."""
    # Every tensor of the file must be a parameter of the module, of the same shape.
    found = _tensors(file)
    own = module.state_dict()
    key, shown = "model.pretrained", file.name
    for name, tensor in found.items():
        if name not in own:
            raise ParameterError(
                key, shown, f"parameters of the module; the module has no {name!r}"
            )
        if tensor.shape != own[name].shape:
            shapes = f"{tuple(own[name].shape)}, not {tuple(tensor.shape)}"
            raise ParameterError(key, shown, f"{name!r} of shape {shapes}")
    # Every parameter must be in the file, except those to be trained.
    for name in own:
        trained = any(fnmatchcase(name, pattern) for pattern in trainable)
        if name not in found and not trained:
            expected = f"a file that also contains {name!r}, or a pattern for it in trainable"
            raise ParameterError(key, shown, expected)
    # Parameters that the file lacks keep their initial values.
    module.load_state_dict(found, strict=False)


def _tensors(file: Path) -> dict[str, Tensor]:
    """Tensors of a file by name, read without executing code."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise MissingExtraError("model.pretrained", "safetensors", ("train",)) from None
    if not file.is_file():
        raise ParameterError("model.pretrained", str(file), "a .safetensors file that exists")
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise StorageError(f"{file} is not a complete .safetensors file: {reason}") from None
