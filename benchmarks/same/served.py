"""A coordinator process and devices in separate processes, with all draws reproducible.

Each device draws from its own stream and the coordinator from another stream, so the releases do
not depend on which of two updates arrives first. Steps are long enough for a slow machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

DEVICES = 4
_STEP_SECONDS = 5
_PLAN = """
[data]
name = "digits"
clients = {devices}
[model]
name = "logistic"
features = "standardized"
[participation]
law = "check-in"
window = 3
windows = 2
[privacy]
relation = "add-remove"
noise_multiplier = 1.5
delta = 1e-4
clip_norm = 1.0
[protocol]
release = "{release}"
[optimizer]
learning_rate = 0.5
averaging = "tail"
"""
RELEASES = ("aggregated", "one-client")


def commands(release: str) -> list[str]:
    """Commands of a task in their order; `serve` stands for coordinator and devices."""
    database = f"--db {release}.sqlite"
    plan = f"service-{release}.toml"
    enrol = f"enrol {DEVICES} {database} --plan {plan} --step-seconds {_STEP_SECONDS}"
    verify = f"ledger verify {release}.ledger --models models-{release} --json"
    return [
        f"{enrol} --out {release}.tokens",
        f"serve {plan} {database} --wait-for {DEVICES} --exit-when-finished"
        f" --head-file {release}.head",
        f"ledger export {database} --out {release}.ledger --models models-{release}",
        verify,
        verify.removesuffix(" --json"),
    ]


def write_inputs(folder: Path) -> None:
    """Write the plans, and the records of each device."""
    generator = np.random.default_rng(11)
    for release in RELEASES:
        plan = _PLAN.format(devices=DEVICES, release=release)
        (folder / f"service-{release}.toml").write_text(plan)
    for device in range(DEVICES):
        inputs = generator.integers(0, 17, (20, 8, 8)).astype(np.float32)
        labels = generator.integers(0, 10, 20)
        np.savez(folder / f"device-{device}.npz", inputs=inputs, labels=labels)


class Run:
    """A coordinator and its devices, which run at the same time as other runs."""

    def __init__(self, folder: Path, environment: dict[str, str], command: str) -> None:
        self._folder, self._environment = folder, environment
        self._release = command.partition(".sqlite")[0].rpartition(" ")[2]
        self._processes = [self._start("coordinator", f"{command} --port 0")]
        url = self._address()
        tokens = (folder / f"{self._release}.tokens").read_text().split()
        for device, token in enumerate(tokens):
            state = f"{self._release}-{device}.state"
            join = f"join {url} --data device-{device}.npz --token={token} --state {state}"
            self._processes.append(self._start(f"device {device}", join))

    def wait(self) -> int:
        """Sum of the exit statuses after all processes have ended; a failure ends the devices."""
        coordinator, *devices = self._processes
        status = coordinator.wait(timeout=600)
        if status:
            for device in devices:
                device.kill()
        return abs(status) + sum(abs(device.wait(timeout=60)) for device in devices)

    def _start(self, label: str, command: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, str(Path(__file__).with_name("answering.py")), label]
        with self._log(label).open("wb") as log:
            return subprocess.Popen(
                [*program, *command.split()],
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
            )

    def _log(self, label: str) -> Path:
        return self._folder.parent / f"{self._folder.name}, {self._release}, {label}.log"

    def _address(self) -> str:
        log = self._log("coordinator")
        while not (found := re.search(r"http://[\d.]+:\d+", log.read_text())):
            if self._processes[0].poll() is not None:
                raise RuntimeError(
                    f"The coordinator has ended. Its last output:\n{log.read_text()[-2000:]}"
                )
            time.sleep(0.05)
        return found[0]


def kept_apart(path: Path) -> bool:
    """Whether a file of a run is not compared: a database, a head file, a device's state."""
    return re.search(r"\.(sqlite|state|head)", path.name) is not None
