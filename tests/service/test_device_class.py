"""`turnout.device.Device`: a custom update function, without PyTorch and within the clip norm."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_coordinator import charter_of, invitation
from processes import environment
from served_fake import ServedFake

from turnout.core.errors import ParameterError
from turnout.device import Device
from turnout.schemes import CheckIn
from turnout.service.graphs.updates import clip_update

CHARTER = charter_of(CheckIn(2), dimension=12, population=5, step_seconds=3600.0)
HERE = str(Path(__file__).parent)
TOKEN = invitation(CHARTER).encoded()

DEVICE = """
import sys
from turnout.device import Device

url, token, state, size, tests = sys.argv[1:]
sys.path.insert(0, tests)
import hurried
hurried.hurry()

def update(parameters, client):
    assert client == 3
    parameters *= float(size)  # the function's own copy
    return -parameters

print(dict(Device(url, token, update=update, state=state).run()))
heavy = {"torch", "onnxruntime", "scipy.stats", "pydantic", "starlette"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_a_custom_update_function_sends_updates_within_the_clip_norm(tmp_path):
    folder = tmp_path / "devices"
    with ServedFake(CHARTER, 1, folder) as served:
        arguments = [served.url, TOKEN, str(folder / "state.json"), "1e9", HERE]
        done = subprocess.run(
            [sys.executable, "-c", DEVICE, *arguments],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "{'accepted': 1}\n"), done.stderr
    (body,) = served.coordinator.rows.values()
    sent = CHARTER.encoding.step * np.frombuffer(body, "<i4")
    assert 0.499 < np.linalg.norm(sent) <= 0.5


@pytest.mark.parametrize(
    "given",
    [{}, {"update": lambda *_: 0, "records": (np.zeros((1, 2)), np.zeros(1, int))}],
)
def test_a_device_needs_an_update_function_or_records_but_not_both(given):
    with pytest.raises(ParameterError, match="a function, or None with records"):
        Device("https://coordinator.example", TOKEN, **given)


def test_records_are_validated_before_a_device_sends_a_request():
    with pytest.raises(ParameterError, match="one for each of 2 inputs"):
        Device("https://nowhere.example", TOKEN, records=(np.zeros((2, 3)), np.zeros(1, int)))


@pytest.mark.parametrize(
    ("update", "norm"),
    [
        (np.zeros(3), 0.0),
        (np.array([3.0, 0, 4]), 2.0),
        (np.array([0.3, 0, 0.4], np.float32), 0.5),
        (np.array([3, 0, 4]), 2.0),
        (np.array([np.nan, 0, 0]), 0.0),
        (np.array([np.inf, 0, 0]), 0.0),
        (np.array([1e200, 0, 0]), 0.0),
        (np.array([1e29, 0, 0]), 2.0),
    ],
)
def test_an_update_of_a_device_is_clipped_to_the_clip_norm(update, norm):
    made = clip_update(update, 3, 2.0)
    assert np.linalg.norm(made) == pytest.approx(norm, rel=2e-6)
    assert np.linalg.norm(made) <= 2.0


@pytest.mark.parametrize("update", [np.zeros(4), np.zeros((3, 1)), np.array(["a"] * 3), None, 1j])
def test_updates_of_a_wrong_shape_or_type_are_refused_by_a_device(update):
    with pytest.raises(ParameterError, match="3 real numbers"):
        clip_update(update, 3, 2.0)
