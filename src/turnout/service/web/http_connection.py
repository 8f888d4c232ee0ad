"""HTTP/1.1 over one connection: one request at a time, in bounded memory, without timers.

`HttpConnection` collects the bytes of a head (request line and headers) until the head is complete,
and `http_request` parses the head. Bytes of a body go to the application when the application reads
them. While a request is being answered, only a few bytes of the next request are read, and the next
request does not begin. The table in `connections` has the awaited event and the deadline of each
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from turnout.service.web.answers import CONNECTION, Application, Message
from turnout.service.web.connections import (
    ANSWER,
    BODY,
    CLOSE,
    HEAD,
    NEXT,
    READER,
    ActiveConnection,
    OpenConnection,
)
from turnout.service.web.http_request import MalformedError, Request, begins, request_of

if TYPE_CHECKING:
    from turnout.service.web.bounded_server import BoundedServer

HEAD_BYTES = 16 << 10
"""Largest head of a request, and most bytes that are read beyond a request being answered."""
UNREAD_BYTES = 64 << 10
"""Most bytes of a body that wait for the application."""

_END_OF_HEAD = b"\r\n\r\n"
_STATUS = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_BODILESS = (204, 304)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ENDED_EARLY = {400: "malformed", 408: "too slow", 411: "without a length", 431: "too long"}


class _Exchange:
    """One HTTP request and its answer, as an ASGI application receives and sends them.

    Attributes:
        missing: number of bytes of the body that have not arrived.
        unread: bytes of the body that have arrived and that the application has not read.
        begun: whether the answer has begun, so that no other answer is possible.
        last: whether the connection ends after this answer.
        over: whether the request is answered, or the client has closed the connection.
    """

    __slots__ = (
        "_body_read",
        "_connection",
        "_continues",
        "_request",
        "_started",
        "_waiting",
        "begun",
        "last",
        "missing",
        "over",
        "unread",
    )

    def __init__(self, connection: HttpConnection, request: Request) -> None:
        self._connection, self._request = connection, request
        self.missing, self.unread = request.length, bytearray()
        self._continues = request.continues
        self._started: Message = {}
        self._waiting: asyncio.Future[None] | None = None
        self._body_read = self.begun = self.over = False
        self.last = not request.keep_alive

    async def run(self, application: Application) -> None:
        """Let the application answer the request."""
        try:
            await application(self._request.scope, self.receive, self.send)
        except ClientDisconnect:  # the server counts it
            pass
        except Exception as error:
            self._connection.server.failed(error)
        if not self.over:  # the answer is missing or incomplete
            self._connection.refuse(500)

    async def receive(self) -> Message:
        """ASGI message with the next part of the body, or with the end of the connection."""
        if self._continues and self.missing and not self.over:
            self._connection.write([_CONTINUE])
        self._continues = False
        while not self.over and (self._body_read or (self.missing and not self.unread)):
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if self.over:
            return {"type": "http.disconnect"}
        body, self.unread = bytes(self.unread), bytearray()
        self._body_read = not self.missing
        if not self._body_read:
            self._connection.read_on()
        return {"type": "http.request", "body": body, "more_body": not self._body_read}

    def wake(self) -> None:
        """Resume the application when bytes have arrived or the request has ended."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def send(self, message: Message) -> None:
        """Write a part of the answer, unless the client has closed the connection."""
        # After the end of the connection nothing is written.
        if self.over:
            return
        # The head is written with the first part of the body, whose length it may need.
        if message["type"] == "http.response.start":
            self._started = message
            return
        more, body = message.get("more_body", False), message.get("body", b"")
        parts = [] if self.begun else [self._head(None if more else len(body))]
        if body and self._request.scope["method"] != "HEAD":
            parts.append(body)
        self.begun = True
        self._connection.write(parts)
        # Wait for a slow reader, or end the request.
        if more:
            await self._connection.drained()
            return
        self.over = True
        self.wake()
        self._connection.answered()

    def _head(self, length: int | None) -> bytes:
        """Status line and headers of the answer.

        If the length of the body is unknown, the end of the connection marks the end of the body.
        """
        status, headers = self._started["status"], self._started.get("headers", ())
        lines = [_STATUS[status]]
        lines += [b"%b: %b\r\n" % (name, value) for name, value in headers]
        if status not in _BODILESS and not any(
            name.lower() == b"content-length" for name, _ in headers
        ):
            if length is None:
                self.last = True
            else:
                lines.append(b"content-length: %d\r\n" % length)
        self.last = self.last or self.missing > 0 or self._connection.server.ending
        lines.append(b"date: %b\r\n" % self._connection.server.date)
        lines.append(b"connection: close\r\n\r\n" if self.last else b"\r\n")
        return b"".join(lines)


class HttpConnection(asyncio.BufferedProtocol, ActiveConnection):
    """Protocol of one HTTP connection, for the event loop.

    Guarantees:
        One request is answered at a time. At most `HEAD_BYTES` beyond this request are read, and at
        most `UNREAD_BYTES` of the request's body wait for the application.
        An answer before the end of the request's body announces the end of the connection; later
        bytes of the body are discarded, so that the answer arrives.
        The next request begins once the network has accepted the answer to the previous request.

    Args:
        server: the server.
        entry: entry of the connection in the table.
        address: address of the client.
        drop: ends the connection while it has no transport.
    """

    def __init__(
        self,
        server: BoundedServer,
        entry: OpenConnection,
        *,
        address: tuple[str, int],
        drop: Callable[[], object],
    ) -> None:
        # The server, and the connection's entry in its table.
        self.server, self._table = server, server.table
        self.entry, self._address, self._drop = entry, address, drop
        self._transport: Any = None
        # The current request, and bytes of the next one.
        self._exchange: _Exchange | None = None
        self._pipelined = bytearray()
        self._reads = True
        self._leaving = False
        self._full: asyncio.Future[None] | None = None

    # -- callbacks of the loop ---------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Store the transport of the new connection (see `asyncio.BaseProtocol`)."""
        self._transport = transport
        self.server.open.add(self)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        if self.entry.awaits is not HEAD:  # a handshake came first
            self._table.waits(self.entry, HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the lost connection (see `asyncio.BaseProtocol`)."""
        if not self._leaving and self.entry.awaits in (HEAD, BODY):
            self.server.ended("broken off")
        self.server.open.discard(self)
        self._table.left(self.entry)
        self._leaving = True
        self._give_up_exchange()
        self.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Buffer for the next received bytes; within a body, at most its missing bytes."""
        exchange = self._exchange
        if exchange is not None and exchange.missing:
            most = min(exchange.missing, UNREAD_BYTES - len(exchange.unread))
        else:
            most = HEAD_BYTES - len(self._pipelined)
        return self.server.buffer[: max(1, most)]

    def buffer_updated(self, nbytes: int) -> None:
        """Process ``nbytes`` received bytes; bytes of a following request are kept for later."""
        if self._leaving:
            return
        data, exchange = self.server.buffer[:nbytes], self._exchange
        if exchange is not None and exchange.missing:
            self._take(exchange, data)
            return
        self._pipelined += data
        if exchange is None:
            self._begin_next()
        else:
            self._pause()

    def eof_received(self) -> None:
        """Let the transport close after the client's end of file."""

    def pause_writing(self) -> None:
        """Start the wait for a client that does not read its answer."""
        self._full = asyncio.get_running_loop().create_future()
        if not self._leaving:
            self._table.waits(self.entry, READER)

    def resume_writing(self) -> None:
        """Continue to write after the client has read a part of its answer."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)
        if full is None or self._leaving:
            return
        if self._exchange is None:
            self._begin_next()
        else:
            self._table.waits(self.entry, BODY if self._exchange.missing else ANSWER)

    # -- requests ----------------------------------------------------------------------------

    def _begin_next(self) -> None:
        """Begin the next request if all of its header lines have arrived."""
        # Empty lines before a request are ignored.
        received = self._pipelined
        if received[:1] in (b"\r", b"\n"):
            self._pipelined = received = received.lstrip(b"\r\n")
        # A complete head begins a request; one that is too long or no HTTP is refused.
        end = received.find(_END_OF_HEAD)
        if end >= 0:
            head = bytes(received[: end + len(_END_OF_HEAD)])
            del received[: len(head)]
            self._begin(head)
        elif len(received) >= HEAD_BYTES:
            self.refuse(431)
        elif received and not begins(received):
            self.refuse(400)
        # An incomplete head must be complete before its deadline.
        else:
            awaits = HEAD if received else NEXT
            if self.entry.awaits is not awaits:
                self._table.waits(self.entry, awaits)
            self.read_on()

    def _begin(self, head: bytes) -> None:
        """Begin the request with the given request line and headers."""
        # Parse the head, and add the entries of the connection to ASGI's scope.
        try:
            request = request_of(head)
        except MalformedError as error:
            self.refuse(error.args[0])
            return
        request.scope.update(
            {
                "scheme": self._scheme,
                "client": self._address,
                "server": self.server.address,
                CONNECTION: self,
            }
        )
        # The application answers in a task; without a body it need not wait for anything.
        exchange = self._exchange = _Exchange(self, request)
        self.server.answer(exchange.run)
        if not exchange.missing:
            self._table.waits(self.entry, ANSWER)
            if self._pipelined:
                self._pause()
            return
        # Bytes after the head are the first ones of the body.
        self._table.waits(self.entry, BODY)
        begun = self._pipelined[: exchange.missing]
        del self._pipelined[: exchange.missing]
        self._take(exchange, begun)

    def _take(self, exchange: _Exchange, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes to the body, and pause reading if many of them are unread."""
        exchange.unread += data
        exchange.missing -= len(data)
        self.entry.received += len(data)
        if not exchange.missing and self._full is None:  # otherwise the client must read first
            self._table.waits(self.entry, ANSWER)
        if len(exchange.unread) >= UNREAD_BYTES or (self._pipelined and not exchange.missing):
            self._pause()
        elif exchange.missing:
            self.read_on()
        if data:
            exchange.wake()

    def answered(self) -> None:
        """Begin the next request after a complete answer, or end the connection."""
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        if exchange.last:
            self._leave(unread=exchange.missing > 0)
        elif self._full is None:
            self._begin_next()

    # -- reading and writing -----------------------------------------------------------------

    def _pause(self) -> None:
        """Pause reading from the client."""
        if self._reads:
            self._reads = False
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Resume reading from the client."""
        if not self._reads and not self._transport.is_closing():
            self._reads = True
            self._transport.resume_reading()

    def write(self, parts: list[bytes]) -> None:
        """Write several byte strings to the client in one call."""
        if parts and not self._transport.is_closing():
            self._transport.writelines(parts)

    async def drained(self) -> None:
        """Wait until the network has accepted the answer."""
        if self._full is not None:
            await self._full

    # -- end of the connection ---------------------------------------------------------------

    def signed(self) -> None:
        """Mark the connection as one that has carried a signed request."""
        self._table.signed(self.entry)

    def give_up(self) -> None:
        """End the overdue connection, with an error answer to an incomplete request."""
        exchange = self._exchange
        if self._transport is None or self._leaving:
            self.abort()
        elif exchange is not None and exchange.missing and not exchange.begun:
            self.refuse(408)
        else:
            self._leave(unread=False)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is None:
            self._drop()
        else:
            self._leaving = True
            self._transport.abort()

    def unsent(self) -> int:
        """Number of answer bytes that the network has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def shutdown(self) -> None:
        """End the connection, after the answer to the current request if there is one."""
        if self._exchange is None:
            self._leave(unread=False)

    def refuse(self, status: int) -> None:
        """Answer with an error status and end the connection; the application is notified."""
        begun = self._exchange is not None and self._exchange.begun
        self._give_up_exchange()
        if self._leaving:
            return
        if status in _ENDED_EARLY:  # the server counts failures of the application itself
            self.server.ended(_ENDED_EARLY[status])
        if not begun:
            self.write([_STATUS[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"])
        self._leave(unread=True)

    def _give_up_exchange(self) -> None:
        """End the current request without an answer."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.over = True
            exchange.wake()

    def _leave(self, *, unread: bool) -> None:
        """Close the connection after the answer is sent.

        Args:
            unread: whether bytes of the client are unread; if so, reading goes on for a while.
        """
        unread = unread or bool(self._pipelined) or not self._reads
        self._leaving = True
        self._pipelined.clear()
        self._give_up_exchange()
        if self._transport.is_closing():
            return
        self._table.waits(self.entry, CLOSE)
        if not unread:
            self._transport.close()
            return
        # If unread bytes were left, the system would discard the answer before the client reads it.
        self.read_on()
        if self._transport.can_write_eof():
            self._transport.write_eof()
