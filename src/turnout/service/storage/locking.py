"""One coordinator for one database file, whatever it is called."""

from __future__ import annotations

import os
from pathlib import Path

from turnout.core.errors import StorageError
from turnout.core.files import lock_descriptor

_OLDER_SUFFIX = "-serving"

_held: set[tuple[int, int]] = set()
"""Files that this process holds, by device and inode."""


class FileLock:
    """An exclusive ``flock`` on a database file's inode: links and bind mounts are the same file.

    It is taken before the first connection of SQLite and released after the last one. Closing
    any descriptor of a file drops the process's POSIX locks on it, SQLite's among them; that is
    also why a file that this process holds already is refused before it is opened.

    The file ``-serving`` beside it is what earlier versions lock, so it is locked as well.

    Args:
        path: of the database, without symbolic links; created, for this user alone, where there
            is none.
        existing: create nothing.

    Raises:
        StorageError: somebody else holds it, it has several hard links, or cannot be opened.
    """

    def __init__(self, path: Path, *, existing: bool = False) -> None:
        self._path = path
        self._descriptors: list[int] = []
        self._inode: tuple[int, int] | None = None
        create = 0 if existing else os.O_CREAT
        try:
            self._require_free()
            self._take(path, os.O_RDWR | create)
            found = os.fstat(self._descriptors[0])
            self._inode = found.st_dev, found.st_ino
            _held.add(self._inode)
            if found.st_nlink > 1:
                raise StorageError(
                    f"{path} has {found.st_nlink} hard links: SQLite keeps a log for each name, "
                    "and a name without its log is an old copy; leave one name"
                )
            self._take(path.with_name(path.name + _OLDER_SUFFIX), os.O_RDWR | os.O_CREAT)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others serve it."""
        if self._inode is not None:
            _held.discard(self._inode)
            self._inode = None
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _require_free(self) -> None:
        try:
            found = os.stat(self._path)
        except OSError:
            return  # opening it says what is wrong
        if (found.st_dev, found.st_ino) in _held:
            raise StorageError(f"another coordinator serves {self._path}")

    def _take(self, path: Path, flags: int) -> None:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}") from None
        self._descriptors.append(descriptor)
        try:
            lock_descriptor(descriptor, wait=False)
            if os.fstat(descriptor).st_ino != os.stat(path).st_ino:
                raise BlockingIOError
        except OSError:
            raise StorageError(f"another coordinator serves {self._path}") from None
