"""Labels of a device's records, as the graph of a charter takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError

KINDS = ("tags", "numbers", "tokens")
"""Kinds of labels beside one class a record."""

MOST_SIDE = 1 << 20
"""Of a record's label."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The label of a record, where it is not one class.

    Attributes:
        kind: "tags", 0 or 1 each; "numbers", finite; or "tokens", whole numbers from 0, and −1
            where there is none to predict.
        count: of them in a record's label.
    """

    kind: str
    count: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError("labels", self.kind, f"one of {', '.join(KINDS)}")
        checks.count(count=self.count)
        checks.at_most("the largest number of labels a record", MOST_SIDE, count=self.count)

    @property
    def dtype(self) -> type[np.float32] | type[np.int64]:
        """Of the graph's input."""
        return np.int64 if self.kind == "tokens" else np.float32

    def document(self) -> dict[str, Any]:
        """Its part of the charter."""
        return {"kind": self.kind, "count": self.count}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The one that `document` wrote."""
        return cls(document["kind"], document["count"])


def checked_labels(labels: NDArray[Any], form: Labels | None, outputs: int) -> NDArray[Any]:
    """Labels of the type that the graph takes: int64 ``(m,)``, or ``(m, count)`` of ``form``.

    Args:
        labels: of a device's records.
        form: what the charter says of them; None for one class a record.
        outputs: classes, tags, numbers, or tokens of the vocabulary.

    Raises:
        ParameterError: labels of another shape, type or range.
    """
    whole = np.issubdtype(labels.dtype, np.integer)
    if form is None:
        if labels.ndim != 1 or not whole:
            raise ParameterError("labels", (labels.dtype, labels.shape), "one class a record")
        return _within(labels, 0, outputs - 1, f"classes 0 to {outputs - 1}").astype(np.int64)
    if labels.shape[1:] != (form.count,):
        raise ParameterError("labels", labels.shape, f"a row of {form.count} {form.kind} a record")
    if form.kind == "tokens":
        if not whole:
            raise ParameterError("labels", str(labels.dtype), "whole numbers")
        expected = f"tokens 0 to {outputs - 1}, or −1"
        return _within(labels, -1, outputs - 1, expected).astype(np.int64)
    if labels.dtype.kind not in "fiub":
        raise ParameterError("labels", str(labels.dtype), "numbers")
    if form.kind == "tags" and not np.isin(labels, (0, 1)).all():
        raise ParameterError("labels", "other numbers", "0 or 1 for each tag")
    made = labels.astype(np.float32)
    if not np.isfinite(made).all():
        row = int(np.flatnonzero(~np.isfinite(made).all(axis=1))[0])
        raise ParameterError("labels", f"row {row}: {labels[row]}", "finite numbers")
    return made


def _within(labels: NDArray[Any], low: int, high: int, expected: str) -> NDArray[Any]:
    """Whole numbers of that range."""
    for found in (int(labels.min()), int(labels.max())):
        if not low <= found <= high:
            raise ParameterError("labels", found, expected)
    return labels
