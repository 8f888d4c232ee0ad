"""Models as functions of one flat parameter vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.learning.layers import Convolution, Dense, ImageShape, Layer, MaxPool, Shape, Tanh


class Model(Protocol):
    """Scores for classes, as a function of parameters and inputs.

    Guarantee: an example's scores depend on no other example of the batch (no batch
    normalisation), or there would be no such thing as one client's update.
    """

    @property
    def dimension(self) -> int:
        """Parameters, d."""
        ...

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """The initial parameters, (d,)."""
        ...

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores (n, classes) from float32 (d,) and (n, ...); differentiable, vmap-able."""
        ...


@dataclass(frozen=True, slots=True)
class Layered:
    """Layers one after another; per-client gradients have a fast exact form.

    Attributes:
        input_shape: shape that an input is viewed as; images are (height, width, channels).
        layers: the last one gives the scores.
        zero_start: start from zero parameters (for convex models).
    """

    input_shape: Shape
    layers: tuple[Layer, ...]
    zero_start: bool = False

    @property
    def dimension(self) -> int:
        """Parameters, d."""
        return sum(layer.size for layer in self.layers)

    @property
    def workspace(self) -> int:
        """Floats an example that its gradient needs at once."""
        return sum(layer.workspace for layer in self.layers)

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Zeros, or uniform in ±1/√(inputs of one output) layer by layer, (d,)."""
        if self.zero_start:
            return np.zeros(self.dimension, dtype=np.float32)
        parts = [
            generator.uniform(-1, 1, layer.size) / sqrt(layer.fan_in)
            for layer in self.layers
            if isinstance(layer, Dense | Convolution)
        ]
        return np.concatenate(parts).astype(np.float32)

    def slices(self, parameters: Tensor) -> list[Tensor]:
        """Each layer's own parameters."""
        return list(torch.split(parameters, [layer.size for layer in self.layers]))

    def viewed(self, inputs: Tensor) -> Tensor:
        """Inputs in the shape that the first layer takes."""
        return inputs.reshape(-1, *self.input_shape)

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores (n, classes), differentiable."""
        values = self.viewed(inputs)
        for layer, own in zip(self.layers, self.slices(parameters), strict=True):
            values = layer.apply(own, values)
        return values


def logistic(input_shape: Shape, classes: int) -> Layered:
    """Returns multinomial logistic regression: one score a class, linear in the input."""
    width = prod(input_shape)
    return Layered((width,), (Dense(width, classes),), zero_start=True)


def tanh_cnn(input_shape: Shape, classes: int, filters: int) -> Layered:
    """Returns the small tanh network that private MNIST results are usually given for.

    16 kernels 8×8 (stride 2, padding 3), max-pool, ``filters`` kernels 4×4 (stride 2),
    max-pool, 32 units, scores. Pooling windows are 2×2, one apart, and tanh follows each
    stage (after the pooling, which is the same function for less work).

    Source: Papernot, Thakurta, Song, Chien, Erlingsson, *Tempered Sigmoid Activations for Deep
        Learning with Differential Privacy* (AAAI 2021), Table 1, in the form of Tramèr and
        Boneh (ICLR 2021), Table 8: with 32 filters, 26,010 parameters on 28×28×1.
    """
    image = image_shape(input_shape)
    first = Convolution(image, filters=16, kernel=8, stride=2, padding=3)
    pooled = MaxPool(first.output_shape)
    second = Convolution(pooled.output_shape, filters=filters, kernel=4, stride=2)
    pooled_again = MaxPool(second.output_shape)
    hidden = Dense(prod(pooled_again.output_shape), 32)
    layers = (
        first,
        pooled,
        Tanh(pooled.output_shape),
        second,
        pooled_again,
        Tanh(pooled_again.output_shape),
        hidden,
        Tanh(hidden.output_shape),
        Dense(32, classes),
    )
    return Layered(image, layers)


def image_shape(input_shape: Shape) -> ImageShape:
    """(height, width, channels) of an image given with or without channels."""
    if len(input_shape) == 2:
        return (input_shape[0], input_shape[1], 1)
    if len(input_shape) == 3:
        return (input_shape[0], input_shape[1], input_shape[2])
    raise ParameterError("input_shape", input_shape, "an image: (height, width[, channels])")


MODELS: dict[str, Callable[[Shape, int], Layered]] = {
    "logistic": logistic,
    "tanh-cnn-13k": lambda shape, classes: tanh_cnn(shape, classes, filters=16),
    "tanh-cnn-26k": lambda shape, classes: tanh_cnn(shape, classes, filters=32),
}
"""Models by the name a plan gives them; the parameter counts are those on 28×28×1, 10 classes."""


def build_model(name: str, input_shape: Shape, classes: int) -> Layered:
    """Returns the model of that name for inputs of that shape.

    Raises:
        ParameterError: an unknown name, or a shape that the model cannot take.
    """
    checks.count(classes=classes)
    if name not in MODELS:
        raise ParameterError("model.name", name, f"one of {', '.join(MODELS)}")
    return MODELS[name](tuple(input_shape), classes)
