"""The one thread that writes, with group commit and no timer.

While a commit waits for the disk, jobs queue up; the next transaction takes all of them. So a lone
job is committed at once, and a thousand share a commit. `Promised` carries the answers of a commit
to the event loop in one call: asyncio's own bridge makes two futures with a lock each, and wakes
the loop for every answer.
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


class Settled:
    """The writer's answers that the loop has not read; only the writer adds to it."""

    def __init__(self) -> None:
        self._told: deque[Callable[[], None]] = deque()
        self._called = False

    def tell(self, loop: asyncio.AbstractEventLoop, told: Callable[[], None]) -> None:
        """Have the loop call this, with all that is said until it comes to it."""
        self._told.append(told)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._called = False  # before the last look: what is added after it calls again
        while self._told:
            self._told.popleft()()


class Promised(Generic[T]):
    """A job's future for the writer, as those of `concurrent.futures`; ``answer`` for the loop.

    Made in the loop that waits for it; what a `Settled` holds is of one loop.
    """

    __slots__ = ("_begun", "_loop", "_settled", "answer")

    def __init__(self, settled: Settled) -> None:
        self._settled, self._loop, self._begun = settled, asyncio.get_running_loop(), False
        self.answer: asyncio.Future[T] = self._loop.create_future()

    def set_running_or_notify_cancel(self) -> bool:
        """The job runs now; False where nobody waits for it any more."""
        self._begun = not self.answer.cancelled()
        return self._begun

    def running(self) -> bool:
        """Whether the job has begun."""
        return self._begun

    def cancelled(self) -> bool:
        """Whether nobody waited for it."""
        return not self._begun and self.answer.cancelled()

    def set_result(self, result: T, /) -> None:
        """The result of the job, once that is durable."""
        self._settled.tell(self._loop, lambda: self._settle(result))

    def set_exception(self, exception: BaseException, /) -> None:
        """Why there is none."""
        self._settled.tell(self._loop, lambda: self._fail(exception))

    def _settle(self, result: T) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def _fail(self, exception: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(exception)


class BusyError(StorageError):
    """Too much is waiting for the disk: nothing happened, try again later."""


@dataclass(slots=True, eq=False)
class _Queued(Generic[T]):
    job: Callable[[Any], T]
    body_bytes: int
    alone: bool
    future: Future[T] | Promised[T]


class Writer:
    """Runs jobs in transactions of one storage, in the order in which they came.

    Guarantees:
        A future has its result only after the transaction of its job is committed.
        No job runs twice, and none after one that failed.
        At most ``most_jobs`` jobs and ``most_bytes`` of bodies are waiting or being committed.

    Jobs say what became of a request by what they return. One that raises is a fault of the
    program: its transaction is undone, all futures fail, and ``on_failure`` is called, once.

    Args:
        storage: opened for serving; nobody else may use its `transaction` meanwhile.
        on_failure: called in the writer's thread with the error, after all futures failed; the
            program should end. What the last commit stored is known after a restart.
        most_jobs, most_bytes: of what is waiting or being committed.
        committed: told in the writer's thread how many seconds each commit took, and of how many
            jobs it was.
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
        self._storage, self._on_failure, self._told = storage, on_failure, committed
        self._most_jobs, self._most_bytes = most_jobs, most_bytes
        self._changed = threading.Condition(threading.Lock())
        self._queue: list[_Queued[Any]] = []
        self._jobs = self._bytes = 0
        self._refusal = ""
        self._thread = threading.Thread(target=self._run, name="turnout-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[Transaction], T], body_bytes: int = 0) -> Future[T]:
        """The future result of the job, once that is durable.

        The job must not keep its transaction. It holds on to ``body_bytes`` of memory, beside some
        hundred bytes.

        Raises:
            BusyError: too much is waiting.
            StorageError: the writer is closed, or a job or commit failed.
        """
        future: Future[T] = Future()
        self.submit_for(future, job, body_bytes)
        return future

    def submit_for(
        self, future: Future[T] | Promised[T], job: Callable[[Transaction], T], body_bytes: int = 0
    ) -> None:
        """As `submit`, with a future of the caller's own."""
        self._put(_Queued(job, body_bytes, alone=False, future=future))

    def submit_alone(self, job: Callable[[Storage], T]) -> Future[T]:
        """The future result of a job between two transactions, which may use `Storage.tidy`."""
        future: Future[T] = Future()
        self._put(_Queued(job, 0, alone=True, future=future))
        return future

    def _put(self, queued: _Queued[Any]) -> None:
        body_bytes = queued.body_bytes
        with self._changed:
            if self._refusal:
                raise StorageError(self._refusal)
            alone = self._jobs == 0  # a body may be bigger than the bound, if it is the only one
            full = self._jobs >= self._most_jobs or self._bytes + body_bytes > self._most_bytes
            if full and not alone:
                raise BusyError("the writer's queue is full")
            self._jobs += 1
            self._bytes += body_bytes
            self._queue.append(queued)
            if len(self._queue) == 1:
                self._changed.notify()

    @property
    def waiting(self) -> tuple[int, int]:
        """Jobs, and bytes of their bodies, that are waiting or being committed."""
        with self._changed:
            return self._jobs, self._bytes

    def close(self) -> None:
        """Commit what is queued and end; later jobs are refused."""
        with self._changed:
            self._refusal = self._refusal or "the writer is closed"
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            if not self._committed(batch):
                return
            batch.clear()  # else it would hold on to its bodies until the next one

    def _committed(self, batch: list[_Queued[Any]]) -> bool:
        """Whether the batch could be committed; futures know what became of it."""
        try:
            done = self._carried_out(batch)
        except BaseException as error:
            self._fail(batch, error)
            return False
        with self._changed:  # first: whoever has a result sees that nothing of it is waiting
            self._jobs -= len(batch)
            self._bytes -= sum(queued.body_bytes for queued in batch)
        for queued, result in done:
            queued.future.set_result(result)
        return True

    def _next_batch(self) -> list[_Queued[Any]]:
        """All that is queued up to a lone job, or that; as soon as there is something."""
        with self._changed:
            while not self._queue and not self._refusal:
                self._changed.wait()
            ends = next((n for n, queued in enumerate(self._queue) if queued.alone), None)
            ends = max(ends, 1) if ends is not None else len(self._queue)
            batch, self._queue = self._queue[:ends], self._queue[ends:]
        return batch

    def _carried_out(self, batch: list[_Queued[Any]]) -> list[tuple[_Queued[Any], Any]]:
        """Jobs with what they returned, committed; without those that were cancelled in time."""
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
        self._told(time.perf_counter() - began, len(done))
        return done

    def _fail(self, batch: list[_Queued[Any]], error: BaseException) -> None:
        with self._changed:
            self._refusal = "the writer failed: the service must be restarted"
            failed, self._queue = batch + self._queue, []
        for future in (queued.future for queued in failed):
            if future.cancelled():
                continue
            if future.running() or future.set_running_or_notify_cancel():
                future.set_exception(StorageError("the writer failed: ask again later"))
        self._on_failure(error)
