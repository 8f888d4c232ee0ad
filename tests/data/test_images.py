"""Image data sets: shapes, splits, downloads, and damaged files that are refused."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct

import numpy as np
import pytest

from turnout import data as datasets
from turnout.core.errors import ParameterError, StorageError
from turnout.data import files, images

needs_data = pytest.mark.skipif(
    not os.environ.get("TURNOUT_DATA"), reason="TURNOUT_DATA names no folder with data files"
)


@pytest.fixture
def empty_machine(tmp_path, monkeypatch):
    """Neither a data folder nor a cache, and no network."""
    monkeypatch.delenv("TURNOUT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TURNOUT_OFFLINE", "1")
    return tmp_path


def packed(data: bytes) -> tuple[bytes, str]:
    return gzip.compress(data, mtime=0), hashlib.sha256(data).hexdigest()


def test_the_digits_data_set_is_part_of_the_package(empty_machine):
    data = datasets.digits()
    assert (len(data.train), len(data.test)) == (1437, 360)
    assert data.train.inputs.shape == (1437, 8, 8)
    assert data.train.inputs.dtype == np.float32
    assert data.train.inputs.min() == 0
    assert data.train.inputs.max() == 1
    counts = np.bincount(np.concatenate([data.train.labels, data.test.labels]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_split_of_digits_is_fixed_and_keeps_the_proportions_of_classes():
    data = datasets.digits()
    assert np.bincount(data.test.labels).tolist() == [36, 36, 36, 36, 37, 36, 36, 36, 35, 36]
    assert data.test.labels[:8].tolist() == [0, 2, 4, 7, 1, 6, 8, 9]
    assert data.train.labels[:8].tolist() == [1, 3, 5, 6, 7, 8, 9, 0]


@needs_data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_published_image_files_are_read(name):
    data = datasets.load_images(name)
    assert data.train.inputs.shape == (60_000, 28, 28)
    assert data.test.inputs.shape == (10_000, 28, 28)
    assert np.unique(data.train.labels).tolist() == list(range(10))
    assert data.train.inputs.dtype == np.uint8
    assert data.train.inputs.max() == 255


def test_an_unknown_data_set_name_is_refused():
    with pytest.raises(ParameterError, match=r"data\.name = 'nist': expected one of 'digits'"):
        datasets.load_images("nist")


def test_an_error_about_a_missing_data_file_names_the_download(empty_machine):
    advice = "put the file below a folder named by TURNOUT_DATA"
    with pytest.raises(datasets.MissingFileError, match=advice) as error:
        datasets.mnist()
    assert "\n" not in str(error.value)


def test_the_data_folder_precedes_the_cache(empty_machine, monkeypatch):
    good, sha256 = packed(b"what was published")
    file = files.DataFile("set/file.gz", sha256)
    for folder, data in (("named", good), ("cache/turnout", b"never read")):
        (empty_machine / folder / "set").mkdir(parents=True)
        (empty_machine / folder / "set" / "file.gz").write_bytes(data)
    monkeypatch.setenv("TURNOUT_DATA", str(empty_machine / "named"))
    assert files.contents(file) == b"what was published"


def test_a_data_file_that_was_compressed_again_is_accepted(empty_machine):
    data = b"digits" * 100
    sha256 = hashlib.sha256(data).hexdigest()
    place = files.cache_folder() / "set" / "file.gz"
    place.parent.mkdir(parents=True)
    for level in (1, 9):
        place.write_bytes(gzip.compress(data, level))
        assert files.contents(files.DataFile("set/file.gz", sha256)) == data


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        (b"plain text", "not a gzip file"),
        (packed(b"what was published")[0][:-9], "not a gzip file"),
        (packed(b"something else")[0], "is not the published set/file.gz"),
    ],
)
def test_a_damaged_data_file_is_refused(empty_machine, stored, complaint):
    place = files.cache_folder() / "set" / "file.gz"
    place.parent.mkdir(parents=True)
    place.write_bytes(stored)
    file = files.DataFile("set/file.gz", packed(b"what was published")[1])
    with pytest.raises(StorageError, match=complaint):
        files.contents(file)


def test_a_download_tries_each_mirror_and_is_cached(empty_machine, monkeypatch):
    monkeypatch.setenv("TURNOUT_OFFLINE", "0")
    good, sha256 = packed(b"what was published")
    file = files.DataFile("set/file.gz", sha256, ("https://one/", "https://two/"))
    asked = []

    def fetch(address):
        asked.append(address)
        if address == "https://one/":
            raise ConnectionRefusedError("nobody\nhome")
        return good

    assert files.contents(file, fetch) == b"what was published"
    assert files.contents(file, fetch) == b"what was published"
    assert asked == ["https://one/", "https://two/"]
    assert [path.name for path in (files.cache_folder() / "set").iterdir()] == ["file.gz"]


def test_a_download_with_a_wrong_digest_is_refused_and_deleted(empty_machine, monkeypatch):
    monkeypatch.setenv("TURNOUT_OFFLINE", "")
    file = files.DataFile("set/file.gz", packed(b"published")[1], ("https://one/",))
    with pytest.raises(StorageError, match="https://one/ is not the published"):
        files.contents(file, lambda _: packed(b"forged")[0])
    assert not files.cache_folder().exists()


def test_unreachable_mirrors_are_reported(empty_machine, monkeypatch):
    monkeypatch.setenv("TURNOUT_OFFLINE", "0")

    def fetch(address):
        raise TimeoutError("timed out")

    with pytest.raises(StorageError, match=r"does not answer \(timed out\)"):
        files.contents(files.DataFile("a/b.gz", "", ("https://one/",)), fetch)


def test_an_idx_file_is_parsed_to_its_array():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    data = b"\x00\x00\x08\x03" + struct.pack(">3I", 2, 3, 4) + array.tobytes()
    assert np.array_equal(images.parse_idx(data, "x"), array)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not an IDX file of unsigned bytes"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x00", "not an IDX file of unsigned bytes"),
        (b"\x00\x00\x08\x00", "header is cut off"),
        (b"\x00\x00\x08\x02\x00\x00\x00\x01", "header is cut off"),
        (
            b"\x00\x00\x08\x01\x00\x00\x00\x05abc",
            r"holds 3 bytes, but its header states the shape \(5,\)",
        ),
    ],
)
def test_a_bad_idx_file_is_refused(data, complaint):
    with pytest.raises(StorageError, match=complaint):
        images.parse_idx(data, "x")
