"""A device's updates by the graph that the charter names, without PyTorch and without the plan.

`GraphUpdates` runs the graph, `featured` computes named feature functions in NumPy, and
`clip_update` is the last bound before an update is quantised: the device clips whatever was
computed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.core.optional import require
from turnout.service.contract.charter import Charter
from turnout.service.contract.computation import (
    Artefact,
    Labels,
    checked_labels,
    features_expression,
)
from turnout.service.graphs import task_graphs
from turnout.service.graphs.format import DOUBLE, FLOAT, INT64, Graph, Port, read_graph
from turnout.service.graphs.sandbox import ExhaustedError, GraphLimits, Sandbox

if TYPE_CHECKING:
    from turnout.service.contract.charter import Charter

MARGIN, LARGEST_NORM = 2.0**-20, 1e30
"""As in `turnout.learning.gradients`, which needs PyTorch."""


def bounded(update: NDArray[Any], charter: Charter) -> NDArray[np.floating]:
    """The update as a charter's encoding takes it, shape ``(d,)``: clipped, but for messages.

    Raises:
        ParameterError: it is no vector of the charter's dimension.
    """
    encoding = charter.encoding
    if not charter.randomized:
        return clip_update(update, encoding.dimension, encoding.clip_norm)
    return _vector(update, encoding.dimension)  # the randomizer has a norm of its own


def clip_update(update: NDArray[Any], dimension: int, clip_norm: float) -> NDArray[np.float64]:
    """The update within the clip norm, float64 ``(d,)``; zeros where it is not finite.

    Guarantee: its ℓ2 norm is at most ``clip_norm``, whatever ``update`` holds.

    Raises:
        ParameterError: it is no vector of ``dimension`` real numbers.
    """
    moved = _vector(update, dimension).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.square(moved).sum()))
    if not norm <= LARGEST_NORM:
        return np.zeros(dimension)
    return moved if norm == 0 else moved * min(1.0, clip_norm * (1 - MARGIN) / norm)


def _vector(update: NDArray[Any], dimension: int) -> NDArray[Any]:
    """The update, if it is a vector of so many real numbers."""
    given = np.asarray(update)
    if given.shape != (dimension,) or given.dtype.kind not in "fiu":
        raise ParameterError("update", (given.dtype, given.shape), f"{dimension} real numbers")
    return given


def featured(name: str, inputs: NDArray[Any], *, whole: bool) -> NDArray[Any]:
    """Records through the features of that format, float32 ``(m, …)``.

    Args:
        name: a format of features; all but ``pixels-1`` and ``standardized-1`` need PyTorch.
        inputs: ``(m, …)``; bytes are fractions of 255.
        whole: leave whole numbers as they are, int64, for a model that takes those.

    Raises:
        ParameterError: another type of numbers than the model takes.
    """
    if whole:
        if name != "pixels-1" or inputs.dtype.kind not in "iu":
            raise ParameterError("inputs", str(inputs.dtype), "whole numbers, as the model takes")
        return inputs.astype(np.int64)
    if inputs.dtype.kind not in "fiu":
        raise ParameterError("inputs", str(inputs.dtype), "numbers")
    numbers = inputs.astype(np.float32)
    if inputs.dtype == np.uint8:
        numbers /= np.float32(255)
    if name == "pixels-1":
        return numbers
    if name == "standardized-1":
        return _standardized(numbers)
    from turnout.learning.features import apply_features

    return apply_features(features_expression(name), numbers).astype(np.float32)


def _standardized(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean 0 and variance 1, rounded to binary16, record by record."""
    flat = numbers.reshape(len(numbers), -1).astype(np.float64)
    centred = flat - flat.mean(1, keepdims=True)
    scale = np.sqrt(np.square(centred).mean(1, keepdims=True) + 1e-5)
    return (centred / scale).astype(np.float16).astype(np.float32).reshape(numbers.shape)


Fetch = Callable[[Artefact], Awaitable[bytes]]
"""The bytes of an artefact, checked against its digest."""

_FEATURE_BYTES = 1 << 30


class GraphUpdates:
    """Updates of one client, who holds all of these records.

    Guarantees:
        Nothing runs before the graph was read whole and its vectors came out as they should.
        An update is within the charter's clip norm, whatever the graph gives.
        No graph runs on these records but in `update`, which is bounded and whose time and errors
        nobody sees: the coordinator wrote it.

    Args:
        charter: names the graph.
        inputs: shape ``(m, *input_shape)``: uint8 (fractions of 255), floats, or whole numbers
            where the graph takes them.
        labels: ``(m,)`` or ``(m, count)``, as the charter says.
        client: whose records they are.
        bounds: of the process that runs the graph.
    """

    def __init__(
        self,
        charter: Charter,
        inputs: NDArray[Any],
        labels: NDArray[Any],
        client: int,
        bounds: GraphLimits | None = None,
    ) -> None:
        require("device-graph", what="a device of a task whose model is a graph")
        held = charter.computation
        if inputs.shape[1:] != held.input_shape:
            expected = f"the charter's shape of a record, {held.input_shape}"
            raise ParameterError("inputs", inputs.shape[1:], expected)
        self._charter, self._client, self._bounds = charter, client, bounds
        self._inputs = inputs
        self._labels = checked_labels(labels, held.labels, held.classes)
        self._graph = b""
        self._features: Callable[[], NDArray[Any]] = lambda: self._inputs
        self._sandbox: Sandbox | None = None

    async def fetch(self, fetch: Fetch) -> None:
        """Get the graph, check it, and make ready what takes long.

        Raises:
            RemoteProtocolError: the graph is refused, fails, or does not fit its vectors.
            ParameterError: numbers of a type that it cannot take.
        """
        held = self._charter.computation
        assert held.update is not None
        assert held.vectors is not None
        graph, known = await fetch(held.update), await fetch(held.vectors)
        taken = require_update_face(
            read_graph(graph), self._charter.encoding.dimension, held.labels
        )
        shape = tuple(side for side in taken.sides[1:] if isinstance(side, int))
        features = await self._feature_map(fetch, taken.type == INT64)
        blank = features(np.zeros((1, *held.input_shape), self._inputs.dtype))
        if blank.shape[1:] != shape:
            raise RemoteProtocolError(
                f"the charter's graph takes records of {shape}, its features are {blank.shape[1:]}"
            )
        self._graph = graph
        task_graphs.require_all(
            task_graphs.decode_vectors(known, held.labels),
            self._run,
            self._charter.encoding.dimension,
            shape,
        )
        if held.feature_map is None:
            made = features(self._inputs)
            self._features = lambda: made
        else:
            self._features = lambda: features(self._inputs)

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """The client's update, clipped to the charter's norm, shape ``(d,)``; not for messages.

        Raises:
            ExhaustedError: a graph fails on the records, or takes too much.
        """
        if client != self._client:
            raise ParameterError("client", client, f"{self._client}, whose records are at hand")
        encoding = self._charter.encoding
        # A graph clips in ℓ2, a message in its own norm: then the graph shall leave all as it is.
        norm = LARGEST_NORM if self._charter.randomized else encoding.clip_norm
        made = self._run(parameters, self._features(), self._labels, norm)
        return bounded(made, self._charter)

    def close(self) -> None:
        """End the graph's process; the next update starts another."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def _run(
        self,
        parameters: NDArray[np.float32],
        inputs: NDArray[Any],
        labels: NDArray[Any],
        clip_norm: float,
    ) -> NDArray[np.float32]:
        """The output of the graph; its process is ended after a failure."""
        arrays = {
            "parameters": parameters.astype(np.float32),
            "inputs": inputs,
            "labels": labels,
            "weights": np.full(len(labels), 1 / len(labels), np.float32),
            "clip_norm": np.array(clip_norm, np.float64),
        }
        try:
            self._sandbox = self._sandbox or Sandbox(self._graph, self._bounds)
            made = self._sandbox.run(arrays, 4 * self._charter.encoding.dimension)
            if made.shape != parameters.shape:
                raise ExhaustedError(f"a graph of the charter gave a shape {made.shape}")
        except ExhaustedError:
            self.close()
            raise
        return made

    async def _feature_map(
        self, fetch: Fetch, whole: bool
    ) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """The function from records to what the model sees of them."""
        held = self._charter.computation
        if held.feature_map is None:
            return lambda inputs: featured(held.features, inputs, whole=whole)
        graph = await fetch(held.feature_map)
        require_features_face(read_graph(graph), held.input_shape)

        def mapped(inputs: NDArray[Any]) -> NDArray[Any]:
            numbers = featured("pixels-1", inputs, whole=False)
            with Sandbox(graph, self._bounds) as sandbox:
                made = sandbox.run({"inputs": numbers}, _FEATURE_BYTES)
            if made.shape[:1] != inputs.shape[:1]:
                raise ExhaustedError("the charter's features are not one row a record")
            return made

        return mapped


def require_update_face(graph: Graph, dimension: int, labels: Labels | None = None) -> Port:
    """The graph's input of records, where it has the face of an update.

    Args:
        graph: that was read.
        dimension: d.
        labels: those of ``onnx-update-2``; None for the classes of ``onnx-update-1``.

    Raises:
        RemoteProtocolError: it has another.
    """
    ports = {port.name: port for port in graph.inputs}
    records = ports.get("inputs")
    due = {
        "parameters": (FLOAT, (dimension,)),
        "labels": _label_face(labels),
        "weights": (FLOAT, (None,)),
        "clip_norm": (DOUBLE, ()),
    }
    found = {name: _face(port) for name, port in ports.items() if name != "inputs"}
    given = [(port.name, _face(port)) for port in graph.outputs]
    fits = found == due and given == [("update", (FLOAT, (dimension,)))]
    if records is None or not fits or len(ports) != len(graph.inputs):
        raise RemoteProtocolError(f"the charter's graph does not take {', '.join(due)} and inputs")
    kind, sides = _face(records)
    if kind not in (FLOAT, INT64) or sides[:1] != (None,) or None in sides[1:]:
        raise RemoteProtocolError("the charter's graph takes no records of one shape")
    return records


def _label_face(labels: Labels | None) -> tuple[int, tuple[int | None, ...]]:
    """Type and sides of the graph's input of labels."""
    if labels is None:
        return INT64, (None,)
    return INT64 if labels.dtype is np.int64 else FLOAT, (None, labels.count)


def require_features_face(graph: Graph, input_shape: tuple[int, ...]) -> None:
    """Nothing where the graph has the face of ``onnx-features-1``.

    Raises:
        RemoteProtocolError: it has another.
    """
    taken = [(port.name, _face(port)) for port in graph.inputs]
    given = [(port.name, port.type) for port in graph.outputs]
    if taken != [("inputs", (FLOAT, (None, *input_shape)))] or given != [("features", FLOAT)]:
        raise RemoteProtocolError("the charter's features are not a function of one record")


def _face(port: Port) -> tuple[int, tuple[int | None, ...]]:
    """Type and sides; None for one that is known only when the graph runs."""
    return port.type, tuple(side if isinstance(side, int) else None for side in port.sides)
