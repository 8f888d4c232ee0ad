"""Availability traces: when each device was idle, charging and on Wi-Fi.

`flash_phones` is the published trace, `trace_from` reads a user's own trace. A trace is a table of
intervals (``device,slot_start,slot_end,available``, the end exclusive). Outside all intervals the
availability is *unknown* and becomes NaN; a device that is known to be unavailable has 0.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.data.files import DataFile, MissingFileError, contents

_HEADER = "device,slot_start,slot_end,available"
FLASH = DataFile(
    "availability/flash_availability_intervals.csv.gz",
    "146d6c767d59fb6828d2e12630774f2e36b158e41508cbd40eaf63f3a36fb4f4",
)
"""Phones of the FLASH trace at 241 half-hour instants (tests and benchmarks only)."""


def flash_phones() -> NDArray[np.float64]:
    """Published availability matrix of 723 phones at 241 half-hour instants.

    Source: C. Yang et al., Characterizing Impacts of Heterogeneity in Federated Learning upon
        Large-Scale Smartphone Data, WWW 2021 (FLASH), as derived intervals.

    Returns:
        float64, shape (723, 241): 1 if available, 0 if not, NaN if unknown (19 % of the entries).

    Raises:
        StorageError: the file is damaged or missing (the error explains how to get the file).
    """
    return parse_intervals(contents(FLASH).decode("ascii"), FLASH.path)


def trace_from(path: Path) -> NDArray[np.float64]:
    """Availability matrix, shape (devices, slots), from a CSV file (see `parse_intervals`).

    Raises:
        MissingFileError: there is no such file.
        StorageError: the file cannot be read, or is not a table of intervals.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise MissingFileError(
            f"trace {path} does not exist; write a CSV file with the header {_HEADER}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"trace {path} cannot be read: {error}") from error
    return parse_intervals(text, str(path))


def parse_intervals(text: str, name: str) -> NDArray[np.float64]:
    """Availability matrix from a CSV text of intervals; ``name`` is its name in errors.

    Returns:
        float64, shape (devices, slots): 1 if available, 0 if not, NaN outside all intervals.

    Raises:
        StorageError: the header is not the expected one, a cell is not a whole number, an interval
            is empty or reversed, or two intervals of a device overlap.
    """
    # The header must be exact, since columns are read by position.
    header, _, body = text.partition("\n")
    if header.strip() != _HEADER:
        raise StorageError(f"{name} is not a table of intervals: expected the first line {_HEADER}")
    if not body.strip():
        raise StorageError(f"{name} has no intervals: add one line for each below the header")
    # Parse and check the intervals, one in each line.
    try:
        rows = np.loadtxt(io.StringIO(body), delimiter=",", dtype=np.int64, ndmin=2)
    except ValueError as error:
        raise StorageError(f"{name} is not a table of whole numbers: {error}") from error
    if rows.shape[1] != 4:
        raise StorageError(f"{name} has {rows.shape[1]} columns: expected four, {_HEADER}")
    # Intervals must be non-empty with numbers of at least 0; availability is 0 or 1.
    device, start, end, value = rows.T
    if min(device.min(), start.min()) < 0 or (end <= start).any() or ((value | 1) != 1).any():
        raise StorageError(
            f"{name} has an empty interval, a negative number, or an availability other than 0 or 1"
        )
    return _matrix(device, start, end, value, name)


def _matrix(
    device: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    value: NDArray[np.int64],
    name: str,
) -> NDArray[np.float64]:
    """Availability matrix, shape (devices, slots), with NaN outside all intervals."""
    lengths = end - start
    rows = np.repeat(device, lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    columns = np.repeat(start, lengths) + within
    covered = np.zeros((device.max() + 1, end.max()), dtype=np.int64)
    np.add.at(covered, (rows, columns), 1)
    if covered.max() > 1:
        raise StorageError(f"{name} has two intervals of one device that overlap")
    matrix = np.full(covered.shape, np.nan)
    matrix[rows, columns] = np.repeat(value, lengths)
    return matrix
