"""HTTP/1.1 over one connection: one request at a time, in bounded memory, without timers.

Bytes of a head are collected until its end is there, and read by httptools; those of a body go to
the application as it asks for them. While a request is being answered, hardly anything behind it
is read, and nothing of it is begun.
What a connection is waited for, and until when, is in the table of connections.
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
    Begun,
    OpenConnection,
)
from turnout.service.web.http_request import MalformedError, Request, begins, request_of

if TYPE_CHECKING:
    from turnout.service.web.bounded_server import BoundedServer

HEAD_BYTES = 16 << 10
"""Most bytes of a head, and of what is read behind a request that is being answered."""
UNREAD_BYTES = 64 << 10
"""Most bytes of a body that are kept before the application asks for them."""

_END_OF_HEAD = b"\r\n\r\n"
_STATUS = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_BODILESS = (204, 304)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REFUSALS = {400: "malformed", 408: "too slow", 411: "without a length", 431: "too long"}


class _Exchange:
    """One request and its answer, as ASGI has them.

    Attributes:
        missing: bytes of the body that did not arrive yet.
        unread: those that arrived, and that the application did not ask for yet.
        begun: the answer has begun, so that no other one is possible.
        last: no other request is answered after this one.
        over: it is answered, or nobody waits for the answer.
    """

    __slots__ = (
        "_connection",
        "_continues",
        "_request",
        "_started",
        "_told",
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
        self._told = self.begun = self.over = False
        self.last = not request.keep_alive

    async def run(self, application: Application) -> None:
        """Have it answered."""
        try:
            await application(self._request.scope, self.receive, self.send)
        except ClientDisconnect:  # the table counts who left
            pass
        except Exception as error:
            self._connection.front.failed(error)
        if not self.over:  # without an answer, or without all of it
            self._connection.refuse(500)

    async def receive(self) -> Message:
        """The next part of the body, or that all is over."""
        if self._continues and self.missing and not self.over:
            self._connection.write([_CONTINUE])
        self._continues = False
        while not self.over and (self._told or (self.missing and not self.unread)):
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if self.over:
            return {"type": "http.disconnect"}
        body, self.unread = bytes(self.unread), bytearray()
        self._told = not self.missing
        if not self._told:
            self._connection.read_on()
        return {"type": "http.request", "body": body, "more_body": not self._told}

    def wake(self) -> None:
        """Tell the application that something arrived, or that all is over."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def send(self, message: Message) -> None:
        """Write a part of the answer; nothing where nobody waits for it."""
        if self.over:
            return
        if message["type"] == "http.response.start":
            self._started = message
            return
        more, body = message.get("more_body", False), message.get("body", b"")
        parts = [] if self.begun else [self._head(None if more else len(body))]
        if body and self._request.scope["method"] != "HEAD":
            parts.append(body)
        self.begun = True
        self._connection.write(parts)
        if more:
            await self._connection.drained()
            return
        self.over = True
        self.wake()
        self._connection.answered()

    def _head(self, length: int | None) -> bytes:
        """The head of the answer; without a known length, its end is the connection's."""
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
        self.last = self.last or self.missing > 0 or self._connection.front.ending
        lines.append(b"date: %b\r\n" % self._connection.front.date)
        lines.append(b"connection: close\r\n\r\n" if self.last else b"\r\n")
        return b"".join(lines)


class HttpConnection(asyncio.BufferedProtocol, Begun):
    """One connection.

    Guarantees:
        One request is answered at a time. Behind it at most `HEAD_BYTES` are read, and of its body
        at most `UNREAD_BYTES` that the application did not ask for.
        An answer that is given before its request's body arrived says that it is the last one;
        what is still sent is thrown away, so that the answer arrives.
        The next request begins once the answer before it was taken by the network.
    """

    def __init__(
        self,
        front: BoundedServer,
        entry: OpenConnection,
        *,
        address: tuple[str, int],
        drop: Callable[[], object],
    ) -> None:
        self.front, self._table = front, front.table
        self.entry, self._address, self._drop = entry, address, drop
        self._transport: Any = None
        self._exchange: _Exchange | None = None
        self._behind = bytearray()
        self._reads = True
        self._leaving = False
        self._full: asyncio.Future[None] | None = None

    # -- what the loop says ------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = transport
        self.front.open.add(self)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        if self.entry.awaits is not HEAD:  # a handshake came first
            self._table.waits(self.entry, HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        if not self._leaving and self.entry.awaits in (HEAD, BODY):
            self.front.ended("broken off")
        self.front.open.discard(self)
        self._table.left(self.entry)
        self._leaving = True
        self._give_up_exchange()
        self.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop reads into: of a body never more than is missing."""
        exchange = self._exchange
        if exchange is not None and exchange.missing:
            most = min(exchange.missing, UNREAD_BYTES - len(exchange.unread))
        else:
            most = HEAD_BYTES - len(self._behind)
        return self.front.buffer[: max(1, most)]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes arrived; those behind the request that is being answered wait."""
        if self._leaving:
            return
        data, exchange = self.front.buffer[:nbytes], self._exchange
        if exchange is not None and exchange.missing:
            self._take(exchange, data)
            return
        self._behind += data
        if exchange is None:
            self._next()
        else:
            self._pause()

    def eof_received(self) -> None:
        """See `asyncio.BufferedProtocol`: the transport closes."""

    def pause_writing(self) -> None:
        """The answer is not taken: what is waited for is its reader."""
        self._full = asyncio.get_running_loop().create_future()
        if not self._leaving:
            self._table.waits(self.entry, READER)

    def resume_writing(self) -> None:
        """It is taken again."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)
        if full is None or self._leaving:
            return
        if self._exchange is None:
            self._next()
        else:
            self._table.waits(self.entry, BODY if self._exchange.missing else ANSWER)

    # -- requests ----------------------------------------------------------------------------

    def _next(self) -> None:
        """Begin the next request, if all of its head is here."""
        behind = self._behind
        if behind[:1] in (b"\r", b"\n"):  # an empty line before a request is none
            self._behind = behind = behind.lstrip(b"\r\n")
        end = behind.find(_END_OF_HEAD)
        if end >= 0:
            head = bytes(behind[: end + len(_END_OF_HEAD)])
            del behind[: len(head)]
            self._begin(head)
        elif len(behind) >= HEAD_BYTES:
            self.refuse(431)
        elif behind and not begins(behind):
            self.refuse(400)
        else:
            awaits = HEAD if behind else NEXT
            if self.entry.awaits is not awaits:
                self._table.waits(self.entry, awaits)
            self.read_on()

    def _begin(self, head: bytes) -> None:
        try:
            request = request_of(head)
        except MalformedError as error:
            self.refuse(error.args[0])
            return
        request.scope.update(
            {
                "scheme": self._scheme,
                "client": self._address,
                "server": self.front.address,
                CONNECTION: self,
            }
        )
        exchange = self._exchange = _Exchange(self, request)
        self.front.answer(exchange.run)
        if not exchange.missing:
            self._table.waits(self.entry, ANSWER)
            if self._behind:
                self._pause()
            return
        self._table.waits(self.entry, BODY)
        begun = self._behind[: exchange.missing]
        del self._behind[: exchange.missing]
        self._take(exchange, begun)

    def _take(self, exchange: _Exchange, data: bytes | bytearray | memoryview) -> None:
        """A part of the body."""
        exchange.unread += data
        exchange.missing -= len(data)
        self.entry.received += len(data)
        if not exchange.missing and self._full is None:  # else its reader is waited for
            self._table.waits(self.entry, ANSWER)
        if len(exchange.unread) >= UNREAD_BYTES or (self._behind and not exchange.missing):
            self._pause()
        elif exchange.missing:
            self.read_on()
        if data:
            exchange.wake()

    def answered(self) -> None:
        """The answer is written: go on with what arrived behind its request, or end."""
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        if exchange.last:
            self._leave(unread=exchange.missing > 0)
        elif self._full is None:
            self._next()

    # -- reading and writing -----------------------------------------------------------------

    def _pause(self) -> None:
        if self._reads:
            self._reads = False
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read, if reading was paused."""
        if not self._reads and not self._transport.is_closing():
            self._reads = True
            self._transport.resume_reading()

    def write(self, parts: list[bytes]) -> None:
        """Write at once what belongs together."""
        if parts and not self._transport.is_closing():
            self._transport.writelines(parts)

    async def drained(self) -> None:
        """Wait until an answer is taken, where it is not."""
        if self._full is not None:
            await self._full

    # -- its end -----------------------------------------------------------------------------

    def signed(self) -> None:
        """A client's signature was seen over it."""
        self._table.signed(self.entry)

    def give_up(self) -> None:
        """See `connections.Held`."""
        exchange = self._exchange
        if self._transport is None or self._leaving:
            self.abort()
        elif exchange is not None and exchange.missing and not exchange.begun:
            self.refuse(408)
        else:
            self._leave(unread=False)

    def abort(self) -> None:
        """See `connections.Held`."""
        if self._transport is None:
            self._drop()
        else:
            self._leaving = True
            self._transport.abort()

    def unsent(self) -> int:
        """See `connections.Held`."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def shutdown(self) -> None:
        """The server ends: what is being answered still is."""
        if self._exchange is None:
            self._leave(unread=False)

    def refuse(self, status: int) -> None:
        """Give a last answer without the application, which is told that nobody waits for its."""
        begun = self._exchange is not None and self._exchange.begun
        self._give_up_exchange()
        if self._leaving:
            return
        if status in _REFUSALS:  # the server counts what failed
            self.front.ended(_REFUSALS[status])
        if not begun:
            self.write([_STATUS[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"])
        self._leave(unread=True)

    def _give_up_exchange(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.over = True
            exchange.wake()

    def _leave(self, *, unread: bool) -> None:
        """Close once what is written was taken, and what is still sent arrived or takes long."""
        unread = unread or bool(self._behind) or not self._reads
        self._leaving = True
        self._behind.clear()
        self._give_up_exchange()
        if self._transport.is_closing():
            return
        self._table.waits(self.entry, CLOSE)
        if not unread:
            self._transport.close()
            return
        # Closed with unread bytes, the system would take the answer back from its reader.
        self.read_on()
        if self._transport.can_write_eof():
            self._transport.write_eof()
