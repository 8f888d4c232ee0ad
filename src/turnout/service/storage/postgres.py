"""Postgres by psycopg 3, behind the same interface as SQLite.

Writers take turns by an advisory lock that lasts as long as a transaction, as SQLite's do. Whoever
serves holds another one, on the very connection that writes: who lost it cannot write any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from turnout.core.errors import StorageError
from turnout.service.storage.addresses import place_of
from turnout.service.storage.database import (
    BUSY_SECONDS,
    Storage,
    migrations,
    pending,
    raising_storage_errors,
)
from turnout.service.storage.reads import Rights

WRITING, SERVING = 0x7475726E01, 0x7475726E02  # keys of the advisory locks, "turn" and a number
CONNECT_SECONDS = 10
PATIENCE_SECONDS = 5.0  # how long a dead coordinator's session may linger in the server

_REQUIRED = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

_TIDY_MILLISECONDS = 200
_TIDY = ("VACUUM check_ins, step_keys, asked, turns",)
_TIDY_THOROUGHLY = (
    f"BEGIN; SELECT pg_advisory_xact_lock({WRITING}); "
    "TRUNCATE check_ins, step_keys, asked, turns, bodies; COMMIT",
)


@lru_cache(maxsize=256)
def _placed(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _said(error: psycopg.Error) -> str:
    """What went wrong, in one line.

    Of the server's errors not `str`: their detail names the values of a key, a device and its slot.
    What libpq says of a connection has host, port, user and database, and no password.
    """
    said = error.diag.message_primary
    if said is None and isinstance(error, psycopg.OperationalError):
        said = " ".join(str(error).partition("\n")[0].split())
    return f"Postgres: {said or type(error).__name__}"


@raising_storage_errors(psycopg.Error, _said)
class _Connection:
    """`reads.Connection` by psycopg. Transactions are begun and ended by plain statements."""

    def __init__(self, url: str) -> None:
        self.raw = psycopg.connect(url, autocommit=True)
        self._cursor = self.raw.cursor(binary=True)
        self.run(f"SET lock_timeout = '{int(BUSY_SECONDS * 1000)}ms'; SET synchronous_commit = on")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._cursor.execute(_placed(sql), parameters).fetchall()

    def changed(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return self._cursor.execute(_placed(sql), parameters).rowcount

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(_placed(sql), rows)

    def discarded(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return self.changed(sql, parameters)

    def tidy(self, thorough: bool) -> bool:
        """Rows of a file that becomes empty go with its pages."""
        try:
            self.run(f"SET lock_timeout = '{_TIDY_MILLISECONDS}ms'")
            for statement in _TIDY_THOROUGHLY if thorough else _TIDY:
                self.run(statement)
        except StorageError:
            self.rollback()
            return False
        finally:
            self.run(f"SET lock_timeout = '{int(BUSY_SECONDS * 1000)}ms'")
        return True

    def begin_write(self) -> None:
        try:
            self.run(f"BEGIN; SELECT pg_advisory_xact_lock({WRITING})")
        except StorageError:
            self.rollback()
            raise

    def begin_read(self) -> None:
        """The first read is what fixes the view."""
        self.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT id FROM task")

    def commit(self) -> None:
        """Postgres answers COMMIT with ROLLBACK after an error."""
        if self.raw.execute("COMMIT").statusmessage != "COMMIT":
            raise StorageError("Postgres undid the transaction")

    def rollback(self) -> None:
        if self.raw.info.transaction_status != TransactionStatus.IDLE:
            self.raw.execute("ROLLBACK")

    def close(self) -> None:
        self.raw.close()

    def run(self, script: str) -> None:
        """Run statements without parameters."""
        self.raw.execute(script.encode())

    def value(self, sql: str, *parameters: Any) -> Any:
        """The first column of the first row."""
        return self.rows(sql, parameters)[0][0]


def opened(url: str, *, serving: bool, scripts: tuple[str, ...] = ()) -> Storage:
    """As `opening.open_storage`, for an address as libpq takes it."""
    url = _whole(url)
    with ExitStack() as undo:
        connection = _Connection(url)
        undo.callback(connection.close)
        if serving:
            _require_durable(connection)
            _serve(connection, PATIENCE_SECONDS)
        _prepare(connection, serving, scripts or migrations("postgres"))
        rights = Rights.SERVE if serving else Rights.INVITE
        database = Storage(connection, lambda: _Connection(url), rights)
        undo.pop_all()
        undo.callback(database.close)
        if serving:
            database.require_sound()
        undo.pop_all()
    return database


def holds_nothing(url: str) -> bool:
    """As `opening.holds_nothing`, for an address as libpq takes it."""
    connection = _Connection(_whole(url))
    try:
        return _version(connection) == 0
    finally:
        connection.close()


def _whole(url: str) -> str:
    """The address with what it leaves open, and nothing in it that libpq's errors must not show."""
    place_of(url)
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise StorageError(
            "the address of the database is none that libpq takes: write each sign of a password "
            "as % and two hexadecimal digits, and no option that libpq does not know"
        ) from None
    seconds = given.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT", CONNECT_SECONDS)
    return make_conninfo(url, connect_timeout=seconds, application_name="turnout")


def _require_durable(connection: _Connection) -> None:
    found = {name: connection.value(f"SHOW {name}") for name in _REQUIRED}
    if found != _REQUIRED:
        raise StorageError(f"this Postgres server is not durable: {found}")


def _serve(connection: _Connection, patience_seconds: float) -> None:
    """Take the lock of the one coordinator; wait a little for the session of a dead one."""
    deadline = time.monotonic() + patience_seconds
    while not connection.value(f"SELECT pg_try_advisory_lock({SERVING})"):
        if time.monotonic() > deadline:
            raise StorageError("another coordinator serves this database")
        time.sleep(0.05)


def _prepare(connection: _Connection, serving: bool, scripts: tuple[str, ...]) -> None:
    """Make sure that it is ours and of the newest schema; nothing foreign is touched."""
    connection.begin_write()
    try:
        version = _version(connection)
        if version == 0 and not serving:
            raise StorageError("there is no task in this database")
        missing = pending(version, scripts)
        if (
            missing
            and not serving
            and not connection.value(f"SELECT pg_try_advisory_xact_lock({SERVING})")
        ):
            raise StorageError("an older turnout serves this database: stop it first")
        if version == 0:
            connection.run("CREATE TABLE turnout_schema (version BIGINT NOT NULL)")
            connection.run("INSERT INTO turnout_schema VALUES (0)")
        for script in missing:
            connection.run(script)
        if missing:
            connection.run(f"UPDATE turnout_schema SET version = {len(scripts)}")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    if missing and version:
        connection.tidy(True)  # what a migration deleted leaves the files' bytes as well


def _version(connection: _Connection) -> int:
    """The schema's version; 0 where the schema is empty."""
    if connection.value("SELECT to_regclass('turnout_schema') IS NOT NULL"):
        versions = connection.rows("SELECT version FROM turnout_schema")
        if len(versions) != 1 or versions[0][0] < 1:
            raise StorageError("the database is damaged: its version is missing")
        return versions[0][0]
    if connection.value("SELECT current_schema()") is None:
        raise StorageError("Postgres: permission denied: the user may use no schema here")
    others = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(current_schema())"
    if connection.value(others):
        raise StorageError("this is not a turnout database: it has other tables")
    return 0
