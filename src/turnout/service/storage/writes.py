"""What can be written in a transaction: one SQL text for SQLite and Postgres."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.service.ledger import Record, require_chain
from turnout.service.storage.interface import (
    ConflictError,
    Event,
    Participation,
    Release,
    Scored,
    WitnessReceipt,
)
from turnout.service.storage.reads import Reads, Rights


class Writes(Reads):
    """`interface.Transaction` over SQL.

    A `ConflictError` leaves the transaction as it was; after any other error in a statement it
    can only be undone, in SQLite as in Postgres.
    """

    def found(self, charter: bytes, signing_key: bytes, parameters: bytes) -> None:
        """See `interface.Transaction`."""
        columns = "task (id, charter, signing_key, parameters)"
        self._insert(columns, 1, charter, signing_key, parameters, conflict="there is a task")

    def invite(self, secret_digests: Sequence[bytes]) -> int:
        """See `interface.Transaction`."""
        self._require(Rights.INVITE)
        first = self.invited()
        rows = list(enumerate(secret_digests, first))
        sql = "INSERT INTO invitations (client, secret_digest) VALUES (?, ?)"
        try:
            if rows:
                self._session.many(sql, rows)
        except BaseException:
            self.broken = True
            raise
        return first

    def enrol(self, client: int, public_key: bytes) -> None:
        """See `interface.Transaction`. A second time with the same key changes nothing."""
        self._require(Rights.SERVE)
        invitation = self.invitation(client)
        if invitation is None:
            raise ConflictError("there is no such invitation")
        if invitation.public_key == public_key:
            return
        used = "the invitation was used with another key"
        self._insert("enrolments (client, public_key)", int(client), public_key, conflict=used)

    def check_in(self, participation: Participation, body: bytes | None) -> None:
        """See `interface.Transaction`."""
        p = participation
        if (p.digest is None) is not (body is None):
            raise StorageError("an update and its digest are stored together")
        self._insert(
            "participations (step, client, block, turn, digest)",
            int(p.step),
            int(p.client),
            int(p.block),
            int(p.turn),
            p.digest,
            conflict="a check-in of that step or turn is stored",
        )
        if body is not None:
            self._store_body(p.step, p.client, body)

    def answer(self, client: int, step: int, digest: bytes, body: bytes) -> None:
        """See `interface.Transaction`."""
        self._require(Rights.SERVE)
        participation = self.participation_at(client, step)
        if participation is None:
            raise ConflictError("nobody answers who did not check in")
        if participation.digest is not None:
            raise ConflictError("an update is stored")
        columns = "answers (step, client, digest)"
        self._insert(columns, int(step), int(client), digest, conflict="an update is stored")
        self._store_body(step, client, body)

    def ask(self, step: int, clients: NDArray[np.int64]) -> None:
        """See `interface.Transaction`."""
        ascending = np.unique(clients).astype("<i8")
        if ascending.size != np.size(clients):
            raise StorageError("nobody is asked twice")
        taken = "who is asked is stored"
        self._insert("asked (step, clients)", int(step), ascending.tobytes(), conflict=taken)

    def release(self, release: Release) -> None:
        """See `interface.Transaction`.

        Raises:
            ConflictError: the step is stored.
            StorageError: the record does not follow on the last one, is of another task, names a
                cost that is no cost, or the digest of other parameters.
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
        model = (release.parameters, release.optimizer_state, release.pending)
        columns = "models (step, parameters, optimizer_state, pending)"
        self._go_on(columns, step, *model)
        counts = (int(release.checked_in), int(release.served))
        self._go_on("counts (step, checked_in, served)", step, *counts)

    def forget_bodies(self, before_step: int, at_most: int) -> int:
        """See `interface.Transaction`."""
        self._require(Rights.SERVE)
        released = self._last_step()
        if released is None:
            return 0
        return self._changed(
            "DELETE FROM bodies WHERE (step, client) IN (SELECT step, client FROM bodies "
            "WHERE step < ? ORDER BY step, client LIMIT ?)",
            min(int(before_step), released + 1),
            int(at_most),
        )

    def keep_receipt(self, receipt: WitnessReceipt) -> None:
        """See `interface.Transaction`."""
        values = receipt.witness_key, int(receipt.steps), receipt.signature
        self._changed(_insert("receipts (witness_key, steps, signature)"), *values)

    def score(self, scored: Scored) -> None:
        """See `interface.Transaction`."""
        accuracy, loss = (
            None if math.isnan(value) else float(value) for value in (scored.accuracy, scored.loss)
        )
        self._changed(_insert("scores (steps, accuracy, loss)"), int(scored.steps), accuracy, loss)

    def log(self, event: Event) -> None:
        """See `interface.Transaction`."""
        columns = _insert("events (at, level, text)")
        self._changed(columns, event.at, event.level, event.text, needs=Rights.INVITE)

    def _store_body(self, step: int, client: int, body: bytes) -> None:
        self._go_on("bodies (step, client, body)", int(step), int(client), body)

    def _insert(self, columns: str, *values: Any, conflict: str) -> None:
        """Insert one row.

        Raises:
            ConflictError: with the text ``conflict``, where a unique column is taken.
        """
        if self._changed(_insert(columns), *values) != 1:
            raise ConflictError(conflict)

    def _go_on(self, columns: str, *values: Any) -> None:
        """Insert a row that belongs to one just inserted; neither can stand alone."""
        if self._changed(_insert(columns), *values) != 1:
            self.broken = True
            raise StorageError("the database is damaged: it has parts of a row that is new")

    def _changed(self, sql: str, *parameters: Any, needs: Rights = Rights.SERVE) -> int:
        self._require(needs)
        try:
            return self._session.changed(sql, parameters)
        except BaseException:
            self.broken = True
            raise


def _insert(columns: str) -> str:
    """The statement for one row of a table that is given with its columns."""
    places = ", ".join("?" * (columns.count(",") + 1))
    return f"INSERT INTO {columns} VALUES ({places}) ON CONFLICT DO NOTHING"


def _require_costs(record: Record) -> None:
    """No NaN, no infinity, and no -0.0, which a database may give back as 0.0."""
    costs = (record.epsilon, record.delta)
    if not all(0.0 <= cost < math.inf and math.copysign(1.0, cost) > 0 for cost in costs):
        raise StorageError("a release must state what it costs")
