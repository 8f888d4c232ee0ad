"""Availability traces: times outside all intervals count as unavailable."""

from __future__ import annotations

import os

import numpy as np
import pytest

from turnout import data as datasets
from turnout.core.errors import StorageError

HEADER = "device,slot_start,slot_end,available\n"

needs_data = pytest.mark.skipif(
    not os.environ.get("TURNOUT_DATA"), reason="TURNOUT_DATA names no folder with data files"
)


@needs_data
def test_the_built_in_trace_has_the_documented_number_of_devices():
    matrix = datasets.flash_phones()
    assert matrix.shape == (723, 241)
    assert np.isnan(matrix).mean() == pytest.approx(0.1918, abs=1e-4)
    assert np.nanmean(matrix) == pytest.approx(0.08119, abs=1e-5)
    assert (np.nansum(matrix, axis=1) == 0).sum() == 211
    at_once = np.nansum(matrix, axis=0)
    assert (at_once.min(), at_once.max()) == (14, 97)


def test_availability_outside_all_intervals_of_a_trace_is_nan():
    matrix = datasets.parse_intervals(HEADER + "0,1,3,1\n2,0,1,0\n", "x")
    expected = [[np.nan, 1, 1], [np.nan, np.nan, np.nan], [0, np.nan, np.nan]]
    assert np.array_equal(matrix, np.array(expected), equal_nan=True)


def test_a_custom_availability_trace_is_accepted(tmp_path):
    (tmp_path / "mine.csv").write_text(HEADER + "0,0,4,1\n")
    assert datasets.trace_from(tmp_path / "mine.csv").tolist() == [[1, 1, 1, 1]]
    with pytest.raises(datasets.MissingFileError, match="write a CSV file with the header device"):
        datasets.trace_from(tmp_path / "other.csv")
    with pytest.raises(StorageError, match="cannot be read"):
        datasets.trace_from(tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("device,start,end,on\n0,0,1,1\n", "expected the first line device,slot_start"),
        (HEADER, "no intervals"),
        (HEADER + "0,0,1\n", "has 3 columns: expected four"),
        (HEADER + "0,0,1,nan\n", "not a table of whole numbers"),
        (HEADER + "0,0,1,0.5\n", "not a table of whole numbers"),
        (HEADER + "0,0,1,2\n", "other than 0 or 1"),
        (HEADER + "0,0,1,-1\n", "other than 0 or 1"),
        (HEADER + "0,3,3,1\n", "empty interval, a negative number"),
        (HEADER + "-1,0,1,1\n", "empty interval, a negative number"),
        (HEADER + "0,0,2,1\n0,1,3,0\n", "two intervals of one device"),
    ],
)
def test_an_invalid_availability_trace_is_refused(text, complaint):
    with pytest.raises(StorageError, match=complaint) as error:
        datasets.parse_intervals(text, "trace.csv")
    assert "\n" not in str(error.value)
