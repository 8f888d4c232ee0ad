"""Graph and test vectors of a task whose model devices run as a graph; imports PyTorch.

`graph_computation` makes both when a task is created (`coordinator.new_task`). The devices use
them through `updates` and `vectors`.
"""

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
from turnout.service.contract.computation import (
    FEATURES_GRAPH,
    LABELLED_GRAPH,
    UPDATE_GRAPH,
    Artefact,
    Computation,
    Labels,
)
from turnout.service.graphs.exporting import (
    Loss,
    cross_entropy,
    features_graph,
    update_function,
    update_graph,
)
from turnout.service.graphs.format import read_graph
from turnout.service.graphs.vectors import Vector, encoded, formula

_NUMBERS_KEPT = 200
"""Kept coordinates of each vector's update; more would not detect more errors."""


def graph_computation(
    computation: Computation,
    model: Model,
    example: Tensor,
    *,
    loss: Loss = cross_entropy,
    labels: Labels | None = None,
    features: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Computation, list[bytes]]:
    """Computation whose model is a graph, and its artefacts: graph, test vectors, features.

    Args:
        computation: computation of the task, in which the graph replaces the model's name.
        model: the model itself.
        example: a record in the form of the model's input, float32 or int64; its values are not
            used.
        loss: loss function of each record.
        labels: format of labels that are not classes.
        features: a feature function without a name, from float32 ``(n, *input_shape)``.

    Raises:
        UnsupportedError: ONNX cannot express an operation of the model or of the features.
        NumericalError: an update on a test vector is not finite.
    """
    # The update as a graph, which must pass the device's own check, and its test vectors.
    local = LocalTraining(computation.steps, computation.learning_rate)
    blank = torch.zeros_like(example)
    graph = update_graph(model, blank, local, loss, labels)
    read_graph(graph)
    function = update_function(model, local, loss, labels)
    known = encoded(_vectors(model, blank, function, labels, computation.classes))
    # The charter names graph and vectors by digest; a feature function without a name becomes a
    # third artefact.
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
    """Two test vectors: one record with a clipped update; three records with an unclipped one."""
    # One record with a clip norm below the norm of the update, three with one far above it.
    made = []
    for records, clip_norm in ((1, 1e-3), (3, 1e6)):
        # Inputs and labels that differ from record to record, by formulas that any language has.
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
        # The update that PyTorch computes, of which every k-th coordinate is kept.
        update = _computed(function, vector)
        kept = tuple(float(number) for number in update[:: vector.every])
        made.append(replace(vector, update=kept, norm=float(np.linalg.norm(update))))
    return made


def _label(form: Labels | None, i: int, outputs: int) -> int | list[float] | list[int]:
    """The label of a test vector's record ``i``."""
    if form is None:
        return (5 * i + 1) % outputs
    if form.kind == "numbers":
        return [(7 * (i + j) % 11) / 8 - 0.5 for j in range(form.count)]
    if form.kind == "tags":
        return [float((i + j) % 3 == 0) for j in range(form.count)]
    return [(5 * (i + j) + 1) % (outputs + 1) - 1 for j in range(form.count)]


def _input(example: Tensor, multiplier: int) -> object:
    """A test vector's record with the shape and type of ``example``."""
    count = example.numel()
    if example.dtype == torch.int64:
        return [0] * count
    return formula(count, multiplier, 257, 1.0)


def _computed(function: Callable[..., Tensor], vector: Vector) -> np.ndarray:
    """The clipped update, computed by PyTorch rather than by the graph."""
    parameters, inputs, labels = vector.arrays()
    arguments = [torch.from_numpy(each) for each in (parameters, inputs, labels)]
    weights = torch.full((len(labels),), 1 / len(labels))
    bound = torch.tensor(vector.clip_norm, dtype=torch.float64)
    update = function(*arguments, weights, bound)
    made = update.detach().double().numpy()
    if not np.isfinite(made).all():
        raise NumericalError("the model's update is not finite on the charter's test vectors")
    return made
