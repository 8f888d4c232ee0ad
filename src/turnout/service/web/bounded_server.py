"""The server: one listening socket, a bounded table of connections, and how they end together."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

from turnout.core.errors import ParameterError
from turnout.service.web.answers import Application
from turnout.service.web.connections import Connections, Listener, OpenConnection
from turnout.service.web.http_connection import UNREAD_BYTES, HttpConnection

_SWEEP_SECONDS, _BREATH_SECONDS, _POLL_SECONDS = 1.0, 0.02, 0.05
_TOLD_SECONDS = 60.0
"""Between two lines about requests that ended early, and between two tracebacks."""

_LOGGER = logging.getLogger("turnout.service.http")


class BoundedServer:
    """Serves an application over one socket until it is stopped.

    Guarantees:
        Whatever strangers send, the log gets two entries a minute at most: how many requests ended
        early, by their reason, and the traceback of one at which the application failed.

    Attributes:
        started: set once connections are taken.
        answering: requests that the application has.
    """

    def __init__(
        self,
        app: Application,
        connections: Connections,
        tls: tuple[Path, Path] | None,
        grace_seconds: float,
    ) -> None:
        self._app, self.table, self._grace_seconds = app, connections, grace_seconds
        self._tls = None if tls is None else _context(*tls)
        self.open: set[HttpConnection] = set()
        self.buffer = memoryview(bytearray(UNREAD_BYTES))
        self.started, self._stopping = asyncio.Event(), asyncio.Event()
        self.ending = self._at_once = False
        self.answering: set[asyncio.Task[None]] = set()
        self._early: Counter[str] = Counter()
        self._told_at = self._failed_at = -_TOLD_SECONDS
        self.date = b""

    def run(self, listening: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT."""
        import uvloop

        async def main() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
            await self.serve(listening)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    def stop(self) -> None:
        """Take no more requests, and answer those that are here; called again, not even those."""
        self._at_once = self._stopping.is_set()
        self._stopping.set()

    async def serve(self, listening: socket.socket) -> None:
        """Take connections until `stop`, and answer what is here then."""
        self.address = listening.getsockname()[:2]
        self.date = formatdate(usegmt=True).encode()
        listener = Listener(listening, self.table, self._made, self._tls)
        sweeping = asyncio.create_task(self._keep_sweeping())
        self.started.set()
        try:
            await self._stopping.wait()
            self.ending = True
            listener.close()
            listening.close()
            for connection in list(self.open):
                connection.shutdown()
            await self._all_answered()
        finally:
            sweeping.cancel()

    async def _all_answered(self) -> None:
        """Wait for what is being answered, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_seconds):
                while (self.open or self.answering) and not self._at_once:
                    await asyncio.sleep(_POLL_SECONDS)
        for task in self.answering:
            task.cancel()

    def _made(
        self, entry: OpenConnection, address: tuple[str, int], drop: Callable[[], object]
    ) -> HttpConnection:
        return HttpConnection(self, entry, address=address, drop=drop)

    async def _keep_sweeping(self) -> None:
        """Once a second: the date, and connections that are overdue.

        Thousands that are overdue at once, as an attacker's are, go over most of a second: closed
        in one go, they come back in one go.
        """
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.date = formatdate(usegmt=True).encode()
            for _ in self.table.sweep():
                await asyncio.sleep(_BREATH_SECONDS)
            self.tell()

    # -- what connections say: see `http_connection.Front` ------------------------------------

    def answer(self, answering: Callable[[Application], Coroutine[Any, Any, None]]) -> None:
        """Have the application answer, in a task of its own."""
        task = asyncio.get_running_loop().create_task(answering(self._app))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    def ended(self, why: str) -> None:
        """A request ended without the application's answer."""
        self._early[why] += 1

    def failed(self, error: Exception) -> None:
        """The application raised: a traceback, unless there was one lately."""
        now = self.table.now()
        self._early["failed"] += 1
        if now - self._failed_at >= _TOLD_SECONDS:
            self._failed_at = now
            _LOGGER.error("a request failed", exc_info=error)

    def tell(self) -> None:
        """Log how many requests ended early since the last such line, if that is some time ago."""
        now = self.table.now()
        if self._early and now - self._told_at >= _TOLD_SECONDS:
            counts = ", ".join(f"{count} {why}" for why, count in sorted(self._early.items()))
            self._told_at = now
            self._early.clear()
            _LOGGER.info("requests that ended early: %s", counts)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


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
