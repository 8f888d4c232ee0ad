"""A device and a fake coordinator in virtual time, shared by the device tests."""

import asyncio
import hashlib
import random
from contextlib import nullcontext
from unittest import mock

import httpx
import numpy as np
from fake_coordinator import URL, FakeCoordinator, Wire, charter_of, invitation
from virtual_time import virtually

from turnout.protocol.messages import ClientState
from turnout.randomness import Source
from turnout.service.device import Diary, Link, Memory, Pace, StateFile, TaskDevice
from turnout.service.device.working import UnfinishedError


class Killed(BaseException):
    """Exception that stands for the killed process of a device."""


class StubTrainer:
    """Trainer whose updates depend on parameters and client, just above half the clip norm."""

    def __init__(self, charter, salt=0):
        self._norm, self._salt = 0.55 * charter.encoding.clip_norm, salt
        self.calls = 0

    def update(self, parameters, client):
        self.calls += 1
        seed = hashlib.sha256(parameters.tobytes() + bytes([client, self._salt])).digest()[:8]
        direction = np.random.default_rng(list(seed)).standard_normal(parameters.size)
        return self._norm * direction / np.linalg.norm(direction)


async def at_once(work, seconds):
    """Compute an update in this process, without waiting."""
    try:
        return work()
    except Exception as error:
        raise UnfinishedError(str(error)) from error


class Chosen(Source):
    """Random source that returns given positions in order."""

    secure = True

    def __init__(self, *positions):
        self._positions = list(positions)

    def below(self, n, size):
        return np.array([self._positions.pop(0) % n for _ in range(size)], dtype=np.int64)


class Repeatable(Source):
    """Seeded random source that claims to be secure, for tests only."""

    secure = True

    def __init__(self, dice):
        self._dice = dice

    def below(self, n, size):
        return np.array([self._dice.randrange(n) for _ in range(size)], dtype=np.int64)


class World:
    """Simulation of one task, whose devices run in `start`; only keys do not depend on the seed.

    Attributes:
        coordinator: fake coordinator, made when the first device starts.
        wire: transport of the requests.
        told, outcomes: messages of a device to its owner.
        workshop: function that computes updates.
        syncs: whether files are synced, which takes time and matters only for power cuts.
    """

    syncs = False
    workshop = staticmethod(at_once)

    def __init__(self, folder, charter=None, fault=lambda request: None, seed=0):
        self.dice = random.Random(seed)
        self.folder, self.charter = folder, charter or charter_of()
        self.coordinator = FakeCoordinator(self.charter, self._now)
        self.wire = Wire(self.coordinator, asyncio.sleep, fault)
        self._elapsed = 0.0
        self.told, self.outcomes = [], []

    def _now(self):
        return self._elapsed + asyncio.get_running_loop().time()

    def path(self, client=3, name=""):
        return self.folder / f"state{name}-{client}.json"

    def memory(self, client=3, name=""):
        return Memory.decoded(self.path(client, name).read_bytes())

    def slots(self, client=3, name=""):
        return set(self.memory(client, name).participant.slots)

    def states(self, client=3, name=""):
        return list(self.memory(client, name).participant.slots.values())

    def start(self, *clients, salt=0, name="", source=None, cover=False, token=None):
        """Run devices until they end; the coordinator's clock continues."""

        async def main():
            try:
                results = await asyncio.gather(
                    *(self._device(c, salt, name, source, cover, token) for c in clients or (3,))
                )
            finally:
                self._elapsed += asyncio.get_running_loop().time()
            return results if clients else results[0]

        with nullcontext() if self.syncs else mock.patch("os.fsync"):
            return virtually(main)

    async def _device(self, client, salt, name, source, cover, token):
        invited = token or invitation(self.charter, client)
        with StateFile(self.path(client, name)) as file:
            diary = Diary(file, invited, source or Repeatable(self.dice))
            async with httpx.AsyncClient(transport=self.wire) as http:
                device = TaskDevice(
                    invited,
                    diary,
                    Link(http, URL, random_bytes=self.dice.randbytes),
                    lambda charter: StubTrainer(charter, salt),
                    cover=cover,
                    pace=Pace(random_bytes=self.dice.randbytes),
                    workshop=self.workshop,
                    tell=self.told.append,
                    on_outcome=self.outcomes.append,
                    random_bytes=self.dice.randbytes,
                    source=Repeatable(self.dice),
                )
                return await device.run()


def posted_steps(coordinator):
    """Steps for which the coordinator received updates."""
    return {step for _, step in coordinator.posts}


def accepted_once_each(world, client=3):
    """Check that the steps with accepted updates are those drawn, each with one request body."""
    drawn = world.slots(client)
    for (who, step), bodies in world.coordinator.posts.items():
        if who == client:
            assert step in drawn
            assert len(set(bodies)) == 1
    for step, state in world.memory(client).participant.slots.items():
        if (client, step) in world.coordinator.rows:
            assert state is ClientState.ANSWERED
