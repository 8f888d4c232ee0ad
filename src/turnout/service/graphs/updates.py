"""Updates of a device by the charter's graph, without PyTorch and without the plan.

`GraphUpdates` is the update function that `trainer.trainer_on` builds if the charter names a graph.
`featured` computes named feature functions in NumPy. `clip_update` is the last step before an
update is quantized: the device clips the result of every computation.
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
from turnout.service.graphs.format import DOUBLE, FLOAT, INT64, Graph, Port, read_graph
from turnout.service.graphs.sandbox import ExhaustedError, GraphLimits, Sandbox
from turnout.service.graphs.vectors import decode_vectors, require_all

if TYPE_CHECKING:
    from turnout.service.contract.charter import Charter

MARGIN, LARGEST_NORM = 2.0**-20, 1e30
"""Clipping constants of `turnout.learning.gradients`, which imports PyTorch."""


def bounded(update: NDArray[Any], charter: Charter) -> NDArray[np.floating]:
    """Update for a charter's encoding, shape ``(d,)``; clipped in ℓ2 under central trust.

    Args:
        update: computed update, shape ``(d,)``.
        charter: charter with the encoding; under local trust the encoding's randomizer clips.

    Raises:
        ParameterError: the update is not a vector of the charter's dimension.
    """
    encoding = charter.encoding
    if not charter.randomized:
        return clip_update(update, encoding.dimension, encoding.clip_norm)
    return _vector(update, encoding.dimension)  # the randomizer clips in its own norm


def clip_update(update: NDArray[Any], dimension: int, clip_norm: float) -> NDArray[np.float64]:
    """The update clipped in ℓ2, float64 ``(d,)``; zeros if its norm is NaN or above 1e30.

    Guarantee: the result has ℓ2 norm at most ``clip_norm``, whatever ``update`` contains.

    Args:
        update: computed update, shape ``(d,)``.
        dimension: number of parameters d.
        clip_norm: clip norm C.

    Raises:
        ParameterError: the update is not a vector of ``dimension`` real numbers.
    """
    moved = _vector(update, dimension).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.square(moved).sum()))
    if not norm <= LARGEST_NORM:
        return np.zeros(dimension)
    return moved if norm == 0 else moved * min(1.0, clip_norm * (1 - MARGIN) / norm)


def _vector(update: NDArray[Any], dimension: int) -> NDArray[Any]:
    """The update as an array of ``dimension`` real numbers; other updates are refused."""
    given = np.asarray(update)
    if given.shape != (dimension,) or given.dtype.kind not in "fiu":
        raise ParameterError("update", (given.dtype, given.shape), f"{dimension} real numbers")
    return given


def featured(name: str, inputs: NDArray[Any], *, whole: bool) -> NDArray[Any]:
    """Inputs of the model, float32 ``(m, …)``: features of records by a named feature function.

    Args:
        name: format of the features; all but ``pixels-1`` and ``standardized-1`` need PyTorch.
        inputs: records, shape ``(m, …)``; uint8 means fractions of 255.
        whole: return whole numbers unchanged, as int64, for a model with such inputs.

    Raises:
        ParameterError: the records do not have the type of numbers that the model needs.
    """
    # Tokens and other whole numbers pass unchanged.
    if whole:
        if name != "pixels-1" or inputs.dtype.kind not in "iu":
            raise ParameterError("inputs", str(inputs.dtype), "whole numbers, as the model needs")
        return inputs.astype(np.int64)
    # Other numbers become float32; bytes become fractions of 255.
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
    """Records, each standardized to mean 0 and variance 1, and rounded to float16."""
    flat = numbers.reshape(len(numbers), -1).astype(np.float64)
    centred = flat - flat.mean(1, keepdims=True)
    scale = np.sqrt(np.square(centred).mean(1, keepdims=True) + 1e-5)
    return (centred / scale).astype(np.float16).astype(np.float32).reshape(numbers.shape)


Fetch = Callable[[Artefact], Awaitable[bytes]]
"""``await fetch(artefact)`` returns the artefact's bytes, checked against its digest."""

_FEATURE_BYTES = 1 << 30


class GraphUpdates:
    """Updates of one client by the charter's graph.

    Guarantees:
        The graph is parsed completely, and gives the updates of its test vectors, before the
        device participates.
        Whatever the graph returns, the update that leaves the device is clipped to the charter's
        norm, under local trust by the randomizer.
        A graph runs on the client's records only inside `update`. The device hides the running time
        and the errors of `update`, since the coordinator, who wrote the graph, could learn about
        the records from both.

    Args:
        charter: charter that names the graph by digest.
        inputs: records, shape ``(m, *input_shape)``: uint8 (fractions of 255), floats, or whole
            numbers where the graph needs them.
        labels: labels of the records in the charter's format, shape ``(m,)`` or ``(m, count)``.
        client: id of the client that has these records.
        bounds: limits of the process that runs the graph.
    """

    def __init__(
        self,
        charter: Charter,
        inputs: NDArray[Any],
        labels: NDArray[Any],
        client: int,
        bounds: GraphLimits | None = None,
    ) -> None:
        # Records and labels must fit the charter.
        require("device-graph", what="a device of a task whose model is a graph")
        held = charter.computation
        if inputs.shape[1:] != held.input_shape:
            expected = f"the charter's shape of a record, {held.input_shape}"
            raise ParameterError("inputs", inputs.shape[1:], expected)
        self._charter, self._client, self._bounds = charter, client, bounds
        self._inputs = inputs
        self._labels = checked_labels(labels, held.labels, held.classes)
        # The graph is fetched later; until then the records are their own features.
        self._graph = b""
        self._features: Callable[[], NDArray[Any]] = lambda: self._inputs
        self._sandbox: Sandbox | None = None

    async def fetch(self, fetch: Fetch) -> None:
        """Fetch and check the graph, and compute named features of all records.

        Raises:
            RemoteProtocolError: the graph is refused, fails, or contradicts its test vectors.
            ParameterError: the records have another type of numbers than the graph's input.
        """
        held = self._charter.computation
        assert held.update is not None
        assert held.vectors is not None
        graph, known = await fetch(held.update), await fetch(held.vectors)
        # The graph's inputs and outputs must be an update's, and the features must fit them.
        taken = require_update_signature(
            read_graph(graph), self._charter.encoding.dimension, held.labels
        )
        shape = tuple(side for side in taken.sides[1:] if isinstance(side, int))
        features = await self._feature_map(fetch, taken.type == INT64)
        blank = features(np.zeros((1, *held.input_shape), self._inputs.dtype))
        if blank.shape[1:] != shape:
            raise RemoteProtocolError(
                f"the charter's graph needs records of shape {shape}, but its features have "
                f"the shape {blank.shape[1:]}"
            )
        # Run the test vectors, which hold no client's records.
        self._graph = graph
        require_all(
            decode_vectors(known, held.labels),
            self._run,
            self._charter.encoding.dimension,
            shape,
        )
        # Named features are this program's own: computed once. A graph of features runs in
        # `update`.
        if held.feature_map is None:
            made = features(self._inputs)
            self._features = lambda: made
        else:
            self._features = lambda: features(self._inputs)

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """The client's update, shape ``(d,)``; under local trust the randomizer clips it later.

        Raises:
            ExhaustedError: a graph fails on the records, or exceeds its limits.
            ParameterError: the records are those of another client.
        """
        if client != self._client:
            raise ParameterError("client", client, f"{self._client}, the client with these records")
        encoding = self._charter.encoding
        # A graph clips in ℓ2, a randomizer in its own norm: for messages the graph must not clip.
        norm = LARGEST_NORM if self._charter.randomized else encoding.clip_norm
        made = self._run(parameters, self._features(), self._labels, norm)
        return bounded(made, self._charter)

    def close(self) -> None:
        """End the graph's process; the next update starts a new process."""
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
        """The graph's output, shape ``(d,)``; a failure ends the process that runs the graph."""
        # The inputs of the graph, in the order of its format; all records have equal weights.
        arrays = {
            "parameters": parameters.astype(np.float32),
            "inputs": inputs,
            "labels": labels,
            "weights": np.full(len(labels), 1 / len(labels), np.float32),
            "clip_norm": np.array(clip_norm, np.float64),
        }
        # One process serves all calls; after a failure the next call starts a new one.
        try:
            self._sandbox = self._sandbox or Sandbox(self._graph, self._bounds)
            made = self._sandbox.run(arrays, 4 * self._charter.encoding.dimension)
            if made.shape != parameters.shape:
                raise ExhaustedError(
                    f"the charter's graph returned an array of shape {made.shape}: expected "
                    f"{parameters.shape}"
                )
        except ExhaustedError:
            self.close()
            raise
        return made

    async def _feature_map(
        self, fetch: Fetch, whole: bool
    ) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Function from records to the model's inputs, float32 ``(m, …)``."""
        # Named features are computed in this process.
        held = self._charter.computation
        if held.feature_map is None:
            return lambda inputs: featured(held.features, inputs, whole=whole)
        # A graph of features is fetched, checked, and run in a process with limits.
        graph = await fetch(held.feature_map)
        require_features_signature(read_graph(graph), held.input_shape)

        def mapped(inputs: NDArray[Any]) -> NDArray[Any]:
            numbers = featured("pixels-1", inputs, whole=False)
            with Sandbox(graph, self._bounds) as sandbox:
                made = sandbox.run({"inputs": numbers}, _FEATURE_BYTES)
            if made.shape[:1] != inputs.shape[:1]:
                raise ExhaustedError("the features graph did not return one row for each record")
            return made

        return mapped


def require_update_signature(graph: Graph, dimension: int, labels: Labels | None = None) -> Port:
    """The graph's input for records, after a check of all inputs and outputs of the graph.

    Args:
        graph: the parsed graph.
        dimension: number of parameters d.
        labels: format of the labels (``onnx-update-2``); None for classes (``onnx-update-1``).

    Raises:
        RemoteProtocolError: the graph has other inputs or outputs.
    """
    # All but the records have a fixed name, type and shape; None is the number of records.
    ports = {port.name: port for port in graph.inputs}
    records = ports.get("inputs")
    due = {
        "parameters": (FLOAT, (dimension,)),
        "labels": _label_type(labels),
        "weights": (FLOAT, (None,)),
        "clip_norm": (DOUBLE, ()),
    }
    found = {name: _type_and_sides(port) for name, port in ports.items() if name != "inputs"}
    given = [(port.name, _type_and_sides(port)) for port in graph.outputs]
    fits = found == due and given == [("update", (FLOAT, (dimension,)))]
    if records is None or not fits or len(ports) != len(graph.inputs):
        expected = f"the inputs {', '.join(due)} and inputs, and the output update"
        raise RemoteProtocolError(f"the charter's graph does not have exactly {expected}")
    # The records may have any type and shape of the model's inputs, the same for every record.
    kind, sides = _type_and_sides(records)
    if kind not in (FLOAT, INT64) or sides[:1] != (None,) or None in sides[1:]:
        raise RemoteProtocolError("the charter's graph does not accept records of one fixed shape")
    return records


def _label_type(labels: Labels | None) -> tuple[int, tuple[int | None, ...]]:
    """Type and sides of the graph's input for labels."""
    if labels is None:
        return INT64, (None,)
    return INT64 if labels.dtype is np.int64 else FLOAT, (None, labels.count)


def require_features_signature(graph: Graph, input_shape: tuple[int, ...]) -> None:
    """Check that a graph's inputs and outputs are those of ``onnx-features-1``.

    Raises:
        RemoteProtocolError: the graph has other inputs or outputs.
    """
    taken = [(port.name, _type_and_sides(port)) for port in graph.inputs]
    given = [(port.name, port.type) for port in graph.outputs]
    if taken != [("inputs", (FLOAT, (None, *input_shape)))] or given != [("features", FLOAT)]:
        raise RemoteProtocolError("the charter's features graph does not map a record to one row")


def _type_and_sides(port: Port) -> tuple[int, tuple[int | None, ...]]:
    """Element type and sides of an input or output; None for a side that only a run determines."""
    return port.type, tuple(side if isinstance(side, int) else None for side in port.sides)
