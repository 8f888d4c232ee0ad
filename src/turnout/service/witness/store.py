"""The store of a witness: its key, and every head that it signed for. Nothing is ever changed."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import apsw

from turnout.core.errors import StorageError
from turnout.core.files import lock_file
from turnout.service.ledger import Head
from turnout.service.signatures import SigningKey
from turnout.service.storage.database import raising_storage_errors
from turnout.service.wire import SignedHead
from turnout.service.witness.messages import Shown, receipt_bytes

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
    """The coordinator has a receipt of this witness, and the witness does not know the task."""


class FullError(StorageError):
    """There are as many tasks as a witness takes."""


@dataclass
class OtherHeadError(Exception):
    """A head that does not follow on the newest one."""

    newest: SignedHead


@raising_storage_errors(
    apsw.Error, lambda error: f"the witness's database: {type(error).__name__}: {error}"
)
class WitnessStore:
    """The database of a witness, open in one process at a time.

    Guarantees:
        A receipt is for a head that is durable. There is one head for each number of releases of
        a task, and none that does not follow on the one before.

    Raises:
        StorageError: another process has it open, or it is no witness's database.
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
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            for setting in _SETTINGS:
                db.execute(f"PRAGMA {setting}").fetchall()
            known = db.execute("PRAGMA application_id").fetchall()[0][0]
            new = db.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]
            if not new and known != APPLICATION:
                raise StorageError(f"{path} is not the database of a witness")
            if new:
                with db:
                    db.execute(_SCHEMA + _KEPT)
                    db.execute("INSERT INTO witness VALUES (1, ?)", (SigningKey.new().private,))
                    db.execute(f"PRAGMA application_id={APPLICATION}")
        except BaseException:
            db.close()
            raise
        return db

    def receipt(self, shown: Shown) -> bytes:
        """The witness's signature for a head that follows on the one that it has, or is that one.

        Raises:
            OtherHeadError: the head is older, or another one, or not the next.
            UnknownTaskError: the task is new here, and should not be.
            FullError: no more tasks are taken.
        """
        with self._using:
            self._keep(shown)
        return self.key.sign(receipt_bytes(shown.task, shown.head.head))

    def newest(self, task: str) -> SignedHead | None:
        """The newest head of a task."""
        sql = "SELECT head FROM heads WHERE task = ? ORDER BY steps DESC LIMIT 1"
        with self._using:  # one connection: a thread that reads would turn the other's receipt away
            rows = self._rows(sql, task)
        return SignedHead.parsed(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close it."""
        self._db.close()
        os.close(self._lock)

    def _keep(self, shown: Shown) -> None:
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

    def _begin(self, shown: Shown) -> None:
        """Take a task whose ledger has no head here."""
        if not shown.begins:
            raise UnknownTaskError("this witness does not know the task any more")
        if self._rows("SELECT count(*) FROM tasks")[0][0] >= self._most_tasks:
            raise FullError(f"this witness takes {self._most_tasks} tasks and no more")
        steps = shown.head.head.steps
        with self._db:
            self._db.execute("INSERT INTO tasks VALUES (?, ?)", (shown.task, shown.key))
            self._db.execute(
                "INSERT INTO heads VALUES (?, ?, ?)", (shown.task, steps, str(shown.head))
            )

    def _rows(self, sql: str, *parameters: object) -> list[tuple]:
        return self._db.execute(sql, parameters).fetchall()


def _locked(path: Path) -> int:
    """The file's descriptor, which no other witness has: its own lock, so hard links share it."""
    try:
        return lock_file(path, wait=False)
    except BlockingIOError:
        raise StorageError(f"another witness has {path} open") from None
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}") from None
