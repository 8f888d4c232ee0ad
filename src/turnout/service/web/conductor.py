"""The schedule of a served task, by the monotonic clock, and the evaluation of models.

`Conductor` ends phases and publishes models. The model of a step is published at the scheduled end
of the step, even if the release is ready earlier; the model is published later only if the release
is not ready at that time. After a restart the open step gets its full time again.

`Evaluator` evaluates published models in a separate thread: first the newest model, then earlier
models at the steps for which the charter has a bound on ε. The thread loads PyTorch and the plan's
data once the service is ready, and no step waits for the thread. A failed evaluation is repeated,
except after errors of the plan or the installation. The log and the operator's page show the
failure.
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
_PAUSE_SECONDS = 0.02
_LONGEST_TIDY_PAUSE_SECONDS = 1.0
_LAST_TIDY_TRIES = 500
_DEVICES_SECONDS = 0.2


class Conductor:
    """Schedule of one served task: it ends each phase and publishes each model.

    Guarantees:
        A release is visible only after its transaction is durable and its scheduled time has
        passed.
        The ledger head of a release is exported, and signed by the witness if there is one, before
        the release is visible. No step is closed before the witness has signed the previous head.

    Args:
        running: the task.
        on_publish: called in the event loop with the newest model at the start, and with each later
            model.
        wait_for: number of devices that must be enrolled before the time of the first step starts;
            the step accepts check-ins earlier.
    """

    def __init__(
        self,
        running: Running,
        on_publish: Callable[[Published], object] = lambda published: None,
        wait_for: int = 0,
    ) -> None:
        self._running, self._wait_for = running, wait_for
        self._on_publish = on_publish
        self._reclaiming: asyncio.Task[None] | None = None
        self._must_reclaim = False

    async def run(self) -> None:
        """Run all remaining steps of the task; any error ends the process."""
        running = self._running
        try:
            # Confirm the newest ledger head, publish the state, and free old updates.
            await self._confirm()
            running.show(running.shown_of(running.shown.published, running.engine.phase))
            self._on_publish(running.shown.published)
            self._start_reclaiming()
            # The steps.
            await self._wait_for_devices()
            while running.shown.phase is not StepPhase.FINISHED:
                await self._step()
            # After the last step no byte of an update may be left.
            await running.note("info", "all steps are over")
            if self._reclaiming is not None:
                await self._reclaiming
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
            if self._reclaiming is not None:
                self._reclaiming.cancel()
            if running.witness is not None:
                await running.witness.close()

    async def _wait_for_devices(self) -> None:
        """Keep the first step open until the required number of devices are enrolled."""
        running = self._running
        while running.shown.step == 0 and len(running.keys) < self._wait_for:
            running.show(running.shown_of(running.shown.published, running.engine.phase))
            await running.clock.until(running.clock.now() + _DEVICES_SECONDS)

    async def _step(self) -> None:
        """Run one step, from its first check-in to the publication of its model."""
        # The phases of requests.
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
        # The release, its exported ledger head, and the witness's signature.
        running.show(replace(shown, phase=StepPhase.CLOSED, phase_ends=shown.step_ends))
        self._require_receipt(shown.published.head.steps)
        release = await self._submit(running.engine.close_step)
        self._start_reclaiming()
        self._export_head(release.record)
        slow = "the witness" if running.clock.now() <= shown.step_ends else "its release"
        receipt = await self._receipt_for(release.record)
        # The publication at the end of the step.
        late = await self._publish(shown.step_ends, shown.step, receipt, slow)
        running.metrics.late_seconds.observe(late)

    async def _publish(
        self, at: float, step: int, receipt: WitnessReceipt | None, slow: str
    ) -> float:
        """Publish a release at its scheduled time; return the delay in seconds.

        Args:
            at: time of the publication, in seconds of the clock.
            step: number of the step.
            receipt: witness's receipt for the ledger head; None without a witness.
            slow: cause of a delay, for the log.
        """
        # The publication itself is a commit at the due time.
        running = self._running
        took_too_long = running.clock.now() > at
        await running.clock.until(at)
        event = LogEvent(time.time(), "info", f"step {step} is published")

        def publish(tx: Transaction) -> Published:
            tx.publish(step + 1, receipt)
            tx.log(event)
            return running.engine.publish()

        # The release is visible once the publication is committed; the log then states a delay.
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
        """Result of a job that the writer ran; a job is submitted again while the queue is full."""
        while True:
            try:
                return await self._running.submit(job)
            except BusyError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _confirm(self) -> None:
        """Obtain the witness's receipt for the newest ledger head before anything is published."""
        running = self._running
        receipt = await self._receipt_for(running.record)
        if receipt is not None:
            await self._submit(lambda tx: tx.publish(receipt.steps, receipt))
            running.receipt = receipt
        running.withheld = False

    async def _receipt_for(self, record: Record | None) -> WitnessReceipt | None:
        """Witness's receipt for the ledger head after ``record``; None without a witness."""
        running = self._running
        if running.witness is None:
            return None
        from turnout.service.witness.messages import ShownHead

        head = Head(0, bytes.fromhex(running.task)) if record is None else record.head
        signed = heads.signed_head(running.task, head, running.key)
        key, begins = running.charter.coordinator_key, running.receipt is None
        return await running.witness.receipt(ShownHead(running.task, key, signed, record, begins))

    def _require_receipt(self, steps: int) -> None:
        """Require that the witness has signed the ledger head after ``steps`` releases.

        Raises:
            StorageError: the witness has not signed this ledger head.
        """
        running = self._running
        has = running.receipt is not None and running.receipt.steps == steps
        if running.witness is not None and not has:
            raise StorageError(
                f"the witness has not signed the ledger head after {steps} releases; start the "
                "coordinator again"
            )

    def _export_head(self, record: Record) -> None:
        """Write the ledger head after ``record`` into the head file, if there is one."""
        running = self._running
        if running.head_file is not None:
            signed = heads.signed_head(running.task, record.head, running.key)
            running.head_file.export(running.task, signed)

    def _start_reclaiming(self) -> None:
        """Start a task that deletes the updates of released steps, unless one is running.

        These updates are unreadable already, since the release deleted their key.
        """
        self._must_reclaim = True
        if self._reclaiming is None or self._reclaiming.done():
            self._reclaiming = asyncio.create_task(self._reclaim())

    async def _reclaim(self) -> None:
        """Delete updates in small batches, so that no request waits long, then tidy the files."""
        try:
            while self._must_reclaim:
                self._must_reclaim, pause = False, _PAUSE_SECONDS
                while await self._submit(lambda tx: tx.reclaim(_RECLAIMED_AT_ONCE)):
                    await asyncio.sleep(_PAUSE_SECONDS)
                while not await self._tidy(thorough=False):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_TIDY_PAUSE_SECONDS)
        except StorageError as error:
            logs.logger().warning("old updates could not be deleted", reason=str(error))

    async def _tidy_at_the_end(self) -> None:
        """Erase all bytes of deleted rows from the database files, or warn the operator."""
        for _ in range(_LAST_TIDY_TRIES):
            if await self._tidy(thorough=True):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        text = "deleted rows may still be in the database's files: start the coordinator again"
        await self._running.note("warning", text)

    async def _tidy(self, *, thorough: bool) -> bool:
        """Erase the bytes of deleted rows; return False if another attempt is needed."""
        try:
            return await self._running.tidy(thorough=thorough)
        except BusyError:
            return False


FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_EVALUATED = "models are evaluated"

Evaluate = Callable[[Any], tuple[float, float]]
"""Returns accuracy and mean loss of a model's parameters."""


def evaluation_of_plan(text: str, folder: Path) -> Evaluate:
    """Function that evaluates a model on a plan's held-out data; PyTorch is loaded at once.

    Args:
        text: TOML text of the plan.
        folder: folder to which the plan's paths are relative.
    """
    from turnout.runs.building import build_task
    from turnout.runs.workload import gather

    task = build_task(gather(Plan.from_toml(text), folder))

    def evaluate(parameters: Any) -> tuple[float, float]:
        metrics = task.evaluate(parameters)
        return metrics.get("accuracy", math.nan), metrics["loss"]

    return evaluate


class Evaluator:
    """Thread that evaluates published models and stores their accuracy and loss.

    Args:
        running: the task.
        prepare: function that returns the evaluation function, called in the thread.
        learner: optimizer, which computes the model for use.
    """

    def __init__(self, running: Running, prepare: Callable[[], Evaluate], learner: Learner) -> None:
        self._running, self._prepare, self._learner = running, prepare, learner
        self._changed = threading.Condition()
        self._newest = 0 if running.withheld else running.shown.published.head.steps
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="turnout-evaluation", daemon=True)

    def start(self) -> None:
        """Start the evaluation thread once the service accepts requests."""
        self._thread.start()

    def published(self, steps: int) -> None:
        """Notify the evaluation thread that the first ``steps`` releases are published."""
        with self._changed:
            self._newest = steps
            self._changed.notify()

    def stop(self, patience_seconds: float = 1.0) -> bool:
        """Stop after the current evaluation; return False if that takes longer than allowed."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(patience_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Evaluate published models until the evaluator is stopped."""
        evaluate = self._retry(self._load)
        if evaluate is None:
            return
        self._report(_EVALUATED, on=True)
        done = self._retry(self._evaluated_steps) or set()
        while (steps := self._next(done)) is not None:
            self._retry(partial(self._score, steps, evaluate))
            done.add(steps)

    def _load(self) -> Evaluate:
        """Load PyTorch and the plan's data, and make the evaluation function."""
        evaluate = self._prepare()
        gc.freeze()  # no garbage collection of PyTorch's modules, for which requests would wait
        return evaluate

    def _evaluated_steps(self) -> set[int]:
        """Numbers of steps after which the model has already been evaluated."""
        with self._running.storage.snapshot() as view:
            return {scored.steps for scored in view.scores()}

    def _retry(self, work: Callable[[], T]) -> T | None:
        """Result of ``work``, repeated until it succeeds.

        None if ``work`` cannot succeed, or if the evaluator is stopped.
        """
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped:
            # Errors of the plan or the installation do not pass by waiting; other errors may.
            try:
                return work()
            except (ParameterError, ImportError, FileNotFoundError) as error:
                self._report(f"models are not evaluated: {error}", on=False)
                return None
            except Exception as error:  # descriptors or memory may be missing for a while
                if self._stopped:
                    return None
                reason = f"{type(error).__name__}: {error}"
                self._report(f"an evaluation failed and will be repeated: {reason}", on=False)
            # Wait twice as long each time, unless the evaluator is stopped.
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return None

    def _report(self, text: str, *, on: bool) -> None:
        """Report a new state of the evaluation in log, operator's view and metrics, once."""
        running = self._running
        if text == running.evaluation or self._stopped:
            return
        running.evaluation = text
        running.metrics.evaluation.set(on)
        level = "info" if on else "warning"
        getattr(logs.logger(), level)(text)
        event = LogEvent(time.time(), level, text)
        with suppress(StorageError):  # the line is in the log in any case
            running.writer.submit(lambda tx: tx.log(event))

    def _next(self, done: set[int]) -> int | None:
        """Number of steps of the next model to evaluate; None once the evaluator is stopped.

        The thread waits until such a model is published.
        """
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
        """Evaluate the model after ``steps`` steps and store accuracy and loss.

        The log gets a line for the final model, so that the operator need not open the dashboard.
        """
        with self._running.storage.snapshot() as view:
            parameters = self._parameters_for_use(view, steps)
        scored = Scored(steps, *evaluate(parameters))
        self._running.writer.submit(lambda tx: tx.score(scored)).result()
        if steps == self._newest:
            self._running.metrics.scored(scored)
        self._report(_EVALUATED, on=True)
        if steps == self._running.charter.steps:
            result = {"accuracy": round(scored.accuracy, 4), "loss": round(scored.loss, 4)}
            known = {name: value for name, value in result.items() if math.isfinite(value)}
            logs.logger().info("the final model was evaluated", releases=steps, **known)

    def _parameters_for_use(self, view: Transaction, steps: int) -> Any:
        """Parameters of the model for use after ``steps`` releases."""
        if steps == 0:
            return releases.from_bytes(view.initial_parameters())
        release = view.release_at(steps - 1)
        if release is None:
            raise StorageError(f"the model after {steps} steps is missing")
        state = releases.unpack_state(release.optimizer_state)
        return self._learner.released(releases.from_bytes(release.parameters), state)
