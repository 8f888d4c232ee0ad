"""Labelled examples, as a model sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.core.errors import ParameterError


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Inputs and their classes.

    Attributes:
        inputs: uint8, float16 or float32, shape ``(n, ...)``. Bytes are read as fractions of
            255. Computing is in float32; what is kept may be smaller. Lists of such numbers, and
            float64, are converted to float32.
        labels: int64 classes from 0, shape ``(n,)``, or anything that numpy reads as that.
    """

    inputs: NDArray[np.uint8] | NDArray[np.float16] | NDArray[np.float32]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        inputs = _as_inputs(_as_array("inputs", self.inputs))
        object.__setattr__(self, "inputs", inputs)
        if inputs.ndim < 2 or inputs.size == 0:
            raise ParameterError("inputs", inputs.shape, "a shape (examples, ...), not empty")
        labels = _as_array("labels", self.labels)
        if not np.issubdtype(labels.dtype, np.integer) or labels.shape != inputs.shape[:1]:
            expected = f"one whole number an example, shape {inputs.shape[:1]}"
            raise ParameterError("labels", (labels.dtype, labels.shape), expected)
        if labels.min() < 0:
            raise ParameterError("labels", int(labels.min()), "classes numbered from 0")
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.inputs.shape[1:]

    @property
    def classes(self) -> int:
        """One more than the largest class present."""
        return int(self.labels.max()) + 1


def _as_array(name: str, value: object) -> NDArray:
    """The array, or what a list of numbers is as one."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ParameterError(name, "rows of unequal length", "one array of numbers") from None


def _as_inputs(array: NDArray) -> NDArray:
    """Inputs of a dtype that is kept; float64 becomes float32."""
    if array.dtype in (np.uint8, np.float16, np.float32):
        return array
    if array.dtype != np.float64:
        raise ParameterError("inputs", str(array.dtype), "an array of uint8 or of floats")
    limit = np.finfo(np.float32).max
    if np.any(np.abs(array[np.isfinite(array)]) > limit):
        raise ParameterError("inputs", "numbers beyond float32", f"at most {limit:g}")
    return array.astype(np.float32)


def as_tensor(array: NDArray) -> Tensor:
    """The array as a tensor, sharing memory where PyTorch can (it wants it writeable)."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_floats(inputs: Tensor) -> Tensor:
    """Bytes as fractions of 255, other numbers as they are; float32."""
    return inputs.to(torch.float32).div_(255) if inputs.dtype == torch.uint8 else inputs.float()
