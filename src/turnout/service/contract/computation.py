"""The computation of a device, in formats with names: enough to compute it without the plan.

`Computation` lists the artefacts of a charter, `Labels` checks a device's labels against the
graph's. A format that is not named here is refused. A new format is a new name, and no new version
of the protocol: devices that know it take part in tasks that name it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.core.feature_expressions import BESIDE, MOST_NAMES, THEN, feature_stages, names_code
from turnout.core.feature_expressions import FEATURES as FEATURE_NAMES

if TYPE_CHECKING:
    from turnout.plans import Plan

PARAMETERS_FORMAT, CLIENT_FORMAT = "float32-le-1", "gradient-descent-1"
ARCHITECTURES = {name: f"{name}-1" for name in ("logistic", "tanh-cnn-13k", "tanh-cnn-26k")}
FEATURES = {name: f"{name}-1" for name in FEATURE_NAMES}
"""Formats by the names that a plan has for them; an expression of names is one of formats."""

UPDATE_GRAPH, LABELLED_GRAPH = "onnx-update-1", "onnx-update-2"
FEATURES_GRAPH = "onnx-features-1"
"""Formats of what the charter names by digest: a graph that devices run, whatever computes it.

The second of an update takes other labels than one class a record.
"""

UPDATE_GRAPHS = (UPDATE_GRAPH, LABELLED_GRAPH)
KNOWN_ARCHITECTURES = (*ARCHITECTURES.values(), *UPDATE_GRAPHS)
KNOWN_FEATURES = (*FEATURES.values(), FEATURES_GRAPH)
"""All formats that a charter may name; of features expressions too."""

MOST_ARTEFACT_BYTES, MOST_VECTOR_BYTES = 1 << 26, 1 << 22
"""Of one graph, and of the vectors to it; a device downloads no more."""


def features_format(text: str) -> str:
    """The format of an expression for features; "pixels-1" where it names the user's own code.

    >>> features_format("deskewed | scattering + hog")
    'deskewed-1|scattering-1+hog-1'
    """
    if names_code(text):
        return FEATURES["pixels"]
    return THEN.join(
        BESIDE.join(FEATURES[name] for name in stage) for stage in feature_stages(text)
    )


def features_expression(form: str) -> str:
    """The expression of a known format; `features_format` gives the format again."""
    names = {form: name for name, form in FEATURES.items()}
    stages = (stage.split(BESIDE) for stage in form.split(THEN))
    return THEN.join(BESIDE.join(names[one] for one in stage) for stage in stages)


def is_known_features(form: str) -> bool:
    """Whether a charter may name that format: one of the above, or an expression of them."""
    parts = [one for stage in form.split(THEN) for one in stage.split(BESIDE)]
    known = set(FEATURES.values())
    return form == FEATURES_GRAPH or (len(parts) <= MOST_NAMES and known.issuperset(parts))


@dataclass(frozen=True, slots=True)
class Artefact:
    """Bytes that the charter names, and that the coordinator hands out under their digest.

    Attributes:
        digest: SHA-256, 32 bytes.
        size: bytes.
    """

    digest: bytes
    size: int

    def __post_init__(self) -> None:
        if len(self.digest) != hashlib.sha256().digest_size:
            raise ParameterError("digest", self.digest.hex(), "a SHA-256")
        checks.count(size=self.size)
        checks.at_most("the largest artefact in bytes", MOST_ARTEFACT_BYTES, size=self.size)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """The name of some bytes."""
        return cls(hashlib.sha256(content).digest(), len(content))

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The one that `document` wrote."""
        return cls(bytes.fromhex(document["digest"]), document["size"])

    def document(self) -> dict[str, Any]:
        """Its part of the charter."""
        return {"digest": self.digest.hex(), "size": self.size}

    def checked(self, content: bytes) -> bytes:
        """The content itself.

        Raises:
            RemoteProtocolError: it is something else.
        """
        if Artefact.of(content) != self:
            raise RemoteProtocolError("an artefact is not the one that the charter names")
        return content


@dataclass(frozen=True, slots=True)
class Computation:
    """A client's update as a function of parameters and records (docs/device-protocol.md).

    Attributes:
        architecture: format of the model: what the parameters are, and in which order.
        features: format of the function from a record's input to the model's.
        classes: labels are 0 … classes − 1; with ``labels``, outputs of the model.
        update: the graph of an architecture of `UPDATE_GRAPHS`; None with all others.
        vectors: what it must give for known parameters and records; as ``update``.
        feature_map: the graph of the features `FEATURES_GRAPH`; None with all others.
        labels: of the architecture `LABELLED_GRAPH`; None with all others, one class a record.
    """

    architecture: str = ARCHITECTURES["logistic"]
    features: str = FEATURES["pixels"]
    input_shape: tuple[int, ...] = (1,)
    classes: int = 2
    steps: int = 1
    learning_rate: float = 1.0
    update: Artefact | None = None
    vectors: Artefact | None = None
    feature_map: Artefact | None = None
    labels: Labels | None = None

    def __post_init__(self) -> None:
        if self.architecture not in KNOWN_ARCHITECTURES:
            expected = f"one of {', '.join(KNOWN_ARCHITECTURES)}"
            raise ParameterError("architecture", self.architecture, expected)
        if not is_known_features(self.features):
            raise ParameterError("features", self.features, f"one of {', '.join(KNOWN_FEATURES)}")
        for name, artefact, is_due in (
            ("update", self.update, self.architecture in UPDATE_GRAPHS),
            ("vectors", self.vectors, self.architecture in UPDATE_GRAPHS),
            ("feature_map", self.feature_map, self.features == FEATURES_GRAPH),
        ):
            if (artefact is not None) is not is_due:
                expected = "an artefact" if is_due else "none: the format has a name of its own"
                raise ParameterError(name, artefact, expected)
        if (self.labels is not None) is not (self.architecture == LABELLED_GRAPH):
            raise ParameterError("labels", self.labels, f"given for {LABELLED_GRAPH} alone")
        if self.vectors is not None:
            checks.at_most(
                "the largest vectors in bytes", MOST_VECTOR_BYTES, size=self.vectors.size
            )
        if not self.input_shape:
            raise ParameterError("input_shape", self.input_shape, "at least one side")
        checks.count(**{f"input_shape[{i}]": side for i, side in enumerate(self.input_shape)})
        checks.count(2 if self.labels is None else 1, classes=self.classes)
        checks.count(steps=self.steps)
        checks.positive(learning_rate=self.learning_rate)

    @classmethod
    def of(cls, plan: Plan, input_shape: tuple[int, ...], classes: int) -> Self:
        """The computation that a plan asks of the clients, for inputs of that shape.

        A module or a feature function of the user's own has no name here: its graph must take the
        place of what stands for it.
        """
        return cls(
            ARCHITECTURES[plan.model.name or "logistic"],
            features_format(plan.model.features),
            tuple(int(side) for side in input_shape),
            int(classes),
            plan.client.steps,
            plan.client.learning_rate,
        )

    def model_document(self, first: bytes) -> dict[str, Any]:
        """The charter's ``model``; ``first`` is the digest of the first parameters."""
        return {
            "format": PARAMETERS_FORMAT,
            "digest": first.hex(),
            "architecture": {"format": self.architecture, "classes": self.classes}
            | _named(artefact=self.update, vectors=self.vectors, labels=self.labels),
            "features": {"format": self.features, "input_shape": list(self.input_shape)}
            | _named(artefact=self.feature_map),
        }

    @property
    def artefacts(self) -> tuple[Artefact, ...]:
        """All that a device needs beside the charter."""
        every = (self.update, self.vectors, self.feature_map)
        return tuple(artefact for artefact in every if artefact is not None)

    def client_document(self) -> dict[str, Any]:
        """The charter's ``client``."""
        return {
            "format": CLIENT_FORMAT,
            "steps": self.steps,
            "learning_rate": self.learning_rate,
        }

    @classmethod
    def from_documents(cls, model: dict[str, Any], client: dict[str, Any]) -> Self:
        """The computation of the two documents."""
        architecture, features = model["architecture"], model["features"]
        return cls(
            architecture["format"],
            features["format"],
            tuple(features["input_shape"]),
            architecture["classes"],
            client["steps"],
            client["learning_rate"],
            _artefact(architecture, "artefact"),
            _artefact(architecture, "vectors"),
            _artefact(features, "artefact"),
            Labels.from_document(architecture["labels"]) if "labels" in architecture else None,
        )


def _named(**artefacts: Artefact | Labels | None) -> dict[str, Any]:
    """Their documents; nothing of those that are not there."""
    return {name: one.document() for name, one in artefacts.items() if one is not None}


def _artefact(document: dict[str, Any], name: str) -> Artefact | None:
    return Artefact.from_document(document[name]) if name in document else None


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
