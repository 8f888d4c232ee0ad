"""An open database of either kind: one connection that writes, several that read.

`Storage` is the database. `migrations` lists the numbered scripts of a dialect, `pending` those
that a database of some version still needs.
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
_IDLE_READERS = 8

_T = TypeVar("_T")


def raising_storage_errors(
    kind: type[Exception], said: Callable[[Any], str]
) -> Callable[[type[_T]], type[_T]]:
    """A class decorator: of a library's errors, its methods raise a `StorageError`.

    ``said`` is what one of them says, without a device and its slot.
    """

    def translated(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except kind as error:
                raise StorageError(said(error)) from None

        return wrapped

    def decorated(owner: type[_T]) -> type[_T]:
        for name, method in list(vars(owner).items()):
            if isinstance(method, FunctionType):
                setattr(owner, name, translated(method))
        return owner

    return decorated


class Storage:
    """An open database, over connections.

    Opening migrates it to the newest schema, checks its integrity where that is cheap, and
    raises `StorageError` for anything that is not a turnout database, or of a newer version.
    Opened for serving it is locked against every other coordinator; opened otherwise it takes
    invitations and events, and refuses all other writes.

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
        """The one write transaction: committed durably at the end of the block, else undone.

        Only one thread may be in one at a time; a commit that fails raises `StorageError` and
        leaves the connection unusable.
        """
        with self._alone():
            self._require_usable()
            self._write.begin_write()
            writes = Transaction(self._write, self._rights)
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
        """Remove deleted rows from the files' bytes as well; whether that is done.

        Not while the calling thread is in a transaction. Readers may stand in the way; then it
        is worth another try later. What is deleted is out of reach of any query at once.

        ``thorough`` rewrites what holds deleted rows as a whole, for the end of a task.

        Raises:
            StorageError: the disk is full or fails; nothing stored is lost by that.
        """
        if self._rights < Rights.SERVE:
            raise StorageError("this connection does not serve the task: it deletes nothing")
        with self._alone():
            self._require_usable()
            return self._write.tidy(thorough)

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
    def snapshot(self, *, whole: bool = False) -> Iterator[Transaction]:
        """A consistent read-only view of what is published, from any thread, beside the writer.

        ``whole``: of all that is committed, for the one coordinator, which must show none of it.
        """
        if whole and self._rights < Rights.SERVE:
            raise StorageError("what is not published is read by the coordinator alone")
        connection = self._taken()
        reads = Transaction(connection, Rights.READ, whole=whole)
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
        """Close all connections; a snapshot that is being read ends by itself."""
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
    """The scripts that make a schema of version 1, 2, … in turn."""
    folder = resources.files("turnout.service.storage") / "migrations"
    ending = f".{dialect}.sql"
    named = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(ending)}
    numbers = [int(name.partition("_")[0]) for name in sorted(named)]
    if numbers != list(range(1, len(named) + 1)) or not named:
        raise StorageError("this installation lacks some of its migrations")
    return tuple(named[name].read_text("utf-8") for name in sorted(named))


def pending(version: int, scripts: tuple[str, ...]) -> tuple[str, ...]:
    """The scripts that a database of a version still needs."""
    if not 0 <= version <= len(scripts):
        raise StorageError(
            f"the database has schema {version} of a newer turnout, this one knows {len(scripts)}"
        )
    return scripts[version:]
