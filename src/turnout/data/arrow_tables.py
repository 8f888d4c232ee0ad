"""Tables that pyarrow reads: Parquet, CSV, Arrow files, and frames in memory.

`parquet_table`, `arrow_folder`, `CsvTable` and `frame_table` read tables batch by batch;
`column_of` converts an Arrow array to a column of numbers, texts, arrays or images.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError
from turnout.core.optional import require
from turnout.core.values import canonical, converting, distinct
from turnout.data.images import pixels
from turnout.data.tables import BATCH_NUMBERS, Column, Kind, TableBatch, any_of_row, text_column

Shapes = dict[str, tuple[int, ...]]
"""Shapes of the arrays of a column, as its first rows had them."""


def column_of(name: str, held: Any, rows: NDArray[np.int64], shapes: Shapes) -> Column:
    """`Column` converted from an Arrow array.

    Args:
        name: name of the column.
        held: Arrow array of the column.
        rows: numbers of the array's rows in the table, from 0.
        shapes: shape of the arrays or images in each column, by column name; the first batch adds
            the shape in this column.

    Raises:
        ParameterError: the type is not supported, or arrays have different shapes.
        InputFileError: an entry holds the bytes of a file, but not of an image.
    """
    import pyarrow as pa

    # Dictionaries of numbers are decoded; a column of nulls is missing in every row.
    kind = held.type
    missing = np.asarray(held.is_null()) if held.null_count else None
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        held, kind = held.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return Column(np.zeros(len(held)), None, missing)
    # Dates and texts become text; lists become arrays of one shape.
    if pa.types.is_date(kind):
        held, kind = held.cast(pa.string()), pa.string()
    if _is_text(kind) or pa.types.is_dictionary(kind):
        return _texts(held)
    if _is_list(kind):
        return _arrays(name, held, missing, rows, shapes)
    # Images: the contents of image files, also inside the structures of Hugging Face.
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:  # Hugging Face's images
        held, kind = held.field("bytes"), held.type.field("bytes").type
        missing = np.asarray(held.is_null())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _images(name, held, missing, rows, shapes)
    # Numbers and truth values; no other type can be read.
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
    """Column of pixel arrays, decoded from the contents of image files.

    Raises:
        ParameterError: an image's shape differs from the first image's; the error names the row.
        InputFileError: an image file is in another format, or is truncated.
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
    """Arrow numbers or truth values as a NumPy array, with 0 for missing entries."""
    import pyarrow as pa

    if held.null_count:
        held = held.fill_null(False if pa.types.is_boolean(held.type) else 0)
    return held.to_numpy(zero_copy_only=False)


def _texts(held: Any) -> Column:
    """Column of text from an Arrow array; an empty text counts as a missing entry."""
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
    """Column of arrays from (nested) lists of numbers, all lists of equal length.

    Raises:
        ParameterError: a list's length differs from the first list's; the error names the row.
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
    """Common length of all lists, and the entries of all lists; a missing list has zeros."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Lists of a fixed length: Arrow stores entries for missing lists too.
    if pa.types.is_fixed_size_list(held.type):
        side = held.type.list_size
        flat = held.values.slice(held.offset * side, len(held) * side)
        return side, flat
    # Lists of any length: every present list must have the length of the first one.
    lengths = _numbers(pc.call_function("list_value_length", [held]))
    present = ~np.asarray(held.is_null())
    side = known[0] if known else int(lengths[present][0]) if present.any() else 0
    wrong = present & (lengths != side)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        entries, row = int(lengths[first]), f"row {rows[first]} (counted from 0)"
        expected = f"arrays of one shape: {row} has {entries} entries, the rows before it {side}"
        raise ParameterError("data", name, expected)
    # A missing list has no entries in Arrow, so zeros replace its entries.
    if present.all():
        return side, held.flatten()
    filled = pa.array([[0] * side if one is None else one for one in held.to_pylist()], held.type)
    return side, filled.flatten()


_CSV_BLOCK_BYTES = 2**22
_BUFFER_BYTES = 2**20
_MOST_ROWS = 2**16
_FIRST_ROWS = 2**6
"""Number of rows of the first batch, which shows how large a row is."""
_CELL = re.compile(
    r"(?:Row #(?P<row>\d+): )?CSV conversion error to .*?: invalid value '(?P<cell>.*)'"
)
_COLUMN = re.compile(r"In CSV column #(\d+)")

Reader = Callable[[Sequence[str]], Iterator[Any]]
"""Function that returns record batches with the requested columns."""


class ArrowTable:
    """Table read as Arrow record batches.

    Args:
        schema: ``pyarrow.Schema`` of all columns.
        read: function that returns record batches.
        where: name of the file in errors; empty for a table in memory.
    """

    typed = True

    def __init__(self, schema: Any, read: Reader, where: str = "") -> None:
        self._read, self._where = read, where or "data"
        with converting(self._where):
            self._keys = {canonical(name): name for name in schema.names}
            self._names = [canonical(name) for name in schema.names]

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        return self._names

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[TableBatch]:
        """Batches of all rows with the requested columns, in the types of the Arrow schema."""
        start, names, step = 0, list(kinds), _FIRST_ROWS
        with converting(self._where):
            shapes: Shapes = {}
            for held in self._read([self._keys[name] for name in names]):
                for part in _sliced(held, step):
                    rows = np.arange(start, start + part.num_rows)
                    columns = {
                        name: column_of(name, part.column(place), rows, shapes)
                        for place, name in enumerate(names)
                    }
                    start += part.num_rows
                    numbers = sum(column.values[:1].size for column in columns.values())
                    step = max(1, BATCH_NUMBERS // max(1, numbers))
                    yield TableBatch(rows, columns)


def parquet_table(path: Path) -> ArrowTable:
    """Table that reads a Parquet file batch by batch.

    Raises:
        InputFileError: the file is not a Parquet file, or is truncated.
    """
    _require("a .parquet file")
    import pyarrow.parquet as pq

    with converting(str(path)), pq.ParquetFile(path) as file:
        schema = file.schema_arrow

    def read(names: Sequence[str]) -> Iterator[Any]:
        # Neither read ahead nor column by column: either would hold a large file as a whole.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            rows = _rows_at_once(file, names)
            yield from _in_order(
                file.iter_batches(rows, columns=list(names), use_threads=False), names
            )

    return ArrowTable(schema, read, str(path))


def _rows_at_once(file: Any, names: Sequence[str]) -> int:
    """Number of rows per batch, from the size of the first rows in memory.

    The statistics in the file are not used, since reading them from a damaged file crashes the
    process (pyarrow 26).
    """
    for first in file.iter_batches(_FIRST_ROWS, columns=list(names), use_threads=False):
        size = max(1, first.nbytes // max(1, first.num_rows))
        return min(max(1, 8 * BATCH_NUMBERS // size), _MOST_ROWS)
    return _MOST_ROWS


def arrow_folder(folder: Path, files: Sequence[str]) -> ArrowTable:
    """Table of a Hugging Face data set that is saved as Arrow stream files in a folder.

    Raises:
        InputFileError: a file is missing or damaged.
    """
    _require("a folder of Arrow files")
    import pyarrow as pa

    @contextmanager
    def opened(name: str) -> Iterator[Any]:
        with pa.OSFile(str(folder / name)) as source, pa.ipc.open_stream(source) as stream:
            yield stream

    # The schema of the first file holds for all files; rows are read only on demand.
    with converting(str(folder)), opened(files[0]) as stream:
        schema = stream.schema

    def read(names: Sequence[str]) -> Iterator[Any]:
        for name in files:
            with opened(name) as stream:
                yield from _in_order(iter(stream), names)

    return ArrowTable(schema, read, str(folder))


def frame_table(frame: Any) -> ArrowTable:
    """Table of a data frame that exports its columns to Arrow (pandas, polars, pyarrow).

    Raises:
        ParameterError: the frame has no rows.
        InputFileError: the columns cannot be converted.
        MissingExtraError: pyarrow is not installed.
    """
    _require("a frame")
    import pyarrow as pa

    with converting("data"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, that names will be text
        held = pa.table(frame)
    return _held_table(held)


def series_table(values: Any, name: str) -> ArrowTable:
    """Table of one column, from an object that exports its values to Arrow.

    Raises:
        ParameterError: there are no values.
        InputFileError: the values cannot be converted.
        MissingExtraError: pyarrow is not installed.
    """
    _require("a series")
    import pyarrow as pa

    with converting("data"):
        streamed = hasattr(values, "__arrow_c_stream__")
        held = pa.chunked_array(values) if streamed else pa.array(values)
    return _held_table(pa.table({name: held}))


def _held_table(held: Any) -> ArrowTable:
    """Table of a `pyarrow.Table` in memory."""
    if not held.num_rows:
        raise ParameterError("data", f"{held.num_rows} rows", "at least one row")

    def read(names: Sequence[str]) -> Iterator[Any]:
        return iter(held.select(list(names)).to_batches())

    return ArrowTable(held.schema, read)


class CsvTable:
    """Table of a CSV file with a header; the settings decide the kind of each column."""

    typed = False

    def __init__(self, path: Path) -> None:
        _require("a .csv file")
        self._path = path
        with converting(str(path)), self._reader(None) as reader:
            names = reader.schema.names
        self._keys = {canonical(name): name for name in names}
        self._names = [canonical(name) for name in names]

    @property
    def names(self) -> Sequence[str]:
        """Column names in the header of the CSV file."""
        return self._names

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[TableBatch]:
        """Batches of all rows with the requested columns and kinds; an empty cell is missing."""
        start, names = 0, list(kinds)
        with self._errors(kinds, lambda: start), self._reader(kinds) as reader:
            for held in reader:
                if not held.num_rows:
                    continue
                rows = np.arange(start, start + held.num_rows)
                columns = {
                    name: column_of(name, held.column(place), rows, {})
                    for place, name in enumerate(names)
                }
                yield TableBatch(rows, columns)
                start += held.num_rows

    @contextmanager
    def _reader(self, kinds: Mapping[str, Kind] | None) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        # Types of the requested columns; without kinds only the header is read.
        convert = None
        if kinds is not None:
            types = {
                Kind.NUMBERS: pa.float64(),
                Kind.WHOLE_NUMBERS: pa.int64(),
                Kind.TRUTH: pa.bool_(),
                Kind.TEXT: pa.string(),
            }
            convert = csv.ConvertOptions(
                column_types={self._keys[name]: types[kind] for name, kind in kinds.items()},
                include_columns=[self._keys[name] for name in kinds],
                null_values=[""],
                strings_can_be_null=True,
            )
        # One thread, so that an error names its row and rows keep their order.
        options = csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK_BYTES)
        # Cells may contain line breaks; an empty line is a row of missing values.
        lines = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
        with _WholeLines(self._path) as file:
            yield csv.open_csv(file, options, lines, convert)

    @contextmanager
    def _errors(self, kinds: Mapping[str, Kind], first_row: Callable[[], int]) -> Iterator[None]:
        """Context in which an error about a cell names the cell's column and row."""
        import pyarrow as pa

        try:
            with converting(str(self._path)):
                yield
        except InputFileError as error:
            # Only an error about one cell names a cell and a column; others are raised as they are.
            cause = error.__cause__
            found, place = _CELL.search(str(error)), _COLUMN.search(str(error))
            if not isinstance(cause, pa.ArrowInvalid) or not found or not place:
                raise
            # pyarrow counts the header as row 1, while rows are counted from 0 here.
            name = self._named(int(place[1]), kinds)
            row = (
                "" if found["row"] is None else f" in row {int(found['row']) - 2} (counted from 0)"
            )
            # A text where numbers are expected needs a public list, which the message suggests.
            hint = "; a column of text needs its public list (categories, or classes of a label)"
            expected = f"{kinds[name].value} in column {name!r}, not {found['cell']!r}{row}"
            wants_numbers = kinds[name] in (Kind.NUMBERS, Kind.WHOLE_NUMBERS)
            raise ParameterError("data", name, expected + hint * wants_numbers) from None

    def _named(self, place: int, kinds: Mapping[str, Kind]) -> str:
        name = self._names[place] if place < len(self._names) else ""
        return name if name in kinds else next(iter(kinds))


class _WholeLines(io.FileIO):
    """CSV file object without blank lines at the end; other blank lines are rows of empty cells."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        end = self._left = self.seek(0, io.SEEK_END)
        while self._left and self._byte(self._left - 1) in b"\r\n":
            self._left -= 1
        self._left = min(self._left + 1, end)  # the last line's own end
        self.seek(0)

    def _byte(self, place: int) -> bytes:
        self.seek(place)
        return super().read(1)

    def read(self, size: int | None = -1, /) -> bytes:
        """Next bytes of the file, at most the requested number."""
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        found = super().read(wanted)
        self._left -= len(found)
        return found


def _require(what: str) -> None:
    require("data", what=what)


def _in_order(batches: Iterator[Any], names: Sequence[str]) -> Iterator[Any]:
    """Batches with the columns ``names``, in this order, after a full validation by Arrow.

    Validation is necessary, since offsets of texts in a damaged file may point outside the data.
    """
    for batch in batches:
        chosen = batch.select(list(names))
        chosen.validate(full=True)
        yield chosen


def _sliced(batch: Any, rows: int) -> Iterator[Any]:
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
