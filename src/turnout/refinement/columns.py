"""Values of clients from a file, one a row, and what they are called."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError
from turnout.estimation.private.columns import file_error, no_columns, ragged, whole_number


def read_values(
    path: Path, size: int | None, labels: tuple[str, ...], column: str | None = None
) -> NDArray[np.int64]:
    """The values in a file as whole numbers below ``size``.

    Args:
        path: ``.npy`` with one dimension, or ``.csv`` with a header.
        size: how many values there are; needed without ``labels``.
        labels: what values are called; without them the file holds whole numbers.
        column: of a CSV file with several columns.

    Raises:
        InputFileError: the file cannot be read as that.
        ParameterError: it holds something that is not among the values.
    """
    entries = _entries(path, column)
    if not entries.size:
        raise InputFileError(f"{path}: it holds no values")
    if labels:
        return _codes(entries.astype(str), labels, path)
    if not np.issubdtype(entries.dtype, np.integer):
        try:
            # Text of whole numbers only: neither 1.0 nor an empty cell is one.
            entries = np.array(
                [whole_number(entry) for entry in entries.astype(str)], dtype=np.int64
            )
        except (ValueError, OverflowError):
            raise ParameterError(
                "values", str(path), "whole numbers (or --labels FILE, which names all values)"
            ) from None
    if size is None or entries.min() < 0 or entries.max() >= size:
        raise ParameterError("values", str(path), f"values from 0 to {(size or 1) - 1}")
    return entries.astype(np.int64)


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


def _entries(path: Path, column: str | None) -> NDArray[np.generic]:
    try:
        if path.suffix == ".npy":
            no_columns(path, () if column is None else (column,))
            found = np.load(path, allow_pickle=False)
        elif path.suffix == ".csv":
            found = _csv_column(path, column)
        else:
            raise InputFileError(f"{path}: expected a .npy or .csv file")
    except ParameterError:  # It is a ValueError too.
        raise
    except (OSError, ValueError, EOFError, csv.Error) as error:
        raise InputFileError(f"{path}: {file_error(error)}") from None
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.names:
        raise InputFileError(f"{path}: expected one dimension, one value a client")
    return found


def _csv_column(path: Path, column: str | None) -> NDArray[np.str_]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if column is None and len(header) == 1:
            column = header[0]
        if not header:
            raise InputFileError(f"{path}: its first line names no columns")
        if column is None or header.count(column) != 1:
            known = ", ".join(header)
            raise InputFileError(f"{path}: name one of its columns with --column: {known}")
        place = header.index(column)
        cells = []
        for row in rows:
            if len(row) != len(header):
                raise ragged(path, rows.line_num, row, header)
            cells.append(row[place])
    return np.array(cells, dtype=np.str_)


def _codes(names: NDArray[np.str_], labels: tuple[str, ...], path: Path) -> NDArray[np.int64]:
    order = np.argsort(labels, kind="stable")
    ordered = np.array(labels)[order]
    places = np.minimum(np.searchsorted(ordered, names), len(labels) - 1)
    if np.any(ordered[places] != names):
        raise ParameterError("values", str(path), f"the {len(labels)} names of --labels only")
    return order[places].astype(np.int64)
