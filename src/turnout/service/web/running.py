"""One task that is being served: storage, writer, engine, and their published state.

`Running` holds all of these, without any network. Only the writer's thread uses the engine; all
other threads read `Running.shown`, which the conductor replaces as a whole once a step is
published. `Clock` is the monotonic clock, which tests replace.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from turnout.core.aggregates import Noise
from turnout.core.errors import StorageError
from turnout.randomness import Source, rounded_gaussian
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import SigningKey
from turnout.service.contract.wire import SignedHead, StepPhase
from turnout.service.coordinator.engine import Engine, Published, SetBackError
from turnout.service.coordinator.releases import Learner
from turnout.service.storage.database import Storage
from turnout.service.storage.interface import LogEvent
from turnout.service.storage.writer import AnswerQueue, JobFuture, Writer
from turnout.service.storage.writes import Transaction
from turnout.service.web import heads, logs
from turnout.service.web.bodies import Bodies
from turnout.service.web.heads import HeadFile
from turnout.service.web.logs import Metrics
from turnout.service.web.views import OperatorView, PublicTerms, PublicView, ServedProgress
from turnout.service.web.views import operator_view as view_of_operator
from turnout.service.web.views import public_view as view_of_public

if TYPE_CHECKING:
    from starlette.requests import Request

    from turnout.service.witness.client import Witness

T = TypeVar("T")

STORAGE_FAILED, SET_BACK = 70, 71
"""Exit codes of a process that must end at once."""

_VIEW_SECONDS = 1.0


class Clock:
    """Monotonic clock in seconds, which does not change when the machine's time is set."""

    def now(self) -> float:
        """Time in seconds since a fixed moment."""
        return time.monotonic()

    async def until(self, moment: float) -> None:
        """Wait until ``moment``; return at once if ``moment`` has passed."""
        while (left := moment - time.monotonic()) > 0:
            await asyncio.sleep(left)


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """Published state of a task; every change replaces the whole object.

    Attributes:
        published: newest published model.
        head: signed ledger head of this model.
        etag: ETag of the model.
        step: step in progress.
        phase: phase of the step.
        phase_ends: end of the phase, in seconds of the clock.
        step_ends: end of the step, in seconds of the clock.
    """

    published: Published
    head: SignedHead
    etag: str
    step: int
    phase: StepPhase
    phase_ends: float
    step_ends: float


def end_at_once(code: int, reason: str) -> None:
    """Log a reason and end the process at once, without an answer to any request."""
    with suppress(BaseException):
        logs.logger().critical("the service ends at once", reason=reason, code=code)
    os._exit(code)


class Running:
    """One task that the process serves.

    Args:
        storage: storage that is opened for serving; `close` closes it.
        learner: function from a charter to its optimizer.
        head_file: file to which ledger heads are exported; None for no export.
        witness: witness that signs each ledger head before it is published; None for no witness.
        change_witness: whether the witness may differ from the witness of the last receipt, or be
            None.
        end: function that is called with an exit code and a reason if the process must end.
        clock: clock of the schedule; by default the machine's monotonic clock.
        most_jobs: largest number of jobs that wait for the disk; further requests get status 503.
        most_bytes: largest number of bytes of bodies that wait for the disk, and of incomplete
            bodies.
        source: randomness that chooses a client; by default the operating system's.
        noise: function that draws the noise of releases; by default rounded Gaussians.

    Raises:
        StorageError: the storage has no task, is damaged or is an old copy; or the head file is
            missing; or the witness has changed.
    """

    def __init__(
        self,
        storage: Storage,
        learner: Callable[[Charter], Learner],
        *,
        head_file: HeadFile | None = None,
        witness: Witness | None = None,
        change_witness: bool = False,
        end: Callable[[int, str], object] = end_at_once,
        clock: Clock | None = None,
        most_jobs: int = 4096,
        most_bytes: int = 64 << 20,
        source: Source | None = None,
        noise: Noise = rounded_gaussian,
    ) -> None:
        # The task, and the checks that its storage is no old copy.
        self.storage, self._end = storage, end
        self.head_file, self.clock = head_file, clock or Clock()
        self.engine = Engine.open(storage, learner, source=source, noise=noise)
        self.charter, self.task = self.engine.charter, self.engine.task
        with storage.snapshot(whole=True) as view:
            self.key = SigningKey(view.signing_key())
            self.keys = dict(view.keys())
            self._check_key_and_head(view)
            self._check_witness(view, witness, change_witness)
        # The ledger head is exported before it is published.
        if head_file is not None:
            head = heads.signed_head(self.task, self.engine.published.head, self.key)
            head_file.export(self.task, head)
        if witness is None:
            with storage.transaction() as tx:
                tx.publish(self.engine.published.head.steps, None)
        # Metrics and values that are computed once, the writer, and the published state.
        self.metrics = Metrics()
        self.terms = PublicTerms.of(self.charter)
        self.ended = False
        self.evaluation = "models are not evaluated yet"
        self.bodies = Bodies(most_bytes)
        self._answers = AnswerQueue()
        self.writer = Writer(
            storage,
            lambda error: self.end(STORAGE_FAILED, f"{type(error).__name__}: {error}"),
            most_jobs=most_jobs,
            most_bytes=most_bytes,
            committed=self.metrics.committed,
        )
        self._shown = self.shown_of(self.engine.published, self.engine.phase)
        self.show(self._shown)
        self._views: dict[str, tuple[float, Any]] = {}

    def _check_key_and_head(self, view: Transaction) -> None:
        """Check the signing key against the charter, and the ledger against the head file."""
        if self.key.public != self.charter.coordinator_key:
            raise StorageError(
                "the stored signing key is not the key in the charter: the database is damaged"
            )
        if self.head_file is not None:
            head = self.engine.published.head
            self.head_file.require_current(self.task, self.charter.coordinator_key, view, head)

    def _check_witness(self, view: Transaction, witness: Witness | None, change: bool) -> None:
        """Check that the witness signed the last receipt, unless another witness is allowed."""
        last, release = view.last_receipt(), view.last_release()
        same = last is None or (witness is not None and witness.key == last.witness_key)
        if not same and not change:
            assert last is not None
            raise StorageError(
                f"the witness of this task has the key {last.witness_key.hex()}: give --witness "
                "and --witness-key of this witness, or add --change-witness for another or none"
            )
        self.witness, self.receipt = witness, last if same else None
        self.record = None if release is None else release.record
        self.withheld = witness is not None

    withheld: bool
    """Whether the witness has not confirmed the newest ledger head, so that nothing is shown."""

    # -- published state --------------------------------------------------------------------

    @property
    def shown(self) -> Shown:
        """Published state of the task."""
        return self._shown

    def show(self, shown: Shown) -> None:
        """Replace the published state by a committed state."""
        self._shown = shown
        self.metrics.published(self.charter, shown.published.head.steps)

    def shown_of(self, published: Published, phase: StepPhase) -> Shown:
        """Published state at the beginning of a phase, whose whole length is still ahead."""
        # Length of the phase.
        now, timing = self.clock.now(), self.charter.timing
        answers = phase is StepPhase.ANSWERS
        phase_seconds = timing.answer_seconds if answers else timing.check_in_seconds
        # The model's ETag and the signed ledger head; a finished run has no further times.
        digest = hashlib.sha256(published.parameters).hexdigest()
        head = heads.signed_head(self.task, published.head, self.key)
        finished = phase is StepPhase.FINISHED
        return Shown(
            published,
            head,
            f'"{digest}"',
            published.head.steps,
            phase,
            now if finished else now + phase_seconds,
            now if finished else now + timing.step_seconds,
        )

    def progress(self) -> ServedProgress:
        """State of the schedule: step, phase and the seconds left."""
        shown, now = self._shown, self.clock.now()
        return ServedProgress(
            shown.published.head,
            shown.step,
            shown.phase,
            max(0.0, shown.phase_ends - now),
            max(0.0, shown.step_ends - now),
        )

    # -- the writer -------------------------------------------------------------------------

    def submit(self, job: Callable[[Transaction], T], body_bytes: int = 0) -> asyncio.Future[T]:
        """Future of the result of a job, set once the writer has committed the job.

        Args:
            job: returns the result.
            body_bytes: bytes that the job occupies while it waits.

        Raises:
            BusyError: too many jobs or bytes are waiting.
            StorageError: the writer ended.
        """
        future: JobFuture[T] = JobFuture(self._answers)
        self.writer.submit_for(future, job, body_bytes)
        return future.answer

    def tidy(self, *, thorough: bool) -> asyncio.Future[bool]:
        """Future that tells whether the bytes of deleted rows are erased from the files."""

        def tidied(storage: Storage) -> bool:
            with suppress(StorageError):  # after a full disk, the next commit ends the process
                return storage.tidy(thorough=thorough)
            return False

        return asyncio.wrap_future(self.writer.submit_alone(tidied))

    async def note(self, level: str, text: str) -> None:
        """Write a line to the operator's log; no line may link a device to a step."""
        event = LogEvent(time.time(), level, text)
        getattr(logs.logger(), level)(text)
        with suppress(StorageError):  # the line is in the log in any case
            await self.submit(lambda tx: tx.log(event))

    def set_back(self, error: SetBackError) -> None:
        """End the process because the storage, head file or witness is an old copy."""
        self.end(SET_BACK, str(error))

    def end(self, code: int, reason: str) -> None:
        """Refuse all further requests, and end the process."""
        self.ended = True
        self._end(code, reason)

    def close(self) -> None:
        """Commit the waiting jobs, then close the storage."""
        self.writer.close()
        self.storage.close()

    # -- views ------------------------------------------------------------------------------

    async def public(self) -> PublicView:
        """Public view of the task, at most one second old."""
        return await self._view(
            "public", lambda at, tx: view_of_public(self.terms, at, tx.scores())
        )

    async def operator(self) -> OperatorView:
        """Operator's view of the task, at most one second old.

        Only a request that `is_operator` accepts may get this view.
        """
        waiting = self.writer.waiting

        def build(at: ServedProgress, tx: Transaction) -> OperatorView:
            view = view_of_operator(self.terms, at, tx, waiting)
            return replace(view, evaluation=self.evaluation)

        return await self._view("operator", build)

    async def _view(self, name: str, build: Callable[[ServedProgress, Transaction], T]) -> T:
        """View of the given name: a cached view of the last second, or a new view."""
        at, now = self.progress(), self.clock.now()
        kept = self._views.get(name)
        if kept is not None and now - kept[0] < _VIEW_SECONDS:
            return kept[1]

        def look() -> T:
            with self.storage.snapshot() as view:
                return build(at, view)

        view = await asyncio.to_thread(look)
        self._views[name] = now, view
        return view

    async def is_operator(self, request: Request) -> bool:
        """Whether a request has the operator's session or the right password.

        False for every request before `create_app` sets ``operator_known``.

        Raises:
            HTTPException: 429, too many wrong passwords.
        """
        return self.operator_known is not None and await self.operator_known(request)

    operator_known: Callable[[Any], Awaitable[bool]] | None = None
