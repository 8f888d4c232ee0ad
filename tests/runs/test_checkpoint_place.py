"""Checkpoints, which contain exact counts, are stored in the folder of exact counts."""

from __future__ import annotations

import pytest

from turnout.core.errors import StorageError
from turnout.runs.training import checkpoint_place


def test_a_checkpoint_is_stored_in_the_folder_of_the_exact_counts(tmp_path):
    place = checkpoint_place(tmp_path, "checkpoint.npz")
    assert place is not None
    assert place == tmp_path / "simulator" / "checkpoint.npz"
    assert place.parent.is_dir()


def test_a_checkpoint_folder_that_cannot_be_created_raises_a_storage_error(tmp_path):
    (tmp_path / "simulator").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        checkpoint_place(tmp_path, "checkpoint.npz")
