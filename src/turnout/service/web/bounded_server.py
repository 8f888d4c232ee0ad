"""uvicorn over one listening socket and a bounded table of connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from turnout.core.errors import ParameterError
from turnout.service.web.accepting import Listener
from turnout.service.web.connections import Connections, Entry
from turnout.service.web.http_connection import HttpConnection


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
            entry: Entry, address: tuple[str, int], drop: Callable[[], object]
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
