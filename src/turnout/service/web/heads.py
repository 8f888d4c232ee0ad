"""The ledger's head, stored outside of the storage: an old copy put back is noticed.

The head file holds one signed head, as devices get it, and the address of the database. It belongs
on another disk than the database, so that no snapshot restores both.
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
    """The head with the coordinator's signature."""
    return SignedHead(head, key.sign(head_bytes(task, head)))


def default_folder() -> Path:
    """The folder of head files where none is named: the user's state, not the database's folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:
        raise ParameterError("head_file", None, "a file: this user has no home") from None
    return home / "turnout" / "heads"


def address_of(db: str) -> str:
    """The location of a database, without a user or a password."""
    if db.startswith(_POSTGRES):
        return place_of(db)
    return f"sqlite:{Path(db.removeprefix('sqlite:///')).resolve()}"


@dataclass(frozen=True, slots=True)
class Exported:
    """The content of a head file."""

    task: str
    head: SignedHead
    address: str = ""

    def __str__(self) -> str:
        return f"{self.task} {self.head}\n{self.address}\n"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """The head that ``str`` wrote; ValueError for anything else."""
        first, address, rest = text.split("\n")
        task, head = first.split(" ")
        if rest:
            raise ValueError("a head file has two lines")
        return cls(task, SignedHead.parsed(head), address)


class HeadFile:
    """The file that heads are exported to.

    Guarantees:
        A head is written only over the one that this process read or wrote last.

    Args:
        begin: the file is missing, and that is known.
    """

    def __init__(self, path: Path, address: str = "", *, begin: bool = False) -> None:
        self.path, self._address, self._begin = path, address, begin
        self._text: str | None = None

    def require_current(
        self, task: str, coordinator_key: bytes, view: Transaction, head: Head
    ) -> None:
        """Nothing where file and stored ledger belong together, and neither is an old copy.

        The file is one release behind at most: that is what a crash between commit and export
        leaves.

        Raises:
            StorageError: database or file is an old copy, or the file is missing, damaged, or
                another task's.
        """
        self._text = _read(self.path)
        ledger = _Ledger(task, coordinator_key, view, head)
        there = ledger.written_after(self.path, self._text)
        if there is not None and self._begin:
            raise StorageError(f"{self.path} is there: start without --new-head-file")
        if there is not None and there < head.steps - 1:
            raise StorageError(
                f"{self.path} is an old copy: it was written after {there} releases, and the "
                f"ledger has {head.steps}; if nothing else was put back, remove it and start once "
                "with --new-head-file"
            )
        if not self._begin and there is None and head.steps > 0:
            raise StorageError(
                f"the ledger has {head.steps} releases, and {self.path}, which should tell of "
                "them, is missing: name the file with --head-file, or start once with "
                "--new-head-file if it is lost"
            )

    def export(self, task: str, head: SignedHead) -> None:
        """Write the head durably in place of the one before.

        Raises:
            SetBackError: the file is not as this process left it: it was put back, or another
                coordinator writes it.
            StorageError: it cannot be read or written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self.path}: head not written: {error.strerror}") from None
        with locked(self.path):
            if _read(self.path) != self._text:
                raise SetBackError(
                    f"{self.path} is not as this coordinator left it: it was put back, or another "
                    "coordinator serves a copy of the task; nothing more may be released"
                )
            text = str(Exported(task, head, self._address))
            replace_file(self.path, lambda file: file.write(text.encode()), "head", 0o644)
            self._text = text


def default_file(task: str) -> Path:
    """The head file of a task where none is named."""
    return default_folder() / f"{task[:16]}.head"


def require_none_exported(path: Path | None, db: str) -> None:
    """Nothing where no head of a task at this address was ever exported.

    Raises:
        StorageError: there was a task, and the database that should hold it is empty.
    """
    known = [path] if path is not None and path.exists() else []
    if path is None:
        known += _of_address(address_of(db))
    if known:
        raise StorageError(
            f"{known[0]} tells of a task, but the database is empty: it was lost or replaced; a "
            "new task needs another database, or another --head-file"
        )


def _of_address(address: str) -> list[Path]:
    """Head files in the default folder that were written for a database."""
    found: list[Path] = []
    folder = default_folder()
    for path in sorted(folder.glob("*.head")):
        with suppress(OSError, ValueError):
            if Exported.parsed(path.read_text("utf-8")).address == address:
                found.append(path)
    return found


def shares_a_file_system(path: Path, db: str) -> bool:
    """Whether one snapshot may hold both a head file and the database."""
    if db.startswith(_POSTGRES):
        return False
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    return (
        folder.stat().st_dev == Path(db.removeprefix("sqlite:///")).resolve().parent.stat().st_dev
    )


def _read(path: Path) -> str | None:
    """A file's text; None where there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        return None
    except ValueError:
        raise StorageError(f"{path} does not hold a ledger's head") from None
    except OSError as error:
        raise StorageError(f"cannot read the head in {path}: {error.strerror}") from None


class _Ledger(NamedTuple):
    """The content of the file."""

    task: str
    coordinator_key: bytes
    view: Transaction
    head: Head

    def written_after(self, path: Path, text: str | None) -> int | None:
        """After how many releases a head file was written; None where there is none."""
        if text is None:
            return None
        try:
            exported = Exported.parsed(text)
        except ValueError:
            raise StorageError(f"{path} does not hold a ledger's head") from None
        if exported.task != self.task:
            raise StorageError(f"{path} holds the head of another task; give another --head-file")
        seen, signature = exported.head.head, exported.head.signature
        if not verified(self.coordinator_key, signature, head_bytes(self.task, seen)):
            raise StorageError(f"the head in {path} does not bear this coordinator's signature")
        if self._digest_at(seen.steps) != seen.digest:
            raise StorageError(
                f"the database is an old copy: its ledger has {self.head.steps} releases, and "
                f"{path} was written after {seen.steps}, or after others; nothing may be "
                "released from it"
            )
        return seen.steps

    def _digest_at(self, steps: int) -> bytes | None:
        """The stored ledger's digest after so many releases."""
        if not 0 <= steps <= self.head.steps:
            return None
        if steps == 0:
            return bytes.fromhex(self.task)
        return next(self.view.records(steps - 1)).digest
