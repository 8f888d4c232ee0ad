"""A ledger as a file that anybody can verify without us (docs/ledger.md)."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from turnout.core.errors import StorageError
from turnout.core.files import sync_folder
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head, SigningKey, require_chain
from turnout.service.contract.wire import head_bytes
from turnout.service.storage.writes import Transaction

_CHARTER, _CHARTER_END = b'{"charter":', b"}\n"


def ledger_lines(transaction: Transaction) -> Iterator[bytes]:
    """The lines of the file, each with its line feed: charter, records, signed head.

    The transaction is that of a snapshot, so that all lines are of one moment.

    Raises:
        StorageError: no task, a broken chain, or a key that is not the charter's: a ledger
            that would not verify is not written.
    """
    data = transaction.charter()
    if data is None:
        raise StorageError("there is no task in this database")
    charter = Charter.from_canonical(data)
    key = SigningKey(transaction.signing_key())
    if key.public != charter.coordinator_key:
        raise StorageError("the signing key in this database is not the charter's")
    yield _CHARTER + data + _CHARTER_END
    head = Head(0, bytes.fromhex(charter.task))
    for record in transaction.records():
        head = require_chain(charter.task, head, record)
        yield record.canonical() + b"\n"
    fields = {"head": str(head), "signature": key.sign(head_bytes(charter.task, head)).hex()}
    yield json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def export_ledger(transaction: Transaction, path: Path) -> None:
    """Writes the ledger to a file: whoever stops it finds the old one or the new one whole.

    Raises:
        StorageError: as `ledger_lines`, or the file there is not an earlier export of the same
            ledger. Exported heads are what tells a restored backup apart: none is overwritten
            by something that does not continue it.
    """
    lines = list(ledger_lines(transaction))
    if path.exists() and not _continues(lines, path.read_bytes()):
        raise StorageError(
            f"{path} is not an earlier export of this ledger; verify both, or name another file"
        )
    _written(path, b"".join(lines))


def _continues(lines: list[bytes], before: bytes) -> bool:
    """Whether a file is empty or holds the first of these lines, and a head after them."""
    if not before:
        return True
    *same, last = before.splitlines(keepends=True)
    if not same or same != lines[:-1][: len(same)]:
        return False
    task = lines[0].removeprefix(_CHARTER).removesuffix(_CHARTER_END)
    digest = hashlib.sha256(same[-1][:-1] if len(same) > 1 else task).hexdigest()
    return last.startswith(f'{{"head":"{len(same) - 1}:{digest}",'.encode("ascii"))


def export_models(transaction: Transaction, folder: Path) -> int:
    """Writes the first model and the one after every step; those already there must be the same.

    How many belong to the ledger is returned: ``initial.f32``, ``step-000000.f32`` …, each the
    parameters as little-endian float32.

    Raises:
        StorageError: a release is missing, or a file there holds something else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _kept(folder / "initial.f32", transaction.initial_parameters())
    count = 1
    for record in transaction.records():
        release = transaction.release_at(record.step)
        if release is None:
            raise StorageError(f"the model of step {record.step} is missing")
        _kept(folder / f"step-{record.step:06d}.f32", release.parameters)
        count += 1
    return count


def _kept(path: Path, data: bytes) -> None:
    if not path.exists():
        _written(path, data)
    elif path.read_bytes() != data:
        raise StorageError(f"{path} is another model than the one released; name another folder")


def _written(path: Path, data: bytes) -> None:
    """A file beside its place, synced, renamed, and the folder synced."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None
