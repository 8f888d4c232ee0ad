"""Where checkpoints lie: with the counts that they hold, also those of earlier versions."""

from __future__ import annotations

import pytest

from turnout.core.errors import StorageError
from turnout.training.runs import _checkpoint


def test_a_checkpoint_of_an_earlier_version_is_taken_over(tmp_path):
    (tmp_path / "checkpoint.npz").write_bytes(b"earlier")
    place = _checkpoint(tmp_path, "checkpoint.npz")
    assert place == tmp_path / "simulator" / "checkpoint.npz"
    assert place.read_bytes() == b"earlier"
    assert not (tmp_path / "checkpoint.npz").exists()


def test_a_newer_checkpoint_stays(tmp_path):
    place = _checkpoint(tmp_path, "checkpoint.npz")
    place.write_bytes(b"newer")
    (tmp_path / "checkpoint.npz").write_bytes(b"earlier")
    assert _checkpoint(tmp_path, "checkpoint.npz").read_bytes() == b"newer"


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "simulator").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        _checkpoint(tmp_path, "checkpoint.npz")
