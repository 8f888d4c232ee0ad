"""Coordinator in this process: real storage, real routes, and a clock that the test sets."""

import asyncio
import hashlib
import os
from contextlib import asynccontextmanager

import httpx
import numpy as np
from forked import HANGS_SECONDS

from turnout.protocol.lattice import Lattice
from turnout.randomness import OSRandomness
from turnout.schemes import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.ledger import SigningKey
from turnout.service.contract.wire import (
    ENROLMENT_FORMAT,
    NONCE_BYTES,
    UPDATE_FORMAT,
    SignedRequest,
    enrolments_path,
    updates_path,
)
from turnout.service.storage.opening import open_storage
from turnout.service.web.app import create_app
from turnout.service.web.conductor import Conductor
from turnout.service.web.running import Running

DIMENSION = 8
POPULATION = 40
PASSWORD = "correct horse battery staple"
PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 3
windows = 2
[privacy]
relation = "add-remove"
noise_multiplier = 1.0
delta = 1e-5
[optimizer]
learning_rate = 1.0
"""
PARTICIPATION = CheckIn(3, 2)
TIMING = Timing(60.0, 40.0, 10.0)
KEY = SigningKey(bytes(range(32)))


def charter_of(
    rule=ReleaseRule.AGGREGATED,
    dimension=DIMENSION,
    participation=PARTICIPATION,
    population=POPULATION,
):
    steps = participation.steps
    return Charter(
        plan=PLAN,
        population=population,
        scheme=Scheme(GaussianNoise(1.0), participation, Relation.ADD_REMOVE, rule),
        delta=1e-5,
        target=3.0,
        charged_steps=tuple(range(1, steps + 1)),
        charged=tuple(2.5 * s / steps for s in range(1, steps + 1)),
        encoding=Lattice.for_noise(1.0, 0.5, dimension),
        expected_check_ins=5.0 if rule is ReleaseRule.AGGREGATED else None,
        minibatch=1,
        initial_model=hashlib.sha256(bytes(4 * dimension)).digest(),
        timing=TIMING,
        coordinator_key=KEY.public,
    )


class Adding:
    """Learner without PyTorch that adds the direction to the model."""

    def init(self, parameters):
        return {"moves": np.zeros(1)}

    def moved(self, parameters, state, direction, move):
        moved = parameters - direction.astype(np.float32)
        assert np.isfinite(moved).all()
        return moved, {"moves": state["moves"] + 1}

    def released(self, parameters, state):
        return parameters


class ManualClock:
    """Clock that stands still until a test advances it."""

    def __init__(self):
        self.time, self.waiting, self._moved = 1000.0, 0, asyncio.Event()

    def now(self):
        return self.time

    async def until(self, moment):
        self.waiting += 1
        try:
            while self.time < moment:
                await self._moved.wait()
        finally:
            self.waiting -= 1

    def advance(self, seconds):
        self.time += seconds
        self._moved.set()
        self._moved = asyncio.Event()


class EndedError(BaseException):
    """Error raised in place of ending the process."""


class Ends:
    def __init__(self):
        self.calls = []

    def __call__(self, code, reason):
        self.calls.append((code, reason))


def key_of(client):
    return SigningKey(hashlib.sha256(b"device %d" % client).digest())


def secret_of(client):
    return hashlib.sha256(b"secret %d" % client).digest()


def task_storage(path, charter, enrolled=20, invited=30):
    """Database with a task, in which clients 0 … enrolled − 1 have keys."""
    storage = open_storage(path, serving=True)
    with storage.transaction() as tx:
        tx.create_task(charter.canonical(), KEY.private, bytes(4 * charter.encoding.dimension))
        tx.invite([hashlib.sha256(secret_of(i)).digest() for i in range(invited)])
        for client in range(enrolled):
            tx.enrol(client, key_of(client).public)
    return storage


def signed(
    task, path, client, body=b"", *, key=None, head="", method="POST", nonce=None, format=None
):
    """Headers of a signed request."""
    nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
    if format is None:
        has_body = path.endswith(("/updates", "/covered"))
        enrols = path == enrolments_path()
        format = ENROLMENT_FORMAT if enrols else UPDATE_FORMAT if has_body else ""
    digest = hashlib.sha256(body).digest()
    request = SignedRequest(task, method, path, client, nonce, digest, format, head)
    return request.headers((key or key_of(client)).sign(request.canonical()))


class World:
    """One running task, its application and an HTTP client."""

    def __init__(self, running, ends, clock, password):
        self.running, self.ends, self.clock = running, ends, clock
        self.task, self.charter = running.task, running.charter
        self.app = create_app(running, password=password)
        transport = httpx.ASGITransport(app=self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://coordinator")
        self.conductor = Conductor(running)

    def body(self, value=1):
        """Body of an update."""
        return self.charter.encoding.encode(
            np.full(self.charter.encoding.dimension, value, np.int32)
        )

    async def post(self, path, client, body=b"", **how):
        headers = signed(self.task, path, client, body, **how)
        return await self.http.post(path, content=body, headers=headers)

    async def update(self, client, step, value=1, **how):
        return await self.post(updates_path(step), client, self.body(value), **how)

    async def until_shown(self, condition):
        """Let the conductor work until a condition on the published state holds."""
        async with asyncio.timeout(HANGS_SECONDS):
            while not condition(self.running.shown):
                await asyncio.sleep(0.002)

    async def step_over(self):
        """Advance the clock to the next publication."""
        step = self.running.shown.step
        conducting = asyncio.create_task(self.conductor._step())
        while not conducting.done():
            await asyncio.sleep(0.001)
            self.clock.advance(self.charter.timing.step_seconds)
        await conducting
        assert self.running.shown.step == step + 1


@asynccontextmanager
async def world(
    folder, *, rule=ReleaseRule.AGGREGATED, storage=None, password=PASSWORD, charter=None, **how
):
    """Running task with a new database, or with a given storage."""
    charter = charter or charter_of(rule)
    storage = storage or task_storage(folder / "turnout.sqlite", charter)
    ends, clock = Ends(), ManualClock()
    running = Running(
        storage,
        lambda _: Adding(),
        end=ends,
        clock=clock,
        source=OSRandomness(),
        **how,
    )
    made = World(running, ends, clock, password)
    try:
        yield made
    finally:
        await made.http.aclose()
        await asyncio.to_thread(running.close)
