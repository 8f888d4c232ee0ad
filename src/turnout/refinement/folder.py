"""A folder with a public file and one key file an analyst.

Nothing is overwritten, key files can be read by their owner alone from the moment they exist,
and the public file appears last, whole: a folder without it holds no release.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from turnout.core.errors import StorageError
from turnout.refinement.release import Key, Release

PUBLIC = "public"
_PUBLIC_MODE, _KEY_MODE = 0o644, 0o600


def key_name(epsilon: float) -> str:
    """The name of the key file of a level: ``key-1`` for ε = 1."""
    return f"key-{epsilon!r}".removesuffix(".0")


def write_release(folder: Path, release: Release, keys: Sequence[Key]) -> list[Path]:
    """Writes all files and returns their paths, the public one first.

    Raises:
        StorageError: one of the files exists, or the folder cannot be written to.
    """
    paths = [folder / PUBLIC, *(folder / key_name(key.epsilon) for key in keys)]
    for path in paths:
        if path.exists():
            raise StorageError(f"{path} exists; a release is never overwritten")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, key in zip(paths[1:], keys, strict=True):
            _write(path, key.data, _KEY_MODE)
            written.append(path)
        partial = folder / f"{PUBLIC}.partial"
        _write(partial, release.data, _PUBLIC_MODE)
        written.append(partial)
        # Unlike a rename, a link fails where the name is taken.
        os.link(partial, paths[0])
        partial.unlink()
    except OSError as error:
        # A key without its public file opens nothing, but it is a secret: leave none behind.
        for path in written:
            path.unlink(missing_ok=True)
        raise StorageError(f"{error.filename or folder}: {error.strerror}") from None
    return paths


def read_release(path: Path) -> Release:
    """The release in a public file, or in the folder that holds it."""
    return Release.from_bytes(_content(path / PUBLIC if path.is_dir() else path), str(path))


def read_key(path: Path) -> Key:
    """The key in a file."""
    return Key.from_bytes(_content(path), str(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None


def _write(path: Path, data: bytes, mode: int) -> None:
    """A new file, whole or not at all."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
