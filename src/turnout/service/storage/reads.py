"""Reads of a transaction, with one SQL text for SQLite and Postgres.

`Reads` reads the rows of `interface`; `writes.Transaction` adds the writes. `Connection` is the
interface that SQLite and Postgres implement, and `Rights` are the operations that a transaction may
use.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.service.contract.ledger import Head, Record
from turnout.service.storage import interface
from turnout.service.storage.interface import (
    InvitationRow,
    LogEvent,
    ParticipationRow,
    ReleaseRow,
    Scored,
    WitnessReceipt,
)

T = TypeVar("T")

SMALL_ROWS, BODIES = 8192, 16
"""Largest numbers of small rows and of updates that are in memory at a time."""

COUNT_DTYPE, SHARD_CLIENTS = np.dtype(">u2"), 1024
"""Encoding of the counts in the table ``turns``, and the number of clients in each of its rows.

Big-endian, so that SQL compares counts by their bytes.
"""

_BODIES = (
    "SELECT c.client, c.digest, b.body FROM check_ins c LEFT JOIN bodies b ON b.id = c.body "
    "WHERE c.client > ? AND c.step = ? AND c.body IS NOT NULL ORDER BY c.client LIMIT ?"
)
_MODEL = (
    "SELECT m.parameters, m.optimizer_state, m.mechanism_state, c.checked_in, c.served "
    "FROM models m JOIN counts c ON c.step = m.step WHERE m.step = ?"
)
_PUBLISHED = "(SELECT coalesce(max(steps), 0) FROM publications)"
_COMMITTED = str(2**63 - 1)
_RECORD = (
    "SELECT step, task, sum_digest, model_digest, epsilon, delta, previous, digest FROM releases "
)


class Rights(IntEnum):
    """Operations that a transaction may use; each value includes the values before it."""

    READ = 0
    INVITE = 1
    SERVE = 2


class Connection(Protocol):
    """Interface of a connection to SQLite or Postgres; SQL placeholders are question marks.

    Every error is a `StorageError` whose text has no stored value.
    """

    def rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        ...

    def changed(self, sql: str, parameters: Sequence[Any]) -> int:
        """Run a statement; return the number of rows that it inserted, changed or deleted."""
        ...

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        ...

    def discarded(self, sql: str, parameters: Sequence[Any]) -> int:
        """Delete rows of unreadable data, whose bytes may remain in free pages.

        Returns the number of deleted rows.
        """
        ...

    def begin_write(self) -> None:
        """Begin a write transaction; wait for other writers up to `BUSY_SECONDS`."""
        ...

    def begin_read(self) -> None:
        """Begin a read-only transaction over the data committed so far."""
        ...

    def commit(self) -> None:
        """Commit the transaction durably."""
        ...

    def rollback(self) -> None:
        """Undo the open transaction, if there is one."""
        ...

    def tidy(self, thorough: bool) -> bool:
        """Erase the bytes of deleted rows, outside of transactions, as `database.Storage.tidy`."""
        ...

    def close(self) -> None:
        """Close the connection; an open transaction is undone."""
        ...


class Reads:
    """Queries with which a transaction reads the stored task.

    After a failed statement, `broken` is true and the transaction can only be undone. After the
    end of the transaction, every method raises StorageError.

    Guarantees:
        Records, models, counts and scores belong to published releases, unless ``whole`` is True.

    Args:
        connection: runs the statements.
        rights: allowed operations.
        whole: also read releases that are committed and not published yet.
    """

    def __init__(self, connection: Connection, rights: Rights, *, whole: bool) -> None:
        self._connection = connection
        self._rights = rights
        self._until = _COMMITTED if whole else _PUBLISHED  # first step that is not read
        self._ended = False
        self.broken = False

    def end(self) -> None:
        """End the transaction: every later call is refused."""
        self._ended = True

    def charter(self) -> bytes | None:
        """Canonical bytes of the stored charter; None in an empty storage."""
        rows = self._rows("SELECT charter FROM task")
        return rows[0][0] if rows else None

    def signing_key(self) -> bytes:
        """Coordinator's Ed25519 private key, 32 bytes."""
        return self._task_column("signing_key")

    def initial_parameters(self) -> bytes:
        """Initial model parameters, little-endian float32."""
        return self._task_column("parameters")

    def artefact(self, digest: bytes) -> bytes | None:
        """Stored artefact with the given SHA-256; None if the charter names no such artefact."""
        rows = self._rows("SELECT content FROM artefacts WHERE digest = ?", digest)
        return rows[0][0] if rows else None

    def invitation(self, client: int) -> InvitationRow | None:
        """Stored invitation of a client; None for an unknown client."""
        rows = self._rows(
            "SELECT i.client, i.secret_digest, e.public_key FROM invitations i "
            "LEFT JOIN enrolments e ON e.client = i.client WHERE i.client = ?",
            int(client),
        )
        return InvitationRow(*rows[0]) if rows else None

    def invited(self) -> int:
        """Number of stored invitations."""
        return self._value("SELECT coalesce(max(client) + 1, 0) FROM invitations")

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """Enrolled clients and their public keys, in ascending order of client."""
        sql = "SELECT client, public_key FROM enrolments WHERE client > ? ORDER BY client LIMIT ?"
        return ((client, key) for client, key in self._pages(sql, (-1,), SMALL_ROWS))

    def enrolled(self) -> int:
        """Number of used invitations."""
        return self._value("SELECT count(*) FROM enrolments")

    def participation_at(self, client: int, step: int) -> ParticipationRow | None:
        """Check-in of a client at the open step; None without a check-in or for another step."""
        sql = "SELECT client, step, digest FROM check_ins WHERE client = ? AND step = ?"
        rows = self._rows(sql, int(client), int(step))
        return ParticipationRow(*rows[0]) if rows else None

    def participations(self, step: int) -> Iterator[ParticipationRow]:
        """All check-ins of the open step, without the updates' bytes, by ascending client."""
        sql = "SELECT client, digest, step FROM check_ins WHERE client > ? ORDER BY client LIMIT ?"
        rows = self._pages(sql, (-1,), SMALL_ROWS)
        return (ParticipationRow(client, at, digest) for client, digest, at in rows if at == step)

    def asked(self, step: int) -> NDArray[np.int64] | None:
        """Clients asked for an update at a step, ascending, ``(k,)``; None before the choice."""
        rows = self._rows("SELECT clients FROM asked WHERE step = ?", int(step))
        return np.frombuffer(rows[0][0], "<i8").astype(np.int64) if rows else None

    def arrived(self, step: int) -> NDArray[np.int64]:
        """Clients that checked in at the open step, in ascending order, shape ``(k,)``."""
        sql = "SELECT client FROM check_ins WHERE step = ? ORDER BY client"
        return np.array([client for (client,) in self._rows(sql, int(step))], dtype=np.int64)

    def participation_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clients, and each client's number of check-ins in the released steps of the open block.

        Both arrays have shape ``(k,)``, ascending by client, and are empty when a block begins.
        """
        used = self._counts_by_client()
        clients = np.flatnonzero(used)
        return clients, used[clients].astype(np.int64)

    def bodies(self, step: int) -> Iterator[tuple[int, bytes]]:
        """Iterator over the clients and updates of the open step, in ascending order of client.

        Only a few updates are in memory at a time.

        Raises:
            StorageError: an update differs from the update that was stored with the check-in, or
                the key of the step is missing.
        """
        last, seal = -1, None
        while rows := self._rows(_BODIES, last, int(step), BODIES):
            seal = seal or self._seal(step)
            if seal is None:
                raise StorageError("the database is damaged: the key of the open step is missing")
            for client, digest, body in rows:
                yield client, seal.decrypt(client, digest, body)
            last = rows[-1][0]

    def last_release(self) -> ReleaseRow | None:
        """Stored release of the last step; None before the first release."""
        step = self._last_step()
        return None if step is None else self.release_at(step)

    def release_at(self, step: int) -> ReleaseRow | None:
        """Stored release of a step; None for a step without a release.

        Raises:
            StorageError: the parameters are missing, or differ from the digest in the ledger.
        """
        records = self._rows(_RECORD + f"WHERE step = ? AND step < {self._until}", int(step))
        if not records:
            return None
        record = _record(records[0])
        rows = self._rows(_MODEL, int(step))
        if not rows or hashlib.sha256(rows[0][0]).digest() != record.model_digest:
            raise StorageError(f"the model of step {step} is damaged or missing")
        return ReleaseRow(record, *rows[0])

    def records(self, first_step: int = 0) -> Iterator[Record]:
        """Ledger records in order, from ``first_step`` on.

        Raises:
            StorageError: a record differs from the digest that was stored with it.
        """
        sql = _RECORD + f"WHERE step > ? AND step < {self._until} ORDER BY step LIMIT ?"
        return map(_record, self._pages(sql, (int(first_step) - 1,), SMALL_ROWS))

    def counts(self) -> Iterator[tuple[int, int, int]]:
        """Step, number of check-ins and number of summed updates of each release, ascending.

        Only the operator may see these numbers.
        """
        columns = "SELECT step, checked_in, served FROM counts "
        sql = columns + f"WHERE step > ? AND step < {self._until} ORDER BY step LIMIT ?"
        rows = self._pages(sql, (-1,), SMALL_ROWS)
        return ((step, checked_in, served) for step, checked_in, served in rows)

    def last_receipt(self) -> WitnessReceipt | None:
        """Last stored receipt of a witness; None if no receipt is stored."""
        sql = "SELECT witness_key, steps, signature FROM receipts ORDER BY id DESC LIMIT 1"
        rows = self._rows(sql)
        return WitnessReceipt(*rows[0]) if rows else None

    def scores(self) -> Iterator[Scored]:
        """Evaluations of models in ascending order of steps; a missing value is NaN."""
        columns = "SELECT steps, accuracy, loss FROM scores "
        sql = columns + f"WHERE steps > ? AND steps <= {self._until} ORDER BY steps LIMIT ?"
        for steps, *values in self._pages(sql, (-1,), SMALL_ROWS):
            yield Scored(steps, *(math.nan if value is None else value for value in values))

    def events(self, last: int) -> list[LogEvent]:
        """Last ``last`` lines of the operator's log, oldest line first."""
        sql = "SELECT at, level, text FROM events ORDER BY id DESC LIMIT ?"
        return [LogEvent(*row) for row in reversed(self._rows(sql, int(last)))]

    def _seal(self, step: int) -> interface.Seal | None:
        """Cipher for a step's updates; None before the first update and after the release."""
        rows = self._rows("SELECT key FROM step_keys WHERE step = ?", int(step))
        return interface.Seal(rows[0][0]) if rows else None

    def _counts_by_client(self) -> NDArray[np.uint16]:
        """Each client's number of check-ins in the released steps of the open block, shape (n,)."""
        shards = self._rows("SELECT shard, used FROM turns ORDER BY shard")
        if [number for number, _ in shards] != list(range(len(shards))):
            raise StorageError("the database is damaged: counts of check-ins are missing")
        counts = np.frombuffer(b"".join(used for _, used in shards), COUNT_DTYPE)
        return counts.astype(np.uint16)

    def _head(self) -> Head:
        """Ledger head after the last stored release."""
        rows = self._rows("SELECT step + 1, digest FROM releases ORDER BY step DESC LIMIT 1")
        return Head(*rows[0]) if rows else Head(0, bytes.fromhex(self._task()))

    def _task(self) -> str:
        """Name of the task: the SHA-256 of the charter."""
        return hashlib.sha256(self._task_column("charter")).hexdigest()

    def _last_step(self) -> int | None:
        """Last released step; None before the first release."""
        return self._value(f"SELECT max(step) FROM releases WHERE step < {self._until}")

    def _task_column(self, column: str) -> bytes:
        """Value of one column in the only row of the task table."""
        rows = self._rows(f"SELECT {column} FROM task")
        if not rows:
            raise StorageError("there is no task in this database; create one first")
        return rows[0][0]

    def _value(self, sql: str) -> Any:
        """First column of a query's first row."""
        return self._rows(sql)[0][0]

    def _pages(self, sql: str, key: tuple[int, ...], size: int) -> Iterator[tuple[Any, ...]]:
        """Rows of a query, read in pages of ``size`` rows with ascending first column.

        The first page begins after the value ``key``.
        """
        rows = self._rows(sql, *key, size)
        while rows:
            yield from rows
            rows = self._rows(sql, *rows[-1][: len(key)], size) if len(rows) == size else []

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a query, if the transaction has the right to read."""
        self._require(Rights.READ)
        return self._run(self._connection.rows, sql, parameters)

    def _run(self, run: Callable[[str, Any], T], sql: str, parameters: Sequence[Any]) -> T:
        """Result of an SQL statement; an error marks the transaction as broken."""
        try:
            return run(sql, parameters)
        except BaseException:
            self.broken = True
            raise

    def _require(self, rights: Rights) -> None:
        """Refuse an operation after the transaction's end, after an error, or without the right."""
        if self._ended:
            raise StorageError("the transaction has ended")
        if self.broken:
            raise StorageError("the transaction failed before and can only be undone")
        if self._rights < rights:
            raise StorageError("this connection does not serve the task, so it may not write this")


def _record(row: tuple[Any, ...]) -> Record:
    """Ledger record of a row of the table ``releases``, checked against the row's digest."""
    step, task, *rest, digest = row
    record = Record(task, step, *rest)
    if record.digest != digest:
        raise StorageError(f"the ledger is damaged: the record of step {step} has another digest")
    return record
