"""Data files converted to a cached layout are never in memory as a whole."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from own_tables import section
from pyarrow import parquet as pq

from turnout.data import arrow_tables, layout, tables
from turnout.data.layout import kept_layout
from turnout.data.tables import ArrayTable, Kind

ROWS, WIDTH = 60_000, 100
FILE_BYTES = 4 * ROWS * WIDTH


@pytest.fixture
def table(tmp_path):
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (ROWS, WIDTH))
    x[:] = np.arange(ROWS, dtype=np.float32)[:, None]
    owners = np.random.default_rng(1).integers(0, 5000, ROWS)
    return ArrayTable({"x": x, "y": np.arange(ROWS) % 2, "who": owners})


def laid_out(table, allocate, peaks):
    """The table laid out; memory at its largest is added to the peaks."""
    keys = {"inputs": "x", "label": "y", "test": 0.1, "categories": None, "scaling": None}
    small = patch.object(tables, "BATCH_NUMBERS", 2**15)
    with patch.object(layout, "SECTION_BYTES", 2**20), small:
        tracemalloc.start()
        laid = layout.lay_out(table, section(**keys), allocate=allocate)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return laid


def test_memory_use_does_not_grow_with_the_file_size(table, cache):
    peaks: list[int] = []
    kept, _, _ = kept_layout("a test", lambda allocate: laid_out(table, allocate, peaks))
    held = laid_out(table, layout.in_memory, peaks)
    assert np.array_equal(kept.arrays["inputs"], held.arrays["inputs"])
    assert peaks[0] < FILE_BYTES / 4
    assert peaks[1] > FILE_BYTES


def allocated_bytes(batches) -> int:
    """Arrow's memory at its largest while some batches are read."""
    before = pa.total_allocated_bytes()
    return max(pa.total_allocated_bytes() - before for _ in batches)


@pytest.mark.parametrize("rows_of_a_group", [ROWS, ROWS // 20])
@pytest.mark.parametrize("small", [False, True])
def test_a_parquet_file_is_never_in_memory_as_a_whole(rows_of_a_group, small, tmp_path):
    path = tmp_path / "x.parquet"
    numbers = (
        np.zeros(ROWS * WIDTH) if small else np.random.default_rng(1).normal(size=ROWS * WIDTH)
    )
    x = pa.FixedSizeListArray.from_arrays(pa.array(numbers.astype(np.float32)), WIDTH)
    pq.write_table(pa.table({"x": x}), path, row_group_size=rows_of_a_group)
    assert (path.stat().st_size < FILE_BYTES / 100) == small
    del x
    with patch.object(arrow_tables, "BATCH_NUMBERS", 2**16):
        read = arrow_tables.parquet_table(path).batches({"x": Kind.NUMBERS})
        assert allocated_bytes(read) < FILE_BYTES / 3
    ahead = (pq.read_table(path) for _ in range(1))
    assert allocated_bytes(ahead) > 0.9 * FILE_BYTES
