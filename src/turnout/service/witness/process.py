"""The process of ``turnout witness``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from turnout.service.named_files import secret_of
from turnout.service.web import logs
from turnout.service.witness.app import create_app
from turnout.service.witness.store import WitnessStore

SHORTEST_TOKEN = 16
_MOST_CONNECTIONS, _GRACE_SECONDS = 256, 5


def token_of(path: Path, option: str) -> str:
    """The token in a file's first line."""
    return secret_of(path, option, "token", SHORTEST_TOKEN, encoding="ascii")


def witness(
    db: Path,
    host: str,
    port: int,
    *,
    token: str | None,
    tls: tuple[Path, Path] | None,
    announce: Callable[[str, str], object],
) -> None:
    """Serve a witness until a signal."""
    from turnout.service.web.bounded_server import BoundedServer, listening_at, url_of
    from turnout.service.web.connections import Connections, proxies

    with listening_at(host, port) as listening:
        store = WitnessStore(db)
        try:
            logs.configure()
            connections = Connections(
                _MOST_CONNECTIONS, _MOST_CONNECTIONS // 2, proxies(None), time.monotonic
            )
            server = BoundedServer(create_app(store, token), connections, tls, _GRACE_SECONDS)
            announce(store.key.public.hex(), url_of(listening, secure=tls is not None))
            server.run(listening)
        finally:
            store.close()
