"""A database of an earlier turnout: left alone until its task is over, and purged afterwards."""

from __future__ import annotations

import hashlib
import json

import apsw
import psycopg
import pytest
from storage_samples import KEY, PARAMETERS, digest, key

from turnout.core.errors import StorageError
from turnout.service.contract.ledger import Head, Record
from turnout.service.storage import postgres, sqlite
from turnout.service.storage.database import migrations
from turnout.service.storage.opening import open_storage
from turnout.service.storage.sqlite import FileLock

STEPS = 2
CHARTER = json.dumps({"format": "turnout-charter-1", "charged_steps": [1, STEPS]}).encode()
TASK = hashlib.sha256(CHARTER).hexdigest()
UPDATES = [digest(b"update %d" % client) * 2000 for client in range(3)]


class Shell:
    """Somebody who writes rows as version 1 did."""

    def __init__(self, url: str) -> None:
        self.postgres = url.startswith("postgres")
        if self.postgres:
            self.raw = psycopg.connect(url, autocommit=True)
        else:
            self.raw = apsw.Connection(url)

    def insert(self, table: str, *values: object) -> None:
        places = ", ".join(["%s" if self.postgres else "?"] * len(values))
        self.raw.execute(f"INSERT INTO {table} VALUES ({places})", values)

    def value(self, sql: str) -> object:
        return self.raw.execute(sql).fetchone()[0]

    def close(self) -> None:
        self.raw.close()


def old(url: str, releases: int) -> None:
    """A task of version 1 after some releases, with rows that join clients and steps."""
    module = postgres if url.startswith("postgres") else sqlite
    first = migrations("postgres" if module is postgres else "sqlite")[:1]
    module.opened(url, serving=True, scripts=first).close()
    shell = Shell(url)
    shell.insert("task", 1, CHARTER, KEY, PARAMETERS)
    for client, update in enumerate(UPDATES):
        shell.insert("invitations", client, digest(b"secret"))
        shell.insert("enrolments", client, key(client))
        shell.insert("participations", 0, client, 0, 0, digest(update))
        shell.insert("bodies (step, client, body)", 0, client, update)
    head = Head(0, bytes.fromhex(TASK))
    for step in range(releases):
        record = Record(TASK, step, digest(b"sum"), digest(b"model"), 0.1, 1e-6, head.digest)
        shell.insert(
            "releases",
            step,
            TASK,
            record.sum_digest,
            record.model_digest,
            0.1,
            1e-6,
            head.digest,
            record.digest,
        )
        shell.insert("models", step, b"model", b"state", b"pending")
        shell.insert("counts", step, 3, 3)
        head = record.head
    shell.close()


def version(url: str) -> object:
    shell = Shell(url)
    sql = "SELECT version FROM turnout_schema" if shell.postgres else "PRAGMA user_version"
    found = shell.value(sql)
    shell.close()
    return found


def test_a_task_that_is_under_way_is_left_to_the_turnout_that_founded_it(url):
    old(url, releases=1)
    for serving in (True, False):
        with pytest.raises(StorageError, match="with that version"):
            open_storage(url, serving=serving)
    assert version(url) == 1
    shell = Shell(url)
    assert shell.value("SELECT count(*) FROM participations") == 3
    assert shell.value("SELECT count(*) FROM bodies") == 3
    shell.close()


@pytest.mark.parametrize("serving", [False, True])
def test_a_task_that_is_over_keeps_its_ledger_and_nobody(url, serving, tmp_path):
    old(url, releases=STEPS)
    shell = Shell(url)
    shell.insert("events (at, level, text)", 0.0, "info", f"step {STEPS - 1} is published")
    shell.close()
    if not url.startswith("postgres"):
        before = (tmp_path / "task.sqlite").read_bytes()
        assert all(update[:200] in before for update in UPDATES)
    storage = open_storage(url, serving=serving)
    with storage.snapshot() as reads:
        assert [record.step for record in reads.records()] == [0, 1]
        assert dict(reads.keys()) == {client: key(client) for client in range(3)}
        assert reads.participation_at(1, 0) is None
    assert version(url) == len(migrations("sqlite"))
    storage.close()
    if not url.startswith("postgres"):
        after = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
        assert not any(update[:200] in after or digest(update) in after for update in UPDATES)


def test_a_last_release_of_which_no_log_says_more_waits_for_the_coordinator(url):
    old(url, releases=STEPS)
    storage = open_storage(url, serving=False)
    with storage.snapshot() as reads:
        assert [record.step for record in reads.records()] == list(range(STEPS - 1))
    storage.close()


def test_an_enroller_does_not_migrate_under_a_coordinator(tmp_path):
    path = str(tmp_path / "task.sqlite")
    old(path, releases=STEPS)
    coordinator = FileLock(tmp_path / "task.sqlite")
    with pytest.raises(StorageError, match="another coordinator serves"):
        open_storage(path, serving=False)
    coordinator.close()
    open_storage(path, serving=False).close()
