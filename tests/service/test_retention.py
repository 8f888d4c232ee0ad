"""Data of a step and of a task that remain in rows and in bytes of files."""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest
from reidentification import CANDIDATES, Finding, attack, data_set, update_of
from storage_samples import START, check_in, create_task, digest, key, released, served
from web_world import charter_of, world

from turnout.schemes import CheckIn
from turnout.service.contract.wire import WireAnswer
from turnout.service.coordinator.engine import Upload
from turnout.service.storage import sqlite
from turnout.service.storage.interface import ParticipationRow
from turnout.service.storage.writes import Transaction
from turnout.service.web.heads import HeadFile

PARTICIPATION, CLIENTS, OPEN = CheckIn(4, 4), 20, 6
CHARTER = charter_of(dimension=64, participation=PARTICIPATION, population=CLIENTS)


class Task:
    """Task with all data that an attacker may know, and data known only to the test."""

    def __init__(self, folder: Path) -> None:
        dice = random.Random(12)
        self.folder, self.models = folder, [bytes(4 * 64)]
        self.records = dict(enumerate(dice.sample(range(CANDIDATES), CLIENTS)))
        self.slots = {
            (client, 4 * window + dice.randrange(4))
            for client in range(CLIENTS)
            for window in range(PARTICIPATION.windows)
        }

    def truth(self, *steps: int) -> set[tuple[int, int, int]]:
        """(client, step, records) of all participations, or of those at the given steps."""
        return {(c, s, self.records[c]) for c, s in self.slots if s in (steps or range(16))}

    async def take_part(self, w) -> None:
        """Send an update of every client that participates at the current step."""
        step = w.running.shown.step
        for client, _, records in sorted(self.truth(step)):
            update = update_of(CHARTER, self.models[-1], data_set(records))
            upload = Upload(update, digest(update))
            receipt = await w.running.submit(
                lambda tx, client=client, upload=upload: w.running.engine.update(
                    tx, client, step, upload
                )
            )
            assert receipt.answer is WireAnswer.ACCEPTED

    async def run(self, steps: int, w) -> None:
        for _ in range(steps):
            await self.take_part(w)
            await w.step_over()
            self.models.append(w.running.shown.published.parameters)
        await w.conductor._reclaiming

    def attack(self) -> Finding:
        return attack(self.folder, CHARTER, self.models)


@contextmanager
def folder_of(tmp_path: Path):
    folder = tmp_path / "all files"
    folder.mkdir()
    yield folder


def finished(folder: Path) -> tuple[Task, Finding, Finding]:
    """A whole task, and the attacker's findings while the coordinator runs and afterwards."""
    task = Task(folder)

    async def main() -> Finding:
        async with world(folder, charter=CHARTER, head_file=HeadFile(folder / "head")) as w:
            await task.run(PARTICIPATION.steps, w)
            await w.conductor.run()
            assert not w.ends.calls
            return task.attack()

    return task, asyncio.run(main()), task.attack()


def test_files_of_a_finished_task_identify_no_client(tmp_path):
    with folder_of(tmp_path) as folder:
        task, running, afterwards = finished(folder)
        names = sorted(file.name for file in folder.iterdir())
    assert len(task.truth()) == 80
    assert len(task.models) == 17
    assert names == ["head", "head.lock", "turnout.sqlite"]
    assert running == afterwards == Finding(frozenset(), frozenset(), frozenset())
    database = apsw.Connection(str(folder / "turnout.sqlite"))
    for table in ("check_ins", "bodies", "asked", "turns", "step_keys"):
        assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert database.execute("SELECT sum(checked_in) FROM counts").fetchone() == (80,)
    database.close()


def test_rows_kept_after_a_release_would_identify_clients(tmp_path, mutate):
    """Negative control: a storage that keeps step, client and digest."""
    forget = Transaction._delete_participants

    def kept(self, step):
        create = "CREATE TABLE IF NOT EXISTS kept (client INTEGER, step INTEGER, digest BLOB)"
        self._changed(create)
        self._changed("INSERT INTO kept SELECT client, step, digest FROM check_ins")
        forget(self, step)

    mutate(Transaction, "_delete_participants", kept)
    with folder_of(tmp_path) as folder:
        task, running, afterwards = finished(folder)
    for finding in (running, afterwards):
        assert finding.named == task.truth()
        assert finding.joined == {(client, step) for client, step, _ in task.truth()}
        assert finding.traces == {(records, step) for _, step, records in task.truth()}


def test_rows_deleted_without_overwriting_remain_in_the_database_file(
    tmp_path, monkeypatch, mutate
):
    """Negative control: SQLite's DELETE without secure_delete."""
    careless = tuple(s for s in sqlite._SETTINGS if "secure_delete" not in s)
    mutate(sqlite, "_SETTINGS", (*careless, "PRAGMA secure_delete=OFF"))
    monkeypatch.setitem(sqlite._REQUIRED, "secure_delete", 0)
    mutate(sqlite._Connection, "tidy", lambda self, thorough: True)
    mutate(sqlite._Connection, "discarded", sqlite._Connection.changed)
    with folder_of(tmp_path) as folder:
        _, running, afterwards = finished(folder)
    assert running.traces
    assert afterwards.traces
    assert not running.named


def test_only_rows_of_the_open_step_link_clients_to_steps(tmp_path):
    with folder_of(tmp_path) as folder:
        task = Task(folder)

        async def main() -> Finding:
            async with world(folder, charter=CHARTER) as w:
                await task.run(OPEN, w)
                await task.take_part(w)
                return task.attack()

        finding = asyncio.run(main())
    assert task.truth(OPEN)
    assert finding.named == task.truth(OPEN)
    assert finding.joined == {(client, step) for client, step, _ in task.truth(OPEN)}
    assert finding.traces == {(records, step) for _, step, records in task.truth(OPEN)}


# -- the bytes of the files ---------------------------------------------------------------------


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


@pytest.mark.parametrize("clients", [1, 40, 800])  # one page, and a tree of several pages
def test_no_file_contains_updates_of_a_released_step(tmp_path, clients):
    storage, dice = served(tmp_path / "task.sqlite"), random.Random(clients)
    came = dice.sample(range(clients), clients)
    digests = [digest(b"%d of %d" % (client, clients)) for client in range(clients)]
    with storage.transaction() as tx:
        create_task(tx, clients)
    for first in range(0, clients, 20):
        with storage.transaction() as tx:
            for client in came[first : first + 20]:
                tx.check_in(ParticipationRow(client, 0, digests[client]), b"update", 1)
    key_of_step = storage._write.value("SELECT key FROM step_keys")
    before = bytes_of(tmp_path)
    assert all(name in before for name in (*digests, key_of_step))  # readable until then
    with storage.transaction() as tx:
        released(tx, 1)
        tx.reclaim(clients)
    with storage.snapshot() as reads:
        assert reads.charter()
        assert not storage.tidy()  # an open older snapshot prevents the purge
    assert storage.tidy()
    after = bytes_of(tmp_path)
    assert not any(name in after for name in (*digests, key_of_step))
    storage.close()
    assert not any(name in bytes_of(tmp_path) for name in (*digests, key_of_step))


def test_stored_check_ins_do_not_reveal_the_step(tmp_path):
    """Check-ins of the same clients in two orders leave the same bytes."""
    left = []
    for number, order in enumerate(([[1, 2], [3], [0, 7]], [[7], [0, 3, 2], [1]])):
        path = tmp_path / f"{number}" / "task.sqlite"
        path.parent.mkdir()
        storage, head = served(path), START
        with storage.transaction() as tx:
            create_task(tx)
        for step, clients in enumerate(order):
            for client in clients:
                with storage.transaction() as tx:
                    check_in(tx, client, step)
            with storage.transaction() as tx:
                head = released(tx, 1, head)
        page = storage._write.value("SELECT rootpage FROM sqlite_schema WHERE name = 'turns'")
        assert storage.tidy()
        data, size = path.read_bytes(), 16384
        left.append(data[(page - 1) * size : page * size])
        storage.close()
    assert left[0] == left[1]
    assert any(left[0])


def test_postgres_transaction_ids_do_not_reveal_the_step(postgres_url):
    """Neither rows of clients nor rows of counts reveal the step."""
    storage, head = served(postgres_url), START
    with storage.transaction() as tx:
        create_task(tx)
        tx.invite([bytes(32)] * 3000)
        tx.enrol(2500, key(2500))
    for step, clients in enumerate(([1, 2], [2500], [0, 7])):
        for client in clients:
            with storage.transaction() as tx:
                check_in(tx, client, step)
        with storage.transaction() as tx:
            head = released(tx, 1, head)
            tx.reclaim(9)
        assert storage.tidy()
    with psycopg.connect(postgres_url) as shell:
        assert shell.execute("SELECT DISTINCT xmax::text FROM enrolments").fetchall() == [("0",)]
        assert len(shell.execute("SELECT DISTINCT xmin::text FROM turns").fetchall()) == 1
        assert shell.execute("SELECT count(*) FROM turns").fetchone() == (3,)
        assert shell.execute("SELECT pg_relation_size('check_ins')").fetchone() == (0,)
    storage.close()
