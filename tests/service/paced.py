"""Coordinator whose clock waits for its devices: a phase ends when no device needs it any more.

On a slow machine a device could miss its drawn steps, and a test could not predict the number of
participants. Here a step lasts until every device that drew the step has finished it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from turnout.schemes import ReleaseRule
from turnout.service.contract.wire import StepPhase
from turnout.service.web import server
from turnout.service.web.running import Running

_LOOK_SECONDS = 0.02
_OPEN = ("waiting", "checked in")


class Slots:
    """Drawn steps of all devices, as recorded in their state files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._drawn: dict[Path, frozenset[int]] = {}  # a device draws only once

    def of_step(self, step: int) -> dict[int, dict]:
        """Map from client to its participation, for all clients that drew a step."""
        found = {}
        for path in self._folder.glob("*.json"):
            if path not in self._drawn or step in self._drawn[path]:
                state = json.loads(path.read_bytes())["state"]
                turns = {turn["slot"]: turn for turn in state["turns"]}
                self._drawn[path] = frozenset(turns)
                if step in turns:
                    found[state["client"]] = turns[step]
        return found


class DevicesClock:
    """Clock that jumps to the end of a phase after every device has finished the phase.

    Args:
        running: running task whose phases the clock ends.
        slots: drawn steps of the devices.
        left: file that exists after the devices no longer need the coordinator.
    """

    def __init__(self, running: Running, slots: Slots, left: Path) -> None:
        self._running, self._slots, self._left, self._time = running, slots, left, 0.0

    def now(self) -> float:
        """Seconds of the clock; see `Clock`."""
        return self._time

    async def until(self, moment: float) -> None:
        """Wait until a time of the clock; see `Clock`."""
        while self._time < moment:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._nothing_is_left_to_do():
                self._time = moment

    def _nothing_is_left_to_do(self) -> bool:
        shown = self._running.shown
        if shown.phase is StepPhase.FINISHED:
            return self._left.exists()
        turns = self._slots.of_step(shown.step)
        open_ones = {client for client, turn in turns.items() if not _is_through(turn)}
        asks_one = self._running.charter.scheme.release is ReleaseRule.ONE_CLIENT
        if asks_one and shown.phase is StepPhase.CHECK_INS and open_ones:
            with self._running.storage.snapshot() as view:
                open_ones -= set(view.arrived(shown.step).tolist())  # devices are notified later
        return not open_ones


def _is_through(turn: dict) -> bool:
    """Whether a participation is finished and the receipt of a sent update is stored."""
    unconfirmed = turn["state"] == "answered" and turn["answer"] is None
    return turn["state"] not in _OPEN and not unconfirmed


def by_its_devices(states: Path, left: Path) -> None:
    """Let the coordinator of this process end phases according to the state files in a folder."""
    opened = server._open_running

    def paced(*arguments) -> Running:
        running = opened(*arguments)
        running.clock = DevicesClock(running, Slots(states), left)
        return running

    server._open_running = paced
