"""How far the ledger is, told outside of the storage: an old copy put back is noticed.

The file holds one signed head, as devices get it. It belongs on another disk than the database,
or into a backup of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

from turnout.core.errors import StorageError
from turnout.service.ledger import Head
from turnout.service.signatures import SigningKey, verified
from turnout.service.storage.interface import Transaction
from turnout.service.wire import SignedHead, head_bytes


def signed(task: str, head: Head, key: SigningKey) -> SignedHead:
    """The head with the coordinator's signature."""
    return SignedHead(head, key.sign(head_bytes(task, head)))


def export(path: Path, task: str, head: SignedHead) -> None:
    """Write the head durably in place of the one before.

    Raises:
        StorageError: it cannot be written.
    """
    beside = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{task} {head}\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StorageError(f"cannot write the head to {path}: {error.strerror}") from None


def require_no_exported(path: Path | None) -> None:
    """Nothing where no task was ever exported there.

    Raises:
        StorageError: there was one, and the database that should hold it is empty.
    """
    if path is not None and path.exists():
        raise StorageError(
            f"{path} tells of a task, but the database is empty: it was lost or replaced; a new "
            "task needs another --head-file"
        )


def require_not_older(
    path: Path, task: str, coordinator_key: bytes, view: Transaction, head: Head
) -> None:
    """Nothing where the stored ledger goes on from the exported head, or none was exported.

    Args:
        path: the file.
        task: the stored charter's digest.
        coordinator_key: the stored charter's.
        view: what is stored.
        head: of the stored ledger.

    Raises:
        StorageError: the database is an old copy, or the file is another task's or damaged.
    """
    try:
        words = path.read_text("ascii").split()
        named, exported = words[0], SignedHead.parsed(words[1])
    except FileNotFoundError:
        return
    except (OSError, ValueError, IndexError):
        raise StorageError(f"{path} does not hold a ledger's head") from None
    if named != task:
        raise StorageError(f"{path} holds the head of another task; give another --head-file")
    if not verified(coordinator_key, exported.signature, head_bytes(task, exported.head)):
        raise StorageError(f"the head in {path} does not bear this coordinator's signature")
    seen = exported.head
    if _digest_at(view, task, seen.steps, head) != seen.digest:
        raise StorageError(
            f"the database is an old copy: its ledger has {head.steps} releases, and {path} was "
            f"written after {seen.steps}, or after others; nothing may be released from it"
        )


def _digest_at(view: Transaction, task: str, steps: int, head: Head) -> bytes | None:
    """The stored ledger's digest after so many releases."""
    if not 0 <= steps <= head.steps:
        return None
    if steps == 0:
        return bytes.fromhex(task)
    return next(view.records(steps - 1)).digest
