"""Complete service on loopback in a thread: storage, engine, schedule and all routes."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dashboard_sample as sample
import numpy as np
import uvicorn

from turnout.protocol.lattice import Lattice
from turnout.schemes import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.ledger import SigningKey
from turnout.service.storage.interface import Scored
from turnout.service.storage.opening import open_storage
from turnout.service.web.app import create_app
from turnout.service.web.conductor import Conductor
from turnout.service.web.running import Running

PASSWORD = "correct horse battery staple"
KEY = SigningKey(bytes(range(32)))
LATTICE = Lattice(1 / 64, 1.0, 4)
FIRST = np.zeros(4, "<f4").tobytes()
CAME = 7
"""Devices that participate at step 0; there are none later."""


class Descent:
    """Learner that moves the model by one unit against the released direction."""

    def init(self, parameters):
        return {}

    def moved(self, parameters, state, direction, move):
        return (parameters - direction).astype(np.float32), state

    def released(self, parameters, state):
        return parameters


def charter(step_seconds: float) -> Charter:
    """Charter of a task of 300 steps with the plan of the demo."""
    participation = CheckIn(10, 30)
    return Charter(
        plan=sample.PLAN.read_text(),
        population=20,
        scheme=Scheme(
            GaussianNoise(1.0), participation, Relation.ADD_REMOVE, ReleaseRule.AGGREGATED
        ),
        delta=1e-4,
        target=3.0,
        charged_steps=tuple(range(10, 301, 10)),
        charged=tuple(0.009 * steps for steps in range(10, 301, 10)),
        encoding=LATTICE,
        expected_check_ins=2.0,
        minibatch=1,
        initial_model=hashlib.sha256(FIRST).digest(),
        timing=Timing.of(step_seconds),
        coordinator_key=KEY.public,
    )


@dataclass
class Allowed:
    """Number of steps that a test allows the coordinator to take."""

    steps: int = 1


class Waiting(Conductor):
    """Conductor that takes only the allowed steps, each at its scheduled time."""

    allowed: Allowed

    async def _step(self) -> None:
        while self._running.shown.step >= self.allowed.steps:
            await asyncio.sleep(0.01)
        await super()._step()


@contextmanager
def service(folder: Path, allowed: Allowed, step_seconds: float = 1.0) -> Iterator[str]:
    """Address of a running service."""
    storage = open_storage(folder / "task.sqlite", serving=True)
    with storage.transaction() as tx:
        tx.create_task(charter(step_seconds).canonical(), KEY.private, FIRST)
        tx.invite([bytes([i]) * 32 for i in range(12)])
        for client in range(CAME):
            tx.enrol(client, SigningKey.new().public)
        tx.score(Scored(0, 0.1, 2.3))
        tx.score(Scored(1, 0.625, 1.25))
    ended: list[str] = []
    running = Running(storage, lambda _: Descent(), end=lambda _, reason: ended.append(reason))
    upload = running.engine.inspect(LATTICE.encode(np.array([3, -4, 0, 0], np.int32)))
    running.writer.submit(
        lambda tx: [running.engine.update(tx, client, 0, upload) for client in range(CAME)]
    ).result()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # connections before the server runs are queued, not refused
    app = create_app(running, password=PASSWORD)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))

    async def main() -> None:
        conductor = Waiting(running)
        conductor.allowed = allowed
        conducting = asyncio.create_task(conductor.run())
        await server.serve([listener])
        conducting.cancel()
        await asyncio.wait([conducting])

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        running.close()
        listener.close()
    assert ended == []
