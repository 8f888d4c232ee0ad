"""Arrow arrays as columns of numbers, texts, arrays and images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.values import distinct
from turnout.datasets.pixels import pixels
from turnout.datasets.tables import BATCH_NUMBERS, Column, any_of_row, text_column

Shapes = dict[str, tuple[int, ...]]
"""Shapes of the arrays of a column, as its first rows had them."""


def column_of(name: str, held: Any, rows: NDArray[np.int64], shapes: Shapes) -> Column:
    """An Arrow array as a column.

    Args:
        name: of the column.
        held: the array.
        rows: the numbers of its rows.
        shapes: of arrays and images by column, to which the first batch adds its own.

    Raises:
        ParameterError: a type that is none of a column's, or arrays of different shapes.
        InputFileError: an image that is none.
    """
    import pyarrow as pa

    kind = held.type
    missing = np.asarray(held.is_null()) if held.null_count else None
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        held, kind = held.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return Column(np.zeros(len(held)), None, missing)
    if pa.types.is_date(kind):
        held, kind = held.cast(pa.string()), pa.string()
    if _is_text(kind) or pa.types.is_dictionary(kind):
        return _texts(held)
    if _is_list(kind):
        return _arrays(name, held, missing, rows, shapes)
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:  # Hugging Face's images
        held, kind = held.field("bytes"), held.type.field("bytes").type
        missing = np.asarray(held.is_null())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _images(name, held, missing, rows, shapes)
    plain = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    if any(is_it(kind) for is_it in plain):
        return Column(_numbers(held), None, missing)
    if pa.types.is_decimal(kind):
        return Column(_numbers(held.cast(pa.float64())), None, missing)
    expected = f"numbers, true and false, text or arrays of numbers, not {kind}"
    raise ParameterError("data", name, expected)


def _images(
    name: str,
    held: Any,
    missing: NDArray[np.bool_] | None,
    rows: NDArray[np.int64],
    shapes: Shapes,
) -> Column:
    """The pixels of images that are kept as the contents of their files.

    Raises:
        ParameterError: images of other shapes than the first one; the row is named.
        InputFileError: no image, or half of one.
    """
    found = [
        None if one is None else pixels(one, f"{name} in row {row} (counted from 0)")
        for one, row in zip(held.to_pylist(), rows, strict=True)
    ]
    present = [image for image in found if image is not None]
    shape = shapes.setdefault(name, present[0].shape) if present else shapes.get(name, ())
    for image, row in zip(found, rows, strict=True):
        if image is not None and image.shape != shape:
            expected = f"images of one shape, {shape}, not {image.shape} in row {row}"
            raise ParameterError("data", name, f"{expected} (counted from 0)")
    blank = np.zeros(shape, dtype=np.uint8)
    return Column(np.stack([blank if one is None else one for one in found]), None, missing)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_it(kind) for is_it in types)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    types = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_it(kind) for is_it in types)


def _numbers(held: Any) -> NDArray[Any]:
    """Numbers or truth values, what is missing as 0."""
    import pyarrow as pa

    if held.null_count:
        held = held.fill_null(False if pa.types.is_boolean(held.type) else 0)
    return held.to_numpy(zero_copy_only=False)


def _texts(held: Any) -> Column:
    """Text; the empty one is missing too."""
    coded = held.dictionary_encode()  # which a dictionary is already
    words = coded.dictionary.to_pylist()
    if len(words) > BATCH_NUMBERS:
        return text_column(held.to_pylist())
    places, texts = _numbers(coded.indices).astype(np.int64), tuple(words or [""])
    if not all(map(str.isascii, texts)):  # two words may be one in normal form
        among, texts = distinct(texts)
        places = among[places]
    empty = np.array([text == "" for text in texts])
    return Column(places, texts, np.asarray(held.is_null()) | empty[places])


def _arrays(
    name: str,
    held: Any,
    missing: NDArray[np.bool_] | None,
    rows: NDArray[np.int64],
    shapes: Shapes,
) -> Column:
    """Lists of one length, of numbers or of such lists again.

    Raises:
        ParameterError: lists of other lengths than in the first row, which is named.
    """
    sides: list[int] = []
    while _is_list(held.type):
        side, held = _unnested(name, held, rows, shapes.get(name, ())[len(sides) :][:1])
        sides.append(side)
        rows = np.repeat(rows, side)
    numbers = column_of(name, held, rows, {}).values
    shapes[name] = tuple(sides)
    values = numbers.reshape(-1, *sides)
    if held.null_count:
        inside = any_of_row(np.asarray(held.is_null()).reshape(values.shape))
        missing = inside if missing is None else missing | inside
    return Column(values, None, missing)


def _unnested(
    name: str, held: Any, rows: NDArray[np.int64], known: tuple[int, ...]
) -> tuple[int, Any]:
    """The one length of all lists, and what stands in them; a missing list counts as zeros."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_fixed_size_list(held.type):
        side = held.type.list_size
        flat = held.values.slice(held.offset * side, len(held) * side)
        return side, flat
    lengths = _numbers(pc.call_function("list_value_length", [held]))
    present = ~np.asarray(held.is_null())
    side = known[0] if known else int(lengths[present][0]) if present.any() else 0
    wrong = present & (lengths != side)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        expected = f"arrays of one shape; {int(lengths[first])} entries in row {rows[first]}"
        raise ParameterError("data", name, f"{expected} (counted from 0), {side} before it")
    if present.all():
        return side, held.flatten()
    filled = pa.array([[0] * side if one is None else one for one in held.to_pylist()], held.type)
    return side, filled.flatten()
