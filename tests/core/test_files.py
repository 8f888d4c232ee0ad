"""Files are replaced atomically, durably, and by one process at a time."""

import os
import threading

import pytest

from turnout.core import files
from turnout.core.errors import StorageError
from turnout.core.files import lock_file, locked, replace_file

CALLS = ("fsync", "replace", "fsync")


def written(path, text):
    replace_file(path, lambda file: file.write(text.encode()), "text", 0o600)


def calls_of(monkeypatch, path):
    calls = []

    class Noted:
        def __getattr__(self, name):
            def call(*arguments, **options):
                calls.append(name)
                return getattr(os, name)(*arguments, **options)

            return call if name in CALLS else getattr(os, name)

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", Noted())
        written(path, "new")
    return tuple(calls)


def test_a_replaced_file_is_synced_before_its_rename_and_its_folder_afterwards(
    tmp_path, monkeypatch
):
    assert calls_of(monkeypatch, tmp_path / "file") == CALLS
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    # A replacement that forgets the folder is noticed.
    monkeypatch.setattr(files, "sync_folder", lambda folder: None)
    assert calls_of(monkeypatch, tmp_path / "file") != CALLS


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_contents_of_a_file(tmp_path, monkeypatch, broken):
    def fails(*arguments):
        raise OSError(28, "No space left on device")

    written(tmp_path / "file", "old")
    monkeypatch.setattr(os, broken, fails)
    with pytest.raises(StorageError, match="file: text cannot be written: No space left on device"):
        written(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_file_lock_is_exclusive(tmp_path):
    path, entered = tmp_path / "file", threading.Event()

    def enter():
        with locked(path):
            entered.set()

    with locked(path):
        with pytest.raises(BlockingIOError):
            lock_file(tmp_path / "file.lock", wait=False)
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.is_set()
    other.join()
    assert entered.is_set()


def test_locking_a_file_creates_no_folder(tmp_path):
    with (
        pytest.raises(StorageError, match="cannot be locked: No such file"),
        locked(tmp_path / "no/file"),
    ):
        pass
    assert not (tmp_path / "no").exists()
