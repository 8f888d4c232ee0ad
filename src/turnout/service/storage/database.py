"""An open database of either kind: one connection that writes, several that read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from turnout.core.errors import StorageError
from turnout.service.ledger import Head, require_chain
from turnout.service.storage.interface import Transaction
from turnout.service.storage.reads import Rights, Session
from turnout.service.storage.writes import Writes

BUSY_SECONDS = 10.0
_IDLE_READERS = 8

_P = ParamSpec("_P")
_T = TypeVar("_T")


def raising_storage_errors(
    kind: type[Exception], said: Callable[[Any], str]
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A decorator that turns a library's errors into `StorageError`.

    Args:
        kind: the library's errors.
        said: what one of them says, without a device and its slot.
    """

    def decorated(method: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(method)
        def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                return method(*args, **kwargs)
            except kind as error:
                raise StorageError(said(error)) from None

        return wrapped

    return decorated


class Connection(Session, Protocol):
    """A connection to SQLite or Postgres. All errors are `StorageError`."""

    def begin_write(self) -> None:
        """Begin a transaction that no other writer's overlaps; wait `BUSY_SECONDS` for it."""
        ...

    def begin_read(self) -> None:
        """Begin a read-only transaction that sees what is committed by now, and nothing later."""
        ...

    def commit(self) -> None:
        """Commit durably, or raise."""
        ...

    def rollback(self) -> None:
        """Undo the transaction, if there still is one."""
        ...

    def tidy(self, thorough: bool) -> bool:
        """As `interface.Storage.tidy`; outside of transactions."""
        ...

    def close(self) -> None:
        """Close it; an open transaction is undone."""
        ...


class Database:
    """`interface.Storage` over connections.

    Args:
        write: the connection for `transaction`.
        reader: opens another one for `snapshot`.
        rights: what `transaction` may do.
        unlock: called last when all is closed, snapshots that are being read included.
    """

    def __init__(
        self,
        write: Connection,
        reader: Callable[[], Connection],
        rights: Rights,
        unlock: Callable[[], None] = lambda: None,
    ) -> None:
        self._write = write
        self._reader = reader
        self._rights = rights
        self._unlock = unlock
        self._writing = threading.Lock()
        self._writer: int | None = None
        self._pool = threading.Lock()
        self._idle: list[Connection] = []
        self._open = 1
        self._unusable = ""
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """See `interface.Storage`."""
        with self._alone():
            yield from self._transaction()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else uses the connection that writes."""
        if self._writer == threading.get_ident():
            raise StorageError("this thread is in a transaction already")
        if not self._writing.acquire(timeout=BUSY_SECONDS):
            raise StorageError("another thread has been writing for too long")
        self._writer = threading.get_ident()
        try:
            yield
        finally:
            self._writer = None
            self._writing.release()

    def tidy(self, *, thorough: bool = False) -> bool:
        """See `interface.Storage`."""
        if self._rights < Rights.SERVE:
            raise StorageError("this connection does not serve the task: it deletes nothing")
        with self._alone():
            self._require_usable()
            return self._write.tidy(thorough)

    def _transaction(self) -> Iterator[Transaction]:
        self._require_usable()
        self._write.begin_write()
        writes = Writes(self._write, self._rights)
        try:
            yield writes
            if writes.broken:
                raise StorageError("a statement failed in the transaction: it was undone")
        except BaseException:
            self._undo()
            raise
        finally:
            writes.end()
        self._commit()

    def _commit(self) -> None:
        self._unusable = "a commit failed: nobody knows what is stored until the database is opened"
        self._write.commit()
        self._unusable = ""

    def _undo(self) -> None:
        try:
            self._write.rollback()
        except BaseException:
            self._unusable = "a transaction could not be undone"
            raise

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """See `interface.Storage`."""
        connection = self._taken()
        reads = Writes(connection, Rights.READ)
        try:
            connection.begin_read()
            yield reads
        finally:
            reads.end()
            self._put_back(connection)

    def _taken(self) -> Connection:
        with self._pool:
            self._require_open()
            if self._idle:
                return self._idle.pop()
            self._open += 1
        try:
            return self._reader()
        except BaseException:
            self._ended()
            raise

    def _put_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except StorageError:
            self._end(connection)
            return
        with self._pool:
            if len(self._idle) < _IDLE_READERS and not self._closed:
                self._idle.append(connection)
                return
        self._end(connection)

    def _end(self, connection: Connection) -> None:
        with suppress(StorageError):
            connection.close()
        self._ended()

    def _ended(self) -> None:
        """One connection less; after the last one the lock goes."""
        with self._pool:
            self._open -= 1
            last = self._open == 0
        if last:
            self._unlock()

    def close(self) -> None:
        """See `interface.Storage`. A snapshot that is being read ends by itself."""
        if self._writer == threading.get_ident():
            raise StorageError("a transaction cannot close its own database")
        with self._pool:
            if self._closed:
                return
            self._closed = True
            idle, self._idle = self._idle, []
        with self._writing:
            for connection in (*idle, self._write):
                self._end(connection)

    def _require_usable(self) -> None:
        self._require_open()
        if self._unusable:
            raise StorageError(self._unusable)

    def _require_open(self) -> None:
        if self._closed:
            raise StorageError("the database is closed")

    def require_sound(self) -> None:
        """Look at what must not be damaged, before anything is served from it.

        Raises:
            StorageError: the ledger is no chain from the charter on, or the last model is not the
                one that the ledger names.
        """
        with self.snapshot() as reads:
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
