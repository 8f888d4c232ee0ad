"""The writer: results after the commit, group commits, limits, failures and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from storage_samples import body, check_in, create_task, served, with_update

from turnout.core.errors import StorageError
from turnout.service.storage.interface import ConflictError
from turnout.service.storage.writer import BusyError, Writer


class Journal:
    """Storage that records its calls, and whose commits wait for permission."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.permission = threading.Event()
        self.permission.set()
        self.error: BaseException | None = None

    @contextmanager
    def transaction(self) -> Iterator[list[Any]]:
        began = len(self.done)
        self.done.append("begin")
        try:
            yield self.done
            self.permission.wait()
            if self.error:
                raise self.error
        except BaseException:
            del self.done[began:]
            raise
        self.done.append("commit")


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def failures() -> list[BaseException]:
    return []


@pytest.fixture
def writer(journal, failures) -> Iterator[Writer]:
    with closing(Writer(journal, failures.append, most_jobs=10, most_bytes=1000)) as writer:
        yield writer
        journal.permission.set()


def held(writer: Writer, journal: Journal) -> Future[None]:
    """Write whose transaction is open and cannot commit yet."""
    journal.permission.clear()
    began = threading.Event()
    future = writer.submit(lambda tx: began.set())
    began.wait()
    return future


def test_a_single_write_is_committed_immediately(writer, journal):
    assert writer.submit(lambda tx: tx.append("a") or 5).result() == 5
    assert journal.done == ["begin", "a", "commit"]
    assert writer.waiting == (0, 0)


def test_a_write_returns_no_result_before_its_commit(writer, journal):
    first = held(writer, journal)
    second = writer.submit(lambda tx: 2)
    with pytest.raises(TimeoutError):
        first.result(timeout=0.05)
    assert not second.done()
    journal.permission.set()
    assert (first.result(), second.result()) == (None, 2)


def test_queued_writes_are_committed_together_in_order(writer, journal):
    held(writer, journal)
    futures = [writer.submit(lambda tx, n=n: tx.append(n)) for n in range(9)]
    journal.permission.set()
    for future in futures:
        future.result()
    assert journal.done == ["begin", "commit", "begin", *range(9), "commit"]


def test_writes_beyond_the_queue_limits_are_refused(writer, journal):
    first = held(writer, journal)
    big = writer.submit(lambda tx: None, body_bytes=1000)
    with pytest.raises(BusyError):
        writer.submit(lambda tx: None, body_bytes=1)
    for _ in range(8):
        writer.submit(lambda tx: None)
    assert writer.waiting == (10, 1000)
    with pytest.raises(BusyError):
        writer.submit(lambda tx: None)
    journal.permission.set()
    first.result()
    big.result()
    last = writer.submit(lambda tx: "room again")
    assert last.result() == "room again"


def test_writes_that_are_being_committed_count_towards_the_queue_limit(writer, journal):
    began = threading.Event()
    journal.permission.clear()
    writer.submit(lambda tx: began.set(), body_bytes=900)
    began.wait()
    assert writer.waiting == (1, 900)
    with pytest.raises(BusyError):
        writer.submit(lambda tx: None, body_bytes=200)


def test_a_single_body_above_the_byte_limit_is_accepted(writer):
    assert writer.submit(lambda tx: 1, body_bytes=5000).result() == 1


def test_a_failing_write_rolls_back_its_transaction_and_stops_the_writer(writer, journal, failures):
    held(writer, journal)
    good = writer.submit(lambda tx: tx.append("good"))
    bad = writer.submit(lambda tx: 1 // 0)
    after = writer.submit(lambda tx: tx.append("after"))
    journal.permission.set()
    for future in (good, bad, after):
        with pytest.raises(StorageError, match="failed"):
            future.result()
    writer.close()
    assert journal.done == ["begin", "commit"]
    assert [type(error) for error in failures] == [ZeroDivisionError]
    with pytest.raises(StorageError, match="restarted"):
        writer.submit(lambda tx: None)


def test_a_failing_commit_fails_all_its_writes_and_stops_the_writer(writer, journal, failures):
    journal.error = StorageError("no space left")
    first = held(writer, journal)
    queued = writer.submit(lambda tx: None)
    journal.permission.set()
    for future in (first, queued):
        with pytest.raises(StorageError, match="writer failed"):
            future.result()
    writer.close()
    assert failures == [journal.error]


def test_the_failure_callback_runs_after_the_failed_futures_are_set(journal):
    told = []
    ready, future = threading.Event(), Future()

    def job(_: Any) -> None:
        ready.wait()
        raise SystemExit(3)

    with closing(
        Writer(journal, lambda error: told.append((type(error), future.done())))
    ) as writer:
        future = writer.submit(job)
        ready.set()
        with pytest.raises(StorageError):
            future.result()
    assert told == [(SystemExit, True)]


def test_closing_commits_queued_writes(journal, failures):
    writer = Writer(journal, failures.append)
    held(writer, journal)
    futures = [writer.submit(lambda tx, n=n: n) for n in range(50)]
    closing = threading.Thread(target=writer.close)
    closing.start()
    while True:  # until closing has begun
        try:
            futures.append(writer.submit(lambda tx: 50))
        except StorageError:
            break
    journal.permission.set()
    closing.join()
    assert {future.result() for future in futures} >= set(range(50))
    assert journal.done.count("commit") == 2
    assert failures == []
    with pytest.raises(StorageError, match="closed"):
        writer.submit(lambda tx: None)
    writer.close()


def test_a_write_cancelled_before_its_start_does_not_run(writer, journal):
    first = held(writer, journal)
    cancelled = writer.submit(lambda tx: tx.append("never"), body_bytes=100)
    kept = writer.submit(lambda tx: tx.append("kept"))
    assert cancelled.cancel()
    assert not first.cancel()
    journal.permission.set()
    kept.result()
    with pytest.raises(CancelledError):
        cancelled.result()
    writer.close()
    assert journal.done == ["begin", "commit", "begin", "kept", "commit"]
    assert writer.waiting == (0, 0)


def test_cancelled_writes_do_not_hide_a_failed_write(writer, journal, failures):
    held(writer, journal)
    futures = [writer.submit(lambda tx: 1 // 0), *(writer.submit(lambda tx: 0) for _ in range(3))]
    assert futures[0].cancel() is True
    assert futures[2].cancel() is True
    bad = writer.submit(lambda tx: 1 // 0)
    journal.permission.set()
    for future in (futures[1], futures[3], bad):
        with pytest.raises(StorageError):
            future.result()
    writer.close()
    assert len(failures) == 1


def test_a_write_without_transaction_runs_between_two_transactions(writer, journal):
    held(writer, journal)
    before = writer.submit(lambda tx: tx.append("before"))
    alone = [writer.submit_alone(lambda storage: storage.done.append("alone")) for _ in range(2)]
    after = writer.submit(lambda tx: tx.append("after"))
    journal.permission.set()
    for future in (before, *alone, after):
        future.result()
    writer.close()
    lone = ["alone", "alone"]
    inside = [[], ["before"], lone, ["after"]]
    expected = [step if step is lone else ["begin", *step, "commit"] for step in inside]
    assert journal.done == [event for step in expected for event in step]
    assert writer.waiting == (0, 0)


def test_committed_writes_free_their_memory(writer):
    import gc
    import weakref

    class Body:
        pass

    update = Body()
    gone = weakref.ref(update)
    writer.submit(lambda tx, update=update: None).result()
    del update
    writer.submit(lambda tx: None).result()  # by now the first batch is freed
    gc.collect()
    assert gone() is None


def test_a_hundred_copies_of_one_upload_give_one_row_and_a_hundred_receipts(tmp_path, failures):
    storage = served(tmp_path / "task.sqlite")
    with storage.transaction() as tx:
        create_task(tx)

    def upload(tx: Any) -> bytes | None:
        stored = tx.participation_at(1, 0)
        if stored is None:
            check_in(tx, 1, 0)
            stored = tx.participation_at(1, 0)
        return stored.digest

    def careless(tx: Any) -> str:
        try:
            check_in(tx, 1, 0)
        except ConflictError:
            return "stored before"
        return "stored"

    start = threading.Barrier(100)
    with closing(Writer(storage, failures.append)) as writer, ThreadPoolExecutor(100) as pool:

        def send(n: int) -> object:
            start.wait()
            return writer.submit(upload if n % 2 else careless).result()

        answers = list(pool.map(send, range(100)))
    assert set(answers[1::2]) == {with_update(1, 0).digest}
    assert answers[::2].count("stored") <= 1
    with storage.snapshot() as reads:
        assert list(reads.bodies(0)) == [(1, body(1, 0))]
        assert list(reads.participations(0)) == [with_update(1, 0)]
    storage.close()
    assert failures == []


def test_a_writer_stops_after_a_database_failure(tmp_path, failures):
    storage = served(tmp_path / "task.sqlite")
    with storage.transaction() as tx:
        create_task(tx)
    with closing(Writer(storage, failures.append)) as writer:
        writer.submit(lambda tx: check_in(tx, 1, 0)).result()
        storage._write.raw.execute("PRAGMA max_page_count=1")  # the disk is full
        with pytest.raises(StorageError):
            writer.submit(lambda tx: tx.invite([bytes(32)] * 5_000)).result()
    assert [type(error) for error in failures] == [StorageError]
    storage.close()
    again = served(tmp_path / "task.sqlite")
    with again.snapshot() as reads:
        assert reads.arrived(0).tolist() == [1]
        assert reads.invited() == 8
    again.close()
