"""ONNX tasks with labels that are no classes, with custom losses, and with pretrained bases."""

import asyncio
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from web_world import TIMING

from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.plans import Plan
from turnout.runs.building import build_algorithm
from turnout.runs.workload import gather
from turnout.service.contract.charter import Charter
from turnout.service.contract.computation import Computation, Labels, checked_labels
from turnout.service.coordinator.new_task import new_task
from turnout.service.device.trainer import trainer_on

PLAN = """
[data]
path = "{path}"
client = "who"
{data}
test = 0.2
[model]
module = "nets:{module}"
{model}
[participation]
law = "check-in"
window = 3
[privacy]
relation = "add-remove"
delta = 1e-5
noise_multiplier = 1.0
clip_norm = 50.0
[client]
steps = 2
learning_rate = 0.1
[optimizer]
learning_rate = 1.0
"""
NETS = """
import torch
from torch import nn

def numbers():
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Embedding(5, 3), nn.Linear(3, 5)

    def forward(self, tokens):
        return self.last(torch.tanh(self.first(tokens)))

def margins(outputs, labels):
    signs = 2.0 * (labels == 1) - 1
    return torch.relu(1 - signs * outputs).sum(1)
"""
TAGS = """inputs = ["a", "b"]
label = ["u", "v"]
target = "tags"
scaling = { a = [0, 6], b = [0, 4] }"""
TOKENS = """inputs = "inputs"
label = "labels"
target = "tokens"
vocabulary = 5"""
CASES = {
    "tags, own loss": (
        ("table.csv", TAGS, "numbers", 'loss = "nets:margins"'),
        Labels("tags", 2),
    ),
    "tags, a pretrained base": (
        (
            "table.csv",
            TAGS,
            "numbers",
            'pretrained = "base.safetensors"\ntrainable = ["2.*"]',
        ),
        Labels("tags", 2),
    ),
    "tokens": (("arrays", TOKENS, "Tokens", ""), Labels("tokens", 4)),
}


@pytest.fixture
def folder(tmp_path):
    """Folder with custom networks, a table, and arrays of tokens."""
    (tmp_path / "nets.py").write_text(NETS)
    rows = [f"p{i // 3},{i % 7},{i % 5},{i % 2},{int(i % 3 > 1)}" for i in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["who,a,b,u,v", *rows]) + "\n")
    random, arrays = np.random.default_rng(0), tmp_path / "arrays"
    arrays.mkdir()
    base = {"0.weight": torch.randn(3, 2), "0.bias": torch.randn(3)}
    pytest.importorskip("safetensors.torch").save_file(base, tmp_path / "base.safetensors")
    np.save(arrays / "who.npy", np.arange(60) // 3)
    np.save(arrays / "inputs.npy", random.integers(0, 5, (60, 4)))
    np.save(arrays / "labels.npy", random.integers(-1, 5, (60, 4)))
    return tmp_path


def computed(made, records, parameters):
    """Update of a device from the charter that it receives."""
    charter = Charter.from_canonical(made.charter.canonical())
    held = {hashlib.sha256(content).digest(): content for content in made.artefacts}

    async def fetch(artefact):
        return artefact.checked(held[artefact.digest])

    updates = trainer_on(records, 7)(charter)
    try:
        asyncio.run(updates.fetch(fetch))
        return updates.update(parameters, 7)
    finally:
        updates.close()


@pytest.mark.parametrize("case", CASES)
def test_onnx_updates_with_other_labels_and_losses_equal_the_simulation(folder, case):
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    words, labels = CASES[case]
    plan = PLAN.format(**dict(zip(("path", "data", "module", "model"), words, strict=True)))
    made = new_task(plan, folder, TIMING)
    assert made.charter.computation.labels == labels
    workload = gather(Plan.from_toml(plan), folder)
    algorithm = build_algorithm(workload)
    holdings, train = algorithm.task._holdings, workload.data.train
    held = holdings.records[holdings.offsets[7] : holdings.offsets[8]]
    records = train.inputs[held], train.labels[held]
    parameters = (np.random.default_rng(3).standard_normal(algorithm.dimension) / 3).astype("f4")
    found = computed(made, records, parameters)
    expected = algorithm.clipped_sum(parameters, np.array([7])).total
    assert np.linalg.norm(expected) > 0.01
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("labels", "form", "said"),
    [
        (np.array([0, 4]), None, "classes 0 to 3"),
        (np.array([0.0, 1.0]), None, "one class for each record"),
        (np.ones((2, 1)), None, "one class for each record"),
        (np.ones((2, 3)), Labels("numbers", 2), "2 numbers for each record"),
        (np.ones(2), Labels("numbers", 1), "1 numbers for each record"),
        (np.array([[1.0], [np.nan]]), Labels("numbers", 1), r"row 1"),
        (np.array([[1.0], [1e300]]), Labels("numbers", 1), r"row 1"),
        (np.array([["a"]]), Labels("numbers", 1), "numbers"),
        (np.array([[1, 2]]), Labels("tags", 2), "0 or 1 for each tag"),
        (np.array([[1.0, 2.0]]), Labels("tokens", 2), "whole numbers"),
        (np.array([[1, 4]]), Labels("tokens", 2), "tokens 0 to 3, or −1"),
        (np.array([[1, -2]]), Labels("tokens", 2), "tokens 0 to 3, or −1"),
    ],
)
def test_labels_of_a_wrong_kind_are_refused(labels, form, said):
    with pytest.raises(ParameterError, match=said), np.errstate(over="ignore"):
        checked_labels(labels, form, 4)


@pytest.mark.parametrize(
    ("labels", "form", "dtype"),
    [
        (np.array([0, 3], np.uint8), None, np.int64),
        (np.array([[1, 0]]), Labels("tags", 2), np.float32),
        (np.array([[1.5, -2.0]]), Labels("numbers", 2), np.float32),
        (np.array([[3, -1]], np.int16), Labels("tokens", 2), np.int64),
    ],
)
def test_labels_are_converted_to_the_type_of_the_onnx_graph(labels, form, dtype):
    made = checked_labels(labels, form, 4)
    assert made.dtype == dtype
    assert np.array_equal(made, labels)


def test_the_label_description_in_a_charter_round_trips():
    labels = Labels("tokens", 7)
    assert Labels.from_document(labels.document()) == labels
    for kind, count in (("class", 1), ("tokens", 0), ("tags", 1 << 21), ("tags", 1.5)):
        with pytest.raises(ParameterError):
            Labels(kind, count)
    with pytest.raises(ParameterError, match="onnx-update-2 alone"):
        Computation(labels=labels)


def test_an_onnx_graph_for_class_labels_is_refused_for_other_labels():
    from graph_samples import COMPUTATION, DIMENSION, GRAPH, VECTORS

    from turnout.service.graphs.format import read_graph
    from turnout.service.graphs.updates import require_update_signature
    from turnout.service.graphs.vectors import decode_vectors

    labels, graph = Labels("numbers", 1), read_graph(GRAPH)
    require_update_signature(graph, DIMENSION)
    with pytest.raises(RemoteProtocolError, match="does not have"):
        require_update_signature(graph, DIMENSION, labels)
    with pytest.raises(RemoteProtocolError, match="update-vectors-2"):
        decode_vectors(VECTORS, labels)
    with pytest.raises(ParameterError, match="onnx-update-2 alone"):
        replace(COMPUTATION, labels=labels)
    made = replace(COMPUTATION, architecture="onnx-update-2", labels=labels)
    model, client = made.model_document(bytes(32)), made.client_document()
    assert Computation.from_documents(model, client) == made
