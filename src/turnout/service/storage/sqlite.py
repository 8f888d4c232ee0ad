"""SQLite by apsw, which brings an SQLite of its own: WAL, ``synchronous=FULL``.

A commit is on the disk when it returns. Whoever serves holds an exclusive ``flock`` on a file
beside the database, which the operating system drops when the process ends in whatever way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw

from turnout.core.errors import StorageError
from turnout.service.storage.database import BUSY_SECONDS, Database, raising_storage_errors
from turnout.service.storage.reads import Rights
from turnout.service.storage.schema import migrations, pending

APPLICATION = 0x7475726E  # "turn", in the file's header
LOCK_SUFFIX = "-serving"

_PAGE_SIZE = 16384
_SETTINGS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA fullfsync=ON",
    "PRAGMA checkpoint_fullfsync=ON",
    "PRAGMA foreign_keys=ON",
    "PRAGMA recursive_triggers=ON",  # REPLACE fires the triggers that refuse DELETE
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA cache_size=-65536",
)
_REQUIRED = {"synchronous": 2, "journal_mode": "wal", "foreign_keys": 1, "recursive_triggers": 1}

_raising_storage_errors = raising_storage_errors(
    apsw.Error, lambda error: f"SQLite: {type(error).__name__}: {error}"
)


class SqliteConnection:
    """`database.Connection` by apsw."""

    @_raising_storage_errors
    def __init__(self, path: str, vfs: str | None = None) -> None:
        self.raw = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        self.raw.set_busy_timeout(int(BUSY_SECONDS * 1000))

    @_raising_storage_errors
    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `reads.Session`."""
        return self.raw.execute(sql, parameters).fetchall()

    @_raising_storage_errors
    def changed(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """See `reads.Session`."""
        self.raw.execute(sql, parameters)
        return self.raw.changes()

    @_raising_storage_errors
    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """See `reads.Session`."""
        self.raw.executemany(sql, rows)

    @_raising_storage_errors
    def begin_write(self) -> None:
        """See `database.Connection`."""
        self.raw.execute("BEGIN IMMEDIATE")

    @_raising_storage_errors
    def begin_read(self) -> None:
        """See `database.Connection`. The first read is what fixes the view."""
        self.raw.execute("BEGIN")
        self.raw.execute("SELECT id FROM task").fetchall()

    @_raising_storage_errors
    def commit(self) -> None:
        """See `database.Connection`."""
        if not self.raw.in_transaction:
            raise StorageError("SQLite undid the transaction by itself")
        self.raw.execute("COMMIT")

    @_raising_storage_errors
    def rollback(self) -> None:
        """See `database.Connection`."""
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    @_raising_storage_errors
    def close(self) -> None:
        """See `database.Connection`."""
        self.raw.close()

    def value(self, sql: str) -> Any:
        """The first column of the first row."""
        return self.rows(sql)[0][0]

    def set_up(self) -> None:
        """Settings of every connection, read back."""
        for setting in _SETTINGS:
            self.rows(setting)
        found = {name: self.value(f"PRAGMA {name}") for name in _REQUIRED}
        if found != _REQUIRED:
            raise StorageError(f"SQLite cannot be durable here: {found}")


def opened(
    path: str | Path, *, serving: bool, vfs: str | None = None, scripts: tuple[str, ...] = ()
) -> Database:
    """Open a database file; see `interface.Storage`.

    Args:
        path: the file. Who serves creates it, readable for this user alone.
        serving: be the one coordinator that serves this database; else only invitations and the
            operator's log can be written.
        vfs: SQLite's name of the layer between it and the disk.
        scripts: other migrations than this version's.

    Raises:
        StorageError: served by somebody else, missing, damaged, newer, or no turnout database.
    """
    path = Path(path).resolve()
    if not path.parent.is_dir() or not (serving or path.exists()):
        raise StorageError(f"there is no database {path}")
    with ExitStack() as undo:
        lock = _locked(path) if serving else None
        if lock is not None:
            undo.callback(os.close, lock)
            _created(path)
        connection = SqliteConnection(str(path), vfs)
        undo.callback(connection.close)
        _prepare(connection, path, serving, scripts or migrations("sqlite"))
        database = _database(connection, path, vfs, lock)
        undo.pop_all()
        undo.callback(database.close)
        if serving:
            _require_whole(connection)
            database.require_sound()
        undo.pop_all()
    return database


def _database(
    connection: SqliteConnection, path: Path, vfs: str | None, lock: int | None
) -> Database:
    def reader() -> SqliteConnection:
        other = SqliteConnection(str(path), vfs)
        other.set_up()
        other.rows("PRAGMA query_only=ON")
        return other

    if lock is None:
        return Database(connection, reader, Rights.INVITE)
    return Database(connection, reader, Rights.SERVE, lambda: os.close(lock))


def _require_whole(connection: SqliteConnection) -> None:
    """Look through the pages of the small tables that everything rests on."""
    for table in ("task", "releases"):
        problems = connection.rows(f"PRAGMA integrity_check({table})")
        if problems != [("ok",)]:
            raise StorageError(f"the database is damaged: {problems[0][0]}")


def _prepare(
    connection: SqliteConnection, path: Path, serving: bool, scripts: tuple[str, ...]
) -> None:
    """Make sure that it is ours, durable, and of the newest schema; nothing foreign is touched."""
    application, version = (
        connection.value(f"PRAGMA {name}") for name in ("application_id", "user_version")
    )
    empty = connection.value("SELECT count(*) FROM sqlite_schema") == 0
    new = application == 0 and version == 0 and empty
    if not new and application != APPLICATION:
        raise StorageError(f"{path} is not a turnout database")
    missing = pending(version, scripts)
    if new and not serving:
        raise StorageError(f"there is no task in {path}")
    if new:
        connection.rows(f"PRAGMA page_size={_PAGE_SIZE}")
    connection.rows("PRAGMA journal_mode=WAL")
    connection.set_up()
    if missing:
        lock = None if serving else _locked(path)
        try:
            _migrate(connection, scripts)
        finally:
            if lock is not None:
                os.close(lock)


def _migrate(connection: SqliteConnection, scripts: tuple[str, ...]) -> None:
    """All missing migrations in one transaction; a cut leaves the old schema."""
    connection.begin_write()
    try:
        for script in pending(connection.value("PRAGMA user_version"), scripts):
            connection.rows(script)
        connection.rows(f"PRAGMA user_version={len(scripts)}")
        connection.rows(f"PRAGMA application_id={APPLICATION}")
        if connection.rows("PRAGMA foreign_key_check"):
            raise StorageError("the migrated database has dangling references")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _created(path: Path) -> None:
    """An empty file that is ours alone, where there is none: it will hold the signing key."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}") from None


def _locked(path: Path) -> int:
    """The descriptor of the lock file beside the database, held by this process alone."""
    import fcntl

    beside = path.with_name(path.name + LOCK_SUFFIX)
    try:
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot open {beside}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino != os.stat(beside).st_ino:
            raise BlockingIOError
    except OSError:
        os.close(lock)
        raise StorageError(f"another coordinator serves {path}") from None
    return lock
