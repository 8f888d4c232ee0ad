"""Computation of one update in a forked process that is killed at a time limit.

`in_a_process` is the `Workshop` of `step_actions` and `fleet`: it runs a `Work` function and
returns the function's array or raises `UnfinishedError`. The time, the memory use and the errors of
the computation must not affect the process that sends the update. So each update is computed in a
forked process, which has everything that is already loaded and ends before the update is sent.
"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from turnout.service.processes import end_with

_FAILED, _MADE = b"-", b"+"
_REAP_SECONDS = 0.005

Work = Callable[[], NDArray[np.floating]]
"""Computes an update."""

Workshop = Callable[[Work, float], Awaitable[NDArray[np.floating]]]
"""``await workshop(work, seconds)`` returns the result of ``work``.

It raises `UnfinishedError` if the work fails or takes longer than ``seconds``. The work leaves no
trace in the calling process.
"""


class UnfinishedError(Exception):
    """The computation of an update failed or exceeded its time limit.

    Attributes:
        late: whether the computation exceeded its time limit.
    """

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


async def in_a_process(work: Work, seconds: float) -> NDArray[np.floating]:
    """Array that ``work`` returns, run in a forked process that is killed after ``seconds``.

    Raises:
        UnfinishedError: the work failed, was killed, or took longer.
    """
    # The child answers through a pipe, and is dead on return whatever happened.
    read, write = os.pipe()
    child = _forked(work, write)
    os.close(write)
    try:
        async with asyncio.timeout(seconds):
            answer = await _read(read)
    except TimeoutError:
        raise UnfinishedError(f"the update took more than {seconds:g} seconds", late=True) from None
    finally:
        os.close(read)
        await _end(child)
    if not answer.startswith(_MADE):
        raise UnfinishedError(answer[1:].decode(errors="replace") or "the process ended early")
    return np.load(io.BytesIO(answer[1:]), allow_pickle=False)


def _forked(work: Work, write: int) -> int:
    """Process id of a new forked process, which runs the work and writes its result to a pipe."""
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of threads: the child has none of them, and takes no lock that they hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _compute(work, write, parent)
    with suppress(OSError):  # a process group: its own children can be killed with it
        os.setpgid(child, child)
    return child


def _compute(work: Work, write: int, parent: int) -> NoReturn:
    """In the forked process, compute, write the result or the error, and exit."""
    try:
        _leave(parent)
        update, data = np.asarray(work()), io.BytesIO()
        np.save(data, update, allow_pickle=False)
        answer = _MADE + data.getvalue()
    except BaseException as error:
        answer = _FAILED + f"{type(error).__name__}: {error}".encode(errors="replace")[: 1 << 12]
    with suppress(BaseException), open(write, "wb") as pipe:
        pipe.write(answer)
    os._exit(0)


def _leave(parent: int) -> None:
    """Detach the forked process from its parent's signals, threads and process group."""
    with suppress(OSError):
        os.setpgid(0, 0)
    end_with(parent)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.freeze()
    torch = sys.modules.get("torch")
    if torch is not None:  # PyTorch's other threads do not exist after a fork
        torch.set_num_threads(1)


async def _read(descriptor: int) -> bytes:
    """All bytes from a pipe, up to the close of its other end."""
    loop, parts = asyncio.get_running_loop(), []
    closed: asyncio.Future[None] = loop.create_future()

    # An empty part means that the other end is closed.
    def more() -> None:
        part = os.read(descriptor, 1 << 20)
        parts.append(part)
        if not part and not closed.done():
            closed.set_result(None)

    # The event loop reads while the computation runs.
    loop.add_reader(descriptor, more)
    try:
        await closed
    finally:
        loop.remove_reader(descriptor)
    return b"".join(parts)


async def _end(child: int) -> None:
    """Kill a process and its children, and wait until it has ended."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    try:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            await asyncio.sleep(_REAP_SECONDS)
    except asyncio.CancelledError:
        os.waitpid(child, 0)
        raise
