"""The schedule: when a phase ends, by the monotonic clock alone; and evaluation beside it.

`Conductor` publishes a step's model when its time is over, however long the release took; only a
release that took longer than the remaining time makes it late. After a restart the open step gets
its full time anew.

`Evaluator` has a thread of its own, which evaluates the newest published model first, then those
before it that the charter's curve names. It loads PyTorch and the plan's data once the service is
ready; a step never waits for it. Where evaluation is impossible, the operator is told; what fails
once is tried again.
"""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from turnout.core.errors import ParameterError, StorageError
from turnout.plans import Plan
from turnout.service.contract.ledger import Head, Record
from turnout.service.contract.wire import StepPhase
from turnout.service.coordinator import releases
from turnout.service.coordinator.engine import Published, SetBackError
from turnout.service.coordinator.releases import Learner
from turnout.service.storage.interface import LogEvent, Scored, WitnessReceipt
from turnout.service.storage.writer import BusyError
from turnout.service.storage.writes import Transaction
from turnout.service.web import heads, logs
from turnout.service.web.running import STORAGE_FAILED, Running

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
            while running.shown.phase is not StepPhase.FINISHED:
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
        if shown.phase is StepPhase.CHECK_INS:
            await until(shown.phase_ends)
            if running.charter.asks_one:
                await self._submit(running.engine.close_check_ins)
                shown = replace(
                    shown,
                    phase=StepPhase.ANSWERS,
                    phase_ends=shown.phase_ends + timing.answer_seconds,
                )
                running.show(shown)
        if shown.phase is StepPhase.ANSWERS:
            await until(shown.phase_ends)
        running.show(replace(shown, phase=StepPhase.CLOSED, phase_ends=shown.step_ends))
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
        event = LogEvent(time.time(), "info", f"step {step} is published")

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
        from turnout.service.witness.messages import ShownHead

        head = Head(0, bytes.fromhex(running.task)) if record is None else record.head
        signed = heads.signed_head(running.task, head, running.key)
        key, begins = running.charter.coordinator_key, running.receipt is None
        return await running.witness.receipt(ShownHead(running.task, key, signed, record, begins))

    def _require_receipt(self, steps: int) -> None:
        """Nothing where the witness has signed for a head after so many releases."""
        running = self._running
        has = running.receipt is not None and running.receipt.steps == steps
        if running.witness is not None and not has:
            raise StorageError(f"the witness has not signed for the head after {steps} releases")

    def _export_head(self, record: Record) -> None:
        running = self._running
        if running.head_file is not None:
            signed = heads.signed_head(running.task, record.head, running.key)
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


FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_ON = "models are evaluated"

Evaluate = Callable[[Any], tuple[float, float]]
"""Accuracy and loss of parameters."""


def evaluation_of_plan(text: str, folder: Path) -> Evaluate:
    """Evaluation on the plan's held-out data; loads PyTorch."""
    from turnout.runs.building import build_task
    from turnout.runs.workload import gather

    task = build_task(gather(Plan.from_toml(text), folder))

    def evaluate(parameters: Any) -> tuple[float, float]:
        metrics = task.evaluate(parameters)
        return metrics.get("accuracy", math.nan), metrics["loss"]

    return evaluate


class Evaluator:
    """Evaluates published models in a thread and stores what it found."""

    def __init__(self, running: Running, prepare: Callable[[], Evaluate], learner: Learner) -> None:
        self._running, self._prepare, self._learner = running, prepare, learner
        self._changed = threading.Condition()
        self._newest = 0 if running.withheld else running.shown.published.head.steps
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="turnout-evaluation", daemon=True)

    def start(self) -> None:
        """Begin, once the service is ready."""
        self._thread.start()

    def published(self, steps: int) -> None:
        """So many releases are published."""
        with self._changed:
            self._newest = steps
            self._changed.notify()

    def stop(self, patience_seconds: float = 1.0) -> bool:
        """End after the evaluation in progress; whether that was soon enough."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(patience_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        evaluate = self._tried(self._prepared)
        if evaluate is None:
            return
        self._say(_ON, on=True)
        done = self._tried(self._scored) or set()
        while (steps := self._next(done)) is not None:
            self._tried(partial(self._score, steps, evaluate))
            done.add(steps)

    def _prepared(self) -> Evaluate:
        evaluate = self._prepare()
        gc.freeze()  # PyTorch's modules; looking through them would make requests wait
        return evaluate

    def _scored(self) -> set[int]:
        with self._running.storage.snapshot() as view:
            return {scored.steps for scored in view.scores()}

    def _tried(self, work: Callable[[], T]) -> T | None:
        """The result, tried until there is one; None at the end, and where no trial would help."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped:
            try:
                return work()
            except (ParameterError, ImportError, FileNotFoundError) as error:
                self._say(f"models are not evaluated: {error}", on=False)
                return None
            except Exception as error:  # no descriptor, no memory, a bug: no model waits for it
                if self._stopped:
                    return None
                reason = f"{type(error).__name__}: {error}"
                self._say(f"an evaluation failed, and is tried again: {reason}", on=False)
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return None

    def _say(self, text: str, *, on: bool) -> None:
        """Tell the operator, by log, view and metric; the same thing once."""
        running = self._running
        if text == running.evaluation or self._stopped:
            return
        running.evaluation = text
        running.metrics.evaluation.set(on)
        level = "info" if on else "warning"
        getattr(logs.logger(), level)(text)
        event = LogEvent(time.time(), level, text)
        with suppress(StorageError):  # the log has it, the database need not
            running.writer.submit(lambda tx: tx.log(event))

    def _next(self, done: set[int]) -> int | None:
        """The next model to look at; waits until there is one. None at the end."""
        named = [0, *self._running.charter.charged_steps]
        with self._changed:
            while not self._stopped:
                newest = self._newest
                if newest not in done:
                    return newest
                left = [steps for steps in named if steps < newest and steps not in done]
                if left:
                    return left[-1]
                self._changed.wait()
        return None

    def _score(self, steps: int, evaluate: Evaluate) -> None:
        with self._running.storage.snapshot() as view:
            parameters = self._handed_out(view, steps)
        scored = Scored(steps, *evaluate(parameters))
        self._running.writer.submit(lambda tx: tx.score(scored)).result()
        if steps == self._newest:
            self._running.metrics.scored(scored)
        self._say(_ON, on=True)

    def _handed_out(self, view: Transaction, steps: int) -> Any:
        """The parameters that would be used after so many releases."""
        if steps == 0:
            return releases.from_bytes(view.initial_parameters())
        release = view.release_at(steps - 1)
        if release is None:
            raise StorageError(f"the model after {steps} steps is missing")
        state = releases.unpack_state(release.optimizer_state)
        return self._learner.released(releases.from_bytes(release.parameters), state)
