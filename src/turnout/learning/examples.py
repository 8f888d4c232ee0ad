"""Labelled examples: the arrays that a model is trained and evaluated on.

`Examples` holds inputs and labels and checks them. `rows` and `as_tensor` copy or view arrays as
tensors, and `as_floats` converts stored inputs to the inputs of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Inputs with labels, as arrays in memory or memory-mapped.

    Attributes:
        inputs: shape ``(n, ...)``; uint8 (read as fractions of 255), float16, float32, or int64 for
            tokens. Lists are accepted; numbers in float64 are converted to float32. Models compute
            in float32, whatever type is stored.
        labels: labels of the form that ``target`` requires, as an array or a list.
        target: kind of label: "class" for int64 classes from 0, shape ``(n,)``; "tags" for 0 or 1,
            shape ``(n, tags)``; "numbers" for finite float32 numbers, shape ``(n, numbers)``;
            "tokens" for int64 classes, shape ``(n, tokens)``, where −1 marks a token that is
            ignored.

    Raises:
        ParameterError: inputs or labels of another shape or type, or not one label per input.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    target: str = "class"

    def __post_init__(self) -> None:
        inputs = _as_inputs(_as_array("inputs", self.inputs))
        object.__setattr__(self, "inputs", inputs)
        if inputs.ndim < 2 or inputs.size == 0:
            raise ParameterError("inputs", inputs.shape, "a shape (examples, ...), not empty")
        labels = _as_array("labels", self.labels)
        object.__setattr__(self, "labels", _as_labels(labels, self.target, len(inputs)))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.inputs.shape[1:]

    @property
    def classes(self) -> int:
        """Number of outputs that a model needs: largest class + 1, or number of label columns."""
        if self.target in ("tags", "numbers"):
            return self.labels.shape[1]
        return int(self.labels.max()) + 1


def _as_array(name: str, value: object) -> NDArray:
    """NumPy array from an array or a list of numbers."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ParameterError(name, "rows of unequal length", "one array of numbers") from None


def _as_inputs(array: NDArray) -> NDArray:
    """Inputs with contiguous rows in a supported dtype; float64 becomes float32."""
    if array.dtype in (np.uint8, np.float16, np.float32, np.int64):
        return np.ascontiguousarray(array) if array.ndim else array
    if array.dtype != np.float64:
        expected = "an array of uint8, of floats, or of int64 tokens"
        raise ParameterError("inputs", str(array.dtype), expected)
    limit = np.finfo(np.float32).max
    if np.any(np.abs(array[np.isfinite(array)]) > limit):
        raise ParameterError("inputs", "numbers beyond float32", f"at most {limit:g}")
    return array.astype(np.float32)


def _as_labels(labels: NDArray, target: str, count: int) -> NDArray:
    """Labels converted to the dtype of the kind of label ``target``."""
    # Properties that every kind needs: a label for each example, with the right axes.
    whole, given = np.issubdtype(labels.dtype, np.integer), (labels.dtype, labels.shape)
    axes = 1 if target == "class" else 2
    fits = labels.shape[:1] == (count,) and labels.ndim == axes and labels.size > 0
    # Classes and tokens: whole numbers; −1 marks a token that is not counted.
    if target in ("class", "tokens"):
        if not whole or not fits:
            each = "one whole number" if target == "class" else "a row of whole numbers"
            expected = f"{each} for each example, shape ({count},{'' if axes == 1 else ' L'})"
            raise ParameterError("labels", given, expected)
        least = 0 if target == "class" else -1
        if labels.min() < least:
            raise ParameterError("labels", int(labels.min()), f"classes numbered from {least}")
        return np.ascontiguousarray(labels).astype(np.int64, copy=False)
    # Tags and numbers: a row of numbers for each example.
    number = whole or labels.dtype == np.bool_ or np.issubdtype(labels.dtype, np.floating)
    if not number or not fits:
        raise ParameterError(
            "labels", given, f"one row of numbers for each example, shape ({count}, K)"
        )
    # Tags are 0 or 1 and take one byte; numbers must be finite.
    if target == "tags":
        if not np.isin(labels, (0, 1)).all():
            wrong = labels[~np.isin(labels, (0, 1))][0]
            raise ParameterError("labels", f"{wrong:g}", "0 or 1 for each tag")
        return np.ascontiguousarray(labels).astype(np.uint8, copy=False)
    if not np.isfinite(labels).all():
        row = int(np.flatnonzero(~np.isfinite(labels).all(axis=1))[0])
        raise ParameterError("labels", f"row {row}: {labels[row]}", "finite numbers")
    return np.ascontiguousarray(labels).astype(np.float32, copy=False)


def rows(array: NDArray, index: NDArray[np.int64]) -> Tensor:
    """Copy of the rows of an array at the given indices, as a tensor in PyTorch's memory.

    Matrix products may round differently on memory with another alignment, so the copy has the
    alignment of PyTorch's own tensors. If the array is memory-mapped, only these rows are read.

    Args:
        array: shape ``(n, ...)``.
        index: row numbers from 0 to n − 1, shape ``(k,)``; they are not checked.
    """
    found = torch.from_numpy(np.empty(0, array.dtype)).new_empty((index.size, *array.shape[1:]))
    if index.size:  # mode "clip" lets NumPy write without a buffer
        np.take(array, index, axis=0, out=found.numpy(), mode="clip")
    return found


def as_tensor(array: NDArray) -> Tensor:
    """Tensor of an array's shape that shares the array's memory, or copies it if read-only."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_floats(inputs: Tensor) -> Tensor:
    """Model inputs, same shape: bytes divided by 255, tokens unchanged, all others as float32."""
    if inputs.dtype == torch.int64:
        return inputs
    return inputs.to(torch.float32).div_(255) if inputs.dtype == torch.uint8 else inputs.float()
