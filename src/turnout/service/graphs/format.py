"""ONNX graphs, parsed field by field: a field with an unknown number is refused.

`read_graph` parses a graph into a `Graph`, and `OPERATORS` lists the accepted operators. `updates`
reads a coordinator's graph with `read_graph`, and `task_graphs` checks that new graphs pass.

A graph is written by the coordinator, who must not run code on a device. So only plain tensors and
the listed operators are accepted. Other operator domains, functions, nested graphs and external
files are refused. The memory and time of a run cannot be read from a graph;
`turnout.service.graphs.sandbox` limits both. Protobuf messages are parsed so strictly that no two
parsers could disagree. Field numbers are those of onnx.proto3 (ONNX, IR version 10).

Every shape in a graph follows from the shapes of its inputs and from constants (`SHAPING_INPUTS`),
never from values of its inputs, because inputs include the client's records.

**Operators** are tensor arithmetic only. Excluded on purpose are all domains other than ONNX's, and
operators that run another graph (If, Loop, Scan, SequenceMap), that draw random numbers (Random…,
Bernoulli, Multinomial, Dropout), that use strings, sequences or optional values, or whose output
shape depends on the data (NonZero, Unique, Compress).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from turnout.core.errors import RemoteProtocolError

VARINT, FIXED32, BYTES = 0, 5, 2
"""Wire types that are accepted; others (64-bit numbers, groups) are refused."""

MOST_FIELDS = 100_000
"""Largest number of fields in one message; it bounds the memory of parsing."""

_MOST_PACKED = 64

Value = int | bytes


class MalformedError(ValueError):
    """The bytes are not a protobuf message of the expected kind."""


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field of a protobuf message, in the message's order.

    Raises:
        MalformedError: (while iterating) a field is cut off or has another wire type, or there are
            too many fields.
    """
    at = count = 0
    while at < len(data):
        count += 1
        if count > MOST_FIELDS:
            raise MalformedError(f"a message has more than {MOST_FIELDS} fields")
        # A field begins with a key, which has the field's number and its wire type. The value of a
        # VARINT field is one more number.
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise MalformedError("a field has the number 0")
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        # The value of other types is bytes, whose number is in the message or fixed.
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind == FIXED32:
            size = 4
        else:
            raise MalformedError(f"field {number} has the unknown wire type {kind}")
        if size > len(data) - at:
            raise MalformedError(f"field {number} is cut off")
        yield number, kind, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Protobuf varint of at most 64 bits at position ``at``, and the position after the varint.

    Raises:
        MalformedError: the number is cut off, or has more than 64 bits.
    """
    value = 0
    for i in range(10):
        if at + i >= len(data):
            raise MalformedError("a number is cut off")
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at + i + 1
    raise MalformedError("a number has more than 64 bits")


def signed_number(value: int) -> int:
    """Signed number from the unsigned value of an int64 field."""
    return value - (1 << 64) if value >= 1 << 63 else value


def whole_numbers(kind: int, value: Value) -> list[int]:
    """Numbers in one entry of a repeated int64 field, which is packed or a single number.

    Raises:
        MalformedError: the field has another wire type, or too many numbers.
    """
    if isinstance(value, int):
        return [signed_number(value)]
    if kind != BYTES or len(value) > 10 * _MOST_PACKED:
        raise MalformedError(
            f"a list of numbers has another form: expected at most {_MOST_PACKED} whole numbers"
        )
    numbers, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        numbers.append(signed_number(number))
    return numbers


_LIST = """
    Abs Add And ArgMax ArgMin AveragePool Cast CastLike Ceil Clip Concat Constant
    ConstantOfShape Conv ConvTranspose Cos CumSum Div Einsum Elu Equal Erf Exp Expand Flatten
    Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool Greater GreaterOrEqual
    Identity InstanceNormalization LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
    MatMul Max MaxPool Mean Min Mod Mul Neg Not OneHot Or Pad Pow Range Reciprocal ReduceL2
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Reshape Round ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus
    Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
"""

OPERATORS = frozenset(_LIST.split())

_REDUCTIONS = tuple(name for name in OPERATORS if name.startswith("Reduce"))

SHAPING_INPUTS = dict.fromkeys(_REDUCTIONS, (1,)) | {
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
}
"""Operator → positions of its inputs whose values are shapes, counts or axes.

The output shape of every other listed operator follows from its inputs' shapes and its attributes
alone.
"""

SHAPE_READERS = frozenset({"Shape", "Size"})
"""Operators whose output depends on the shape of their input and not on its values."""


IR_VERSIONS, OPSETS = range(8, 11), range(18, 22)
MOST_NODES, MOST_NAMES, LONGEST_NAME, MOST_SIDES = 20_000, 64, 200, 8

ELEMENT_BYTES = {1: 4, 2: 1, 3: 1, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
"""ONNX's code of an element type → bytes of a number: floats, whole numbers, bool; no strings."""
FLOAT, INT64, DOUBLE = 1, 7, 11

_ATTRIBUTES = {1: 2, 2: 3, 3: 4, 4: 5, 6: 7, 7: 8}
"""Type of an attribute → number of its field: a float, int, string, tensor, floats, ints."""

Field = tuple[int, Value]
"""Wire type and value of a field."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output of a graph: its name, element type and shape.

    A side of the shape is a number, or a name if only a run determines the number.
    """

    name: str
    type: int
    sides: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Inputs, outputs and operators of a parsed graph."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    operators: tuple[str, ...]


def read_graph(data: bytes) -> Graph:
    """Inputs, outputs and operators of an ONNX model, which is parsed completely.

    Raises:
        RemoteProtocolError: the bytes are not a flat graph of listed operators on plain tensors.
    """
    try:
        return _model(data)
    except (MalformedError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the charter's graph is refused: {error}") from None


def _model(data: bytes) -> Graph:
    message = _message(data, "the model", {1: VARINT, 7: BYTES, 8: BYTES})
    if message.number(1) not in IR_VERSIONS:
        expected = ", ".join(map(str, sorted(IR_VERSIONS)))
        raise MalformedError(f"IR version = {message.number(1)}: expected one of {expected}")
    opset = _message(message.one(8), "its operator set", {1: BYTES, 2: VARINT}, {1})
    if opset.text(1) not in ("", "ai.onnx") or opset.number(2) not in OPSETS:
        raise MalformedError(
            f"operators of {opset.text(1)!r}, version {opset.number(2)}: expected those of ONNX, "
            f"version {min(OPSETS)} to {max(OPSETS)}"
        )
    return _graph(message.one(7))


def _graph(data: bytes) -> Graph:
    # Fields: 1 nodes, 2 name, 5 initializers, 11 inputs, 12 outputs.
    repeated = {1: BYTES, 5: BYTES, 11: BYTES, 12: BYTES}
    message = _message(data, "the graph", repeated | {2: BYTES}, {2}, repeated=set(repeated))
    nodes, initializers = message.all(1), message.all(5)
    if not 0 < len(nodes) <= MOST_NODES or len(initializers) > MOST_NODES:
        raise MalformedError(f"the graph has {len(nodes)} nodes: expected 1 to {MOST_NODES}")
    inputs = tuple(_port(each) for each in message.all(11))
    outputs = tuple(_port(each) for each in message.all(12))
    fixed = [_tensor(each) for each in initializers]
    # Inputs and initializers are known before the first node; nodes define the rest in order.
    known = [port.name for port in inputs] + fixed
    values = _Values(set(known), set(fixed))
    if len(values.defined) != len(known):
        raise MalformedError("two values have the same name")
    operators = tuple(_node(each, values) for each in nodes)
    for port in outputs:
        values.require_defined(port.name)
    return Graph(inputs, outputs, operators)


@dataclass(frozen=True, slots=True)
class _Values:
    """Names of the values that a graph has defined so far, and which of these values are fixed.

    A fixed value follows from initializers and shapes alone. A shape that followed from an input's
    values would differ from client to client, and so would the time and memory of a run.
    """

    defined: set[str]
    fixed: set[str]

    def require_defined(self, name: str) -> None:
        """Check that a value is computed before it is used."""
        if name not in self.defined:
            raise MalformedError(f"{name!r} is used before it is computed")

    def require_fixed_shapes(self, operator: str, inputs: Sequence[str]) -> None:
        """Check that an operator's output shape follows from fixed values."""
        for place in SHAPING_INPUTS.get(operator, ()):
            name = inputs[place] if place < len(inputs) else ""
            if name and name not in self.fixed:
                raise MalformedError(
                    f"the input {name!r} of {operator} sets a shape: expected a value that follows "
                    "from initializers and Shape alone"
                )

    def define(self, operator: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Define an operator's outputs, which are fixed if all inputs are."""
        fixed = operator in SHAPE_READERS or all(not n or n in self.fixed for n in inputs)
        for name in filter(None, outputs):
            if name in self.defined:
                raise MalformedError(f"{name!r} is computed twice")
            self.defined.add(name)
            if fixed:
                self.fixed.add(name)


def _node(data: bytes, values: _Values) -> str:
    """Operator of a node; the node's outputs are added to ``values``."""
    kinds = {1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES}
    message = _message(data, "a node", kinds, {3}, repeated={1, 2, 5})
    operator = message.text(4)
    if operator not in OPERATORS:
        raise MalformedError(f"operator {operator!r}: expected one of the listed operators")
    inputs, outputs = message.texts(1), message.texts(2)
    for name in filter(None, inputs):  # an optional input may be left out
        values.require_defined(name)
    values.require_fixed_shapes(operator, inputs)
    values.define(operator, inputs, outputs)
    for attribute in message.all(5):
        _attribute(attribute)
    return operator


def _attribute(data: bytes) -> None:
    """Check that an attribute is plain data of the type that it names."""
    kinds = {1: BYTES, 2: FIXED32, 3: VARINT, 4: BYTES, 5: BYTES, 7: None, 8: None, 20: VARINT}
    message = _message(data, "an attribute", kinds, set(kinds) - {1, 20}, repeated={7, 8})
    name, filled = message.text(1), _ATTRIBUTES.get(message.number(20))
    if filled is None or any(
        message.all(number) for number in _ATTRIBUTES.values() if number != filled
    ):
        raise MalformedError(
            f"the attribute {name!r} has another type: expected numbers, a tensor or a string"
        )
    if filled == 5 and message.all(5):
        _tensor(message.one(5))
    if filled == 4:
        message.text(4)


def _tensor(data: bytes) -> str:
    """A tensor's name, after a check that all its numbers are stored as plain bytes."""
    # Fields: 1 sides, 2 element type, 8 name, 9 raw bytes.
    kinds = {1: None, 2: VARINT, 8: BYTES, 9: BYTES}
    message = _message(data, "a tensor", kinds, {1, 8, 9}, repeated={1})
    sides = [
        side for kind, value in message.found.get(1, []) for side in whole_numbers(kind, value)
    ]
    size = ELEMENT_BYTES.get(message.number(2))
    if size is None:
        raise MalformedError(f"a tensor has the unknown element type {message.number(2)}")
    if len(sides) > MOST_SIDES or any(side < 0 for side in sides):
        raise MalformedError(
            f"a tensor's shape is {sides}: expected at most {MOST_SIDES} sides of at least 0"
        )
    # Fewer bytes than the shape needs would be numbers from an external file.
    held = len(message.one(9)) if message.found.get(9) else 0
    if held != size * prod(sides):
        raise MalformedError(
            f"a tensor of shape {sides} has {held} bytes: expected {size * prod(sides)}"
        )
    return message.text(8) if message.found.get(8) else ""


def _port(data: bytes) -> Port:
    """An input or output of a graph, parsed."""
    message = _message(data, "an input or output", {1: BYTES, 2: BYTES})
    kind = _message(message.one(2), "its type", {1: BYTES})
    tensor = _message(kind.one(1), "its type", {1: VARINT, 2: BYTES})
    shape = _message(tensor.one(2), "its shape", {1: BYTES}, {1}, repeated={1})
    if tensor.number(1) not in ELEMENT_BYTES:
        raise MalformedError(f"an input or output has the unknown element type {tensor.number(1)}")
    return Port(message.text(1), tensor.number(1), tuple(_side(each) for each in shape.all(1)))


def _side(data: bytes) -> int | str:
    message = _message(data, "a side", {1: VARINT, 2: BYTES}, {1, 2})
    return message.number(1) if message.found.get(1) else message.text(2)


@dataclass(frozen=True, slots=True)
class _Message:
    """The fields of a parsed message, by number."""

    what: str
    found: Mapping[int, list[Field]]

    def all(self, number: int) -> list[bytes]:
        """The values of a repeated field, as bytes."""
        return [
            value if isinstance(value, bytes) else b"" for _, value in self.found.get(number, [])
        ]

    def one(self, number: int) -> bytes:
        """The bytes of a present field."""
        return self.all(number)[0]

    def number(self, number: int) -> int:
        """The whole number of a present field; −1 if the field holds bytes."""
        (_, value), *_ = self.found[number]
        return value if isinstance(value, int) else -1

    def texts(self, number: int) -> list[str]:
        """The texts of a repeated field; too many or too long texts are refused."""
        values = self.all(number)
        if len(values) > MOST_NAMES or any(len(value) > LONGEST_NAME for value in values):
            raise MalformedError(f"{self.what} has too many names, or too long ones")
        return [value.decode("utf-8") for value in values]

    def text(self, number: int) -> str:
        """The text of a field; empty without the field."""
        return next(iter(self.texts(number)), "")


def _message(
    data: bytes,
    what: str,
    kinds: Mapping[int, int | None],
    optional: set[int] | None = None,
    *,
    repeated: set[int] | None = None,
) -> _Message:
    """The parsed fields of a message.

    Args:
        data: the message.
        what: name of the message in errors.
        kinds: field number → wire type of each accepted field; None accepts any wire type.
        optional: numbers of fields that may be missing.
        repeated: numbers of fields that may occur any number of times, or be missing.

    Raises:
        MalformedError: a field is unknown, a required field is missing, or a field that is not in
            ``repeated`` occurs twice.
    """
    # Each field must be known, of its wire type, and single unless it may be repeated.
    repeated, optional = repeated or set(), optional or set()
    found: dict[int, list[Field]] = {}
    for number, kind, value in fields(data):
        if number not in kinds or kinds[number] not in (None, kind):
            raise MalformedError(f"{what} has an unknown field {number}")
        if number in found and number not in repeated:
            raise MalformedError(f"{what} has the field {number} twice")
        found.setdefault(number, []).append((kind, value))
    # All other fields are required.
    missing = set(kinds) - set(found) - optional - repeated
    if missing:
        raise MalformedError(f"{what} lacks the field {min(missing)}")
    return _Message(what, found)
