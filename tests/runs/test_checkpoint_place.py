"""Where checkpoints lie: with the counts that they hold; those of earlier versions are refused."""

from __future__ import annotations

import pytest

from turnout.core.errors import StorageError
from turnout.runs.training import _checkpoint


def test_a_run_of_an_earlier_version_is_refused_and_left_alone(tmp_path):
    (tmp_path / "checkpoint.npz").write_bytes(b"earlier")
    with pytest.raises(StorageError, match="an earlier version of turnout wrote this run"):
        _checkpoint(tmp_path, "checkpoint.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.npz"]


def test_a_checkpoint_lies_with_the_counts(tmp_path):
    place = _checkpoint(tmp_path, "checkpoint.npz")
    assert place == tmp_path / "simulator" / "checkpoint.npz"
    assert place.parent.is_dir()


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "simulator").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        _checkpoint(tmp_path, "checkpoint.npz")
