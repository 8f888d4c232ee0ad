"""Answers from the writer's thread to the loop: all of a commit in one call.

asyncio's own bridge makes two futures with a lock each, and wakes the loop for every answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

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
