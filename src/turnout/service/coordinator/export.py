"""Export of a ledger and of its models as files (docs/ledger.md).

`export_ledger` writes the file that `turnout.verification` checks without this service;
`export_models` writes the parameters of each release.
"""

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
    """Lines of an exported ledger, each with its line feed: charter, records, signed ledger head.

    A ledger is refused if its chain of records is broken or the stored signing key is not the
    charter's.

    Args:
        transaction: transaction of a snapshot, so that all lines describe the same moment.

    Raises:
        StorageError: there is no task, the chain of records is broken, or the stored key is not
            the charter's.
    """
    data = transaction.charter()
    if data is None:
        raise StorageError("there is no task in this database; name the database of a task")
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
    """Write the ledger to a file, which is replaced as a whole.

    After an interruption the file has either the old contents or the complete new contents.

    An exported ledger head can reveal a restored backup, so an existing export is overwritten only
    by a ledger that continues the exported one.

    Args:
        transaction: transaction of a snapshot.
        path: a new file, or an earlier export of the same ledger.

    Raises:
        StorageError: the ledger is refused by `ledger_lines`, the existing file is not an earlier
            export of this ledger, or the file cannot be written.
    """
    lines = list(ledger_lines(transaction))
    if path.exists() and not _continues(lines, path.read_bytes()):
        raise StorageError(
            f"{path} is not an earlier export of this ledger; verify both ledgers, or name another "
            "file"
        )
    _write_file(path, b"".join(lines))


def _continues(lines: list[bytes], before: bytes) -> bool:
    """Whether a file is empty or an earlier export of the same ledger."""
    if not before:
        return True
    *same, last = before.splitlines(keepends=True)
    if not same or same != lines[:-1][: len(same)]:
        return False
    task = lines[0].removeprefix(_CHARTER).removesuffix(_CHARTER_END)
    digest = hashlib.sha256(same[-1][:-1] if len(same) > 1 else task).hexdigest()
    return last.startswith(f'{{"head":"{len(same) - 1}:{digest}",'.encode("ascii"))


def export_models(transaction: Transaction, folder: Path) -> int:
    """Write the initial model and the model after every step; return the number of models.

    The files are ``initial.f32``, ``step-000000.f32`` …; each contains the parameters as
    little-endian float32. An existing file must have the same content.

    Raises:
        StorageError: a release is missing, or an existing file has another content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_model(folder / "initial.f32", transaction.initial_parameters())
    count = 1
    for record in transaction.records():
        release = transaction.release_at(record.step)
        if release is None:
            raise StorageError(f"the model of step {record.step} is missing")
        _write_model(folder / f"step-{record.step:06d}.f32", release.parameters)
        count += 1
    return count


def _write_model(path: Path, data: bytes) -> None:
    """Write a model file, unless the file exists with equal content."""
    if not path.exists():
        _write_file(path, data)
    elif path.read_bytes() != data:
        raise StorageError(
            f"{path} has other contents than the released model; name another folder"
        )


def _write_file(path: Path, data: bytes) -> None:
    """Write a file durably, through a synced temporary file that is then renamed."""
    # The temporary file is in the same folder, so that the renaming is atomic.
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
        # Syncing the folder makes the new name durable.
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None
