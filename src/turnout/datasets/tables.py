"""Tables: columns by name that are read batch by batch, as often as needed.

A column is an array with one entry a row. Text is kept as numbers into the list of a batch's
different texts, so that a batch of a million rows of ten words costs ten conversions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError

BATCH_NUMBERS = 2**20
"""Numbers of a batch, about: rows times the entries of a row."""
_SHOWN = 5


class Kind(Enum):
    """The kind of values to read a column as where a file does not say it."""

    NUMBERS = "numbers"
    WHOLE_NUMBERS = "whole numbers"
    TRUTH = "true and false"
    TEXT = "text"


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The entries of one column in a batch.

    Attributes:
        values: bool, whole numbers or floats, shape ``(rows, …)``; with ``texts`` the place of
            each entry's text among them.
        texts: the different texts of the batch; None for numbers.
        missing: which entries are missing, shape ``(rows,)``; None where none can be.
    """

    values: NDArray[Any]
    texts: tuple[str, ...] | None = None
    missing: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rows of a table.

    Attributes:
        rows: the number of each row in its source, from 0, int64, shape ``(rows,)``.
        columns: by name.
    """

    rows: NDArray[np.int64]
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.rows)


class Table(Protocol):
    """Columns by name, from a file, a folder or memory.

    Attributes:
        typed: whether columns have types of their own.
    """

    typed: bool

    @property
    def names(self) -> Sequence[str]:
        """The names of all columns."""
        ...

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[Batch]:
        """All rows, with these columns; the same rows in the same order every time.

        Args:
            kinds: of the columns to read, which this table has; heeded where it has no types.

        Raises:
            ParameterError: arrays of different shapes in a column, or values of no such kind.
            InputFileError: a damaged file.
        """
        ...


def columns_of(table: Table, names: Sequence[str], key: str) -> None:
    """Refuses, for a key of the settings, names that a table does not have."""
    for name in names:
        if name not in table.names:
            known = ", ".join(table.names[:20]) + (", …" if len(table.names) > 20 else "")
            raise ParameterError(key, name, f"a column of the data: {known}")
        if list(table.names).count(name) > 1:
            raise ParameterError(key, name, "a name that one column has, and no other")


def any_of_row(entries: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether any entry of each row is true, shape ``(rows,)``."""
    return np.asarray(entries.reshape(len(entries), -1).any(axis=1))


def refuse_rows(
    key: str, column: str, problem: str, wrong: NDArray[np.bool_] | None, rows: NDArray[np.int64]
) -> None:
    """Refuses a batch in which some rows are wrong, and says which.

    Args:
        key: of the settings, such as ``inputs``.
        column: its name.
        problem: the rest of "expected", such as "a value in every row".
        wrong: shape ``(rows,)``; None where no row can be.
        rows: their numbers.
    """
    if wrong is None or not wrong.any():
        return
    first = rows[wrong]
    shown = ", ".join(str(row) for row in first[:_SHOWN]) + (", …" if first.size > _SHOWN else "")
    raise ParameterError(key, column, f"{problem}, but not in row {shown} (counted from 0)")


def text_column(entries: Sequence[Any] | NDArray[Any]) -> Column:
    """A column of text; None, NaN and the empty text are missing."""
    array = np.asarray(entries)
    if array.dtype.kind == "O":
        missing = np.array([_is_missing(entry) for entry in array], dtype=np.bool_)
        filled = ["" if gone else str(entry) for entry, gone in zip(array, missing, strict=True)]
        array = np.array(filled) if filled else np.zeros(0, dtype="U1")
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if array.size and array.itemsize and array.view(np.uint32).max() > sys.maxunicode:
        raise InputFileError("a column of text holds what is no character: the file is damaged")
    texts, places = np.unique(array, return_inverse=True)
    return Column(places.reshape(-1), tuple(str(text) for text in texts), array == "")


def _is_missing(value: Any) -> bool:
    """Whether it is None or empty, or differs from itself, as NaN does, or will not say."""
    try:
        return value is None or value == "" or bool(value != value)  # noqa: PLR0124
    except (TypeError, ValueError):
        return True


class ArrayTable:
    """Arrays in memory, or memory-mapped, with one entry a row.

    Raises:
        ParameterError: no rows, arrays of different lengths, or of no numbers or text.
    """

    typed = True

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = {str(name): _array(str(name), array) for name, array in arrays.items()}
        lengths = {name: len(array) for name, array in self._arrays.items()}
        if not lengths or min(lengths.values()) == 0:
            raise ParameterError("data", lengths, "columns with at least one row")
        if len(set(lengths.values())) > 1:
            raise ParameterError("data", lengths, "columns of one length")
        self._rows = next(iter(lengths.values()))

    @property
    def names(self) -> Sequence[str]:
        """The names of the arrays."""
        return list(self._arrays)

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[Batch]:
        """All rows of these arrays."""
        wide = max(self._arrays[name][:1].size for name in kinds)
        step = max(1, BATCH_NUMBERS // max(1, wide))
        for start in range(0, self._rows, step):
            rows = np.arange(start, min(start + step, self._rows))
            parts = {name: self._arrays[name][start : start + step] for name in kinds}
            yield Batch(rows, {name: numpy_column(name, part) for name, part in parts.items()})


def numpy_column(name: str, array: NDArray[Any]) -> Column:
    """A column of an array's entries.

    Raises:
        ParameterError: entries of another kind than numbers, truth values and text.
    """
    kind = array.dtype.kind
    if kind in "biuf" and isinstance(array, np.ma.MaskedArray):
        return Column(np.ma.getdata(array), None, any_of_row(np.ma.getmaskarray(array)))
    if kind in "biuf":
        return Column(np.asarray(array))
    if array.ndim != 1 or kind not in "UO":
        raise ParameterError(
            "data", name, f"numbers or text, not {array.dtype} of {array.ndim} axes"
        )
    return _object_column(array)


def _object_column(array: NDArray[Any]) -> Column:
    """Objects as truth values, numbers or text, whichever all that are there are."""
    if array.dtype.kind == "U":
        return text_column(array)
    missing = np.array([_is_missing(entry) for entry in array], dtype=np.bool_)
    kinds = {type(entry) for entry in array[~missing]}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return text_column(array)
    truth = all(issubclass(kind, bool | np.bool_) for kind in kinds)
    values = np.zeros(len(array), dtype=np.bool_ if truth and kinds else np.float64)
    try:
        values[~missing] = array[~missing]
    except (TypeError, ValueError):
        words = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ParameterError("data", words, "a column of numbers or of text, not of both") from None
    return Column(values, None, missing)


def _array(name: str, values: Any) -> NDArray[Any]:
    """The values as an array with one entry a row; equal arrays in a list become one."""
    if isinstance(values, np.ma.MaskedArray):
        return values
    try:
        array = np.asarray(values)
        if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
            array = np.asarray(values, dtype=object)  # or numbers among texts would become text
        if array.dtype.kind == "O" and array.ndim == 1 and _are_arrays(array):
            array = np.stack([np.asarray(one) for one in array])
    except (TypeError, ValueError):
        shapes = [np.shape(one) for one in values]
        wrong = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), 0)
        expected = (
            f"arrays of one shape, {shapes[0]} as in row 0, not {shapes[wrong]} in row {wrong}"
        )
        raise ParameterError("data", name, expected) from None
    if array.ndim == 0:
        raise ParameterError("data", name, "a column with one entry a row")
    return array


def _are_arrays(array: NDArray[Any]) -> bool:
    return len(array) > 0 and isinstance(array[0], np.ndarray | list | tuple)
