"""The conductor of a task's schedule: full runs, restarts, delays, deletion and exported heads."""

import asyncio

import pytest
from forked import HANGS_SECONDS
from web_world import KEY, Adding, charter_of, task_storage, world

from turnout.core.errors import StorageError
from turnout.schemes import ReleaseRule
from turnout.service.contract.ledger import Head
from turnout.service.contract.wire import SignedHead
from turnout.service.storage.interface import WitnessReceipt
from turnout.service.storage.opening import open_storage
from turnout.service.web import heads
from turnout.service.web.conductor import Evaluator
from turnout.service.web.heads import HeadFile
from turnout.service.web.running import STORAGE_FAILED


@pytest.mark.parametrize("rule", [ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT])
def test_a_whole_run_publishes_every_step(tmp_path, rule):
    async def main():
        head_file = tmp_path / "head"
        async with world(tmp_path, rule=rule, head_file=HeadFile(head_file, "here")) as w:
            conducting = asyncio.create_task(w.conductor.run())
            while not conducting.done():
                await asyncio.sleep(0.001)
                w.clock.advance(10.0)
            await conducting
            status = (await w.http.get("/v1/status")).json()
            assert (status["phase"], status["step"], status["model_steps"]) == ("finished", 6, 6)
            assert (status["seconds_left"], status["seconds_to_next_step"]) == (0, 0)
            assert head_file.read_text() == f"{w.task} {status['head']}\nhere\n"
            with w.running.storage.snapshot() as view:
                assert [record.step for record in view.records()] == list(range(6))
                # The clock advances during a release, so some releases are late.
                texts = [e.text for e in view.events(100) if e.level == "info"]
            assert texts[-2:] == ["step 5 is published", "all steps are over"]
            assert not w.ends.calls
            view = await w.running.public()
            assert view.epsilon_spent == 2.5

    asyncio.run(main())


def test_updates_of_released_steps_are_deleted(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for client in range(5):
                await w.update(client, 0)
            await w.step_over()
            for client in range(5, 10):
                await w.update(client, 1)
            await w.conductor._reclaiming
            with w.running.storage.snapshot() as view:
                assert list(view.bodies(0)) == []
                assert view.arrived(0).size == 0
                assert len(list(view.bodies(1))) == view.arrived(1).size == 5

    asyncio.run(main())


def test_failures_to_purge_deleted_rows_are_reported(tmp_path, mutate):
    """A snapshot that stays open prevents the purge until it ends."""
    mutate("turnout.service.web.conductor", "_PAUSE_SECONDS", 0.0)
    mutate("turnout.service.web.conductor", "_LAST_TIDY_TRIES", 3)

    async def main():
        async with world(tmp_path) as w:
            await w.update(1, 0)
            with w.running.storage.snapshot() as view:
                assert view.charter()
                await w.step_over()
                await w.conductor._tidy_at_the_end()
                assert not w.conductor._reclaiming.done()  # purging is retried
            await w.conductor._reclaiming
            with w.running.storage.snapshot() as view:
                texts = [e.text for e in view.events(9) if e.level == "warning"]
            assert any("may still be in the database" in text for text in texts)

    asyncio.run(main())


def test_a_slow_release_is_published_late_and_its_delay_is_logged(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.conductor._submit(w.running.engine.close_step)
            w.clock.advance(61.0)
            ends = w.running.shown.step_ends
            late = await w.conductor._publish(ends, 0, None, "its release")
            assert late == 1.0
            with w.running.storage.snapshot() as view:
                assert [e.level for e in view.events(9)] == ["info", "warning"]
                assert view.events(1)[0].text.endswith("late: its release took too long")

    asyncio.run(main())


def test_a_delay_caused_by_the_witness_is_logged_with_the_witness_as_its_cause(tmp_path):
    class Slow:
        key = bytes(32)

        async def receipt(self, shown):
            if shown.head.head.steps:
                w.clock.advance(100.0)
            return WitnessReceipt(self.key, shown.head.head.steps, bytes(64))

    async def main():
        nonlocal w
        async with world(tmp_path, witness=Slow()) as w:
            await w.conductor._confirm()
            w.clock.advance(w.running.shown.phase_ends - w.clock.now())
            await w.conductor._step()
            with w.running.storage.snapshot() as view:
                assert view.events(1)[0].text.endswith("late: the witness took too long")

    w = None
    asyncio.run(main())


def test_a_full_disk_stops_the_coordinator_with_an_error(tmp_path):
    """The error is that of SQLite, and the step is not reported as late."""

    async def main():
        charter = charter_of(dimension=20_000)  # a model that needs new pages
        async with world(tmp_path, charter=charter) as w:
            database = w.running.storage._write.raw
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count={pages}").fetchall()
            w.clock.advance(w.running.shown.phase_ends - w.clock.now())
            with pytest.raises(StorageError):
                await w.conductor._step()
            while not w.ends.calls:  # the writer's thread logs the failure after the step failed
                await asyncio.sleep(0.001)
            code, reason = w.ends.calls[0]
            assert (code, "database or disk is full" in reason) == (STORAGE_FAILED, True)
            assert w.running.shown.published.head.steps == 0
            with w.running.storage.snapshot() as view:
                assert not list(view.records())
                assert not view.events(9)

    asyncio.run(main())


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_restart_gives_the_open_step_its_full_duration(tmp_path, asked_before):
    path, charter = tmp_path / "turnout.sqlite", charter_of(ReleaseRule.ONE_CLIENT)

    async def first():
        async with world(tmp_path, storage=task_storage(path, charter)) as w:
            assert (await w.post("/v1/steps/0/check-ins", 1)).status_code == 200
            w.clock.advance(39.0)
            if asked_before:
                await w.conductor._submit(w.running.engine.close_check_ins)

    async def second():
        async with world(tmp_path, storage=open_storage(path, serving=True)) as w:
            status = (await w.http.get("/v1/status")).json()
            assert status["phase"] == ("answers" if asked_before else "check-ins")
            assert status["seconds_left"] == (10.0 if asked_before else 40.0)
            assert status["seconds_to_next_step"] == 60.0
            if asked_before:
                assert (await w.update(1, 0)).status_code == 200

    asyncio.run(first())
    asyncio.run(second())


def test_a_step_released_before_a_crash_is_published_after_the_crash(tmp_path):
    path = tmp_path / "turnout.sqlite"

    async def first():
        async with world(tmp_path, storage=task_storage(path, charter_of())) as w:
            release = await w.conductor._submit(w.running.engine.close_step)
            assert (await w.http.get("/v1/models/1")).status_code == 404
            return release.parameters

    async def second(parameters):
        async with world(tmp_path, storage=open_storage(path, serving=True)) as w:
            assert (await w.http.get("/v1/models/1")).content == parameters
            assert (await w.http.get("/v1/status")).json()["step"] == 1

    asyncio.run(second(asyncio.run(first())))


def test_a_failed_commit_stops_the_coordinator(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            conducting = asyncio.create_task(w.conductor.run())
            await asyncio.sleep(0)

            def broken(tx):
                raise StorageError("the disk is full")

            with pytest.raises(StorageError):
                await w.running.submit(broken)
            w.clock.advance(60.0)
            with pytest.raises(StorageError):
                await conducting
            assert {code for code, _ in w.ends.calls} == {STORAGE_FAILED}
            assert (await w.update(1, 0)).status_code == 503

    asyncio.run(main())


def test_head_files_that_are_malformed_or_of_another_task_are_refused(tmp_path):
    charter = charter_of()
    storage = task_storage(tmp_path / "db", charter)
    path, task, key = tmp_path / "head", charter.task, charter.coordinator_key
    zero = Head(0, bytes.fromhex(task))

    def check():
        with storage.snapshot() as view:
            HeadFile(path).require_current(task, key, view, zero)

    try:
        check()
        for text, reason in (
            ("", "does not contain"),
            (f"{task} 5:x", "does not contain"),
            (f"{'0' * 64} {heads.signed_head(task, zero, KEY)}", "another task"),
            (f"{task} {SignedHead(zero, bytes(64))}", "signature"),
            (f"{task} {heads.signed_head(task, Head(1, bytes(32)), KEY)}", "old copy"),
            (f"{task} {heads.signed_head(task, Head(0, bytes(32)), KEY)}", "old copy"),
        ):
            path.write_text(f"{text}\n\n")  # the second line is the address
            with pytest.raises(StorageError, match=reason):
                check()
        path.unlink()
        HeadFile(path).export(task, heads.signed_head(task, zero, KEY))
        check()
        with pytest.raises(StorageError, match="empty"):
            heads.require_no_exported_head(path, str(tmp_path / "other"))
    finally:
        storage.close()


def test_models_are_evaluated_while_steps_continue(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            seen = []

            def prepare():
                return lambda parameters: (seen.append(parameters.size) or 0.5, 1.0)

            evaluator = Evaluator(w.running, prepare, Adding())
            for _ in range(3):
                await w.step_over()
            evaluator.published(3)
            evaluator.start()
            scored = []
            async with asyncio.timeout(HANGS_SECONDS):
                while len(scored) < 4:
                    await asyncio.sleep(0.005)
                    with w.running.storage.snapshot() as view:
                        scored = [scored.steps for scored in view.scores()]
            assert scored == [0, 1, 2, 3]
            await asyncio.to_thread(evaluator.stop)
            w.running._views.clear()
            view = await w.running.public()
            assert [(p.steps, p.accuracy) for p in view.curve] == [(s, 0.5) for s in range(4)]

    asyncio.run(main())
