"""Texts as records of a fixed number of characters, each with the one after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.values import refuse_rows
from turnout.datasets.tables import Batch, Column, Kind, Table


class CharacterTable:
    """A table whose texts are cut into records; what else a row holds goes with each of them.

    A text of c characters gives the c − 1 pairs of one and the next in ⌈(c − 1)/length⌉ records,
    the last one filled up with −1. A text of fewer than two characters gives none.

    Args:
        table: with a column of text.
        text: its name.
        vocabulary: all characters, in the order of their tokens.
        length: tokens of a record.
    """

    def __init__(self, table: Table, text: str, vocabulary: str, length: int) -> None:
        self.typed = table.typed
        self._table, self._text, self._length = table, text, length
        self._known = vocabulary
        self._place = {character: place for place, character in enumerate(vocabulary)}

    @property
    def names(self) -> Sequence[str]:
        """Those of the table."""
        return self._table.names

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[Batch]:
        """The records of all rows; the column of text holds arrays of length + 1 tokens.

        Raises:
            ParameterError: a row without a text, or with a character that is not in the vocabulary.
        """
        for batch in self._table.batches({**kinds, self._text: Kind.TEXT}):
            tokens, lengths = self._tokens(batch)
            pieces = -(-np.maximum(lengths - 1, 0) // self._length)
            source = np.repeat(np.arange(len(batch)), pieces)
            columns = {
                name: _repeated(column, source)
                for name, column in batch.columns.items()
                if name != self._text
            }
            if source.size:
                columns[self._text] = Column(self._cut(tokens, lengths, pieces))
                yield Batch(batch.rows[source], columns)

    def _tokens(self, batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens of all texts one after another, and how many each has."""
        column = batch.columns[self._text]
        if column.texts is None:
            raise ParameterError("inputs", self._text, "a column of text, as its vocabulary says")
        refuse_rows("inputs", self._text, "a text in every row", column.missing, batch.rows)
        coded = [
            np.array([self._place.get(one, -1) for one in text], dtype=np.int64)
            for text in column.texts
        ]
        lacking = np.array([bool((part < 0).any()) for part in coded])[column.values]
        expected = f"texts of the {len(self._known)} characters of the vocabulary"
        refuse_rows("inputs", self._text, expected, lacking, batch.rows)
        parts = [coded[place] for place in column.values]
        return np.concatenate(parts), np.array([part.size for part in parts])

    def _cut(
        self, tokens: NDArray[np.int64], lengths: NDArray[np.int64], pieces: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Records of length + 1 tokens, each beginning with the last one of the one before."""
        begins = np.repeat(np.cumsum(lengths) - lengths, pieces)
        ends = np.repeat(np.cumsum(lengths), pieces)
        piece = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        index = (begins + piece * self._length)[:, None] + np.arange(self._length + 1)
        held = index < ends[:, None]
        return np.where(held, tokens[np.minimum(index, tokens.size - 1)], -1)


def _repeated(column: Column, source: NDArray[np.intp]) -> Column:
    missing = None if column.missing is None else column.missing[source]
    return Column(column.values[source], column.texts, missing)
