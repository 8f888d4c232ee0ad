"""Clients' values from a file or from memory, one row for each client, read block by block.

`item_blocks` and `entry_blocks` read items, `vector_blocks` vectors, from CSV, Parquet, NumPy
arrays, lists and Arrow tables; `batch_entries` and `batch_vectors` convert Arrow's record batches.
A missing value raises an error. `turnout.estimation.private.estimates` reads all data by these
functions.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import InputFileError, ParameterError, UnsupportedError
from turnout.core.installation import install_line
from turnout.core.values import EXACT_WHOLE, WHOLE, canonical, refuse_inexact, refuse_rows


def batch_entries(batch: Any) -> NDArray[Any] | list[Any]:
    """Entries (n,) of an Arrow record batch's only column; None if missing, NaN among floats."""
    (held,) = map(_without_decimals, batch.columns)
    types = pyarrow().types
    whole = types.is_integer(held.type) or types.is_boolean(held.type)
    number = types.is_floating(held.type) or (whole and not held.null_count)
    return held.to_numpy(zero_copy_only=False) if number else held.to_pylist()


def batch_vectors(batch: Any) -> NDArray[np.float64]:
    """Numbers of an Arrow record batch, shape (rows, columns); missing numbers are NaN.

    Raises:
        ParameterError: a column that does not hold numbers.
    """
    return np.stack([_floats(part) for part in batch.columns], axis=1)


def _without_decimals(held: Any) -> Any:
    """Arrow array with decimals converted to floats."""
    arrow = pyarrow()
    return held.cast(arrow.float64()) if arrow.types.is_decimal(held.type) else held


def _floats(held: Any) -> NDArray[np.float64]:
    """Numbers of an Arrow array as floats; true is 1 and false is 0.

    Raises:
        ParameterError: an array that does not hold numbers.
    """
    arrow = pyarrow()
    types = arrow.types
    held = _without_decimals(held.dictionary_decode() if types.is_dictionary(held.type) else held)
    plain = (types.is_boolean, types.is_integer, types.is_floating, types.is_null)
    if not any(is_it(held.type) for is_it in plain):
        raise ParameterError("values", f"values of type {held.type}", "a number in each cell")
    if types.is_integer(held.type):
        refuse_inexact("values", held.drop_null().to_numpy(zero_copy_only=False))
    elif types.is_boolean(held.type):
        held = held.cast(arrow.int8())
    return held.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)


def pyarrow() -> Any:
    """Module pyarrow, with its Parquet reader imported.

    Raises:
        UnsupportedError: pyarrow is not installed.
    """
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        needed = f"reading .parquet needs pyarrow: {install_line('data')}"
        raise UnsupportedError(needed) from None


BLOCK_ROWS = 2**15
_BLOCK_NUMBERS = 2**21  # numbers of a block of vectors, 16 MiB
_SUFFIXES = (".npy", ".csv", ".parquet")


class Rows(Protocol):
    """Interface of in-memory tables of clients' values."""

    def entries(self, column: str | None) -> Iterator[NDArray[Any]]:
        """Blocks of the entries of one column, each of shape (rows,)."""
        ...

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """Blocks of numeric columns, each of shape (rows, columns)."""
        ...


def item_blocks(
    data: Path | Rows,
    size: int,
    labels: Sequence[str] = (),
    column: str | None = None,
    missing: object = None,
) -> Iterator[NDArray[np.int64]]:
    """Blocks of clients' items as whole numbers below ``size``.

    Args:
        data: a path to a .npy file of shape (n,), a .csv file with a header, or a .parquet file or
            folder; or rows in memory.
        size: number of items, k.
        labels: names of the items, shape (k,); without them items are whole numbers.
        column: name of the column; None if the data have only one.
        missing: public item that replaces a missing value; None: a missing value is an error.

    Raises:
        InputFileError: a file that cannot be read, or an empty one.
        ParameterError: a value is missing or is not an item. The error does not contain the value.
        UnsupportedError: the file is a .parquet file, and pyarrow is not installed.
    """
    places = {canonical(label): place for place, label in enumerate(labels)}
    if missing is not None:
        try:
            _codes([str(missing)], size, places)
        except ParameterError:
            expected = "one of the possible items"
            raise ParameterError("missing", missing, expected) from None
    for entries in entry_blocks(data, column, missing):
        yield _codes(entries, size, places)


def read_labels(path: Path) -> tuple[str, ...]:
    """Names of all items from a file with one name per line, in order.

    Raises:
        InputFileError: the file cannot be read, has fewer than two names, or a name twice.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path}: {file_error(error)}") from None
    names = tuple(map(canonical, lines))
    if len(names) < 2 or len(set(names)) != len(names) or "" in names:
        raise InputFileError(f"{path}: expected at least two lines, all different, none empty")
    return names


def vector_blocks(
    data: Path | Rows, columns: Sequence[str] = (), missing: float | None = None
) -> Iterator[NDArray[np.float64]]:
    """Blocks of clients' vectors, float64 of shape (rows, d).

    Args:
        data: a path to a .npy file of shape (n, d), or (n,) for d = 1; or to a .csv or .parquet
            file with columns of numbers; or rows in memory.
        columns: names of the columns, in the order of coordinates; empty: all columns.
        missing: public number that replaces a missing number; None: a missing number is an error.

    Raises:
        InputFileError: the file cannot be read, or is empty.
        ParameterError: a number is missing or is not finite.
        UnsupportedError: the file is a .parquet file, and pyarrow is not installed.
    """
    if isinstance(data, Path):
        path = data
        blocks = _guarded(path, lambda: _number_blocks(path, columns))
    else:
        blocks = data.vectors(columns)
    if missing is not None:
        checks.number(missing=missing)
    start = 0
    for block in blocks:
        yield block if np.isfinite(block).all() else _finite(block, missing, start)
        start += len(block)


def _finite(block: NDArray[np.float64], missing: float | None, start: int) -> NDArray[np.float64]:
    """Block of numbers with missing entries replaced, after a check that all are finite.

    Raises:
        ParameterError: a number is not finite, or is missing and has no replacement.
    """
    lacking = np.isnan(block)
    if missing is None:
        _refuse_missing(np.asarray(lacking.any(axis=1)), start)
    filled = block if missing is None else np.where(lacking, missing, block)
    if not np.isfinite(filled).all():
        raise ParameterError("values", "NaN or infinity", "finite numbers in every row")
    return filled


def _refuse_missing(lacking: NDArray[np.bool_], start: int) -> None:
    """Raise an error that names rows with a missing value, counted from row ``start``."""
    rows = np.arange(start, start + len(lacking))
    refuse_rows("values", "missing", "a value in every row", lacking, rows)


def _guarded(path: Path, blocks: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Blocks of a file, at least one; read errors are raised as `InputFileError`."""
    # Only known formats are opened.
    if path.suffix not in _SUFFIXES and not path.is_dir():
        raise InputFileError(
            f"{path}: expected a .npy, .csv or .parquet file, or a folder of .parquet files"
        )
    if path.is_dir() and not _parquet_files(path):
        raise InputFileError(f"{path}: expected .parquet files in this folder")
    # Errors while reading name the file; a file without values is an error too.
    empty = True
    try:
        for block in blocks():
            empty = False
            yield block
    except ParameterError:  # a subclass of ValueError, but no error of the format
        raise
    except (OSError, ValueError, EOFError, csv.Error) as error:
        reason = file_error(error)
        if path.suffix == ".npy" and isinstance(error, ValueError | EOFError):
            reason = "no array of numbers or text in the .npy format"
        raise InputFileError(f"{path}: {reason}") from None
    if empty:
        raise InputFileError(f"{path}: the file holds no values")


def file_error(error: Exception) -> str:
    """One-line text of an error of the file system, a codec or a file format."""
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 text (byte {error.start + 1}); save it as UTF-8"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def whole_number(entry: object) -> int:
    """Whole number from plain decimal digits and surrounding spaces; true is 1, false is 0.

    Raises:
        ValueError: anything else, including ``1_000``, ``1.0`` and digits of other scripts.
    """
    text = str(int(entry) if isinstance(entry, bool | np.bool_) else entry)
    plain = text.strip()
    if not (plain.isascii() and plain.lstrip("+-").isdigit()):
        raise ValueError(text)
    return int(plain)


def _codes(
    entries: NDArray[Any] | list[Any], size: int, places: dict[str, int]
) -> NDArray[np.int64]:
    """Item numbers from the names or from the whole numbers in a column.

    Raises:
        ParameterError: an entry is not an item. The error does not contain the entry.
    """
    # Names of items.
    if places:
        try:
            return np.array([places[canonical(str(entry))] for entry in entries], dtype=np.int64)
        except KeyError:
            expected = f"the {len(places)} names of all values (--labels, categories) only"
            raise ParameterError("values", "an unknown name", expected) from None
    # Whole numbers, in an array or as text. The error names the type of a float array only.
    array = entries if isinstance(entries, np.ndarray) else np.array(entries, dtype=object)
    given = str(array.dtype) if array.dtype.kind == "f" else "an entry of another kind"
    expected = "whole numbers (or the names of all values: --labels, categories)"
    if array.dtype.kind not in "biuf":
        try:
            # Text must be a whole number: 1.0 is none.
            array = np.array([whole_number(entry) for entry in entries], dtype=np.int64)
        except (ValueError, OverflowError):
            raise ParameterError("values", given, expected) from None
    if array.size and (array.min() < 0 or array.max() >= size):
        raise ParameterError("values", "a number out of range", f"values from 0 to {size - 1}")
    if array.dtype.kind == "f" and np.any(array != np.floor(array)):
        raise ParameterError("values", given, expected)
    return array.astype(np.int64)


def entry_blocks(
    data: Path | Rows, column: str | None, missing: object = None
) -> Iterator[NDArray[Any] | list[Any]]:
    """Blocks of one column's entries, (rows,) each, unconverted, with missing entries replaced.

    Args:
        data: a path or rows, see `item_blocks`.
        column: name of the column; None if the data have only one.
        missing: entry that replaces a missing entry; None: a missing entry is an error.

    Raises:
        InputFileError: the file cannot be read, or is empty.
        ParameterError: an entry is missing; the error names its row.
    """
    if isinstance(data, Path):
        blocks = _guarded(data, lambda: _entry_blocks(data, column))
    else:
        blocks = data.entries(column)
    start = 0
    for entries in blocks:
        lacking = _lacking(entries)
        if lacking is None or not lacking.any():
            yield entries
        else:
            if missing is None:
                _refuse_missing(lacking, start)
            yield [missing if no else entry for entry, no in zip(entries, lacking, strict=True)]
        start += len(entries)


def _lacking(entries: NDArray[Any] | list[Any]) -> NDArray[np.bool_] | None:
    """Mask of missing entries, shape (rows,); None if no entry is missing."""
    if isinstance(entries, np.ndarray) and entries.dtype.kind == "f":
        return np.isnan(entries)
    if isinstance(entries, np.ndarray) and entries.dtype.kind in "biu":
        return None
    known = entries if isinstance(entries, list) else entries.tolist()
    if None not in known and "" not in known:
        return None
    return np.array([entry is None or entry == "" for entry in known], dtype=np.bool_)


def _entry_blocks(path: Path, column: str | None) -> Iterator[NDArray[Any] | list[str]]:
    """Blocks of one column's entries in a file; missing entries are not yet replaced."""
    if path.suffix == ".npy" and not path.is_dir():
        no_columns(path, () if column is None else (column,))
        array = _array(path)
        if array.ndim != 1 or array.dtype.names:
            raise InputFileError(f"{path}: expected one dimension, with one value for each client")
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
    """Blocks of the numeric columns of a file; a missing number is NaN."""
    if path.suffix == ".npy" and not path.is_dir():
        no_columns(path, columns)
        array = _array(path)
        if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or 0 in array.shape[1:]:
            raise InputFileError(f"{path}: expected numbers of shape (clients, dimension)")
        refuse_inexact("values", array)
        yield from array_vectors(array)
        return
    if path.suffix == ".csv" and not path.is_dir():
        for rows in _csv_blocks(path, columns):
            yield _numbers(rows)
        return
    for batch in _parquet_batches(path, columns):
        yield batch_vectors(batch)


def _numbers(rows: list[list[str]]) -> NDArray[np.float64]:
    """Numbers parsed from text cells; an empty cell is NaN.

    Raises:
        ParameterError: a cell is not a number, or is a whole number of size 2⁵³ or more.
    """
    try:
        if any("_" in cell for row in rows for cell in row):
            raise ValueError  # float() would read an underscore as a digit separator
        if any("" in row for row in rows):
            rows = [[cell or "nan" for cell in row] for row in rows]
        found = np.array(rows, dtype=np.float64)
    except ValueError:
        raise ParameterError("values", "a cell without a number", "a number in each cell") from None
    for row, place in np.argwhere(np.abs(found) >= EXACT_WHOLE):
        if rows[row][place].strip().lstrip("+-").isdigit():
            raise ParameterError("values", "a larger whole number", WHOLE)
    return found


def array_entries(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Blocks of a one-dimensional array, shape (rows,) each."""
    for start in range(0, len(array), BLOCK_ROWS):
        yield array[start : start + BLOCK_ROWS]


def array_vectors(array: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """Blocks, (rows, d) each, of a numeric array (n, d), or (n,) with d = 1."""
    step = max(1, _BLOCK_NUMBERS // array[:1].size) if len(array) else 1
    for start in range(0, len(array), step):
        block = np.asarray(array[start : start + step], dtype=np.float64)
        yield block.reshape(len(block), -1)


def _array(path: Path) -> NDArray[Any]:
    """Memory-mapped array of a .npy file."""
    found = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise InputFileError(f"{path}: expected a .npy file that holds one array")
    return found


def _csv_blocks(
    path: Path, columns: Sequence[str], *, single: bool = False
) -> Iterator[list[list[str]]]:
    """Blocks of rows of a CSV file, as text cells of the chosen columns."""
    rows = csv_rows(path)
    header = next(rows)
    places = [header.index(name) for name in _chosen(path, columns, header, single)]
    block: list[list[str]] = []
    for row in rows:
        block.append([row[place] for place in places])
        if len(block) * len(places) >= BLOCK_ROWS:
            yield block
            block = []
    if block:
        yield block


def csv_rows(path: Path) -> Iterator[list[str]]:
    """Header of a CSV file, followed by its rows, each with as many cells as the header.

    Blank lines at the end are ignored; a blank line before a row is a row of empty cells.

    Raises:
        InputFileError: no header, or a row of another length.
    """
    # The header first, without a byte-order mark.
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = list(map(canonical, next(reader, [])))
        if not header:
            raise InputFileError(f"{path}: the first line names no columns")
        yield header
        # Blank lines count as rows only once another row follows.
        blank = 0
        for row in reader:
            if not row:
                blank += 1
                continue
            yield from ([""] * len(header) for _ in range(blank))
            blank = 0
            # A row of another length cannot be assigned to columns.
            if len(row) != len(header):
                raise ragged(path, reader.line_num, row, header)
            yield row


def ragged(path: Path, line: int, row: Sequence[str], header: Sequence[str]) -> InputFileError:
    """Error about a CSV line whose number of cells differs from that of the header."""
    return InputFileError(
        f"{path}: line {line} has {len(row)} cells, expected {len(header)} as in the header"
    )


def no_columns(path: Path, columns: Sequence[str]) -> None:
    """Raise an error if the user names columns of a file whose columns have no names.

    Raises:
        ParameterError: a column was named.
    """
    if columns:
        raise ParameterError(
            "column", columns[0], f"no column name, since the columns of {path} have no names"
        )


def _parquet_batches(path: Path, columns: Sequence[str], *, single: bool = False) -> Iterator[Any]:
    """Arrow record batches of the chosen columns of all Parquet files under a path."""
    parquet = pyarrow().parquet
    for part in _parquet_files(path):
        with parquet.ParquetFile(part) as file:
            keys = file.schema_arrow.names
            header = list(map(canonical, keys))
            chosen = _chosen(part, columns, header, single)
            names = [keys[header.index(name)] for name in chosen]
            step = max(1, BLOCK_ROWS // len(names))
            for batch in file.iter_batches(batch_size=step, columns=names):
                if len(batch):
                    yield batch.select(names)


def _parquet_files(path: Path) -> list[Path]:
    """Parquet files under a path: the file, or all in a folder and its subfolders, sorted."""
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def _chosen(
    path: Path, columns: Sequence[str], header: Sequence[str], single: bool
) -> tuple[str, ...]:
    """Names of the columns to read from a file, each present exactly once."""
    try:
        return chosen_columns(columns, header, single=single)
    except ParameterError as error:
        raise InputFileError(f"{path}: {error}") from None


def chosen_columns(
    columns: Sequence[str], header: Sequence[str], *, single: bool
) -> tuple[str, ...]:
    """Names of the columns to read: ``columns``, or all if empty; exactly one if ``single``.

    Args:
        columns: requested names; empty for all columns.
        header: names of all columns of the file, in order.
        single: whether exactly one column is read.

    Raises:
        ParameterError: the file has several columns and none is named, or a named column is
            missing or occurs twice.
    """
    known = ", ".join(header)
    columns = tuple(map(canonical, columns))
    if not columns and header and (not single or len(header) == 1):
        columns = header
    if not columns:
        raise ParameterError("column", None, f"one of {known}")
    for name in columns:
        if list(header).count(name) != 1:
            raise ParameterError("column", name, f"a column that occurs once, of {known}")
        if list(columns).count(name) != 1:
            raise ParameterError("column", name, "each column named at most once")
    return tuple(columns)
