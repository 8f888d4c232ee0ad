"""HTTP server with one listening socket and a bounded number of connections.

`BoundedServer` serves an ASGI application. `listening_at` binds a socket, and `url_of` returns the
socket's URL.
"""

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
_REPORT_SECONDS = 60.0
"""Shortest time between two lines about requests that ended early, and between two tracebacks."""

_LOGGER = logging.getLogger("turnout.service.http")


class BoundedServer:
    """HTTP server of an application over one socket, until it is stopped.

    Guarantees:
        Unauthenticated clients cause at most two entries per minute in the log: the number of
        requests that ended early, by reason, and the traceback of one failure of the application.

    Args:
        app: the ASGI application.
        connections: table of connections.
        tls: files of certificate and key; None for HTTP.
        grace_seconds: longest wait, after `stop`, for requests that are being answered.

    Attributes:
        started: set once connections are accepted.
        answering: tasks of requests that are being answered.
    """

    def __init__(
        self,
        app: Application,
        connections: Connections,
        tls: tuple[Path, Path] | None,
        grace_seconds: float,
    ) -> None:
        # The application, the table of connections, and the settings of TLS.
        self._app, self.table, self._grace_seconds = app, connections, grace_seconds
        self._tls = None if tls is None else _context(*tls)
        # Open connections, which share one buffer for received bytes.
        self.open: set[HttpConnection] = set()
        self.buffer = memoryview(bytearray(UNREAD_BYTES))
        # Start and end of the server, and the requests that are being answered.
        self.started, self._stopping = asyncio.Event(), asyncio.Event()
        self.ending = self._at_once = False
        self.answering: set[asyncio.Task[None]] = set()
        # Counts for the log, and the current Date header.
        self._ended_early: Counter[str] = Counter()
        self._reported_at = self._failed_at = -_REPORT_SECONDS
        self.date = b""

    def run(self, listening: socket.socket) -> None:
        """Serve requests until the process receives SIGTERM or SIGINT."""
        import uvloop

        async def main() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
            await self.serve(listening)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    def stop(self) -> None:
        """Accept no more requests and answer the current requests.

        A second call cancels the current requests.
        """
        self._at_once = self._stopping.is_set()
        self._stopping.set()

    async def serve(self, listening: socket.socket) -> None:
        """Serve connections until `stop` is called, then answer the current requests."""
        # Accept connections and sweep overdue ones.
        self.address = listening.getsockname()[:2]
        self.date = formatdate(usegmt=True).encode()
        listener = Listener(listening, self.table, self._make_connection, self._tls)
        sweeping = asyncio.create_task(self._keep_sweeping())
        self.started.set()
        # At the end, accept nothing more and wait for the current requests.
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
        """Wait for the current requests up to the grace time, then cancel the remaining ones."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_seconds):
                while (self.open or self.answering) and not self._at_once:
                    await asyncio.sleep(_POLL_SECONDS)
        for task in self.answering:
            task.cancel()

    def _make_connection(
        self, entry: OpenConnection, address: tuple[str, int], drop: Callable[[], object]
    ) -> HttpConnection:
        """Protocol object of a new connection."""
        return HttpConnection(self, entry, address=address, drop=drop)

    async def _keep_sweeping(self) -> None:
        """Update the Date header, close overdue connections and log counts, once a second.

        Thousands of overdue connections are closed over most of a second, not at once: otherwise an
        attacker would open all of them again at once.
        """
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.date = formatdate(usegmt=True).encode()
            for _ in self.table.sweep():
                await asyncio.sleep(_BREATH_SECONDS)
            self.report()

    # -- calls of connections ----------------------------------------------------------------

    def answer(self, answering: Callable[[Application], Coroutine[Any, Any, None]]) -> None:
        """Start a task in which the application answers a request."""
        task = asyncio.get_running_loop().create_task(answering(self._app))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    def ended(self, why: str) -> None:
        """Count a request that ended without the application's answer, under the given reason."""
        self._ended_early[why] += 1

    def failed(self, error: Exception) -> None:
        """Count an exception of the application, and log its traceback at most once a minute."""
        now = self.table.now()
        self._ended_early["failed"] += 1
        if now - self._failed_at >= _REPORT_SECONDS:
            self._failed_at = now
            _LOGGER.error("a request failed", exc_info=error)

    def report(self) -> None:
        """Log how many requests ended early, at most once a minute."""
        now = self.table.now()
        if self._ended_early and now - self._reported_at >= _REPORT_SECONDS:
            counts = ", ".join(f"{count} {why}" for why, count in sorted(self._ended_early.items()))
            self._reported_at = now
            self._ended_early.clear()
            _LOGGER.info("requests that ended early: %s", counts)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS settings with a certificate and its private key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


def listening_at(host: str, port: int) -> socket.socket:
    """Socket bound to a host and a port.

    Args:
        host: name or address of this machine.
        port: the port; 0 for any free port.

    Raises:
        ParameterError: the address is unknown, in use, or not this machine's.
    """
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
    """URL of a bound socket for clients on the same machine."""
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http{'s' if secure else ''}://{name}:{port}"
