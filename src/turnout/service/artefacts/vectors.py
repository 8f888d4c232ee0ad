"""Vectors to a graph: known parameters and records, and what their clipped update is.

With them a device in any language checks itself before it takes part (docs/device-protocol.md).
Long vectors are given by a formula: vᵢ = float32(scale·(((multiplier·i) mod modulus)/modulus − ½)).
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
from turnout.service.labels import Labels

FORMAT, LABELLED_FORMAT = "update-vectors-1", "update-vectors-2"
"""Of classes; of other labels, each a list."""
TOLERANCE = 1e-4
"""Largest difference of two computations of an update, in units of its norm."""

_MOST_CASES = 16

Updates = Callable[[NDArray[np.float32], NDArray[Any], NDArray[Any], float], NDArray[Any]]
"""The clipped update of parameters (d,), featured records (m, …), labels (m, …) and clip norm."""


@dataclass(frozen=True, slots=True)
class Vector:
    """One case.

    Attributes:
        parameters: formula of the parameters.
        inputs: formulas or lists of the records' numbers as the model sees them.
        shape: the shape of each.
        labels: of the records: classes, or rows of numbers.
        clip_norm: C.
        every: the update's coordinates 0, every, 2·every, … are in ``update``.
        update: those of the clipped update.
        norm: ℓ2 norm of the whole clipped update.
        form: of labels that are not classes.
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
        """Parameters (d,), inputs (m, …) and labels, (m,) or (m, count)."""
        rows = [filled(given).reshape(self.shape) for given in self.inputs]
        kind = np.int64 if self.form is None else self.form.dtype
        return filled(self.parameters), np.stack(rows), np.array(self.labels, kind)

    def require_fit(self, dimension: int, shape: tuple[int, ...]) -> None:
        """Nothing where its sizes are those of the model: only then is it made.

        Raises:
            ValueError: others.
        """
        sizes = [_length(given) for given in self.inputs]
        few = 0 < len(sizes) == len(self.labels) <= _MOST_CASES
        fits = _length(self.parameters) == dimension and set(sizes) <= {prod(shape)}
        sides = () if self.form is None else (self.form.count,)
        labelled = all(np.shape(label) == sides for label in self.labels)
        if not (few and fits and labelled and self.shape == shape and self.every > 0):
            raise ValueError("a vector is of another model")

    def document(self) -> dict[str, Any]:
        """Its part of the file."""
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
    """A long vector in a few numbers."""
    return {"length": length, "multiplier": multiplier, "modulus": modulus, "scale": scale}


def _length(given: Any) -> int:
    return len(given) if isinstance(given, list) else int(given["length"])


def filled(given: Any) -> NDArray[np.float32]:
    """The numbers of a list, or of a formula, flat; whole numbers stay whole."""
    if isinstance(given, list):
        numbers = np.array(given)
        return numbers if numbers.dtype == np.int64 else numbers.astype(np.float32)
    modulus = int(given["modulus"])
    if modulus < 1:
        raise ValueError("a formula has a modulus of at least 1")
    i = np.arange(int(given["length"]), dtype=np.int64)
    fractions = i * int(given["multiplier"]) % modulus / modulus
    return (float(given["scale"]) * (fractions - 0.5)).astype(np.float32)


def encoded(vectors: Sequence[Vector]) -> bytes:
    """The file that the charter names."""
    form = FORMAT if vectors[0].form is None else LABELLED_FORMAT
    document = {"format": form, "vectors": [each.document() for each in vectors]}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def decoded(data: bytes, labels: Labels | None = None) -> list[Vector]:
    """The vectors in a file, for such labels; None for classes.

    Raises:
        RemoteProtocolError: it holds something else.
    """
    try:
        document, form = json.loads(data), FORMAT if labels is None else LABELLED_FORMAT
        if document["format"] != form or not 0 < len(document["vectors"]) <= _MOST_CASES:
            raise ValueError(f"not {form}")
        return [_vector(each, labels) for each in document["vectors"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"the charter's vectors are none: {error}") from None


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
    """Nothing where the updates are those of the vectors, for records of that shape.

    Raises:
        RemoteProtocolError: one is not; nothing may be sent that is computed so.
    """
    for number, vector in enumerate(vectors):
        try:
            vector.require_fit(dimension, shape)
            parameters, inputs, labels = vector.arrays()
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise RemoteProtocolError(f"the charter's vectors are none: {error}") from None
        made = np.asarray(compute(parameters, inputs, labels, vector.clip_norm), np.float64)
        told = np.array(vector.update)
        room = TOLERANCE * max(vector.norm, 1e-12)
        part = made[:: vector.every]
        fits = part.shape == told.shape and bool(np.all(np.abs(part - told) <= room))
        if not (fits and abs(float(np.linalg.norm(made)) - vector.norm) <= room):
            raise RemoteProtocolError(
                f"the charter's graph gives another update here than its vector {number} says"
            )
