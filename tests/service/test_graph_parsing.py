"""Parsing of a charter's ONNX graphs, and graphs that a device refuses before running them."""

import numpy as np
import pytest
from graph_samples import (
    DIMENSION,
    GRAPH,
    IDENTITY,
    INPUTS,
    ONE,
    SHAPE,
    field,
    ints,
    model,
    node,
    number,
    port,
    shaped_by,
    tensor,
)

from turnout.core.errors import RemoteProtocolError
from turnout.service.graphs.format import (
    MOST_NODES,
    OPERATORS,
    SHAPE_READERS,
    SHAPING_INPUTS,
    Port,
    read_graph,
)
from turnout.service.graphs.updates import require_features_signature, require_update_signature


def attribute(name, kind, filled, value):
    return field(1, name) + field(filled, value) + field(20, kind)


def test_an_exported_onnx_graph_has_the_documented_inputs_and_outputs():
    graph = read_graph(GRAPH)
    assert [port.name for port in graph.inputs] == [
        "parameters",
        "inputs",
        "labels",
        "weights",
        "clip_norm",
    ]
    assert graph.outputs == (Port("update", 1, (DIMENSION,)),)
    assert set(graph.operators) <= OPERATORS
    assert require_update_signature(graph, DIMENSION).sides[1:] == SHAPE


def test_a_hand_written_onnx_graph_is_parsed():
    graph = read_graph(model([IDENTITY], tensors=[ONE]))
    assert graph.operators == ("Identity",)


REFUSED = {
    "nothing": (b"", "lacks the field"),
    "cut off": (GRAPH[:-5], "cut off|lacks"),
    "more behind it": (GRAPH + b"\x00", "number 0"),
    "other models after it": (GRAPH + GRAPH, "twice"),
    "functions": (model([IDENTITY], more=field(25, b"")), "field 25"),
    "training": (model([IDENTITY], more=field(20, b"")), "field 20"),
    "an older operator set": (model([IDENTITY], opset=7), "version 7"),
    "another operator set": (model([IDENTITY], domain="com.microsoft"), "com.microsoft"),
    "two operator sets": (model([IDENTITY], more=field(8, field(2, 20))), "twice"),
    "sparse tensors": (model([IDENTITY], graph=field(15, b"")), "field 15"),
    "no node": (model([]), "0 nodes"),
    "too many nodes": (model([IDENTITY] * (MOST_NODES + 1)), "nodes: expected"),
    "another domain": (
        model([node("Identity", ["parameters"], ["update"], more=field(7, "ai.custom"))]),
        "field 7",
    ),
    "a graph in a graph": (
        model([node("Identity", ["parameters"], ["update"], attribute("body", 5, 6, b""))]),
        "field 6",
    ),
    "an attribute of two kinds": (
        model([node("Identity", ["parameters"], ["update"], ints("axes", 1) + field(3, 4))]),
        "axes",
    ),
    "a reference to a function's attribute": (
        model([node("Identity", ["parameters"], ["update"], ints("axes", 1) + field(21, "x"))]),
        "field 21",
    ),
    "used before it is there": (model([node("Neg", ["later"], ["update"])]), "'later'"),
    "computed twice": (model([IDENTITY, IDENTITY]), "computed twice"),
    "an output from nowhere": (model([node("Neg", ["labels"], ["other"])]), "'update'"),
    "one name for two inputs": (model([IDENTITY], inputs=(*INPUTS, INPUTS[0])), "same name"),
    "a tensor in a file": (
        model(
            [IDENTITY], tensors=[ONE + field(13, field(1, "location") + field(2, "/etc/passwd"))]
        ),
        "field 13",
    ),
    "a tensor elsewhere": (model([IDENTITY], tensors=[ONE + field(14, 1)]), "field 14"),
    "words": (model([IDENTITY], tensors=[tensor("w", 8, [1], b"")]), "type 8"),
    "fewer numbers than it says": (model([IDENTITY], tensors=[tensor("w", 1, [9], b"")]), "bytes"),
    "a side below zero": (model([IDENTITY], tensors=[tensor("w", 1, [-1, 0], b"")]), "shape"),
    "a number without end": (b"\x08" + b"\xff" * 11, "64 bits"),
    "nodes without end": (model([b""] * 100_001), "100000 fields"),
    "sides without end": (
        model([IDENTITY], tensors=[field(1, b"\x01" * 1000) + field(2, 1)]),
        "64 whole numbers",
    ),
    "a group": (number(1 << 3 | 3), "wire type 3"),
    "a name without end": (model([node("Neg", ["labels"], ["u" * 300])]), "too long"),
    "a name that is no text": (model([node("Neg", [b"\xff"], ["update"])]), "refused"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_parts_of_an_onnx_graph_are_refused(name):
    data, reason = REFUSED[name]
    with pytest.raises(RemoteProtocolError, match=reason) as refusal:
        read_graph(data)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "operator",
    ["If", "Loop", "Scan", "RandomNormal", "Bernoulli", "Dropout", "StringConcat", "SequenceAt"],
)
def test_onnx_operators_outside_the_allowed_list_are_refused(operator):
    with pytest.raises(RemoteProtocolError, match=operator):
        read_graph(model([node(operator, ["parameters"], ["update"])]))


SHAPING = sorted((name, place) for name, places in SHAPING_INPUTS.items() for place in places)


@pytest.mark.parametrize(("operator", "place"), SHAPING)
def test_an_onnx_graph_whose_shapes_depend_on_record_values_is_refused(operator, place):
    for source in ("shape", "initializer"):
        assert read_graph(shaped_by(operator, place, source=source)).operators[-2] == operator
    with pytest.raises(RemoteProtocolError, match=f"'n' of {operator} sets a shape") as refusal:
        read_graph(shaped_by(operator, place, source="records"))
    assert "\n" not in str(refusal.value)


def test_an_onnx_graph_whose_shapes_depend_on_input_shapes_is_accepted():
    nodes = [node("Neg", ["inputs"], ["of"]), node("Size", ["of"], ["n"])]
    read_graph(model([*nodes, node("ConstantOfShape", ["n"], ["made"]), IDENTITY]))


WHOLE = {"tensor(int64)", "tensor(int32)"}


def test_every_integer_operator_input_that_sets_a_shape_is_listed():
    """By the signatures of ONNX, other integer inputs are positions within a given shape."""
    defs = pytest.importorskip("onnx.defs")
    positions = {"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"}
    for operator in OPERATORS - positions:
        schema = defs.get_schema(operator, 20)
        kinds = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        for place, given in enumerate(schema.inputs):
            whole = kinds.get(given.type_str, {given.type_str}) <= {
                "tensor(int64)",
                "tensor(int32)",
            }
            assert not whole or place in SHAPING_INPUTS[operator], (operator, place)
    assert SHAPE_READERS < OPERATORS


@pytest.mark.parametrize(
    "data",
    [
        model([node("Neg", ["parameters"], ["other"])], outputs=(port("other", 1, DIMENSION),)),
        model([IDENTITY], outputs=(port("update", 11, DIMENSION),)),
        model([IDENTITY], outputs=(port("update", 1, DIMENSION + 1),)),
        model([IDENTITY], inputs=INPUTS[:4]),
        model([IDENTITY], inputs=(*INPUTS, port("secret", 1, 3))),
        model([IDENTITY], inputs=(*INPUTS[:1], port("inputs", 1, "records", "w"), *INPUTS[2:])),
        model([IDENTITY], inputs=(*INPUTS[:1], port("inputs", 11, "records", 2), *INPUTS[2:])),
    ],
)
def test_an_onnx_graph_with_other_inputs_or_outputs_is_no_update_graph(data):
    graph = read_graph(data)
    with pytest.raises(RemoteProtocolError, match="graph"):
        require_update_signature(graph, DIMENSION)


def test_a_feature_graph_must_map_each_record_by_itself():
    def of(inputs, output):
        return read_graph(
            model([node("Identity", ["inputs"], ["features"])], inputs=inputs, outputs=(output,))
        )

    taken, given = port("inputs", 1, "n", *SHAPE), port("features", 1, "n", *SHAPE)
    require_features_signature(of([taken], given), SHAPE)
    for graph in (of([taken, INPUTS[2]], given), of([taken], port("features", 11, "n", 6))):
        with pytest.raises(RemoteProtocolError, match="features"):
            require_features_signature(graph, SHAPE)
    with pytest.raises(RemoteProtocolError, match="features"):
        require_features_signature(of([taken], given), (2, 3))


def test_an_onnx_graph_with_a_changed_byte_never_contains_a_forbidden_operator():
    """A graph with a changed byte is refused, or is still a flat graph of allowed operators."""
    source = np.random.default_rng(5)
    read = 0
    for place in source.choice(len(GRAPH), 400, replace=False):
        changed = bytearray(GRAPH)
        changed[place] ^= int(source.integers(1, 256))
        try:
            graph = read_graph(bytes(changed))
        except RemoteProtocolError:
            continue
        read += 1
        assert set(graph.operators) <= OPERATORS
    assert 0 < read < 400
