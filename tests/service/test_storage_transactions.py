"""Transactions, snapshots and locks, on SQLite and on Postgres."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from storage_samples import (
    CHARTER,
    START,
    TASK,
    body,
    check_in,
    digest,
    key,
    release,
    released,
    served,
    with_update,
)

from turnout.core.errors import StorageError
from turnout.service.contract.ledger import require_chain
from turnout.service.storage.database import Storage
from turnout.service.storage.interface import ConflictError, LogEvent, Scored
from turnout.service.storage.opening import open_storage


def test_a_transaction_is_all_or_nothing(storage):
    def fail() -> None:
        with storage.transaction() as tx:
            check_in(tx, 1, 0)
            released(tx, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with storage.snapshot() as reads:
        assert reads.arrived(0).size == 0
        assert reads.last_release() is None
    with storage.transaction() as tx:
        check_in(tx, 1, 0)


def test_a_failed_statement_rolls_back_the_transaction_even_if_caught(storage):
    def careless() -> None:
        with storage.transaction() as tx:
            check_in(tx, 1, 0)
            with pytest.raises(StorageError):
                check_in(tx, 99, 0)  # no client with that number
            with pytest.raises(StorageError, match="only be undone"):
                tx.arrived(0)

    with pytest.raises(StorageError, match="undone"):
        careless()
    with storage.snapshot() as reads:
        assert reads.arrived(0).size == 0


def test_a_finished_transaction_refuses_every_call(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 0)
        bodies = tx.bodies(0)
    with storage.snapshot() as reads:
        pass
    for ended in (tx, reads):
        with pytest.raises(StorageError, match="ended"):
            check_in(ended, 2, 0)
        with pytest.raises(StorageError, match="ended"):
            ended.arrived(0)
    with pytest.raises(StorageError, match="ended"):
        next(bodies)


def test_a_snapshot_cannot_write(storage):
    with storage.snapshot() as reads:
        for write in (
            lambda: check_in(reads, 1, 0),
            lambda: reads.invite([bytes(32)]),
            lambda: reads.log(LogEvent(0.0, "info", "")),
            lambda: reads.release(release(START), 9),
        ):
            with pytest.raises(StorageError, match="may not write"):
                write()


def test_a_snapshot_is_consistent_during_writes(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 0)
    with storage.snapshot() as reads:
        with storage.transaction() as tx:
            check_in(tx, 2, 0)
            with storage.snapshot() as other:
                assert other.arrived(0).tolist() == [1]
        assert reads.arrived(0).tolist() == [1]
        with storage.snapshot() as other:
            assert other.arrived(0).tolist() == [1, 2]


def test_snapshots_are_read_from_many_threads(storage):
    with storage.transaction() as tx:
        check_in(tx, 1, 0)
    inside = threading.Barrier(12)

    def read(_: int) -> list[int]:
        with storage.snapshot() as reads:
            inside.wait()
            return reads.arrived(0).tolist()

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(read, range(12))) == [[1]] * 12
    assert len(storage._idle) <= 8


def test_committed_rows_survive_reopening(storage, url):
    with storage.transaction() as tx:
        released(tx, 3)
        check_in(tx, 1, 3)
    storage.close()
    again = served(url)
    with again.snapshot(whole=True) as reads:
        assert reads.charter() == CHARTER
        assert dict(reads.bodies(3)) == {1: body(1, 3)}
        head = START
        for record in reads.records():
            head = require_chain(TASK, head, record)
        assert head.steps == 3
    again.close()


def test_a_closed_storage_refuses_every_call(storage):
    storage.close()
    storage.close()
    with pytest.raises(StorageError, match="closed"), storage.transaction():
        pass
    with pytest.raises(StorageError, match="closed"), storage.snapshot():
        pass


def test_nested_transactions_are_refused(storage):
    with storage.transaction() as tx:
        with pytest.raises(StorageError, match="already"), storage.transaction():
            pass
        with pytest.raises(StorageError, match="own database"):
            storage.close()
        check_in(tx, 1, 0)


def test_no_transaction_is_allowed_after_a_failed_commit(storage, mutate):
    def refused() -> None:
        raise StorageError("the disk is full")

    mutate(storage._write, "commit", refused)
    with pytest.raises(StorageError, match="full"), storage.transaction() as tx:
        check_in(tx, 1, 0)
    mutate.undo()
    with pytest.raises(StorageError, match="commit failed"), storage.transaction():
        pass
    with storage.snapshot() as reads:
        assert reads.arrived(0).size == 0


def test_a_second_coordinator_is_refused_while_enrolment_is_allowed(storage, url, monkeypatch):
    monkeypatch.setattr("turnout.service.storage.postgres.PATIENCE_SECONDS", 0.0)
    with pytest.raises(StorageError, match="another coordinator serves"):
        served(url)
    enroller = open_storage(url, serving=False)
    with enroller.transaction() as tx:
        assert tx.invite([digest(b"a"), digest(b"b")]) == 8
        tx.log(LogEvent(0.0, "info", "2 invitations"))
    for forbidden in (
        lambda tx: check_in(tx, 1, 0),
        lambda tx: tx.enrol(8, key(8)),
        lambda tx: tx.release(release(START), 9),
        lambda tx: tx.request(0, np.array([1])),
        lambda tx: tx.answer(1, 0, digest(b""), b""),
        lambda tx: tx.score(Scored(1, 1.0, 0.0)),
        lambda tx: tx.reclaim(1),
    ):
        with enroller.transaction() as tx, pytest.raises(StorageError, match="may not write"):
            forbidden(tx)
    with pytest.raises(StorageError, match="does not serve"):
        enroller.tidy()
    with storage.transaction() as tx:
        assert tx.invited() == 10
        tx.enrol(9, key(9))
    enroller.close()
    storage.close()
    served(url).close()


def test_coordinator_and_enrolments_share_the_database(storage, url):
    def invite(other: Storage) -> list[int]:
        firsts = []
        for _ in range(20):
            with other.transaction() as tx:
                firsts.append(tx.invite([bytes(32)] * 2))
        return firsts

    everybody = [storage, *(open_storage(url, serving=False) for _ in range(2))]
    with ThreadPoolExecutor(3) as pool:
        firsts = [first for part in pool.map(invite, everybody) for first in part]
    assert sorted(firsts) == list(range(8, 8 + 2 * 60, 2))
    for enroller in everybody[1:]:
        enroller.close()


def test_a_writer_that_waits_too_long_can_try_again(storage, url, monkeypatch):
    for kind in ("sqlite", "postgres"):
        monkeypatch.setattr(f"turnout.service.storage.{kind}.BUSY_SECONDS", 0.05)
    enroller = open_storage(url, serving=False)
    with storage.transaction() as tx:
        tx.log(LogEvent(0.0, "info", "busy"))
        with pytest.raises(StorageError, match=r"(?i)locked|timeout"), enroller.transaction():
            pass
    with enroller.transaction() as tx:
        assert tx.invite([bytes(32)]) == 8
    enroller.close()


def test_only_a_coordinator_creates_a_database(url):
    with pytest.raises(StorageError, match="there is no"):
        open_storage(url, serving=False)
    served(url).close()
    open_storage(url, serving=False).close()


def test_a_hundred_copies_of_one_upload_give_one_row(storage):
    results: list[bool] = []
    start = threading.Barrier(100)

    def upload() -> None:
        start.wait()
        with storage.transaction() as tx:
            try:
                check_in(tx, 1, 0)
                results.append(True)
            except ConflictError:
                assert tx.participation_at(1, 0) == with_update(1, 0)
                results.append(False)

    threads = [threading.Thread(target=upload) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 99 + [True]
    with storage.snapshot() as reads:
        assert list(reads.bodies(0)) == [(1, body(1, 0))]
        assert list(reads.participations(0)) == [with_update(1, 0)]
