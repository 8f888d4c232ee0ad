"""Decisions of the engine: receipts, restarts, budget, restored old databases."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from memory_storage import MemoryStorage
from simulated_world import Momentum
from world_scenes import EPSILON_A_STEP, charter_of

from turnout.core.errors import BudgetExceededError, RemoteProtocolError, StorageError
from turnout.protocol.lattice import Lattice
from turnout.schemes import CheckIn, ReleaseRule
from turnout.service.contract.ledger import Head
from turnout.service.contract.wire import SignedHead, StepPhase, WireAnswer
from turnout.service.coordinator.engine import Engine, SetBackError

PARTICIPATION = CheckIn(3, 2)
LATTICE = Lattice(1 / 64, 1.0, 2)


def stored(charter=None) -> MemoryStorage:
    storage = MemoryStorage()
    charter = charter or charter_of(PARTICIPATION, ReleaseRule.AGGREGATED, 1)
    with storage.transaction() as tx:
        tx.create_task(charter.canonical(), bytes(32), bytes(8))
    return storage


def opened(storage, noise=None) -> Engine:
    zero = lambda deviation, size: np.zeros(size, np.int64)  # noqa: E731
    return Engine.open(storage, lambda charter: Momentum(), noise=noise or zero)


@pytest.fixture
def storage():
    return stored()


def update(engine, storage, client, step, values=(3, -4)):
    with storage.transaction() as tx:
        body = LATTICE.encode(np.array(values, np.int32))
        return engine.update(tx, client, step, engine.inspect(body))


def close(engine, storage):
    with storage.transaction() as tx:
        engine.close_step(tx)
    return engine.publish()


def test_a_repeated_update_gets_the_same_receipt_until_the_next_release(storage):
    engine = opened(storage)
    first = update(engine, storage, 1, 0)
    assert first.answer is WireAnswer.ACCEPTED
    assert update(engine, storage, 1, 0) == first
    engine = opened(storage)
    assert update(engine, storage, 1, 0) == first  # stored while the step is open
    with storage.transaction() as tx:
        engine.close_step(tx)
    assert update(engine, storage, 1, 0) == first
    engine.publish()
    assert update(engine, storage, 1, 0) == first  # answered from memory
    assert update(engine, storage, 1, 0, (0, 0)).answer is WireAnswer.CONFLICT
    assert update(engine, storage, 2, 0).answer is WireAnswer.LATE
    assert update(opened(storage), storage, 1, 0).answer is WireAnswer.LATE  # lost by a restart
    close(engine, storage)
    assert update(engine, storage, 1, 0).answer is WireAnswer.LATE  # and by the next release


def test_stored_rows_do_not_link_clients_to_released_steps(storage):
    engine = opened(storage)
    for client in (1, 4):
        update(engine, storage, client, 0)
    close(engine, storage)
    tables = storage.committed
    assert tables.check_ins == {}
    assert tables.turns == {1: 1, 4: 1}  # the window lasts until step 3
    with storage.transaction() as tx:
        assert tx.reclaim(9) == 2
    for _ in range(2):
        close(engine, storage)
    assert storage.committed.turns == {}
    assert storage.committed.bodies == {}


def test_a_second_update_in_the_same_window_is_a_conflict(storage):
    engine = opened(storage)
    update(engine, storage, 1, 0)
    assert update(engine, storage, 1, 0, (0, 0)).answer is WireAnswer.CONFLICT
    close(engine, storage)
    assert update(engine, storage, 1, 1).answer is WireAnswer.CONFLICT
    assert update(opened(storage), storage, 1, 1).answer is WireAnswer.CONFLICT


def test_the_step_counter_decides_which_updates_are_early_or_late(storage):
    engine = opened(storage)
    assert update(engine, storage, 1, 1).answer is WireAnswer.EARLY
    assert update(engine, storage, 1, 10**9).answer is WireAnswer.EARLY
    close(engine, storage)
    assert update(engine, storage, 1, 0).answer is WireAnswer.LATE
    with storage.transaction() as tx:
        engine.close_step(tx)
    assert engine.phase is StepPhase.CLOSED
    assert update(engine, storage, 2, 1).answer is WireAnswer.LATE


def test_a_restart_within_a_step_keeps_the_updates_of_the_step(storage):
    engine = opened(storage)
    update(engine, storage, 1, 0, (5, 5))
    again = opened(storage)
    assert update(again, storage, 2, 0, (1, -1)).answer is WireAnswer.ACCEPTED
    close(again, storage)
    with storage.snapshot(whole=True) as view:
        release = view.release_at(0)
    assert release.record.sum_digest == hashlib.sha256(np.array([6, 4], "<i8").tobytes()).digest()
    assert (release.checked_in, release.served) == (2, 2)


def test_each_release_is_appended_to_the_ledger_with_its_epsilon(storage):
    engine = opened(storage)
    head = engine.published.head
    for step in range(PARTICIPATION.steps):
        published = close(engine, storage)
        assert published.head.steps == step + 1
        assert published.head != head
        head = published.head
    assert engine.phase is StepPhase.FINISHED
    with storage.snapshot(whole=True) as view:
        epsilons = [record.epsilon for record in view.records()]
    assert epsilons == [EPSILON_A_STEP * (s + 1) for s in range(PARTICIPATION.steps)]
    assert opened(storage).published.head == head


def test_no_release_exceeds_the_target_epsilon():
    draws = []

    def noise(deviation, size):
        draws.append(size)
        return np.zeros(size, np.int64)

    charter = replace(
        charter_of(PARTICIPATION, ReleaseRule.AGGREGATED, 1), target=2.5 * EPSILON_A_STEP
    )
    storage = stored(charter)
    engine = opened(storage, noise)
    close(engine, storage)
    close(engine, storage)
    with pytest.raises(BudgetExceededError), storage.transaction() as tx:
        engine.close_step(tx)
    assert len(draws) == 2
    assert opened(storage).published.head.steps == 2


def test_a_step_without_updates_releases_noise(storage):
    ones = lambda deviation, size: np.ones(size, np.int64)  # noqa: E731
    close(opened(storage, ones), storage)
    with storage.snapshot(whole=True) as view:
        release = view.release_at(0)
    assert release.checked_in == 0
    assert release.record.sum_digest == hashlib.sha256(np.ones(2, "<i8").tobytes()).digest()


@pytest.mark.parametrize("body", [b"", bytes(7), bytes(12), np.array([64, 1], "<i4").tobytes()])
def test_invalid_updates_are_refused_without_a_database_lookup(storage, body):
    with pytest.raises(RemoteProtocolError):
        opened(storage).inspect(body)


def test_an_invitation_enrols_exactly_one_key(storage):
    engine, secret = opened(storage), b"s" * 32
    with storage.transaction() as tx:
        tx.invite([hashlib.sha256(secret).digest()])
    with storage.transaction() as tx:
        assert engine.enrol(tx, 0, b"wrong" * 6, b"k" * 32).answer is WireAnswer.UNKNOWN
        assert engine.enrol(tx, 7, secret, b"k" * 32).answer is WireAnswer.UNKNOWN
        first = engine.enrol(tx, 0, secret, b"k" * 32)
        assert first.answer is WireAnswer.ACCEPTED
        assert engine.enrol(tx, 0, secret, b"k" * 32) == first
        assert engine.enrol(tx, 0, secret, b"x" * 32).answer is WireAnswer.CONFLICT
        assert tx.invitation(0).public_key == b"k" * 32


def test_a_restored_old_database_is_detected_by_a_newer_ledger_head_from_a_device(storage):
    engine = opened(storage)
    old = storage.committed
    head = close(engine, storage).head
    seen = SignedHead(head, bytes(64))
    assert engine.has_head(seen, lambda: True)
    storage.committed = old
    restored = opened(storage)
    with pytest.raises(SetBackError, match="old copy"):
        restored.has_head(seen, lambda: True)
    assert not restored.has_head(seen, lambda: False)  # anyone can invent a ledger head
    noisier = lambda deviation, size: np.ones(size, np.int64)  # noqa: E731
    forked = opened(storage, noisier)
    close(forked, storage)
    with pytest.raises(SetBackError):
        forked.has_head(seen, lambda: True)
    assert forked.has_head(SignedHead(Head(0, bytes.fromhex(forked.task)), b""), lambda: False)


def test_an_engine_refuses_a_damaged_ledger(storage):
    engine = opened(storage)
    close(engine, storage)
    close(engine, storage)
    releases = storage.committed.releases
    releases[0] = replace(releases[0], record=replace(releases[0].record, epsilon=0.1))
    with pytest.raises(StorageError, match="does not follow"):
        opened(storage)
    del releases[0]
    with pytest.raises(StorageError):
        opened(storage)


def test_an_engine_refuses_a_changed_model(storage):
    close(opened(storage), storage)
    releases = storage.committed.releases
    releases[0] = replace(releases[0], parameters=bytes(8) + b"")
    releases[0] = replace(releases[0], parameters=b"\x01" * 8)
    with pytest.raises(StorageError, match="not the model in the ledger"):
        opened(storage)


class TestOneClient:
    @pytest.fixture
    def storage(self):
        return stored(charter_of(PARTICIPATION, ReleaseRule.ONE_CLIENT, 1))

    def test_check_in_receipts_are_repeated_after_a_release(self, storage):
        engine = opened(storage)
        with storage.transaction() as tx:
            first = engine.check_in(tx, 0, 0)
            engine.close_check_ins(tx)
        close(engine, storage)
        with storage.transaction() as tx:
            assert engine.check_in(tx, 0, 0) == first
            assert engine.requested(tx, 0, 0).asked is False
            assert engine.requested(tx, 1, 0).answer is WireAnswer.LATE
        again = opened(storage)
        with storage.transaction() as tx:
            assert again.check_in(tx, 0, 0).answer is WireAnswer.LATE
            assert again.requested(tx, 0, 0).answer is WireAnswer.LATE

    def test_only_the_selected_client_is_accepted(self, storage):
        engine = opened(storage)
        with storage.transaction() as tx:
            for client in (0, 2, 5):
                assert engine.check_in(tx, client, 0).answer is WireAnswer.ACCEPTED
                assert engine.requested(tx, client, 0).asked is None
        with storage.transaction() as tx:
            engine.close_check_ins(tx)
        engine = opened(storage)  # the selection survives a restart
        with storage.transaction() as tx:
            asked = [c for c in (0, 2, 5) if engine.requested(tx, c, 0).asked]
        assert len(asked) == 1
        for client in (0, 2, 5):
            answer = update(engine, storage, client, 0).answer
            assert answer is (WireAnswer.ACCEPTED if client in asked else WireAnswer.REFUSED)
        close(engine, storage)
        with storage.snapshot(whole=True) as view:
            assert (view.release_at(0).checked_in, view.release_at(0).served) == (3, 1)

    def test_the_selected_client_is_uniform(self, storage):
        """χ² test with false-alarm rate 1e-9; a rule that selects the first client fails it."""
        chosen = []
        clean = storage.committed
        for _ in range(600):
            storage.committed = clean
            engine = opened(storage)
            with storage.transaction() as tx:
                for client in (4, 1, 3):
                    engine.check_in(tx, client, 0)
                engine.close_check_ins(tx)
                chosen.append(int(tx.asked(0)[0]))
        expected = len(chosen) / 3
        statistic = lambda seen: sum((seen.count(c) - expected) ** 2 / expected for c in (1, 3, 4))  # noqa: E731
        assert statistic(chosen) < 41.4  # chi-square with two degrees of freedom
        assert statistic([4] * len(chosen)) > 41.4

    def test_the_one_client_rule_refuses_a_check_in_that_contains_an_update(self, storage):
        engine = opened(storage)
        assert update(engine, storage, 0, 0).answer is WireAnswer.EARLY
        with storage.transaction() as tx:
            assert engine.requested(tx, 0, 0).answer is WireAnswer.REFUSED
