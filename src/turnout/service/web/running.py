"""A coordinator that runs: storage, writer, engine and what is shown of them.

Nothing here talks to the network. The engine is touched on the writer's thread alone; everybody
else reads `Running.shown`, which the conductor replaces as a whole once a step is published.
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
from turnout.service.web.views import operator_view as see_as_operator
from turnout.service.web.views import public_view as see

if TYPE_CHECKING:
    from starlette.requests import Request

    from turnout.service.witness.client import Witness

T = TypeVar("T")

STORAGE_FAILED, SET_BACK = 70, 71
"""The exit code of a process that must end at once."""

_VIEW_SECONDS = 1.0


class Clock:
    """The machine's monotonic time: setting its clock does not move it."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    async def until(self, moment: float) -> None:
        """Wait until then; not at all if it is over."""
        while (left := moment - time.monotonic()) > 0:
            await asyncio.sleep(left)


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The public state at this moment, as one."""

    published: Published
    head: SignedHead
    etag: str
    step: int
    phase: StepPhase
    phase_ends: float
    step_ends: float


def end_at_once(code: int, reason: str) -> None:
    """Log the reason and end the process without another word to anybody."""
    with suppress(BaseException):
        logs.logger().critical("the service ends at once", reason=reason, code=code)
    os._exit(code)


class Running:
    """One task that is being served.

    Args:
        storage: opened for serving; closed by `close`.
        learner: makes the learner that a charter asks for.
        head_file: where heads are exported to; None for nowhere.
        witness: what must have a head before it is published; None for nothing.
        change_witness: the witness, or that there is none, is news, and that is known.
        end: called with an exit code and a reason where nothing may go on.
        most_jobs, most_bytes: of what waits for the disk; beyond it requests are told to retry.

    Raises:
        StorageError: no task, a damaged one, or an old copy of it; no head file, or not the
            witness of before.
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
        self.storage, self._end = storage, end
        self.head_file, self.clock = head_file, clock or Clock()
        self.engine = Engine.open(storage, learner, source=source, noise=noise)
        self.charter, self.task = self.engine.charter, self.engine.task
        with storage.snapshot(whole=True) as view:
            self.key = SigningKey(view.signing_key())
            self.keys = dict(view.keys())
            self._check(view)
            self._know_witness(view, witness, change_witness)
        if head_file is not None:  # before anybody can see the head
            head = heads.signed_head(self.task, self.engine.published.head, self.key)
            head_file.export(self.task, head)
        if witness is None:
            with storage.transaction() as tx:
                tx.publish(self.engine.published.head.steps, None)
        self.metrics = Metrics()
        self.terms = PublicTerms.of(self.charter)
        self.ended = False
        self.evaluation = "the evaluation begins"
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

    def _check(self, view: Transaction) -> None:
        if self.key.public != self.charter.coordinator_key:
            raise StorageError("the stored key is not the one that the charter names")
        if self.head_file is not None:
            head = self.engine.published.head
            self.head_file.require_current(self.task, self.charter.coordinator_key, view, head)

    def _know_witness(self, view: Transaction, witness: Witness | None, change: bool) -> None:
        """The head that the witness signed for, checked against the one of before."""
        last, release = view.last_receipt(), view.last_release()
        same = last is None or (witness is not None and witness.key == last.witness_key)
        if not same and not change:
            assert last is not None
            raise StorageError(
                f"the witness of this task has the key {last.witness_key.hex()}: give its "
                "--witness and --witness-key; another one, or none, needs --change-witness"
            )
        self.witness, self.receipt = witness, last if same else None
        self.record = None if release is None else release.record
        self.withheld = witness is not None

    withheld: bool
    """Whether nothing is shown yet: the witness has not confirmed the newest head."""

    # -- what is shown ----------------------------------------------------------------------

    @property
    def shown(self) -> Shown:
        """The public view."""
        return self._shown

    def show(self, shown: Shown) -> None:
        """From now on everybody sees this; all of it must be committed."""
        self._shown = shown
        self.metrics.published(self.charter, shown.published.head.steps)

    def shown_of(self, published: Published, phase: StepPhase) -> Shown:
        """A phase and what follows in its step, all with their full time from now on."""
        now, timing = self.clock.now(), self.charter.timing
        answers = phase is StepPhase.ANSWERS
        phase_seconds = timing.answer_seconds if answers else timing.check_in_seconds
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
        """The state of the schedule."""
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
        """The result of a job on the writer's thread, once that is durable.

        Raises:
            BusyError: too much is waiting.
            StorageError: the writer ended.
        """
        future: JobFuture[T] = JobFuture(self._answers)
        self.writer.submit_for(future, job, body_bytes)
        return future.answer

    def tidy(self, *, thorough: bool) -> asyncio.Future[bool]:
        """Whether deleted rows are out of the storage's files; tried between two transactions."""

        def tidied(storage: Storage) -> bool:
            with suppress(StorageError):  # a full disk ends the process at the next commit
                return storage.tidy(thorough=thorough)
            return False

        return asyncio.wrap_future(self.writer.submit_alone(tidied))

    async def note(self, level: str, text: str) -> None:
        """A line in the operator's log; it never joins a device with a slot."""
        event = LogEvent(time.time(), level, text)
        getattr(logs.logger(), level)(text)
        with suppress(StorageError):  # the log has it, the database need not
            await self.submit(lambda tx: tx.log(event))

    def set_back(self, error: SetBackError) -> None:
        """Storage, head file or witness is an old copy: nothing is said or released any more."""
        self.end(SET_BACK, str(error))

    def end(self, code: int, reason: str) -> None:
        """Refuse everything from now on, and end the process."""
        self.ended = True
        self._end(code, reason)

    def close(self) -> None:
        """Finish what is queued and close the storage."""
        self.writer.close()
        self.storage.close()

    # -- views ------------------------------------------------------------------------------

    async def public(self) -> PublicView:
        """The public view; cheap to read, up to a second old."""
        return await self._view("public", lambda at, tx: see(self.terms, at, tx.scores()))

    async def operator(self) -> OperatorView:
        """The operator's view, as cheap and as old; only after `is_operator`."""
        waiting = self.writer.waiting

        def looked(at: ServedProgress, tx: Transaction) -> OperatorView:
            view = see_as_operator(self.terms, at, tx, waiting)
            return replace(view, evaluation=self.evaluation)

        return await self._view("operator", looked)

    async def _view(self, name: str, looked: Callable[[ServedProgress, Transaction], T]) -> T:
        """A view of at most a second ago, or of the same step at least."""
        at, now = self.progress(), self.clock.now()
        kept = self._views.get(name)
        if kept is not None and now - kept[0] < _VIEW_SECONDS:
            return kept[1]

        def look() -> T:
            with self.storage.snapshot() as view:
                return looked(at, view)

        view = await asyncio.to_thread(look)
        self._views[name] = now, view
        return view

    async def is_operator(self, request: Request) -> bool:
        """Whether a request comes with the operator's session or password.

        Nobody's does before `create_app` says how operators are known.

        Raises:
            HTTPException: 429, too many wrong passwords.
        """
        return self.operator_known is not None and await self.operator_known(request)

    operator_known: Callable[[Any], Awaitable[bool]] | None = None
