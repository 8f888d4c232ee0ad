"""Contents that a charter names for a model that devices run as a graph; imports PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import numpy as np
import torch
from torch import Tensor

from turnout.core.errors import NumericalError
from turnout.learning.local_updates import LocalTraining
from turnout.learning.models import Model
from turnout.service.artefacts import vectors
from turnout.service.artefacts.exporting import (
    Loss,
    cross_entropy,
    features_graph,
    update_function,
    update_graph,
)
from turnout.service.artefacts.graphs import read_graph
from turnout.service.artefacts.vectors import Vector, formula
from turnout.service.computation import (
    FEATURES_GRAPH,
    LABELLED_GRAPH,
    UPDATE_GRAPH,
    Artefact,
    Computation,
)
from turnout.service.labels import Labels

_NUMBERS_KEPT = 200
"""Of each vector's update; more would tell no more."""


def as_graph(
    computation: Computation,
    model: Model,
    example: Tensor,
    *,
    loss: Loss = cross_entropy,
    labels: Labels | None = None,
    features: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Computation, list[bytes]]:
    """The same computation with the model as a graph, and the contents to hand out.

    Args:
        computation: of a model by whatever name.
        model: the model itself.
        example: a record as the model sees it, float32 or int64; only type and shape count.
        loss: of each record.
        labels: what they are, where they are not classes.
        features: a feature function that has no name, from float32 ``(n, *input_shape)``.

    Raises:
        UnsupportedError: a graph cannot say what the model or the features do.
        NumericalError: no update is finite, so no vector can be given.
    """
    local = LocalTraining(computation.steps, computation.learning_rate)
    blank = torch.zeros_like(example)
    graph = update_graph(model, blank, local, loss, labels)
    read_graph(graph)
    function = update_function(model, local, loss, labels)
    known = vectors.encoded(_vectors(model, blank, function, labels, computation.classes))
    made = replace(
        computation,
        architecture=UPDATE_GRAPH if labels is None else LABELLED_GRAPH,
        labels=labels,
        update=Artefact.of(graph),
        vectors=Artefact.of(known),
    )
    contents = [graph, known]
    if features is not None:
        mapped = features_graph(features, torch.zeros(computation.input_shape))
        read_graph(mapped)
        made = replace(made, features=FEATURES_GRAPH, feature_map=Artefact.of(mapped))
        contents.append(mapped)
    return made, contents


def _vectors(
    model: Model,
    example: Tensor,
    function: Callable[..., Tensor],
    form: Labels | None,
    classes: int,
) -> list[Vector]:
    """A vector that is clipped, and one of three records that is not."""
    made = []
    for records, clip_norm in ((1, 1e-3), (3, 1e6)):
        parameters = formula(model.dimension, 7919, 10007, 0.2)
        inputs = tuple(_input(example, 31 + 2 * i) for i in range(records))
        labels = tuple(_label(form, i, classes) for i in range(records))
        vector = Vector(
            parameters,
            inputs,
            tuple(example.shape),
            labels,
            clip_norm,
            ceil(model.dimension / _NUMBERS_KEPT),
            (),
            0.0,
            form,
        )
        update = _computed(function, vector)
        kept = tuple(float(number) for number in update[:: vector.every])
        made.append(replace(vector, update=kept, norm=float(np.linalg.norm(update))))
    return made


def _label(form: Labels | None, i: int, outputs: int) -> int | list[float] | list[int]:
    """The label of a vector's record."""
    if form is None:
        return (5 * i + 1) % outputs
    if form.kind == "numbers":
        return [(7 * (i + j) % 11) / 8 - 0.5 for j in range(form.count)]
    if form.kind == "tags":
        return [float((i + j) % 3 == 0) for j in range(form.count)]
    return [(5 * (i + j) + 1) % (outputs + 1) - 1 for j in range(form.count)]


def _input(example: Tensor, multiplier: int) -> object:
    """A record of that shape."""
    count = example.numel()
    if example.dtype == torch.int64:
        return [0] * count
    return formula(count, multiplier, 257, 1.0)


def _computed(function: Callable[..., Tensor], vector: Vector) -> np.ndarray:
    """The clipped update, by PyTorch itself and not by the graph."""
    parameters, inputs, labels = vector.arrays()
    arguments = [torch.from_numpy(each) for each in (parameters, inputs, labels)]
    weights = torch.full((len(labels),), 1 / len(labels))
    bound = torch.tensor(vector.clip_norm, dtype=torch.float64)
    update = function(*arguments, weights, bound)
    made = update.detach().double().numpy()
    if not np.isfinite(made).all():
        raise NumericalError("the model's update is not finite for the vectors of a charter")
    return made
