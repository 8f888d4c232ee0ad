"""First names: published counts, one item for each person, and damaged files."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os

import numpy as np
import pytest

from turnout.core.errors import ParameterError, StorageError
from turnout.data import files


def stored(folder, monkeypatch, mutate, text: str) -> None:
    data = text.encode()
    place = folder / "names" / "ssa_names_2017_counts.csv.gz"
    place.parent.mkdir()
    place.write_bytes(gzip.compress(data))
    monkeypatch.setenv("TURNOUT_DATA", str(folder))
    changed = dataclasses.replace(files._FILE, sha256=hashlib.sha256(data).hexdigest())
    mutate(files, "_FILE", changed)


def test_first_names_are_sorted_by_how_many_children_have_them(tmp_path, monkeypatch, mutate):
    stored(tmp_path, monkeypatch, mutate, "name,n\nB,2\nA,2\nC,5\n")
    found = files.first_names()
    assert found.items == ("C", "A", "B")
    assert found.counts.tolist() == [5, 2, 2]
    assert found.people == 9
    assert np.array_equal(found.holdings(), [0] * 5 + [1] * 2 + [2] * 2)
    assert found.frequencies.sum() == pytest.approx(1)
    assert files.first_names(2).items == ("C", "A")
    with pytest.raises(ParameterError, match="top"):
        files.first_names(4)


@pytest.mark.parametrize("text", ["name\nA\n", "name,n\nA,x\n", "name,n\nA\n"])
def test_a_damaged_table_of_names_is_refused(tmp_path, monkeypatch, mutate, text):
    stored(tmp_path, monkeypatch, mutate, text)
    with pytest.raises(StorageError, match="not a table"):
        files.first_names()


@pytest.mark.skipif(not os.environ.get("TURNOUT_DATA"), reason="TURNOUT_DATA names no folder")
def test_the_published_word_list_is_read():
    found = files.first_names()
    assert (len(found.items), found.people) == (29_910, 3_546_301)
    top = files.first_names(1000)
    assert top.people == 2_481_445
    assert top.items[:4] == ("Emma", "Liam", "Olivia", "Noah")
