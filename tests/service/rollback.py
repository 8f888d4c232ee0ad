"""Restored snapshots of a task's files: outcome of each, and whether a step is drawn twice."""

import asyncio
import contextlib
import hashlib
import json
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path

import httpx
import pytest
from web_world import Adding, Ends, ManualClock, charter_of, task_storage

from turnout.cli.main import main
from turnout.core.errors import StorageError
from turnout.service.contract.wire import HEADS_PATH
from turnout.service.coordinator.engine import SetBackError
from turnout.service.storage.opening import open_storage
from turnout.service.web.conductor import Conductor
from turnout.service.web.heads import HeadFile
from turnout.service.web.running import Running
from turnout.service.web.signed import HeadsRoute
from turnout.service.witness.app import WitnessStore, create_witness_app
from turnout.service.witness.client import Witness

DATABASE, HEAD_FILE, WITNESS = "database", "head file", "witness"
STAGES = (
    "before the commit",
    "after the commit",
    "after the head file",
    "after the receipt",
    "after publication",
)
"""Stages of a release; the receipt exists only with a witness."""
RELEASES = 4
"""Number of releases, of six, before files are restored."""
LOOKED_AT = (0, RELEASES - 1)
"""Steps at which snapshots are taken: early, and the latest."""


def subsets(names):
    """All nonempty subsets."""
    return list(chain.from_iterable(combinations(names, n) for n in range(1, len(names) + 1)))


class Files:
    """Files of a task in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database, self.head = folder / "db" / "turnout.sqlite", folder / "head" / "head"
        self.witness = folder / "witness" / "witness.sqlite"

    def folder_of(self, name: str) -> Path:
        return {DATABASE: self.database, HEAD_FILE: self.head, WITNESS: self.witness}[name].parent

    def copied(self, to: Path) -> None:
        """Snapshot of the files, taken while nothing is written."""
        shutil.copytree(self.folder, to, ignore=shutil.ignore_patterns("*-shm"))

    def exported(self) -> list[bytes]:
        """Digests of all records that `turnout ledger export` writes, with their models."""
        ledger, models = self.folder / "exported.jsonl", self.folder / "models"
        command = ["ledger", "export", "--db", str(self.database), "--out", str(ledger)]
        with pytest.raises(SystemExit) as ended:
            main([*command, "--models", str(models)])
        assert ended.value.code == 0
        _, *records, head = ledger.read_bytes().splitlines()
        found = {file.name: file.read_bytes() for file in models.iterdir()}
        assert len(found) == 1 + len(records)
        for number, record in enumerate(records):
            model = hashlib.sha256(found[f"step-{number:06d}.f32"]).hexdigest()
            assert json.loads(record)["model"] == model
        assert json.loads(head)["head"].startswith(f"{len(records)}:")
        shutil.rmtree(models)
        ledger.unlink()
        return [hashlib.sha256(record).digest() for record in records]

    def put_back(self, name: str, snapshot: Path) -> None:
        """Restore one kind of file from a snapshot; delete it if the snapshot has none."""
        folder = self.folder_of(name)
        shutil.rmtree(folder)
        before = snapshot / folder.name
        if before.exists():
            shutil.copytree(before, folder)
        else:
            folder.mkdir()


@dataclass
class Seen:
    """All data that the coordinator has shown.

    Attributes:
        models: release → digests of records.
        head: newest ledger head, as a device knows it.
        exports: digests of exported records, by stage and step of the export.
    """

    models: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    head: str = ""
    exports: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)

    def export(self, digests: list[bytes]) -> None:
        """Record an export as known to everyone."""
        for steps, digest in enumerate(digests, 1):
            self.models[steps].add(digest)

    def copied(self) -> "Seen":
        """Independent copy of the shown data."""
        models = defaultdict(set, {steps: set(seen) for steps, seen in self.models.items()})
        return Seen(models, self.head)

    def twice(self) -> list[int]:
        """Releases that were shown with different noise."""
        return [steps for steps, digests in self.models.items() if len(digests) > 1]


class Watched(Conductor):
    """Conductor that reports the stage that it has reached."""

    at = staticmethod(lambda point, steps: None)

    def _forget(self):
        """Delete nothing in the background while files are copied."""

    def _require_receipt(self, steps):
        self.at("before the commit", steps)
        super()._require_receipt(steps)

    def _export_head(self, record):
        self.at("after the commit", record.step)
        super()._export_head(record)
        self.at("after the head file", record.step)

    async def _publish(self, at, step, receipt, slow):
        if receipt is not None:
            self.at("after the receipt", step)
        late = await super()._publish(at, step, receipt, slow)
        self.at("after publication", step)
        return late


@dataclass
class Task:
    """One task with its files in a folder, run by several coordinator processes in turn.

    Attributes:
        files: files of the task.
        witnessed: whether the task has a witness.
        guarded: whether the task has a head file.
        key: public key of the witness, fixed after its first receipt.
        seen: data that the coordinator has shown.
        change_witness: value of the setting of that name.
    """

    files: Files
    witnessed: bool = True
    guarded: bool = True
    key: bytes | None = None
    seen: Seen = field(default_factory=Seen)
    change_witness: bool = False

    def create_task(self) -> None:
        for name in (DATABASE, HEAD_FILE, WITNESS):
            self.files.folder_of(name).mkdir(parents=True)
        task_storage(self.files.database, charter_of()).close()

    def _witness(self, undo: contextlib.ExitStack) -> Witness | None:
        if not self.witnessed:
            return None
        store = WitnessStore(self.files.witness)
        undo.callback(store.close)
        self.key = self.key or store.key.public
        transport = httpx.ASGITransport(app=create_witness_app(store))
        return Witness("http://127.0.0.1", self.key, transport=transport)

    async def run(self, until: int, at=lambda point, steps: None, tell: str = "") -> tuple:
        """Serve until ``until`` releases are published, and return how the run ended.

        Args:
            until: number of releases.
            at: function called at each stage at which a snapshot may be taken.
            tell: ledger head that a device sends before the first release.

        Returns:
            ("goes on",), (4, the refusal) or (71, the reason).
        """
        with contextlib.ExitStack() as undo:
            watching = self._witness(undo)
            head_file = HeadFile(self.files.head) if self.guarded else None
            try:
                storage = open_storage(self.files.database, serving=True)
                undo.callback(storage.close)
                ends, clock = Ends(), ManualClock()
                running = Running(
                    storage,
                    lambda _: Adding(),
                    end=ends,
                    clock=clock,
                    head_file=head_file,
                    witness=watching,
                    change_witness=self.change_witness,
                )
                undo.callback(running.writer.close)
                if tell:  # starting a whole application only for this would take most of the time
                    transport = httpx.ASGITransport(app=HeadsRoute(running))
                    async with httpx.AsyncClient(transport=transport) as http:
                        await http.post(f"http://coordinator{HEADS_PATH}", content=tell)
                return await self._served(running, until, at)
            except StorageError as error:
                return 4, str(error)

    async def _served(self, running, until, at) -> tuple:
        conductor = Watched(running, on_publish=self._shown)
        conductor.at = at
        if not running.ended:
            conducting = asyncio.create_task(conductor.run())
            while not conducting.done() and running.shown.published.head.steps < until:
                self._look(running)
                await asyncio.sleep(0.0005)
                if running.clock.waiting:
                    running.clock.advance(running.charter.timing.step_seconds)
            self._look(running)
            conducting.cancel()
            with contextlib.suppress(asyncio.CancelledError, SetBackError):
                await conducting
        return running._end.calls[0] if running.ended else ("goes on",)

    def _look(self, running) -> None:
        if not running.withheld and not running.ended:
            self._shown(running.shown.published)
            self.seen.head = str(running.shown.head)

    def _shown(self, published) -> None:
        self.seen.models[published.head.steps].add(published.head.digest)


async def history(folder: Path, *, witnessed: bool) -> tuple[Task, dict[tuple[str, int], Path]]:
    """Task with some releases, and its snapshots by stage and step (−1: before the first start)."""
    task, taken = Task(Files(folder / "task"), witnessed), {}
    task.create_task()

    def take(point: str, step: int) -> None:
        if step in (-1, *LOOKED_AT):
            taken[point, step] = folder / f"{len(taken)}"
            task.files.copied(taken[point, step])
            task.seen.exports[point, step] = task.files.exported()
            task.seen.export(task.seen.exports[point, step])

    shutil.copytree(task.files.database.parent, folder / "0" / "db")
    taken["before the first start", -1] = folder / "0"
    assert await task.run(RELEASES, take) == ("goes on",)
    assert not task.seen.twice()
    return task, taken


async def restored(
    task: Task, snapshot: Path, names, to: Path, *, tell: bool, guarded: bool = True
) -> tuple[tuple, Task]:
    """Outcome of a task with its newest files, some of which are restored from a snapshot."""
    shutil.copytree(task.files.folder, to, ignore=shutil.ignore_patterns("*-shm"))
    files = Files(to)
    for name in names:
        files.put_back(name, snapshot)
    again = Task(files, task.witnessed and guarded, guarded, task.key, task.seen.copied())
    ended = await again.run(RELEASES + 1, tell=task.seen.head if tell else "")
    return ended, again
