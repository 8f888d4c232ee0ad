"""Sample tasks, check-ins and releases for storage tests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from turnout.service.contract.ledger import Head, Record
from turnout.service.storage.database import Storage
from turnout.service.storage.interface import ParticipationRow, ReleaseRow
from turnout.service.storage.opening import open_storage
from turnout.service.storage.writes import Transaction

CHARTER, KEY, PARAMETERS = b'{"format":"a test"}', bytes(range(32)), b"parameters"
TASK = hashlib.sha256(CHARTER).hexdigest()
START = Head(0, bytes.fromhex(TASK))


def served(name: str | Path) -> Storage:
    return open_storage(name, serving=True)


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def key(client: int) -> bytes:
    return digest(b"key %d" % client)


def body(client: int, step: int, size: int = 40) -> bytes:
    return (b"update of %d at %d, " % (client, step)).ljust(size, b".")


def create_task(tx: Transaction, clients: int = 8) -> None:
    tx.create_task(CHARTER, KEY, PARAMETERS)
    tx.invite([digest(b"secret %d" % client) for client in range(clients)])
    for client in range(clients):
        tx.enrol(client, key(client))


def with_update(client: int, step: int) -> ParticipationRow:
    return ParticipationRow(client, step, digest(body(client, step)))


def check_in(tx: Transaction, client: int, step: int, *, quota: int = 1) -> None:
    tx.check_in(with_update(client, step), body(client, step), quota)


def release(before: Head, *, salt: bytes = b"", epsilon: float | None = None) -> ReleaseRow:
    """Next release after a ledger head; a different ``salt`` gives different noise."""
    step = before.steps
    parameters = np.full(4, step, "<f4").tobytes() + salt
    spent = 0.1 * (step + 1) if epsilon is None else epsilon
    sum_digest = digest(b"sum %d" % step + salt)
    record = Record(TASK, step, sum_digest, digest(parameters), spent, 1e-6, before.digest)
    return ReleaseRow(record, parameters, b"state", b"mechanism", 2, 1)


def released(tx: Transaction, steps: int, before: Head = START, *, block_steps: int = 100) -> Head:
    """Ledger head after ``steps`` more releases."""
    for _ in range(steps):
        after = release(before)
        tx.release(after, block_end(before.steps, block_steps))
        before = after.record.head
    return before


def block_end(step: int, block_steps: int) -> int:
    """First step after the window that contains ``step``."""
    return (step // block_steps + 1) * block_steps
