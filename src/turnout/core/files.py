"""Atomic and durable writes of files, and locks that prevent two processes from writing at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from turnout.core.errors import StorageError, UnsupportedError

PLAN = "plan.toml"
"""Name of the plan in the folder of a run."""
SIMULATOR = "simulator"
"""Name of the subfolder of a run for facts that only the simulation knows: not for release."""

try:
    import fcntl
except ModuleNotFoundError:
    fcntl = None


def lock_descriptor(descriptor: int, *, wait: bool) -> None:
    """Acquire the exclusive lock of an open file; closing the descriptor releases the lock.

    Raises:
        BlockingIOError: another process has the lock, and ``wait`` is false.
        UnsupportedError: the system has no such locks (Windows).
    """
    if fcntl is None:
        raise UnsupportedError("files cannot be locked on this system, because it has no flock")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def lock_file(path: Path, *, wait: bool) -> int:
    """Descriptor of a file that this call locks exclusively; errors are as in `lock_descriptor`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock_descriptor(descriptor, wait=wait)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Context with the lock of a file; other processes wait for the lock until the context ends.

    Raises:
        StorageError: the file cannot be locked.
    """
    try:
        descriptor = lock_file(path.with_name(path.name + ".lock"), wait=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be locked: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, write: Callable[[BinaryIO], object], what: str, mode: int) -> None:
    """Replace a file atomically: after a crash the file has the old or the new content.

    Args:
        path: path of the file, in a folder that exists.
        write: function that writes the content to the open file that it is given.
        what: description of the content in errors, such as "checkpoint".
        mode: permissions of the file; the process's mask reduces them.

    Raises:
        StorageError: the file cannot be written; it is then unchanged.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)  # whatever its permissions were
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: {what} cannot be written: {error.strerror or error}"
        ) from error


def write(path: Path, data: str | bytes) -> None:
    """Write a file atomically and create its folders; text is encoded in UTF-8.

    Raises:
        StorageError: the file cannot be written; it is then unchanged.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(data.encode() if isinstance(data, str) else data)
        os.replace(fresh, path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable; on Windows nothing is needed."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
