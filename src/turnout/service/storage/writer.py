"""The only thread that writes to the storage, with group commits and without a timer.

`Writer` runs jobs. While a commit waits for the disk, jobs queue up, and the next transaction
contains all queued jobs: a single job is committed at once, and a thousand jobs share one commit.
`JobFuture` and `AnswerQueue` bring the results of a commit to the event loop in one call; asyncio's
own futures would need two locks and one call of the loop for each result.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from turnout.core.errors import StorageError
from turnout.service.storage.database import Storage
from turnout.service.storage.writes import Transaction

T = TypeVar("T")


class AnswerQueue:
    """Queue of callbacks that the writer's thread passes to the event loop with job results.

    Only the writer adds to the queue.
    """

    def __init__(self) -> None:
        self._answers: deque[Callable[[], None]] = deque()
        self._called = False

    def add(self, loop: asyncio.AbstractEventLoop, answer: Callable[[], None]) -> None:
        """Queue the callback ``answer``, which the loop runs together with all queued callbacks."""
        self._answers.append(answer)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop is closed, so no request waits
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Run all queued callbacks; called in the event loop."""
        self._called = False  # before the last look: a later answer schedules another call
        while self._answers:
            self._answers.popleft()()


class JobFuture(Generic[T]):
    """Future of a writer's job; the event loop awaits the asyncio future ``answer``.

    The writer uses it like a future of `concurrent.futures`.

    Args:
        queue: queue that transfers the result to the running event loop.
    """

    __slots__ = ("_begun", "_loop", "_queue", "answer")

    def __init__(self, queue: AnswerQueue) -> None:
        self._queue, self._loop, self._begun = queue, asyncio.get_running_loop(), False
        self.answer: asyncio.Future[T] = self._loop.create_future()

    def set_running_or_notify_cancel(self) -> bool:
        """Mark the job as running; return False if the future was cancelled."""
        self._begun = not self.answer.cancelled()
        return self._begun

    def running(self) -> bool:
        """Whether the job runs or has run."""
        return self._begun

    def cancelled(self) -> bool:
        """Whether the future was cancelled before the job began."""
        return not self._begun and self.answer.cancelled()

    def set_result(self, result: T, /) -> None:
        """Set the job's result once the result is durable."""
        self._queue.add(self._loop, lambda: self._settle(result))

    def set_exception(self, exception: BaseException, /) -> None:
        """Set the job's error."""
        self._queue.add(self._loop, lambda: self._fail(exception))

    def _settle(self, result: T) -> None:
        """Set the result in the event loop, unless the request was cancelled."""
        if not self.answer.done():
            self.answer.set_result(result)

    def _fail(self, exception: BaseException) -> None:
        """Set the error in the event loop, unless the request was cancelled."""
        if not self.answer.done():
            self.answer.set_exception(exception)


class BusyError(StorageError):
    """Too many jobs wait for the disk: nothing was changed, and a repetition may succeed."""


@dataclass(slots=True, eq=False)
class _Queued(Generic[T]):
    """Waiting job of the writer; if ``alone`` is True, the job runs outside of transactions."""

    job: Callable[[Any], T]
    body_bytes: int
    alone: bool
    future: Future[T] | JobFuture[T]


class Writer:
    """Thread that runs jobs in batches, each batch in one transaction of the storage.

    Jobs run in the order of submission.

    Guarantees:
        A future has its result only after the transaction of its job is committed.
        No job runs twice, and no job runs after a failed job.
        At most ``most_jobs`` jobs and ``most_bytes`` of bodies are waiting or being committed; only
        the body of a single job may be longer.

    A job reports the outcome of a request by its result. A job that raises is a fault of the
    program: its transaction is undone, all futures fail, and ``on_failure`` is called, once.

    Args:
        storage: storage that is opened for serving; no other thread may use its `transaction`
            meanwhile.
        on_failure: called in the writer's thread with the error, after all futures failed; the
            program should end, since only a restart shows what the last commit stored.
        most_jobs: largest number of jobs that wait or are being committed.
        most_bytes: largest number of bytes of bodies that wait or are being committed.
        committed: called in the writer's thread after each commit, with the duration of the commit
            in seconds and the number of its jobs.
    """

    def __init__(
        self,
        storage: Storage,
        on_failure: Callable[[BaseException], object],
        *,
        most_jobs: int = 1024,
        most_bytes: int = 64 << 20,
        committed: Callable[[float, int], object] = lambda seconds, jobs: None,
    ) -> None:
        # The storage, the functions to notify, and the limits of the queue.
        self._storage, self._on_failure, self._reported = storage, on_failure, committed
        self._most_jobs, self._most_bytes = most_jobs, most_bytes
        # The queue of jobs, guarded by one condition, and the reason to refuse further jobs.
        self._changed = threading.Condition(threading.Lock())
        self._queue: list[_Queued[Any]] = []
        self._jobs = self._bytes = 0
        self._refusal = ""
        # The thread that commits.
        self._thread = threading.Thread(target=self._run, name="turnout-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[Transaction], T], body_bytes: int = 0) -> Future[T]:
        """Future of a job's result, set once the result is durable.

        Args:
            job: function of a transaction; the function must not keep the transaction after it
                returns.
            body_bytes: memory that the job occupies while it waits, besides some hundred bytes.

        Raises:
            BusyError: too many jobs or bytes are waiting.
            StorageError: the writer is closed, or a job or commit failed.
        """
        future: Future[T] = Future()
        self.submit_for(future, job, body_bytes)
        return future

    def submit_for(
        self, future: Future[T] | JobFuture[T], job: Callable[[Transaction], T], body_bytes: int = 0
    ) -> None:
        """Submit a job with a future that the caller made, as in `submit`."""
        self._enqueue(_Queued(job, body_bytes, alone=False, future=future))

    def submit_alone(self, job: Callable[[Storage], T]) -> Future[T]:
        """Future of a job that runs between two transactions and may call `Storage.tidy`."""
        future: Future[T] = Future()
        self._enqueue(_Queued(job, 0, alone=True, future=future))
        return future

    def _enqueue(self, queued: _Queued[Any]) -> None:
        """Add a job to the queue, unless too many jobs wait already."""
        body_bytes = queued.body_bytes
        with self._changed:
            if self._refusal:
                raise StorageError(self._refusal)
            alone = self._jobs == 0  # a single body may be larger than the bound
            full = self._jobs >= self._most_jobs or self._bytes + body_bytes > self._most_bytes
            if full and not alone:
                raise BusyError("the writer's queue is full: nothing was stored, try again later")
            self._jobs += 1
            self._bytes += body_bytes
            self._queue.append(queued)
            if len(self._queue) == 1:
                self._changed.notify()

    @property
    def waiting(self) -> tuple[int, int]:
        """Numbers of jobs and of body bytes that are not committed yet."""
        with self._changed:
            return self._jobs, self._bytes

    def close(self) -> None:
        """Commit the waiting jobs and end the thread; later jobs are refused."""
        with self._changed:
            self._refusal = self._refusal or "the writer is closed"
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        """Commit batches of jobs until the writer is closed or a commit fails."""
        while batch := self._next_batch():
            if not self._commit_batch(batch):
                return
            batch.clear()  # frees the bodies before the wait for the next batch

    def _commit_batch(self, batch: list[_Queued[Any]]) -> bool:
        """Run and commit a batch of jobs and set their results; return whether that succeeded."""
        try:
            done = self._run_jobs(batch)
        except BaseException as error:
            self._fail(batch, error)
            return False
        with self._changed:  # before the results: a caller with a result sees no waiting job of it
            self._jobs -= len(batch)
            self._bytes -= sum(queued.body_bytes for queued in batch)
        for queued, result in done:
            queued.future.set_result(result)
        return True

    def _next_batch(self) -> list[_Queued[Any]]:
        """Wait for jobs and return the next batch; a job that runs alone is a batch of one."""
        with self._changed:
            while not self._queue and not self._refusal:
                self._changed.wait()
            ends = next((n for n, queued in enumerate(self._queue) if queued.alone), None)
            ends = max(ends, 1) if ends is not None else len(self._queue)
            batch, self._queue = self._queue[:ends], self._queue[ends:]
        return batch

    def _run_jobs(self, batch: list[_Queued[Any]]) -> list[tuple[_Queued[Any], Any]]:
        """Run and commit a batch; return its jobs with their results, except cancelled jobs."""
        if batch[0].alone:
            (queued,) = batch
            started = queued.future.set_running_or_notify_cancel()
            return [(queued, queued.job(self._storage))] if started else []
        with self._storage.transaction() as transaction:
            done = [
                (queued, queued.job(transaction))
                for queued in batch
                if queued.future.set_running_or_notify_cancel()
            ]
            began = time.perf_counter()
        self._reported(time.perf_counter() - began, len(done))
        return done

    def _fail(self, batch: list[_Queued[Any]], error: BaseException) -> None:
        """Fail all waiting jobs, refuse later jobs, and report the error."""
        with self._changed:
            self._refusal = "the writer failed: the service must be restarted"
            failed, self._queue = batch + self._queue, []
        for future in (queued.future for queued in failed):
            if future.cancelled():
                continue
            if future.running() or future.set_running_or_notify_cancel():
                future.set_exception(StorageError("the writer failed: repeat the request later"))
        self._on_failure(error)
