"""Arrays as memory-mapped files in the user's cache, found again by what they were made of.

They are a copy, or a function, of private data. Their folder can be read by its owner alone, and
is kept until somebody deletes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from turnout.core.errors import StorageError, TurnoutError
from turnout.core.files import locked, sync_folder
from turnout.core.showing import shows_shapes
from turnout.datasets.files import cache_folder

FORMAT = 1
"""Of the files below; another one's are not read."""
_ABOUT = "about.json"

Allocate = Callable[[str, np.dtype[Any], tuple[int, ...]], NDArray[Any]]
"""Makes the array to write, by its name, type and shape."""


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The contents of a shelf.

    Attributes:
        arrays: by name; copied where they are written to, so that PyTorch shares their memory.
        about: what else is to be known of them, JSON-ready.
    """

    arrays: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Shelf:
    """The place of some arrays.

    Attributes:
        folder: named by what they are made of.
    """

    folder: Path
    _partial: Path = field(init=False)

    @classmethod
    def of(cls, room: str, made_of: object) -> Shelf:
        """The place of what is made of something, in JSON-ready values, in a room of the cache."""
        text = json.dumps([FORMAT, made_of], sort_keys=True, ensure_ascii=True)
        return cls(
            cache_folder() / room / hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        )

    def __post_init__(self) -> None:
        self._partial = self.folder.with_name(self.folder.name + ".partial")

    def kept(self) -> Kept | None:
        """The contents; None for nothing, or for what cannot be read."""
        try:
            about = json.loads((self.folder / _ABOUT).read_text("utf-8"))
            arrays = {name: _mapped(self.folder / f"{name}.npy") for name in about["arrays"]}
            return Kept(arrays, about["about"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, make: Callable[[Allocate], Kept]) -> tuple[Kept, bool]:
        """The contents, and whether they were made now; of two processes one makes them.

        Args:
            make: makes it, its arrays by the function that it is given.

        Raises:
            StorageError: it cannot be written, for want of room for instance.
        """
        if (found := self.kept()) is not None:
            return found, False
        make_room(self.folder.parent)
        with locked(self.folder):
            if (found := self.kept()) is not None:
                return found, False
            with self._cleared():
                self._write(make(self._allocate))
                self.clear()
                os.rename(self._partial, self.folder)
                sync_folder(self.folder.parent)
        found = self.kept()
        if found is None:
            raise StorageError(f"{self.folder} is gone since it was written")
        return found, True

    def clear(self) -> None:
        """Nothing is there any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

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
                raise StorageError(f"{self.folder}: not written: {reason}") from error
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

    def _write(self, kept: Kept) -> None:
        """The arrays that are no files yet, and the rest."""
        for name, array in kept.arrays.items():
            if isinstance(array, np.memmap):
                array.flush()
            elif not (self._partial / f"{name}.npy").exists():
                np.save(self._partial / f"{name}.npy", array)
        about = {"arrays": list(kept.arrays), "about": kept.about}
        (self._partial / _ABOUT).write_text(json.dumps(about), "utf-8")


def _mapped(path: Path) -> NDArray[Any]:
    array = np.load(path, mmap_mode="c") if path.stat().st_size > 2**12 else np.load(path)
    return np.asarray(array)


def make_room(folder: Path) -> None:
    """Makes a folder of the cache, for its owner alone.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.strerror or error} (XDG_CACHE_HOME names another place)"
        raise StorageError(f"{folder} cannot be made: {reason}") from error
