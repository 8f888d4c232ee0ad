"""The first pass over a table: who its clients are, how many rows each has, what is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.core.values import refuse_rows
from turnout.datasets.tables import Batch, Column, Kind, Table

_SPLIT_KEY = b"turnout test clients 1"
"""Key of the hash that holds clients out. It is public: it makes the split the same everywhere."""
_NOBODY = 0


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """Clients and rows of a table.

    Attributes:
        offsets: of the clients' training rows, int64, shape ``(clients + 1,)``; clients are in
            the order of their ids, and each has at least one row. Without a column of clients
            all rows are those of one.
        test_rows: rows that are held out.
        number_of: the clients' numbers by the ids' first appearance, −1 where all rows of one are
            held out.
        ids: of the clients, as they appeared.
        split: what is held out.
    """

    offsets: NDArray[np.int64]
    test_rows: int
    number_of: NDArray[np.int64]
    ids: Ids
    split: Split

    @property
    def train_rows(self) -> int:
        """Rows of all clients."""
        return int(self.offsets[-1])

    def placed(self, batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The client's number of each row, and which rows are held out."""
        number = self.number_of[self.ids.seen(batch)]
        return number, self.split.held_out(batch) | (number < 0)


class Ids:
    """The ids of clients in the order in which they appear.

    Args:
        column: that holds them; None where all rows are one client's.
    """

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._places: dict[int | str, int] = {} if column else {_NOBODY: 0}

    def __len__(self) -> int:
        return len(self._places)

    def seen(self, batch: Batch) -> NDArray[np.int64]:
        """The place of each row's client among all that have appeared.

        Raises:
            ParameterError: an id that is missing, or neither text nor a whole number.
        """
        if self._column is None:
            return np.zeros(len(batch), dtype=np.int64)
        column = batch.columns[self._column]
        refuse_rows("client", self._column, "an id in every row", column.missing, batch.rows)
        names, inverse = _distinct(self._column, column)
        places = self._places
        known = [places.setdefault(name, len(places)) for name in names]
        return np.array(known, dtype=np.int64)[inverse]

    def in_order(self) -> list[int | str]:
        """The ids by their first appearance."""
        return list(self._places)


@dataclass(frozen=True, slots=True)
class Split:
    """The rule that holds rows out: a column, a share of clients, or none.

    A client's side depends on its own id alone, so that no client's coming moves another's.

    Attributes:
        share: of the clients, by a hash of their ids; of the rows, by a hash of their numbers,
            where all are one client's.
        column: of true and false.
    """

    share: float = 0.0
    column: str | None = None
    by_row: bool = False

    def held_out(self, batch: Batch) -> NDArray[np.bool_]:
        """Which rows are held out by the column, or by their own numbers."""
        if self.column is not None:
            column = batch.columns[self.column]
            refuse_rows(
                "test", self.column, "true or false in every row", column.missing, batch.rows
            )
            values = column.values
            if column.texts is not None or values.ndim != 1 or not _is_truth(values):
                raise ParameterError("test", self.column, "a column of true and false")
            return values.astype(np.bool_)
        if self.by_row:
            return np.array([self.holds(int(row)) for row in batch.rows], dtype=np.bool_)
        return np.zeros(len(batch), dtype=np.bool_)

    def holds(self, name: int | str) -> bool:
        """Whether the client of that id is held out."""
        digest = hashlib.blake2b(
            str(name).encode("utf-8", "surrogatepass"), key=_SPLIT_KEY, digest_size=8
        ).digest()
        return int.from_bytes(digest) < self.share * 2**64


def take_census(
    table: Table, client: str | None, split: Split, held: str, tell: Callable[[int], object]
) -> Census:
    """The clients of a table and their rows.

    Args:
        table: read once.
        client: the column of ids; None where all rows are one client's.
        split: what is held out.
        held: a column that is read where no other is needed.
        tell: is called with the rows read so far.

    Raises:
        ParameterError: a missing id, or nobody on one side of the split.
    """
    split = Split(split.share, split.column, by_row=bool(split.share) and client is None)
    ids, counts, test_counts = Ids(client), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for batch in _batches(table, client, split, held):
        seen = ids.seen(batch)
        out = split.held_out(batch)
        counts = _added(counts, seen[~out], len(ids))
        test_counts = _added(test_counts, seen[out], len(ids))
        tell(int(batch.rows[-1]) + 1)
    names = ids.in_order()
    counts, test_counts = counts[: len(names)], test_counts[: len(names)]
    if split.share and not split.by_row:
        out = np.array([split.holds(name) for name in names], dtype=np.bool_)
        test_counts, counts = np.where(out, counts, 0), np.where(out, 0, counts)
    return _numbered(names, counts, test_counts, ids, split)


def _batches(table: Table, client: str | None, split: Split, held: str) -> Iterator[Batch]:
    """The batches of the columns that a census needs; of any column where it needs none."""
    kinds = {client: Kind.TEXT} if client is not None else {}
    if split.column is not None:
        kinds[split.column] = Kind.TRUTH
    rows = 0
    for batch in table.batches(kinds or {held: Kind.TEXT}):
        rows += len(batch)
        if len(batch):
            yield batch
    if not rows:
        raise ParameterError("data", "0 rows", "at least one row")


def _numbered(
    names: Sequence[int | str],
    counts: NDArray[np.int64],
    test_counts: NDArray[np.int64],
    ids: Ids,
    split: Split,
) -> Census:
    """The census, its clients in the order of their ids."""
    held, out = int(counts.sum()), int(test_counts.sum())
    given = split.column if split.column is not None else split.share
    if held == 0 or (given and out == 0):
        side = "training" if held == 0 else "test"
        raise ParameterError("test", given, f"a split with records on both sides; no {side} record")
    order = sorted((i for i, count in enumerate(counts) if count), key=lambda i: _key(names[i]))
    number_of = np.full(len(names), -1, dtype=np.int64)
    number_of[order] = np.arange(len(order))
    offsets = np.concatenate(([0], np.cumsum(counts[order])))
    return Census(offsets, out, number_of, ids, split)


def _key(name: int | str) -> tuple[bool, int | str]:
    """Whole numbers by size, then texts in the order of their characters."""
    return isinstance(name, str), name


def _added(counts: NDArray[np.int64], seen: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The counts, with those of more rows."""
    if size > counts.size:
        counts = np.concatenate(
            (counts, np.zeros(max(size, 2 * counts.size) - counts.size, np.int64))
        )
    counts += np.bincount(seen, minlength=counts.size)
    return counts


def _distinct(name: str, column: Column) -> tuple[Sequence[int | str], NDArray[np.intp]]:
    """The different ids of a batch, and each row's place among them."""
    if column.texts is not None:
        used, inverse = np.unique(column.values, return_inverse=True)
        return [column.texts[place] for place in used], inverse
    if column.values.dtype.kind not in "iu" or column.values.ndim != 1:
        raise ParameterError("client", name, "a column of text or of whole numbers")
    numbers, inverse = np.unique(column.values, return_inverse=True)
    return [int(number) for number in numbers], inverse


def _is_truth(values: NDArray) -> bool:
    """Whether these are truth values, or the numbers 0 and 1."""
    return values.dtype.kind == "b" or bool(np.isin(values, (0, 1)).all())
