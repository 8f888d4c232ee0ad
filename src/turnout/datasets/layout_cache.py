"""Layouts in the user's cache: found again by the contents of files and how they are read."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from turnout.core.errors import InputFileError
from turnout.datasets.array_cache import Allocate, Kept, Shelf, make_room
from turnout.datasets.files import cache_folder
from turnout.datasets.layout import Layout
from turnout.datasets.records import Target

ROOM = "layouts"
"""Of the cache."""
_BLOCK_BYTES = 2**20
_SETTLED_SECONDS = 2.0
"""A file that changed this short a time ago may change again without a new time of change."""

Tell = Callable[[str, int], object]


def layouts_folder() -> Path:
    """The folder of all layouts."""
    return cache_folder() / ROOM


def content_digest(path: Path, tell: Tell) -> str:
    """Digest of the contents of a file, or of all files below a folder and their names.

    Contents whose sizes and times of change are those of an earlier call are not read again.

    Raises:
        InputFileError: a file that cannot be read.
    """
    try:
        files = sorted(_files(path))
        signature = _signature(path, files)
        known = layouts_folder() / f"{signature}.digest"
        if known.is_file():
            return known.read_text("ascii")
        digest = _digest_of(path, files, tell)
        newest = max(file.stat().st_ctime for file in files)
        if signature != _signature(path, files):
            raise InputFileError(f"{path} changed while it was read")
        if newest < time.time() - _SETTLED_SECONDS:
            make_room(layouts_folder())
            known.write_text(digest, "ascii")
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest


def _files(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else iter((path,))


def _signature(path: Path, files: Sequence[Path]) -> str:
    """Digest of names, sizes and times of change."""
    digest = hashlib.blake2b(str(path.resolve()).encode(), digest_size=16)
    for file in files:
        found = file.stat()
        times = f"{found.st_mtime_ns}\0{found.st_ctime_ns}"
        digest.update(f"\0{file}\0{found.st_size}\0{times}".encode())
    return digest.hexdigest()


def _digest_of(path: Path, files: Sequence[Path], tell: Tell) -> str:
    digest, done = hashlib.blake2b(digest_size=16), 0
    for file in files:
        digest.update(f"\0{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as contents:
            while block := contents.read(_BLOCK_BYTES):
                digest.update(block)
                done += 1
                tell("reading MiB", done)
    return digest.hexdigest()


def kept_layout(made_of: object, make: Callable[[Allocate], Layout]) -> tuple[Layout, Shelf, bool]:
    """The layout that is made of something, its place, and whether it was made now.

    Args:
        made_of: JSON-ready values.
        make: makes it, its arrays by the function that it is given.

    Raises:
        StorageError: it cannot be written, for want of room for instance.
    """
    shelf = Shelf.of(ROOM, made_of)
    kept, made = shelf.keep(lambda allocate: _described(make(allocate)))
    about = kept.about
    said = (Target(about["target"]), int(about["outputs"]), tuple(about["names"]))
    return Layout(kept.arrays, *said), shelf, made


def _described(layout: Layout) -> Kept:
    said = {"target": layout.target.value, "outputs": layout.outputs, "names": list(layout.names)}
    return Kept(layout.arrays, said)
