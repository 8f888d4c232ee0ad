"""A device with a custom update function on an installation without PyTorch."""

import subprocess
import sys
from pathlib import Path

from fake_coordinator import charter_of, invitation
from processes import environment
from served_fake import ServedFake

from turnout.schemes import CheckIn

CHARTER = charter_of(CheckIn(2), dimension=12, population=5, step_seconds=3600.0)

DEVICE = """
import asyncio, sys
from pathlib import Path

class WithoutTraining:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jinja2", "matplotlib", "apsw", "starlette"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, WithoutTraining())

import numpy as np
from turnout.service.device import Diary, TaskDevice, Link, StateFile, connection
from turnout.service.contract.wire import Invitation


class TowardsZero:
    \"\"\"The update that moves a model towards zero, clipped to the charter's norm.\"\"\"

    def __init__(self, charter):
        self._norm = charter.encoding.clip_norm

    def update(self, parameters, client):
        update = -parameters.astype(np.float64)
        return update * min(1.0, 0.9 * self._norm / max(np.linalg.norm(update), 1e-12))


async def take_part(url, diary, invitation):
    async with connection(None) as http:
        return await TaskDevice(invitation, diary, Link(http, url), TowardsZero).run()


url, token, state, tests = sys.argv[1:]
sys.path.insert(0, tests)
import hurried
hurried.hurry()
invitation = Invitation.decoded(token)
with StateFile(Path(state)) as file:
    diary = Diary(file, invitation)
    print(dict(asyncio.run(take_part(url, diary, invitation))))
"""


def test_a_device_with_a_custom_update_function_runs_without_pytorch(tmp_path):
    folder = tmp_path / "devices"
    with ServedFake(CHARTER, 1, folder) as served:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                DEVICE,
                served.url,
                invitation(CHARTER).encoded(),
                str(folder / "state.json"),
                str(Path(__file__).parent),
            ],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "{'accepted': 1}\n"), done.stderr
    assert set(served.coordinator.rows) == served.drawn() != set()
