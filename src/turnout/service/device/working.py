"""Computing in a process of its own, which is ended when its time is over.

A device sends at a moment that was drawn before its records are opened. What computes an update
must not reach the process that sends: neither by the time it takes, nor by what it holds or
breaks. So it is forked for one update, with all that was loaded before, and nothing of it is left
when the moment comes.
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
"""``await workshop(work, seconds)`` is what ``work`` gives.

It raises `UnfinishedError` where that fails, or takes longer; what the work does leaves no trace.
"""


class UnfinishedError(Exception):
    """There is no update: computing failed, or took longer than it may.

    Attributes:
        late: whether it took longer.
    """

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


async def in_a_process(work: Work, seconds: float) -> NDArray[np.floating]:
    """What ``work`` gives in a forked process, which is killed after so many seconds.

    Raises:
        UnfinishedError: it failed, was killed, or took longer.
    """
    read, write = os.pipe()
    child = _forked(work, write)
    os.close(write)
    try:
        async with asyncio.timeout(seconds):
            answer = await _read(read)
    except TimeoutError:
        raise UnfinishedError(f"it took more than {seconds:g} seconds", late=True) from None
    finally:
        os.close(read)
        await _end(child)
    if not answer.startswith(_MADE):
        raise UnfinishedError(answer[1:].decode(errors="replace") or "its process ended early")
    return np.load(io.BytesIO(answer[1:]), allow_pickle=False)


def _forked(work: Work, write: int) -> int:
    """The id of a process that computes, and writes what it has to a pipe."""
    parent = os.getpid()
    with warnings.catch_warnings():
        # Threads of the parent are not in the child, which takes no lock that they may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _compute(work, write, parent)
    with suppress(OSError):  # so that all that it starts can be ended with it
        os.setpgid(child, child)
    return child


def _compute(work: Work, write: int, parent: int) -> NoReturn:
    """In the forked process: compute, answer, and end without another word."""
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
    """Give up what the forked process shares with its parent, but for memory."""
    with suppress(OSError):
        os.setpgid(0, 0)
    end_with(parent)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.freeze()
    torch = sys.modules.get("torch")
    if torch is not None:  # its other threads are not here
        torch.set_num_threads(1)


async def _read(descriptor: int) -> bytes:
    """All that comes through a pipe until its other end is closed."""
    loop, parts = asyncio.get_running_loop(), []
    closed: asyncio.Future[None] = loop.create_future()

    def more() -> None:
        part = os.read(descriptor, 1 << 20)
        parts.append(part)
        if not part and not closed.done():
            closed.set_result(None)

    loop.add_reader(descriptor, more)
    try:
        await closed
    finally:
        loop.remove_reader(descriptor)
    return b"".join(parts)


async def _end(child: int) -> None:
    """Kill a process and all that it started, and wait until it is gone."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    try:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            await asyncio.sleep(_REAP_SECONDS)
    except asyncio.CancelledError:
        os.waitpid(child, 0)
        raise
