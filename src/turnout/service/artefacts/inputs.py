"""Records as a graph takes them: the feature functions that have names, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.service.computation import features_expression


def featured(name: str, inputs: NDArray[Any], *, whole: bool) -> NDArray[Any]:
    """Records through the features of that format, float32 ``(m, …)``.

    Args:
        name: a format of features; all but ``pixels-1`` and ``standardized-1`` need PyTorch.
        inputs: ``(m, …)``; bytes are fractions of 255.
        whole: leave whole numbers as they are, int64, for a model that takes those.

    Raises:
        ParameterError: another type of numbers than the model takes.
    """
    if whole:
        if name != "pixels-1" or inputs.dtype.kind not in "iu":
            raise ParameterError("inputs", str(inputs.dtype), "whole numbers, as the model takes")
        return inputs.astype(np.int64)
    if inputs.dtype.kind not in "fiu":
        raise ParameterError("inputs", str(inputs.dtype), "numbers")
    numbers = inputs.astype(np.float32)
    if inputs.dtype == np.uint8:
        numbers /= np.float32(255)
    if name == "pixels-1":
        return numbers
    if name == "standardized-1":
        return _standardized(numbers)
    from turnout.learning.features import apply_features

    return apply_features(features_expression(name), numbers).astype(np.float32)


def _standardized(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean 0 and variance 1, rounded to binary16, record by record."""
    flat = numbers.reshape(len(numbers), -1).astype(np.float64)
    centred = flat - flat.mean(1, keepdims=True)
    scale = np.sqrt(np.square(centred).mean(1, keepdims=True) + 1e-5)
    return (centred / scale).astype(np.float16).astype(np.float32).reshape(numbers.shape)
