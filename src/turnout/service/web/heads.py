"""File with the newest ledger head, outside the database, to detect a restored old copy.

A `HeadFile` has one signed ledger head, as devices get it, and the address of the database. The
file should be on another disk than the database, so that no backup restores both together.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from turnout.core.errors import ParameterError, StorageError
from turnout.core.files import locked, replace_file
from turnout.service.contract.ledger import Head, SigningKey, verified
from turnout.service.contract.wire import SignedHead, head_bytes
from turnout.service.coordinator.engine import SetBackError
from turnout.service.storage.addresses import place_of
from turnout.service.storage.writes import Transaction

_POSTGRES = ("postgres://", "postgresql://")
_MOST_BYTES = 1 << 16


def signed_head(task: str, head: Head, key: SigningKey) -> SignedHead:
    """Ledger head of a task, signed with the coordinator's key."""
    return SignedHead(head, key.sign(head_bytes(task, head)))


def default_folder() -> Path:
    """Default folder of head files, in the user's state folder and apart from the database.

    Raises:
        ParameterError: the user has no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:
        expected = "a file, since this user has no home folder"
        raise ParameterError("head_file", None, expected) from None
    return home / "turnout" / "heads"


def address_of(db: str) -> str:
    """Address of a database, without user and password."""
    if db.startswith(_POSTGRES):
        return place_of(db)
    return f"sqlite:{Path(db.removeprefix('sqlite:///')).resolve()}"


@dataclass(frozen=True, slots=True)
class HeadFileContent:
    """Content of a head file: task, signed ledger head, and address of the database."""

    task: str
    head: SignedHead
    address: str = ""

    def __str__(self) -> str:
        return f"{self.task} {self.head}\n{self.address}\n"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Content from the text of a head file.

        Raises:
            ValueError: the text has another form.
        """
        first, address, rest = text.split("\n")
        task, head = first.split(" ")
        if rest:
            raise ValueError("the file has more than two lines")
        return cls(task, SignedHead.parsed(head), address)


class HeadFile:
    """File outside the database that keeps the newest published ledger head.

    Guarantees:
        A ledger head replaces only the ledger head that this process read or wrote last.

    Args:
        path: path of the file.
        address: address of the database, which is written into the file.
        begin: whether to create the file, which must not exist yet.
    """

    def __init__(self, path: Path, address: str = "", *, begin: bool = False) -> None:
        self.path, self._address, self._begin = path, address, begin
        self._text: str | None = None

    def require_current(
        self, task: str, coordinator_key: bytes, view: Transaction, head: Head
    ) -> None:
        """Require that head file and stored ledger match, so that neither of them is an old copy.

        After a crash between commit and export, the file may be one release older than the ledger.

        Args:
            task: name of the task.
            coordinator_key: public key that verifies the file's signature.
            view: transaction of a snapshot of the stored ledger.
            head: ledger head of the stored ledger.

        Raises:
            StorageError: the database or the file is an old copy, or the file is missing, damaged,
                or another task's.
        """
        # The file's ledger head must be one of the stored ledger.
        self._text = _read(self.path)
        ledger = _StoredLedger(task, coordinator_key, view, head)
        there = ledger.written_after(self.path, self._text)
        if there is not None and self._begin:
            raise StorageError(
                f"{self.path} exists already: start without --new-head-file, which creates the file"
            )
        # It must be the newest one or the one before; only a new file or a new ledger has none.
        if there is not None and there < head.steps - 1:
            raise StorageError(
                f"{self.path} is an old copy: it was written after {there} releases, and the "
                f"ledger has {head.steps}; if no other file was restored, remove it and start once "
                "with --new-head-file"
            )
        if not self._begin and there is None and head.steps > 0:
            raise StorageError(
                f"the ledger has {head.steps} releases, but its head file {self.path} is missing: "
                "name the file with --head-file, or start once with --new-head-file if the file is "
                "lost"
            )

    def export(self, task: str, head: SignedHead) -> None:
        """Durably replace the ledger head in the file by a newer ledger head.

        Raises:
            SetBackError: the file changed since this process wrote it, so an old copy was restored
                or another coordinator writes the file.
            StorageError: the file cannot be read or written.
        """
        # The folder is created at the first export.
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{self.path}: the ledger head cannot be written: {error.strerror}"
            ) from None
        # Under a lock: the file must still be the one that this process wrote.
        with locked(self.path):
            if _read(self.path) != self._text:
                raise SetBackError(
                    f"{self.path} changed since this coordinator wrote it: an old copy was "
                    "restored, or another coordinator serves a copy of the task; nothing more may "
                    "be released"
                )
            text = str(HeadFileContent(task, head, self._address))
            replace_file(self.path, lambda file: file.write(text.encode()), "head", 0o644)
            self._text = text


def default_file(task: str) -> Path:
    """Default path of a task's head file."""
    return default_folder() / f"{task[:16]}.head"


def require_no_exported_head(path: Path | None, db: str) -> None:
    """Check that no head file names an empty database, whose data would have been lost.

    Args:
        path: head file that the settings name; None for the head files in the default folder.
        db: address of the database, which is empty.

    Raises:
        StorageError: a head file names a task of this database, so the database was lost.
    """
    known = [path] if path is not None and path.exists() else []
    if path is None:
        known += _head_files_of(address_of(db))
    if known:
        raise StorageError(
            f"{known[0]} names a task, but the database is empty: the database was lost or "
            "replaced; a new task needs another database, or another --head-file"
        )


def _head_files_of(address: str) -> list[Path]:
    """Paths of the head files in the default folder that name a database."""
    found: list[Path] = []
    folder = default_folder()
    for path in sorted(folder.glob("*.head")):
        with suppress(OSError, ValueError):
            if HeadFileContent.parsed(path.read_text("utf-8")).address == address:
                found.append(path)
    return found


def shares_a_file_system(path: Path, db: str) -> bool:
    """Whether a snapshot of one file system may contain both the head file and the database."""
    if db.startswith(_POSTGRES):
        return False
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    return (
        folder.stat().st_dev == Path(db.removeprefix("sqlite:///")).resolve().parent.stat().st_dev
    )


def _read(path: Path) -> str | None:
    """Text of a head file; None if the file does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except ValueError:
        raise StorageError(f"{path} does not contain a ledger head") from None
    except OSError as error:
        raise StorageError(f"cannot read the ledger head in {path}: {error.strerror}") from None


class _StoredLedger(NamedTuple):
    """Stored ledger of a task, to be compared with a head file."""

    task: str
    coordinator_key: bytes
    view: Transaction
    head: Head

    def written_after(self, path: Path, text: str | None) -> int | None:
        """Number of releases in the head file's ledger head; None if the file does not exist.

        Raises:
            StorageError: the file is damaged, belongs to another task or has no valid signature, or
                the stored ledger does not contain the file's ledger head.
        """
        if text is None:
            return None
        # The file must be this task's, with this coordinator's signature.
        try:
            exported = HeadFileContent.parsed(text)
        except ValueError:
            raise StorageError(f"{path} does not contain a ledger head") from None
        if exported.task != self.task:
            raise StorageError(
                f"{path} has the ledger head of another task; give another --head-file"
            )
        seen, signature = exported.head.head, exported.head.signature
        if not verified(self.coordinator_key, signature, head_bytes(self.task, seen)):
            raise StorageError(f"the ledger head in {path} has no signature of this coordinator")
        # The stored ledger must have had this ledger head.
        if self._digest_at(seen.steps) != seen.digest:
            raise StorageError(
                f"the database is an old copy: its ledger, of {self.head.steps} releases, does not "
                f"contain the ledger head in {path}, of {seen.steps} releases; nothing may be "
                "released from this copy"
            )
        return seen.steps

    def _digest_at(self, steps: int) -> bytes | None:
        """Digest of the stored ledger after ``steps`` releases; None if fewer are stored."""
        if not 0 <= steps <= self.head.steps:
            return None
        if steps == 0:
            return bytes.fromhex(self.task)
        return next(self.view.records(steps - 1)).digest
