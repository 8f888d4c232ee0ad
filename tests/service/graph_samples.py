"""A small model as an ONNX graph, and hand-written ONNX graphs for parsing tests."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from turnout.service.contract.computation import UPDATE_GRAPH, Artefact, Computation

FOLDER = Path(__file__).parents[1] / "vectors"
SHAPE, CLASSES, DIMENSION = (3, 2), 4, 5 * 7 + 4 * 6
GRAPH = (FOLDER / "update-graph.onnx").read_bytes()
VECTORS = (FOLDER / "update-graph.json").read_bytes()

COMPUTATION = Computation(
    UPDATE_GRAPH,
    "pixels-1",
    SHAPE,
    CLASSES,
    update=Artefact.of(GRAPH),
    vectors=Artefact.of(VECTORS),
)


def named(**contents):
    """Computation with changed contents, and all its files by digest."""
    features = "onnx-features-1" if "feature_map" in contents else "pixels-1"
    of_contents = {name: Artefact.of(data) for name, data in contents.items()}
    made = replace(COMPUTATION, features=features, **of_contents)
    held = {"update": GRAPH, "vectors": VECTORS} | contents
    return made, {hashlib.sha256(data).hexdigest(): data for data in held.values()}


def update_by_hand(parameters, inputs, labels):
    """Unclipped update of the model (two dense layers with tanh between them), in float64."""
    sizes = [5 * 6, 5, 4 * 5, 4]
    w, a, v, b = np.split(parameters.astype(np.float64), np.cumsum(sizes)[:-1])
    w, v = w.reshape(5, 6), v.reshape(4, 5)
    total = np.zeros(DIMENSION)
    for x, label in zip(inputs.reshape(len(inputs), 6).astype(np.float64), labels, strict=True):
        hidden = np.tanh(w @ x + a)
        scores = np.exp(v @ hidden + b)
        upstream = scores / scores.sum()
        upstream[label] -= 1
        below = (v.T @ upstream) * (1 - hidden**2)
        parts = np.outer(below, x), below, np.outer(upstream, hidden), upstream
        total += np.concatenate([part.reshape(-1) for part in parts])
    return total / len(inputs)


# -- protobuf, written ------------------------------------------------------------------------


def number(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(place, value):
    """Encoded protobuf field: an integer, bytes or text."""
    if isinstance(value, int):
        return number(place << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(place << 3 | 2) + number(len(data)) + data


def node(operator, inputs, outputs, *attributes, more=b""):
    parts = [field(1, name) for name in inputs] + [field(2, name) for name in outputs]
    return b"".join([*parts, field(4, operator), *(field(5, a) for a in attributes), more])


def ints(name, *values):
    return field(1, name) + b"".join(field(8, value) for value in values) + field(20, 7)


def tensor(name, kind, sides, data):
    return b"".join(field(1, s) for s in sides) + field(2, kind) + field(8, name) + field(9, data)


def port(name, kind, *sides):
    shape = b"".join(field(1, field(2 if isinstance(s, str) else 1, s)) for s in sides)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


INPUTS = (
    port("parameters", 1, DIMENSION),
    port("inputs", 1, "records", *SHAPE),
    port("labels", 7, "records"),
    port("weights", 1, "records"),
    port("clip_norm", 11),
)


def model(
    nodes, *, tensors=(), inputs=INPUTS, outputs=(), opset=20, domain="", more=b"", graph=b""
):
    outputs = outputs or (port("update", 1, DIMENSION),)
    body = b"".join(field(1, each) for each in nodes) + field(2, "g")
    body += b"".join(field(5, each) for each in tensors)
    body += b"".join(field(11, each) for each in inputs)
    body += b"".join(field(12, each) for each in outputs) + graph
    return field(1, 10) + field(7, body) + field(8, field(1, domain) + field(2, opset)) + more


IDENTITY = node("Identity", ["parameters"], ["update"])
ONE = tensor("one", 1, [1], np.ones(1, "<f4").tobytes())


def shaped_by(operator, place, *, source):
    """ONNX graph in which the values of records, of a shape or of an initializer set a shape."""
    counted = {
        "records": [node("ReduceSum", ["inputs"], ["many"]), node("Cast", ["many"], ["n"])],
        "shape": [node("Shape", ["inputs"], ["sides"]), node("Neg", ["sides"], ["n"])],
        "initializer": [node("Neg", ["one"], ["n"])],
    }
    given = ["n" if i == place else "one" for i in range(place + 1)]
    return model([*counted[source], node(operator, given, ["made"]), IDENTITY], tensors=[ONE])


def endless(sides, times=1):
    """ONNX graph that computes the exponential of a large array ``times`` times, and its sum."""
    shape = tensor("shape", 7, [len(sides)], np.array(sides, "<i8").tobytes())
    return model(
        [
            node("ConstantOfShape", ["shape"], ["large"]),
            node("Identity", ["large"], ["e0"]),
            *(node("Exp", [f"e{i}"], [f"e{i + 1}"]) for i in range(times)),
            node("ReduceSum", [f"e{times}"], ["sum"]),
            node("Squeeze", ["sum"], ["one"]),
            node("Mul", ["parameters", "one"], ["update"]),
        ],
        tensors=[shape],
    )
