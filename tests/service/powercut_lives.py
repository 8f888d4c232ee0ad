"""Coordinators that write, lose power and continue from the disk, with checks of every disk.

A *life* opens a database, commits groups of changes through the service's writer, and is cut at
many positions of its log. After each cut the disk must open and contain exactly the first groups:
all acknowledged groups, and perhaps some that had begun. One of the disks begins the next life.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from powercut import NAME, Disk, Entry, PowerCutLayer
from powercut_groups import Author, Fact, Facts, Group
from storage_samples import START, TASK, digest

from turnout.core.errors import StorageError
from turnout.service.contract.ledger import Head, require_chain
from turnout.service.storage import sqlite
from turnout.service.storage.database import Storage
from turnout.service.storage.writer import Writer

FILE = "task.sqlite"


class Fault(Exception):  # noqa: N818
    """Wrong or missing data on a disk after a power cut."""


_QUERIES = {
    "invited": "SELECT client, secret_digest FROM invitations",
    "enrolled": "SELECT client, public_key FROM enrolments",
    "in": "SELECT client, step, digest FROM check_ins",
    "asked": "SELECT step, clients FROM asked",
    "event": "SELECT text FROM events",
    "score": "SELECT steps FROM scores",
}


def stored(raw: apsw.Connection) -> list[Fact]:
    """All facts in a database, read without the service's code."""
    facts = [(kind, *row) for kind, sql in _QUERIES.items() for row in raw.execute(sql)]
    facts += [
        ("task", digest(charter).hex()) for (charter,) in raw.execute("SELECT charter FROM task")
    ]
    ledger = (
        "SELECT step, releases.digest, parameters FROM releases "
        "JOIN models USING (step) JOIN counts USING (step)"
    )
    facts += [("release", step, name, digest(model)) for step, name, model in raw.execute(ledger)]
    for shard, used in raw.execute("SELECT shard, used FROM turns"):
        counts = [int.from_bytes(used[at : at + 2], "big") for at in range(0, len(used), 2)]
        facts += [("turn", len(counts) * shard + c, n) for c, n in enumerate(counts) if n]
    return facts


@dataclass
class History:
    """Groups and acknowledgements, as known outside of the disk."""

    base: Facts = frozenset()
    groups: list[Group] = field(default_factory=list)
    published: dict[int, bytes] = field(default_factory=dict)

    def check(self, storage: Storage, begun: int, acknowledged: int) -> int:
        """Number of groups of this life that a disk contains.

        Raises:
            Fault: the disk does not contain exactly the first groups, contains fewer groups than
                were acknowledged, or its ledger is invalid.
        """
        raw = storage._write.raw  # pyright: ignore[reportAttributeAccessIssue]
        if not _is_whole(raw):
            raise Fault("the file is damaged")
        facts = stored(raw)
        if len(set(facts)) != len(facts):
            raise Fault("something is stored twice")
        found, kept = frozenset(facts), None
        for number, state in enumerate(self.states(begun)):
            kept = number if state == found else kept
        if kept is None:
            raise Fault("a group is stored or deleted in part, or before an earlier one")
        if kept < acknowledged:
            raise Fault(f"{acknowledged} groups were acknowledged and {kept} are stored")
        self._check_ledger(storage, raw)
        return kept

    def states(self, begun: int) -> Iterator[Facts]:
        """Stored facts after no group, after the first group, and so on."""
        facts = self.base
        yield facts
        for group in self.groups[:begun]:
            facts = group.after(facts)
            yield facts

    def _check_ledger(self, storage: Storage, raw: apsw.Connection) -> None:
        head: Head = START
        with storage.snapshot(whole=True) as reads:
            for record in reads.records():
                head = require_chain(TASK, head, record)
                if self.published.get(record.step, record.digest) != record.digest:
                    raise Fault("a step is released twice with different bytes")
            bodies = {client: digest(body) for client, body in reads.bodies(head.steps)}
            here = {p.client: p.digest for p in reads.participations(head.steps)}
            if bodies != {client: name for client, name in here.items() if name is not None}:
                raise Fault("an update is missing, or another one")


def _is_whole(raw: apsw.Connection) -> bool:
    """Whether SQLite's integrity check passes; of some files SQLite cannot read the first page."""
    try:
        return raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    except apsw.CorruptError:
        return False


class HastyWriter(Writer):
    """Faulty writer that acknowledges before the commit."""

    def _run_jobs(self, batch: list[Any]) -> list[Any]:
        if batch[0].alone:
            return super()._run_jobs(batch)
        with self._storage.transaction() as transaction:
            for queued in batch:
                if queued.future.set_running_or_notify_cancel():
                    queued.future.set_result(queued.job(transaction))
        return []


@dataclass
class Wrongs:
    """Faults of the coordinator under test."""

    synchronous: str = "FULL"
    writer: type[Writer] = Writer
    piecemeal: bool = False
    """Whether each statement is a separate transaction."""


@dataclass
class Outcome:
    """Number of power cuts without a fault, and the faults found at the others."""

    cuts: int = 0
    kept: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def _live(
    storage: Storage, groups: int, rng: random.Random, wrongs: Wrongs, note: Any
) -> list[Group]:
    """Commit groups one after another, and note when each began and was acknowledged."""
    raw = storage._write.raw  # pyright: ignore[reportAttributeAccessIssue]
    raw.execute(f"PRAGMA synchronous={wrongs.synchronous}")
    raw.execute(f"PRAGMA wal_autocheckpoint={rng.choice((4, 16, 64, 1000))}")
    if wrongs.piecemeal:
        _take_apart(storage)
    author, made = Author(rng, storage), []
    with closing(wrongs.writer(storage, print)) as writer:
        for number in range(groups):
            group, ready = author.group(), threading.Event()
            made.append(group)
            note(("begun", number))
            future = writer.submit(lambda tx, ready=ready, group=group: (ready.wait(), group(tx)))
            future.add_done_callback(lambda _, number=number: note(("acknowledged", number)))
            ready.set()
            future.result()
            if rng.random() < 0.25:
                thorough = rng.random() < 0.3
                writer.submit_alone(lambda s, thorough=thorough: s.tidy(thorough=thorough)).result()
    return made


def _take_apart(storage: Storage) -> None:
    connection: Any = storage._write
    whole = connection.changed

    def changed(sql: str, parameters: Any) -> int:
        number = whole(sql, parameters)
        connection.commit()
        connection.begin_write()
        return number

    connection.changed = changed


def suffer(seed: int, cuts: int, *, lives: int = 3, wrongs: Wrongs | None = None) -> Outcome:
    """Run several lives with power cuts; everything follows from the seed."""
    layer, memory = PowerCutLayer(), Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None, prefix="turnout-cut-"))
    sufferer = _Sufferer(random.Random(seed), layer, folder, wrongs or Wrongs())
    try:
        for _ in range(lives):
            sufferer.live(cuts)
            if sufferer.outcome.faults:
                break
    finally:
        shutil.rmtree(folder)
        layer.unregister()
    return sufferer.outcome


@dataclass
class _Sufferer:
    rng: random.Random
    layer: PowerCutLayer
    folder: Path
    wrongs: Wrongs
    outcome: Outcome = field(default_factory=Outcome)
    files: dict[str, bytes] = field(default_factory=dict)
    history: History = field(default_factory=History)

    def live(self, cuts: int) -> None:
        """Run one life, cut it at several positions, and continue from one of the disks."""
        log = self._lived()
        disk, begun, acknowledged, at = Disk(self.files), 0, 0, 0
        goes_on, following = self.rng.randrange(cuts), (self.files, self.history)
        moments = sorted(self.rng.randint(0, len(log)) for _ in range(cuts))
        for number, moment in enumerate(moments):
            for entry in log[at:moment]:
                disk.apply(entry)
                begun += entry[0] == "begun"
                acknowledged += entry[0] == "acknowledged"
            at, found = moment, disk.after_a_cut(self.rng)
            kept = self._kept(found, begun, acknowledged)
            if number == goes_on and kept is not None:
                following = found, _continued(self.history, kept, acknowledged)
        self.files, self.history = following

    def _lived(self) -> list[Entry]:
        """Log of a life that begins with `files`."""
        storage = _opened(self.layer, self.folder, self.files)
        groups = self.rng.randint(5, 20)
        self.history.groups = _live(storage, groups, self.rng, self.wrongs, self.layer.log.append)
        whole = self.rng.random() < 0.5
        end = len(self.layer.log)
        storage.close()
        return list(self.layer.log if whole else self.layer.log[:end])

    def _kept(self, found: dict[str, bytes], begun: int, acknowledged: int) -> int | None:
        """Number of groups on a disk; None after noting a fault."""
        try:
            storage = _opened(self.layer, self.folder, found)
        except StorageError as error:
            self.outcome.faults.append(f"does not open: {error}")
            return None
        self.outcome.cuts += 1
        try:
            kept = self.history.check(storage, begun, acknowledged)
        except (Fault, StorageError) as error:
            self.outcome.faults.append(str(error))
            return None
        finally:
            storage.close()
        self.outcome.kept.append(kept)
        return kept


def _continued(history: History, kept: int, acknowledged: int) -> History:
    """Facts at the start of the next life: all facts on the disk, and the published releases."""
    states = list(history.states(max(kept, acknowledged)))
    published = {fact[1]: fact[2] for fact in states[acknowledged] if fact[0] == "release"}
    return History(states[kept], [], history.published | published)


def _opened(layer: PowerCutLayer, folder: Path, files: dict[str, bytes]) -> Storage:
    """Database on a simulated disk, opened by the service's code with an empty log."""
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    layer.log.clear()
    return sqlite.open_sqlite(folder / FILE, serving=True, vfs=NAME)
