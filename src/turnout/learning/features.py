"""Fixed public functions of one input, applied once before training.

A feature looks at one example at a time and at no data set, so using it costs no privacy. An
expression puts functions one after another and side by side: "deskewed | scattering + hog".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import feature_stages
from turnout.learning.examples import as_floats, as_tensor
from turnout.learning.module_probes import stands_alone
from turnout.learning.parallel import keep_freed_memory, ordered_map
from turnout.learning.references import Reference, imported

IMAGES_AT_ONCE = 32
"""So many that what is computed in between stays in the cache."""

NORMALISATION_GROUPS = 27
"""Neighbouring scattering maps are normalised in threes."""

FeatureFunction = Callable[[Tensor], Tensor]
"""From float32 ``(n, …)`` to ``(n, …)``; row i is a function of row i alone."""

Allocate = Callable[[str, np.dtype[Any], tuple[int, ...]], NDArray[Any]]
"""Makes the array to write, by a name, type and shape."""


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMap:
    """The function that an expression stands for.

    Attributes:
        text: the expression, in its shortest form.
        stages: one after another, each of functions that stand side by side.
        code: the user's own code in it, by names and digests.
    """

    text: str
    stages: tuple[tuple[FeatureFunction, ...], ...]
    code: tuple[Reference, ...] = ()

    def __call__(self, inputs: Tensor) -> Tensor:
        """Features of a few inputs, float32; those of several functions side by side are flat.

        Of k functions with d values in all, each that gives d′ is scaled by √(d / (k d′)): where
        each brings values to variance 1, as scattering and hog do, all then weigh the same.
        """
        for functions in self.stages:
            parts = [function(inputs) for function in functions]
            inputs = parts[0] if len(parts) == 1 else _side_by_side(parts)
        return inputs


def build_features(text: str, folder: Path = Path()) -> FeatureMap | None:
    """The function of an expression; None for "pixels", which leaves inputs as they are.

    Args:
        text: an expression as `turnout.core.feature_expressions.feature_stages` reads it.
        folder: in which the code that it names is looked for first.

    Raises:
        ParameterError: an unknown name, or code that cannot be imported or called.
    """
    names, code = feature_stages(text), list[Reference]()
    if names == (("pixels",),):
        return None

    def function_of(name: str) -> FeatureFunction:
        if name in FEATURES:
            return FEATURES[name]
        found, reference = imported("model.features", name, folder)
        code.append(reference)
        return _own(found, name)

    stages = tuple(tuple(map(function_of, stage)) for stage in names)
    return FeatureMap("|".join("+".join(stage) for stage in names), stages, tuple(code))


def apply_features(
    features: FeatureMap | str | None, inputs: NDArray[Any], allocate: Allocate | None = None
) -> NDArray[Any]:
    """The model's view of inputs: uint8 (fractions of 255), float16 or float32, ``(n, ...)``.

    For "pixels" the inputs themselves; otherwise float16, shape ``(n, ...)``: half the memory,
    and the rounding is part of the function.

    Args:
        features: as `build_features` gives it, or an expression that names no code.
        inputs: to transform.
        allocate: makes the array of the result; None for one in memory.

    Raises:
        ParameterError: inputs of a shape that it cannot take, features beyond ±65504, or a function
            of the user's own that fails, draws at random or mixes examples.

    Guarantees:
        Row i depends on input i alone. The same inputs give the same bits on any number of
        threads.
    """
    if isinstance(features, str):
        features = build_features(features)
    if features is None:
        return inputs
    keep_freed_memory()
    first = first_features(features, inputs)
    batches = as_tensor(inputs).split(IMAGES_AT_ONCE)
    if features.code:
        _check_rows_alone(features, as_floats(batches[0]))
    shape = (len(inputs), *first.shape[1:])
    made = (allocate or _in_memory)("features", first.dtype, shape)

    def write(i: int) -> None:
        start = i * IMAGES_AT_ONCE
        made[start : start + IMAGES_AT_ONCE] = _of_batch(features, batches[i])

    for _ in ordered_map(write, range(len(batches))):
        pass
    return made


def first_features(features: FeatureMap, inputs: NDArray[Any]) -> NDArray[np.float16]:
    """The first rows that `apply_features` gives, bit for bit; raises as it does."""
    if inputs.dtype.kind not in "uf" or inputs.dtype.itemsize > 4:
        raise ParameterError("inputs", str(inputs.dtype), "an array of uint8 or of floats")
    return _of_batch(features, as_tensor(inputs[:IMAGES_AT_ONCE]))


def _of_batch(features: FeatureMap, inputs: Tensor) -> NDArray[np.float16]:
    """Features of a few inputs as they are kept."""
    with torch.no_grad():
        made = features(as_floats(inputs)).half()
    if not torch.isfinite(made).all():
        raise ParameterError("model.features", features.text, "features within ±65504")
    return made.numpy()


def standardized(images: Tensor) -> Tensor:
    """Each image shifted and scaled to mean 0 and variance 1 (a constant image becomes 0)."""
    flat = images.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    return (centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()).view(images.shape)


def normalised_scattering(images: Tensor) -> Tensor:
    """Scattering maps, each group of three shifted and scaled to mean 0, variance 1; flat.

    No grey image's features then have a norm above √(their number), 63 for MNIST, where the mean
    is 49: clipping treats clients nearly alike. Each channel of a colour image has maps of its
    own.
    """
    # Imported here: few runs need it, and its filters take a moment.
    from turnout.learning.scattering import scattering

    channels = _channels("scattering", images)
    if channels.shape[2] != channels.shape[3]:
        raise ParameterError("features", "scattering", f"square images, not {_shape(images)}")
    maps = scattering(channels.flatten(0, 1))
    return functional.group_norm(maps, NORMALISATION_GROUPS).reshape(len(images), -1)


def _hog(images: Tensor) -> Tensor:
    from turnout.learning.hog import histograms_of_gradients

    return histograms_of_gradients(_channels("hog", images))


def _hog_cells(images: Tensor) -> Tensor:
    from turnout.learning.hog import cell_histograms

    return cell_histograms(_channels("hog-cells", images))


def _deskewed(images: Tensor) -> Tensor:
    from turnout.learning.deskewing import deskewed

    if images.ndim != 3:
        expected = f"grey images (height, width), not {_shape(images)}"
        raise ParameterError("features", "deskewed", expected)
    return deskewed(images)


def _unchanged(inputs: Tensor) -> Tensor:
    return inputs


FEATURES: Mapping[str, FeatureFunction] = {
    "pixels": _unchanged,
    "standardized": standardized,
    "deskewed": _deskewed,
    "scattering": normalised_scattering,
    "hog": _hog,
    "hog-cells": _hog_cells,
}
"""Features by the name an expression gives them."""


def _channels(name: str, images: Tensor) -> Tensor:
    """Images (n, height, width) or (n, height, width, channels) as (n, channels, height, width)."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        expected = f"images (height, width) or (height, width, channels), not {_shape(images)}"
        raise ParameterError("features", name, expected)
    return images.permute(0, 3, 1, 2)


def _shape(images: Tensor) -> tuple[int, ...]:
    return tuple(images.shape[1:])


def _side_by_side(parts: list[Tensor]) -> Tensor:
    """Values of each function, flat and scaled to weigh the same."""
    flat = [part.flatten(1) for part in parts]
    total = sum(part.shape[1] for part in flat)
    scales = [math.sqrt(total / (len(flat) * part.shape[1])) for part in flat]
    return torch.cat([scale * part for scale, part in zip(scales, flat, strict=True)], dim=1)


def _own(found: Any, name: str) -> FeatureFunction:
    """A function of the user's own; what it raises and gives is checked."""
    key = "model.features"
    if not callable(found) or isinstance(found, type):
        expected = "a function of inputs (n, …) that gives features (n, …), or a torch.nn.Module"
        raise ParameterError(key, name, expected)
    if isinstance(found, nn.Module):
        found = found.eval()

    def checked(inputs: Tensor) -> Tensor:
        try:
            made = found(inputs)
        except Exception as error:  # whatever the user's code raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            expected = f"a function that takes inputs {_shape(inputs)}, but {reason}"
            raise ParameterError(key, name, expected) from None
        if not isinstance(made, Tensor) or made.ndim < 2 or len(made) != len(inputs):
            shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            expected = f"features of shape ({len(inputs)}, …) for {len(inputs)} inputs, not {shape}"
            raise ParameterError(key, name, expected)
        return made.float()

    return checked


def _check_rows_alone(features: FeatureMap, inputs: Tensor) -> None:
    """Nothing where features are not drawn at random and do not mix examples, as far as seen."""
    with torch.no_grad():
        if not torch.equal(features(inputs), features(inputs)):
            raise ParameterError("model.features", features.text, "a function that draws nothing")
        if not stands_alone(features, inputs, lambda _: features):
            expected = "features of an input that do not change with the others of its batch"
            raise ParameterError("model.features", features.text, expected)


def _in_memory(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.empty(shape, dtype)
