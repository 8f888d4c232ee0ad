"""Whether a model fits the examples: asked before anything is trained, answered in one line."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from turnout.core.errors import ParameterError
from turnout.learning.examples import Examples, as_floats, rows
from turnout.learning.models import Layered, Model
from turnout.learning.module_probes import named_failures
from turnout.learning.modules import ModuleModel
from turnout.learning.objectives import Objective


def check_fit(model: Model, examples: Examples, objective: Objective) -> None:
    """Examples that the model can take, and outputs that the loss and the metrics can.

    Raises:
        ParameterError: another shape, more classes than the model has scores for, or a kind of
            label that the objective is not for.
    """
    if examples.target != objective.target:
        raise ParameterError("labels", examples.target, f"target = {objective.target!r}")
    index = _telling(examples)
    outputs = _outputs(model, examples, index)
    _check_outputs(examples, outputs)
    _check_loss(objective, outputs, rows(examples.labels, index))
    scores = outputs.shape[-1]
    if objective.target == "class" and scores != 2 and "auc" in objective.names:
        raise ParameterError("model.metrics", "auc", f"two classes, not {scores}")


def _telling(examples: Examples) -> np.ndarray:
    """One example, or those with the smallest and the largest token: another may be unknown."""
    if examples.inputs.dtype != np.int64:
        return np.zeros(1, dtype=np.int64)
    flat, width = examples.inputs.reshape(-1), int(np.prod(examples.input_shape))
    return np.array([flat.argmin(), flat.argmax()]) // width


def _outputs(model: Model, examples: Examples, index: np.ndarray) -> Tensor:
    """The model's outputs on some examples: a module's at its start, others at parameters 0."""
    inputs = as_floats(rows(examples.inputs, index))
    if isinstance(model, Layered) and not inputs.is_floating_point():
        expected = "numbers; tokens need a module of one's own with an embedding"
        raise ParameterError("inputs", "int64 tokens", expected)
    shape = examples.input_shape
    if isinstance(model, ModuleModel):
        taken = f"a module that takes inputs of shape {shape}"
        with named_failures(model, taken), torch.no_grad():
            outputs = model.logits(torch.tensor(model.start), inputs)
    else:
        try:
            with torch.no_grad():
                outputs = model.logits(torch.zeros(model.dimension), inputs)
        except ParameterError:
            raise
        except Exception:  # of PyTorch, about shapes
            raise ParameterError("inputs", shape, "a shape that the model takes") from None
    plain = isinstance(outputs, Tensor) and outputs.is_floating_point()
    if not plain or outputs.shape[:1] != inputs.shape[:1]:
        found = tuple(outputs.shape) if plain else getattr(outputs, "dtype", type(outputs).__name__)
        rows_here = f"with a row an example, {len(index)} rows here"
        expected = f"a module that gives one tensor of floats {rows_here}"
        raise ParameterError("model.module", found, expected)
    return outputs


def _check_outputs(examples: Examples, outputs: Tensor) -> None:
    """Outputs of the shape that the labels need."""
    shape, needed = tuple(outputs.shape[1:]), examples.classes
    if examples.target in ("tags", "numbers"):
        if shape != (needed,):
            expected = f"({needed},) outputs an example, one for each column of labels"
            raise ParameterError("model.module", shape, expected)
        return
    length = examples.labels.shape[1:]
    if len(shape) != len(length) + 1 or shape[:-1] != length:
        wanted = (*length, "classes")
        expected = f"outputs of shape ({', '.join(map(str, wanted))}) an example"
        raise ParameterError("model.module", shape, expected)
    if needed > shape[-1]:
        raise ParameterError(
            "labels", needed - 1, f"classes from 0 to {shape[-1] - 1}, the model's"
        )


def _check_loss(objective: Objective, outputs: Tensor, labels: Tensor) -> None:
    """A loss that these outputs and labels can be given to."""
    try:
        objective.loss.each(outputs, labels)
    except ParameterError:
        raise
    except Exception as error:  # whatever the user's loss raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        expected = f"a loss of outputs and labels, a number an example ({reason})"
        raise ParameterError("model.loss", objective.loss.name, expected) from None


def check_curve(held_out: Examples, objective: Objective) -> None:
    """Held-out examples of both kinds, where the area under a curve is asked for.

    Raises:
        ParameterError: all examples are of one class, or agree in every tag.
    """
    labels = held_out.labels
    if "auc" in objective.names and bool((labels == labels[:1]).all()):
        raise ParameterError("model.metrics", "auc", "a test set with labels of both kinds")
