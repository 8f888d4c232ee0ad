"""Record batches of Arrow as clients' values, none of which may be missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError, UnsupportedError


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
