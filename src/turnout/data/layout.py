"""Layout of a table: its records sorted by client, as memory-mapped arrays in the user's cache.

`lay_out` sorts records by client, so that each client's records are consecutive. `kept_layout`
returns the cached layout of the same files with the same settings. A `Shelf` is an entry of the
cache.

Cached arrays are a copy, or a function, of private data. Only the owner can read the folder of the
arrays, and it is kept until the owner deletes it.

The table is read in **two passes**, in batches. The first pass counts each client's rows, so that
the second pass knows the place of each row. Writing rows to random places of a large file is slow.
So the array is divided into *sections* that fit into memory. A row is first written to the next
free place of its section, and at the end each section is sorted. If the arrays are files, memory
holds the clients' ids and counts, four bytes for each row, and one section.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError, StorageError, TurnoutError
from turnout.core.files import locked, sync_folder
from turnout.core.showing import shows_shapes
from turnout.core.values import canonical
from turnout.data.encoding import Census, Encoder, Split, kinds_of, take_census
from turnout.data.files import cache_folder
from turnout.data.records import ClientData, PredictionTarget, Records
from turnout.data.tables import Kind, Table, TableBatch, columns_of
from turnout.learning.holdings import Holdings
from turnout.plans.data_sections import DataSection

FORMAT = 1
"""Version of the format of cache entries; entries of another version are not read."""
_ABOUT = "about.json"

Allocate = Callable[[str, np.dtype[Any], tuple[int, ...]], NDArray[Any]]
"""Function that creates an array from its name, type and shape."""


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class ShelfContents:
    """Arrays of a cache entry, and JSON-ready facts about the arrays.

    Attributes:
        arrays: arrays by name, copied on write, so that PyTorch can share their memory.
        about: further facts about the arrays, JSON-ready.
    """

    arrays: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Shelf:
    """Entry of the cache: a folder of arrays and of JSON-ready facts about the arrays.

    Attributes:
        folder: path of the entry, named by a hash of the values that describe the contents.
    """

    folder: Path
    _partial: Path = field(init=False)

    @classmethod
    def of(cls, room: str, made_of: object) -> Shelf:
        """Cache entry in the folder ``room``, named by a hash of the description ``made_of``."""
        text = json.dumps([FORMAT, made_of], sort_keys=True, ensure_ascii=True)
        return cls(
            cache_folder() / room / hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        )

    def __post_init__(self) -> None:
        self._partial = self.folder.with_name(self.folder.name + ".partial")

    def kept(self) -> ShelfContents | None:
        """Stored contents of the cache entry; None if they do not exist or cannot be read."""
        try:
            about = json.loads((self.folder / _ABOUT).read_text("utf-8"))
            arrays = {name: _mapped(self.folder / f"{name}.npy") for name in about["arrays"]}
            return ShelfContents(arrays, about["about"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, make: Callable[[Allocate], ShelfContents]) -> tuple[ShelfContents, bool]:
        """Contents of the cache entry, and whether this call created them.

        Several processes may call this method at once; only one of them creates the contents.

        Args:
            make: function that creates the contents; it is given a function that creates arrays.

        Raises:
            StorageError: the contents cannot be written, for example because the disk is full.
        """
        # Contents that exist are used without a lock.
        if (found := self.kept()) is not None:
            return found, False
        make_room(self.folder.parent)
        # Only one process makes the contents; the others wait and then use them.
        with locked(self.folder):
            if (found := self.kept()) is not None:
                return found, False
            # A crash leaves no half-written contents: the complete folder is renamed.
            with self._cleared():
                self._write(make(self._allocate))
                self.clear()
                os.rename(self._partial, self.folder)
                sync_folder(self.folder.parent)
        # Read the contents back as memory-mapped arrays.
        found = self.kept()
        if found is None:
            raise StorageError(
                f"cache folder {self.folder} was deleted by another process: run the command again"
            )
        return found, True

    def clear(self) -> None:
        """Delete the folder of the cache entry."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def size_bytes(self) -> int:
        """Total size of all files of the cache entry, in bytes."""
        return sum(file.stat().st_size for file in self.folder.iterdir())

    @contextmanager
    def _cleared(self) -> Iterator[None]:
        """Context with an empty folder for new files; the folder is deleted on any error."""
        try:
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(mode=0o700)
            yield
        except BaseException as error:
            with suppress(OSError):
                shutil.rmtree(self._partial)
            if isinstance(error, OSError) and not isinstance(error, TurnoutError):
                reason = error.strerror or error
                raise StorageError(f"{self.folder} cannot be written: {reason}") from error
            raise

    def _allocate(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """New memory-mapped array, whose disk space is reserved at once."""
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

    def _write(self, kept: ShelfContents) -> None:
        """Write the facts, and the arrays that are not yet files of the cache entry."""
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
    """Create a cache folder that only its owner can read.

    Raises:
        StorageError: the folder cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.strerror or error} (set XDG_CACHE_HOME to use another folder)"
        raise StorageError(f"{folder} cannot be created: {reason}") from error


SECTION_BYTES = 2**28
"""Largest number of bytes of an array that are sorted in memory at once."""
Tell = Callable[[str, int], object]
"""Progress callback, called with the name of the current activity and the number of rows done."""


def in_memory(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """New array in memory with the given type and shape; the ``name`` is not used."""
    return np.empty(shape, dtype)


def untold(what: str, rows: int) -> None:
    """Progress callback that ignores all reports."""


@shows_shapes("target", "outputs", "names")
@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Arrays of records sorted by client, with the settings of the columns.

    Attributes:
        arrays: ``inputs``, ``labels``, ``test-inputs`` and ``test-labels``. If a column names the
            client, also ``offsets``: the start of each client's records, shape (clients + 1,).
    """

    arrays: Mapping[str, NDArray[Any]]
    target: PredictionTarget
    outputs: int
    names: tuple[str, ...]

    def client_data(self, section: DataSection) -> ClientData:
        """Data set made from the layout, with the [data] section of the plan."""
        arrays, holdings = self.arrays, None
        train = Records(arrays["inputs"], arrays["labels"])
        if "offsets" in arrays:
            holdings = Holdings(arrays["offsets"], np.arange(len(train)))
        test = Records(arrays["test-inputs"], arrays["test-labels"])
        said = (self.outputs, self.target, holdings, self.names)
        return ClientData(section.title, train, test, *said, section)


def lay_out(
    table: Table,
    data: DataSection,
    held_out: Table | None = None,
    allocate: Allocate = in_memory,
    tell: Tell = untold,
) -> Layout:
    """Layout of a table's records, sorted by client.

    Args:
        table: rows of the clients, and of the test set if ``data.test`` is a fraction or a column;
            the table is read twice.
        data: the columns and their public constants.
        held_out: separate table of the test set, if there is one.
        allocate: function that creates the arrays.
        tell: progress callback, called after each batch with the activity and the number of rows.

    Raises:
        ParameterError: a column is unknown, or a value does not fit the plan.
        StorageError: a file is damaged, or changes while it is read.
    """
    split = _checked_split(table, data, held_out)
    held = next(iter(kinds_of(data)))
    census = take_census(table, data.client, split, held, partial(tell, "counting rows"))
    encoder = _encoder(table, data)
    writer = _Writer(encoder, census, allocate)
    for batch in table.batches(kinds_of(data) | _placing(data.client, split)):
        writer.write(batch, tell)
    arrays = writer.finished()
    if held_out is not None:
        arrays |= _test_arrays(held_out, data, writer, tell)
    if data.client is not None:
        arrays["offsets"] = census.offsets
    return Layout(arrays, encoder.target, encoder.outputs(arrays["labels"]), encoder.names)


def all_records(table: Table, data: DataSection) -> Records:
    """Records of all clients of a table, in memory and in the order of the table.

    Raises:
        ParameterError: a column is unknown, or a value does not fit the plan.
    """
    _check_columns(table, data)
    encoder = _encoder(table, data)
    parts = [encoder.records(batch) for batch in table.batches(kinds_of(data))]
    inputs, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Records(inputs, labels)


def _checked_split(table: Table, data: DataSection, held_out: Table | None) -> Split:
    """Rule that holds out test rows, after a check that the table has all named columns."""
    columns_of(table, [data.client] if data.client is not None else [], "client")
    for one in (table, held_out):
        if one is not None:
            _check_columns(one, data)
    if held_out is not None:
        return Split()
    if isinstance(data.test, float):
        return Split(share=data.test)
    if data.test is None:
        raise ParameterError("test", None, "a fraction of the clients, a column or a test set")
    column = canonical(str(data.test))
    columns_of(table, [column], "test")
    return Split(column=column)


def _check_columns(table: Table, data: DataSection) -> None:
    columns_of(table, data.inputs or (), "inputs")
    columns_of(table, data.label or (), "label")


def _placing(client: str | None, split: Split) -> dict[str, Kind]:
    """Kinds of the columns that hold client ids and mark test rows, by column name."""
    kinds = {} if client is None else {client: Kind.TEXT}
    return kinds if split.column is None else {**kinds, split.column: Kind.TRUTH}


def _encoder(table: Table, data: DataSection) -> Encoder:
    """Encoder for a table, with the column types that the table's first rows have."""
    if data.stated_target is None and not table.typed:
        raise ParameterError(
            "target", None, "'class' (with classes), 'tags' or 'numbers': a CSV file has no types"
        )
    return Encoder(data, next(iter(table.batches(kinds_of(data)))))


class _Writer:
    """Writer of record batches into arrays; the first batch sets types and shapes."""

    def __init__(self, encoder: Encoder, census: Census, allocate: Allocate) -> None:
        self.allocate = allocate
        self._encoder, self._census = encoder, census
        self._free = census.offsets[:-1].copy()
        self._written = 0
        self._arrays: dict[str, NDArray[Any]] = {}

    def encoded(self, batch: TableBatch) -> dict[str, NDArray[Any]]:
        """Encoded inputs and labels of a batch, in the shapes of the first batch.

        Raises:
            ParameterError: the shapes differ.
        """
        inputs, labels = self._encoder.records(batch)
        parts: dict[str, NDArray[Any]] = {"inputs": inputs, "labels": labels}
        for name, part in parts.items():
            shape = self._arrays[name].shape[1:] if self._arrays else part.shape[1:]
            if part.shape[1:] != shape:
                raise ParameterError(name, part.shape[1:], f"arrays of one shape: {shape}")
        return parts

    def write(self, batch: TableBatch, tell: Tell) -> None:
        """Write the rows of a batch into the arrays."""
        # The first batch determines the types and shapes of the arrays.
        parts = self.encoded(batch)
        number, out = self._census.placed(batch)
        if not self._arrays:
            self._arrays = self._allocated(parts)
        try:
            # A training row goes to the next free position in the section of its final place; its
            # position within the section is stored, to sort the section at the end.
            places = _places(self._free, number[~out])
            now = _places(self._free_of_section, places // self._section_rows)
            self._order[now] = places % self._section_rows
            # Test rows are appended in the order of the table.
            end = self._written + int(np.count_nonzero(out))
            for name, part in parts.items():
                self._arrays[name][now] = part[~out]
                self._arrays[f"test-{name}"][self._written : end] = part[out]
        except (IndexError, ValueError):
            raise StorageError(
                "the data changed while they were read: run the command again"
            ) from None
        self._written = end
        tell("laying out rows", int(batch.rows[-1]) + 1)

    def _allocated(self, parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """New arrays for all rows, typed and shaped like ``parts``."""
        rows = self._census.train_rows
        row_bytes = max(1, *(part[:1].nbytes for part in parts.values()))
        self._section_rows = min(max(1, SECTION_BYTES // row_bytes), 2**32)
        self._free_of_section = np.arange(0, rows, self._section_rows)
        self._order = np.empty(rows, dtype=np.uint32)
        sides = (("", self._census.train_rows), ("test-", self._census.test_rows))
        return {
            key + name: self.allocate(key + name, part.dtype, (rows, *part.shape[1:]))
            for key, rows in sides
            for name, part in parts.items()
        }

    def finished(self) -> dict[str, NDArray[Any]]:
        """Finished arrays by name, after a check that every row was written.

        Returns:
            ``inputs`` and ``labels`` of the training rows, shape (training rows, …), sorted by
            client; ``test-inputs`` and ``test-labels``, shape (test rows, …), in the order of the
            table. Types and further dimensions are those of the first encoded batch.

        Raises:
            StorageError: this pass read fewer rows than the pass that counted the rows.
        """
        census = self._census
        if (self._free != census.offsets[1:]).any() or self._written != census.test_rows:
            raise StorageError("the data changed while they were read: run the command again")
        for start in range(0, census.train_rows, self._section_rows):
            section = slice(start, start + self._section_rows)
            order = self._order[section]
            if (order[1:] < order[:-1]).any():
                for name in ("inputs", "labels"):
                    _put_in_order(self._arrays[name][section], order)
        return self._arrays


def _put_in_order(held: NDArray[Any], order: NDArray[np.uint32]) -> None:
    """Move each row of one section, in place, to its final position ``order`` in the section."""
    ordered = np.empty_like(held, subok=False)
    ordered[order] = held
    held[:] = ordered


def _places(free: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Next free position for each row, in the range of positions with the index ``number``.

    ``free`` has the next free position of each range, and is updated.
    """
    order = np.argsort(number, kind="stable")
    clients, first, counts = np.unique(number[order], return_index=True, return_counts=True)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size) - np.repeat(first, counts)
    places = free[number] + rank
    free[clients] += counts
    return places


def _test_arrays(
    table: Table, data: DataSection, writer: _Writer, tell: Tell
) -> dict[str, NDArray[Any]]:
    """Input and label arrays of a separate test set."""
    rows = sum(len(batch) for batch in table.batches(kinds_of(data)))
    arrays: dict[str, NDArray[Any]] = {}
    start = 0
    for batch in table.batches(kinds_of(data)):
        for name, part in writer.encoded(batch).items():
            key = f"test-{name}"
            if start == 0:
                arrays[key] = writer.allocate(key, part.dtype, (rows, *part.shape[1:]))
            arrays[key][start : start + len(batch)] = part
        start += len(batch)
        tell("laying out the test set", start)
    if not start:
        raise ParameterError("test", "0 rows", "at least one row")
    return arrays


ROOM = "layouts"
"""Name of the folder of layouts in the cache folder."""
_BLOCK_BYTES = 2**20
_SETTLED_SECONDS = 2.0
"""Age below which the digest of a file is not stored: a further change may keep its timestamp."""


def layouts_folder() -> Path:
    """Cache folder that holds all layouts."""
    return cache_folder() / ROOM


def content_digest(path: Path, tell: Tell) -> str:
    """Hash of the contents of a file, or of the names and contents of a folder's files.

    Files are not read again if their names, sizes and modification times equal those of an earlier
    call.

    Raises:
        InputFileError: a file cannot be read.
    """
    try:
        # A digest that was stored for these names, sizes and times is used again.
        files = sorted(_files(path))
        signature = _signature(path, files)
        known = layouts_folder() / f"{signature}.digest"
        if known.is_file():
            return known.read_text("ascii")
        # Else all files are read; a file that changes meanwhile makes the digest invalid.
        digest = _digest_of(path, files, tell)
        newest = max(file.stat().st_ctime for file in files)
        if signature != _signature(path, files):
            raise InputFileError(f"{path} changed while it was read: run the command again")
        # A recent file could change again within the resolution of its time: store no digest.
        if newest < time.time() - _SETTLED_SECONDS:
            make_room(layouts_folder())
            known.write_text(digest, "ascii")
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest


def _files(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else iter((path,))


def _signature(path: Path, files: Sequence[Path]) -> str:
    """Hash of the names, sizes and modification times of files."""
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
    """Cached layout, its cache entry, and whether this call made the layout.

    Args:
        made_of: JSON-ready values that identify the files and settings of the layout.
        make: function that creates the layout; it is given a function that creates arrays.

    Raises:
        StorageError: the contents cannot be written, for example because the disk is full.
    """
    shelf = Shelf.of(ROOM, made_of)
    kept, made = shelf.keep(lambda allocate: _described(make(allocate)))
    about = kept.about
    said = (PredictionTarget(about["target"]), int(about["outputs"]), tuple(about["names"]))
    return Layout(kept.arrays, *said), shelf, made


def _described(layout: Layout) -> ShelfContents:
    said = {"target": layout.target.value, "outputs": layout.outputs, "names": list(layout.names)}
    return ShelfContents(layout.arrays, said)
