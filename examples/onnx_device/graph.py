"""The charter's ONNX graph: strictly parsed, and run in a separate process with limits."""

import json
import os
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
from texts import ProtocolError, require

RUNNER = Path(__file__).with_name("runner.py")
SECONDS, MOST_NODES, MOST_FIELDS = 120, 20_000, 100_000
SIZES = {1: 4, 2: 1, 3: 1, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
LIST = """
Abs Add And ArgMax ArgMin AveragePool Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv
ConvTranspose Cos CumSum Div Einsum Elu Equal Erf Exp Expand Flatten Floor Gather GatherElements
GatherND Gelu Gemm GlobalAveragePool Greater GreaterOrEqual Identity InstanceNormalization
LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max MaxPool Mean Min Mod Mul
Neg Not OneHot Or Pad Pow Range Reciprocal ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin
ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements ScatterND Shape Sigmoid
Sign Sin Size Slice Softmax Softplus Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu
Unsqueeze Where Xor
"""
OPERATORS = frozenset(LIST.split())
# Positions of inputs whose values set a shape; for every Reduce… input 1.
SHAPING = {name: (1,) for name in OPERATORS if name.startswith("Reduce")}
SHAPING |= {"ConstantOfShape": (0,), "CumSum": (1,), "Expand": (1,), "OneHot": (1,), "Pad": (1, 3)}
SHAPING |= {"Range": (0, 1, 2), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Split": (1,)}
SHAPING |= {"Squeeze": (1,), "Tile": (1,), "Trilu": (1,), "Unsqueeze": (1,)}

# Allowed fields of each message: number → nested message, or None for numbers and bytes.
TENSOR = {1: None, 2: None, 8: None, 9: None}
ATTRIBUTE = {1: None, 2: None, 3: None, 4: None, 5: TENSOR, 7: None, 8: None, 20: None}
NODE = {1: None, 2: None, 3: None, 4: None, 5: ATTRIBUTE}
SHAPE = {1: {1: None, 2: None}}
PORT = {1: None, 2: {1: {1: None, 2: SHAPE}}}
GRAPH = {1: NODE, 2: None, 5: TENSOR, 11: PORT, 12: PORT}
MODEL = {1: None, 7: GRAPH, 8: {1: None, 2: None}}


def read(data):
    """Ports and operators of the graph; a graph with anything not listed above is refused."""
    try:
        model = _message(data, MODEL)
        # Only standard operators of known versions.
        (graph,), (opset,), (version,) = model[7], model[8], model[1]
        require(opset.get(1, [b""]) in ([b""], [b"ai.onnx"]), "it has operators of another domain")
        require(
            opset[2][0] in range(18, 22) and version in range(8, 11),
            "its format version is not supported",
        )
        nodes, tensors = graph[1], list(graph.get(5, []))
        require(len(nodes) <= MOST_NODES, "it has too many nodes")
        # Names of values that do not depend on the records: they may set a shape.
        fixed = {tensor[8][0] for tensor in tensors} | {b""}
        for node in nodes:
            name = node[4][0].decode()
            require(name in OPERATORS and len(node[4]) == 1, f"it has the operator {name!r}")
            # Attributes may hold tensors, but no nested graph.
            tensors += [t for a in node.get(5, []) for t in a.get(5, [])]
            kinds = [a[20] for a in node.get(5, [])]
            require(all(k[0] in (1, 2, 3, 4, 6, 7) for k in kinds), "it contains a nested graph")
            # No shape may depend on values of the records.
            given = node.get(1, [])
            shapes = [given[place] for place in SHAPING.get(name, ()) if place < len(given)]
            require(fixed.issuperset(shapes), f"a shape at {name} depends on values")
            if name in ("Shape", "Size") or fixed.issuperset(given):
                fixed |= set(node.get(2, []))
        # The bytes of every tensor match its type and sides.
        for tensor in tensors:
            held = len(tensor.get(9, [b""])[0])
            sides = _numbers(tensor.get(1, []))
            require(held == SIZES[tensor[2][0]] * prod(sides), "a tensor is incomplete")
        return {port[1][0].decode(): _port(port) for port in graph[11] + graph[12]}
    except ProtocolError as error:
        raise ProtocolError(f"the charter's graph is refused: {error}") from None
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise ProtocolError("the charter's graph is refused: it is malformed") from None


def _message(data, known):
    """Fields by number, each a list; nested messages are parsed by the same rule."""
    found, at, count = {}, 0, 0
    while at < len(data):
        count += 1
        require(count <= MOST_FIELDS, "it has too many fields")
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        require(number in known and kind in (0, 2, 5), f"it has a field {number} of kind {kind}")
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if kind == 2 else (4, at)
            value, at = data[at : at + size], at + size
            require(at <= len(data), "it is truncated")
        inner = known[number]
        require(inner is None or kind == 2, f"it has a field {number} of kind {kind}")
        found.setdefault(number, []).append(value if inner is None else _message(value, inner))
    # Fields that are allowed only once: with repeated values two parsers could differ.
    for number in (2, 3, 4, 9, 20):
        single = number in known and known is not NODE and known is not GRAPH
        require(not single or len(found.get(number, [])) < 2, f"it has the field {number} twice")
    return found


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        require(shift <= 70, "a number is too long")
        if byte < 0x80:
            return value, at


def _numbers(values):
    """Integers of a packed or unpacked field."""
    found = []
    for value in values:
        at = 0
        while isinstance(value, bytes) and at < len(value):
            number, at = _varint(value, at)
            found.append(number)
        if isinstance(value, int):
            found.append(value)
    return found


def _port(port):
    """Type and sides of a port; None for a side that is a name."""
    ((tensor,),) = [kind[1] for kind in port[2]]
    sides = [side.get(1, [None])[0] for shape in tensor[2] for side in shape.get(1, [])]
    return tensor[1][0], tuple(sides)


def run(graph, arrays, shape):
    """Output of the graph as float32 of the given shape; None if it fails or takes too long."""
    described = {name: [each.dtype.str, each.shape] for name, each in arrays.items()}
    head = json.dumps([len(graph), described]).encode() + b"\n"
    sent = head + graph + b"".join(each.tobytes() for each in arrays.values())
    try:
        done = subprocess.run(
            [sys.executable, str(RUNNER), str(os.getpid())],
            input=sent,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0 or len(done.stdout) != 4 * prod(shape):
        return None
    return np.frombuffer(done.stdout, "<f4").reshape(shape)
