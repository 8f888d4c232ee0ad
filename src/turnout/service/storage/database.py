"""An open database, SQLite or Postgres: one connection that writes, several that read.

`Storage` is the database. `migrations` returns the numbered scripts of an SQL dialect, `pending`
returns the scripts that a database of an earlier version still needs, and `raising_storage_errors`
turns the errors of a database library into `StorageError`.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import resources
from types import FunctionType
from typing import Any, TypeVar

from turnout.core.errors import StorageError
from turnout.service.contract.ledger import Head, require_chain
from turnout.service.storage.reads import Connection, Rights
from turnout.service.storage.writes import Transaction

BUSY_SECONDS = 10.0
"""Longest wait for another writer."""
_IDLE_READERS = 8

_T = TypeVar("_T")


def raising_storage_errors(
    kind: type[Exception], text_of: Callable[[Any], str]
) -> Callable[[type[_T]], type[_T]]:
    """Class decorator that turns a database library's errors into `StorageError`.

    Args:
        kind: errors of the library.
        text_of: function from such an error to a text that does not link a device to a step.
    """

    # Each public method is wrapped.
    def translated(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except kind as error:
                raise StorageError(text_of(error)) from None

        return wrapped

    def decorated(owner: type[_T]) -> type[_T]:
        for name, method in list(vars(owner).items()):
            if isinstance(method, FunctionType):
                setattr(owner, name, translated(method))
        return owner

    return decorated


class Storage:
    """Open database with one connection for writing and several for reading.

    `opening.open_storage` makes it.

    A database opened for serving is locked against every other coordinator. Otherwise only
    invitations and lines of the log can be written.

    Args:
        write: connection of `transaction`.
        reader: opens a connection for `snapshot`.
        rights: allowed operations of `transaction`.
        unlock: called once all connections are closed, also those of running snapshots.
    """

    def __init__(
        self,
        write: Connection,
        reader: Callable[[], Connection],
        rights: Rights,
        unlock: Callable[[], None] = lambda: None,
    ) -> None:
        # The connection that writes, and the function that opens a connection for reading.
        self._write = write
        self._reader = reader
        self._rights = rights
        self._unlock = unlock
        # One thread at a time has a transaction.
        self._writing = threading.Lock()
        self._writer: int | None = None
        # Idle connections for reading, and the number of open connections.
        self._pool = threading.Lock()
        self._idle: list[Connection] = []
        self._open = 1
        self._unusable = ""
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Context of a write transaction: durable after the block, undone if the block raises.

        One thread at a time has a transaction. After a failed commit the storage is unusable.

        Raises:
            StorageError: the commit failed, a statement failed in the block, another thread writes
                for too long, or this thread has a transaction already.
        """
        with self._exclusive():
            self._require_usable()
            self._write.begin_write()
            writes = Transaction(self._write, self._rights)
            try:
                yield writes
                if writes.broken:
                    raise StorageError("an SQL statement failed, so the transaction was undone")
            except BaseException:
                self._undo()
                raise
            finally:
                writes.end()
            self._commit()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Context in which this thread alone uses the connection for writing."""
        if self._writer == threading.get_ident():
            raise StorageError("this thread is in a transaction already")
        if not self._writing.acquire(timeout=BUSY_SECONDS):
            raise StorageError(
                f"another thread has been writing for more than {BUSY_SECONDS:g} s; try again later"
            )
        self._writer = threading.get_ident()
        try:
            yield
        finally:
            self._writer = None
            self._writing.release()

    def tidy(self, *, thorough: bool = False) -> bool:
        """Erase the bytes of deleted rows from the files; return whether all are erased.

        Running snapshots may prevent this for a while. Queries never find deleted rows.

        Args:
            thorough: rewrite whole files that have deleted rows, at the end of a task.

        Raises:
            StorageError: the disk is full or fails (no stored row is lost), the database is not
                open for serving, or this thread has a transaction.
        """
        if self._rights < Rights.SERVE:
            raise StorageError(
                "this connection does not serve the task, so it may not delete anything"
            )
        with self._exclusive():
            self._require_usable()
            return self._write.tidy(thorough)

    def _commit(self) -> None:
        """Commit the transaction; a failure makes the storage unusable."""
        self._unusable = (
            "a commit failed, so the stored state is unknown: close the database and open it again"
        )
        self._write.commit()
        self._unusable = ""

    def _undo(self) -> None:
        """Undo the transaction; a failure makes the storage unusable."""
        try:
            self._write.rollback()
        except BaseException:
            self._unusable = "a transaction could not be undone: open the database again"
            raise

    @contextmanager
    def snapshot(self, *, whole: bool = False) -> Iterator[Transaction]:
        """Context with a consistent read-only view of the committed, published data.

        Every thread may open a snapshot, also during writes.

        Args:
            whole: view of all committed data, for the coordinator alone; data that are not
                published yet must not be shown.

        Raises:
            StorageError: the database is closed, or ``whole`` is True and it is not open for
                serving.
        """
        if whole and self._rights < Rights.SERVE:
            raise StorageError("only the coordinator may read data that are not published yet")
        connection = self._take_reader()
        reads = Transaction(connection, Rights.READ, whole=whole)
        try:
            connection.begin_read()
            yield reads
        finally:
            reads.end()
            self._return_reader(connection)

    def _take_reader(self) -> Connection:
        """Idle connection for reading, or a new connection."""
        with self._pool:
            self._require_open()
            if self._idle:
                return self._idle.pop()
            self._open += 1
        try:
            return self._reader()
        except BaseException:
            self._connection_closed()
            raise

    def _return_reader(self, connection: Connection) -> None:
        """Keep a connection for the next snapshot, or close it."""
        try:
            connection.rollback()
        except StorageError:
            self._close_connection(connection)
            return
        with self._pool:
            if len(self._idle) < _IDLE_READERS and not self._closed:
                self._idle.append(connection)
                return
        self._close_connection(connection)

    def _close_connection(self, connection: Connection) -> None:
        """Close a connection and ignore errors of its library."""
        with suppress(StorageError):
            connection.close()
        self._connection_closed()

    def _connection_closed(self) -> None:
        """Count a closed connection; after the last one, release the coordinator's lock."""
        with self._pool:
            self._open -= 1
            last = self._open == 0
        if last:
            self._unlock()

    def close(self) -> None:
        """Close all connections; a running snapshot closes its connection when it ends.

        Raises:
            StorageError: this thread has a transaction.
        """
        if self._writer == threading.get_ident():
            raise StorageError("a transaction cannot close its own database: end it first")
        with self._pool:
            if self._closed:
                return
            self._closed = True
            idle, self._idle = self._idle, []
        with self._writing:
            for connection in (*idle, self._write):
                self._close_connection(connection)

    def _require_usable(self) -> None:
        """Refuse to write after a failed commit."""
        self._require_open()
        if self._unusable:
            raise StorageError(self._unusable)

    def _require_open(self) -> None:
        """Refuse every use of a closed database."""
        if self._closed:
            raise StorageError("the database is closed")

    def require_sound(self) -> None:
        """Check the ledger and the last model for damage, before requests are accepted.

        Raises:
            StorageError: the records are no chain that begins with the charter, or the last model
                is not the last model of the ledger.
        """
        with self.snapshot(whole=True) as reads:
            charter = reads.charter()
            records = reads.records()
            if charter is None:
                if next(records, None) is not None:
                    raise StorageError("the ledger is damaged: its charter is missing")
                return
            task = hashlib.sha256(charter).hexdigest()
            head = Head(0, bytes.fromhex(task))
            for record in records:
                head = require_chain(task, head, record)
            reads.last_release()


def migrations(dialect: str) -> tuple[str, ...]:
    """Migration scripts of an SQL dialect, in order.

    The script at index n migrates a schema from version n to version n + 1.

    Raises:
        StorageError: a script is missing from the installation.
    """
    folder = resources.files("turnout.service.storage") / "migrations"
    ending = f".{dialect}.sql"
    named = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(ending)}
    numbers = [int(name.partition("_")[0]) for name in sorted(named)]
    if numbers != list(range(1, len(named) + 1)) or not named:
        raise StorageError("this installation lacks some of its migrations; install it again")
    return tuple(named[name].read_text("utf-8") for name in sorted(named))


def pending(version: int, scripts: tuple[str, ...]) -> tuple[str, ...]:
    """Migration scripts that a database with schema ``version`` still needs.

    Raises:
        StorageError: the version is newer than the scripts.
    """
    if not 0 <= version <= len(scripts):
        raise StorageError(
            f"the database has schema {version} of a newer turnout; this version knows schemas up "
            f"to {len(scripts)}"
        )
    return scripts[version:]
