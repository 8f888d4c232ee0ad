"""Rules for texts, missing values and conversions, for every reader of clients' values.

Texts (values, categories, classes, ids of clients, names of columns) are compared in Unicode's
normal form C, so that a name is the same on every system. They keep all their characters, including
a trailing NUL, which NumPy's text of fixed width drops. In three cases an entry is missing:
it is null, NaN or the empty text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError, TurnoutError

FLOAT32_WHOLE = 2**24
"""Largest size up to which float32 represents every whole number exactly."""
EXACT_WHOLE = 2**53
"""Size below which float64 represents every whole number exactly."""
_UINT64 = 2.0**64
WHOLE = "whole numbers between -2^53 and 2^53"
_SHOWN = 5


def canonical(text: str) -> str:
    """Text in Unicode's normal form C."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def distinct(texts: Iterable[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Index of each text among the distinct texts, and the distinct texts by first appearance.

    The array of indices has the shape (n,) for n texts.
    """
    places: dict[str, int] = {}
    found = [places.setdefault(canonical(text), len(places)) for text in texts]
    return np.array(found, dtype=np.int64), tuple(places)


def is_missing(entry: Any) -> bool:
    """Whether an entry is None, NaN, an empty text, or an object that cannot be compared."""
    try:
        return entry is None or entry == "" or bool(entry != entry)  # noqa: PLR0124
    except (TypeError, ValueError, ArithmeticError):
        return True


def refuse_rows(
    key: str,
    value: object,
    problem: str,
    wrong: NDArray[np.bool_] | None,
    rows: NDArray[np.int64],
) -> None:
    """Raise a ParameterError that names the invalid rows of a batch, if there are any.

    Args:
        key: key of the settings, such as ``inputs``.
        value: name of the column, or the invalid value.
        problem: requirement that follows "expected", such as "a value in every row".
        wrong: mask of the invalid rows, shape ``(rows,)``; None if no row can be invalid.
        rows: numbers of the rows, shape ``(rows,)``.

    Raises:
        ParameterError: a row is invalid.
    """
    if wrong is None or not wrong.any():
        return
    first = rows[wrong]
    shown = ", ".join(str(row) for row in first[:_SHOWN]) + (", …" if first.size > _SHOWN else "")
    raise ParameterError(key, value, f"{problem}; invalid: row {shown} (counted from 0)")


def refuse_inexact(name: str, values: NDArray[Any]) -> None:
    """Raise a ParameterError for whole numbers that float64 may not represent exactly.

    Args:
        name: name of the values in the error.
        values: values of any type and shape; floats are not checked.

    Raises:
        ParameterError: a number is not between −2^53 and 2^53; the message does not show it.
    """
    whole = values.dtype.kind in "iu" and values.size
    if whole and not -EXACT_WHOLE < int(values.min()) <= int(values.max()) < EXACT_WHOLE:
        raise ParameterError(name, "larger whole numbers", WHOLE)


def rounded(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask, in the shape of ``values``, of the whole numbers that float32 may round.

    These are the whole numbers that float32 cannot represent exactly, and all whole numbers of size
    2^53 or more. Floats of size 2^64 or more do not count as whole numbers.
    """
    size = np.abs(values.astype(np.float64))
    lost = (size > FLOAT32_WHOLE) & (values.astype(np.float32) != values)
    lost |= size >= EXACT_WHOLE
    if values.dtype.kind == "f":
        lost &= (size < _UINT64) & (values == np.floor(values))
    return np.asarray(lost)


@contextmanager
def converting(what: str) -> Iterator[None]:
    """Context in which an error of a library that reads or converts values becomes one line.

    Raises:
        InputFileError: the library failed. Errors of turnout are raised unchanged.
    """
    try:
        yield
    except (TurnoutError, MemoryError):
        raise
    except BaseException as error:
        # A panic of polars is no Exception, and neither is what ends a program.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputFileError(f"{what} cannot be read: {said[:200]}") from error
