"""Task whose model is an ONNX graph: from the plan, over HTTP, to the update of a device."""

import asyncio
import hashlib
import json

import numpy as np
import pytest
from web_world import TIMING, world

from turnout.core.errors import MissingExtraError, ParameterError
from turnout.plans import Plan
from turnout.randomness import SimulationStreams
from turnout.runs.building import build_algorithm
from turnout.runs.workload import gather
from turnout.service.contract.charter import Charter
from turnout.service.contract.wire import artefact_path
from turnout.service.coordinator import new_task as founding
from turnout.service.coordinator.new_task import new_task
from turnout.service.device.trainer import npz_records, task_of_charter, trainer_on
from turnout.service.graphs.updates import GraphUpdates
from turnout.service.storage.opening import open_storage

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
pytest.importorskip("onnxscript", reason="needs onnxscript")

PLAN = """
[data]
name = "digits"
clients = 40
[model]
name = "logistic"
features = "standardized"
[participation]
law = "check-in"
window = 3
[privacy]
relation = "add-remove"
delta = 1e-5
noise_multiplier = 1.0
clip_norm = 0.5
[client]
steps = 2
learning_rate = 0.1
[optimizer]
learning_rate = 1.0
"""


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    return new_task(PLAN, tmp_path_factory.mktemp("plan"), TIMING, graph=True)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    workload = gather(Plan.from_toml(PLAN), tmp_path_factory.mktemp("plan"))
    return workload, build_algorithm(workload)


def records_of(workload, algorithm, client):
    """Records of a client of the simulation."""
    holdings = algorithm.task._holdings
    held = holdings.records[holdings.offsets[client] : holdings.offsets[client + 1]]
    return workload.data.train.inputs[held], workload.data.train.labels[held]


def test_a_device_downloads_the_onnx_graph_and_computes_the_simulated_update(
    new, simulated, tmp_path
):
    storage = open_storage(tmp_path / "task.sqlite", serving=True)
    new.create_task(storage)
    workload, algorithm = simulated
    inputs, labels = records_of(workload, algorithm, 7)
    parameters = (np.random.default_rng(3).standard_normal(650) / 10).astype(np.float32)
    expected = algorithm.clipped_sum(parameters, np.array([7])).total

    async def main():
        async with world(tmp_path, storage=storage) as w:
            told = await w.http.get("/v1/charter")
            charter = Charter.from_canonical(told.content)
            updates = trainer_on((inputs, labels), 7)(charter)
            assert isinstance(updates, GraphUpdates)

            async def fetch(artefact):
                path = artefact_path(artefact.digest.hex())
                answer = await w.http.get(path)
                assert answer.status_code == 200
                tag = {"If-None-Match": answer.headers["etag"]}
                assert (await w.http.get(path, headers=tag)).status_code == 304
                return artefact.checked(answer.content)

            try:
                await updates.fetch(fetch)
                made = updates.update(parameters, 7)
            finally:
                updates.close()
            assert np.linalg.norm(made - expected) <= 1e-5 * np.linalg.norm(expected)
            for unknown in ("0" * 64, charter.initial_model.hex(), "model", "%2e%2e"):
                assert (await w.http.get(artefact_path(unknown))).status_code == 404
            described = (await w.http.get("/v1/openapi.json")).json()
            assert artefact_path("{digest}") in described["paths"]

    asyncio.run(main())


def test_a_plan_served_as_an_onnx_graph_also_runs_in_a_device_fleet(new, simulated):
    """The model of the plan computes the same task; the named features must agree."""
    workload, _ = simulated
    assert task_of_charter(workload, new.charter).dimension == 650
    other = Plan.from_toml(PLAN.replace("standardized", "pixels"))
    with pytest.raises(ParameterError, match="features"):
        task_of_charter(
            type(workload)(other, workload.data, 40, workload.participation), new.charter
        )


def test_custom_features_are_exported_as_an_onnx_graph(tmp_path, simulated):
    (tmp_path / "own_features.py").write_text(
        "def halves(inputs):\n    return 2 * inputs.flatten(1)[:, ::2] - 1\n"
    )
    plan = PLAN.replace('"standardized"', '"own_features:halves"')
    made = new_task(plan, tmp_path, TIMING)
    assert made.charter.computation.features == "onnx-features-1"
    workload = gather(Plan.from_toml(plan), tmp_path)
    algorithm = build_algorithm(workload)
    inputs, labels = records_of(workload, algorithm, 7)
    parameters = (np.random.default_rng(3).standard_normal(330) / 10).astype(np.float32)
    held = {hashlib.sha256(content).digest(): content for content in made.artefacts}

    async def fetch(artefact):
        return artefact.checked(held[artefact.digest])

    updates = trainer_on((inputs, labels), 7)(made.charter)
    try:
        asyncio.run(updates.fetch(fetch))
        found = updates.update(parameters, 7)
    finally:
        updates.close()
    expected = algorithm.clipped_sum(parameters, np.array([7])).total
    assert np.linalg.norm(found - expected) <= 1e-3 * np.linalg.norm(expected)


def test_stored_onnx_graphs_cannot_be_changed_or_deleted(new, tmp_path):
    storage = open_storage(tmp_path / "task.sqlite", serving=True)
    new.create_task(storage)
    with storage.snapshot() as view:
        for content in new.artefacts:
            assert view.artefact(hashlib.sha256(content).digest()) == content
        assert view.artefact(bytes(32)) is None
    for sql in ("DELETE FROM artefacts", "UPDATE artefacts SET content = x'00'"):
        with pytest.raises(Exception, match="never changed"), storage.transaction() as tx:
            tx._changed(sql)
    storage.close()


def test_exporting_an_onnx_graph_without_the_export_extra_is_refused(monkeypatch, tmp_path):
    def missing(*extras, what):
        raise MissingExtraError(what, "onnx", extras)

    monkeypatch.setattr(founding, "require", missing)
    with pytest.raises(MissingExtraError, match=r"\[export\]"):
        new_task(PLAN, tmp_path, TIMING, graph=True)


def test_an_npz_file_with_a_class_out_of_range_is_refused_by_a_device(new, tmp_path):
    np.savez(tmp_path / "mine.npz", inputs=np.zeros((2, 8, 8), np.uint8), labels=np.array([1, 10]))
    with pytest.raises(ParameterError, match="classes 0 to 9"):
        trainer_on(npz_records(tmp_path / "mine.npz"), 7)(new.charter)
    names = json.loads(new.charter.canonical())["model"]
    assert names["architecture"]["format"] == "onnx-update-1"
    assert names["features"] == {"format": "standardized-1", "input_shape": [8, 8]}


def test_an_update_of_an_onnx_graph_is_clipped_only_in_the_norm_of_its_message(simulated, tmp_path):
    """Additional clipping in ℓ2 inside the graph would change messages of an ℓ∞ randomizer."""
    local = PLAN.replace('relation = "add-remove"', 'relation = "replace-one"\ntrust = "local"')
    local = local.replace("noise_multiplier = 1.0", '[randomizer]\nnorm = "linf"')
    local = local.replace("clip_norm = 0.5\n", "epsilon0 = 4.0\n", 1)
    local = local.replace("delta = 1e-5\n", "delta = 1e-5\nclip_norm = 0.05\n")
    new = new_task(local, tmp_path, TIMING, graph=True)
    held = {hashlib.sha256(content).digest(): content for content in new.artefacts}

    async def fetch(named):
        return held[named.digest]

    workload, algorithm = simulated
    updates = trainer_on(records_of(workload, algorithm, 7), 7)(new.charter)
    parameters = np.zeros(650, np.float32)
    try:
        asyncio.run(updates.fetch(fetch))
        made = updates.update(parameters, 7)
    finally:
        updates.close()
    (row,) = np.concatenate(list(algorithm.updates(parameters, np.array([7]), lambda _, r: r)))[:1]
    assert np.linalg.norm(row) > 0.1
    assert np.abs(made - row).max() < 1e-5
    encoding = new.charter.encoding
    sent = [
        encoding.packed(update, SimulationStreams(i).source("message"))
        for update in (made, row)
        for i in range(20)
    ]
    assert sent[:20] == sent[20:]
