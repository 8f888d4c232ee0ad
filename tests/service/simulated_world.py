"""Simulation of a service from one seed: devices, a bad network, crashes and malicious clients.

``python tests/service/simulated_world.py SEED`` prints the events of one simulation.

The simulation has no clock: the next event is drawn at random, so a slow network, a device with a
wrong clock and a step that closes immediately are only orders of events.
"""

from __future__ import annotations

import hashlib
import random
import sys
from dataclasses import dataclass, field
from functools import cache
from unittest import mock

import numpy as np
from memory_storage import MemoryStorage
from world_scenes import DEVICES, DIMENSION, EPSILON_A_STEP, MESSAGES, SCENES, charter_of

from turnout.core.errors import RemoteProtocolError
from turnout.participation.drawing import draw
from turnout.participation.schedule import blocks
from turnout.randomness import SimulationRandomness
from turnout.schemes import FixedAssignment, KSubset, ReleaseRule
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head, require_chain
from turnout.service.contract.wire import StepPhase, WireAnswer, WireReceipt
from turnout.service.coordinator import releases as learning
from turnout.service.coordinator.engine import Engine
from turnout.service.storage.interface import ParticipationRow

written = cache(Charter.canonical)


@cache
def terms_of(data: bytes) -> Charter:
    """Charter parsed from its bytes, cached since few charters are read many times."""
    return READ(data)


READ = Charter.from_canonical


class Momentum:
    """Learner with a state that a restart must restore."""

    def init(self, parameters):
        return {"velocity": np.zeros_like(parameters)}

    def moved(self, parameters, state, direction, move):
        velocity = np.float32(0.5) * state["velocity"] + direction.astype(np.float32)
        return parameters - velocity, {"velocity": velocity}

    def released(self, parameters, state):
        return parameters


@dataclass
class Message:
    """Message on its way to the coordinator."""

    kind: str
    client: int
    step: int
    body: bytes = b""


@dataclass
class Device:
    """Device with a durable draw of its steps and a record of what it sent."""

    client: int
    slots: tuple[int, ...]
    sent: dict[int, bytes] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class BrokenError(AssertionError):
    """Violation of a guarantee of the service."""


def promise(kept: bool, what: str) -> None:
    if not kept:
        raise BrokenError(what)


class World:
    """Simulation for one seed: `run` plays it, and `check` tests every guarantee.

    Parts that a faulty coordinator would change are methods, so that tests can replace them.
    """

    engine_class = Engine
    storage_class = MemoryStorage

    def __init__(self, seed: int, **parts) -> None:
        self.dice = random.Random(seed)
        self.parts = parts
        scene = SCENES[self.dice.randrange(len(SCENES))]
        self.participation, rule, *_ = scene
        self.charter = charter_of(*scene)
        self.asks_one = rule is ReleaseRule.ONE_CLIENT
        self.storage = parts.get("storage", MemoryStorage)()
        self.noise_drawn: list[np.ndarray] = []
        self.story: list[str] = []
        self.acknowledged: dict[tuple[int, int], bytes | None] = {}
        self.came: list[ParticipationRow] = []  # as they were stored when their step was released
        self.published: dict[int, tuple[bytes, bytes]] = {}
        self.network: list[Message] = []
        self.honest_bodies: dict[tuple[int, int], bytes] = {}
        with self.storage.transaction() as tx:
            tx.create_task(written(self.charter), bytes(32), bytes(4 * DIMENSION))
        self.devices = [Device(c, self._drawn(c)) for c in range(DEVICES)]
        self.lossy, self.deadly, self.lying = (self.dice.random() for _ in range(3))
        self.start()

    def _drawn(self, client: int) -> tuple[int, ...]:
        source = SimulationRandomness(np.random.default_rng(self.dice.getrandbits(64)))
        schedules = (
            draw(self.participation, DEVICES, b, source, client=client)
            for b in blocks(self.participation)
        )
        return tuple(int(slot) for schedule in schedules for slot in schedule.slots())

    def noise(self, deviation: float, size: int) -> np.ndarray:
        drawn = np.array([self.dice.randrange(-(10**6), 10**6) for _ in range(size)])
        self.noise_drawn.append(drawn)
        return drawn

    def start(self) -> None:
        """Start the coordinator from its storage."""
        source = SimulationRandomness(np.random.default_rng(self.dice.getrandbits(64)))
        engine_class = self.parts.get("engine", Engine)
        with mock.patch.object(Charter, "from_canonical", terms_of):
            self.engine = engine_class.open(
                self.storage, lambda _: Momentum(), source=source, noise=self.noise
            )
        self.see(self.engine.published.head, self.engine.published.parameters)
        self.story.append(f"up at step {self.engine.step}, {self.engine.phase}")

    def see(self, head: Head, parameters: bytes) -> None:
        """Record a download of what is published."""
        seen = (head.digest, parameters)
        promise(self.published.setdefault(head.steps, seen) == seen, "two models of one step")

    # -- what can happen --------------------------------------------------------------------

    def run(self) -> World:
        for _ in range(400):
            if self.engine.phase is StepPhase.FINISHED and not self.network:
                break
            self.happen()
        while self.engine.phase is not StepPhase.FINISHED:
            self.advance(crash=False)
        self.check()
        return self

    def happen(self) -> None:
        event = self.dice.random()
        if event < 0.45 and self.network:
            self.deliver()
        elif event < 0.75:
            self.speak(self.dice.choice(self.devices))
        elif event < 0.80:
            self.lie(self.dice.choice(self.devices))
        elif event < 0.83 and self.dice.random() < self.deadly:
            self.story.append("killed")
            self.start()
        elif event < 0.92:
            self.advance(crash=self.dice.random() < 0.4 * self.deadly)
        else:
            with self.storage.transaction() as tx:
                tx.reclaim(2)

    def speak(self, device: Device) -> None:
        """Let a device act as if the current step were some step, since its clock may be wrong."""
        engine = self.engine
        step = engine.step + self.dice.choice((0, 0, 0, 0, -1, 1))
        if step not in device.slots or step in device.done:
            return
        if not self.asks_one:
            self.send(Message("update", device.client, step, self.body(device, step)))
        elif self.dice.random() < 0.5:
            self.send(Message("check-in", device.client, step))
        else:
            with self.storage.snapshot() as view:
                asked = engine.requested(view, device.client, step).asked
            if asked:
                self.send(Message("update", device.client, step, self.body(device, step)))

    def body(self, device: Device, step: int) -> bytes:
        """Update of a device, computed once and resent unchanged."""
        if step not in device.sent:
            update = np.array([self.dice.randrange(-40, 41) for _ in range(DIMENSION)]) / 64
            source = SimulationRandomness(np.random.default_rng(self.dice.getrandbits(64)))
            device.sent[step] = self.charter.encoding.packed(update, source)
        self.honest_bodies[device.client, step] = device.sent[step]
        return device.sent[step]

    def send(self, message: Message) -> None:
        if self.dice.random() < 0.3 * self.lossy:
            return
        copies = 1 + (self.dice.random() < 0.3)
        for _ in range(copies):
            self.network.insert(self.dice.randrange(len(self.network) + 1), message)

    def lie(self, device: Device) -> None:
        """Send a forgery: a wrong step or body, an oversized update, or an unrequested answer."""
        if self.dice.random() > self.lying:
            return
        step = self.dice.choice((self.dice.randrange(self.participation.steps), self.engine.step))
        kind = self.dice.choice(("update", "update", "check-in"))
        body = self.dice.choice((self.other_body(), self.body_of_nobody(), b"\x00" * 7))
        self.send(Message(kind, device.client, step, body))

    def other_body(self) -> bytes:
        """Valid body that no device of the simulation sends."""
        if self.charter.randomized:
            return bytes(5)
        return self.charter.encoding.encode(np.array([7, -9], np.int32))

    def body_of_nobody(self) -> bytes:
        """Invalid body of the length of an update: not clipped, or with trailing bits."""
        if self.charter.randomized:
            return b"\x00\x00\x00\x00\x04"
        return np.array([64, 64], "<i4").tobytes()

    def deliver(self) -> None:
        """Deliver one message; the coordinator may crash before or after the commit."""
        message = self.network.pop()
        death = self.dice.random()
        try:
            receipt = self.handle(message, dies_before_commit=death < 0.1 * self.deadly)
        except KilledError:
            self.story.append("killed before a commit")
            self.start()
            return
        if death > 1 - 0.1 * self.deadly:
            self.story.append("killed after a commit")
            self.start()  # the answer is lost on the way
            return
        if receipt is not None and self.dice.random() > 0.3 * self.lossy:
            self.answered(message, receipt)

    def handle(self, message: Message, *, dies_before_commit: bool) -> WireReceipt | None:
        engine = self.engine
        try:
            upload = engine.inspect(message.body) if message.kind == "update" else None
        except RemoteProtocolError:
            return None
        with self.storage.transaction() as tx:
            if upload is None:
                receipt = engine.check_in(tx, message.client, message.step)
            else:
                receipt = engine.update(tx, message.client, message.step, upload)
            if dies_before_commit:
                raise KilledError
        return receipt

    def answered(self, message: Message, receipt: WireReceipt) -> None:
        key = (message.client, message.step)
        self.story.append(f"{message.kind} {key}: {receipt.answer}")
        if receipt.answer is WireAnswer.ACCEPTED:
            if receipt.digest is not None or key not in self.acknowledged:
                self.acknowledged[key] = receipt.digest
            if self.honest_bodies.get(key) == message.body:
                self.devices[message.client].done.add(message.step)

    def advance(self, *, crash: bool) -> None:
        """End the phase; the coordinator may crash before the commit or before the publication."""
        engine = self.engine
        if engine.phase is StepPhase.FINISHED:
            return
        with self.storage.snapshot() as view:
            came = list(view.participations(engine.step))
        try:
            with self.storage.transaction() as tx:
                if self.asks_one and engine.phase is StepPhase.CHECK_INS:
                    engine.close_check_ins(tx)
                else:
                    engine.close_step(tx)
                if crash and self.dice.random() < 0.5:
                    raise KilledError
        except KilledError:
            self.story.append("killed before a release")
            self.start()
            return
        self.released(came)
        if crash:
            self.story.append("killed after a release")
            self.start()
        elif engine.phase is StepPhase.CLOSED:
            published = engine.publish()
            self.see(published.head, published.parameters)

    def released(self, came: list[ParticipationRow]) -> None:
        """Record facts of a released step that a test may keep and the storage may not."""
        with self.storage.snapshot(whole=True) as view:
            last = view.last_release()
            if last is None or (came and came[0].step > last.record.step):
                return  # only the check-ins were closed
            self.came += came
            for row in came:
                left = view.participation_at(row.client, row.step)
                promise(left is None, "a client is joined to a released step")
            step = last.record.step
            promise(view.asked(step) is None, "who was asked is kept")
            promise(not list(view.bodies(step)), "updates of a released step can be read")

    # -- what must hold ---------------------------------------------------------------------

    def check(self) -> None:
        with self.storage.transaction() as tx:
            while tx.reclaim(3):
                pass
        with self.storage.snapshot(whole=True) as view:
            releases = [view.release_at(step) for step in range(self.participation.steps)]
            promise(not view.participation_counts()[0].size, "turns outlive the task")
        everybody = self.came
        promise(all(r is not None for r in releases), "a step was not released")
        promise(not self.storage.committed.bodies, "updates outlive the task")
        by_place = {(row.client, row.step): row for row in everybody}
        rows = [by_place.get(place) for place in sorted(self.acknowledged)]
        self.check_participations(rows, everybody)
        self.check_ledger(releases)
        self.check_sums(releases, everybody)

    def check_participations(self, rows, everybody) -> None:
        for (client, step), row in zip(sorted(self.acknowledged), rows, strict=True):
            promise(row is not None, f"an acknowledged check-in of {client} at {step} is lost")
            digest = self.acknowledged[client, step]
            promise(digest is None or row.digest == digest, "an acknowledged update is another")
        quota = {KSubset: 2, FixedAssignment: 2}.get(type(self.participation), 1)
        taken: dict[tuple[int, int], int] = {}
        length = blocks(self.participation)[0].steps
        for row in everybody:
            place = row.client, row.step // length
            taken[place] = taken.get(place, 0) + 1
        promise(all(n <= quota for n in taken.values()), "somebody took part too often")
        steps = [(row.client, row.step) for row in everybody]
        promise(len(set(steps)) == len(steps), "somebody took part twice in a step")

    def check_ledger(self, releases) -> None:
        head = Head(0, bytes.fromhex(self.charter.task))
        for step, release in enumerate(releases):
            record = release.record
            head = require_chain(self.charter.task, head, record)
            promise(record.epsilon == EPSILON_A_STEP * (step + 1), "another price than the plan's")
            digest = hashlib.sha256(release.parameters).digest()
            promise(record.model_digest == digest, "another model than the ledger's")
            seen = self.published.get(step + 1)
            stored = (record.digest, release.parameters)
            promise(seen in (None, stored), "a model was seen that is not stored")
        promise(
            self.published[self.participation.steps][0] == head.digest, "the end was not published"
        )

    def check_sums(self, releases, everybody) -> None:
        """Check that a release is the exact sum of stored updates plus a draw that no other has."""
        self.check_asked(everybody)
        if self.charter.randomized:
            self.check_messages(releases, everybody)
            return
        draws = {drawn.astype("<i8").tobytes() for drawn in self.noise_drawn}
        used: set[bytes] = set()
        sums = []
        for step, release in enumerate(releases):
            total = np.zeros(DIMENSION, np.int64)
            for row in everybody:
                if row.step == step and row.digest is not None:
                    total += np.frombuffer(self.body_of(row), "<i4").astype(np.int64)
            for drawn in draws - used:
                noisy = total + np.frombuffer(drawn, "<i8")
                if hashlib.sha256(noisy.astype("<i8").tobytes()).digest() == (
                    release.record.sum_digest
                ):
                    used.add(drawn)
                    sums.append(noisy)
                    break
            else:
                raise BrokenError(f"step {step} is no sum of stored updates and a fresh draw")
        self.check_models(releases, sums)

    def check_messages(self, releases, everybody) -> None:
        """Check that a release is the sum of the stored messages, in any order, without noise."""
        sums = []
        for step, release in enumerate(releases):
            stored = [self.body_of(row) for row in reversed(everybody) if row.step == step]
            rows = [self.charter.encoding.decode(body) for body in stored]
            total = MESSAGES.total(np.array(rows).reshape(-1, 2))
            summed = MESSAGES.mean(total, 1)
            digest = hashlib.sha256(summed.astype("<f8").tobytes()).digest()
            promise(digest == release.record.sum_digest, f"step {step} is no sum of messages")
            promise(release.served == len(stored), f"step {step} has another number of messages")
            sums.append(summed)
        promise(not self.noise_drawn, "noise was added to messages")
        self.check_models(releases, sums)

    def check_asked(self, everybody) -> None:
        for step in range(self.participation.steps):
            answered = [r for r in everybody if r.step == step and r.digest is not None]
            promise(not self.asks_one or len(answered) <= 1, "two clients answered in one step")

    def check_models(self, releases, sums) -> None:
        """Check that each model follows from the released sums by release rule and learner."""
        learner, pending = Momentum(), np.zeros(DIMENSION)
        parameters, state = np.zeros(DIMENSION, np.float32), None
        state = learner.init(parameters)
        minibatch = self.charter.minibatch
        step_size = 1.0 if self.charter.randomized else self.charter.encoding.step
        divisor = self.charter.expected_check_ins or minibatch
        for step, (release, noisy) in enumerate(zip(releases, sums, strict=True)):
            pending = pending + noisy
            if (step + 1) % minibatch == 0:
                direction = pending / divisor * step_size
                parameters, state = learner.moved(parameters, state, direction, step // minibatch)
                pending = np.zeros(DIMENSION)
            promise(release.parameters == learning.to_bytes(parameters), f"another model at {step}")

    def body_of(self, row) -> bytes:
        for body in (self.honest_bodies.get((row.client, row.step)), self.other_body()):
            if body is not None and hashlib.sha256(body).digest() == row.digest:
                return body
        raise BrokenError("an update is stored that nobody may send")


class KilledError(Exception):
    """Simulated crash of the coordinator's process."""


if __name__ == "__main__":
    world = World(int(sys.argv[1]))
    try:
        world.run()
    finally:
        print("\n".join(world.story))
