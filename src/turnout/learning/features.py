"""Fixed public functions of one input, applied once before training.

A feature looks at one example at a time and at no data set, so using it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from turnout.core.errors import ParameterError
from turnout.learning.examples import Examples, as_floats, as_tensor
from turnout.learning.parallel import keep_freed_memory, ordered_map

IMAGES_AT_ONCE = 32
"""So many that what is computed in between stays in the cache."""

NORMALISATION_GROUPS = 27
"""Neighbouring scattering maps are normalised in threes."""


def standardized(images: Tensor) -> Tensor:
    """Each image shifted and scaled to mean 0 and variance 1 (a constant image becomes 0)."""
    flat = images.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    return (centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()).view(images.shape)


def normalised_scattering(images: Tensor) -> Tensor:
    """Scattering maps, each group of three shifted and scaled to mean 0, variance 1; flat.

    No image's features then have a norm above √(their number), 63 for MNIST, where the mean
    is 49: clipping treats clients nearly alike.
    """
    # Imported here: few runs need it, and its filters take a moment.
    from turnout.learning.scattering import scattering

    if images.ndim != 3 or images.shape[1] != images.shape[2]:
        shape = tuple(images.shape[1:])
        raise ParameterError("features", "scattering", f"square grey images, not {shape}")
    return functional.group_norm(scattering(images), NORMALISATION_GROUPS).flatten(1)


FEATURES: dict[str, Callable[[Tensor], Tensor] | None] = {
    "pixels": None,
    "standardized": standardized,
    "scattering": normalised_scattering,
}
"""Features by the name a plan gives them; None leaves inputs as they are."""


def apply_features(name: str, inputs: NDArray) -> NDArray:
    """The model's view of inputs: uint8 (fractions of 255), float16 or float32, ``(n, ...)``.

    For "pixels" the inputs themselves; otherwise float16, shape ``(n, ...)``: half the memory,
    and the rounding is part of the function.

    Raises:
        ParameterError: an unknown name, or inputs of a shape that it cannot take.

    Guarantees:
        Row i depends on input i alone. The same inputs give the same bits on any number of
        threads.
    """
    if name not in FEATURES:
        raise ParameterError("model.features", name, f"one of {', '.join(FEATURES)}")
    function = FEATURES[name]
    if function is None:
        return inputs
    if inputs.dtype.kind not in "uf" or inputs.dtype.itemsize > 4:
        raise ParameterError("inputs", str(inputs.dtype), "an array of uint8 or of floats")
    keep_freed_memory()
    batches = as_tensor(inputs).split(IMAGES_AT_ONCE)

    def some(i: int) -> NDArray[np.float16]:
        with torch.no_grad():
            return function(as_floats(batches[i])).half().numpy()

    made = np.empty((len(inputs), *some(0).shape[1:]), dtype=np.float16)
    for i, part in enumerate(ordered_map(some, range(len(batches)))):
        made[i * IMAGES_AT_ONCE : i * IMAGES_AT_ONCE + len(part)] = part
    return made


def featured(name: str, examples: Examples) -> Examples:
    """Returns the same examples as the model is to see them."""
    return replace(examples, inputs=apply_features(name, examples.inputs))
