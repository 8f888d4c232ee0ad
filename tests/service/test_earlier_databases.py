"""Databases of tasks under way that an earlier version wrote: opened, gone on with, to the bit.

Each file in ``earlier`` holds the rows of a task that was stopped within its fourth step, and what
the version that wrote it released when it went on. Sums are of integers, and each operation on
the model is exactly rounded, so every processor gets the same bits.
"""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import numpy as np
import pytest
from simulated_world import Momentum

from turnout.randomness import SimulationRandomness
from turnout.service.contract.wire import StepPhase
from turnout.service.coordinator.engine import Engine
from turnout.service.coordinator.export import ledger_lines
from turnout.service.storage import sqlite
from turnout.service.storage.database import migrations
from turnout.service.storage.opening import open_storage

EARLIER = sorted(Path(__file__).with_name("earlier").glob("*.json"))


def restored(document, path):
    """A database of the schema that the rows are of."""
    scripts = migrations("sqlite")[: document["schema"]]
    sqlite.opened(path, serving=True, scripts=scripts).close()
    shell = apsw.Connection(str(path))
    for table, *values in document["rows"]:
        cells = [bytes.fromhex(v[2:]) if str(v).startswith("0x") else v for v in values]
        shell.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(cells))})", cells)
    shell.close()


class Noise:
    """Integers that follow from how many were drawn since the coordinator began."""

    def __init__(self):
        self.drawn = 0

    def __call__(self, deviation, size, *ignored):
        self.drawn += size
        return np.arange(self.drawn, self.drawn + size, dtype=np.int64) ** 2 - 20


def update_of(engine, client, step):
    """What a client sends in a step."""
    update = np.array([client + step, client - 3 * step], np.int32)
    return engine.inspect(engine.charter.encoding.encode(update))


def start(storage):
    source = SimulationRandomness(np.random.default_rng(5))
    return Engine.open(storage, lambda _: Momentum(), source=source, noise=Noise())


def asks(engine):
    """Whether check-ins come first, and then the answer of the one client who is asked."""
    return (
        engine.phase is StepPhase.CHECK_INS
        and '"one-client"' in engine.charter.canonical().decode()
    )


def send(storage, engine, clients):
    """Clients check in, and send what they may."""
    for client in clients:
        with storage.transaction() as tx:
            if asks(engine):
                engine.check_in(tx, client, engine.step)
            else:
                engine.update(tx, client, engine.step, update_of(engine, client, engine.step))


def close(storage, engine, clients):
    """The step ends; of one that asks a client, its answer comes first."""
    if asks(engine):
        with storage.transaction() as tx:
            engine.close_check_ins(tx)
        with storage.snapshot() as view:
            asked = [c for c in clients if engine.requested(view, c, engine.step).asked]
        send(storage, engine, asked)
    with storage.transaction() as tx:
        engine.close_step(tx)
    engine.publish()


def go_on(storage, engine, slots):
    """Every step that is left, with the clients who drew it."""
    while engine.phase is not StepPhase.FINISHED:
        clients = slots[engine.step]
        send(storage, engine, clients)
        close(storage, engine, clients)


@pytest.mark.parametrize("file", EARLIER, ids=lambda file: file.stem)
def test_a_task_under_way_goes_on_as_the_version_that_wrote_it_would(file, tmp_path):
    document = json.loads(file.read_text())
    path = tmp_path / "task.sqlite"
    restored(document, path)
    storage = open_storage(str(path), serving=True)
    engine = start(storage)
    assert engine.step == document["step"]
    assert (engine.published.head.steps, engine.published.head.digest.hex()) == (
        document["step"],
        document["head_then"],
    )
    go_on(storage, engine, document["slots"])
    with storage.snapshot(whole=True) as view:
        models = [view.release_at(step).parameters for step in range(len(document["models"]))]
        ledger = [line.decode() for line in ledger_lines(view)]
    storage.close()
    released = [np.frombuffer(model, "<f4").tolist() for model in models]
    assert released == document["models"]
    assert engine.published.head.digest.hex() == document["head"]
    assert document["charter"] in ledger[0]


def test_there_are_rows_of_every_kind():
    tables = {row[0] for file in EARLIER for row in json.loads(file.read_text())["rows"]}
    kept = "task invitations enrolments releases models counts turns step_keys check_ins bodies"
    assert set(kept.split()) <= tables
