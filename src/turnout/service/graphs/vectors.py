"""Test vectors of a task whose model devices run as a graph, and the device's check of them.

A `Vector` has known parameters and records and the clipped update that they give. With a vector a
device in any language checks its own computation before it participates (docs/device-protocol.md);
`require_all` is this check. `task_graphs` makes the vectors when a task is created. Long vectors
are given by a formula: vᵢ = float32(scale·(((multiplier·i) mod modulus)/modulus − ½)).

Devices without PyTorch import this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import RemoteProtocolError
from turnout.service.contract.computation import Labels

FORMAT, LABELLED_FORMAT = "update-vectors-1", "update-vectors-2"
"""Formats of test vectors: labels that are classes; labels that are lists of numbers."""
TOLERANCE = 1e-4
"""Largest difference between two computations of an update, in units of its norm."""

_MOST_CASES = 16

Updates = Callable[[NDArray[np.float32], NDArray[Any], NDArray[Any], float], NDArray[Any]]
"""Clipped update from parameters (d,), the model's inputs (m, …), labels (m, …) and clip norm."""


@dataclass(frozen=True, slots=True)
class Vector:
    """One test vector of a model's update.

    Attributes:
        parameters: formula of the parameters.
        inputs: the model's input for each record, as a formula or a list of numbers.
        shape: shape of each input.
        labels: labels of the records: classes, or rows of numbers.
        clip_norm: clip norm C of the update.
        every: distance between the indices of two successive coordinates in ``update``.
        update: the coordinates 0, every, 2·every, … of the clipped update.
        norm: ℓ2 norm of the whole clipped update.
        form: format of labels that are not classes.
    """

    parameters: dict[str, Any]
    inputs: tuple[Any, ...]
    shape: tuple[int, ...]
    labels: tuple[Any, ...]
    clip_norm: float
    every: int
    update: tuple[float, ...]
    norm: float
    form: Labels | None = None

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any]]:
        """Arrays of the vector: parameters (d,), inputs (m, …) and labels (m,) or (m, count)."""
        rows = [filled(given).reshape(self.shape) for given in self.inputs]
        kind = np.int64 if self.form is None else self.form.dtype
        return filled(self.parameters), np.stack(rows), np.array(self.labels, kind)

    def require_fit(self, dimension: int, shape: tuple[int, ...]) -> None:
        """Check that the vector's sizes fit a model, before arrays of these sizes are allocated.

        Args:
            dimension: number of the model's parameters d.
            shape: shape of the model's input for one record.

        Raises:
            ValueError: the vector's sizes do not fit the model.
        """
        sizes = [_length(given) for given in self.inputs]
        few = 0 < len(sizes) == len(self.labels) <= _MOST_CASES
        fits = _length(self.parameters) == dimension and set(sizes) <= {prod(shape)}
        sides = () if self.form is None else (self.form.count,)
        labelled = all(np.shape(label) == sides for label in self.labels)
        if not (few and fits and labelled and self.shape == shape and self.every > 0):
            raise ValueError("the sizes of a test vector do not fit the model")

    def document(self) -> dict[str, Any]:
        """The vector's JSON fields."""
        return {
            "parameters": self.parameters,
            "inputs": list(self.inputs),
            "shape": list(self.shape),
            "labels": list(self.labels),
            "clip_norm": self.clip_norm.hex(),
            "every": self.every,
            "update": list(self.update),
            "norm": self.norm,
        }


def formula(length: int, multiplier: int, modulus: int, scale: float) -> dict[str, Any]:
    """JSON fields of the formula that gives ``length`` numbers (see the head of this module)."""
    return {"length": length, "multiplier": multiplier, "modulus": modulus, "scale": scale}


def _length(given: Any) -> int:
    return len(given) if isinstance(given, list) else int(given["length"])


def filled(given: Any) -> NDArray[np.float32]:
    """Numbers of a JSON list or of a `formula`, as a flat array.

    Args:
        given: list of numbers, or JSON fields of a formula.

    Returns:
        float32 ``(n,)``; int64 ``(n,)`` for a list of whole numbers.

    Raises:
        ValueError: the modulus of the formula is below 1.
        KeyError: the formula lacks a field.
    """
    if isinstance(given, list):
        numbers = np.array(given)
        return numbers if numbers.dtype == np.int64 else numbers.astype(np.float32)
    modulus = int(given["modulus"])
    if modulus < 1:
        raise ValueError(f"modulus = {modulus}: expected at least 1")
    i = np.arange(int(given["length"]), dtype=np.int64)
    fractions = i * int(given["multiplier"]) % modulus / modulus
    return (float(given["scale"]) * (fractions - 0.5)).astype(np.float32)


def encoded(vectors: Sequence[Vector]) -> bytes:
    """Contents of a file of test vectors, ASCII JSON, which the charter names by digest."""
    form = FORMAT if vectors[0].form is None else LABELLED_FORMAT
    document = {"format": form, "vectors": [each.document() for each in vectors]}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def decode_vectors(data: bytes, labels: Labels | None = None) -> list[Vector]:
    """Test vectors of a file; ``labels`` is their format, None for classes.

    Raises:
        RemoteProtocolError: the file has another format or other contents.
    """
    try:
        document, form = json.loads(data), FORMAT if labels is None else LABELLED_FORMAT
        if document["format"] != form or not 0 < len(document["vectors"]) <= _MOST_CASES:
            raise ValueError(f"expected 1 to {_MOST_CASES} vectors in the format {form}")
        return [_vector(each, labels) for each in document["vectors"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"the charter's test vectors are invalid: {error}") from None


def _vector(fields: dict[str, Any], labels: Labels | None) -> Vector:
    return Vector(
        fields["parameters"],
        tuple(fields["inputs"]),
        tuple(int(side) for side in fields["shape"]),
        tuple(int(each) if labels is None else list(each) for each in fields["labels"]),
        float.fromhex(fields["clip_norm"]),
        int(fields["every"]),
        tuple(float(number) for number in fields["update"]),
        float(fields["norm"]),
        labels,
    )


def require_all(
    vectors: Sequence[Vector], compute: Updates, dimension: int, shape: tuple[int, ...]
) -> None:
    """Check that a computation gives the updates of all test vectors, up to `TOLERANCE`.

    Args:
        vectors: the test vectors.
        compute: the computation of a clipped update.
        dimension: number of the model's parameters d.
        shape: shape of the model's input for one record.

    Raises:
        RemoteProtocolError: an update differs, or the vectors do not fit the model; the device must
            not participate.
    """
    for number, vector in enumerate(vectors):
        try:
            vector.require_fit(dimension, shape)
            parameters, inputs, labels = vector.arrays()
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise RemoteProtocolError(f"the charter's test vectors are invalid: {error}") from None
        # Compare the kept coordinates and the norm of the whole update.
        made = np.asarray(compute(parameters, inputs, labels, vector.clip_norm), np.float64)
        known = np.array(vector.update)
        room = TOLERANCE * max(vector.norm, 1e-12)
        part = made[:: vector.every]
        fits = part.shape == known.shape and bool(np.all(np.abs(part - known) <= room))
        if not (fits and abs(float(np.linalg.norm(made)) - vector.norm) <= room):
            raise RemoteProtocolError(
                f"the charter's graph gives another update on this device than test vector {number}"
            )
