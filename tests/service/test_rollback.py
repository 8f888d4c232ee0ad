"""Restored snapshots of any subset of a task's files: no step is released twice.

The tables are those of docs/design/rollback.md.
"""

import asyncio
import contextlib
import threading
from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from forked import HANGS_SECONDS
from processes import free_port, turnout, waited_for
from rollback import (
    DATABASE,
    HEAD_FILE,
    RELEASES,
    STAGES,
    WITNESS,
    Files,
    Seen,
    Task,
    history,
    restored,
    subsets,
)
from web_world import KEY, PLAN, charter_of, task_storage, world

from turnout.service.contract.ledger import Head, SigningKey
from turnout.service.contract.wire import HEADS_PATH
from turnout.service.coordinator.engine import SetBackError
from turnout.service.storage import reads
from turnout.service.storage.opening import open_storage
from turnout.service.web import heads
from turnout.service.web.heads import HeadFile
from turnout.service.web.running import SET_BACK

PAGE = Path(__file__).parents[2] / "docs" / "design" / "rollback.md"
GUARDS = {
    "the database is an old copy": "head file",
    "is an old copy: it was written": "ledger",
    "but its head file": "ledger",
    "the witness has the ledger": "witness",
    "the witness was set back": "receipts",
    "a device saw": "device",
}
WHEN = ("two or more", "one", "none")


def said(ended):
    """Cell of the table for one outcome."""
    if ended[0] == "goes on":
        return "goes on, nothing twice"
    guards = [guard for text, guard in GUARDS.items() if text in ended[1]]
    assert len(guards) == 1, ended
    return f"{ended[0]}, {guards[0]}"


def lag(point, step):
    """Column of the table: how many releases the database of a snapshot is behind."""
    done = {"before the first start": 0, "before the commit": step}.get(point, step + 1)
    return WHEN[2 - min(RELEASES - done, 2)]


def everything(names, witnessed):
    return len(names) == (3 if witnessed else 2)


async def outcomes(folder, *, witnessed):
    """Cells by subset and lag, from restoring each subset of each snapshot."""
    task, taken = await history(folder, witnessed=witnessed)
    cells, number = defaultdict(set), 0
    for (point, step), snapshot in taken.items():
        for names in subsets([DATABASE, HEAD_FILE, WITNESS][: 3 if witnessed else 2]):
            number += 1
            ended, again = await restored(
                task,
                snapshot,
                names,
                folder / f"restored-{number}",
                tell=everything(names, witnessed),
            )
            assert not again.seen.twice(), (point, step, names, ended)
            if ended[0] == "goes on":  # and the run did continue
                assert max(again.seen.models) == RELEASES + 1
            cells[names, lag(point, step)].add(said(ended))
    return cells


@pytest.mark.parametrize("witnessed", [True, False])
def test_restoring_any_subset_of_files_releases_no_step_twice(tmp_path, witnessed):
    cells = asyncio.run(outcomes(tmp_path, witnessed=witnessed))
    table = {
        names: [" or ".join(sorted(cells[names, when])) for when in WHEN] for names, _ in cells
    }
    rows = [
        f"| {', '.join(names)} | {' | '.join(columns)} |"
        for names, columns in sorted(table.items(), key=lambda row: (len(row[0]), row[0]))
    ]
    text = PAGE.read_text()
    print("\n".join(rows))  # rows for the page, if they differ from the page
    assert [row for row in rows if row not in text] == []
    head = f"| put back ({'with' if witnessed else 'without'} a witness) |"
    assert text.partition(head)[2].startswith(" two or more releases behind |")


def stopped_at(task, snapshot, seen_at, exported):
    """Task whose coordinator was killed at a stage, after an export at that stage."""
    published = {steps: digests for steps, digests in task.seen.models.items() if steps <= seen_at}
    seen = Seen(defaultdict(set, {0: task.seen.models[0]} | published), task.seen.head)
    seen.export(exported)
    return Task(Files(snapshot), task.witnessed, True, task.key, seen)


async def exports(folder, *, witnessed):
    """Map from stage of the last release to its exported records and the releases drawn again.

    The export is made at that stage, the coordinator is killed there, and each subset of the files
    is restored to its state before the commit.
    """
    task, taken = await history(folder, witnessed=witnessed)
    step, rows = RELEASES - 1, {}
    names = [DATABASE, HEAD_FILE, WITNESS][: 3 if witnessed else 2]
    for stage in STAGES:
        if (stage, step) not in taken:
            continue
        there = task.seen.exports[stage, step]
        assert Files(taken[stage, step]).exported() == there  # for the copy as for the original
        published = step + (stage == "after publication")
        killed, again = stopped_at(task, taken[stage, step], published, there), set()
        for number, subset in enumerate(subsets(names)):
            to = folder / f"{stage}-{number}"
            tell = published > step and everything(subset, witnessed)
            _, went_on = await restored(killed, taken[STAGES[0], step], subset, to, tell=tell)
            again |= set(went_on.seen.twice())
        rows[stage] = len(there) - step, sorted(again)
    return rows


@pytest.mark.parametrize("witnessed", [True, False])
def test_an_exported_release_is_never_drawn_again_after_a_restart(tmp_path, witnessed):
    rows = asyncio.run(exports(tmp_path, witnessed=witnessed))
    text = PAGE.read_text()
    for stage, (exported, again) in rows.items():
        assert f"| {stage} | {'yes' if exported else 'no'} |" in text
        assert not again, stage
    assert len(rows) == 4 + witnessed


@pytest.mark.parametrize("witnessed", [True, False])
def test_exporting_unpublished_releases_would_reveal_two_draws_of_a_step(
    tmp_path, witnessed, mutate
):
    """Negative control of the rule that only published releases are exported."""
    mutate(reads, "_PUBLISHED", reads._COMMITTED)
    rows = asyncio.run(exports(tmp_path, witnessed=witnessed))
    assert {stage for stage, (exported, _) in rows.items() if exported} == set(rows) - {STAGES[0]}
    twice = [stage for stage, (_, again) in rows.items() if again == [RELEASES]]
    assert twice == list(STAGES[1 : 3 + witnessed])


def test_a_restored_coordinator_without_head_checks_releases_steps_twice(tmp_path):
    """Negative control: without head file and witness a restored database is not refused."""

    async def main():
        task, taken = await history(tmp_path, witnessed=False)
        snapshot = taken["after publication", 0]
        ended, again = await restored(
            task, snapshot, (DATABASE,), tmp_path / "again", tell=False, guarded=False
        )
        assert ended == ("goes on",)
        assert again.seen.twice() == [2, 3, 4]

    asyncio.run(main())


def test_restoring_all_files_is_detected_only_by_devices_with_a_newer_head(tmp_path):
    """Limit of the guarantee: a full restore continues unless a device has a newer head."""

    async def main():
        task, taken = await history(tmp_path, witnessed=True)
        snapshot = taken["after publication", 0]
        names = DATABASE, HEAD_FILE, WITNESS
        ended, again = await restored(task, snapshot, names, tmp_path / "again", tell=False)
        assert ended == ("goes on",)
        assert again.seen.twice()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["put back", "removed", "another coordinator"])
def test_a_changed_head_file_stops_the_coordinator(tmp_path, how):
    async def main():
        path = tmp_path / "head"
        async with world(tmp_path, head_file=HeadFile(path)) as w:
            before = path.read_bytes()
            await w.step_over()
            if how == "put back":
                path.write_bytes(before)
            elif how == "removed":
                path.unlink()
            else:
                other = Head(2, bytes(range(32)))
                path.write_text(f"{w.task} {heads.signed_head(w.task, other, KEY)}\n\n")
            conducting = asyncio.create_task(w.conductor.run())
            while not conducting.done():
                await asyncio.sleep(0.001)
                w.clock.advance(60.0)
            with contextlib.suppress(SetBackError):
                await conducting
            assert [code for code, _ in w.ends.calls] == [SET_BACK]
            assert w.running.shown.published.head.steps == 1

    asyncio.run(main())


def test_concurrent_exports_to_one_head_file_are_serialized(tmp_path):
    """Both coordinators read the same file; the second writer finds the head of the first."""
    path, ended = tmp_path / "head", []
    together = threading.Barrier(2)

    def export(name):
        file = HeadFile(path)
        together.wait()
        try:
            file.export("0" * 64, heads.signed_head("0" * 64, Head(1, bytes([name] * 32)), KEY))
            ended.append("written")
        except SetBackError:
            ended.append("stopped")

    for _ in range(20):
        path.unlink(missing_ok=True)
        both = [threading.Thread(target=export, args=(name,)) for name in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert sorted(ended) == ["stopped", "written"]
        ended.clear()


def test_one_of_two_coordinators_on_copies_of_a_database_is_stopped(tmp_path):
    """Two coordinators on copies of one database share the head file."""

    async def main():
        task = Task(Files(tmp_path / "task"), witnessed=False)
        task.create_task()
        assert await task.run(2) == ("goes on",)
        task.files.copied(tmp_path / "copy")
        copy = Task(Files(tmp_path / "copy"), witnessed=False)
        copy.files.head = task.files.head
        assert await task.run(3) == ("goes on",)
        code, reason = await copy.run(3)
        assert (code, "old copy" in reason) == (4, True)

    asyncio.run(main())


def test_a_missing_head_file_is_refused_without_an_option(tmp_path):
    async def main():
        task = Task(Files(tmp_path / "task"), witnessed=False)
        task.create_task()
        assert await task.run(2) == ("goes on",)
        task.files.head.unlink()
        code, reason = await task.run(3)
        assert code == 4
        assert "--head-file" in reason
        assert "--new-head-file" in reason

    asyncio.run(main())
    database = tmp_path / "task" / "db" / "turnout.sqlite"
    here = tmp_path / "new" / "head"

    def opened(**how):
        with contextlib.closing(open_storage(database, serving=True)) as storage:
            charter = charter_of()
            with storage.snapshot() as view:
                head = list(view.records())[-1].head
                file = HeadFile(here, **how)
                file.require_current(charter.task, charter.coordinator_key, view, head)
                file.export(charter.task, heads.signed_head(charter.task, head, KEY))

    opened(begin=True)
    opened()
    with pytest.raises(heads.StorageError, match="exists already: start without --new-head-file"):
        opened(begin=True)
    whole = here.read_text()
    here.write_text(whole.partition("\n")[0] + "\n")
    with pytest.raises(heads.StorageError, match="does not contain a ledger head"):
        opened()
    task = charter_of().task
    here.write_text(f"{task} {heads.signed_head(task, Head(9, bytes(32)), KEY)}\n\n")
    with pytest.raises(heads.StorageError, match="old copy"):
        opened()


def test_an_emptied_database_is_detected_by_the_address_in_its_head_file(tmp_path):
    folder, database = heads.default_folder(), str(tmp_path / "db")
    heads.require_no_exported_head(None, database)
    task = charter_of().task
    HeadFile(folder / "a.head", heads.address_of(database)).export(
        task, heads.signed_head(task, Head(0, bytes.fromhex(task)), KEY)
    )
    (folder / "other.head").write_text("something else")
    with pytest.raises(heads.StorageError, match="lost or replaced"):
        heads.require_no_exported_head(None, database)
    heads.require_no_exported_head(None, database + "2")
    heads.require_no_exported_head(tmp_path / "named", database)


@pytest.mark.parametrize("body", [b"", b"x", b"\xff", b"0:" + b"0" * 64, b"1" * 257])
def test_a_forged_or_malformed_ledger_head_does_not_stop_a_coordinator(tmp_path, body):
    async def main():
        async with world(tmp_path) as w:
            forged = heads.signed_head(w.task, Head(9, bytes(32)), SigningKey.new())
            held = str(w.running.shown.head)
            for content, status in ((body, 413 if len(body) > 256 else 422),
                                    (str(forged).encode(), 422), (held.encode(), 200)):  # fmt: skip
                answer = await w.http.post(HEADS_PATH, content=content)
                assert answer.status_code == status
            assert answer.json() == {"answer": "accepted"}
            assert not w.ends.calls

    asyncio.run(main())


def test_a_newer_signed_ledger_head_from_anyone_stops_the_coordinator(tmp_path):
    """No client is enrolled here, so no signed request reaches the check of its head."""
    (tmp_path / "plan.toml").write_text(PLAN)
    task_storage(tmp_path / "db", charter_of(), enrolled=0).close()
    log, port = tmp_path / "log", free_port()
    process = turnout(
        "serve", tmp_path / "plan.toml", "--db", tmp_path / "db", "--port", port, log=log
    )
    try:
        waited_for(f"http://127.0.0.1:{port}/readyz", process, log)
        task = charter_of().task
        newer = str(heads.signed_head(task, Head(3, bytes(range(32))), KEY))
        with contextlib.suppress(httpx.TransportError):
            httpx.post(f"http://127.0.0.1:{port}{HEADS_PATH}", content=newer, trust_env=False)
        assert process.wait(HANGS_SECONDS) == SET_BACK
        assert "one snapshot may restore both the database and the head file" in log.read_text()
    finally:
        process.kill()
