"""The durable state file of one device, and the lock that keeps it to one process.

Written to a file beside it, synced, renamed, and the folder synced: whoever kills the process or
pulls the plug finds the old contents or the new ones, whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from turnout.core.errors import StorageError
from turnout.core.files import lock_file, sync_folder
from turnout.randomness import Source
from turnout.service.device.memory import Memory
from turnout.service.wire import Invitation

_MODE = 0o600


class StateFile:
    """One file that is replaced as a whole, and a lock file beside it.

    The lock is the operating system's: it goes with the process, however that ends.

    Args:
        path: of the file.
        synced: whether contents outlive a power cut. Without, they outlive the process only: for
            trials in which one disk stands for those of many devices.

    Raises:
        StorageError: (on entering) another process uses it, or the folder cannot be written.
    """

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        self._path, self._synced = path, synced
        self._lock: int | None = None

    def __enter__(self) -> Self:
        lock_path = self._path.with_name(self._path.name + ".lock")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = lock_file(lock_path, wait=False)
        except OSError as error:
            taken = isinstance(error, BlockingIOError)
            reason = "another process uses it" if taken else _reason(error)
            raise StorageError(f"state file {self._path}: {reason}") from None
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load(self) -> bytes | None:
        """The state that was stored last; None where nothing ever was."""
        self._require_lock()
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"state file {self._path}: {_reason(error)}") from None

    def store(self, data: bytes) -> None:
        """Replace the contents; on return they are durable.

        Raises:
            StorageError: they may not be; the caller must not act on them.
        """
        self._require_lock()
        partial = self._path.with_name(self._path.name + ".partial")
        try:
            _write(partial, data, self._synced)
            os.replace(partial, self._path)
            if self._synced:
                sync_folder(self._path.parent)
        except OSError as error:
            raise StorageError(f"state file {self._path}: {_reason(error)}") from None

    def _require_lock(self) -> None:
        if self._lock is None:
            raise StorageError(f"state file {self._path} is not open")


class Diary:
    """A device's memory together with the file that holds it.

    Guarantees:
        There is a memory only once it is durable: slots are drawn and stored before this is
        built, and never drawn a second time.

    Raises:
        StorageError: the file is damaged, or of another task or client.
        ParameterError: the invitation's law or id is none.
    """

    def __init__(
        self, file: StateFile, invitation: Invitation, source: Source | None = None
    ) -> None:
        self._file = file
        data = file.load()
        if data is None:
            self.memory = Memory.drawn(invitation, source)
            self.keep()
        else:
            self.memory = Memory.decoded(data)
            self.memory.require(invitation)

    def keep(self) -> None:
        """Make the memory durable as it is now."""
        self._file.store(self.memory.encoded())


def default_place(invitation: Invitation) -> Path:
    """The default file of a device's state: one for each user, task and client.

    ``$XDG_STATE_HOME/turnout/``, else ``~/.local/state/turnout/``.
    """
    base = os.environ.get("XDG_STATE_HOME")
    folder = Path(base) if base else Path.home() / ".local" / "state"
    return place_in(folder / "turnout", invitation)


def place_in(folder: Path, invitation: Invitation) -> Path:
    """The state file of one device in a folder of many."""
    return folder / f"{invitation.task[:16]}-{invitation.client}.json"


def _write(path: Path, data: bytes, synced: bool) -> None:
    """A new file of its owner's alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(path, flags, _MODE), "wb") as file:
        os.fchmod(file.fileno(), _MODE)
        file.write(data)
        file.flush()
        if synced:
            os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    """Why, as the end of a sentence."""
    return (error.strerror or type(error).__name__).lower()
