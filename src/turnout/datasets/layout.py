"""A table laid out by client: each client's records side by side, so that holdings are ranges.

Two passes over the table, in batches. The first counts each client's rows, so that the second
knows each row's place. Rows written to places all over a file would have the disk seek; so a row
first goes to the next free place of its own *section* of the array, and at the end each section,
which fits into memory, is put in order. Where the arrays are files, memory holds the clients' ids
and counts, four bytes a row, and one section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError, StorageError
from turnout.datasets.array_cache import Allocate
from turnout.datasets.census import Census, Split, take_census
from turnout.datasets.encoding import Encoder, kinds_of
from turnout.datasets.records import ClientData, Records, Target
from turnout.datasets.tables import Batch, Kind, Table, columns_of
from turnout.learning.examples import Holdings
from turnout.plans.data_sections import DataSection

SECTION_BYTES = 2**28
"""Size of what is put in order in memory."""
Tell = Callable[[str, int], object]
"""Is called with what is done and the rows that are done."""


def in_memory(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """An array in memory."""
    return np.empty(shape, dtype)


def untold(what: str, rows: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Records by client, and what the columns were read as.

    Attributes:
        arrays: ``inputs``, ``labels``, ``test-inputs`` and ``test-labels``, and the ``offsets`` of
            the clients' records; these only where a column names the client.
    """

    arrays: Mapping[str, NDArray[Any]]
    target: Target
    outputs: int
    names: tuple[str, ...]

    def client_data(self, section: DataSection) -> ClientData:
        """The data set, which was read as a plan's [data] says."""
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
    """The records of a table by client.

    Args:
        table: the clients' rows, and those of the test set where ``data.test`` is a share or a
            column; it is read two times.
        data: the columns and their public constants.
        held_out: the test set, where it is a table of its own.
        allocate: makes the arrays.
        tell: is called after each batch.

    Raises:
        ParameterError: an unknown column, or a value that cannot be read as the plan says.
        StorageError: a damaged file, or one that changes while it is read.
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
    """All records of a table in memory, in its order, whoever they are of.

    Raises:
        ParameterError: an unknown column, or a value that cannot be read as the plan says.
    """
    _check_columns(table, data)
    encoder = _encoder(table, data)
    parts = [encoder.records(batch) for batch in table.batches(kinds_of(data))]
    inputs, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Records(inputs, labels)


def _checked_split(table: Table, data: DataSection, held_out: Table | None) -> Split:
    """The rule for the test set, once all columns are known to be there."""
    columns_of(table, [data.client] if data.client is not None else [], "client")
    for one in (table, held_out):
        if one is not None:
            _check_columns(one, data)
    if held_out is not None:
        return Split()
    if isinstance(data.test, float):
        return Split(share=data.test)
    if data.test is None:
        raise ParameterError("test", None, "a share of the clients, a column or a test set")
    column = str(data.test)
    columns_of(table, [column], "test")
    return Split(column=column)


def _check_columns(table: Table, data: DataSection) -> None:
    columns_of(table, data.inputs or (), "inputs")
    columns_of(table, data.label or (), "label")


def _placing(client: str | None, split: Split) -> dict[str, Kind]:
    """The columns that say where a row goes."""
    kinds = {} if client is None else {client: Kind.TEXT}
    return kinds if split.column is None else {**kinds, split.column: Kind.TRUTH}


def _encoder(table: Table, data: DataSection) -> Encoder:
    """The encoder, once the first rows show the columns' types."""
    if data.stated_target is None and not table.typed:
        raise ParameterError(
            "target", None, "'class' (with classes), 'tags' or 'numbers': a CSV file has no types"
        )
    return Encoder(data, next(iter(table.batches(kinds_of(data)))))


class _Writer:
    """Writes batches to their places; the first one shows types and shapes."""

    def __init__(self, encoder: Encoder, census: Census, allocate: Allocate) -> None:
        self.allocate = allocate
        self._encoder, self._census = encoder, census
        self._free = census.offsets[:-1].copy()
        self._written = 0
        self._arrays: dict[str, NDArray[Any]] = {}

    def encoded(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """Inputs and labels of a batch, of the shapes that the first batch had.

        Raises:
            ParameterError: they have another shape.
        """
        inputs, labels = self._encoder.records(batch)
        parts: dict[str, NDArray[Any]] = {"inputs": inputs, "labels": labels}
        for name, part in parts.items():
            shape = self._arrays[name].shape[1:] if self._arrays else part.shape[1:]
            if part.shape[1:] != shape:
                raise ParameterError(name, part.shape[1:], f"arrays of one shape, {shape} before")
        return parts

    def write(self, batch: Batch, tell: Tell) -> None:
        """Writes the rows of a batch."""
        parts = self.encoded(batch)
        number, out = self._census.placed(batch)
        if not self._arrays:
            self._arrays = self._allocated(parts)
        try:
            places = _places(self._free, number[~out])
            now = _places(self._free_of_section, places // self._section_rows)
            self._order[now] = places % self._section_rows
            end = self._written + int(np.count_nonzero(out))
            for name, part in parts.items():
                self._arrays[name][now] = part[~out]
                self._arrays[f"test-{name}"][self._written : end] = part[out]
        except (IndexError, ValueError):
            raise StorageError("the data changed while they were read") from None
        self._written = end
        tell("laying out rows", int(batch.rows[-1]) + 1)

    def _allocated(self, parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Arrays for all rows of the types and shapes of these, and the sections of the first."""
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
        """The arrays, each entry of which is written.

        Raises:
            StorageError: rows are missing since they were counted.
        """
        census = self._census
        if (self._free != census.offsets[1:]).any() or self._written != census.test_rows:
            raise StorageError("the data changed while they were read")
        for start in range(0, census.train_rows, self._section_rows):
            section = slice(start, start + self._section_rows)
            order = self._order[section]
            if (order[1:] < order[:-1]).any():
                for name in ("inputs", "labels"):
                    _put_in_order(self._arrays[name][section], order)
        return self._arrays


def _put_in_order(held: NDArray[Any], order: NDArray[np.uint32]) -> None:
    """Moves each row of an array to its place."""
    ordered = np.empty_like(held, subok=False)
    ordered[order] = held
    held[:] = ordered


def _places(free: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each row: the next free one under its number, which is then taken."""
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
    """The records of a test set of its own."""
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
