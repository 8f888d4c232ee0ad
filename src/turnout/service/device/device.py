"""A device: it comes in the steps that it drew, sends one update in each, and leaves.

Whatever goes wrong costs it a turn, never privacy: it draws before the first contact and never
again, moves a slot durably before it sends for it, sends the same bytes or none, and stops where
the coordinator's ledger does not go on from where it saw it. It waits for relative times that the
coordinator states, spread by chance, which keeps devices from coming all at once, and sends an
update at a moment that it drew before it computed it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import numpy as np

from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.randomness import ByteStream, Source, system_bytes
from turnout.service.contract.charter import Charter
from turnout.service.contract.computation import Artefact
from turnout.service.contract.wire import Invitation, StepPhase, WireAnswer, enrolments_path
from turnout.service.device.link import GoneError, Link, UnreachableError
from turnout.service.device.memory import Diary
from turnout.service.device.pace import Pace
from turnout.service.device.remote import Remote
from turnout.service.device.turns import After, FetchingUpdates, TrainerOf, Turns, UpdateFunction
from turnout.service.device.working import UnfinishedError, Workshop, in_a_process

Said = TypeVar("Said")

_SILENT_SECONDS = 3.0
"""After so long without an answer its owner is told what it waits for."""


class TaskDevice:
    """One client of a task, from its invitation to its last turn.

    Guarantees:
        Nothing is sent before its slots are durable (a `Diary` exists only then), and nothing
        that it hears bends them.
        It speaks in the steps that it drew and, with cover, in all; never by its own clock, and
        never sooner or later because of its records.

    Args:
        diary: its durable memory, open for as long as it runs.
        trainer_of: builds what computes its updates, once the charter is known.
        workshop: where updates are computed; a process of their own.
        try_out: compute an update that nobody gets before it enrols, so that errors show.
        tell: hears what its owner should know: that it takes part, and what it waits for. No step
            is in it, and nothing at the time of a turn.
        turned: hears how the turns stand when one has ended, which joins the client with a step.
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
        workshop: Workshop = in_a_process,
        try_out: bool = True,
        tell: Callable[[str], object] = lambda _: None,
        turned: Callable[[Counter[str]], object] = lambda _: None,
        random_bytes: ByteStream = system_bytes,
        source: Source | None = None,
    ) -> None:
        diary.memory.require(invitation)
        self._invitation, self._diary, self._link = invitation, diary, link
        self._trainer_of, self._workshop, self._cover = trainer_of, workshop, cover
        self._pace, self._random_bytes, self._source = pace or Pace(), random_bytes, source
        self._remote = Remote(link, diary)
        self._tries_out, self._tell, self._turned, self._waits = try_out, tell, turned, False

    async def run(self) -> Counter[str]:
        """Take part until there is nothing left to do; what became of its turns.

        Raises:
            RemoteProtocolError: the coordinator broke the protocol, was set back, does not
                accept the invitation, or gave no answer for too long.
            StorageError: its state cannot be made durable.
            ParameterError: records that do not fit the task, or no update can be computed.
            UnsupportedError: cover where it would hide nothing.
        """
        charter = await self._patiently(self._remote.charter)
        self._pace.follow(charter)
        heard = self._pace.now()
        trainer = self._trainer_of(charter)
        try:
            return await self._take_part(charter, trainer, heard)
        finally:
            if isinstance(trainer, FetchingUpdates):
                trainer.close()

    async def _take_part(
        self, charter: Charter, trainer: UpdateFunction, heard: float
    ) -> Counter[str]:
        """From the first contact to the last turn; what became of them."""
        turns = Turns(
            self._remote,
            charter,
            trainer,
            self._pace,
            self._workshop,
            cover=self._cover,
            random_bytes=self._random_bytes,
            source=self._source,
        )
        if isinstance(trainer, FetchingUpdates):
            await self._pace.until_ready(heard)
            heard = self._pace.now()
            await trainer.fetch(self._artefact)
        elif self._tries_out:
            await self._try_out(trainer, charter)
        await self._pace.until_ready(heard)
        await self._patiently(self._enrol)
        memory = self._diary.memory
        ahead = memory.tally()["to come"]
        self._tell(f"client {memory.client} of task {charter.task[:16]}: {ahead} turns to come")
        tally = memory.tally()
        while await self._step(turns):
            if memory.tally() != tally:
                tally = memory.tally()
                self._turned(tally)
        return memory.tally()

    async def _try_out(self, trainer: UpdateFunction, charter: Charter) -> None:
        """Compute an update that nobody gets, so that an error is not found in a turn.

        That it takes too long is no reason to stay away: only somebody with many records does.

        Raises:
            ParameterError: it fails.
        """
        parameters = np.zeros(charter.encoding.dimension, np.float32)
        compute = partial(trainer.update, parameters, self._diary.memory.client)
        try:
            await self._workshop(compute, charter.timing.compute_seconds or 0.0)
        except UnfinishedError as error:
            if not error.late:
                raise ParameterError("update", str(error), "one that can be computed") from None
            self._tell(f"the update was tried out, and {error}: this device would send zeros")

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
            asked = asyncio.ensure_future(ask())
            try:
                await asyncio.wait({asked}, timeout=_SILENT_SECONDS)
                if not asked.done():
                    self._wait("no answer yet")
                said = await asked
            except UnreachableError as error:
                self._wait(str(error))
                await self._pace.after_failure(error)
            else:
                self._pace.heard()
                if self._waits:
                    self._tell("the coordinator answers")
                self._waits = False
                return said
            finally:
                asked.cancel()

    def _wait(self, reason: str) -> None:
        """Say once what it waits for."""
        if not self._waits:
            self._tell(f"waiting for {self._link.address}: {reason}")
        self._waits = True
