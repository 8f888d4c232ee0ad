"""The computation of a device's update, described by names of formats instead of by a plan.

`Computation` names the model, the features and the local steps. `Artefact` is content that the
charter names by digest, such as a graph. `Labels` is the format of a record's label, and
`checked_labels` checks labels against this format. A format that is not named here is refused. A
new format gets a new name, and the version of the protocol stays the same: a device that knows the
format can participate in tasks that use it.
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
"""Formats by their names in a plan; an expression of names becomes an expression of formats."""

UPDATE_GRAPH, LABELLED_GRAPH = "onnx-update-1", "onnx-update-2"
FEATURES_GRAPH = "onnx-features-1"
"""Formats of graphs, which the charter names by digest and devices run.

`LABELLED_GRAPH` is for labels other than one class for each record.
"""

UPDATE_GRAPHS = (UPDATE_GRAPH, LABELLED_GRAPH)
KNOWN_ARCHITECTURES = (*ARCHITECTURES.values(), *UPDATE_GRAPHS)
KNOWN_FEATURES = (*FEATURES.values(), FEATURES_GRAPH)
"""Formats that a charter may name; for features also expressions of them."""

MOST_ARTEFACT_BYTES, MOST_VECTOR_BYTES = 1 << 26, 1 << 22
"""Largest graph and largest test vectors in bytes; a device downloads no more."""


def features_format(text: str) -> str:
    """Format name of a feature expression; "pixels-1" if the expression names custom code.

    Args:
        text: feature expression.

    Raises:
        ParameterError: a name is unknown or missing, or there are too many names.

    >>> features_format("deskewed | scattering + hog")
    'deskewed-1|scattering-1+hog-1'
    """
    if names_code(text):
        return FEATURES["pixels"]
    return THEN.join(
        BESIDE.join(FEATURES[name] for name in stage) for stage in feature_stages(text)
    )


def features_expression(form: str) -> str:
    """Feature expression of a known format name, the inverse of `features_format`.

    Args:
        form: format name that `features_format` returned.

    Raises:
        KeyError: a part of the name is unknown.
    """
    names = {form: name for name, form in FEATURES.items()}
    stages = (stage.split(BESIDE) for stage in form.split(THEN))
    return THEN.join(BESIDE.join(names[one] for one in stage) for stage in stages)


def is_known_features(form: str) -> bool:
    """Whether ``form`` is a feature format that charters may use: a known name or an expression."""
    parts = [one for stage in form.split(THEN) for one in stage.split(BESIDE)]
    known = set(FEATURES.values())
    return form == FEATURES_GRAPH or (len(parts) <= MOST_NAMES and known.issuperset(parts))


@dataclass(frozen=True, slots=True)
class Artefact:
    """Content that the coordinator serves and the charter names by SHA-256, such as a graph.

    Attributes:
        digest: SHA-256, 32 bytes.
        size: length in bytes, at most ``MOST_ARTEFACT_BYTES``.

    Raises:
        ParameterError: the digest has another length, or the size is larger.
    """

    digest: bytes
    size: int

    def __post_init__(self) -> None:
        if len(self.digest) != hashlib.sha256().digest_size:
            raise ParameterError("digest", self.digest.hex(), "a SHA-256, 32 bytes")
        checks.count(size=self.size)
        checks.at_most("the largest artefact in bytes", MOST_ARTEFACT_BYTES, size=self.size)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Artefact with the digest and length of ``content``."""
        return cls(hashlib.sha256(content).digest(), len(content))

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """Artefact from its JSON entry in a charter."""
        return cls(bytes.fromhex(document["digest"]), document["size"])

    def document(self) -> dict[str, Any]:
        """JSON entry of the artefact in a charter."""
        return {"digest": self.digest.hex(), "size": self.size}

    def checked(self, content: bytes) -> bytes:
        """The given content, after a check of its digest and its length.

        Raises:
            RemoteProtocolError: the content has another digest or length.
        """
        if Artefact.of(content) != self:
            raise RemoteProtocolError(
                "an artefact does not have the digest and size that the charter states"
            )
        return content


@dataclass(frozen=True, slots=True)
class Computation:
    """A client's update as a function of parameters and records (docs/device-protocol.md).

    Attributes:
        architecture: format of the model, which defines the parameters and their order.
        features: format of the function from a record's input to the model's input.
        input_shape: shape of a record's input.
        classes: number of classes, whose labels are 0 to classes − 1; if ``labels`` is given, the
            number of the model's outputs.
        steps: number of steps of gradient descent in one update.
        learning_rate: learning rate of these steps.
        update: graph that computes the update, for an architecture in ``UPDATE_GRAPHS``; None for
            any other architecture.
        vectors: test vectors of the graph ``update``, its expected outputs for known inputs; None
            without this graph.
        feature_map: graph that computes the features, for ``FEATURES_GRAPH``; None for any other
            features.
        labels: label format, for the architecture ``LABELLED_GRAPH``; None for any other
            architecture, where the label of a record is one class.

    Raises:
        ParameterError: a format is unknown, an artefact is missing or not needed by its format, or
            a number is outside its domain.
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
        # Formats by name.
        if self.architecture not in KNOWN_ARCHITECTURES:
            expected = f"one of {', '.join(KNOWN_ARCHITECTURES)}"
            raise ParameterError("architecture", self.architecture, expected)
        if not is_known_features(self.features):
            raise ParameterError("features", self.features, f"one of {', '.join(KNOWN_FEATURES)}")
        # Graphs and their vectors: present exactly if the formats need them.
        for name, artefact, is_due in (
            ("update", self.update, self.architecture in UPDATE_GRAPHS),
            ("vectors", self.vectors, self.architecture in UPDATE_GRAPHS),
            ("feature_map", self.feature_map, self.features == FEATURES_GRAPH),
        ):
            if (artefact is not None) is not is_due:
                expected = "an artefact" if is_due else "none, since no format here is a graph"
                raise ParameterError(name, artefact, expected)
        if (self.labels is not None) is not (self.architecture == LABELLED_GRAPH):
            expected = f"labels for the architecture {LABELLED_GRAPH} alone"
            raise ParameterError("labels", self.labels, expected)
        if self.vectors is not None:
            checks.at_most(
                "the largest vectors in bytes", MOST_VECTOR_BYTES, size=self.vectors.size
            )
        # Shapes and numbers.
        if not self.input_shape:
            raise ParameterError("input_shape", self.input_shape, "at least one dimension")
        checks.count(**{f"input_shape[{i}]": side for i, side in enumerate(self.input_shape)})
        checks.count(2 if self.labels is None else 1, classes=self.classes)
        checks.count(steps=self.steps)
        checks.positive(learning_rate=self.learning_rate)

    @classmethod
    def of(cls, plan: Plan, input_shape: tuple[int, ...], classes: int) -> Self:
        """Computation that the clients of a plan run.

        A custom module or feature function has no format name. For such a function the result has a
        default name, which the caller must replace by the format name of a graph.

        Args:
            plan: plan with the model, the features and the local steps.
            input_shape: shape of a record's input.
            classes: number of classes.
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
        """JSON entry ``model`` of a charter; ``first`` is the digest of the initial parameters."""
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
        """Artefacts that a device must fetch in addition to the charter."""
        every = (self.update, self.vectors, self.feature_map)
        return tuple(artefact for artefact in every if artefact is not None)

    def client_document(self) -> dict[str, Any]:
        """JSON entry ``client`` of a charter."""
        return {
            "format": CLIENT_FORMAT,
            "steps": self.steps,
            "learning_rate": self.learning_rate,
        }

    @classmethod
    def from_documents(cls, model: dict[str, Any], client: dict[str, Any]) -> Self:
        """Computation from the JSON entries ``model`` and ``client`` of a charter."""
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
    """JSON entries of the artefacts and labels that are not None, by name."""
    return {name: one.document() for name, one in artefacts.items() if one is not None}


def _artefact(document: dict[str, Any], name: str) -> Artefact | None:
    """Artefact under one key of a JSON entry; None if the key is missing."""
    return Artefact.from_document(document[name]) if name in document else None


KINDS = ("tags", "numbers", "tokens")
"""Kinds of labels other than one class for each record."""

MOST_SIDE = 1 << 20
"""Largest number of values in a record's label."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Format of labels other than a single class: kind and number of values in a record's label.

    Attributes:
        kind: kind of the values. "tags" are 0 or 1; "numbers" are finite; "tokens" are whole
            numbers from 0, or −1 where no token is to be predicted.
        count: number of values in a record's label.

    Raises:
        ParameterError: the kind is unknown, or the count is outside 1 to ``MOST_SIDE``.
    """

    kind: str
    count: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError("labels", self.kind, f"one of {', '.join(KINDS)}")
        checks.count(count=self.count)
        checks.at_most("the largest number of values in a label", MOST_SIDE, count=self.count)

    @property
    def dtype(self) -> type[np.float32] | type[np.int64]:
        """NumPy type in which the graph expects labels."""
        return np.int64 if self.kind == "tokens" else np.float32

    def document(self) -> dict[str, Any]:
        """JSON entry of the label format in a charter."""
        return {"kind": self.kind, "count": self.count}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """Label format from its JSON entry in a charter."""
        return cls(document["kind"], document["count"])


def checked_labels(labels: NDArray[Any], form: Labels | None, outputs: int) -> NDArray[Any]:
    """Checked labels in the graph's type: ``(m,)`` for classes, else ``(m, form.count)``.

    Args:
        labels: labels of a device's m records, shape ``(m,)`` or ``(m, count)``.
        form: label format in the charter; None if each record has one class.
        outputs: number of the model's outputs: classes, tags, numbers, or tokens of the vocabulary.

    Raises:
        ParameterError: the labels have another shape, type or range.
    """
    # One class for each record.
    whole = np.issubdtype(labels.dtype, np.integer)
    if form is None:
        if labels.ndim != 1 or not whole:
            expected = "one class for each record"
            raise ParameterError("labels", (labels.dtype, labels.shape), expected)
        return _within(labels, 0, outputs - 1, f"classes 0 to {outputs - 1}").astype(np.int64)
    # A row of values for each record: tokens are whole numbers, tags and numbers become float32.
    if labels.shape[1:] != (form.count,):
        expected = f"{form.count} {form.kind} for each record"
        raise ParameterError("labels", labels.shape, expected)
    if form.kind == "tokens":
        if not whole:
            raise ParameterError("labels", str(labels.dtype), "whole numbers")
        expected = f"tokens 0 to {outputs - 1}, or −1"
        return _within(labels, -1, outputs - 1, expected).astype(np.int64)
    if labels.dtype.kind not in "fiub":
        raise ParameterError("labels", str(labels.dtype), "numbers")
    if form.kind == "tags" and not np.isin(labels, (0, 1)).all():
        wrong = float(labels[~np.isin(labels, (0, 1))][0])
        raise ParameterError("labels", wrong, "0 or 1 for each tag")
    made = labels.astype(np.float32)
    if not np.isfinite(made).all():
        row = int(np.flatnonzero(~np.isfinite(made).all(axis=1))[0])
        raise ParameterError("labels", f"row {row}: {labels[row]}", "finite numbers")
    return made


def _within(labels: NDArray[Any], low: int, high: int, expected: str) -> NDArray[Any]:
    """Unchanged labels, after a check that all of them are from ``low`` to ``high``."""
    for found in (int(labels.min()), int(labels.max())):
        if not low <= found <= high:
            raise ParameterError("labels", found, expected)
    return labels
