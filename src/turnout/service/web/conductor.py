"""The schedule: when a phase ends, by the monotonic clock alone.

A step's model is published when its time is over, however long the release took; only a release
that took longer than what was left makes it late. After a restart the open step gets its full
time anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from turnout.core.errors import StorageError
from turnout.service.engine import Published, SetBackError
from turnout.service.ledger import Head, Record
from turnout.service.storage.interface import Event, WitnessReceipt
from turnout.service.storage.writer import BusyError
from turnout.service.storage.writes import Transaction
from turnout.service.web import heads, logs
from turnout.service.web.running import STORAGE_FAILED, Running
from turnout.service.wire import Phase

T = TypeVar("T")

_RECLAIMED_AT_ONCE = 256
_BREATH_SECONDS = 0.02
_LONGEST_BREATH_SECONDS = 1.0
_LAST_TRIES = 500
_COMPANY_SECONDS = 0.2


class Conductor:
    """Drives one running task from step to step.

    Guarantees:
        Nothing of a release is visible before its transaction is durable and its time has come.
        Its head is exported, and the witness has signed for it, before anybody sees it; no step
        is closed before the witness has signed for the head before.

    Args:
        on_publish: called in the event loop with the model shown at the start, and each later one.
        wait_for: the first step takes check-ins, but its time begins once so many devices are
            enrolled.
    """

    def __init__(
        self,
        running: Running,
        on_publish: Callable[[Published], object] = lambda published: None,
        wait_for: int = 0,
    ) -> None:
        self._running, self._wait_for = running, wait_for
        self._on_publish = on_publish
        self._forgetting: asyncio.Task[None] | None = None
        self._to_forget = False

    async def run(self) -> None:
        """All steps that are left; whatever goes wrong ends the process."""
        running = self._running
        try:
            await self._confirm()
            running.show(running.shown_of(running.shown.published, running.engine.phase))
            self._on_publish(running.shown.published)
            self._forget()
            await self._company()
            while running.shown.phase is not Phase.FINISHED:
                await self._step()
            await running.note("info", "all steps are over")
            if self._forgetting is not None:
                await self._forgetting
            await self._tidy_at_the_end()
        except asyncio.CancelledError:
            raise
        except SetBackError as error:
            running.set_back(error)
            raise
        except BaseException as error:
            running.end(STORAGE_FAILED, f"{type(error).__name__}: {error}")
            raise
        finally:
            if self._forgetting is not None:
                self._forgetting.cancel()
            if running.witness is not None:
                await running.witness.close()

    async def _company(self) -> None:
        """Hold the first step open until enough devices are enrolled."""
        running = self._running
        while running.shown.step == 0 and len(running.keys) < self._wait_for:
            running.show(running.shown_of(running.shown.published, running.engine.phase))
            await running.clock.until(running.clock.now() + _COMPANY_SECONDS)

    async def _step(self) -> None:
        """One step, from its first check-in to its publication."""
        running, timing = self._running, self._running.charter.timing
        until = running.clock.until
        shown = running.shown
        if shown.phase is Phase.CHECK_INS:
            await until(shown.phase_ends)
            if running.charter.asks_one:
                await self._submit(running.engine.close_check_ins)
                shown = replace(
                    shown,
                    phase=Phase.ANSWERS,
                    phase_ends=shown.phase_ends + timing.answer_seconds,
                )
                running.show(shown)
        if shown.phase is Phase.ANSWERS:
            await until(shown.phase_ends)
        running.show(replace(shown, phase=Phase.CLOSED, phase_ends=shown.step_ends))
        self._require_receipt(shown.published.head.steps)
        release = await self._submit(running.engine.close_step)
        self._forget()
        self._export_head(release.record)
        slow = "the witness" if running.clock.now() <= shown.step_ends else "its release"
        receipt = await self._witnessed(release.record)
        late = await self._publish(shown.step_ends, shown.step, receipt, slow)
        running.metrics.late_seconds.observe(late)

    async def _publish(
        self, at: float, step: int, receipt: WitnessReceipt | None, slow: str
    ) -> float:
        """Show the release at its time; how many seconds late, for which ``slow`` is the cause."""
        running = self._running
        took_too_long = running.clock.now() > at
        await running.clock.until(at)
        event = Event(time.time(), "info", f"step {step} is published")

        def publish(tx: Transaction) -> Published:
            tx.publish(step + 1, receipt)
            tx.log(event)
            return running.engine.publish()

        published = await self._submit(publish)
        running.receipt = receipt or running.receipt
        late = max(0.0, running.clock.now() - at)
        running.show(running.shown_of(published, running.engine.phase))
        self._on_publish(published)
        if took_too_long:
            text = f"step {step} was published {late:.3f} s late: {slow} took too long"
            await running.note("warning", text)
        return late

    async def _submit(self, job: Callable[[Transaction], T]) -> T:
        """A job of the schedule; a full queue only delays it."""
        while True:
            try:
                return await self._running.submit(job)
            except BusyError:
                await asyncio.sleep(_BREATH_SECONDS)

    async def _confirm(self) -> None:
        """At the start: nothing is shown before the witness has the newest head."""
        running = self._running
        receipt = await self._witnessed(running.record)
        if receipt is not None:
            await self._submit(lambda tx: tx.publish(receipt.steps, receipt))
            running.receipt = receipt
        running.withheld = False

    async def _witnessed(self, record: Record | None) -> WitnessReceipt | None:
        """The witness's receipt for the head after a record; None without a witness."""
        running = self._running
        if running.witness is None:
            return None
        from turnout.service.witness.messages import Shown

        head = Head(0, bytes.fromhex(running.task)) if record is None else record.head
        signed = heads.signed(running.task, head, running.key)
        key, begins = running.charter.coordinator_key, running.receipt is None
        return await running.witness.receipt(Shown(running.task, key, signed, record, begins))

    def _require_receipt(self, steps: int) -> None:
        """Nothing where the witness has signed for a head after so many releases."""
        running = self._running
        has = running.receipt is not None and running.receipt.steps == steps
        if running.witness is not None and not has:
            raise StorageError(f"the witness has not signed for the head after {steps} releases")

    def _export_head(self, record: Record) -> None:
        running = self._running
        if running.head_file is not None:
            signed = heads.signed(running.task, record.head, running.key)
            running.head_file.export(running.task, signed)

    def _forget(self) -> None:
        """Free what a released step's updates took, unless that is going on.

        Nobody can read them since the release: their key and their clients are deleted.
        """
        self._to_forget = True
        if self._forgetting is None or self._forgetting.done():
            self._forgetting = asyncio.create_task(self._forget_slowly())

    async def _forget_slowly(self) -> None:
        """Delete a few updates at a time, so that nobody waits for it; then tidy the files."""
        try:
            while self._to_forget:
                self._to_forget, breath = False, _BREATH_SECONDS
                while await self._submit(lambda tx: tx.reclaim(_RECLAIMED_AT_ONCE)):
                    await asyncio.sleep(_BREATH_SECONDS)
                while not await self._tidied(thorough=False):
                    await asyncio.sleep(breath)
                    breath = min(2 * breath, _LONGEST_BREATH_SECONDS)
        except StorageError as error:
            logs.logger().warning("old updates could not be deleted", reason=str(error))

    async def _tidy_at_the_end(self) -> None:
        """No byte of a deleted row is left in the files; whatever prevents that is said."""
        for _ in range(_LAST_TRIES):
            if await self._tidied(thorough=True):
                return
            await asyncio.sleep(_BREATH_SECONDS)
        text = "deleted rows may still be in the database's files: start the coordinator once more"
        await self._running.note("warning", text)

    async def _tidied(self, *, thorough: bool) -> bool:
        try:
            return await self._running.tidy(thorough=thorough)
        except BusyError:
            return False
