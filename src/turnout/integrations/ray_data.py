"""Clients' values in a data set of Ray Data, streamed into turnout's private estimates.

One row is one client. Blocks are read as Ray makes them and only tallies are kept, so memory does
not grow with the rows. An estimate under shuffled trust counts the rows first, so it streams twice:
the data set must give the same rows each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.optional import unavailable
from turnout.estimation.private.columns import (
    BLOCK_ROWS,
    batch_entries,
    batch_vectors,
    chosen_columns,
)

try:
    from ray.data import Dataset
except ImportError as error:
    raise unavailable(error, __name__, "data", "ray") from None


class RayRows:
    """Rows for `turnout.estimate_frequencies` and `turnout.estimate_mean`.

    Args:
        dataset: of tables with named columns, such as `ray.data.read_parquet` gives.

    Raises:
        ParameterError: no data set, or one without rows.
    """

    def __init__(self, dataset: Dataset) -> None:
        schema = dataset.schema() if isinstance(dataset, Dataset) else None
        if schema is None:
            given = type(dataset).__name__
            raise ParameterError("dataset", given, "a ray.data.Dataset with rows")
        self._dataset = dataset
        self.names: Sequence[str] = list(schema.names)

    def entries(self, column: str | None) -> Iterator[NDArray[Any] | list[Any]]:
        """One column, block by block."""
        chosen = () if column is None else (column,)
        return map(batch_entries, self._batches(chosen, single=True))

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """Columns of numbers, block by block, each of shape (rows, columns)."""
        return map(batch_vectors, self._batches(columns, single=False))

    def _batches(self, columns: Sequence[str], *, single: bool) -> Iterator[Any]:
        """The record batches of some columns, in their order."""
        names = list(chosen_columns(columns, self.names, single=single))
        size = max(1, BLOCK_ROWS // len(names))
        whole = set(names) == set(self.names)
        some = self._dataset if whole else self._dataset.select_columns(names)
        tables: Any = some.iter_batches(batch_size=size, batch_format="pyarrow")
        for table in tables:
            yield from table.select(names).to_batches()
