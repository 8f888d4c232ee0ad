"""Record batches of Arrow as clients' values; what is missing stays missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.installation import install_line
from turnout.core.values import refuse_inexact


def batch_entries(batch: Any) -> NDArray[Any] | list[Any]:
    """The entries of the one column of an Arrow record batch; what is missing is None."""
    (held,) = map(_without_decimals, batch.columns)
    types = pyarrow().types
    whole = types.is_integer(held.type) or types.is_boolean(held.type)
    number = types.is_floating(held.type) or (whole and not held.null_count)
    return held.to_numpy(zero_copy_only=False) if number else held.to_pylist()


def batch_vectors(batch: Any) -> NDArray[np.float64]:
    """The rows of an Arrow record batch of numbers, shape (rows, columns); what is missing is NaN.

    Raises:
        ParameterError: something else than a number.
    """
    return np.stack([_floats(part) for part in batch.columns], axis=1)


def _without_decimals(held: Any) -> Any:
    """The array, its decimals as floats."""
    arrow = pyarrow()
    return held.cast(arrow.float64()) if arrow.types.is_decimal(held.type) else held


def _floats(held: Any) -> NDArray[np.float64]:
    """An array of numbers; true and false are 1 and 0."""
    arrow = pyarrow()
    types = arrow.types
    held = _without_decimals(held.dictionary_decode() if types.is_dictionary(held.type) else held)
    plain = (types.is_boolean, types.is_integer, types.is_floating, types.is_null)
    if not any(is_it(held.type) for is_it in plain):
        raise ParameterError("values", "something else", "a number in each cell")
    if types.is_integer(held.type):
        refuse_inexact("values", held.drop_null().to_numpy(zero_copy_only=False))
    elif types.is_boolean(held.type):
        held = held.cast(arrow.int8())
    return held.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)


def pyarrow() -> Any:
    """The package, with its readers of Parquet.

    Raises:
        UnsupportedError: it is missing.
    """
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        needed = f"reading .parquet needs pyarrow: {install_line('data')}"
        raise UnsupportedError(needed) from None
