"""State of a mechanism between steps is stored and restored."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from memory_storage import MemoryStorage
from simulated_world import Momentum
from world_scenes import charter_of

from turnout.core.errors import StorageError
from turnout.protocol.mechanisms import Aggregated
from turnout.schemes import CheckIn, ReleaseRule
from turnout.service.contract.charter import Charter
from turnout.service.coordinator.engine import Engine
from turnout.service.coordinator.releases import pack_mechanism_state, unpack_mechanism_state


def test_mechanism_state_round_trips():
    state = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([1, -2], np.int32)}
    initial = {name: np.zeros_like(array) for name, array in state.items()}
    read = unpack_mechanism_state(initial, pack_mechanism_state(state))
    assert read.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("initial", "data"),
    [
        ({"pending": np.zeros(2)}, bytes(8)),
        ({"pending": np.zeros(2)}, bytes(24)),
        ({}, bytes(8)),
    ],
)
def test_mechanism_state_of_a_wrong_length_is_refused(initial, data):
    with pytest.raises(StorageError, match="state is damaged"):
        unpack_mechanism_state(initial, data)


class Differences:
    """Noise z_t − z_{t−1} on the lattice, which is correlated between steps."""

    def initial_state(self, dimension):
        return {"last": np.zeros(dimension, np.int64)}

    def draw(self, deviation, dimension, state, fresh):
        drawn = fresh(deviation, dimension)
        return drawn - state["last"], {"last": drawn}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_stateful_mechanism_releases_the_same_sums_after_restarts(monkeypatch, restarts):
    """The coordinator is restarted in every step."""
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
