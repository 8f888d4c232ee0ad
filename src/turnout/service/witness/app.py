"""The witness: its database, its HTTP side and its process.

`WitnessStore` keeps a signing key and every ledger head that the witness signed; rows are never
changed. `create_witness_app` serves the store over HTTP, and `witness` runs the process of
``turnout witness``. The module `client` is the coordinator's side.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.core.errors import StorageError
from turnout.core.files import lock_file
from turnout.service.contract.ledger import Head, SigningKey
from turnout.service.contract.wire import SignedHead
from turnout.service.coordinator.new_task import secret_of
from turnout.service.storage.database import raising_storage_errors
from turnout.service.web import logs
from turnout.service.web.answers import RefusedError
from turnout.service.witness.messages import (
    KEY_PATH,
    MOST_BYTES,
    RECEIPTS_PATH,
    ShownHead,
    receipt_bytes,
    refusal_body,
)

APPLICATION = 0x7475726D  # "turm", in the file's header
MOST_TASKS = 1000

_SCHEMA = """
CREATE TABLE witness (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    signing_key BLOB NOT NULL CHECK (length(signing_key) = 32)
) STRICT;
CREATE TABLE tasks (
    task TEXT PRIMARY KEY CHECK (length(task) = 64),
    coordinator_key BLOB NOT NULL CHECK (length(coordinator_key) = 32)
) STRICT, WITHOUT ROWID;
CREATE TABLE heads (
    task TEXT NOT NULL REFERENCES tasks,
    steps INTEGER NOT NULL CHECK (steps >= 0),
    head TEXT NOT NULL,
    PRIMARY KEY (task, steps)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER heads_go_on BEFORE INSERT ON heads
WHEN NEW.steps <> (SELECT max(steps) + 1 FROM heads WHERE task = NEW.task)
BEGIN SELECT RAISE(ABORT, 'heads go on one by one'); END;
"""
_KEPT = "".join(
    f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, '{table}: rows are never changed'); END;\n"
    for table in ("witness", "tasks", "heads")
    for verb in ("UPDATE", "DELETE")
)
_SETTINGS = ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON", "foreign_keys=ON",
             "recursive_triggers=ON", "trusted_schema=OFF")  # fmt: skip


class UnknownTaskError(StorageError):
    """The coordinator has a receipt of this witness, but the witness has no such task."""


class FullError(StorageError):
    """The witness has its largest number of tasks."""


@dataclass
class OtherHeadError(Exception):
    """The shown ledger head does not extend the witness's newest ledger head."""

    newest: SignedHead


@raising_storage_errors(
    apsw.Error, lambda error: f"the witness's database: {type(error).__name__}: {error}"
)
class WitnessStore:
    """Database of a witness, open in one process at a time.

    Guarantees:
        The witness signs a ledger head only once the ledger head is durable. Each task has at most
        one ledger head for each number of releases, and each ledger head extends the one before it.

    Raises:
        StorageError: another process has the database open, or the file is not a witness's.
    """

    def __init__(self, path: Path, most_tasks: int = MOST_TASKS) -> None:
        self._most_tasks, self._using = most_tasks, threading.RLock()
        self._lock = _locked(path)
        try:
            self._db = self._opened(path)
        except BaseException:
            os.close(self._lock)
            raise
        self.key = SigningKey(self._rows("SELECT signing_key FROM witness")[0][0])

    def _opened(self, path: Path) -> apsw.Connection:
        # An error leaves no connection open.
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            for setting in _SETTINGS:
                db.execute(f"PRAGMA {setting}").fetchall()
            # An empty file becomes a witness's database; any other must be one already.
            known = db.execute("PRAGMA application_id").fetchall()[0][0]
            new = db.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]
            if not new and known != APPLICATION:
                raise StorageError(f"{path} is not the database of a witness")
            # A new database gets its tables and the witness's key in one transaction.
            if new:
                with db:
                    db.execute(_SCHEMA + _KEPT)
                    db.execute("INSERT INTO witness VALUES (1, ?)", (SigningKey.new().private,))
                    db.execute(f"PRAGMA application_id={APPLICATION}")
        except BaseException:
            db.close()
            raise
        return db

    def receipt(self, shown: ShownHead) -> bytes:
        """Signature of a ledger head that extends, or equals, the witness's newest ledger head.

        Raises:
            OtherHeadError: the ledger head has fewer releases than the newest one, differs from it
                at the same number of releases, or leaves out a release.
            UnknownTaskError: the witness has no such task, though the coordinator has a receipt.
            FullError: the witness has its largest number of tasks.
        """
        with self._using:
            self._keep(shown)
        return self.key.sign(receipt_bytes(shown.task, shown.head.head))

    def newest(self, task: str) -> SignedHead | None:
        """The newest ledger head of a task; None for an unknown task."""
        sql = "SELECT head FROM heads WHERE task = ? ORDER BY steps DESC LIMIT 1"
        with self._using:  # one connection: a read in another thread would fail the write
            rows = self._rows(sql, task)
        return SignedHead.parsed(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close the database and release its lock."""
        self._db.close()
        os.close(self._lock)

    def _keep(self, shown: ShownHead) -> None:
        task, head = shown.task, shown.head.head
        newest = self.newest(task)
        if newest is None:
            self._begin(shown)
            return
        known = self._rows("SELECT coordinator_key FROM tasks WHERE task = ?", task)[0][0]
        if known != shown.key:
            raise OtherHeadError(newest)
        if newest.head == head:
            return
        follows = newest.head == Head(head.steps - 1, shown.previous)
        if not follows:
            raise OtherHeadError(newest)
        self._db.execute("INSERT INTO heads VALUES (?, ?, ?)", (task, head.steps, str(shown.head)))

    def _begin(self, shown: ShownHead) -> None:
        """Store a new task with its first ledger head."""
        if not shown.begins:
            raise UnknownTaskError("this witness has no record of the task")
        if self._rows("SELECT count(*) FROM tasks")[0][0] >= self._most_tasks:
            raise FullError(f"this witness accepts at most {self._most_tasks} tasks")
        steps = shown.head.head.steps
        with self._db:
            self._db.execute("INSERT INTO tasks VALUES (?, ?)", (shown.task, shown.key))
            self._db.execute(
                "INSERT INTO heads VALUES (?, ?, ?)", (shown.task, steps, str(shown.head))
            )

    def _rows(self, sql: str, *parameters: object) -> list[tuple]:
        return self._db.execute(sql, parameters).fetchall()


def _locked(path: Path) -> int:
    """Descriptor of the locked database file; the lock is on the file, so hard links share it."""
    try:
        return lock_file(path, wait=False)
    except BlockingIOError:
        raise StorageError(f"another witness has {path} open") from None
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}") from None


_BODY_SECONDS = 10.0
_STATUS = {UnknownTaskError: 404, FullError: 507}
"""HTTP status of a refusal; any other error is a fault of the disk, which may pass (503)."""


class _Witness:
    """Handlers of the routes over one store."""

    def __init__(self, store: WitnessStore, token: str | None) -> None:
        self._store = store
        self._token = None if token is None else f"Bearer {token}".encode()

    async def receipt(self, request: Request) -> Response:
        """Answer with the signature of the ledger head in the body, or with a refusal."""
        try:
            self._require_known(request)
            shown = ShownHead.decoded(await _body(request))
            signature = await asyncio.to_thread(self._store.receipt, shown)
        except RefusedError as refused:
            return _answer(refused.status, refused.body)
        except ValueError as error:
            return _answer(422, refusal_body(str(error)))
        except OtherHeadError as other:
            return _answer(409, refusal_body("this witness has another ledger head", other.newest))
        except StorageError as error:
            return _answer(_STATUS.get(type(error), 503), refusal_body(str(error)))
        return _answer(200, json.dumps({"receipt": signature.hex()}).encode())

    async def newest(self, request: Request) -> Response:
        """Newest ledger head of a task, as text."""
        try:
            self._require_known(request)
        except RefusedError as refused:
            return _answer(refused.status, refused.body)
        head = await asyncio.to_thread(self._store.newest, request.path_params["task"])
        if head is None:
            return _answer(404, refusal_body("this witness has no record of the task"))
        return Response(f"{head}\n", 200, {"Cache-Control": "no-store"}, "text/plain")

    async def key(self, _request: Request) -> Response:
        """The public key that verifies receipts."""
        return _answer(200, json.dumps({"key": self._store.key.public.hex()}).encode())

    def _require_known(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if self._token is not None and not hmac.compare_digest(given, self._token):
            raise RefusedError(401, refusal_body("this witness requires its token"))


async def _body(request: Request) -> bytes:
    """Whole body of a request; a body that is too long or too slow is refused."""
    parts = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                parts += part
                if len(parts) > MOST_BYTES:
                    raise RefusedError(
                        413, refusal_body(f"the body has more than {MOST_BYTES} bytes")
                    )
    except TimeoutError:
        raise RefusedError(408, refusal_body("the body took too long")) from None
    except ClientDisconnect:
        reason = "the connection ended before the whole body had arrived"
        raise RefusedError(400, refusal_body(reason)) from None
    return bytes(parts)


def _answer(status: int, body: bytes) -> Response:
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def create_witness_app(store: WitnessStore, token: str | None = None) -> Starlette:
    """HTTP application of one witness; clients must send ``token`` unless it is None."""
    witness = _Witness(store, token)
    return Starlette(
        routes=[
            Route(RECEIPTS_PATH, witness.receipt, methods=["POST"]),
            Route(KEY_PATH, witness.key, methods=["GET"]),
            Route("/v1/heads/{task}", witness.newest, methods=["GET"]),
        ]
    )


SHORTEST_TOKEN = 16
_MOST_CONNECTIONS, _GRACE_SECONDS = 256, 5


def token_of(path: Path, option: str) -> str:
    """Token in the first line of a file; errors name the file by the setting ``option``."""
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
    """Run a witness until the process receives a signal.

    Args:
        db: path of the witness's database, created if it is missing or empty.
        host: address to listen at.
        port: port to listen at; 0 for any free port.
        token: token that clients must send; None for no token.
        tls: files of certificate and key; None for HTTP.
        announce: function that receives the witness's public key, hexadecimal, and its URL.

    Raises:
        ParameterError: the host or port is unknown, in use, or not this machine's.
        StorageError: another witness has the database open, or the file is not a witness's.
    """
    from turnout.service.web.bounded_server import BoundedServer, listening_at, url_of
    from turnout.service.web.connections import Connections, proxies

    # The database is opened only if the address is free, and closed at the end.
    with listening_at(host, port) as listening:
        store = WitnessStore(db)
        try:
            # Half of the connections at most are of one address.
            logs.configure()
            connections = Connections(
                _MOST_CONNECTIONS, _MOST_CONNECTIONS // 2, proxies(None), time.monotonic
            )
            server = BoundedServer(
                create_witness_app(store, token), connections, tls, _GRACE_SECONDS
            )
            # Serve until a signal arrives.
            announce(store.key.public.hex(), url_of(listening, secure=tls is not None))
            server.run(listening)
        finally:
            store.close()
