"""Graphs in the ONNX format, read field by field: what is not known by number is refused.

A graph comes from the coordinator, who must not run code on a device. Only plain tensors and
operators of a list pass (`operators.OPERATORS`): no other domain, no functions, no graphs within
graphs, no files beside it, no text that says where something else is. Every shape in it follows
from the shapes of its inputs and from constants (`operators.SHAPING_INPUTS`), never from values of
its inputs, among which are the client's records. Memory and time cannot be read off a graph;
`sandbox` bounds them.

Field numbers are those of onnx.proto3 (ONNX, IR version 10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from turnout.core.errors import RemoteProtocolError
from turnout.service.artefacts.operators import OPERATORS, SHAPE_READERS, SHAPING_INPUTS
from turnout.service.artefacts.protobuf import (
    BYTES,
    FIXED32,
    VARINT,
    MalformedError,
    Value,
    fields,
    whole_numbers,
)

IR_VERSIONS, OPSETS = range(8, 11), range(18, 22)
MOST_NODES, MOST_NAMES, LONGEST_NAME, MOST_SIDES = 20_000, 64, 200, 8

ELEMENT_BYTES = {1: 4, 2: 1, 3: 1, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
"""Bytes of a number by ONNX's code of its type: floats, whole numbers, bool; no strings."""
FLOAT, INT64, DOUBLE = 1, 7, 11

_ATTRIBUTES = {1: 2, 2: 3, 3: 4, 4: 5, 6: 7, 7: 8}
"""The field that each type of attribute fills: a float, int, string, tensor, floats, ints."""

Field = tuple[int, Value]
"""Wire type and value."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output: its name, the code of its numbers' type, its sides.

    A side is a number, or a name where it is known only when the graph runs.
    """

    name: str
    type: int
    sides: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """The face of a graph that was read whole: what goes in, what comes out, what it does."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    operators: tuple[str, ...]


def read_graph(data: bytes) -> Graph:
    """The face of an ONNX model.

    Raises:
        RemoteProtocolError: anything but a flat graph of listed operators on plain tensors.
    """
    try:
        return _model(data)
    except (MalformedError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a graph of the charter is refused: {error}") from None


def _model(data: bytes) -> Graph:
    message = _message(data, "the model", {1: VARINT, 7: BYTES, 8: BYTES})
    if message.number(1) not in IR_VERSIONS:
        raise MalformedError(f"IR version {message.number(1)}")
    opset = _message(message.one(8), "its operator set", {1: BYTES, 2: VARINT}, {1})
    if opset.text(1) not in ("", "ai.onnx") or opset.number(2) not in OPSETS:
        raise MalformedError(f"operators of {opset.text(1)!r}, version {opset.number(2)}")
    return _graph(message.one(7))


def _graph(data: bytes) -> Graph:
    repeated = {1: BYTES, 5: BYTES, 11: BYTES, 12: BYTES}
    message = _message(data, "the graph", repeated | {2: BYTES}, {2}, repeated=set(repeated))
    nodes, initializers = message.all(1), message.all(5)
    if not 0 < len(nodes) <= MOST_NODES or len(initializers) > MOST_NODES:
        raise MalformedError(f"{len(nodes)} nodes, where 1 to {MOST_NODES} are read")
    inputs = tuple(_port(each) for each in message.all(11))
    outputs = tuple(_port(each) for each in message.all(12))
    fixed = [_tensor(each) for each in initializers]
    known = [port.name for port in inputs] + fixed
    values = _Values(set(known), set(fixed))
    if len(values.defined) != len(known):
        raise MalformedError("two values have one name")
    operators = tuple(_node(each, values) for each in nodes)
    for port in outputs:
        values.require_defined(port.name)
    return Graph(inputs, outputs, operators)


@dataclass(frozen=True, slots=True)
class _Values:
    """The names of values: all that are ``defined`` so far, and those that are ``fixed``.

    A fixed value follows from initializers and shapes alone. A shape that follows from values of
    an input would be another one for other records, and so would the time and memory it takes.
    """

    defined: set[str]
    fixed: set[str]

    def require_defined(self, name: str) -> None:
        """Nothing where a value is computed before it is used."""
        if name not in self.defined:
            raise MalformedError(f"{name!r} is used before it is computed")

    def require_fixed_shapes(self, operator: str, inputs: Sequence[str]) -> None:
        """Nothing where the shape of what an operator computes follows from fixed values."""
        for place in SHAPING_INPUTS.get(operator, ()):
            name = inputs[place] if place < len(inputs) else ""
            if name and name not in self.fixed:
                raise MalformedError(
                    f"the input {name!r} of {operator} sets a shape and depends on values; shapes "
                    "follow from initializers and Shape alone"
                )

    def define(self, operator: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Note what an operator computes of its inputs."""
        fixed = operator in SHAPE_READERS or all(not n or n in self.fixed for n in inputs)
        for name in filter(None, outputs):
            if name in self.defined:
                raise MalformedError(f"{name!r} is computed twice")
            self.defined.add(name)
            if fixed:
                self.fixed.add(name)


def _node(data: bytes, values: _Values) -> str:
    """Its operator; what it computes is defined afterwards."""
    kinds = {1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES}
    message = _message(data, "a node", kinds, {3}, repeated={1, 2, 5})
    operator = message.text(4)
    if operator not in OPERATORS:
        raise MalformedError(f"the operator {operator!r} is not among those that a device runs")
    inputs, outputs = message.texts(1), message.texts(2)
    for name in filter(None, inputs):  # an optional input may be left out
        values.require_defined(name)
    values.require_fixed_shapes(operator, inputs)
    values.define(operator, inputs, outputs)
    for attribute in message.all(5):
        _attribute(attribute)
    return operator


def _attribute(data: bytes) -> None:
    """Nothing where it is plain data of the type that it says."""
    kinds = {1: BYTES, 2: FIXED32, 3: VARINT, 4: BYTES, 5: BYTES, 7: None, 8: None, 20: VARINT}
    message = _message(data, "an attribute", kinds, set(kinds) - {1, 20}, repeated={7, 8})
    name, filled = message.text(1), _ATTRIBUTES.get(message.number(20))
    if filled is None or any(
        message.all(number) for number in _ATTRIBUTES.values() if number != filled
    ):
        raise MalformedError(f"the attribute {name!r} is not a number, a tensor or a word")
    if filled == 5 and message.all(5):
        _tensor(message.one(5))
    if filled == 4:
        message.text(4)


def _tensor(data: bytes) -> str:
    """Its name, where its numbers are all there as plain bytes."""
    kinds = {1: None, 2: VARINT, 8: BYTES, 9: BYTES}
    message = _message(data, "a tensor", kinds, {1, 8, 9}, repeated={1})
    sides = [
        side for kind, value in message.found.get(1, []) for side in whole_numbers(kind, value)
    ]
    size = ELEMENT_BYTES.get(message.number(2))
    if size is None:
        raise MalformedError(f"a tensor holds numbers of the type {message.number(2)}")
    if len(sides) > MOST_SIDES or any(side < 0 for side in sides):
        raise MalformedError("a tensor has no such shape")
    held = len(message.one(9)) if message.found.get(9) else 0
    if held != size * prod(sides):
        raise MalformedError(f"a tensor of {sides} has {held} bytes")
    return message.text(8) if message.found.get(8) else ""


def _port(data: bytes) -> Port:
    """An input or output with a type and a shape."""
    message = _message(data, "an input or output", {1: BYTES, 2: BYTES})
    kind = _message(message.one(2), "its type", {1: BYTES})
    tensor = _message(kind.one(1), "its type", {1: VARINT, 2: BYTES})
    shape = _message(tensor.one(2), "its shape", {1: BYTES}, {1}, repeated={1})
    if tensor.number(1) not in ELEMENT_BYTES:
        raise MalformedError(f"an input or output of the type {tensor.number(1)}")
    return Port(message.text(1), tensor.number(1), tuple(_side(each) for each in shape.all(1)))


def _side(data: bytes) -> int | str:
    message = _message(data, "a side", {1: VARINT, 2: BYTES}, {1, 2})
    return message.number(1) if message.found.get(1) else message.text(2)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message's fields by number."""

    what: str
    found: Mapping[int, list[Field]]

    def all(self, number: int) -> list[bytes]:
        """The bytes of a repeated field."""
        return [
            value if isinstance(value, bytes) else b"" for _, value in self.found.get(number, [])
        ]

    def one(self, number: int) -> bytes:
        """The bytes of a field that is there."""
        return self.all(number)[0]

    def number(self, number: int) -> int:
        """The whole number of a field that is there."""
        (_, value), *_ = self.found[number]
        return value if isinstance(value, int) else -1

    def texts(self, number: int) -> list[str]:
        """The names of a repeated field."""
        values = self.all(number)
        if len(values) > MOST_NAMES or any(len(value) > LONGEST_NAME for value in values):
            raise MalformedError(f"{self.what} has names that are too long, or too many")
        return [value.decode("utf-8") for value in values]

    def text(self, number: int) -> str:
        """The name in a field; empty without one."""
        return next(iter(self.texts(number)), "")


def _message(
    data: bytes,
    what: str,
    kinds: Mapping[int, int | None],
    optional: set[int] | None = None,
    *,
    repeated: set[int] | None = None,
) -> _Message:
    """The fields of a message: of these numbers and wire types (None: any), none twice.

    A repeated field may be missing, as may an optional one.
    """
    repeated, optional = repeated or set(), optional or set()
    found: dict[int, list[Field]] = {}
    for number, kind, value in fields(data):
        if number not in kinds or kinds[number] not in (None, kind):
            raise MalformedError(f"{what} has a field {number} that is not read")
        if number in found and number not in repeated:
            raise MalformedError(f"{what} has the field {number} twice")
        found.setdefault(number, []).append((kind, value))
    missing = set(kinds) - set(found) - optional - repeated
    if missing:
        raise MalformedError(f"{what} lacks the field {min(missing)}")
    return _Message(what, found)
