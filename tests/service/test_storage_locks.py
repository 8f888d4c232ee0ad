"""A database file has at most one coordinator, under every path of the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from storage_samples import CHARTER, check_in, create_task, served

from turnout.core.errors import StorageError


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "task.sqlite"


SERVE = (
    "import sys; from turnout.service.storage.opening import open_storage\n"
    "try: open_storage(sys.argv[1], serving=True)\n"
    "except Exception as error: print(error)\n"
)


def refusal(name: object) -> str:
    """Error message in another process that tries to serve a database."""
    told = subprocess.run(
        [sys.executable, "-c", SERVE, str(name)], check=True, capture_output=True, text=True
    )
    return told.stdout


def test_a_database_file_has_one_coordinator_under_any_path(path):
    storage = served(path)
    with storage.transaction() as tx:
        create_task(tx)
    link, other = path.with_name("link"), path.with_name("another")
    link.symlink_to(path)
    os.link(path, other)
    for name in (link, other, f"sqlite:///{path}", os.path.relpath(path)):
        with pytest.raises(StorageError, match="another coordinator"):
            served(name)
        assert "another coordinator serves" in refusal(name)
    with storage.transaction() as tx:
        check_in(tx, 3, 0)
    storage.close()
    for name in (path, other):
        with pytest.raises(StorageError, match="hard links"):
            served(name)
    other.unlink()
    again = served(path)
    with again.snapshot() as reads:
        assert reads.arrived(0).tolist() == [3]
    again.close()


def test_a_running_snapshot_keeps_the_database_lock(path):
    storage = served(path)
    with storage.transaction() as tx:
        create_task(tx)
    with storage.snapshot() as reads:
        storage.close()
        assert reads.charter() == CHARTER
        with pytest.raises(StorageError, match="another coordinator"):
            served(path)
    served(path).close()
