"""Clients' values in memory, as arrays, lists, series or frames; their libraries are not imported.

A frame is whatever has columns by name: of pandas, polars or pyarrow, or a mapping of arrays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.estimation.private.columns import Rows, array_entries, array_vectors, chosen_columns

_SHOWN = 5
_UNNAMED = "none: these values have no columns with names"


@runtime_checkable
class HeldRows(Rows, Protocol):
    """Values in memory, or streamed from elsewhere, whose columns may have names."""

    names: Sequence[str]


def rows_of(values: Any) -> Path | HeldRows:
    """The values to read: a path where it is one, as text or not, else columns in memory.

    Raises:
        ParameterError: neither a path nor an array, a list, a series or a frame.
    """
    if isinstance(values, str | os.PathLike):
        return Path(os.fspath(values))
    if isinstance(values, HeldRows):
        return values
    if isinstance(values, Mapping):
        return _Frame(values, list(values))
    if hasattr(values, "__array__"):
        names = getattr(values, "column_names", None)  # of a table of pyarrow
        names = getattr(values, "columns", None) if names is None else names
        return _Array(values) if names is None else _Frame(values, list(names))
    if isinstance(values, Sequence):
        return _Array(values)
    kind = type(values).__name__
    raise ParameterError("values", kind, "an array, a list, a series, a frame, or a file's path")


class _Array:
    """An array without names for its columns."""

    names: Sequence[str] = ()

    def __init__(self, values: Any) -> None:
        self._array = _present(values, "values")

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """All entries, of one dimension."""
        _refuse_names(() if column is None else (column,))
        return array_entries(_column(self._array, "values"))

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """All rows."""
        _refuse_names(columns)
        return array_vectors(_numbers(self._array, "values"))


class _Frame:
    """Columns by name."""

    def __init__(self, columns: Any, keys: Sequence[Any]) -> None:
        self._columns, self._keys = columns, keys
        self.names: Sequence[str] = [str(key) for key in keys]

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """The column of that name, or the only one."""
        (key,) = self._chosen(() if column is None else (column,), single=True)
        return array_entries(self._array(key))

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """The columns of these names, or all."""
        keys = self._chosen(columns, single=False)
        parts = [_numbers(self._array(key), str(key)) for key in keys]
        if len({part.size for part in parts}) > 1:
            raise ParameterError("values", [part.size for part in parts], "columns of one length")
        return array_vectors(np.stack(parts, axis=1))

    def _chosen(self, columns: Sequence[str], *, single: bool) -> list[Any]:
        """The keys of the columns to read; a frame's need not be text."""
        chosen = chosen_columns(columns, self.names, single=single)
        return [self._keys[self.names.index(name)] for name in chosen]

    def _array(self, key: Any) -> NDArray[Any]:
        return _column(_present(self._columns[key], str(key)), str(key))


def _present(values: Any, name: str) -> NDArray[Any]:
    """The values as an array, none of which is missing.

    Raises:
        ParameterError: some are, or there are none, or it is no array.
    """
    array = _array_of(values, name)
    if array.ndim == 0 or not array.size:
        raise ParameterError(name, f"shape {array.shape}", "one row a client, at least one")
    missing = _missing(array)
    if isinstance(values, np.ma.MaskedArray):
        missing = missing | np.ma.getmaskarray(values)
    rows = np.unique(np.nonzero(missing)[0])
    if rows.size:
        shown = ", ".join(map(str, rows[:_SHOWN])) + (", …" if rows.size > _SHOWN else "")
        given = f"missing in {rows.size:,} rows"
        raise ParameterError(name, given, f"a value in every row; counted from 0: {shown}")
    return array


def _array_of(values: Any, name: str) -> NDArray[Any]:
    """The values as an array; a list of several types of values as one of objects.

    As numbers or text, its missing values would be numbers or text too.
    """
    try:
        if hasattr(values, "__array__"):
            return np.asarray(values)
        array = np.asarray(values, dtype=object)
        kinds = {type(value) for value in array.flat}
        plain = len(kinds) == 1 and issubclass(kinds.pop(), int | float | str | np.generic)
        return np.asarray(values) if plain else array
    except (TypeError, ValueError) as error:
        raise ParameterError(name, type(values).__name__, f"an array, but {error}") from None


def _missing(array: NDArray[Any]) -> NDArray[np.bool_]:
    """The places of missing values, of the array's shape."""
    if array.dtype.kind in "fcmM":
        return np.isnat(array) if array.dtype.kind in "mM" else np.isnan(array)
    if array.dtype.kind != "O":
        return np.zeros(array.shape, dtype=np.bool_)
    return np.asarray(np.frompyfunc(_is_missing, 1, 1)(array), dtype=np.bool_)


def _is_missing(value: Any) -> bool:
    """Whether it is None, or differs from itself, as NaN does, or will not say, as pandas.NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124
    except TypeError:
        return True


def _column(array: NDArray[Any], name: str) -> NDArray[Any]:
    """The array, of one dimension."""
    if array.ndim != 1 or array.dtype.names:
        raise ParameterError(name, f"shape {array.shape}", "one dimension, one value a client")
    return array


def _numbers(array: NDArray[Any], name: str) -> NDArray[Any]:
    """The array, of numbers; truth values and text are none."""
    if array.dtype.kind == "O":
        kinds = {type(value) for value in array.flat}
        if all(issubclass(kind, Real) and kind not in (bool, np.bool_) for kind in kinds):
            array = array.astype(np.float64)
    if array.dtype.kind not in "iuf" or array.ndim > 2:
        given = f"{array.dtype} of shape {array.shape}"
        raise ParameterError(name, given, "numbers, of shape (clients,) or (clients, dimension)")
    return array


def _refuse_names(columns: Sequence[str]) -> None:
    if columns:
        raise ParameterError("column", columns[0], _UNNAMED)
