"""A device: it comes in the steps that it drew, sends one update in each, and leaves.

Whatever goes wrong costs it a turn, never privacy: it draws before the first contact and never
again, moves a slot durably before it sends for it, sends the same bytes or none, and stops where
the coordinator's ledger does not go on from where it saw it. It waits for relative times that the
coordinator states, spread by chance, which keeps devices from coming all at once; no clock is read
here, and what privacy rests on are the drawn steps alone.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from turnout.core import checks
from turnout.core.errors import RemoteProtocolError
from turnout.randomness import ByteStream, Source, system_bytes
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.computation import Artefact
from turnout.service.contract.wire import Invitation, StepPhase, WireAnswer, enrolments_path
from turnout.service.device.link import GoneError, Link, UnreachableError
from turnout.service.device.memory import Diary
from turnout.service.device.remote import CoordinatorStatus, Remote
from turnout.service.device.turns import After, FetchingUpdates, TrainerOf, Turns, UpdateFunction

Said = TypeVar("Said")
Sleep = Callable[[float], Awaitable[None]]
"""``await sleep(seconds)`` returns when so many seconds are over."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The waiting times of a device.

    Attributes:
        recheck_seconds: the longest it sleeps before it asks again how far the run is.
        first_backoff_seconds: the first pause after a request that brought nothing back.
        longest_backoff_seconds: the longest such pause; they double.
        patience_seconds: it gives up after so long without any answer.
    """

    recheck_seconds: float = 600.0
    first_backoff_seconds: float = 0.5
    longest_backoff_seconds: float = 30.0
    patience_seconds: float = 3600.0

    def __post_init__(self) -> None:
        checks.positive(
            recheck_seconds=self.recheck_seconds,
            first_backoff_seconds=self.first_backoff_seconds,
            longest_backoff_seconds=self.longest_backoff_seconds,
            patience_seconds=self.patience_seconds,
        )


class Pace:
    """Sleeps, and says for how long."""

    def __init__(
        self,
        limits: Limits | None = None,
        sleep: Sleep = asyncio.sleep,
        random_bytes: ByteStream = system_bytes,
    ) -> None:
        self._limits, self._sleep, self._random_bytes = limits or Limits(), sleep, random_bytes
        self._shortest, self._longest = (
            self._limits.first_backoff_seconds,
            self._limits.longest_backoff_seconds,
        )
        self._timing = Timing()
        self._failures, self._waited = 0, 0.0

    def follow(self, timing: Timing) -> None:
        """Keep to a schedule: short steps leave no time for long pauses."""
        self._timing = timing
        self._shortest = min(self._shortest, timing.step_seconds / 20)
        self._longest = min(self._longest, timing.step_seconds / 4)

    def heard(self) -> None:
        """The coordinator answered."""
        self._waited = 0.0

    def succeeded(self) -> None:
        """Resets the pause, for what had to be done is done."""
        self._failures = 0

    async def after_failure(self, error: UnreachableError | None = None) -> None:
        """A pause before the same is tried again, longer every time.

        Raises:
            RemoteProtocolError: there was no answer for too long.
        """
        longest = min(self._longest, self._shortest * 2.0 ** min(self._failures, 30))
        self._failures += 1
        pause = self.spread(longest / 2, longest)
        if error is not None:
            pause = max(pause, error.retry_after * self.spread(1.0, 1.25))
            self._waited += pause
            if self._waited > self._limits.patience_seconds:
                raise RemoteProtocolError(f"given up: {error}")
        await self._sleep(pause)

    async def until_answers(self, status: CoordinatorStatus) -> None:
        """A pause until those who checked in are told who is asked."""
        await self._sleep(status.seconds_left + self.spread(0, self._timing.answer_seconds / 8))

    async def until_step(self, status: CoordinatorStatus, step: int) -> None:
        """A pause until a later step is open, or until it is time to ask again."""
        ahead = max(0, step - status.step - 1) * self._timing.step_seconds
        pause = status.seconds_to_next_step + ahead
        pause += self.spread(0, self._timing.check_in_seconds / 2)
        if pause > self._limits.recheck_seconds:
            pause = self._limits.recheck_seconds * self.spread(0.5, 1.0)
        await self._sleep(max(pause, self._shortest))

    def spread(self, low: float, high: float) -> float:
        """A number between the two, by chance."""
        return low + (high - low) * int.from_bytes(self._random_bytes(8), "little") / 2**64


class TaskDevice:
    """One client of a task, from its invitation to its last turn.

    Guarantees:
        Nothing is sent before its slots are durable (a `Diary` exists only then), and nothing
        that it hears bends them.
        It speaks in the steps that it drew and, with cover, in all; never by its own clock.

    Args:
        diary: its durable memory, open for as long as it runs.
        trainer_of: builds what computes its updates, once the charter is known.
        cover: in every step that is not its own, send as much as if it were.
        random_bytes: what is sent as cover; the operating system's.
        source: what a client's own messages are drawn from; the operating system's.
    """

    def __init__(
        self,
        invitation: Invitation,
        diary: Diary,
        link: Link,
        trainer_of: TrainerOf,
        *,
        cover: bool = False,
        pace: Pace | None = None,
        random_bytes: ByteStream = system_bytes,
        source: Source | None = None,
    ) -> None:
        diary.memory.require(invitation)
        self._invitation, self._diary, self._link = invitation, diary, link
        self._trainer_of, self._cover = trainer_of, cover
        self._pace, self._random_bytes, self._source = pace or Pace(), random_bytes, source
        self._remote = Remote(link, diary)

    async def run(self) -> Counter[str]:
        """Take part until there is nothing left to do; what became of its turns.

        Raises:
            RemoteProtocolError: the coordinator broke the protocol, was set back, does not
                accept the invitation, or gave no answer for too long.
            StorageError: its state cannot be made durable.
            ParameterError: records that do not fit the task.
            UnsupportedError: cover where it would hide nothing.
        """
        charter = await self._patiently(self._remote.charter)
        self._pace.follow(charter.timing)
        trainer = self._trainer_of(charter)
        try:
            return await self._take_part(charter, trainer)
        finally:
            if isinstance(trainer, FetchingUpdates):
                trainer.close()

    async def _take_part(self, charter: Charter, trainer: UpdateFunction) -> Counter[str]:
        """From the first contact to the last turn; what became of them."""
        turns = Turns(
            self._remote,
            charter,
            trainer,
            cover=self._cover,
            random_bytes=self._random_bytes,
            source=self._source,
        )
        if isinstance(trainer, FetchingUpdates):
            await trainer.fetch(self._artefact)
        await self._patiently(self._enrol)
        while await self._step(turns):
            pass
        return self._diary.memory.tally()

    async def _artefact(self, named: Artefact) -> bytes:
        return await self._patiently(lambda: self._remote.artefact(named))

    async def _step(self, turns: Turns) -> bool:
        """Look at the step in progress and sleep; False when it may leave."""
        status = await self._patiently(self._remote.status)
        if status.phase is StepPhase.FINISHED:
            turns.over()
            return False
        try:
            after = await turns.at(status)
        except (UnreachableError, GoneError) as error:
            unreachable = error if isinstance(error, UnreachableError) else None
            await self._pace.after_failure(unreachable)
            return True
        if after is After.TRY_AGAIN:
            await self._pace.after_failure()
            return True
        self._pace.succeeded()
        if after is After.AWAIT_ANSWERS:
            await self._pace.until_answers(status)
        elif after is After.DONE:
            following = turns.next_after(status.step)
            if following is None:
                return False
            await self._pace.until_step(status, following)
        return True

    async def _enrol(self) -> None:
        """Tell the coordinator its key; a second time changes nothing."""
        memory = self._diary.memory
        if memory.enrolled:
            return
        fields = {
            "client": memory.client,
            "public_key": memory.key.public.hex(),
            "secret": self._invitation.secret.hex(),
        }
        body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
        receipt = await self._link.post(memory, enrolments_path(), -1, body)
        if receipt.answer is not WireAnswer.ACCEPTED:
            reason = receipt.detail or receipt.answer.value
            raise RemoteProtocolError(f"the invitation is not accepted: {reason}")
        memory.enrolled, memory.receipt = True, receipt
        self._diary.keep()

    async def _patiently(self, ask: Callable[[], Awaitable[Said]]) -> Said:
        """An answer, however often it must be asked for."""
        while True:
            try:
                said = await ask()
            except UnreachableError as error:
                await self._pace.after_failure(error)
            else:
                self._pace.heard()
                return said
