"""Writes of a transaction: one SQL text for SQLite and Postgres."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.service.contract.ledger import Record, require_chain
from turnout.service.storage import interface
from turnout.service.storage.interface import (
    ConflictError,
    LogEvent,
    ParticipationRow,
    ReleaseRow,
    Scored,
    WitnessReceipt,
)
from turnout.service.storage.reads import SHARD_CLIENTS, TURNS_DTYPE, Connection, Reads, Rights

_CHECK_IN = (
    "INSERT INTO check_ins (client, step, digest, body) SELECT ?, ?, ?, ? WHERE "
    "EXISTS (SELECT 1 FROM enrolments WHERE client = ?) AND NOT EXISTS "
    "(SELECT 1 FROM turns WHERE shard = ? AND substr(used, ?, 2) >= ?) ON CONFLICT DO NOTHING"
)
_ANSWER = (
    "UPDATE check_ins SET digest = ?, body = ? WHERE client = ? AND step = ? AND digest IS NULL"
)
_TURNS = (
    "INSERT INTO turns (shard, until, used) VALUES (?, ?, ?) "
    "ON CONFLICT (shard) DO UPDATE SET until = excluded.until, used = excluded.used"
)
_RECLAIM = (
    "DELETE FROM bodies WHERE id IN "
    "(SELECT id FROM (SELECT id, step FROM bodies ORDER BY id LIMIT ?) AS oldest WHERE step <= ?)"
)
_MOST_TURNS = np.iinfo(TURNS_DTYPE).max


class Transaction(Reads):
    """Reads and writes that become durable together.

    A `ConflictError` leaves the transaction as it was, and it may go on. After any other error in
    a statement it can only be undone, in SQLite as in Postgres.
    """

    def __init__(self, connection: Connection, rights: Rights, *, whole: bool = True) -> None:
        super().__init__(connection, rights, whole=whole)
        self._open: tuple[int, interface.Seal] | None = None
        self._next_body: int | None = None

    def create_task(
        self,
        charter: bytes,
        signing_key: bytes,
        parameters: bytes,
        artefacts: Sequence[bytes] = (),
    ) -> None:
        """Create the task. Raises ConflictError where there is one."""
        columns = "task (id, charter, signing_key, parameters)"
        self._insert(columns, 1, charter, signing_key, parameters, conflict="there is a task")
        for content in artefacts:
            digest = hashlib.sha256(content).digest()
            self._insert("artefacts (digest, content)", digest, content, conflict="it is stored")

    def invite(self, secret_digests: Sequence[bytes]) -> int:
        """Hand out the next client ids, one a digest; the first of them is returned."""
        self._require(Rights.INVITE)
        first = self.invited()
        rows = list(enumerate(secret_digests, first))
        sql = "INSERT INTO invitations (client, secret_digest) VALUES (?, ?)"
        if rows:
            self._ran(self._connection.many, sql, rows)
        return first

    def enrol(self, client: int, public_key: bytes) -> None:
        """Use an invitation; once more with the same key changes nothing.

        Raises:
            ConflictError: there is no such invitation, or it was used with another key.
        """
        self._require(Rights.SERVE)
        invitation = self.invitation(client)
        if invitation is None:
            raise ConflictError("there is no such invitation")
        if invitation.public_key == public_key:
            return
        used = "the invitation was used with another key"
        self._insert("enrolments (client, public_key)", int(client), public_key, conflict=used)

    def check_in(self, participation: ParticipationRow, body: bytes | None, quota: int) -> None:
        """Store a check-in, with the update where there is one.

        The quota, most check-ins of a client in one block of the law, is compared by the same
        statement that stores.

        Raises:
            ConflictError: the client checked in at this step, or came ``quota`` times in the
                released steps of the block.
            StorageError: the client is not enrolled, or the step is not the open one.
        """
        p, client = participation, int(participation.client)
        if (p.digest is None) is not (body is None):
            raise StorageError("an update and its digest are stored together")
        if not 1 <= quota <= _MOST_TURNS:
            raise StorageError(f"a block has at most {_MOST_TURNS} check-ins of a client")
        shard, place = divmod(client, SHARD_CLIENTS)
        at = 1 + place * TURNS_DTYPE.itemsize
        full = int(quota).to_bytes(TURNS_DTYPE.itemsize, "big")
        number = None if body is None else self._body_number()
        row = (client, int(p.step), p.digest, number)
        if self._changed(_CHECK_IN, *row, client, shard, at, full) != 1:
            if not self._rows("SELECT 1 FROM enrolments WHERE client = ?", client):
                self.broken = True
                raise StorageError("nobody checks in who is not enrolled")
            raise ConflictError("the step's check-in is stored, or all turns of the block are used")
        if body is not None:
            self._store_body(participation, body)

    def answer(self, client: int, step: int, digest: bytes, body: bytes) -> None:
        """Store the update of a client who checked in without one.

        Raises:
            ConflictError: no check-in at this step, or answered already.
        """
        self._require(Rights.SERVE)
        if self._changed(_ANSWER, digest, self._body_number(), int(client), int(step)) != 1:
            raise ConflictError("an update is stored, or nobody answers who did not check in")
        self._store_body(ParticipationRow(int(client), int(step), digest), body)

    def request(self, step: int, clients: NDArray[np.int64]) -> None:
        """Store who is asked for an update. Raises ConflictError where that is stored."""
        ascending = np.unique(clients).astype("<i8")
        if ascending.size != np.size(clients):
            raise StorageError("nobody is asked twice")
        taken = "who is asked is stored"
        self._insert("asked (step, clients)", int(step), ascending.tobytes(), conflict=taken)

    def release(self, release: ReleaseRow, block_ends: int) -> None:
        """Append to the ledger, and delete all that joins a client to the step.

        Afterwards nobody can tell who came at the step, or open an update of it. Where the
        block goes on, the check-ins of the step are added to the turns; else turns are deleted.

        ``block_ends`` is the first step after the block of the law in which the step lies.

        Raises:
            ConflictError: the step is stored.
            StorageError: the record does not follow on the last one, is of another task, names a
                cost that is no cost, or the digest of other parameters; or the block ended
                elsewhere before.
        """
        self._require(Rights.SERVE)
        record = release.record
        if self._rows("SELECT 1 FROM releases WHERE step = ?", int(record.step)):
            raise ConflictError("the step is released")
        require_chain(self._task(), self._head(), record)
        _require_costs(record)
        if hashlib.sha256(release.parameters).digest() != record.model_digest:
            raise StorageError("the record has the digest of other parameters")
        step = int(record.step)
        self._insert(
            "releases (step, task, sum_digest, model_digest, epsilon, delta, previous, digest)",
            step,
            record.task,
            record.sum_digest,
            record.model_digest,
            float(record.epsilon),
            float(record.delta),
            record.previous,
            record.digest,
            conflict="the step is released",
        )
        model = (release.parameters, release.optimizer_state, release.mechanism_state)
        columns = "models (step, parameters, optimizer_state, mechanism_state)"
        self._go_on(columns, step, *model)
        counts = (int(release.checked_in), int(release.served))
        self._go_on("counts (step, checked_in, served)", step, *counts)
        self._take_turns(step, int(block_ends))
        self._forget(step)

    def reclaim(self, at_most: int) -> int:
        """Delete what is left of released steps' updates, at most so many; how many were deleted.

        Nobody can read them any more, for their step's key is deleted: this frees the space.
        """
        self._require(Rights.SERVE)
        released = self._last_step()
        if released is None:
            return 0
        return self._ran(self._connection.discarded, _RECLAIM, (int(at_most), released))

    def publish(self, steps: int, receipt: WitnessReceipt | None) -> None:
        """Let so many releases be read from now on; once more changes nothing.

        ``receipt`` is the witness's for the head after them, stored with that; None without one.

        Raises:
            StorageError: the receipt is for another head, or fewer releases are stored.
        """
        if receipt is not None:
            if receipt.steps != steps:
                raise StorageError(f"{steps} releases need the witness's receipt for their head")
            values = receipt.witness_key, int(steps), receipt.signature
            self._changed(_insert("receipts (witness_key, steps, signature)"), *values)
        self._changed(_insert("publications (steps)"), int(steps))

    def score(self, scored: Scored) -> None:
        """Store an evaluation; a second one of the same steps replaces none and is dropped."""
        accuracy, loss = (
            None if math.isnan(value) else float(value) for value in (scored.accuracy, scored.loss)
        )
        self._changed(_insert("scores (steps, accuracy, loss)"), int(scored.steps), accuracy, loss)

    def log(self, event: LogEvent) -> None:
        """Store a line of the operator's log."""
        columns = _insert("events (at, level, text)")
        self._changed(columns, event.at, event.level, event.text, needs=Rights.INVITE)

    def _take_turns(self, step: int, block_ends: int) -> None:
        """Add a released step's check-ins to its block's turns; none are kept of a block's end.

        All rows are written anew, in the order of the clients: neither what is in a row nor
        where it lies tells who came at which of the block's steps.
        """
        if block_ends <= step + 1:
            self._changed("DELETE FROM turns")
            return
        before, came = self._used(), self.arrived(step)
        shards = -(-self.invited() // SHARD_CLIENTS)
        used = np.zeros(shards * SHARD_CLIENTS, TURNS_DTYPE)
        used[: before.size] = before
        used[came] += 1
        rows = [
            (number, block_ends, part.tobytes())
            for number, part in enumerate(used.reshape(shards, SHARD_CLIENTS))
        ]
        if rows:
            self._ran(self._connection.many, _TURNS, rows)

    def _forget(self, step: int) -> None:
        """Delete who came at a released step, with what, and the key to the updates."""
        for table in ("check_ins", "asked", "step_keys"):
            self._changed(f"DELETE FROM {table} WHERE step = ?", step)
        self._open = None

    def _body_number(self) -> int:
        """A number for the next update; writers take turns, so none is given twice."""
        number = self._next_body
        if number is None:
            number = int(self._value("SELECT coalesce(max(id) + 1, 0) FROM bodies"))
            self._next_body = number
        return number

    def _store_body(self, participation: ParticipationRow, body: bytes) -> None:
        """Store an update, readable as long as the key of its step is there."""
        number, client, step = self._body_number(), participation.client, int(participation.step)
        if self._open is None or self._open[0] != step:
            self._open = step, self._seal(step) or self._new_seal(step)
        assert participation.digest is not None
        sealed = self._open[1].closed(client, participation.digest, body)
        self._go_on("bodies (id, step, body)", number, step, sealed)
        self._next_body = number + 1

    def _new_seal(self, step: int) -> interface.Seal:
        key = interface.new_key()
        self._go_on("step_keys (step, key)", step, key)
        return interface.Seal(key)

    def _insert(self, columns: str, *values: Any, conflict: str) -> None:
        """Insert one row."""
        if self._changed(_insert(columns), *values) != 1:
            raise ConflictError(conflict)

    def _go_on(self, columns: str, *values: Any) -> None:
        """Insert a row that belongs to one just inserted; neither can stand alone."""
        if self._changed(_insert(columns), *values) != 1:
            self.broken = True
            raise StorageError("the database is damaged: it has parts of a row that is new")

    def _changed(self, sql: str, *parameters: Any, needs: Rights = Rights.SERVE) -> int:
        self._require(needs)
        return self._ran(self._connection.changed, sql, parameters)


def _insert(columns: str) -> str:
    """The statement for one row of a table that is given with its columns."""
    places = ", ".join("?" * (columns.count(",") + 1))
    return f"INSERT INTO {columns} VALUES ({places}) ON CONFLICT DO NOTHING"


def _require_costs(record: Record) -> None:
    """No NaN, no infinity, and no -0.0, which a database may give back as 0.0."""
    costs = (record.epsilon, record.delta)
    if not all(0.0 <= cost < math.inf and math.copysign(1.0, cost) > 0 for cost in costs):
        raise StorageError("a release must state what it costs")
