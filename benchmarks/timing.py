"""Test whether the timing of a device's messages reveals its data: real processes, network view.

Two devices hold neighbouring data: one number of one record makes computing 20 ms longer. Each
device participates in every step of a served task. An observer of the network sees, for each
participation, the time from downloading the model to sending the update. The Mann-Whitney test of
level 0.01 compares these times for the two devices, and for a control device that sends
immediately after computing. Phases are short, since random sending times then hide a shift least.

    python benchmarks/timing.py [--turns 200]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

LEVEL, SHIFT_SECONDS, RESAMPLES = 0.01, 0.02, 1000
COMPUTE_SECONDS = (0.01, 0.01 + SHIFT_SECONDS)
"""Seconds of computing for each of the neighbouring data sets."""
STEP = {"step": 0.55, "check-in": 0.5, "answer": 0.05, "compute": 0.25}
KINDS = ("device", "sends when done")
PLAN = """
[data]
name = "digits"
clients = 4
[model]
name = "logistic"
[participation]
law = "every-step"
steps = {steps}
[privacy]
relation = "add-remove"
delta = 1e-3
noise_multiplier = 50.0
[optimizer]
learning_rate = 0.1
"""

Moments = dict[str, dict[str, dict[int, float]]]
"""Times by device, observed request ("model" or "update") and step."""


def watching(seen: Moments, name: str) -> type[httpx.AsyncHTTPTransport]:
    """Transport that records when a device's requests leave its process."""

    class Watching(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            parts = request.url.path.split("/")
            if parts[2] == "models":
                seen[name]["model"].setdefault(int(parts[3]), time.monotonic())
            elif parts[-1] == "updates":
                seen[name]["update"].setdefault(int(parts[3]), time.monotonic())
            return await super().handle_async_request(request)

    return Watching


def take_part(url: str, token: str, state: Path, seconds: float, kind: str) -> None:
    """Run one device in a separate process, and print step and seconds of each participation."""
    from turnout.service.contract.wire import Invitation
    from turnout.service.device import Diary, Link, Pace, StateFile, TaskDevice

    class Trainer:
        def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.float64]:
            time.sleep(seconds)
            return np.zeros(parameters.size)

    class AtOnce(Pace):
        async def until(self, moment: float) -> None:
            del moment

    seen: Moments = defaultdict(lambda: defaultdict(dict))
    invitation = Invitation.decoded(token)

    async def run(diary: Diary) -> None:
        async with httpx.AsyncClient(transport=watching(seen, kind)()) as http:
            pace = Pace() if kind == KINDS[0] else AtOnce()
            link = Link(http, url)
            await TaskDevice(invitation, diary, link, lambda _: Trainer(), pace=pace).run()

    with StateFile(state, synced=False) as file:
        asyncio.run(run(Diary(file, invitation)))
    # The observable time: from downloading the model to sending the update.
    times = seen[kind]
    for step, sent in sorted(times["update"].items()):
        print(step, sent - times["model"][step])


def measured(turns: int) -> dict[tuple[str, float], NDArray[np.float64]]:
    """Seconds of each participation, by kind of device and by computing time."""
    command = str(Path(sys.executable).with_name("turnout"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan, tokens, log = folder / "plan.toml", folder / "tokens", folder / "log"
        # A task for four devices, with spare steps for missed participations.
        plan.write_text(PLAN.format(steps=turns + turns // 4))
        database = ["--db", str(folder / "task.sqlite")]
        timing = [part for key, value in STEP.items() for part in (f"--{key}-seconds", str(value))]
        enrol = [command, "enrol", "4", *database, "--plan", str(plan), "--out", str(tokens)]
        subprocess.run([*enrol, *timing], check=True)
        # The coordinator waits for all devices and ends with the run.
        serve = [command, "serve", str(plan), *database, "--port", "0", "--wait-for", "4"]
        serve += ["--head-file", str(folder / "head"), "--exit-when-finished"]
        with log.open("w") as errors:
            server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            # One device for each kind and each computing time.
            pairs = [(kind, seconds) for kind in KINDS for seconds in COMPUTE_SECONDS]
            running = {}
            for number, (pair, token) in enumerate(
                zip(pairs, tokens.read_text().split(), strict=True)
            ):
                given = [url, token, str(folder / f"state-{number}"), str(pair[1]), pair[0]]
                running[pair] = subprocess.Popen(
                    [sys.executable, __file__, "--device", *given],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            told = {pair: process.communicate()[0] for pair, process in running.items()}
        finally:
            server.kill()
            server.wait()
    return {
        pair: np.array([float(line.split()[1]) for line in text.splitlines()])[:turns]
        for pair, text in told.items()
    }


def chance_of_detection(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Probability that the test detects a shift, by resampling the measurements."""
    random, found = np.random.default_rng(1), 0
    for _ in range(RESAMPLES):
        left, right = random.choice(one, one.size), random.choice(one, other.size)
        found += mannwhitneyu(left, right + SHIFT_SECONDS).pvalue < LEVEL
    return found / RESAMPLES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=200, help="participations of each device")
    parser.add_argument("--device", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.device is not None:
        url, token, state, seconds, kind = given.device
        take_part(url, token, Path(state), float(seconds), kind)
        return
    found = measured(given.turns)
    print(f"{'':18}{'turns':>10}{'medians, ms':>16}{'p-value':>10}{'notices 20 ms':>16}")
    for kind in KINDS:
        one, other = (found[kind, seconds] for seconds in COMPUTE_SECONDS)
        p_value, chance = mannwhitneyu(one, other).pvalue, chance_of_detection(one, other)
        medians = f"{1e3 * np.median(one):.1f}, {1e3 * np.median(other):.1f}"
        turns = f"{one.size}, {other.size}"
        print(f"{kind:18}{turns:>10}{medians:>16}{p_value:10.2g}{chance:16.3f}")


if __name__ == "__main__":
    main()
