"""New connections, as many as wait at once.

uvloop's own server accepts one connection in a turn of its loop; a turn with hundreds of requests
in it takes long, so a device that comes last would wait for thousands of them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol

from turnout.service.web.connections import Connections, Entry

AT_ONCE = 64
BACKLOG = 4096

_PAUSE_SECONDS = 0.05
_HANDSHAKE_SECONDS = 10.0


class Accepted(asyncio.Protocol):
    """A connection from its first moment on, before it has a transport."""

    entry: Entry
    """In the table; given right after it is made."""

    def give_up(self) -> None:
        """See `connections.Held`."""
        raise NotImplementedError

    def abort(self) -> None:
        """See `connections.Held`."""
        raise NotImplementedError

    def unsent(self) -> int:
        """See `connections.Held`."""
        raise NotImplementedError


class Make(Protocol):
    """Makes the protocol of a connection."""

    def __call__(self, address: tuple[str, int], drop: Callable[[], object]) -> Accepted:
        """Of one that comes from an address, and what drops it as long as it has no transport."""
        ...


class Listener:
    """Takes connections of one listening socket; uvicorn stops it as it stops its own servers.

    Args:
        listening: bound to its address.
        connections: where each gets a place, or is turned away.
        make: makes its protocol.
        tls: None for plain HTTP.
    """

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        make: Make,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening, self._connections = listening, connections
        self._make, self._tls = make, tls
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._listen()

    def close(self) -> None:
        """Take no more."""
        self._closed = True
        self._loop.remove_reader(self._listening.fileno())

    async def wait_closed(self) -> None:
        """Wait for nothing: what is open is waited for as a connection."""

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        """All that wait, up to some, so that those who are here already get their turn."""
        for _ in range(AT_ONCE):
            if self._connections.full:  # the others wait in the system's queue
                self._pause()
                return
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # it has left again
                continue
            except OSError:  # the system has no descriptor or no memory left
                self._pause()
                return
            self._take(accepted, (str(address[0]), int(address[1])))

    def _pause(self) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._listen)

    def _take(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        protocol = self._make(address, partial(_shut, accepted))
        entry = self._connections.admit(address[0], protocol)
        if entry is None:
            accepted.close()
            return
        protocol.entry = entry
        accepted.setblocking(False)
        task = self._loop.create_task(self._open(accepted, protocol))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, protocol: Accepted) -> None:
        """Hand it to the loop, after its handshake where there is one."""
        seconds = None if self._tls is None else _HANDSHAKE_SECONDS
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.CancelledError):  # it left, or its handshake was none
            self._connections.left(protocol.entry)
            accepted.close()


def _shut(accepted: socket.socket) -> None:
    """End a connection whose transport does not exist yet: the handshake fails."""
    try:
        accepted.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is gone
        return
