"""Losses: functions of outputs and labels that return one number for each example.

`LOSSES` has the built-in losses; `own_loss` makes a `Loss` from a custom function. `imported`
imports custom code that a plan names as "module:name", and `reference_of` identifies the code of a
given object.

Notation:
    n     examples
    K     outputs: classes, tags, numbers, or tokens of the vocabulary
    L     tokens of a sequence
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import is_reference

PLAN_MODULES = "turnout_plan_"
"""Prefix of the module names under which files of a plan's folder are imported."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Name and digest of custom code, for checkpoints and reports.

    Attributes:
        name: reference "module:name" from a plan, or the qualified name of a Python object.
        digest: digest of the defining source file, 32 hexadecimal digits; "" without a file, as for
            code that is typed into an interpreter.
    """

    name: str
    digest: str


def imported(key: str, text: str, folder: Path) -> tuple[Any, Reference]:
    """Object that the text ``"module:name"`` refers to, and the digest of its code.

    A file ``module.py`` in the folder takes precedence over the Python path. The import runs the
    code of the module.

    Args:
        key: key of the plan, for errors.
        text: reference such as "mymodels:Net".
        folder: folder of the plan.

    Raises:
        ParameterError: the text is not of the form "module:name", the module is not found or raises
            an error, or the module does not define the name.
    """
    if not is_reference(text):
        raise ParameterError(key, text, "module:name, such as mymodels:Net")
    where, _, name = text.partition(":")
    try:
        module = _module(where, folder)
    except (Exception, SystemExit) as error:  # whatever the imported file raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ParameterError(key, text, f"a module that can be imported, but {reason}") from None
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ParameterError(key, text, f"a name that exists: {where} has no {part}")
        found = getattr(found, part)
    return found, Reference(text, _digest(module))


def reference_of(value: object) -> Reference:
    """Name and code digest of a Python object or, for an instance, of its class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    module = sys.modules.get(named.__module__)
    name = f"{named.__module__}.{named.__qualname__}"  # pyright: ignore[reportAttributeAccessIssue]
    return Reference(name, "" if module is None else _digest(module))


def _module(name: str, folder: Path) -> ModuleType:
    """Module imported by name, from the folder if the folder has a file of this name."""
    # Without a file of this name in the folder: an installed module.
    file = folder.joinpath(*name.split(".")).with_suffix(".py").resolve()
    with _importing_from(folder):
        if not file.is_file():
            return importlib.import_module(name)
        # Two plans may have files of the same name, and a file may change: the module name depends
        # on the path and the contents of the file.
        unique = f"{PLAN_MODULES}{_of(str(file).encode() + file.read_bytes())}_{file.stem}"
        if unique in sys.modules:
            return sys.modules[unique]
        # Import the file; a module that fails is not kept.
        spec = importlib.util.spec_from_file_location(unique, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[unique]
            raise
        return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Context in which the modules of a folder can be imported."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        if place in sys.path:
            sys.path.remove(place)


def _digest(module: ModuleType) -> str:
    """Digest of a module's source file; empty for a module without a file."""
    try:
        file = inspect.getsourcefile(module)
        return "" if file is None else _of(Path(file).read_bytes())
    except (OSError, TypeError):
        return ""


def _of(data: bytes) -> str:
    """Digest of some bytes, 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


IGNORED = -1
"""Label of a token that is not predicted, such as padding."""

Function = Callable[[Tensor, Tensor], Tensor]
"""Function of outputs (n, …) and labels (n, …)."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss function, with its closed-form derivative if one exists.

    Attributes:
        name: name in a plan.
        target: accepted kind of label; "" for any.
        each: function that returns the loss of each example, (n,); differentiable, and usable
            under ``torch.func.vmap``.
        total: function that returns the sum of the losses, a scalar.
        derivative: derivative of each example's loss with respect to the example's K outputs, shape
            (n, K); None without a closed form.
        reference: name and code digest of a custom loss; None for a built-in one.
    """

    name: str
    target: str
    each: Function
    total: Function
    derivative: Function | None = None
    reference: Reference | None = None

    def resume_parts(self) -> Mapping[str, object]:
        """Name of the loss and, for a custom loss, the digest of its code."""
        return {"name": self.name, "reference": self.reference}


def _cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each example, (n,), in nats."""
    return functional.cross_entropy(outputs, labels, reduction="none")


def _cross_entropy_total(outputs: Tensor, labels: Tensor) -> Tensor:
    """Sum of the cross-entropies of all examples, in nats."""
    return functional.cross_entropy(outputs, labels, reduction="sum")


def _cross_entropy_derivative(outputs: Tensor, labels: Tensor) -> Tensor:
    """Derivative of the cross-entropy: the softmax minus the unit vector of the label."""
    derivative = outputs.softmax(1)
    places = labels.reshape(-1, 1)
    return derivative.scatter_add_(1, places, derivative.new_full(places.shape, -1.0))


def _squared(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error of each example's numbers, (n,)."""
    return (outputs - labels).square().flatten(1).mean(1)


def _squared_derivative(outputs: Tensor, labels: Tensor) -> Tensor:
    """Derivative of the mean squared error, shape (examples, outputs)."""
    return (outputs - labels) * (2 / outputs.shape[1])


def _binary(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean binary cross-entropy of each example's tags, (n,), in nats."""
    each = functional.binary_cross_entropy_with_logits(
        outputs, labels.to(outputs.dtype), reduction="none"
    )
    return each.flatten(1).mean(1)


def _binary_derivative(outputs: Tensor, labels: Tensor) -> Tensor:
    """Derivative of the mean binary cross-entropy, shape (examples, tags)."""
    return (outputs.sigmoid() - labels) / outputs.shape[1]


def token_losses(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each token (0 if ignored) and mask of counted tokens, (examples, tokens)."""
    counted = labels != IGNORED
    logits = outputs.log_softmax(-1)
    each = -logits.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(counted, each, torch.zeros_like(each)), counted


def _tokens(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of each example's counted tokens; 0 for an example without them."""
    each, counted = token_losses(outputs, labels)
    return each.sum(-1) / counted.sum(-1).clamp(min=1)


def _summed(each: Function) -> Function:
    """Function that sums a loss over examples."""
    return lambda outputs, labels: each(outputs, labels).sum()


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss(
            "cross-entropy",
            "class",
            _cross_entropy,
            _cross_entropy_total,
            _cross_entropy_derivative,
        ),
        Loss("squared", "numbers", _squared, _summed(_squared), _squared_derivative),
        Loss("binary cross-entropy", "tags", _binary, _summed(_binary), _binary_derivative),
        Loss("token cross-entropy", "tokens", _tokens, _summed(_tokens)),
    )
}
"""Built-in losses by their names in plans."""

DEFAULTS = {loss.target: loss for loss in LOSSES.values()}
"""Default loss of each kind of label."""


def own_loss(function: Function, reference: Reference | None, name: str = "own") -> Loss:
    """Loss from a custom function that maps outputs and labels to one loss per example, (n,).

    A call of the returned loss raises a ParameterError if the function returns another shape.
    """

    def each(outputs: Tensor, labels: Tensor) -> Tensor:
        found = function(outputs, labels)
        if found.shape != outputs.shape[:1]:
            expected = f"one loss for each example, shape {tuple(outputs.shape[:1])}"
            raise ParameterError("model.loss", tuple(found.shape), expected)
        return found

    return Loss(name, "", each, _summed(each), reference=reference)
