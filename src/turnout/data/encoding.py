"""Encoding of a table's columns as a model's inputs and labels, without private statistics.

`take_census` is the first pass over a table and counts the clients, their rows and the test rows.
`Encoder` turns columns into numbers, one-hot categories or tokens, and labels into classes, tags or
numbers. All constants are given in the plan. No number is computed from more than one row, so no
statistic of private data, whose ε would not be counted, enters a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.core.values import FLOAT32_WHOLE, refuse_rows, rounded
from turnout.data.records import PredictionTarget
from turnout.data.tables import Column, Kind, Table, TableBatch, any_of_row
from turnout.plans.data_sections import DataSection

_SPLIT_KEY = b"turnout test clients 1"
"""Public key of the hash that selects held-out clients, so that the split is always the same."""
_NOBODY = 0


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """Counts of a table: training rows of each client, and test rows.

    Attributes:
        offsets: start of each client's training rows, int64, shape ``(clients + 1,)``; clients are
            in the order of their ids, and each has at least one row. Without a column of clients
            all rows belong to one client.
        test_rows: number of held-out rows.
        number_of: position of each of ``ids`` in the order of ``offsets``; −1 if all rows of the
            client are held out.
        ids: ids of the clients in the order of appearance.
        split: rule that selects the held-out rows.
    """

    offsets: NDArray[np.int64]
    test_rows: int
    number_of: NDArray[np.int64]
    ids: Ids
    split: Split

    @property
    def train_rows(self) -> int:
        """Number of training rows."""
        return int(self.offsets[-1])

    def placed(self, batch: TableBatch) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Client number of each row, and a mask of the rows held out for testing; (rows,) each."""
        number = self.number_of[self.ids.seen(batch)]
        return number, self.split.held_out(batch) | (number < 0)


class Ids:
    """Distinct client ids in the order in which they first appear.

    Args:
        column: name of the column of ids; None if all rows belong to one client.
    """

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._places: dict[int | str, int] = {} if column else {_NOBODY: 0}

    def __len__(self) -> int:
        return len(self._places)

    def seen(self, batch: TableBatch) -> NDArray[np.int64]:
        """Index of each row's client among all clients so far, (rows,); new clients are added.

        Raises:
            ParameterError: an id is missing, or is neither text nor a whole number.
        """
        if self._column is None:
            return np.zeros(len(batch), dtype=np.int64)
        column = batch.columns[self._column]
        refuse_rows("client", self._column, "an id in every row", column.missing, batch.rows)
        names, inverse = _distinct(self._column, column)
        places = self._places
        known = [places.setdefault(name, len(places)) for name in names]
        return np.array(known, dtype=np.int64)[inverse]

    def in_order(self) -> list[int | str]:
        """Client ids in the order of first appearance."""
        return list(self._places)


@dataclass(frozen=True, slots=True)
class Split:
    """Rule that selects the test rows: by a column, as a fraction of the clients, or none.

    Whether a client is held out depends only on the id of this client, so that new clients do not
    change the split of earlier clients.

    Attributes:
        share: fraction of the clients to hold out, chosen by a hash of the ids; if all rows belong
            to one client, fraction of the rows to hold out, chosen by a hash of the row numbers.
        column: name of a column of true and false.
    """

    share: float = 0.0
    column: str | None = None
    by_row: bool = False

    def held_out(self, batch: TableBatch) -> NDArray[np.bool_]:
        """Mask, (rows,), of the test rows that a column, or a hash of the row number, selects.

        Raises:
            ParameterError: the test column has other values than true and false.
        """
        if self.column is not None:
            column = batch.columns[self.column]
            refuse_rows(
                "test", self.column, "true or false in every row", column.missing, batch.rows
            )
            values = column.values
            if column.texts is not None or values.ndim != 1 or not _is_truth(values):
                raise ParameterError("test", self.column, "a column of true and false")
            return values.astype(np.bool_)
        if self.by_row:
            return np.array([self.holds(int(row)) for row in batch.rows], dtype=np.bool_)
        return np.zeros(len(batch), dtype=np.bool_)

    def holds(self, name: int | str) -> bool:
        """Whether the client with this id is held out for testing."""
        digest = hashlib.blake2b(
            str(name).encode("utf-8", "surrogatepass"), key=_SPLIT_KEY, digest_size=8
        ).digest()
        return int.from_bytes(digest) < self.share * 2**64


def take_census(
    table: Table, client: str | None, split: Split, held: str, tell: Callable[[int], object]
) -> Census:
    """Counts of a table's clients and rows, from one pass over the table.

    Args:
        table: table with all rows, which is read once.
        client: name of the column of ids; None if all rows belong to one client.
        split: rule that selects the held-out rows.
        held: column to read, to count the rows, if there are no client ids and no test column.
        tell: function that is called with the number of rows read so far.

    Raises:
        ParameterError: an id is missing, or the split has no training rows or no test rows.
    """
    # Without client ids, a fraction of the rows instead of the clients is held out.
    split = Split(split.share, split.column, by_row=bool(split.share) and client is None)
    # Count each client's training and test rows in one pass, since the table may exceed the memory.
    ids, counts, test_counts = Ids(client), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for batch in _batches(table, client, split, held):
        seen = ids.seen(batch)
        out = split.held_out(batch)
        counts = _added(counts, seen[~out], len(ids))
        test_counts = _added(test_counts, seen[out], len(ids))
        tell(int(batch.rows[-1]) + 1)
    names = ids.in_order()
    counts, test_counts = counts[: len(names)], test_counts[: len(names)]
    # A fraction of the clients is held out whole: all rows of these clients become test rows.
    if split.share and not split.by_row:
        out = np.array([split.holds(name) for name in names], dtype=np.bool_)
        test_counts, counts = np.where(out, counts, 0), np.where(out, 0, counts)
    return _numbered(names, counts, test_counts, ids, split)


def _batches(table: Table, client: str | None, split: Split, held: str) -> Iterator[TableBatch]:
    """Batches of the columns of client ids and test rows; without such columns, of ``held``."""
    kinds = {client: Kind.TEXT} if client is not None else {}
    if split.column is not None:
        kinds[split.column] = Kind.TRUTH
    rows = 0
    for batch in table.batches(kinds or {held: Kind.TEXT}):
        rows += len(batch)
        if len(batch):
            yield batch
    if not rows:
        raise ParameterError("data", "0 rows", "at least one row")


def _numbered(
    names: Sequence[int | str],
    counts: NDArray[np.int64],
    test_counts: NDArray[np.int64],
    ids: Ids,
    split: Split,
) -> Census:
    """`Census` whose clients are numbered in the order of their ids."""
    held, out = int(counts.sum()), int(test_counts.sum())
    given = split.column if split.column is not None else split.share
    if held == 0 or (given and out == 0):
        side = "training" if held == 0 else "test"
        raise ParameterError(
            "test",
            given,
            f"a split with training and test records, but this split has no {side} records",
        )
    order = sorted((i for i, count in enumerate(counts) if count), key=lambda i: _key(names[i]))
    number_of = np.full(len(names), -1, dtype=np.int64)
    number_of[order] = np.arange(len(order))
    offsets = np.concatenate(([0], np.cumsum(counts[order])))
    return Census(offsets, out, number_of, ids, split)


def _key(name: int | str) -> tuple[bool, int | str]:
    """Sorting key of a client id: whole numbers first, by size, then texts by character."""
    return isinstance(name, str), name


def _added(counts: NDArray[np.int64], seen: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Number of rows of each client, including those of a further batch."""
    if size > counts.size:
        counts = np.concatenate(
            (counts, np.zeros(max(size, 2 * counts.size) - counts.size, np.int64))
        )
    counts += np.bincount(seen, minlength=counts.size)
    return counts


def _distinct(name: str, column: Column) -> tuple[Sequence[int | str], NDArray[np.intp]]:
    """Distinct ids of a batch, and for each row the index of its id among the distinct ids."""
    if column.texts is not None:
        used, inverse = np.unique(column.values, return_inverse=True)
        return [column.texts[place] for place in used], inverse
    if column.values.dtype.kind not in "iu" or column.values.ndim != 1:
        raise ParameterError("client", name, "a column of text or of whole numbers")
    numbers, inverse = np.unique(column.values, return_inverse=True)
    return [int(number) for number in numbers], inverse


def _is_truth(values: NDArray) -> bool:
    """Whether all values are truth values or the numbers 0 and 1."""
    return values.dtype.kind == "b" or bool(np.isin(values, (0, 1)).all())


_FLOAT32_LIMIT = float(np.finfo(np.float32).max)


class Encoder:
    """Encoder of table rows as inputs and labels, as the [data] section of a plan describes.

    Args:
        data: [data] section with the columns' names and public constants.
        first: the first rows of the table, from which column types and array shapes are read.

    Raises:
        ParameterError: the plan has no target, and the label's type permits several targets.
    """

    def __init__(self, data: DataSection, first: TableBatch) -> None:
        self._inputs: Sequence[str] = data.inputs or ()
        self._label: Sequence[str] = data.label or ()
        self._categories = data.categories or {}
        self._scaling = data.scaling or {}
        self._missing = data.missing or {}
        vocabulary = data.vocabulary
        self._tokens = len(vocabulary) if isinstance(vocabulary, str) else vocabulary
        labels = [first.columns[name] for name in self._label]
        self.target = PredictionTarget(data.stated_target or guessed_target(self._label, labels))
        self._classes = data.classes
        self.names = data.classes if isinstance(data.classes, tuple) else ()

    def outputs(self, labels: NDArray) -> int:
        """Number of outputs of a model: classes, tags, numbers, or tokens of the vocabulary.

        Args:
            labels: encoded labels; for tags and numbers of shape ``(rows, outputs)``.
        """
        if self.target is PredictionTarget.TOKENS:
            assert self._tokens is not None
            return self._tokens
        if self.target is PredictionTarget.CLASS:
            assert self._classes is not None
            return self._classes if isinstance(self._classes, int) else len(self._classes)
        return labels.shape[1]

    def records(self, batch: TableBatch) -> tuple[NDArray, NDArray]:
        """Inputs and labels of a batch, (rows, …) each, as `turnout.data.Records` stores them.

        Raises:
            ParameterError: a value is missing, not finite, out of range, or not of the kind that
                the plan states; the error names the column and the rows.
        """
        if not self._label:
            return self._next_tokens(batch)
        inputs, labels = self._seen(batch), self._predicted(batch)
        if self.target is PredictionTarget.TOKENS and labels.shape != inputs.shape:
            expected = f"one token for each input token, shape {inputs.shape[1:]}"
            raise ParameterError("label", labels.shape[1:], expected)
        return inputs, labels

    def _present(self, key: str, name: str, batch: TableBatch) -> Column:
        """Column with the plan's constant for missing entries; an error if the plan has none."""
        column = batch.columns[name]
        if name in self._missing:
            return column.filled(self._missing[name])
        refuse_rows(key, name, "a value in every row", column.lacking(), batch.rows)
        return column

    def _seen(self, batch: TableBatch) -> NDArray:
        parts = [self._input(name, batch) for name in self._inputs]
        if self._tokens is not None:
            return parts[0].reshape(len(batch), -1)
        if len(parts) == 1 and parts[0].ndim > 1:
            return parts[0]
        flat = [_floats(part).reshape(len(batch), -1) for part in parts]
        return np.concatenate(flat, axis=1, dtype=np.float32)

    def _input(self, name: str, batch: TableBatch) -> NDArray:
        """One input column as an array of one-hot codes, tokens or numbers."""
        column = self._present("inputs", name, batch)
        if self._tokens is not None:
            return _whole("inputs", name, column, batch.rows, range(self._tokens))
        if name in self._categories:
            words = self._categories[name]
            codes = _coded("inputs", name, column, words, batch.rows)
            return np.eye(len(words), dtype=np.float32)[codes]
        if column.texts is not None:
            expected = (
                f"numbers, or a public list of its texts: categories = {{ {name} = [...] }} "
                "(a list computed from private data is not covered by ε; turnout estimate finds a "
                "private one)"
            )
            raise ParameterError("inputs", name, expected)
        return self._scaled("inputs", name, column.values, batch.rows)

    def _scaled(self, key: str, name: str, values: NDArray, rows: NDArray[np.int64]) -> NDArray:
        """Numbers as float32; arrays of bytes and of half-precision floats stay unchanged."""
        if name in self._scaling:
            low, high = self._scaling[name]
            values = (values - np.float64(low)) / (high - low)
        elif values.dtype in (np.uint8, np.float16, np.float32) and values.ndim > 1:
            _finite(key, name, values, rows)
            return values
        _finite(key, name, values, rows)
        if name not in self._scaling:
            _told_apart(key, name, values, rows)
        return values.astype(np.float32)

    def _predicted(self, batch: TableBatch) -> NDArray:
        """Labels of a batch in the form of the target: classes, tags or numbers."""
        # Classes and tokens: a single column of labels.
        name = self._label[0]
        column = self._present("label", name, batch)
        if self.target is PredictionTarget.CLASS:
            return self._class_numbers(name, column, batch.rows)
        if self.target is PredictionTarget.TOKENS:
            assert self._tokens is not None
            return _whole("label", name, column, batch.rows, range(-1, self._tokens))
        # Tags and numbers: one or more columns, joined to a row of numbers for each record.
        columns = [column] + [self._present("label", one, batch) for one in self._label[1:]]
        parts = [
            self._tags(one, held, batch.rows)
            if self.target is PredictionTarget.TAGS
            else self._scaled("label", one, _number_values(one, held), batch.rows)
            for one, held in zip(self._label, columns, strict=True)
        ]
        # Tags take one byte each, numbers four.
        joined = np.concatenate([part.reshape(len(batch), -1) for part in parts], axis=1)
        return joined.astype(np.uint8 if self.target is PredictionTarget.TAGS else np.float32)

    def _class_numbers(self, name: str, column: Column, rows: NDArray[np.int64]) -> NDArray:
        classes = self._classes
        if isinstance(classes, tuple):
            return _coded("label", name, column, classes, rows)
        if column.texts is not None:
            raise ParameterError("label", name, "whole numbers, or classes = [public names]")
        assert classes is not None
        found = _whole("label", name, column, rows, range(classes))
        if found.ndim > 1:
            raise ParameterError("label", name, "one class for each row, or target = 'tokens'")
        return found

    def _tags(self, name: str, column: Column, rows: NDArray[np.int64]) -> NDArray:
        return _whole("label", name, column, rows, range(2))

    def _next_tokens(self, batch: TableBatch) -> tuple[NDArray, NDArray]:
        """Tokens as inputs, and the next token of each token as its label; −1 marks padding."""
        assert self._tokens is not None
        name = self._inputs[0]
        held = self._present("inputs", name, batch)
        tokens = _whole("inputs", name, held, batch.rows, range(-1, self._tokens))
        if tokens.ndim != 2 or tokens.shape[1] < 2:
            raise ParameterError("inputs", name, "arrays of at least two tokens")
        labels = tokens[:, 1:].copy()
        labels[tokens[:, :-1] < 0] = -1
        return np.maximum(tokens[:, :-1], 0), labels


def kinds_of(data: DataSection) -> dict[str, Kind]:
    """Kind of each input and label column by name, for files that store no column types.

    Raises:
        ParameterError: the plan has no target for the label.
    """
    names = isinstance(data.classes, tuple)
    target = data.stated_target
    text = isinstance(data.vocabulary, str)
    inputs = Kind.TEXT if text else Kind.NUMBERS
    kinds = dict.fromkeys(data.inputs or (), inputs)
    kinds |= dict.fromkeys(data.categories or {}, Kind.TEXT)
    label = Kind.WHOLE_NUMBERS if target in ("class", "tokens") else Kind.NUMBERS
    return kinds | dict.fromkeys(data.label or (), Kind.TEXT if names else label)


def guessed_target(names: Sequence[str], columns: Sequence[Column]) -> str:
    """Prediction target that follows from the type of the label column.

    Raises:
        ParameterError: the type leaves more than one target possible.
    """
    kinds = {"t" if column.texts is not None else column.values.dtype.kind for column in columns}
    if kinds == {"f"}:
        return "numbers"
    if kinds == {"b"} and (len(columns) > 1 or columns[0].values.ndim > 1):
        return "tags"
    held = "text" if "t" in kinds else "true and false" if "b" in kinds else "whole numbers"
    expected = (
        f"'class' (with classes), 'tags', 'numbers' or 'tokens', since "
        f"{', '.join(names)} holds {held}"
    )
    raise ParameterError("target", None, expected)


def _number_values(name: str, column: Column) -> NDArray:
    if column.texts is not None:
        raise ParameterError("label", name, "a column of numbers, not of text")
    return column.values


def _finite(key: str, name: str, values: NDArray, rows: NDArray[np.int64]) -> None:
    """Raise an error that names the rows with numbers that float32 cannot represent."""
    if values.dtype.kind == "f":
        narrow = values.dtype.itemsize <= 4  # whose finite numbers float32 holds
        fits = np.isfinite(values) if narrow else np.abs(values) <= _FLOAT32_LIMIT
        beyond = any_of_row(~fits)
        refuse_rows(
            key, name, f"numbers from -{_FLOAT32_LIMIT:.4g} to {_FLOAT32_LIMIT:.4g}", beyond, rows
        )


def _told_apart(key: str, name: str, values: NDArray, rows: NDArray[np.int64]) -> None:
    """Raise an error that names the rows with whole numbers that float32 would round."""
    expected = (
        f"whole numbers that float32 represents (all up to {FLOAT32_WHOLE:,}), or a public range "
        f"(scaling = {{ {name} = [low, high] }})"
    )
    refuse_rows(key, name, expected, any_of_row(rounded(values)), rows)


def _whole(
    key: str, name: str, column: Column, rows: NDArray[np.int64], allowed: range
) -> NDArray[np.int64]:
    """Whole numbers of a column, after a check that all lie in the allowed range."""
    values = column.values
    expected = f"whole numbers from {allowed[0]} to {allowed[-1]}"
    if column.texts is not None:
        raise ParameterError(key, name, f"{expected}, not text")
    inside = (values >= allowed[0]) & (values <= allowed[-1])
    if values.dtype.kind == "f":
        inside &= values == np.floor(values)
    refuse_rows(key, name, expected, any_of_row(~inside), rows)
    return values.astype(np.int64)


def _coded(
    key: str, name: str, column: Column, words: Sequence[str], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Index of each entry of a column in a public list of texts."""
    if column.texts is None:
        raise ParameterError(
            key, name, "a column of text, since a list of texts is set for this column"
        )
    place: Mapping[str, int] = {word: number for number, word in enumerate(words)}
    codes = np.array([place.get(text, -1) for text in column.texts], dtype=np.int64)[column.values]
    refuse_rows(
        key, name, f"one of the {len(words)} texts in the list of this column", codes < 0, rows
    )
    return codes


def _floats(values: NDArray) -> NDArray:
    """Numbers converted to floats; a byte keeps its value from 0 to 255."""
    return values.astype(np.float32, copy=False)
