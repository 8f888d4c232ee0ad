"""What the mechanism keeps between steps: stored, read back, and read from earlier databases.

`tasks_of_schema_3.json` holds two tasks as the version with schema 3 left them in the middle of a
step, and the end to which that version brought them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from memory_storage import MemoryStorage
from simulated_world import Momentum
from test_storage_upgrades import Shell
from world_scenes import charter_of

from turnout.core.errors import StorageError
from turnout.protocol.mechanisms import Aggregated
from turnout.schemes import CheckIn, ReleaseRule
from turnout.service.contract.charter import Charter
from turnout.service.contract.wire import WireAnswer
from turnout.service.coordinator.engine import Engine
from turnout.service.coordinator.releases import _packed, _unpacked
from turnout.service.storage import postgres, sqlite
from turnout.service.storage.database import migrations
from turnout.service.storage.opening import open_storage

TASKS = json.loads(Path(__file__).with_name("tasks_of_schema_3.json").read_text())


def noise(deviation, size):
    return np.array([37, -58], np.int64)


def opened(storage) -> Engine:
    return Engine.open(storage, lambda charter: Momentum(), noise=noise)


def write(url: str, tables: dict) -> None:
    """A database of schema 3 with these rows."""
    module, dialect = (postgres, "postgres") if url.startswith("postgres") else (sqlite, "sqlite")
    module.opened(url, serving=True, scripts=migrations(dialect)[:3]).close()
    shell = Shell(url)
    for table, rows in tables.items():
        for row in rows:
            values = (bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in row)
            shell.insert(table, *values)
    shell.close()


def go_on(engine: Engine, storage, came: bool) -> None:
    """The rest of a step in which client = step comes, and has come where ``came``."""
    client = step = engine.step
    update = np.array([3 + client, -4 * client], np.int32)
    upload = engine.inspect(engine.charter.encoding.encode(update))
    with storage.transaction() as tx:
        if engine.charter.asks_one:
            if not came:
                assert engine.check_in(tx, client, step).answer is WireAnswer.ACCEPTED
            engine.close_check_ins(tx)
        elif came:
            assert tx.arrived(step).tolist() == [client]
    with storage.transaction() as tx:
        assert engine.update(tx, client, step, upload).answer is WireAnswer.ACCEPTED
        engine.close_step(tx)
    engine.publish()


@pytest.mark.parametrize("rule", TASKS)
def test_a_task_of_schema_3_goes_on_to_the_same_end(url, rule):
    task = TASKS[rule]
    write(url, task["tables"])
    came = True
    for _ in range(len(task["tables"]["releases"]), 6):
        storage = open_storage(url, serving=True)  # each step after a restart
        go_on(opened(storage), storage, came)
        storage.close()
        came = False
    storage = open_storage(url, serving=True)
    published = opened(storage).published
    storage.close()
    assert published.head.digest.hex() == task["head"]
    assert published.parameters.hex() == task["parameters"]


def test_a_state_is_read_back_as_it_was_written():
    state = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([1, -2], np.int32)}
    initial = {name: np.zeros_like(array) for name, array in state.items()}
    read = _unpacked(initial, _packed(state))
    assert read.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("initial", "data"),
    [
        ({"pending": np.zeros(2)}, bytes(8)),
        ({"pending": np.zeros(2)}, bytes(24)),
        ({}, bytes(7) + b"\1"),
    ],
)
def test_a_state_of_another_length_is_damage(initial, data):
    with pytest.raises(StorageError, match="state is damaged"):
        _unpacked(initial, data)


class Differences:
    """z_t − z_{t−1}: noise that is correlated from step to step, on the lattice."""

    def initial_state(self, dimension):
        return {"last": np.zeros(dimension, np.int64)}

    def draw(self, deviation, dimension, state, fresh):
        drawn = fresh(deviation, dimension)
        return drawn - state["last"], {"last": drawn}


@pytest.mark.parametrize("restarts", [False, True])
def test_noise_with_a_memory_needs_no_more_than_its_own_class(monkeypatch, restarts):
    """The engine serves it, and a restart in every step changes nothing."""
    charter = charter_of(CheckIn(3, 2), ReleaseRule.AGGREGATED, 1)
    plain = charter.mechanism
    correlated = Aggregated(plain.priced_as, plain.bound, plain.expected_check_ins, Differences())
    monkeypatch.setattr(Charter, "mechanism", correlated)
    storage, draws = MemoryStorage(), iter(np.arange(12, dtype=np.int64).reshape(6, 2) ** 3)

    def cubes(deviation, size):
        return next(draws)

    def started():
        return Engine.open(storage, lambda charter: Momentum(), noise=cubes)

    with storage.transaction() as tx:
        tx.create_task(charter.canonical(), bytes(32), bytes(8))
    engine, last = started(), np.zeros(2, np.int64)
    for step in range(6):
        with storage.transaction() as tx:
            released = engine.close_step(tx)
        engine.publish()
        drawn = np.arange(2 * step, 2 * step + 2, dtype=np.int64) ** 3
        assert released.record.sum_digest == hashlib.sha256((drawn - last).tobytes()).digest()
        last = drawn
        engine = started() if restarts else engine
