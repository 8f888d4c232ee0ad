"""Answers in one piece: head and body leave in one write.

A write of its own for each would cost a system call and a packet more a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class JoinedTransport:
    """A transport that writes what it was given until the loop's next turn at once.

    Args:
        transport: what it writes to.
        loop: whose turn it is.
        ended: called in place of closing, after the last answer is written; it closes.
    """

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, ended: Callable[[], object]
    ) -> None:
        self._transport, self._loop, self._ended = transport, loop, ended
        self._waiting: list[bytes] = []
        self._closing = False

    def write(self, data: bytes) -> None:
        """Write it with the rest."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def close(self) -> None:
        """Write what is waiting, and end."""
        self._flush()
        if not self._closing:
            self._closing = True
            self._ended()

    def forget(self) -> None:
        """It is closed: nobody need be told."""
        self._closing, self._ended = True, lambda: None

    def is_closing(self) -> bool:
        """Whether nothing is written any more."""
        return self._closing or self._transport.is_closing()

    def _flush(self) -> None:
        if self._waiting and not self._transport.is_closing():  # it may have been dropped
            self._transport.write(b"".join(self._waiting))
        self._waiting.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
