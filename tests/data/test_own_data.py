"""User files: every format gives the same records, and a failure leaves no partial files."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_tables import VISITS, WRITERS, write_csv, write_npy, write_parquet
from own_tables import section as own_section
from PIL import Image

from turnout.core.errors import ParameterError, StorageError
from turnout.data import layout, own_data, own_records, tables
from turnout.data.tables import ArrayTable

LAID_OUT = [
    [0.40, 1, 0],
    [0.41, 0, 1],
    [0.50, 1, 0],
    [0.60, 0, 1],
    [0.61, 1, 0],
]
"""Inputs of ann, ben and cy in the order of their ids, and of each in the order of the file."""


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_format_gives_the_same_records(name, tmp_path, cache):
    WRITERS[name](tmp_path / name, VISITS)
    data = own_data(own_section(name), tmp_path)
    assert data.holdings is not None
    assert data.holdings.offsets.tolist() == [0, 2, 3, 5]
    assert data.holdings.records.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(data.train.inputs, LAID_OUT, rtol=1e-6)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert sorted(data.test.labels.tolist()) == [0, 1]
    assert (data.train.inputs.dtype, data.train.labels.dtype) == (np.float32, np.int64)
    assert (data.outputs, data.target.value, data.name) == (2, "class", name)


@pytest.mark.parametrize("name", ["visits.parquet", "visits.csv"])
def test_the_order_of_rows_does_not_change_clients_or_the_test_split(name, tmp_path, cache):
    many = {
        "who": [f"patient {i % 40}" for i in range(200)],
        "age": [float(i % 40) for i in range(200)],
        "ill": [i % 2 for i in range(200)],
    }
    keys = {"inputs": ["age"], "test": 0.3, "categories": None, "scaling": None}
    found = []
    for order in (range(200), np.random.default_rng(1).permutation(200)):
        table = {column: [values[i] for i in order] for column, values in many.items()}
        WRITERS[name](tmp_path / name, table)
        data = own_data(own_section(name, **keys), tmp_path)
        assert data.holdings is not None
        held = np.repeat(np.arange(data.holdings.population), np.diff(data.holdings.offsets))
        ages = [sorted(data.train.inputs[held == c, 0]) for c in range(data.holdings.population)]
        found.append((ages, sorted(data.test.inputs[:, 0])))
        (tmp_path / name).unlink()
    assert found[0] == found[1]
    trained, tested = {age for ages in found[0][0] for age in ages}, set(found[0][1])
    assert not trained & tested  # all records of a client are on one side
    assert 3 <= len(tested) <= 21


@given(
    rows=st.integers(1, 60),
    clients=st.integers(1, 9),
    section=st.integers(1, 300),
    seed=st.integers(0, 2**32),
)
def test_records_are_ordered_by_client_then_by_row(rows, clients, section, seed):
    owners = np.random.default_rng(seed).integers(0, clients, rows)
    table = ArrayTable({"who": owners, "x": np.arange(rows) * 1.0, "y": np.arange(rows)})
    keys = {"inputs": "x", "label": "y", "classes": 99, "categories": None, "scaling": None}
    with patch.object(layout, "SECTION_BYTES", section), patch.object(tables, "BATCH_NUMBERS", 7):
        laid = layout.lay_out(table, own_section(test=None, **keys), table)
    by_client = np.argsort(owners, kind="stable")
    assert laid.arrays["labels"].tolist() == by_client.tolist()
    assert laid.arrays["inputs"][:, 0].tolist() == by_client.tolist()
    assert (
        np.diff(laid.arrays["offsets"]).tolist()
        == np.unique(owners, return_counts=True)[1].tolist()
    )
    assert laid.arrays["test-labels"].tolist() == list(range(rows))


def test_the_test_split_of_a_client_does_not_depend_on_other_clients():
    def sides(names):
        table = ArrayTable({"who": names, "x": np.arange(len(names)) * 1.0, "y": [0] * len(names)})
        keys = {"inputs": ["x"], "label": "y", "test": 0.4, "categories": None, "scaling": None}
        laid = layout.lay_out(table, own_section(**keys))
        return {names[int(x)] for x in laid.arrays["test-inputs"][:, 0]}

    names = [f"client {i}" for i in range(60)]
    held_out = sides(names)
    for gone in names[:10]:
        assert sides([name for name in names if name != gone]) == held_out - {gone}


def test_a_test_set_may_be_a_separate_file(tmp_path, cache):
    write_parquet(tmp_path / "visits.parquet", VISITS)
    only = {name: values[:2] for name, values in VISITS.items() if name != "who"}
    write_csv(tmp_path / "later.csv", only)
    data = own_data(own_section("visits.parquet", test="later.csv"), tmp_path)
    assert len(data.train) == 7
    np.testing.assert_allclose(data.test.inputs, [[0.6, 0, 1], [0.4, 1, 0]], rtol=1e-6)


def test_the_cached_layout_of_a_data_file_is_written_once_for_equal_settings(tmp_path, cache):
    write_parquet(tmp_path / "visits.parquet", VISITS)
    said: list[str] = []
    first = own_data(own_section("visits.parquet"), tmp_path, say=said.append)
    again = own_data(own_section("visits.parquet"), tmp_path, say=said.append)
    assert len(said) == 1
    assert "0.0 MiB, a private copy" in said[0]
    assert str(cache / "turnout" / "layouts") in said[0]
    assert np.array_equal(first.train.inputs, again.train.inputs)
    other = own_data(own_section("visits.parquet", scaling=None), tmp_path, say=said.append)
    assert len(said) == 2
    assert other.train.inputs.max() == 61


def test_a_changed_data_file_of_equal_size_and_time_gets_a_new_layout(tmp_path, cache):
    path = tmp_path / "visits.csv"
    write_csv(path, VISITS)
    before = own_data(own_section("visits.csv"), tmp_path).train.inputs.copy()
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.write_text(path.read_text().replace("60", "90"))
    os.utime(path, ns=times)
    after = own_data(own_section("visits.csv"), tmp_path).train.inputs
    assert not np.array_equal(before, after)


def test_a_cached_layout_is_readable_only_by_its_owner_and_rebuilt_if_damaged(tmp_path, cache):
    write_parquet(tmp_path / "visits.parquet", VISITS)
    own_data(own_section("visits.parquet"), tmp_path)
    layouts = cache / "turnout" / "layouts"
    assert layouts.stat().st_mode & 0o077 == 0
    (layout,) = (folder for folder in layouts.iterdir() if folder.is_dir())
    (layout / "inputs.npy").write_bytes((layout / "inputs.npy").read_bytes()[:-5])
    assert len(own_data(own_section("visits.parquet"), tmp_path).train) == 5


def test_a_failed_layout_leaves_no_files(tmp_path, cache):
    wrong = {**VISITS, "age": [60.0, 40.0, 50.0, None, 61.0, 70.0, None]}
    write_parquet(tmp_path / "visits.parquet", wrong)
    with pytest.raises(ParameterError, match="inputs = 'age': expected a value in every row"):
        own_data(own_section("visits.parquet"), tmp_path)
    assert not [path for path in (cache / "turnout" / "layouts").iterdir() if path.is_dir()]


def test_a_full_disk_is_one_error_line_and_leaves_no_files(tmp_path, cache, monkeypatch):
    write_parquet(tmp_path / "visits.parquet", VISITS)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        own_data(own_section("visits.parquet"), tmp_path)
    assert not [path for path in (cache / "turnout" / "layouts").iterdir() if path.is_dir()]


def _lay_out_elsewhere(folder, said):
    own_data(own_section("visits.npz"), folder, say=said.put)


def test_only_one_of_two_processes_writes_the_layout(tmp_path, cache):
    WRITERS["visits.npz"](tmp_path / "visits.npz", VISITS)
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    both = [context.Process(target=_lay_out_elsewhere, args=(tmp_path, said)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert said.get(timeout=5)
    assert said.empty()


def test_arrays_of_a_data_folder_are_shared_with_pytorch_and_not_copied(tmp_path, cache):
    write_npy(tmp_path / "scans", {"x": np.zeros((900, 4, 4), np.uint8), "y": np.zeros(900, int)})
    keys = {"client": None, "inputs": "x", "label": "y", "test": 0.5}
    data = own_data(own_section("scans", categories=None, scaling=None, **keys), tmp_path)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.inputs.shape[1:] == (4, 4)
    assert data.train.inputs.flags.writeable  # else PyTorch copies it
    assert isinstance(data.train.inputs.base, np.memmap)
    assert data.holdings is None


def test_a_folder_of_images_is_read_by_client_and_class(tmp_path, cache):
    for client, kind, level in (("ann", "cat", 10), ("ann", "dog", 20), ("ben", "dog", 30)):
        folder = tmp_path / "pets" / client / kind
        folder.mkdir(parents=True)
        Image.new("L", (3, 2), level).save(folder / "one.png")
    shutil.copytree(tmp_path / "pets", tmp_path / "later")
    keys = {"client": "client", "inputs": "image", "label": "class", "classes": ["cat", "dog"]}
    pets = own_section("pets", test="later", categories=None, scaling=None, **keys)
    data = own_data(pets, tmp_path)
    assert data.train.inputs.shape == (3, 2, 3)
    assert data.train.inputs[:, 0, 0].tolist() == [10, 20, 30]
    assert data.train.labels.tolist() == [0, 1, 1]
    assert data.names == ("cat", "dog")
    assert data.holdings is not None
    assert data.holdings.offsets.tolist() == [0, 2, 3]
    (tmp_path / "pets" / "empty").mkdir()
    with pytest.raises(ParameterError, match="client = 'empty': expected at least one image"):
        own_data(pets, tmp_path)
    (tmp_path / "pets" / "empty").rmdir()
    Image.new("RGB", (3, 2)).save(tmp_path / "pets" / "ben" / "dog" / "two.png")
    with pytest.raises(ParameterError, match=r"two\.png'.*images of one shape: \(2, 3\), not"):
        own_data(pets, tmp_path)
    (tmp_path / "pets" / "ben" / "dog" / "two.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(StorageError, match=r"two\.png is not a complete image"):
        own_data(pets, tmp_path)


def test_image_columns_of_a_table_are_decoded_to_pixels(tmp_path, cache):
    def png(level, size=(3, 2)):
        held = io.BytesIO()
        Image.new("L", size, level).save(held, "PNG")
        return held.getvalue()

    def write(images):
        kept = [None if one is None else {"bytes": one, "path": None} for one in images]
        table = {"image": kept, "y": [0, 1, 0], "held": [False, False, True]}
        write_parquet(tmp_path / "scans.parquet", table)

    keys = {"client": None, "inputs": "image", "label": "y", "categories": None, "scaling": None}
    scans = own_section("scans.parquet", **keys)
    write([png(7), png(8), png(9)])
    data = own_data(scans, tmp_path)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.inputs.shape == (2, 2, 3)
    assert data.test.inputs.max() == 9
    write([png(7), png(8, (4, 4)), png(9)])
    with pytest.raises(ParameterError, match=r"one shape, \(2, 3\), not \(4, 4\) in row 1"):
        own_data(scans, tmp_path)
    write([png(7), None, png(9)])
    with pytest.raises(ParameterError, match="a value in every row; invalid: row 1"):
        own_data(scans, tmp_path)
    write([png(7), png(8)[:45], png(9)])
    with pytest.raises(StorageError, match=r"image in row 1 \(counted from 0\) is not a complete"):
        own_data(scans, tmp_path)


def test_texts_become_characters_whose_label_is_the_next_character(tmp_path, cache):
    roles = {"who": ["b", "a", "b"], "line": ["abcab", "ba", "c"], "held": [False, False, False]}
    write_parquet(tmp_path / "roles.parquet", roles)
    write_parquet(tmp_path / "later.parquet", {"line": ["cab"]})
    keys = {"inputs": "line", "label": None, "classes": None, "vocabulary": "abc", "length": 3}
    plan = own_section("roles.parquet", test="later.parquet", categories=None, scaling=None, **keys)
    data = own_data(plan, tmp_path)
    assert (data.target.value, data.outputs) == ("tokens", 3)
    assert data.holdings is not None
    assert data.holdings.offsets.tolist() == [0, 1, 3]
    assert data.train.inputs.tolist() == [[1, 0, 0], [0, 1, 2], [0, 1, 0]]
    assert data.train.labels.tolist() == [[0, -1, -1], [1, 2, 0], [1, -1, -1]]
    assert data.test.labels.tolist() == [[0, 1, -1]]


def test_the_file_of_one_client_is_encoded_as_the_data_file_of_the_plan(tmp_path, cache):
    table = {name: VISITS[name][:3] for name in ("age", "unit", "ill")}
    write_csv(tmp_path / "mine.csv", table)
    records = own_records(own_section("visits.parquet"), tmp_path / "mine.csv")
    np.testing.assert_allclose(records.inputs, [[0.6, 0, 1], [0.4, 1, 0], [0.5, 1, 0]], rtol=1e-6)
    assert records.labels.tolist() == [1, 0, 1]
    assert not list(cache.rglob("*.npy"))
