"""A module model from what a plan says of it: code, start, pretrained base, and what is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from turnout.core.errors import MissingExtraError, ParameterError, StorageError
from turnout.learning.lora import Adapters, adapt
from turnout.learning.modules import ModuleModel, copied
from turnout.learning.references import Reference, imported, reference_of

Given = str | nn.Module | Callable[..., nn.Module]
"""A "module:name", a module, or a class or function that makes one."""


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
    """A model of a module of the user's own.

    Args:
        given: the module, or what makes it.
        arguments: of what makes it, by keyword.
        folder: of the plan: where code and the pretrained file are looked for first.
        seed: of PyTorch's generator while the module is made: the same seed, the same start.
        pretrained: a .safetensors file with the module's parameters; those that are trained may
            be missing. It is read without running code.
        trainable: patterns of the parameters that are trained, such as "head.*"; with adapters
            beside them. Empty for all, or for the adapters alone.
        adapters: of low rank, on linear layers.

    Raises:
        ParameterError: code that cannot be imported or called, that makes no module, or a module
            that cannot be trained like this.
        StorageError: a damaged file.
    """
    module, reference = _made(given, dict(arguments or {}), folder, seed)
    if pretrained is not None:
        _load(module, folder / pretrained, trainable)
    if adapters is None:
        return ModuleModel(module, trainable=trainable, reference=reference)
    with _seeded(seed):
        adapt(module, adapters)
    for pattern in trainable:
        chosen = [p for name, p in module.named_parameters() if fnmatchcase(name, pattern)]
        if not chosen:
            raise ParameterError("model.trainable", pattern, "a pattern of the parameters' names")
        for parameter in chosen:
            parameter.requires_grad_(True)
    return ModuleModel(module, reference=reference)


def _made(
    given: Given, arguments: dict[str, Any], folder: Path, seed: int
) -> tuple[nn.Module, Reference]:
    """The module, and what it is known by."""
    key, title = "model.module", given if isinstance(given, str) else repr(given)
    if isinstance(given, str):
        found, reference = imported(key, given, folder)
    else:
        found, reference = given, reference_of(given)
    if isinstance(found, nn.Module):
        if arguments:
            raise ParameterError("model.arguments", arguments, "none beside a module that is made")
        # Adapters and pretrained parameters change what they are given: this is a copy.
        return copied(found, reference.name), reference
    try:
        with _seeded(seed):
            made = found(**arguments)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        what = f"from arguments {arguments}" if arguments else "without arguments"
        raise ParameterError(
            key, title, f"a class or function that makes a module {what}, but {reason}"
        ) from None
    if not isinstance(made, nn.Module):
        raise ParameterError(
            key, title, f"a torch.nn.Module, or what makes one, not {type(made).__name__}"
        )
    return made, reference


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """PyTorch's generator starts from a seed inside, and goes on as before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _load(module: nn.Module, file: Path, trainable: tuple[str, ...]) -> None:
    """Puts a file's parameters into the module."""
    found = _tensors(file)
    own = module.state_dict()
    key, shown = "model.pretrained", file.name
    for name, tensor in found.items():
        if name not in own:
            raise ParameterError(key, shown, f"parameters of the module, which has no {name!r}")
        if tensor.shape != own[name].shape:
            shapes = f"{tuple(own[name].shape)}, not {tuple(tensor.shape)}"
            raise ParameterError(key, shown, f"{name!r} of shape {shapes}")
    for name in own:
        trained = any(fnmatchcase(name, pattern) for pattern in trainable)
        if name not in found and not trained:
            expected = f"a file with {name!r} too, or a pattern in trainable that names it"
            raise ParameterError(key, shown, expected)
    module.load_state_dict(found, strict=False)


def _tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a file, by name; no code of the file is run."""
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
        raise StorageError(f"{file} is no whole .safetensors file: {reason}") from None
