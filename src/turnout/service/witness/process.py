"""What ``turnout witness`` runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from turnout.core.errors import ParameterError
from turnout.service.web import logs
from turnout.service.witness.app import create_app
from turnout.service.witness.store import WitnessStore

SHORTEST_TOKEN = 16
_MOST_CONNECTIONS = 64


def token_of(path: Path, option: str) -> str:
    """The token in a file's first line.

    Raises:
        ParameterError: no such file, or too short a token; it is not shown.
    """
    try:
        text = path.read_text("ascii").partition("\n")[0].strip()
    except (OSError, ValueError):
        raise ParameterError(option, str(path), "a readable file, in ASCII") from None
    if len(text) < SHORTEST_TOKEN:
        expected = f"a file with a token of at least {SHORTEST_TOKEN} characters"
        raise ParameterError(option, str(path), expected)
    return text


def witness(
    db: Path,
    host: str,
    port: int,
    *,
    token: str | None,
    tls: tuple[Path, Path] | None,
    announce: Callable[[str, str], object],
) -> None:
    """Serve a witness until a signal.

    Args:
        db: its database; made where there is none.
        host: where to listen.
        port: the port; 0 for any that is free.
        token: that coordinators must send; None only where this machine alone can connect.
        tls: certificate and key, for https.
        announce: told the public key and the address.

    Raises:
        TurnoutError: something is refused before anything is served.
    """
    import uvicorn

    with _listening(host, port) as listening:
        store = WitnessStore(db)
        try:
            logs.configure()
            config = uvicorn.Config(
                create_app(store, token),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=5,
                ssl_certfile=None if tls is None else os.fspath(tls[0]),
                ssl_keyfile=None if tls is None else os.fspath(tls[1]),
            )
            name, taken = listening.getsockname()[:2]
            shown = f"[{name}]" if ":" in name else name
            announce(store.key.public.hex(), f"http{'' if tls is None else 's'}://{shown}:{taken}")
            uvicorn.Server(config).run([listening])
        finally:
            store.close()


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except OSError:
            listening.close()
            raise
        return listening
    except (OSError, OverflowError) as error:
        reason = f"an address to listen at ({getattr(error, 'strerror', None) or error})"
        raise ParameterError("host:port", f"{host}:{port}", reason) from None
