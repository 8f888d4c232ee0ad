"""Writes of a transaction, with one SQL text for SQLite and Postgres.

`Transaction` adds the writes to `reads.Reads`; `database.Storage.transaction` makes it.
"""

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
from turnout.service.storage.reads import COUNT_DTYPE, SHARD_CLIENTS, Connection, Reads, Rights

_CHECK_IN = (
    "INSERT INTO check_ins (client, step, digest, body) SELECT ?, ?, ?, ? WHERE "
    "EXISTS (SELECT 1 FROM enrolments WHERE client = ?) AND NOT EXISTS "
    "(SELECT 1 FROM turns WHERE shard = ? AND substr(used, ?, 2) >= ?) ON CONFLICT DO NOTHING"
)
_ANSWER = (
    "UPDATE check_ins SET digest = ?, body = ? WHERE client = ? AND step = ? AND digest IS NULL"
)
_WRITE_COUNTS = (
    "INSERT INTO turns (shard, until, used) VALUES (?, ?, ?) "
    "ON CONFLICT (shard) DO UPDATE SET until = excluded.until, used = excluded.used"
)
_RECLAIM = (
    "DELETE FROM bodies WHERE id IN "
    "(SELECT id FROM (SELECT id, step FROM bodies ORDER BY id LIMIT ?) AS oldest WHERE step <= ?)"
)
_MOST_CHECK_INS = np.iinfo(COUNT_DTYPE).max


class Transaction(Reads):
    """Reads and writes of one transaction, which become durable together.

    After a `ConflictError` the transaction is unchanged and can continue. After any other error of
    a statement the transaction can only be undone, in SQLite as in Postgres. Each method raises
    StorageError if the transaction lacks the rights for it, or has ended.
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
        """Store a new task in an empty storage.

        Args:
            charter: canonical bytes of the charter.
            signing_key: Ed25519 private key of the coordinator, 32 bytes.
            parameters: first parameters, little-endian float32.
            artefacts: contents that the charter names by digest.

        Raises:
            ConflictError: the database already has a task.
        """
        # The task has one row; a second task is a conflict.
        columns = "task (id, charter, signing_key, parameters)"
        self._insert(
            columns, 1, charter, signing_key, parameters, conflict="the database already has a task"
        )
        # Contents are found by their digest.
        for content in artefacts:
            digest = hashlib.sha256(content).digest()
            self._insert(
                "artefacts (digest, content)",
                digest,
                content,
                conflict="an artefact is stored twice",
            )

    def invite(self, secret_digests: Sequence[bytes]) -> int:
        """Store an invitation for each digest of a secret; return the first new client id."""
        self._require(Rights.INVITE)
        first = self.invited()
        rows = list(enumerate(secret_digests, first))
        sql = "INSERT INTO invitations (client, secret_digest) VALUES (?, ?)"
        if rows:
            self._run(self._connection.many, sql, rows)
        return first

    def enrol(self, client: int, public_key: bytes) -> None:
        """Mark an invitation as used; a repetition with the same key changes nothing.

        Raises:
            ConflictError: the client has no invitation, or the invitation was used with another
                key.
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
        """Store a check-in, with the update if there is one.

        A single SQL statement checks the quota and stores the check-in.

        Args:
            participation: the check-in.
            body: the update; None for a check-in without an update.
            quota: largest number of check-ins of a client in one block of the participation.

        Raises:
            ConflictError: the client checked in at this step already, or ``quota`` times in the
                released steps of the block.
            StorageError: the client is not enrolled, the step is not the open step, the quota is
                outside its domain, or only one of digest and update is given.
        """
        # Arguments that contradict each other.
        p, client = participation, int(participation.client)
        if (p.digest is None) is not (body is None):
            raise StorageError("an update and its digest must be stored together")
        if not 1 <= quota <= _MOST_CHECK_INS:
            expected = f"1 to {_MOST_CHECK_INS} check-ins of a client in a block"
            raise StorageError(f"quota = {quota}: expected {expected}")
        # The client's count in the block is two bytes of its shard.
        shard, place = divmod(client, SHARD_CLIENTS)
        at = 1 + place * COUNT_DTYPE.itemsize
        full = int(quota).to_bytes(COUNT_DTYPE.itemsize, "big")
        number = None if body is None else self._body_number()
        row = (client, int(p.step), p.digest, number)
        # The statement stores nothing for an unknown client, a full quota or a repetition.
        if self._changed(_CHECK_IN, *row, client, shard, at, full) != 1:
            if not self._rows("SELECT 1 FROM enrolments WHERE client = ?", client):
                self.broken = True
                raise StorageError("a client that is not enrolled cannot check in")
            raise ConflictError(
                "the client checked in at this step already, or has no check-in left in this block"
            )
        if body is not None:
            self._store_body(participation, body)

    def answer(self, client: int, step: int, digest: bytes, body: bytes) -> None:
        """Store the update of a client that has already checked in without an update.

        Args:
            client: the client's id.
            step: the open step.
            digest: SHA-256 of the update.
            body: the update.

        Raises:
            ConflictError: the client did not check in at this step, or the client's update is
                stored already.
        """
        self._require(Rights.SERVE)
        if self._changed(_ANSWER, digest, self._body_number(), int(client), int(step)) != 1:
            raise ConflictError("the update is stored already, or the client did not check in")
        self._store_body(ParticipationRow(int(client), int(step), digest), body)

    def request(self, step: int, clients: NDArray[np.int64]) -> None:
        """Store the clients from which an update is requested at a step.

        Args:
            step: the open step.
            clients: ids of the clients, shape ``(k,)``.

        Raises:
            ConflictError: the requests of this step are stored already.
            StorageError: a client occurs twice.
        """
        ascending = np.unique(clients).astype("<i8")
        if ascending.size != np.size(clients):
            raise StorageError("the update of a client cannot be requested twice")
        taken = "the requests of this step are stored already"
        self._insert("asked (step, clients)", int(step), ascending.tobytes(), conflict=taken)

    def release(self, release: ReleaseRow, block_ends: int) -> None:
        """Append a release to the ledger, and delete all data that link a client to a step.

        Afterwards the storage shows neither which clients checked in at the step nor their
        updates. Each client's number of check-ins in the block is kept until the block is over.

        Args:
            release: the release of the open step.
            block_ends: first step after the block of the participation that contains the step.

        Raises:
            ConflictError: the step is released already.
            StorageError: the record does not continue the last record, belongs to another task, has
                an invalid ε or δ, or does not have the digest of the parameters; or ``block_ends``
                differs from the stored end of the block.
        """
        # The record must continue the ledger and name these parameters.
        self._require(Rights.SERVE)
        record = release.record
        if self._rows("SELECT 1 FROM releases WHERE step = ?", int(record.step)):
            raise ConflictError("the step is released already")
        require_chain(self._task(), self._head(), record)
        _require_costs(record)
        if hashlib.sha256(release.parameters).digest() != record.model_digest:
            raise StorageError("the record does not have the digest of the released parameters")
        # Record, model and counts.
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
            conflict="the step is released already",
        )
        model = (release.parameters, release.optimizer_state, release.mechanism_state)
        columns = "models (step, parameters, optimizer_state, mechanism_state)"
        self._insert_part(columns, step, *model)
        counts = (int(release.checked_in), int(release.served))
        self._insert_part("counts (step, checked_in, served)", step, *counts)
        # From here on only each client's number of check-ins in the block is left.
        self._add_participations(step, int(block_ends))
        self._delete_participants(step)

    def reclaim(self, at_most: int) -> int:
        """Delete at most ``at_most`` updates of released steps, and return their number.

        The updates are unreadable, since the key of their step is deleted; the call frees the space
        of these updates.
        """
        self._require(Rights.SERVE)
        released = self._last_step()
        if released is None:
            return 0
        return self._run(self._connection.discarded, _RECLAIM, (int(at_most), released))

    def publish(self, steps: int, receipt: WitnessReceipt | None) -> None:
        """Mark the first ``steps`` releases as published; a repetition changes nothing.

        Args:
            steps: number of releases.
            receipt: witness's receipt for the ledger head after these releases; None without a
                witness.

        Raises:
            StorageError: the receipt is for another ledger head, or fewer releases are stored.
        """
        if receipt is not None:
            if receipt.steps != steps:
                raise StorageError(
                    f"the witness's receipt is for {receipt.steps} releases, not for {steps}"
                )
            values = receipt.witness_key, int(steps), receipt.signature
            self._changed(_insert("receipts (witness_key, steps, signature)"), *values)
        self._changed(_insert("publications (steps)"), int(steps))

    def score(self, scored: Scored) -> None:
        """Store a model's evaluation; a second evaluation of the same model is ignored."""
        accuracy, loss = (
            None if math.isnan(value) else float(value) for value in (scored.accuracy, scored.loss)
        )
        self._changed(_insert("scores (steps, accuracy, loss)"), int(scored.steps), accuracy, loss)

    def log(self, event: LogEvent) -> None:
        """Store a line of the operator's log."""
        columns = _insert("events (at, level, text)")
        self._changed(columns, event.at, event.level, event.text, needs=Rights.INVITE)

    def _add_participations(self, step: int, block_ends: int) -> None:
        """Add the check-ins of a released step to the clients' counts of the block.

        At the end of a block the counts are deleted instead. All rows are written again in order of
        clients: neither the content of the rows nor their place on the disk reveals the steps of a
        client in the block.
        """
        if block_ends <= step + 1:
            self._changed("DELETE FROM turns")
            return
        before, checked_in = self._counts_by_client(), self.arrived(step)
        shards = -(-self.invited() // SHARD_CLIENTS)
        used = np.zeros(shards * SHARD_CLIENTS, COUNT_DTYPE)
        used[: before.size] = before
        used[checked_in] += 1
        rows = [
            (number, block_ends, part.tobytes())
            for number, part in enumerate(used.reshape(shards, SHARD_CLIENTS))
        ]
        if rows:
            self._run(self._connection.many, _WRITE_COUNTS, rows)

    def _delete_participants(self, step: int) -> None:
        """Delete the check-ins, the requests and the encryption key of a released step."""
        for table in ("check_ins", "asked", "step_keys"):
            self._changed(f"DELETE FROM {table} WHERE step = ?", step)
        self._open = None

    def _body_number(self) -> int:
        """Number of the next stored update, unique because only one writer is active."""
        number = self._next_body
        if number is None:
            number = int(self._value("SELECT coalesce(max(id) + 1, 0) FROM bodies"))
            self._next_body = number
        return number

    def _store_body(self, participation: ParticipationRow, body: bytes) -> None:
        """Store an update, encrypted with the key of its step."""
        number, client, step = self._body_number(), participation.client, int(participation.step)
        if self._open is None or self._open[0] != step:
            self._open = step, self._seal(step) or self._new_seal(step)
        assert participation.digest is not None
        sealed = self._open[1].encrypt(client, participation.digest, body)
        self._insert_part("bodies (id, step, body)", number, step, sealed)
        self._next_body = number + 1

    def _new_seal(self, step: int) -> interface.Seal:
        """Cipher with a new key for a step's updates; the key is stored."""
        key = interface.new_key()
        self._insert_part("step_keys (step, key)", step, key)
        return interface.Seal(key)

    def _insert(self, columns: str, *values: Any, conflict: str) -> None:
        """Insert one row; a contradicting stored row is an error with the text ``conflict``."""
        if self._changed(_insert(columns), *values) != 1:
            raise ConflictError(conflict)

    def _insert_part(self, columns: str, *values: Any) -> None:
        """Insert a row that belongs to a new row of another table; an existing row means damage."""
        if self._changed(_insert(columns), *values) != 1:
            self.broken = True
            raise StorageError(
                "the database is damaged: it already has data of a new row; restore a copy"
            )

    def _changed(self, sql: str, *parameters: Any, needs: Rights = Rights.SERVE) -> int:
        """Run an SQL statement; return the number of changed rows."""
        self._require(needs)
        return self._run(self._connection.changed, sql, parameters)


def _insert(columns: str) -> str:
    """SQL statement that inserts one row; ``columns`` has the table and its columns."""
    places = ", ".join("?" * (columns.count(",") + 1))
    return f"INSERT INTO {columns} VALUES ({places}) ON CONFLICT DO NOTHING"


def _require_costs(record: Record) -> None:
    """Refuse an ε or δ that is negative, infinite, NaN or -0.0 (which may be read back as 0.0)."""
    costs = (record.epsilon, record.delta)
    if not all(0.0 <= cost < math.inf and math.copysign(1.0, cost) > 0 for cost in costs):
        raise StorageError(
            f"epsilon = {record.epsilon}, delta = {record.delta}: expected finite numbers from 0"
        )
