"""Postgres by psycopg 3, behind the same interface as SQLite.

`open_postgres` opens a database. Each write transaction has an advisory lock, so there is one
writer at a time, as in SQLite. The serving coordinator has a second advisory lock, which belongs to
the session of its writing connection: a coordinator that lost this session cannot write any more.
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

WRITING, SERVING = 0x7475726E01, 0x7475726E02
"""Keys of the advisory locks: "turn" and a number."""
CONNECT_SECONDS = 10
PATIENCE_SECONDS = 5.0
"""Longest wait for the server to end the session of a coordinator that was killed."""

_REQUIRED = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

_TIDY_MILLISECONDS = 200
_TIDY = ("VACUUM check_ins, step_keys, asked, turns",)
_TIDY_THOROUGHLY = (
    f"BEGIN; SELECT pg_advisory_xact_lock({WRITING}); "
    "TRUNCATE check_ins, step_keys, asked, turns, bodies; COMMIT",
)


@lru_cache(maxsize=256)
def _postgres_text(sql: str) -> bytes:
    """SQL statement with psycopg's placeholders in place of question marks."""
    return sql.replace("?", "%s").encode()


def _error_text(error: psycopg.Error) -> str:
    """Message of an error in one line.

    The detail of a server error is left out, since the detail can name a client and a step.
    Connection errors of libpq contain host, port, user and database, but no password.
    """
    text = error.diag.message_primary
    if text is None and isinstance(error, psycopg.OperationalError):
        text = " ".join(str(error).partition("\n")[0].split())
    return f"Postgres: {text or type(error).__name__}"


@raising_storage_errors(psycopg.Error, _error_text)
class _Connection:
    """Postgres connection by psycopg, with the methods of `reads.Connection`.

    The SQL statements BEGIN and COMMIT or ROLLBACK delimit the transactions.
    """

    def __init__(self, url: str) -> None:
        self.raw = psycopg.connect(url, autocommit=True)
        self._cursor = self.raw.cursor(binary=True)
        self.run(f"SET lock_timeout = '{int(BUSY_SECONDS * 1000)}ms'; SET synchronous_commit = on")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self._cursor.execute(_postgres_text(sql), parameters).fetchall()

    def changed(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; return the number of changed rows."""
        return self._cursor.execute(_postgres_text(sql), parameters).rowcount

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        self._cursor.executemany(_postgres_text(sql), rows)

    def discarded(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Delete rows, whose bytes may remain in free pages."""
        return self.changed(sql, parameters)

    def tidy(self, thorough: bool) -> bool:
        """Free the pages of deleted rows; if ``thorough``, empty the tables of clients' data."""
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
        """Begin a write transaction."""
        try:
            self.run(f"BEGIN; SELECT pg_advisory_xact_lock({WRITING})")
        except StorageError:
            self.rollback()
            raise

    def begin_read(self) -> None:
        """Begin a read-only transaction; its first read fixes the data that it sees."""
        self.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT id FROM task")

    def commit(self) -> None:
        """Commit the transaction; after an error Postgres answers COMMIT with ROLLBACK."""
        if self.raw.execute("COMMIT").statusmessage != "COMMIT":
            raise StorageError("Postgres undid the transaction after an error")

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        if self.raw.info.transaction_status != TransactionStatus.IDLE:
            self.raw.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def run(self, script: str) -> None:
        """Run SQL statements without parameters."""
        self.raw.execute(script.encode())

    def value(self, sql: str, *parameters: Any) -> Any:
        """First column of a query's first row."""
        return self.rows(sql, parameters)[0][0]


def open_postgres(url: str, *, serving: bool, scripts: tuple[str, ...] = ()) -> Storage:
    """Open a Postgres database; see `opening.open_storage`.

    Args:
        url: address in libpq's form.
        serving: open it as the coordinator that serves it.
        scripts: migrations; by default those of this version.

    Raises:
        StorageError: for the same reasons as in `opening.open_storage`.
    """
    # The coordinator's lock is acquired before anything is read; an error closes the connection.
    url = _complete_address(url)
    with ExitStack() as undo:
        connection = _Connection(url)
        undo.callback(connection.close)
        if serving:
            _require_durable(connection)
            _lock_for_serving(connection, PATIENCE_SECONDS)
        _prepare(connection, serving, scripts or migrations("postgres"))
        rights = Rights.SERVE if serving else Rights.INVITE
        database = Storage(connection, lambda: _Connection(url), rights)
        # From here on closing the storage also closes the connection.
        undo.pop_all()
        undo.callback(database.close)
        if serving:
            database.require_sound()
        undo.pop_all()
    return database


def holds_nothing(url: str) -> bool:
    """Whether the database has no tables; see `opening.holds_nothing`."""
    connection = _Connection(_complete_address(url))
    try:
        return _version(connection) == 0
    finally:
        connection.close()


def _complete_address(url: str) -> str:
    """Postgres address with turnout's default options.

    An address whose password would appear in libpq's errors is refused.
    """
    place_of(url)
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise StorageError(
            "libpq does not accept the address of the database: in a password write each special "
            "character as % and two hexadecimal digits, and use only options of libpq"
        ) from None
    seconds = given.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT", CONNECT_SECONDS)
    return make_conninfo(url, connect_timeout=seconds, application_name="turnout")


def _require_durable(connection: _Connection) -> None:
    """Refuse a Postgres server whose settings may lose committed data."""
    found = {name: connection.value(f"SHOW {name}") for name in _REQUIRED}
    if found != _REQUIRED:
        raise StorageError(
            f"this Postgres server is not durable: its settings are {found}, expected {_REQUIRED}"
        )


def _lock_for_serving(connection: _Connection, patience_seconds: float) -> None:
    """Acquire the coordinator's lock; wait a little if a killed coordinator still has it."""
    deadline = time.monotonic() + patience_seconds
    while not connection.value(f"SELECT pg_try_advisory_lock({SERVING})"):
        if time.monotonic() > deadline:
            raise StorageError("another coordinator serves this database")
        time.sleep(0.05)


def _prepare(connection: _Connection, serving: bool, scripts: tuple[str, ...]) -> None:
    """Migrate the database to the newest schema; refuse a database of another application."""
    connection.begin_write()
    try:
        # The version, and whether this process may migrate.
        version = _version(connection)
        if version == 0 and not serving:
            raise StorageError("there is no task in this database; serve one first")
        missing = pending(version, scripts)
        if (
            missing
            and not serving
            and not connection.value(f"SELECT pg_try_advisory_xact_lock({SERVING})")
        ):
            raise StorageError("an older turnout serves this database: stop it first")
        # All missing migrations in one transaction.
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
        connection.tidy(True)  # removes the bytes of rows that a migration deleted


def _version(connection: _Connection) -> int:
    """Schema version of the database; 0 for a database without tables.

    Raises:
        StorageError: the database has other tables or no version, or the user may not use the
            database.
    """
    if connection.value("SELECT to_regclass('turnout_schema') IS NOT NULL"):
        versions = connection.rows("SELECT version FROM turnout_schema")
        if len(versions) != 1 or versions[0][0] < 1:
            raise StorageError("the database is damaged: its version is missing")
        return versions[0][0]
    if connection.value("SELECT current_schema()") is None:
        raise StorageError("Postgres: permission denied: the user may not use any schema here")
    others = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(current_schema())"
    if connection.value(others):
        raise StorageError("this is not a turnout database: it has other tables")
    return 0
