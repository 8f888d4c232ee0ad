"""Files that outlive a power cut, and locks on them; where the system has no ``flock``, no lock."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from turnout.core.errors import UnsupportedError

try:
    import fcntl
except ModuleNotFoundError:
    fcntl = None


def lock_file(descriptor: int, *, wait: bool) -> None:
    """Takes the exclusive lock of an open file; closing the descriptor gives it back.

    Raises:
        BlockingIOError: another process has it, and ``wait`` is false.
        UnsupportedError: the system has no such locks (Windows).
    """
    if fcntl is None:
        raise UnsupportedError("files cannot be locked on this system: it has no flock")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def sync_folder(folder: Path) -> None:
    """Makes a rename in a folder durable; Windows does so by itself, and opens no folder."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
