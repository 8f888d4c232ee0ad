"""Layouts as memory-mapped files in the user's cache, found again by what they were made of.

A layout is a copy of private data. Its folder can be read by its owner alone, and is kept until
somebody deletes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError, StorageError, TurnoutError
from turnout.core.files import locked, sync_folder
from turnout.datasets.files import cache_folder
from turnout.datasets.layout import Layout
from turnout.datasets.records import Target

FORMAT = 1
"""Of the files below; another one's are not read."""
_ABOUT = "about.json"
_BLOCK_BYTES = 2**20
_SETTLED_SECONDS = 2.0
"""A file that changed this short a time ago may change again without a new time of change."""

Tell = Callable[[str, int], object]


def layouts_folder() -> Path:
    """The folder of all layouts."""
    return cache_folder() / "layouts"


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
            _made(layouts_folder())
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


@dataclass(slots=True, eq=False)
class Shelf:
    """The place of one layout.

    Attributes:
        folder: named by what the layout is made of.
    """

    folder: Path
    _partial: Path = field(init=False)

    @classmethod
    def of(cls, made_of: object) -> Shelf:
        """The place of the layout that is made of something, in JSON-ready values."""
        text = json.dumps([FORMAT, made_of], sort_keys=True, ensure_ascii=True)
        return cls(layouts_folder() / hashlib.blake2b(text.encode(), digest_size=16).hexdigest())

    def __post_init__(self) -> None:
        self._partial = self.folder.with_name(self.folder.name + ".partial")

    def layout(self, make: Callable[[Callable[..., NDArray[Any]]], Layout]) -> tuple[Layout, bool]:
        """The layout, and whether it was made now; of two processes one makes it.

        Args:
            make: makes it, its arrays by the function that it is given.

        Raises:
            StorageError: it cannot be written, for want of room for instance.
        """
        if (found := self._opened()) is not None:
            return found, False
        _made(self.folder.parent)
        with locked(self.folder):
            if (found := self._opened()) is not None:
                return found, False
            with self._cleared():
                self._write(make(self._allocate))
                shutil.rmtree(self.folder, ignore_errors=True)
                os.rename(self._partial, self.folder)
                sync_folder(self.folder.parent)
        found = self._opened()
        if found is None:
            raise StorageError(f"{self.folder} is gone since it was written")
        return found, True

    def size_bytes(self) -> int:
        """The size of all its files."""
        return sum(file.stat().st_size for file in self.folder.iterdir())

    @contextmanager
    def _cleared(self) -> Iterator[None]:
        """An empty folder to write into, which is gone if anything fails."""
        try:
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(mode=0o700)
            yield
        except BaseException as error:
            with suppress(OSError):
                shutil.rmtree(self._partial)
            if isinstance(error, OSError) and not isinstance(error, TurnoutError):
                reason = error.strerror or error
                raise StorageError(f"{self.folder}: layout not written: {reason}") from error
            raise

    def _allocate(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """A memory-mapped array, whose room on the disk is taken before anything is written."""
        path = self._partial / f"{name}.npy"
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size == 0:
            array = np.empty(shape, dtype)
            np.save(path, array)
            return array
        with path.open("wb") as file:
            header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(file, header)
            file.flush()
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), file.tell(), size)
            else:
                file.truncate(file.tell() + size)
        return np.load(path, mmap_mode="r+")

    def _write(self, layout: Layout) -> None:
        """The rest of the layout, and what it is."""
        for name, array in layout.arrays.items():
            if isinstance(array, np.memmap):
                array.flush()
            elif not (self._partial / f"{name}.npy").exists():
                np.save(self._partial / f"{name}.npy", array)
        about = {
            "arrays": list(layout.arrays),
            "target": layout.target.value,
            "outputs": layout.outputs,
            "names": list(layout.names),
        }
        (self._partial / _ABOUT).write_text(json.dumps(about), "utf-8")

    def _opened(self) -> Layout | None:
        """The layout that is there; None for none, or for one that cannot be read.

        Its arrays are copied where they are written to, so that PyTorch shares their memory.
        """
        try:
            about = json.loads((self.folder / _ABOUT).read_text("utf-8"))
            arrays = {name: _mapped(self.folder / f"{name}.npy") for name in about["arrays"]}
            target, names = Target(about["target"]), tuple(about["names"])
            return Layout(arrays, target, int(about["outputs"]), names)
        except (OSError, ValueError, KeyError, TypeError, ParameterError):
            return None


def _mapped(path: Path) -> NDArray[Any]:
    array = np.load(path, mmap_mode="c") if path.stat().st_size > 2**12 else np.load(path)
    return np.asarray(array)


def _made(folder: Path) -> None:
    """Makes the folder of layouts, for its owner alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.strerror or error} (XDG_CACHE_HOME names another place)"
        raise StorageError(f"{folder} cannot be made: {reason}") from error
