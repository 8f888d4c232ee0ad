"""Tables: columns by name that are read batch by batch, as often as needed.

A column is an array with one entry a row. Text is kept as numbers into the list of a batch's
different texts, so that a batch of a million rows of ten words costs ten conversions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError
from turnout.core.showing import shows_shapes
from turnout.core.values import EXACT_WHOLE, canonical, converting, distinct, is_missing

BATCH_NUMBERS = 2**20
"""Numbers of a batch, about: rows times the entries of a row."""
_TYPES: tuple[tuple[Any, Any], ...] = (
    ((bool, np.bool_), np.bool_),
    (Integral, np.int64),
    ((Real, Decimal, np.bool_), np.float64),
)
"""Kinds of objects, and the arrays that hold them."""


class Kind(Enum):
    """The kind of values to read a column as where a file does not say it."""

    NUMBERS = "numbers"
    WHOLE_NUMBERS = "whole numbers"
    TRUTH = "true and false"
    TEXT = "text"


@shows_shapes()
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

    def lacking(self) -> NDArray[np.bool_]:
        """Which rows lack a value, or one of an array's, shape ``(rows,)``."""
        gone = np.zeros(len(self.values), dtype=np.bool_) if self.missing is None else self.missing
        if self.values.dtype.kind == "f":
            gone = gone | any_of_row(np.isnan(self.values))
        return gone

    def filled(self, constant: float | str) -> Column:
        """The column with a constant for whatever is missing.

        Raises:
            ParameterError: it is no text in a column of text, or no number in one of numbers.
        """
        gone = self.lacking()
        if isinstance(constant, str) != (self.texts is not None):
            raise ParameterError("missing", constant, "a text in a column of text, else a number")
        if isinstance(constant, str):
            assert self.texts is not None
            return Column(np.where(gone, len(self.texts), self.values), (*self.texts, constant))
        number = int(constant) if float(constant).is_integer() else constant
        try:
            where = gone.reshape(-1, *(1,) * (self.values.ndim - 1))
            return Column(np.where(where, number, self.values))
        except OverflowError:
            raise ParameterError("missing", constant, f"a number of {self.values.dtype}") from None


@shows_shapes()
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


def text_column(entries: Iterable[Any]) -> Column:
    """A column of text; None, NaN and the empty text are missing."""
    values, texts = distinct("" if is_missing(entry) else str(entry) for entry in entries)
    empty = np.array([text == "" for text in texts], dtype=np.bool_)
    return Column(values, texts, empty[values])


class ArrayTable:
    """Arrays in memory, or memory-mapped, with one entry a row.

    Raises:
        ParameterError: no rows, two arrays of one name, arrays of different lengths, or of no
            numbers or text.
        InputFileError: values that NumPy cannot hold.
    """

    typed = True

    def __init__(self, arrays: Mapping[Any, Any]) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        for key, values in arrays.items():
            name = canonical(str(key))
            if name in self._arrays:
                raise ParameterError("data", name, "a name that one column has, and no other")
            with converting(f"column {name!r}"):
                self._arrays[name] = _array(name, values)
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
            columns = {}
            for name in kinds:
                with converting(f"column {name!r}"):
                    columns[name] = numpy_column(name, self._arrays[name][start : start + step])
            yield Batch(rows, columns)


def numpy_column(name: str, array: NDArray[Any]) -> Column:
    """A column of an array's entries: numbers, truth values, text, days.

    Raises:
        ParameterError: entries of another kind.
        InputFileError: text that is none.
    """
    kind = array.dtype.kind
    masked = None
    if isinstance(array, np.ma.MaskedArray):
        masked, array = any_of_row(np.ma.getmaskarray(array)), np.ma.getdata(array)
    if kind in "biuf":
        return Column(np.asarray(array), None, masked)
    days = array.dtype == np.dtype("datetime64[D]")
    if array.ndim != 1 or not (kind in "UTO" or days):
        found = f"{array.dtype} of shape {array.shape}"
        raise ParameterError("data", name, f"numbers or text, not {found}")
    if kind == "U":
        _check_characters(array)
    column = _object_column(array.astype(object))
    if masked is None:
        return column
    gone = masked if column.missing is None else masked | column.missing
    return Column(column.values, column.texts, gone)


def _check_characters(array: NDArray[Any]) -> None:
    """Refuses text of fixed width in which a damaged file has what is no character."""
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if plain.size and plain.itemsize and plain.view(np.uint32).max() > sys.maxunicode:
        raise InputFileError("a column of text holds what is no character: the file is damaged")


def _object_column(array: NDArray[Any]) -> Column:
    """Objects as truth values, numbers or text, whichever all that are there are."""
    missing = np.array([is_missing(entry) for entry in array], dtype=np.bool_)
    kinds = {type(entry) for entry in array[~missing]}
    if kinds and all(map(_is_text, kinds)):
        return text_column(array)
    fitting = [dtype for types, dtype in _TYPES if all(issubclass(kind, types) for kind in kinds)]
    if not fitting:
        words = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ParameterError("data", words, "a column of numbers or of text, not of both")
    values = np.zeros(len(array), dtype=fitting[0])
    values[~missing] = array[~missing]
    return Column(values, None, missing)


def _is_text(kind: type) -> bool:
    """Whether entries of this kind count as text: texts and days, and no moments of a day."""
    return issubclass(kind, str | date) and not issubclass(kind, datetime)


def _array(name: str, values: Any) -> NDArray[Any]:
    """The values as an array with one entry a row; equal arrays in a list become one."""
    try:
        array = plain_array(values)
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


def plain_array(values: Any) -> NDArray[Any]:
    """The values as an array; those of a list as objects where NumPy would alter them.

    Its text of fixed width drops trailing NULs and makes numbers among texts text; its floats round
    whole numbers that no integer type holds.
    """
    if isinstance(values, np.ma.MaskedArray):
        return values
    array = np.asarray(values)
    if isinstance(values, np.ndarray):
        return array
    kind = array.dtype.kind
    altered = kind in "US" or (kind == "f" and bool(np.any(np.abs(array) >= EXACT_WHOLE)))
    return np.asarray(values, dtype=object) if altered else array


def _are_arrays(array: NDArray[Any]) -> bool:
    return len(array) > 0 and isinstance(array[0], np.ndarray | list | tuple)
