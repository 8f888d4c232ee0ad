"""SQLite by apsw, a package that contains SQLite: write-ahead log, ``synchronous=FULL``.

`open_sqlite` opens a file. The data of a commit are on the disk when the commit returns. A serving
coordinator has an exclusive ``flock`` on the database file (`FileLock`), which holds for every path
to the file. The operating system releases the lock when the process ends, however the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw

from turnout.core.errors import StorageError
from turnout.core.files import lock_descriptor
from turnout.service.storage.database import (
    BUSY_SECONDS,
    Storage,
    migrations,
    pending,
    raising_storage_errors,
)
from turnout.service.storage.reads import Rights

_held: set[tuple[int, int]] = set()
"""Files that this process has locked, by device and inode."""


class FileLock:
    """Exclusive lock (``flock``) on the inode of a database file.

    Links to the file and bind mounts share the lock.

    The lock must be acquired before the first connection of SQLite and released after the last
    connection: closing any descriptor of a file drops all POSIX locks of the process on this file,
    also those of SQLite. For the same reason a file that this process has locked is refused before
    it is opened.

    Args:
        path: path of the database without symbolic links; a missing file is created, for this user
            alone.
        existing: do not create the file.

    Raises:
        StorageError: another coordinator has the lock, or the file has several hard links or
            cannot be opened.
    """

    def __init__(self, path: Path, *, existing: bool = False) -> None:
        self._path = path
        self._descriptors: list[int] = []
        self._inode: tuple[int, int] | None = None
        create = 0 if existing else os.O_CREAT
        try:
            # A file locked by this process must not be opened and closed again.
            self._require_free()
            self._take(path, os.O_RDWR | create)
            # The inode identifies the file for later locks of this process.
            found = os.fstat(self._descriptors[0])
            self._inode = found.st_dev, found.st_ino
            _held.add(self._inode)
            # The log is beside the name by which the file is opened.
            if found.st_nlink > 1:
                raise StorageError(
                    f"{path} has {found.st_nlink} hard links: SQLite has a log for each name, and "
                    "a name without its log is an old copy; remove all names but one"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        if self._inode is not None:
            _held.discard(self._inode)
            self._inode = None
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _require_free(self) -> None:
        """Refuse a file on which this process already has a lock."""
        try:
            found = os.stat(self._path)
        except OSError:
            return  # opening it raises the error
        if (found.st_dev, found.st_ino) in _held:
            raise StorageError(f"another coordinator serves {self._path}")

    def _take(self, path: Path, flags: int) -> None:
        """Open and lock the file; refuse a file that was replaced in the meantime."""
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}") from None
        self._descriptors.append(descriptor)
        try:
            lock_descriptor(descriptor, wait=False)
            if os.fstat(descriptor).st_ino != os.stat(path).st_ino:
                raise BlockingIOError
        except OSError:
            raise StorageError(f"another coordinator serves {self._path}") from None


APPLICATION = 0x7475726E  # "turn", in the file's header

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
    "PRAGMA secure_delete=ON",  # deleted rows and freed pages are overwritten with zeros
    "PRAGMA temp_store=MEMORY",  # a statement's own journal holds pages as they were before
)
_REQUIRED = {
    "synchronous": 2,
    "journal_mode": "wal",
    "foreign_keys": 1,
    "recursive_triggers": 1,
    "secure_delete": 1,
    "temp_store": 2,
}


@raising_storage_errors(apsw.Error, lambda error: f"SQLite: {type(error).__name__}: {error}")
class _Connection:
    """SQLite connection by apsw, with the methods of `reads.Connection`."""

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self.raw = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        self.raw.set_busy_timeout(int(BUSY_SECONDS * 1000))

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.raw.execute(sql, parameters).fetchall()

    def changed(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; return the number of changed rows."""
        self.raw.execute(sql, parameters)
        return self.raw.changes()

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        self.raw.executemany(sql, rows)

    def discarded(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Delete rows without overwriting their bytes, which are encrypted with a deleted key."""
        self.raw.execute("PRAGMA secure_delete=OFF").fetchall()
        try:
            self.raw.execute(sql, parameters)
            return self.raw.changes()
        finally:
            self.raw.execute("PRAGMA secure_delete=ON").fetchall()

    def tidy(self, thorough: bool) -> bool:
        """Truncate the write-ahead log, which contains deleted rows.

        If ``thorough``, the database is rewritten first.
        """
        if thorough and self.value("PRAGMA freelist_count"):
            self.raw.execute(
                "PRAGMA temp_store=FILE"
            )  # the whole database does not fit into memory
            try:
                self.raw.execute("VACUUM")
            finally:
                self.raw.execute("PRAGMA temp_store=MEMORY")
        self.raw.set_busy_timeout(0)
        try:
            blocked, _, _ = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]
        finally:
            self.raw.set_busy_timeout(int(BUSY_SECONDS * 1000))
        return not blocked

    def begin_write(self) -> None:
        """Begin a write transaction."""
        self.raw.execute("BEGIN IMMEDIATE")

    def begin_read(self) -> None:
        """Begin a read-only transaction; its first read fixes the data that it sees."""
        self.raw.execute("BEGIN")
        self.raw.execute("SELECT id FROM task").fetchall()

    def commit(self) -> None:
        """Commit the transaction durably."""
        if not self.raw.in_transaction:
            raise StorageError("SQLite undid the transaction after an error")
        self.raw.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def value(self, sql: str) -> Any:
        """First column of a query's first row."""
        return self.rows(sql)[0][0]

    def set_up(self) -> None:
        """Apply the settings of every connection and check that they took effect."""
        for setting in _SETTINGS:
            self.rows(setting)
        found = {name: self.value(f"PRAGMA {name}") for name in _REQUIRED}
        if found != _REQUIRED:
            raise StorageError(f"SQLite settings = {found}: expected {_REQUIRED}, to be durable")


def open_sqlite(
    path: str | Path, *, serving: bool, vfs: str | None = None, scripts: tuple[str, ...] = ()
) -> Storage:
    """Open an SQLite database; see `opening.open_storage`.

    Args:
        path: path of the file.
        serving: open it as the coordinator that serves it.
        vfs: SQLite's name of the layer through which SQLite uses the disk; None for the default
            layer.
        scripts: migrations; by default those of this version.

    Raises:
        StorageError: for the same reasons as in `opening.open_storage`.
    """
    # The lock comes first, and is released after all connections are closed: see FileLock.
    path = Path(path).resolve()
    if not path.parent.is_dir() or not (serving or path.exists()):
        raise StorageError(f"there is no database {path}")
    known = scripts or migrations("sqlite")
    with ExitStack() as undo:
        lock = FileLock(path) if serving else None
        if lock is not None:
            undo.callback(lock.close)
        connection = _open_connection(path, vfs, known, lock)
        undo.callback(connection.close)
        database = _storage_over(connection, path, vfs, lock)
        # From here on closing the storage also closes the connection and the lock.
        undo.pop_all()
        undo.callback(database.close)
        # A task is served only from sound data.
        if serving:
            _require_undamaged(connection)
            database.require_sound()
        undo.pop_all()
    return database


def holds_nothing(path: str | Path) -> bool:
    """Whether the database file is missing or empty; see `opening.holds_nothing`.

    Raises:
        StorageError: the folder of the file does not exist.
    """
    path = Path(path).resolve()
    if not path.parent.is_dir():
        raise StorageError(f"there is no database {path}")
    return not path.exists() or path.stat().st_size == 0


def _open_connection(
    path: Path, vfs: str | None, scripts: tuple[str, ...], lock: FileLock | None
) -> _Connection:
    """SQLite connection to a database that has been migrated to the newest schema."""
    # A process with the lock migrates at once.
    connection = _Connection(str(path), vfs)
    try:
        missing = _missing_migrations(connection, path, scripts, lock is not None)
        if not missing:
            return connection
        if lock is not None:
            _migrate(connection, scripts)
            return connection
        # Without the lock: take it for the migration, which another process may have done.
        connection.close()
        with closing(FileLock(path, existing=True)):
            connection = _Connection(str(path), vfs)
            if _missing_migrations(connection, path, scripts, False):
                _migrate(connection, scripts)
            connection.close()
        # FileLock closed a descriptor, so a new connection is needed.
        connection = _Connection(str(path), vfs)
        _missing_migrations(connection, path, scripts, False)
        return connection
    except BaseException:
        connection.close()
        raise


def _storage_over(
    connection: _Connection, path: Path, vfs: str | None, lock: FileLock | None
) -> Storage:
    """Storage that writes through the given connection."""

    def reader() -> _Connection:
        other = _Connection(str(path), vfs)
        other.set_up()
        other.rows("PRAGMA query_only=ON")
        return other

    if lock is None:
        return Storage(connection, reader, Rights.INVITE)
    return Storage(connection, reader, Rights.SERVE, lock.close)


def _require_undamaged(connection: _Connection) -> None:
    """Check the pages of the two small tables on which all other tables depend."""
    for table in ("task", "releases"):
        problems = connection.rows(f"PRAGMA integrity_check({table})")
        if problems != [("ok",)]:
            raise StorageError(f"the database is damaged: {problems[0][0]}")


def _missing_migrations(
    connection: _Connection, path: Path, scripts: tuple[str, ...], serving: bool
) -> tuple[str, ...]:
    """Migration scripts that the database needs; first the connection gets its settings.

    Every later commit of the connection is durable.

    Raises:
        StorageError: the database belongs to another program and stays unchanged, or the database
            is empty and not opened for serving.
    """
    # Another program's database and a missing task are refused before anything is written.
    application, version = (
        connection.value(f"PRAGMA {name}") for name in ("application_id", "user_version")
    )
    empty = connection.value("SELECT count(*) FROM sqlite_schema") == 0
    new = application == 0 and version == 0 and empty
    if not new and application != APPLICATION:
        raise StorageError(f"{path} is not a turnout database; name another file")
    missing = pending(version, scripts)
    if new and not serving:
        raise StorageError(f"there is no task in {path}")
    # The settings; the page size must be set before the first table exists.
    if new:
        connection.rows(f"PRAGMA page_size={_PAGE_SIZE}")
    connection.rows("PRAGMA journal_mode=WAL")
    connection.set_up()
    return missing


def _migrate(connection: _Connection, scripts: tuple[str, ...]) -> None:
    """Run all missing migrations in one transaction; an interruption keeps the old schema."""
    # All scripts, the new version and the name of the application are one transaction.
    connection.begin_write()
    try:
        version = connection.value("PRAGMA user_version")
        for script in pending(version, scripts):
            connection.rows(script)
        connection.rows(f"PRAGMA user_version={len(scripts)}")
        connection.rows(f"PRAGMA application_id={APPLICATION}")
        if connection.rows("PRAGMA foreign_key_check"):
            raise StorageError("the migrated database has dangling references")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    # The file may still have the bytes of rows that a migration deleted.
    if version:
        connection.tidy(True)
