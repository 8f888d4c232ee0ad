"""Models as functions of one flat parameter vector, and layers with fast exact client gradients.

`build_model` builds a model by its name; `logistic` and `tanh_cnn` build the `Layered` models.

Each layer defines its function twice: ``apply`` in differentiable PyTorch, for ``vmap``, and
``forward`` and ``backward`` written out for speed. The second form stores images with channels
last, so that a convolution is one matrix product of its patches, and pooling is the maximum of a
few shifted views. On a CPU the second form is about three times as fast as ``vmap(grad)``
(docs/design/learning.md).

Notation: n examples, c clients, P positions of a convolution's output, K = kernel² · channels
numbers in a patch, O outputs. Parameters of a layer are its weights (O, K) and then its
biases (O), flat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.learning.gradients import ClientGradients, Materialised, OuterProducts

Shape = tuple[int, ...]
ImageShape = tuple[int, int, int]
"""Shape (height, width, channels) of an image."""


class Layer(Protocol):
    """Interface of a layer, whose parameters are a slice of the model's flat vector.

    Parameters have the shape (size,); inputs, outputs and their gradients have the shape (n, …) for
    n examples. Each client has n / clients consecutive examples in `client_gradients`.
    """

    @property
    def output_shape(self) -> Shape:
        """Shape of one example's output."""
        ...

    @property
    def size(self) -> int:
        """Number of parameters."""
        ...

    @property
    def workspace(self) -> int:
        """Number of floats per example that the explicit gradient holds in memory at once."""
        ...

    def apply(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Differentiable output: (n, *input_shape) to (n, *output_shape)."""
        ...

    def forward(self, parameters: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Output, and the values that ``backward`` and ``client_gradients`` need."""
        ...

    def backward(self, parameters: Tensor, saved: Tensor, upstream: Tensor) -> Tensor:
        """Gradient with respect to the inputs, from the gradient with respect to the outputs."""
        ...

    def client_gradients(self, saved: Tensor, upstream: Tensor, clients: int) -> ClientGradients:
        """Gradients with respect to the parameters, as sums over the examples of each client."""
        ...


def _matrix(parameters: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
    """Weights (outputs, inputs) and biases (outputs,) from the flat parameters of a layer."""
    return parameters[:-outputs].view(outputs, -1), parameters[-outputs:]


@dataclass(frozen=True, slots=True)
class Dense:
    """Fully connected layer on flattened inputs.

    Raises:
        ParameterError: no input or no output.
    """

    inputs: int
    outputs: int

    def __post_init__(self) -> None:
        checks.count(inputs=self.inputs, outputs=self.outputs)

    @property
    def output_shape(self) -> Shape:
        """Shape of one example's output."""
        return (self.outputs,)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.outputs * (self.inputs + 1)

    @property
    def fan_in(self) -> int:
        """Number of inputs of each output."""
        return self.inputs

    @property
    def workspace(self) -> int:
        """Number of floats per example that the explicit gradient holds in memory at once."""
        return self.inputs + self.outputs

    def apply(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Differentiable output of the layer."""
        weights, biases = _matrix(parameters, self.outputs)
        return functional.linear(inputs.flatten(1), weights, biases)

    def forward(self, parameters: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Output, and the inputs for the backward pass."""
        weights, biases = _matrix(parameters, self.outputs)
        flat = inputs.reshape(len(inputs), -1)
        return torch.addmm(biases, flat, weights.T), flat

    def backward(self, parameters: Tensor, saved: Tensor, upstream: Tensor) -> Tensor:
        """Gradient with respect to the inputs."""
        return upstream @ _matrix(parameters, self.outputs)[0]

    def client_gradients(self, saved: Tensor, upstream: Tensor, clients: int) -> ClientGradients:
        """Gradients with respect to the parameters, one row per client."""
        if len(saved) == clients:
            return OuterProducts(saved, upstream)
        return Materialised.of_products(
            upstream.view(clients, -1, self.outputs), saved.view(clients, -1, self.inputs)
        )


@dataclass(frozen=True, slots=True)
class Convolution:
    """Zero-padded convolution of square kernels with an image (height, width, channels).

    Raises:
        ParameterError: a number of filters, kernel side, stride or padding outside its domain, or
            an image that is smaller than the kernel.
    """

    input_shape: ImageShape
    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        checks.count(filters=self.filters, kernel=self.kernel, stride=self.stride)
        checks.count(0, padding=self.padding)
        if self.kernel > 2 * self.padding + min(self.input_shape[:2]):
            expected = f"images that a {self.kernel}×{self.kernel} kernel fits into"
            raise ParameterError("input_shape", self.input_shape, expected)

    @property
    def output_shape(self) -> ImageShape:
        """Shape of one example's output."""
        height, width = (
            (side + 2 * self.padding - self.kernel) // self.stride + 1
            for side in self.input_shape[:2]
        )
        return (height, width, self.filters)

    @property
    def fan_in(self) -> int:
        """Number of inputs of each output."""
        return self.kernel**2 * self.input_shape[2]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.filters * (self.fan_in + 1)

    @property
    def workspace(self) -> int:
        """Number of floats per example that the explicit gradient holds in memory at once."""
        height, width, filters = self.output_shape
        return height * width * (self.fan_in + filters)

    def apply(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Differentiable output of the layer."""
        weights, biases = _matrix(parameters, self.filters)
        kernels = weights.view(self.filters, self.kernel, self.kernel, -1).permute(0, 3, 1, 2)
        outputs = functional.conv2d(
            inputs.permute(0, 3, 1, 2), kernels, biases, self.stride, self.padding
        )
        return outputs.permute(0, 2, 3, 1)

    def forward(self, parameters: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Output, and the image patches for the backward pass."""
        weights, biases = _matrix(parameters, self.filters)
        patches = self._patches(inputs)
        outputs = torch.addmm(biases, patches.view(-1, self.fan_in), weights.T)
        return outputs.view(-1, *self.output_shape), patches

    def _patches(self, images: Tensor) -> Tensor:
        """Image patches as rows, shape (examples, positions, numbers in a patch)."""
        edge, kernel, stride = self.padding, self.kernel, self.stride
        padded = functional.pad(images, (0, 0, edge, edge, edge, edge)).contiguous()
        n, height, width, channels = padded.shape
        rows, columns, _ = self.output_shape
        # Two copies are faster than one here, since the second copies long runs of memory.
        bands = padded.as_strided(
            (n, columns, height, kernel * channels),
            (height * width * channels, stride * channels, width * channels, 1),
        ).contiguous()
        row = kernel * channels
        patches = bands.as_strided(
            (n, rows, columns, kernel * row),
            (columns * height * row, stride * row, height * row, 1),
        )
        return patches.reshape(n, rows * columns, kernel * row)

    def backward(self, parameters: Tensor, saved: Tensor, upstream: Tensor) -> Tensor:
        """Gradient with respect to the inputs, shape (n, height, width, channels).

        Args:
            parameters: weights and biases of the layer, flat.
            saved: the patches that `forward` returned; not used.
            upstream: gradient with respect to the output, n·rows·columns·filters numbers.
        """
        weights, _ = _matrix(parameters, self.filters)
        rows, columns, _ = self.output_shape
        height, width, channels = self.input_shape
        edge, kernel, stride = self.padding, self.kernel, self.stride
        # Gradient of each patch.
        patches = (upstream.reshape(-1, self.filters) @ weights).view(
            -1, rows, columns, kernel, kernel * channels
        )
        # Patches overlap: add their rows in bands of the full height, then the bands.
        bands = patches.new_zeros(len(patches), height + 2 * edge, columns, kernel * channels)
        for i in range(kernel):
            bands[:, i : i + stride * rows : stride] += patches[:, :, :, i]
        bands = bands.view(len(patches), -1, columns, kernel, channels)
        padded = patches.new_zeros(len(patches), height + 2 * edge, width + 2 * edge, channels)
        for i in range(kernel):
            padded[:, :, i : i + stride * columns : stride] += bands[:, :, :, i]
        return padded[:, edge : edge + height, edge : edge + width]

    def client_gradients(self, saved: Tensor, upstream: Tensor, clients: int) -> ClientGradients:
        """Gradients with respect to the parameters, one row per client."""
        return Materialised.of_products(
            upstream.reshape(clients, -1, self.filters), saved.view(clients, -1, self.fan_in)
        )


class WithoutParameters:
    """Base class of layers without parameters."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """Number of parameters, which is 0."""
        return 0

    @property
    def workspace(self: Layer) -> int:
        """Number of floats per example that the explicit gradient holds in memory at once."""
        return prod(self.output_shape)

    def client_gradients(self, saved: Tensor, upstream: Tensor, clients: int) -> ClientGradients:
        """Empty gradients, since the layer has no parameters."""
        empty = upstream.new_zeros(clients, 0)
        return Materialised(empty, empty)


@dataclass(frozen=True, slots=True)
class Tanh(WithoutParameters):
    """Layer that applies the hyperbolic tangent to each number."""

    output_shape: Shape

    def apply(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Differentiable output of the layer."""
        return torch.tanh(inputs)

    def forward(self, parameters: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Output of the layer, also as the value for the backward pass."""
        # tanh x = 2 σ(2x) − 1 to about 1e-7, and PyTorch's σ is six times as fast as its tanh.
        outputs = (2 * inputs).sigmoid_().mul_(2).sub_(1)
        return outputs, outputs

    def backward(self, parameters: Tensor, saved: Tensor, upstream: Tensor) -> Tensor:
        """Gradient with respect to the inputs."""
        return upstream.view(saved.shape) * (1 - saved * saved)


@dataclass(frozen=True, slots=True)
class MaxPool(WithoutParameters):
    """Max-pooling layer with windows of 2×2 positions and stride 1.

    The gradient goes to the maximum; of equal values, to the first in reading order, as in PyTorch.

    Raises:
        ParameterError: an image with a side below 2.
    """

    input_shape: ImageShape

    def __post_init__(self) -> None:
        if min(self.input_shape[:2]) < 2:
            raise ParameterError("input_shape", self.input_shape, "at least 2×2 positions")

    @property
    def output_shape(self) -> ImageShape:
        """Shape of one example's output."""
        height, width, channels = self.input_shape
        return (height - 1, width - 1, channels)

    def apply(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Differentiable output of the layer."""
        return functional.max_pool2d(inputs.permute(0, 3, 1, 2), 2, 1).permute(0, 2, 3, 1)

    def forward(self, parameters: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Output, and the maxima for the backward pass."""
        across = torch.maximum(inputs[:, :, :-1], inputs[:, :, 1:])
        return torch.maximum(across[:, :-1], across[:, 1:]), inputs

    def backward(self, parameters: Tensor, saved: Tensor, upstream: Tensor) -> Tensor:
        """Gradient with respect to the inputs."""
        left, right = saved[:, :, :-1], saved[:, :, 1:]
        across = torch.maximum(left, right)
        gradient = _sent_back(upstream.view(-1, *self.output_shape), across, axis=1)
        return _sent_back(gradient, saved, axis=2)


def _sent_back(upstream: Tensor, values: Tensor, axis: int) -> Tensor:
    """Gradient of pairwise maxima along an axis, assigned to the larger of two neighbours."""
    pairs = values.shape[axis] - 1
    first, second = values.narrow(axis, 0, pairs), values.narrow(axis, 1, pairs)
    to_second = torch.lt(first, second, out=torch.empty_like(upstream))
    gradient = torch.empty_like(values)
    to_first = gradient.narrow(axis, 0, pairs)
    torch.addcmul(upstream, upstream, to_second, value=-1, out=to_first)
    gradient.narrow(axis, pairs, 1).zero_()
    gradient.narrow(axis, 1, pairs).addcmul_(upstream, to_second)
    return gradient


class Model(Protocol):
    """Interface of a model: outputs as a function of parameters and inputs.

    Guarantee: the outputs of an example do not depend on the other examples of the batch, so batch
    normalisation is excluded. Otherwise a client's update would depend on other clients' data.
    """

    @property
    def dimension(self) -> int:
        """Number of parameters, d."""
        ...

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Initial parameters, shape (parameters,)."""
        ...

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Outputs (n, …), such as scores of classes, as a differentiable function.

        Args:
            parameters: float32, shape (parameters,).
            inputs: (n, …).
        """
        ...


@dataclass(frozen=True, slots=True)
class Layered:
    """Model made of a sequence of layers, with fast and exact per-client gradients.

    Attributes:
        input_shape: shape to which an input is reshaped; (height, width, channels) for images.
        layers: layers in order; the last layer returns the scores.
        zero_start: start from zero parameters (for convex models).
    """

    input_shape: Shape
    layers: tuple[Layer, ...]
    zero_start: bool = False

    @property
    def dimension(self) -> int:
        """Number of parameters, d."""
        return sum(layer.size for layer in self.layers)

    @property
    def workspace(self) -> int:
        """Number of floats per example that a gradient needs in memory at once."""
        return sum(layer.workspace for layer in self.layers)

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Initial parameters, (d,): zero, or uniform in ±1/√(inputs per output) in each layer."""
        if self.zero_start:
            return np.zeros(self.dimension, dtype=np.float32)
        parts = [
            generator.uniform(-1, 1, layer.size) / sqrt(layer.fan_in)
            for layer in self.layers
            if isinstance(layer, Dense | Convolution)
        ]
        return np.concatenate(parts).astype(np.float32)

    def slices(self, parameters: Tensor) -> list[Tensor]:
        """Parameters of each layer, shape (size,), split from the flat vector (dimension,)."""
        return list(torch.split(parameters, [layer.size for layer in self.layers]))

    def viewed(self, inputs: Tensor) -> Tensor:
        """Inputs, reshaped as the first layer expects."""
        return inputs.reshape(-1, *self.input_shape)

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Differentiable scores of the classes, (n, classes)."""
        values = self.viewed(inputs)
        for layer, own in zip(self.layers, self.slices(parameters), strict=True):
            values = layer.apply(own, values)
        return values


def logistic(input_shape: Shape, classes: int) -> Layered:
    """Multinomial logistic regression model: one score per class, linear in the input."""
    width = prod(input_shape)
    return Layered((width,), (Dense(width, classes),), zero_start=True)


def tanh_cnn(input_shape: Shape, classes: int, filters: int) -> Layered:
    """Small convolutional tanh network, common in work on private training on MNIST.

    The layers are a convolution with 16 kernels 8×8 (stride 2, padding 3), max pooling, a
    convolution with ``filters`` kernels 4×4 (stride 2), max pooling, a dense layer of 32 units, and
    a dense layer with one score for each class. Pooling windows are 2×2 with stride 1. Tanh is
    applied after each pooling and after the layer of 32 units. Since tanh increases, tanh before
    the pooling would give the same values.

    Source: Papernot, Thakurta, Song, Chien, Erlingsson, *Tempered Sigmoid Activations for Deep
        Learning with Differential Privacy* (AAAI 2021), Table 1, in the form of Tramèr and
        Boneh (ICLR 2021), Table 8: with 32 filters, 26,010 parameters on 28×28×1.

    Raises:
        ParameterError: an input shape that is no image, or an image too small for the kernels.
    """
    # Two blocks of convolution and pooling; each size follows from the output of the layer before.
    image = image_shape(input_shape)
    first = Convolution(image, filters=16, kernel=8, stride=2, padding=3)
    pooled = MaxPool(first.output_shape)
    second = Convolution(pooled.output_shape, filters=filters, kernel=4, stride=2)
    pooled_again = MaxPool(second.output_shape)
    # A hidden layer of 32 units, then one output for each class.
    hidden = Dense(prod(pooled_again.output_shape), 32)
    # Tanh follows the pooling; since tanh increases, either order gives the same values.
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
    """Shape (height, width, channels) of an image given with or without channels.

    Raises:
        ParameterError: a shape whose length is neither 2 nor 3.
    """
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
"""Models by their names in plans; a number in a name is the number of parameters for inputs 28×28×1
and 10 classes."""


def build_model(name: str, input_shape: Shape, classes: int) -> Layered:
    """Model with the given name, for inputs of a given shape.

    Args:
        name: "logistic", "tanh-cnn-13k" or "tanh-cnn-26k".
        input_shape: shape of one input.
        classes: number of outputs, at least 1.

    Raises:
        ParameterError: an unknown name, fewer than one class, or a shape that does not fit the
            model.
    """
    checks.count(classes=classes)
    if name not in MODELS:
        raise ParameterError("model.name", name, f"one of {', '.join(MODELS)}")
    return MODELS[name](tuple(input_shape), classes)
