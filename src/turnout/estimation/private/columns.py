"""Clients' values in a file or in memory, one row a client, read block by block.

`item_blocks` and `entry_blocks` read items, `vector_blocks` vectors, from CSV, Parquet, NumPy
arrays, lists and Arrow tables; `batch_entries` and `batch_vectors` convert Arrow's record batches.
A missing value raises.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError, UnsupportedError


def batch_entries(batch: Any) -> NDArray[Any] | list[Any]:
    """The entries of the one column of an Arrow record batch.

    Raises:
        ParameterError: an empty cell.
    """
    (held,) = batch.columns
    _require_values(batch)
    return _as_array(held) if held.type in _whole_numbers() else held.to_pylist()


def batch_vectors(batch: Any) -> NDArray[np.float64]:
    """The rows of an Arrow record batch of numbers, shape (rows, columns).

    Raises:
        ParameterError: an empty cell, or something else than a number.
    """
    _require_values(batch)
    held = [_as_array(part) for part in batch.columns]
    if any(part.dtype.kind not in "iuf" for part in held):
        raise ParameterError("values", "something else", "a number in each cell")
    return np.stack(held, axis=1).astype(np.float64)


def _as_array(held: Any) -> NDArray[Any]:
    """An Arrow array as one of numpy's: numbers at once, anything else cell by cell."""
    types = pyarrow().types
    if types.is_integer(held.type) or types.is_floating(held.type):
        return held.to_numpy(zero_copy_only=False)
    return np.asarray(held.to_pylist())


def _require_values(batch: Any) -> None:
    if any(part.null_count for part in batch.columns):
        raise ParameterError("values", "an empty cell", "a value in every row")


def _whole_numbers() -> tuple[Any, ...]:
    arrow = pyarrow()
    signed = (arrow.int8(), arrow.int16(), arrow.int32(), arrow.int64())
    return (*signed, arrow.uint8(), arrow.uint16(), arrow.uint32())


def pyarrow() -> Any:
    """The package, with its readers of Parquet.

    Raises:
        UnsupportedError: it is missing.
    """
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise UnsupportedError(
            "reading .parquet needs pyarrow: pip install 'turnout[data]'"
        ) from None


BLOCK_ROWS = 2**15
_BLOCK_NUMBERS = 2**21  # numbers of a block of vectors, 16 MiB
_SUFFIXES = (".npy", ".csv", ".parquet")


class Rows(Protocol):
    """Clients' values in memory."""

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """One column as it is, a block at a time, each of shape (rows,)."""
        ...

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """Columns of numbers, a block at a time, each of shape (rows, columns)."""
        ...


def item_blocks(
    data: Path | Rows, size: int, labels: Sequence[str] = (), column: str | None = None
) -> Iterator[NDArray[np.int64]]:
    """Items of clients as whole numbers below ``size``, a block at a time.

    Args:
        data: a path to .npy of shape (n,), or .csv with a header, or .parquet; or rows.
        size: k, how many items there are.
        labels: what they are called; without them the file holds whole numbers.
        column: of a file with several.

    Raises:
        InputFileError: the file cannot be read as that, or is empty.
        ParameterError: a value that is no item. Which one is not said.
        UnsupportedError: a .parquet file without pyarrow.
    """
    places = {label: place for place, label in enumerate(labels)}
    for entries in entry_blocks(data, column):
        yield _codes(entries, size, places)


def read_labels(path: Path) -> tuple[str, ...]:
    """All values by name, one a line, in order.

    Raises:
        InputFileError: it cannot be read, or holds fewer than two names or one of them twice.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path}: {file_error(error)}") from None
    if len(lines) < 2 or len(set(lines)) != len(lines):
        raise InputFileError(f"{path}: expected at least two lines, all different")
    return tuple(lines)


def vector_blocks(data: Path | Rows, columns: Sequence[str] = ()) -> Iterator[NDArray[np.float64]]:
    """Vectors of clients, float64 of shape (rows, d), a block at a time.

    Args:
        data: a path to .npy of shape (n, d), or (n,) for d = 1; or to .csv or .parquet with columns
            of numbers; or rows.
        columns: which columns, in this order; all of them if none is named.

    Raises:
        InputFileError: the file cannot be read as that, or is empty.
        ParameterError: a cell that is no finite number.
        UnsupportedError: a .parquet file without pyarrow.
    """
    if isinstance(data, Path):
        path = data
        blocks = _guarded(path, lambda: _number_blocks(path, columns))
    else:
        blocks = data.vectors(columns)
    for block in blocks:
        if not np.all(np.isfinite(block)):
            raise ParameterError("values", "something else", "finite numbers in every row")
        yield block


def _guarded(path: Path, blocks: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The blocks, one at least; what a file system or a format complains of in one line."""
    if path.suffix not in _SUFFIXES and not path.is_dir():
        raise InputFileError(
            f"{path}: expected a .npy, .csv or .parquet file, or a folder of .parquet files"
        )
    if path.is_dir() and not _parquet_files(path):
        raise InputFileError(f"{path} is a directory without .parquet files")
    empty = True
    try:
        for block in blocks():
            empty = False
            yield block
    except ParameterError:  # It is a ValueError too.
        raise
    except (OSError, ValueError, EOFError, csv.Error) as error:
        reason = file_error(error)
        if path.suffix == ".npy" and isinstance(error, ValueError | EOFError):
            reason = "no array of numbers or text in the .npy format"
        raise InputFileError(f"{path}: {reason}") from None
    if empty:
        raise InputFileError(f"{path}: it holds no values")


def file_error(error: Exception) -> str:
    """The complaint of a file system, a codec or a format, in a few words."""
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 text (byte {error.start + 1}); save it as UTF-8"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def whole_number(text: str) -> int:
    """A whole number in plain decimal digits, spaces around it aside.

    Raises:
        ValueError: anything else, ``1_000``, ``1.0``, and digits of other scripts among it.
    """
    plain = text.strip()
    if not (plain.isascii() and plain.lstrip("+-").isdigit()):
        raise ValueError(text)
    return int(plain)


def _codes(
    entries: NDArray[Any] | list[str], size: int, places: dict[str, int]
) -> NDArray[np.int64]:
    if places:
        try:
            return np.array([places[str(entry)] for entry in entries], dtype=np.int64)
        except KeyError:
            expected = f"the {len(places)} names of all values (--labels, categories) only"
            raise ParameterError("values", "something else", expected) from None
    array = np.asarray(entries)
    if array.dtype.kind not in "iu":
        try:
            # Text of whole numbers only: neither 1.0 nor an empty cell is one.
            array = np.array([whole_number(str(entry)) for entry in entries], dtype=np.int64)
        except (ValueError, OverflowError):
            given = str(array.dtype) if array.dtype.kind == "f" else "something else"
            expected = "whole numbers (or the names of all values: --labels, categories)"
            raise ParameterError("values", given, expected) from None
    if array.size and (array.min() < 0 or array.max() >= size):
        raise ParameterError("values", "something else", f"values from 0 to {size - 1}")
    return array.astype(np.int64)


def entry_blocks(data: Path | Rows, column: str | None) -> Iterator[NDArray[Any] | list[str]]:
    """The entries of one column as the file has them, a block at a time.

    Raises:
        InputFileError: the file cannot be read as that, or is empty.
    """
    if isinstance(data, Path):
        return _guarded(data, lambda: _entry_blocks(data, column))
    return data.entries(column)


def _entry_blocks(path: Path, column: str | None) -> Iterator[NDArray[Any] | list[str]]:
    if path.suffix == ".npy" and not path.is_dir():
        no_columns(path, () if column is None else (column,))
        array = _array(path)
        if array.ndim != 1 or array.dtype.names:
            raise InputFileError(f"{path}: expected one dimension, one value a client")
        yield from array_entries(array)
        return
    chosen = () if column is None else (column,)
    if path.suffix == ".csv" and not path.is_dir():
        for rows in _csv_blocks(path, chosen, single=True):
            yield [row[0] for row in rows]
        return
    for batch in _parquet_batches(path, chosen, single=True):
        yield batch_entries(batch)


def _number_blocks(path: Path, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    if path.suffix == ".npy" and not path.is_dir():
        no_columns(path, columns)
        array = _array(path)
        if array.ndim not in (1, 2) or array.dtype.kind not in "iuf" or 0 in array.shape[1:]:
            raise InputFileError(f"{path}: expected numbers of shape (clients, dimension)")
        yield from array_vectors(array)
        return
    if path.suffix == ".csv" and not path.is_dir():
        for rows in _csv_blocks(path, columns):
            try:
                if any("_" in cell for row in rows for cell in row):
                    raise ValueError  # It is no thousands separator; float() reads over it.
                yield np.array(rows, dtype=np.float64)
            except ValueError:
                raise ParameterError("values", "something else", "a number in each cell") from None
        return
    for batch in _parquet_batches(path, columns):
        yield batch_vectors(batch)


def array_entries(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The entries of an array of one dimension, a block at a time."""
    for start in range(0, len(array), BLOCK_ROWS):
        yield array[start : start + BLOCK_ROWS]


def array_vectors(array: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """The rows of an array of numbers of one or two dimensions, a block at a time."""
    step = max(1, _BLOCK_NUMBERS // array[:1].size) if len(array) else 1
    for start in range(0, len(array), step):
        block = np.asarray(array[start : start + step], dtype=np.float64)
        yield block.reshape(len(block), -1)


def _array(path: Path) -> NDArray[Any]:
    found = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise InputFileError(f"{path}: expected one array")
    return found


def _csv_blocks(
    path: Path, columns: Sequence[str], *, single: bool = False
) -> Iterator[list[list[str]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if not header:
            raise InputFileError(f"{path}: its first line names no columns")
        places = [header.index(name) for name in _chosen(path, columns, header, single)]
        block: list[list[str]] = []
        for row in rows:
            if len(row) != len(header):
                raise ragged(path, rows.line_num, row, header)
            block.append([row[place] for place in places])
            if len(block) * len(places) >= BLOCK_ROWS:
                yield block
                block = []
        if block:
            yield block


def ragged(path: Path, line: int, row: Sequence[str], header: Sequence[str]) -> InputFileError:
    """The complaint about a line of another length than the header."""
    return InputFileError(
        f"{path}: line {line} has {len(row)} cells, expected {len(header)} as in the header"
    )


def no_columns(path: Path, columns: Sequence[str]) -> None:
    """Refuses names of columns for a file whose columns have none.

    Raises:
        ParameterError: some were given.
    """
    if columns:
        raise ParameterError("column", columns[0], f"none: the columns of {path} have no names")


def _parquet_batches(path: Path, columns: Sequence[str], *, single: bool = False) -> Iterator[Any]:
    parquet = pyarrow().parquet
    for part in _parquet_files(path):
        with parquet.ParquetFile(part) as file:
            names = _chosen(part, columns, file.schema_arrow.names, single)
            step = max(1, BLOCK_ROWS // len(names))
            for batch in file.iter_batches(batch_size=step, columns=names):
                if len(batch):
                    yield batch.select(names)


def _parquet_files(path: Path) -> list[Path]:
    """The file, or all .parquet files of a folder and the folders in it, by name."""
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def _chosen(
    path: Path, columns: Sequence[str], header: Sequence[str], single: bool
) -> tuple[str, ...]:
    """The columns to read, if the file has each of them once."""
    try:
        return chosen_columns(columns, header, single=single)
    except ParameterError as error:
        raise InputFileError(f"{path}: {error}") from None


def chosen_columns(
    columns: Sequence[str], header: Sequence[str], *, single: bool
) -> tuple[str, ...]:
    """The columns to read: those that are named, or all; one only where ``single``.

    Raises:
        ParameterError: none is named, or one is not there, or not once.
    """
    known = ", ".join(header)
    if not columns and header and (not single or len(header) == 1):
        columns = header
    if not columns:
        raise ParameterError("column", None, f"one of {known}")
    for name in columns:
        if list(header).count(name) != 1:
            raise ParameterError("column", name, f"a column that is there once, of {known}")
        if list(columns).count(name) != 1:
            raise ParameterError("column", name, "each column named once")
    return tuple(columns)
