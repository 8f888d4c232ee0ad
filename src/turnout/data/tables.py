"""Tables: named columns that are read batch by batch, as often as needed.

`Table` is the interface. `ArrayTable` holds arrays in memory. `CharacterTable` cuts texts into
records of a fixed number of characters, and labels each character with the next one. A `Column` is
an array with one entry for each row. Text is stored as indices into the list of a batch's distinct
texts, so that a batch of a million rows with ten distinct texts needs only ten conversions.
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
from turnout.core.values import (
    EXACT_WHOLE,
    canonical,
    converting,
    distinct,
    is_missing,
    refuse_rows,
)

BATCH_NUMBERS = 2**20
"""Approximate number of numbers in a batch: rows times entries of a row."""
_TYPES: tuple[tuple[Any, Any], ...] = (
    ((bool, np.bool_), np.bool_),
    (Integral, np.int64),
    ((Real, Decimal, np.bool_), np.float64),
)
"""Classes of Python objects, and the NumPy type of an array of such objects."""


class Kind(Enum):
    """Kind of values to which the cells of a column are converted, in files without types."""

    NUMBERS = "numbers"
    WHOLE_NUMBERS = "whole numbers"
    TRUTH = "true and false"
    TEXT = "text"


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Values of one column in a batch of rows.

    Attributes:
        values: bool, whole numbers or floats, shape ``(rows, …)``; for a column of texts, the
            index of each entry in ``texts``.
        texts: distinct texts of the batch; None for numbers.
        missing: mask of missing entries, shape ``(rows,)``; None where no entry can be missing.
    """

    values: NDArray[Any]
    texts: tuple[str, ...] | None = None
    missing: NDArray[np.bool_] | None = None

    def lacking(self) -> NDArray[np.bool_]:
        """Mask of the rows with a missing value, also inside an array, shape ``(rows,)``."""
        gone = np.zeros(len(self.values), dtype=np.bool_) if self.missing is None else self.missing
        if self.values.dtype.kind == "f":
            gone = gone | any_of_row(np.isnan(self.values))
        return gone

    def filled(self, constant: float | str) -> Column:
        """Column with missing entries replaced by a constant.

        Raises:
            ParameterError: the constant is not a text for a column of text, or not a number for
                numbers.
        """
        gone = self.lacking()
        if isinstance(constant, str) != (self.texts is not None):
            raise ParameterError("missing", constant, "a text for a column of text, else a number")
        if isinstance(constant, str):
            assert self.texts is not None
            return Column(np.where(gone, len(self.texts), self.values), (*self.texts, constant))
        number = int(constant) if float(constant).is_integer() else constant
        try:
            where = gone.reshape(-1, *(1,) * (self.values.ndim - 1))
            return Column(np.where(where, number, self.values))
        except OverflowError:
            raise ParameterError(
                "missing", constant, f"a number of type {self.values.dtype}"
            ) from None


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class TableBatch:
    """Batch of consecutive table rows.

    Attributes:
        rows: number of each row in the table, from 0, int64, shape ``(rows,)``.
        columns: columns of the batch, by name.
    """

    rows: NDArray[np.int64]
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.rows)


class Table(Protocol):
    """Interface of tables whose named columns are read batch by batch.

    Attributes:
        typed: whether the source stores types of columns.
    """

    typed: bool

    @property
    def names(self) -> Sequence[str]:
        """Names of all columns."""
        ...

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[TableBatch]:
        """Batches of all rows with the requested columns, in the same order in every pass.

        Args:
            kinds: kind of each column to read; used only if the table has no types.

        Raises:
            ParameterError: a column has arrays of different shapes, or values of another kind.
            InputFileError: the file is damaged.
        """
        ...


def columns_of(table: Table, names: Sequence[str], key: str) -> None:
    """Raise an error if a setting names a column that the table lacks.

    Args:
        table: the table.
        names: column names in the setting.
        key: name of the setting in errors, such as ``inputs``.

    Raises:
        ParameterError: the table has no column, or several columns, with one of the names.
    """
    for name in names:
        if name not in table.names:
            known = ", ".join(table.names[:20]) + (", …" if len(table.names) > 20 else "")
            raise ParameterError(key, name, f"a column of the data: {known}")
        if list(table.names).count(name) > 1:
            raise ParameterError(key, name, "the name of exactly one column")


def any_of_row(entries: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of the rows with at least one true entry, shape ``(rows,)``."""
    return np.asarray(entries.reshape(len(entries), -1).any(axis=1))


def text_column(entries: Iterable[Any]) -> Column:
    """Column of text, in which None, NaN and the empty text are missing."""
    values, texts = distinct("" if is_missing(entry) else str(entry) for entry in entries)
    empty = np.array([text == "" for text in texts], dtype=np.bool_)
    return Column(values, texts, empty[values])


class ArrayTable:
    """Table of arrays, in memory or memory-mapped, with one entry per row.

    Raises:
        ParameterError: there are no rows, two arrays have the same name, lengths differ, or an
            array has neither numbers nor text.
        InputFileError: NumPy cannot hold a value.
    """

    typed = True

    def __init__(self, arrays: Mapping[Any, Any]) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        for key, values in arrays.items():
            name = canonical(str(key))
            if name in self._arrays:
                raise ParameterError("data", name, "the name of exactly one column")
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
        """Names of the arrays, which are the column names."""
        return list(self._arrays)

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[TableBatch]:
        """Batches of all rows of the requested arrays."""
        wide = max(self._arrays[name][:1].size for name in kinds)
        step = max(1, BATCH_NUMBERS // max(1, wide))
        for start in range(0, self._rows, step):
            rows = np.arange(start, min(start + step, self._rows))
            columns = {}
            for name in kinds:
                with converting(f"column {name!r}"):
                    columns[name] = numpy_column(name, self._arrays[name][start : start + step])
            yield TableBatch(rows, columns)


def numpy_column(name: str, array: NDArray[Any]) -> Column:
    """Column with the entries of an array (rows, …) of numbers, truth values, texts or dates.

    Raises:
        ParameterError: the entries are of another kind.
        InputFileError: a text has invalid characters.
    """
    # A masked array: masked entries are missing.
    kind = array.dtype.kind
    masked = None
    if isinstance(array, np.ma.MaskedArray):
        masked, array = any_of_row(np.ma.getmaskarray(array)), np.ma.getdata(array)
    # Numbers and truth values need no conversion.
    if kind in "biuf":
        return Column(np.asarray(array), None, masked)
    # Text, dates and Python objects are converted entry by entry.
    days = array.dtype == np.dtype("datetime64[D]")
    if array.ndim != 1 or not (kind in "UTO" or days):
        found = f"{array.dtype} of shape {array.shape}"
        raise ParameterError("data", name, f"numbers or text, not {found}")
    if kind == "U":
        _check_characters(array)
    column = _object_column(array.astype(object))
    # An entry is missing if it is masked or if its text is empty.
    if masked is None:
        return column
    gone = masked if column.missing is None else masked | column.missing
    return Column(column.values, column.texts, gone)


def _check_characters(array: NDArray[Any]) -> None:
    """Raise an error if a text of fixed width has an invalid character (a damaged file)."""
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if plain.size and plain.itemsize and plain.view(np.uint32).max() > sys.maxunicode:
        raise InputFileError("a column of text holds invalid characters: the file is damaged")


def _object_column(array: NDArray[Any]) -> Column:
    """Column of Python objects that are all truth values, all numbers or all texts."""
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
    """Whether a NumPy type is read as text: True for texts and dates, False for times of day."""
    return issubclass(kind, str | date) and not issubclass(kind, datetime)


def _array(name: str, values: Any) -> NDArray[Any]:
    """Array with one entry per row; a list of equally shaped arrays becomes one array."""
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
        raise ParameterError("data", name, "a column with one entry for each row")
    return array


def plain_array(values: Any) -> NDArray[Any]:
    """NumPy array of the values, with Python objects where a conversion would change values.

    NumPy's fixed-width text drops trailing NULs and turns numbers among texts into text; its floats
    round whole numbers that no integer type holds.
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


class CharacterTable:
    """Table whose texts are cut into records of tokens; other columns repeat per record.

    A text of c characters has c − 1 pairs of a character and the next character. They become
    ⌈(c − 1)/length⌉ records, the last of which is filled up with −1. A text of fewer than two
    characters becomes no record.

    Args:
        table: table with a column of text.
        text: name of the column of text.
        vocabulary: all characters, in the order of their tokens.
        length: number of tokens of a record.
    """

    def __init__(self, table: Table, text: str, vocabulary: str, length: int) -> None:
        self.typed = table.typed
        self._table, self._text, self._length = table, text, length
        self._known = vocabulary
        self._place = {character: place for place, character in enumerate(vocabulary)}

    @property
    def names(self) -> Sequence[str]:
        """Names of the table's columns."""
        return self._table.names

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[TableBatch]:
        """Batches of all records; the text column holds arrays of ``length + 1`` tokens.

        Raises:
            ParameterError: a row has no text, or its text has a character outside the vocabulary.
        """
        for batch in self._table.batches({**kinds, self._text: Kind.TEXT}):
            tokens, lengths = self._tokens(batch)
            pieces = -(-np.maximum(lengths - 1, 0) // self._length)
            source = np.repeat(np.arange(len(batch)), pieces)
            columns = {
                name: _repeated(column, source)
                for name, column in batch.columns.items()
                if name != self._text
            }
            if source.size:
                columns[self._text] = Column(self._cut(tokens, lengths, pieces))
                yield TableBatch(batch.rows[source], columns)

    def _tokens(self, batch: TableBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of all texts of a batch in sequence, and the number of tokens of each text."""
        column = batch.columns[self._text]
        if column.texts is None:
            raise ParameterError(
                "inputs", self._text, "a column of text, since a vocabulary of characters is set"
            )
        refuse_rows("inputs", self._text, "a text in every row", column.missing, batch.rows)
        coded = [
            np.array([self._place.get(one, -1) for one in text], dtype=np.int64)
            for text in column.texts
        ]
        lacking = np.array([bool((part < 0).any()) for part in coded])[column.values]
        expected = f"texts of the {len(self._known)} characters of the vocabulary"
        refuse_rows("inputs", self._text, expected, lacking, batch.rows)
        parts = [coded[place] for place in column.values]
        return np.concatenate(parts), np.array([part.size for part in parts])

    def _cut(
        self, tokens: NDArray[np.int64], lengths: NDArray[np.int64], pieces: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Records of ``length + 1`` tokens, which overlap by one token."""
        begins = np.repeat(np.cumsum(lengths) - lengths, pieces)
        ends = np.repeat(np.cumsum(lengths), pieces)
        piece = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        index = (begins + piece * self._length)[:, None] + np.arange(self._length + 1)
        held = index < ends[:, None]
        return np.where(held, tokens[np.minimum(index, tokens.size - 1)], -1)


def _repeated(column: Column, source: NDArray[np.intp]) -> Column:
    missing = None if column.missing is None else column.missing[source]
    return Column(column.values[source], column.texts, missing)
