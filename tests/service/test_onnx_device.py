"""Device of examples/onnx_device, written with NumPy, cryptography and ONNX Runtime."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_coordinator import charter_of, invitation
from forked import HANGS_SECONDS
from graph_samples import (
    COMPUTATION,
    DIMENSION,
    GRAPH,
    IDENTITY,
    SHAPE,
    model,
    named,
    shaped_by,
    update_by_hand,
)
from node_devices import memory
from served_fake import MomentsNoted, ServedFake

from turnout.schemes import CheckIn
from turnout.service.contract.charter import Timing

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")

FOLDER = Path(__file__).parents[2] / "examples" / "onnx_device"
SOURCE = np.random.default_rng(12)
INPUTS, LABELS = SOURCE.random((2, *SHAPE)).astype(np.float32), np.array([3, 0])

WITHOUT_TURNOUT = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("turnout", "torch", "onnx", "httpx", "scipy", "pydantic"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


SOON = """
import time
sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 0.1))
"""


class Fake(ServedFake):
    def _memories(self):
        return [memory(path) for path in self._folder.glob("*.json")]


def charter(computation=COMPUTATION):
    return charter_of(
        CheckIn(2, 2),
        dimension=DIMENSION,
        population=5,
        step_seconds=3600.0,
        computation=computation,
    )


def ended(fake, folder, records=(INPUTS, LABELS), *, in_time=False):
    """Exit code, stdout and stderr of the device."""
    (folder / "token.txt").write_text(invitation(fake.coordinator.charter).encoded())
    np.savez(folder / "mine.npz", inputs=records[0], labels=records[1])
    bootstrap = WITHOUT_TURNOUT if in_time else SOON + WITHOUT_TURNOUT
    program = [sys.executable, "-c", bootstrap, FOLDER, FOLDER / "device.py", fake.url]
    program += ["--invitation", folder / "token.txt", "--records", folder / "mine.npz"]
    done = subprocess.run(
        [str(part) for part in [*program, "--state", folder / "state.json"]],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        env=dict(os.environ),
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_example_onnx_device_sends_updates_of_the_charters_graph(tmp_path):
    terms = charter()
    with Fake(terms, 1, tmp_path) as fake:
        fake.coordinator.artefacts = named()[1]
        assert ended(fake, tmp_path) == (0, "turns: 2 accepted\n", "")
        drawn = fake.drawn()
    rows = fake.coordinator.rows
    assert set(rows) == drawn
    for (_, step), body in rows.items():
        parameters = np.random.default_rng(step).standard_normal(DIMENSION).astype(np.float32)
        by_hand = update_by_hand(parameters, INPUTS, LABELS)
        expected = by_hand * min(1.0, 0.5 * (1 - 2.0**-20) / np.linalg.norm(by_hand))
        units = np.frombuffer(body, "<i4") - np.trunc(expected / terms.encoding.step)
        assert np.abs(units).max() <= 1


REFUSED = {
    "another graph": (
        {"update": model([IDENTITY])},
        "does not reproduce its test vectors",
    ),
    "an operator": (
        {"update": GRAPH.replace(b"\x04Tanh", b"\x04Loop")},
        "refused: it has the operator 'Loop'",
    ),
    "a shape of values": (
        {"update": shaped_by("ConstantOfShape", 0, source="records")},
        "refused: a shape at ConstantOfShape depends on values",
    ),
    "a field": ({"update": GRAPH + b"\xca\x01\x00"}, "refused: it has a field 25"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_example_onnx_device_refuses_invalid_graphs_and_sends_nothing(tmp_path, name):
    contents, reason = REFUSED[name]
    computation, held = named(**contents)
    with Fake(charter(computation), 1, tmp_path) as fake:
        fake.coordinator.artefacts = held
        code, _, error = ended(fake, tmp_path)
    assert (code, error.count("\n")) == (5, 1)
    assert reason in error
    assert {method for method, *_ in fake.coordinator.requests} == {"GET"}


def test_the_example_onnx_device_refuses_a_changed_state_file(tmp_path):
    with Fake(charter(), 1, tmp_path) as fake:
        fake.coordinator.artefacts = named()[1]
        assert ended(fake, tmp_path)[0] == 0
        state = tmp_path / "state.json"
        before = json.loads(state.read_text())
        state.write_text(state.read_text().replace('"answered"', '"waiting"', 1))
        code, _, error = ended(fake, tmp_path)
    assert (code, "damaged" in error) == (4, True)
    assert len(before["slots"]) == len(before["answers"]) == 2


def test_the_example_onnx_device_sends_zeros_if_its_computation_is_late(tmp_path):
    terms = replace(charter(), timing=Timing(8.0, 6.0, 1.0, 0.001))
    with Fake(terms, 1, tmp_path) as fake:
        fake.coordinator.artefacts = named()[1]
        noted = MomentsNoted(fake.coordinator, tmp_path / "state.json")
        assert ended(fake, tmp_path, in_time=True) == (0, "turns: 2 accepted\n", "")
    assert set(fake.coordinator.rows.values()) == {bytes(terms.encoding.encoded_size)}
    assert set(noted.stored.values()) == {True}
    assert min(noted.waited.values()) >= 6.0 / 16  # the earliest sending time


def test_the_example_onnx_device_refuses_non_finite_records_before_any_request(tmp_path):
    with Fake(charter(), 1, tmp_path) as fake:
        wrong = np.where(INPUTS > 0.5, np.nan, INPUTS)
        code, _, error = ended(fake, tmp_path, (wrong, LABELS))
    assert (code, "not finite" in error, error.count("\n")) == (2, True, 1)
    assert fake.coordinator.requests == []
