"""uvicorn's HTTP, with a place in the table of connections and no timers of its own.

uvicorn over one listening socket and a bounded table of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from turnout.core.errors import ParameterError
from turnout.service.web.answers import CONNECTION
from turnout.service.web.connections import (
    ANSWER,
    BODY,
    CLOSE,
    HEAD,
    NEXT,
    READER,
    Begun,
    Connections,
    Listener,
    OpenConnection,
)

_HEAD_BYTES = 16 << 10

# Whatever strangers send is not an event for the log; errors of the application are.
_LOGGER = logging.getLogger("turnout.service.http")
_LOGGER.setLevel(logging.ERROR)


class JoinedTransport:
    """A transport that writes what it was given until the loop's next turn at once.

    Head and body leave in one write: one for each would cost a system call and a packet more a
    request. ``ended`` is called in place of closing, after the last answer is written; it closes.
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


class HttpConnection(HttpToolsProtocol, Begun):
    """One connection.

    Guarantees:
        An answer that is given before its request's body has come says that it is the last one;
        what still comes is thrown away, so that the answer arrives.
    """

    def __init__(
        self,
        connections: Connections,
        entry: OpenConnection,
        *,
        address: tuple[str, int],
        server: tuple[str, int],
        drop: Callable[[], object],
        config: Config,
        state: ServerState,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, state, {}, loop)
        self.logger = _LOGGER
        self._table, self.entry, self._drop = connections, entry, drop
        self.client, self.server = address, server
        self._under: asyncio.Transport | None = None
        self._in_head = self._in_body = self._leaving = False
        self._keep_alive, self._ending = True, False
        self._head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`; both addresses are known, so nobody is asked for them."""
        self.connections.add(self)
        self._under = transport
        self.transport = JoinedTransport(transport, self.loop, self._left)  # pyright: ignore[reportAttributeAccessIssue]
        self.flow = FlowControl(self.transport)
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        if self.entry.awaits is not HEAD:  # a handshake came first
            self._table.waits(self.entry, HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._leaving = True
        self._table.left(self.entry)
        super().connection_lost(exc)
        # Nothing is left that only the garbage collector would find.
        self.cycle = None  # pyright: ignore[reportAttributeAccessIssue]
        cast(JoinedTransport, self.transport).forget()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._leaving:
            return
        super().data_received(data)
        if not self._leaving:
            self._noticed(len(data))

    def _noticed(self, size: int) -> None:
        """Tell the table what is waited for after so many bytes."""
        entry = self.entry
        if self._in_head:
            self._head_bytes += size
            if self._head_bytes > _HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")
            elif entry.awaits is NEXT:
                self._table.waits(entry, HEAD)
        elif self._in_body:
            if entry.awaits is not BODY:
                self._table.waits(entry, BODY)
            entry.received += size
        elif entry.awaits not in (ANSWER, READER) and self._answering:
            reads = not self.flow.write_paused
            self._table.waits(entry, ANSWER if reads else READER)

    def pause_writing(self) -> None:
        """Its answers are not taken: what is still asked for waits for their reader, not for us."""
        super().pause_writing()
        if not self._leaving:
            self._table.waits(self.entry, READER)

    def resume_writing(self) -> None:
        """They are taken again."""
        super().resume_writing()
        if self.entry.awaits is READER:
            self._table.waits(self.entry, ANSWER if self._answering else NEXT)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # -- what the parser says ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is here; until its body is, an answer would be the last one."""
        self._in_head, self._in_body = False, True
        super().on_headers_complete()
        self.scope[CONNECTION] = self  # pyright: ignore[reportGeneralTypeIssues]
        self._keep_alive = self.cycle.keep_alive
        self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """All of it is here."""
        self._in_body = False
        if not self.cycle.response_started and not self._ending:
            self.cycle.keep_alive = self._keep_alive
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, where one came already; see `HttpToolsProtocol`."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif not self._in_head and not self._in_body:
            self._table.waits(self.entry, NEXT)
        else:
            self._table.waits(self.entry, HEAD if self._in_head else BODY)

    # -- its end ----------------------------------------------------------------------------

    def signed(self) -> None:
        """A client's signature was seen over it."""
        self._table.signed(self.entry)

    def give_up(self) -> None:
        """See `connections.Held`."""
        if self._under is None or self._leaving:
            self.abort()
        elif self._in_body and not self.cycle.response_started:
            self._refuse(b"408 Request Timeout")
        else:
            self.transport.close()

    def abort(self) -> None:
        """See `connections.Held`."""
        if self._under is None:
            self._drop()
        else:
            self._under.abort()

    def unsent(self) -> int:
        """See `connections.Held`."""
        return 0 if self._under is None else self._under.get_write_buffer_size()

    def shutdown(self) -> None:
        """Called by the server as it ends; what is being answered still is."""
        self._ending = True
        super().shutdown()

    def _refuse(self, status: bytes) -> None:
        """A last answer without the application, which is told that nobody listens any more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(
            b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        self.transport.close()

    def _left(self) -> None:
        """The last answer is written: close, once what is still sent has come or it takes long."""
        assert self._under is not None
        unread, self._leaving = self._in_head or self._in_body, True
        if self._under.is_closing():
            return
        self._table.waits(self.entry, CLOSE)
        if not unread:
            self._under.close()
            return
        # Closed with unread bytes, the system would take the answer back from its reader.
        self._under.resume_reading()
        if self._under.can_write_eof():
            self._under.write_eof()


class BoundedServer(uvicorn.Server):
    """A uvicorn server that accepts in its own way and forgets nobody who says nothing."""

    def __init__(
        self,
        app: Any,
        connections: Connections,
        tls: tuple[Path, Path] | None,
        *,
        takes_signals: bool,
        **settings: Any,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ssl_certfile=None if tls is None else os.fspath(tls[0]),
            ssl_keyfile=None if tls is None else os.fspath(tls[1]),
            **settings,
        )
        super().__init__(config)
        self.table, self._takes_signals = connections, takes_signals

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See `uvicorn.Server`."""
        with super().capture_signals() if self._takes_signals else contextlib.nullcontext():
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections from the one socket that is given."""
        assert sockets is not None
        (listening,) = sockets
        here, loop = listening.getsockname()[:2], asyncio.get_running_loop()

        def make(
            entry: OpenConnection, address: tuple[str, int], drop: Callable[[], object]
        ) -> HttpConnection:
            own = {"config": self.config, "state": self.server_state, "loop": loop, "server": here}
            return HttpConnection(self.table, entry, address=address, drop=drop, **own)

        # uvicorn asks of its servers no more than a listener can do.
        taking: Any = Listener(listening, self.table, make, self.config.ssl)
        self.servers = [taking]
        self._sweeping = loop.create_task(self.table.keep_sweeping())
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`."""
        await super().shutdown(sockets)
        self._sweeping.cancel()


def listening_at(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        return listening
    except (OSError, OverflowError) as error:
        reason = f"an address to listen at ({getattr(error, 'strerror', None) or error})"
        raise ParameterError("host:port", f"{host}:{port}", reason) from None


def url_of(listening: socket.socket, *, secure: bool) -> str:
    """The address under which a bound socket is reached from this machine."""
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http{'s' if secure else ''}://{name}:{port}"
