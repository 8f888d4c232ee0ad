"""New connections, as many as wait at once; one that says nothing costs hardly anything.

uvloop's own server accepts one connection in a turn of its loop; a turn with hundreds of requests
in it takes long, so a device that comes last would wait for thousands of them. Here a turn accepts
many, and a connection gets its transport and its parser with the first byte that it sends.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from turnout.service.web.connections import HANDSHAKE, HEAD, Connections, Entry, Held

ACCEPTED_AT_ONCE = 256
BEGUN_AT_ONCE = 256
BACKLOG = 4096

_PAUSE_SECONDS = 0.05
_HANDSHAKE_SECONDS = 10.0


class Begun(asyncio.BaseProtocol, Held):
    """A connection that said something."""


Make = Callable[[Entry, tuple[str, int], Callable[[], object]], Begun]
"""Makes the protocol of an entry of the table with its address; the last argument ends it as long
as it has no transport."""


class Listener:
    """Takes connections of one listening socket."""

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
        self._silent = selectors.DefaultSelector()
        self._spoke: deque[_Silent] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(self._silent.fileno(), self._hear)  # pyright: ignore[reportAttributeAccessIssue]
        self._listen()

    def close(self) -> None:
        """Take no more, and drop those that said nothing."""
        self._closed = True
        self._loop.remove_reader(self._listening.fileno())
        self._loop.remove_reader(self._silent.fileno())  # pyright: ignore[reportAttributeAccessIssue]
        for key in list(self._silent.get_map().values()):
            self.drop(key.data)
        while self._spoke:
            self.drop(self._spoke.popleft())
        self._silent.close()

    def drop(self, silent: _Silent) -> None:
        """It is not waited for any longer."""
        self._connections.left(silent.entry)
        self.close_silent(silent)

    def close_silent(self, silent: _Silent) -> None:
        """Close one that has no transport, once."""
        if silent.socket.fileno() >= 0:
            with suppress(KeyError):  # it spoke a moment ago
                self._silent.unregister(silent.socket)
            silent.socket.close()

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        """All that wait, up to some, so that those who are here already get their turn."""
        for _ in range(ACCEPTED_AT_ONCE):
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
            accepted.setblocking(False)
            self._hold(_Silent(self, accepted, (str(address[0]), int(address[1]))))

    def _pause(self) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._listen)

    def _hold(self, silent: _Silent) -> None:
        """Keep it until it says something."""
        entry = self._connections.admit(silent.address[0], silent)
        if entry is None:
            silent.socket.close()
            return
        silent.entry = entry
        self._silent.register(silent.socket, selectors.EVENT_READ, silent)

    def _hear(self) -> None:
        """Those that said something are begun in the order in which they did."""
        for key, _ in self._silent.select(0):
            self._silent.unregister(key.fileobj)
            if not self._spoke:
                self._loop.call_soon(self._begin_some)
            self._spoke.append(key.data)

    def _begin_some(self) -> None:
        """Some; the rest in the loop's next turn, so that those who are here get theirs."""
        for _ in range(min(BEGUN_AT_ONCE, len(self._spoke))):
            silent = self._spoke.popleft()
            if silent.has_left:
                self.drop(silent)
            else:
                self._begin(silent)
        if self._spoke:
            self._loop.call_soon(self._begin_some)

    def _begin(self, silent: _Silent) -> None:
        entry, accepted = silent.entry, silent.socket
        protocol = self._make(entry, silent.address, partial(_shut, accepted))
        entry.held = protocol
        self._connections.waits(entry, HEAD if self._tls is None else HANDSHAKE)
        task = self._loop.create_task(self._open(accepted, entry, protocol))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, entry: Entry, protocol: Begun) -> None:
        """Hand it to the loop, after its handshake where there is one."""
        seconds = None if self._tls is None else _HANDSHAKE_SECONDS
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.CancelledError):  # it left, or its handshake was none
            self._connections.left(entry)
            accepted.close()


class _Silent(Held):
    """A connection that said nothing yet."""

    __slots__ = ("_listener", "address", "entry", "socket")

    def __init__(
        self, listener: Listener, accepted: socket.socket, address: tuple[str, int]
    ) -> None:
        self._listener, self.socket, self.address = listener, accepted, address

    @property
    def has_left(self) -> bool:
        """Whether it closed without a word."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def give_up(self) -> None:
        """See `connections.Held`."""
        self._listener.drop(self)

    def abort(self) -> None:
        """See `connections.Held`."""
        self._listener.close_silent(self)


def _shut(accepted: socket.socket) -> None:
    """End a connection whose transport does not exist yet: the handshake fails."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
