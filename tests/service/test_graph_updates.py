"""Device that computes updates by the charter's ONNX graph: result, bounds and refusals."""

import asyncio
import json
from functools import partial

import numpy as np
import pytest
from fake_coordinator import charter_of, invitation
from forked import HANGS_SECONDS
from graph_samples import (
    CLASSES,
    COMPUTATION,
    DIMENSION,
    GRAPH,
    IDENTITY,
    INPUTS,
    SHAPE,
    VECTORS,
    endless,
    field,
    model,
    named,
    node,
    port,
    tensor,
    update_by_hand,
)
from hurried import shortened
from served_fake import ServedFake

from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.schemes import CheckIn
from turnout.service.contract.charter import Charter
from turnout.service.contract.computation import Artefact
from turnout.service.device import Diary, Link, Pace, StateFile, TaskDevice, connection
from turnout.service.device.trainer import trainer_on
from turnout.service.device.working import UnfinishedError, in_a_process
from turnout.service.graphs.sandbox import ExhaustedError, GraphLimits, Sandbox
from turnout.service.graphs.updates import GraphUpdates

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")

SOURCE = np.random.default_rng(8)
INPUTS_HELD = SOURCE.random((3, *SHAPE)).astype(np.float32)
LABELS = np.array([0, 3, 1])
AT = (SOURCE.standard_normal(DIMENSION) / 2).astype(np.float32)


def charter(computation=COMPUTATION, **terms):
    return charter_of(
        CheckIn(2),
        dimension=DIMENSION,
        population=5,
        step_seconds=3600.0,
        computation=computation,
        **terms,
    )


def ready(inputs=INPUTS_HELD, labels=LABELS, bounds=None, **contents):
    """Update computation by a graph, and the artefacts that it requested."""
    computation, held = named(**contents)
    updates = GraphUpdates(charter(computation), inputs, labels, 3, bounds)

    async def fetch(artefact):
        return artefact.checked(held[artefact.digest.hex()])

    try:
        asyncio.run(updates.fetch(fetch))
    except BaseException:
        updates.close()
        raise
    return updates


def test_the_update_of_an_onnx_graph_equals_the_clipped_gradient_by_hand():
    updates = ready()
    try:
        by_hand = update_by_hand(AT, INPUTS_HELD, LABELS)
        bound = 0.5 * (1 - 2.0**-20)
        expected = by_hand * min(1.0, bound / np.linalg.norm(by_hand))
        made = updates.update(AT, 3)
        assert np.linalg.norm(made - expected) <= 1e-5 * np.linalg.norm(expected)
        assert np.array_equal(made, updates.update(AT, 3))
        with pytest.raises(ParameterError, match="the client with these records"):
            updates.update(AT, 4)
    finally:
        updates.close()


@pytest.mark.parametrize(
    "inputs", [np.full((1, *SHAPE), np.nan, np.float32), np.full((1, *SHAPE), 3e38, np.float32)]
)
def test_non_finite_updates_become_zero(inputs):
    updates = ready(inputs, np.array([1]))
    try:
        large = np.full(DIMENSION, 3e38, np.float32)
        assert not updates.update(large, 3).any()
    finally:
        updates.close()


def test_an_update_is_clipped_even_if_its_onnx_graph_does_not_clip():
    """The graph returns the parameters themselves; the device clips them to the clip norm."""
    told = {
        "parameters": [0.25] * DIMENSION,
        "inputs": [[0.0] * 6],
        "shape": list(SHAPE),
        "labels": [0],
        "clip_norm": (0.01).hex(),
        "every": DIMENSION,
        "update": [0.25],
        "norm": 0.25 * DIMENSION**0.5,
    }
    known = json.dumps({"format": "update-vectors-1", "vectors": [told]}).encode()
    updates = ready(update=model([IDENTITY]), vectors=known)
    try:
        made = updates.update(np.full(DIMENSION, 1e6, np.float32), 3)
        assert 0.4999 < np.linalg.norm(made) <= 0.5
    finally:
        updates.close()


def other_vectors():
    document = json.loads(VECTORS)
    document["vectors"][1]["update"][3] += 2e-4 * document["vectors"][1]["norm"]
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ({"vectors": other_vectors()}, "than test vector 1"),
        ({"update": model([IDENTITY])}, "than test vector 0"),
        ({"vectors": b"{}"}, "vectors are invalid"),
        (
            {"vectors": VECTORS.replace(b'"length":59', b'"length":9999999999')},
            "do not fit the model",
        ),
        ({"vectors": b'{"format":"update-vectors-1","vectors":[7]}'}, "vectors are invalid"),
        ({"update": GRAPH[:-1]}, "refused"),
        ({"update": model([node("If", ["parameters"], ["update"])])}, "'If'"),
        ({"update": endless([1 << 20, 1 << 20])}, "exceeded its memory|failed"),
        (
            {"update": model([node("Gather", ["parameters", "labels"], ["update"])])},
            "returned an array of shape",
        ),
        (
            {
                "update": model(
                    [IDENTITY],
                    inputs=(*INPUTS[:1], port("inputs", 1, "records", 2, 3), *INPUTS[2:]),
                )
            },
            "needs records of",
        ),
    ],
)
def test_an_onnx_graph_with_wrong_inputs_or_outputs_is_refused(contents, reason):
    with pytest.raises(RemoteProtocolError, match=reason) as refusal:
        ready(**contents)
    assert "\n" not in str(refusal.value)


def test_an_onnx_graph_is_stopped_at_its_time_limit():
    hours = endless([1 << 12, 1 << 10], times=10_000)
    arrays = {
        "parameters": AT,
        "inputs": INPUTS_HELD,
        "labels": LABELS,
        "weights": np.ones(3, np.float32),
        "clip_norm": np.array(1.0),
    }
    with (
        pytest.raises(ExhaustedError, match="took more than 1 seconds"),
        Sandbox(hours, GraphLimits(seconds=1.0)) as sandbox,
    ):
        sandbox.run(arrays, 4 * DIMENSION)


def test_a_killed_graph_process_fails_one_update_and_is_restarted():
    updates = ready()
    try:
        working = updates.update(AT, 3)
        updates._sandbox._process.kill()
        with pytest.raises(ExhaustedError):
            updates.update(AT, 3)
        assert np.array_equal(updates.update(AT, 3), working)
    finally:
        updates.close()


def test_one_graph_process_serves_several_forked_processes_in_turn():
    """The graph process keeps working after a forked process was killed during a request."""
    updates = ready()

    def computed(seconds=HANGS_SECONDS):
        return asyncio.run(in_a_process(partial(updates.update, AT, 3), seconds))

    try:
        expected = updates.update(AT, 3)
        assert np.array_equal(computed(), expected)
        assert np.array_equal(computed(), expected)
        with pytest.raises(UnfinishedError):
            computed(0.0)
        updates.close()  # as after a participation
        assert np.array_equal(computed(), expected)
    finally:
        updates.close()


def table_features(size):
    """Features read from a table: the graph fails for records with a number of ``size`` or more."""
    to_whole = field(1, "to") + field(3, 7) + field(20, 2)
    return model(
        [
            node("Cast", ["inputs"], ["places"], to_whole),
            node("Gather", ["table", "places"], ["features"]),
        ],
        tensors=[tensor("table", 1, [size], np.linspace(0, 1, size, dtype="<f4").tobytes())],
        inputs=[port("inputs", 1, "n", *SHAPE)],
        outputs=[port("features", 1, "n", *SHAPE)],
    )


@pytest.mark.parametrize("largest", [3, 4])
def test_features_are_computed_only_in_steps_of_the_client(largest):
    inputs = np.full((1, *SHAPE), 1, np.float32)
    inputs[0, 0, 0] = largest
    updates = ready(inputs, np.array([1]), feature_map=table_features(4))
    try:
        if largest == 4:
            with pytest.raises(ExhaustedError):
                updates.update(AT, 3)
            return
        made = updates.update(AT, 3)
    finally:
        updates.close()
    by_hand = update_by_hand(AT, inputs / 3, np.array([1]))
    expected = by_hand * min(1.0, 0.5 * (1 - 2.0**-20) / np.linalg.norm(by_hand))
    assert np.linalg.norm(made - expected) <= 1e-5 * np.linalg.norm(expected)


def test_feature_graphs_that_always_fail_are_refused():
    """The refusal does not depend on the records: the table has no entries."""
    with pytest.raises(RemoteProtocolError, match="failed"):
        ready(feature_map=table_features(0))


@pytest.mark.parametrize(
    ("inputs", "labels", "reason"),
    [
        (INPUTS_HELD[:, :2], LABELS, "shape of a record"),
        (INPUTS_HELD, np.array([0, CLASSES, 1]), "classes 0 to 3"),
        (INPUTS_HELD, np.array([0, -1, 1]), "classes 0 to 3"),
    ],
)
def test_records_of_a_wrong_shape_or_type_are_refused_for_an_onnx_graph(inputs, labels, reason):
    with pytest.raises(ParameterError, match=reason):
        GraphUpdates(charter(), inputs, labels, 3)


def test_an_onnx_graph_with_another_digest_is_refused():
    with pytest.raises(RemoteProtocolError, match="digest and size"):
        Artefact.of(GRAPH).checked(GRAPH + b"\n")
    assert Artefact.of(GRAPH).checked(GRAPH) == GRAPH


def test_the_charter_contains_format_digest_and_size_of_its_onnx_graph():
    data = charter().canonical()
    fields = json.loads(data)["model"]["architecture"]
    assert fields["format"] == "onnx-update-1"
    assert fields["artefact"] == {"digest": COMPUTATION.update.digest.hex(), "size": len(GRAPH)}
    assert Charter.from_canonical(data).computation == COMPUTATION


def take_part(tmp_path, change=lambda served: None):
    """Tally of the only device of a task with an ONNX graph, and the coordinator's rows."""
    terms = charter()
    told = invitation(terms)

    async def run(url, diary):
        async with connection(None) as http:
            trainer_of = trainer_on((INPUTS_HELD, LABELS), told.client)
            pace = Pace(sleep=shortened)
            return await TaskDevice(told, diary, Link(http, url), trainer_of, pace=pace).run()

    with ServedFake(terms, 1, tmp_path) as served:
        served.coordinator.artefacts = named()[1]
        change(served.coordinator)
        try:
            with StateFile(tmp_path / "state.json") as file:
                tally = asyncio.run(run(served.url, Diary(file, told)))
        finally:
            rows, posted = served.coordinator.rows, dict(served.coordinator.keys)
    return tally, rows, posted


def test_a_device_downloads_the_onnx_graph_and_sends_an_update(tmp_path):
    tally, rows, _ = take_part(tmp_path)
    body = next(iter(rows.values()))
    assert tally == {"accepted": 1}
    assert np.frombuffer(body, "<i4").any()


def test_a_device_sends_nothing_if_the_onnx_graph_has_another_digest(tmp_path):
    def other(coordinator):
        digest = COMPUTATION.update.digest.hex()
        coordinator.artefacts[digest] = model([IDENTITY]).ljust(len(GRAPH), b"\0")

    with pytest.raises(RemoteProtocolError, match="digest and size that the charter states"):
        take_part(tmp_path, other)


def test_downloading_an_onnx_graph_stops_at_the_size_in_the_charter(tmp_path):
    def longer(coordinator):
        coordinator.artefacts[COMPUTATION.update.digest.hex()] = GRAPH + bytes(1 << 20)

    with pytest.raises(RemoteProtocolError, match="more than"):
        take_part(tmp_path, longer)
