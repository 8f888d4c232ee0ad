"""Reads of a transaction: one SQL text for SQLite and Postgres."""

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

SMALL_ROWS, BODIES = 8192, 16  # rows that are in memory at a time

TURNS_DTYPE, SHARD_CLIENTS = np.dtype(">u2"), 1024
"""The encoding of counts in `turns`: big-endian, so that bytes are in the order of the numbers."""

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
    """The operations of a transaction."""

    READ = 0
    INVITE = 1
    SERVE = 2


class Connection(Protocol):
    """A connection to SQLite or Postgres; placeholders are question marks.

    Whatever goes wrong is raised as `StorageError`, with a text that names no stored value.
    """

    def rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        ...

    def changed(self, sql: str, parameters: Sequence[Any]) -> int:
        """Run a statement; how many rows it inserted or deleted."""
        ...

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        ...

    def discarded(self, sql: str, parameters: Sequence[Any]) -> int:
        """As `changed`, for deleting what nobody can read: its bytes may stay in free pages."""
        ...

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
        """As `database.Storage.tidy`; outside of transactions."""
        ...

    def close(self) -> None:
        """Close it; an open transaction is undone."""
        ...


class Reads:
    """The reading half of `writes.Transaction`.

    Nothing works after the transaction has ended, and nothing after an error in it but undoing
    it: `broken` is true then.

    Guarantees:
        Records, models, counts and scores are those of published releases, unless it is whole.

    Args:
        whole: read releases that are committed and not published yet, too.
    """

    def __init__(self, connection: Connection, rights: Rights, *, whole: bool) -> None:
        self._connection = connection
        self._rights = rights
        self._until = _COMMITTED if whole else _PUBLISHED  # the steps before it can be read
        self._ended = False
        self.broken = False

    def end(self) -> None:
        """Refuse whatever comes from now on."""
        self._ended = True

    def charter(self) -> bytes | None:
        """The charter's canonical bytes; None in an empty storage."""
        rows = self._rows("SELECT charter FROM task")
        return rows[0][0] if rows else None

    def signing_key(self) -> bytes:
        """The coordinator's Ed25519 private key, 32 bytes."""
        return self._of_task("signing_key")

    def initial_parameters(self) -> bytes:
        """The first parameters, little-endian float32."""
        return self._of_task("parameters")

    def artefact(self, digest: bytes) -> bytes | None:
        """The content that the charter names by that SHA-256; None where it names none."""
        rows = self._rows("SELECT content FROM artefacts WHERE digest = ?", digest)
        return rows[0][0] if rows else None

    def invitation(self, client: int) -> InvitationRow | None:
        """The invitation with that id."""
        rows = self._rows(
            "SELECT i.client, i.secret_digest, e.public_key FROM invitations i "
            "LEFT JOIN enrolments e ON e.client = i.client WHERE i.client = ?",
            int(client),
        )
        return InvitationRow(*rows[0]) if rows else None

    def invited(self) -> int:
        """The number of ids that were handed out."""
        return self._value("SELECT coalesce(max(client) + 1, 0) FROM invitations")

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """Clients and the public keys that they enrolled with, by client."""
        sql = "SELECT client, public_key FROM enrolments WHERE client > ? ORDER BY client LIMIT ?"
        return ((client, key) for client, key in self._pages(sql, (-1,), SMALL_ROWS))

    def enrolled(self) -> int:
        """The number of invitations that were used."""
        return self._value("SELECT count(*) FROM enrolments")

    def participation_at(self, client: int, step: int) -> ParticipationRow | None:
        """The check-in of a client at the open step; nothing is known of other steps."""
        sql = "SELECT client, step, digest FROM check_ins WHERE client = ? AND step = ?"
        rows = self._rows(sql, int(client), int(step))
        return ParticipationRow(*rows[0]) if rows else None

    def participations(self, step: int) -> Iterator[ParticipationRow]:
        """All check-ins of the open step, by client; the updates are not read."""
        sql = "SELECT client, digest, step FROM check_ins WHERE client > ? ORDER BY client LIMIT ?"
        rows = self._pages(sql, (-1,), SMALL_ROWS)
        return (ParticipationRow(client, at, digest) for client, digest, at in rows if at == step)

    def asked(self, step: int) -> NDArray[np.int64] | None:
        """The clients asked at a step, ascending; None where nobody was chosen yet."""
        rows = self._rows("SELECT clients FROM asked WHERE step = ?", int(step))
        return np.frombuffer(rows[0][0], "<i8").astype(np.int64) if rows else None

    def arrived(self, step: int) -> NDArray[np.int64]:
        """The clients that checked in at a step, ascending."""
        sql = "SELECT client FROM check_ins WHERE step = ? ORDER BY client"
        return np.array([client for (client,) in self._rows(sql, int(step))], dtype=np.int64)

    def turns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clients that came in the released steps of the open block, ascending, and how often.

        Nobody where no block is under way, or where its first step is open.
        """
        used = self._used()
        clients = np.flatnonzero(used)
        return clients, used[clients].astype(np.int64)

    def bodies(self, step: int) -> Iterator[tuple[int, bytes]]:
        """Clients and their updates at the open step, by client; never all in memory.

        Raises:
            StorageError: an update is not the one that was stored with the client's check-in.
        """
        last, seal = -1, None
        while rows := self._rows(_BODIES, last, int(step), BODIES):
            seal = seal or self._seal(step)
            if seal is None:
                raise StorageError("the database is damaged: the key of the open step is missing")
            for client, digest, body in rows:
                yield client, seal.opened(client, digest, body)
            last = rows[-1][0]

    def last_release(self) -> ReleaseRow | None:
        """The release of the highest step."""
        step = self._last_step()
        return None if step is None else self.release_at(step)

    def release_at(self, step: int) -> ReleaseRow | None:
        """The release of a step.

        Raises:
            StorageError: the parameters are not those whose digest the ledger has.
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
        """The ledger's records from a step on, in order.

        Raises:
            StorageError: a record is not the one whose digest was stored with it.
        """
        sql = _RECORD + f"WHERE step > ? AND step < {self._until} ORDER BY step LIMIT ?"
        return map(_record, self._pages(sql, (int(first_step) - 1,), SMALL_ROWS))

    def counts(self) -> Iterator[tuple[int, int, int]]:
        """(step, checked in, served), in order; for the operator only."""
        columns = "SELECT step, checked_in, served FROM counts "
        sql = columns + f"WHERE step > ? AND step < {self._until} ORDER BY step LIMIT ?"
        rows = self._pages(sql, (-1,), SMALL_ROWS)
        return ((step, checked_in, served) for step, checked_in, served in rows)

    def last_receipt(self) -> WitnessReceipt | None:
        """The receipt that was stored last."""
        sql = "SELECT witness_key, steps, signature FROM receipts ORDER BY id DESC LIMIT 1"
        rows = self._rows(sql)
        return WitnessReceipt(*rows[0]) if rows else None

    def scores(self) -> Iterator[Scored]:
        """Evaluations in order."""
        columns = "SELECT steps, accuracy, loss FROM scores "
        sql = columns + f"WHERE steps > ? AND steps <= {self._until} ORDER BY steps LIMIT ?"
        for steps, *values in self._pages(sql, (-1,), SMALL_ROWS):
            yield Scored(steps, *(math.nan if value is None else value for value in values))

    def events(self, last: int) -> list[LogEvent]:
        """The last lines of the operator's log, oldest first."""
        sql = "SELECT at, level, text FROM events ORDER BY id DESC LIMIT ?"
        return [LogEvent(*row) for row in reversed(self._rows(sql, int(last)))]

    def _seal(self, step: int) -> interface.Seal | None:
        """The key of the updates of a step; None before the first one and after the release."""
        rows = self._rows("SELECT key FROM step_keys WHERE step = ?", int(step))
        return interface.Seal(rows[0][0]) if rows else None

    def _used(self) -> NDArray[np.uint16]:
        """The check-ins of each client in the released steps of the open block, by client."""
        shards = self._rows("SELECT shard, used FROM turns ORDER BY shard")
        if [number for number, _ in shards] != list(range(len(shards))):
            raise StorageError("the database is damaged: turns are missing")
        counts = np.frombuffer(b"".join(used for _, used in shards), TURNS_DTYPE)
        return counts.astype(np.uint16)

    def _head(self) -> Head:
        """The ledger's head."""
        rows = self._rows("SELECT step + 1, digest FROM releases ORDER BY step DESC LIMIT 1")
        return Head(*rows[0]) if rows else Head(0, bytes.fromhex(self._task()))

    def _task(self) -> str:
        return hashlib.sha256(self._of_task("charter")).hexdigest()

    def _last_step(self) -> int | None:
        return self._value(f"SELECT max(step) FROM releases WHERE step < {self._until}")

    def _of_task(self, column: str) -> bytes:
        rows = self._rows(f"SELECT {column} FROM task")
        if not rows:
            raise StorageError("there is no task in this database")
        return rows[0][0]

    def _value(self, sql: str) -> Any:
        return self._rows(sql)[0][0]

    def _pages(self, sql: str, key: tuple[int, ...], size: int) -> Iterator[tuple[Any, ...]]:
        """Rows whose first columns rise above ``key``, so many at a time."""
        rows = self._rows(sql, *key, size)
        while rows:
            yield from rows
            rows = self._rows(sql, *rows[-1][: len(key)], size) if len(rows) == size else []

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self._require(Rights.READ)
        return self._ran(self._connection.rows, sql, parameters)

    def _ran(self, run: Callable[[str, Any], T], sql: str, parameters: Sequence[Any]) -> T:
        """The result of a statement; after an error in it the transaction can only be undone."""
        try:
            return run(sql, parameters)
        except BaseException:
            self.broken = True
            raise

    def _require(self, rights: Rights) -> None:
        if self._ended:
            raise StorageError("the transaction has ended")
        if self.broken:
            raise StorageError("the transaction failed before and can only be undone")
        if self._rights < rights:
            raise StorageError("this connection may not write that: it does not serve the task")


def _record(row: tuple[Any, ...]) -> Record:
    step, task, *rest, digest = row
    record = Record(task, step, *rest)
    if record.digest != digest:
        raise StorageError(f"the ledger is damaged: the record of step {step} has another digest")
    return record
