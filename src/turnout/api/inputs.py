"""Clients' values in memory, as arrays, lists, series or frames; their libraries are not imported.

They are read by the tables of `turnout.client_data`. A frame is whatever has columns by name: of
pandas, polars or pyarrow, or a mapping of arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.values import converting, refuse_inexact
from turnout.estimation.private.columns import (
    Rows,
    array_entries,
    array_vectors,
    chosen_columns,
)

if TYPE_CHECKING:
    from turnout.datasets.tables import Column, Table

_ONLY = "values"
"""The name of a column that has none."""
_UNNAMED = "none: these values have no columns with names"
_SHAPE = "numbers, of shape (clients,) or (clients, dimension)"


@runtime_checkable
class HeldRows(Rows, Protocol):
    """Values in memory, or streamed from elsewhere, whose columns may have names."""

    names: Sequence[str]


def rows_of(values: Any) -> Path | HeldRows:
    """The values to read: a path where it is one, as text or not, else columns in memory.

    Raises:
        ParameterError: neither a path nor an array, a list, a series or a frame.
        InputFileError: values that cannot be converted.
    """
    if isinstance(values, str | os.PathLike):
        return Path(os.fspath(values))
    return values if isinstance(values, HeldRows) else _TableRows(values)


class _TableRows:
    """The columns of a table, which have names only where those of the values have."""

    def __init__(self, values: Any) -> None:
        with converting(_ONLY):
            self._table, named = _table(values)
        self.names: Sequence[str] = self._table.names if named else ()

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """The column of that name, or the only one; what is missing is None."""
        (name,) = self._chosen(() if column is None else (column,), single=True)
        found = (_entries(name, held[name]) for held in self._columns([name]))
        yield from _joined(found, array_entries)

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """The columns of these names, or all; what is missing is no number."""
        names = self._chosen(columns, single=False)
        named = bool(self.names)
        found = (
            _beside([_numbers(name, held[name], named) for name in names])
            for held in self._columns(names)
        )
        yield from _joined(found, array_vectors)

    def _columns(self, names: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        from turnout.datasets.tables import Kind

        for batch in self._table.batches(dict.fromkeys(names, Kind.NUMBERS)):
            yield batch.columns

    def _chosen(self, columns: Sequence[str], *, single: bool) -> Sequence[str]:
        if self.names:
            return chosen_columns(columns, self.names, single=single)
        if columns:
            raise ParameterError("column", columns[0], _UNNAMED)
        return self._table.names


def _table(values: Any) -> tuple[Table, bool]:
    """The values as a table, and whether its columns have names of their own."""
    from turnout.datasets.tables import ArrayTable

    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        from turnout.datasets.arrow_tables import frame_table, series_table

        named = hasattr(values, "columns")
        return frame_table(values) if named else series_table(values, _ONLY), named
    if isinstance(values, Mapping):
        return ArrayTable(values), True
    if hasattr(values, "__array__") or isinstance(values, Sequence):
        return ArrayTable({_ONLY: values}), False
    kind = type(values).__name__
    raise ParameterError("values", kind, "an array, a list, a series, a frame, or a file's path")


def _joined(
    parts: Iterator[NDArray[Any]], cut: Callable[[NDArray[Any]], Iterator[NDArray[Any]]]
) -> Iterator[NDArray[Any]]:
    """The rows of all parts in blocks as a file's, wherever the table's batches end."""
    held: NDArray[Any] | None = None
    for part in parts:
        held = part if held is None else np.concatenate((held, part))
        blocks = list(cut(held))
        whole = len(blocks) > 1 and len(blocks[-1]) == len(blocks[0])
        held = None if whole else blocks.pop()
        yield from blocks
    if held is not None:
        yield held


def _entries(name: str, column: Column) -> NDArray[Any]:
    """The entries of a column, of one dimension."""
    if column.values.ndim != 1:
        raise ParameterError(name, f"shape {column.values.shape}", "one value a client")
    found = column.values
    if column.texts is not None:
        found = np.array(column.texts, dtype=object)[found]
    if column.missing is None or not column.missing.any():
        return found
    found = found.astype(object)
    found[column.missing] = None
    return found


def _numbers(name: str, column: Column, named: bool) -> NDArray[np.float64]:
    """The numbers of a column, shape (rows, entries of a row); true and false are 1 and 0."""
    values = column.values
    if column.texts is not None or values.ndim > 2 - named:
        given = "text" if column.texts is not None else f"shape {values.shape}"
        raise ParameterError(name, given, _SHAPE)
    refuse_inexact(name, values)
    found = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    if column.missing is not None:
        found = np.where(column.missing[:, None], np.nan, found)
    return found


def _beside(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
