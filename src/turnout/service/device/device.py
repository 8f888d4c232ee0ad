"""A device that participates in the steps that it has drawn, with one update in each drawn step.

`TaskDevice` is the loop of one client: read the status, act on the step (`step_actions`), sleep
(`pace`). `fleet` and `turnout.device.Device` run it.

After a failure a device may lose a participation, but its client loses no privacy:
    the device draws its steps once, before the first contact;
    the device stores the new state of a slot (drawn step) before it sends anything for that slot;
    the device repeats an interrupted request with the same bytes or not at all;
    the device stops if the coordinator's ledger does not extend the ledger seen by the device.
A device sleeps until times that the coordinator reports in seconds from now, plus random delays, so
that devices do not arrive all at once. A device sends an update at a moment that it drew before the
computation.
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
from turnout.service.device.step_actions import (
    After,
    FetchingUpdates,
    StepActions,
    TrainerOf,
    UpdateFunction,
)
from turnout.service.device.working import UnfinishedError, Workshop, in_a_process

Answer = TypeVar("Answer")

_SILENT_SECONDS = 3.0
"""Time without an answer after which the owner is notified of what the device waits for."""


class TaskDevice:
    """One client of a task, from its invitation to its last participation.

    Guarantees:
        Nothing is sent before the slots (the drawn steps) are durable, since a `Diary` exists only
        then.
        No message from the coordinator changes the slots.
        The device sends in the steps that it drew and, with dummy traffic, in all steps. The times
        of sending depend neither on the machine's clock nor on the client's records.

    Args:
        invitation: invitation of the client.
        diary: the device's durable state, open for as long as the device runs.
        link: connection to the coordinator.
        trainer_of: builds the update function, once the charter is known.
        workshop: runs the update function; by default in a separate process.
        try_out: compute one update before enrolment and discard it, so that errors show early.
        tell: receives messages for the owner, which state that the device participates or what it
            waits for. The messages name no step, and no message is sent at the time of a
            participation.
        on_outcome: receives the number of participations by outcome, after each participation; a
            log of these calls links the client to its steps.
        cover: send dummy traffic in all steps that were not drawn, as much as in a participation.
        random_bytes: bytes of the dummy traffic; by default the operating system's.
        source: randomness of a client's messages; by default the operating system's.
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
        on_outcome: Callable[[Counter[str]], object] = lambda _: None,
        random_bytes: ByteStream = system_bytes,
        source: Source | None = None,
    ) -> None:
        # The state file must have been made from this invitation.
        diary.memory.require(invitation)
        self._invitation, self._diary, self._link = invitation, diary, link
        # The computation of updates, the times, and the randomness.
        self._trainer_of, self._workshop, self._cover = trainer_of, workshop, cover
        self._pace, self._random_bytes, self._source = pace or Pace(), random_bytes, source
        # Checked answers of the coordinator, and messages to the device's owner.
        self._remote = Remote(link, diary)
        self._tries_out, self._tell, self._on_outcome, self._waits = (
            try_out,
            tell,
            on_outcome,
            False,
        )

    async def run(self) -> Counter[str]:
        """Run the device until its last participation; return the participations by outcome.

        Raises:
            RemoteProtocolError: the coordinator broke the protocol, restored an old ledger, refused
                the invitation, or gave no answer for longer than `Limits.patience_seconds`.
            StorageError: the device's state cannot be made durable.
            ParameterError: the records do not fit the task, or no update can be computed.
            UnsupportedError: dummy traffic is on under the one-client rule, where dummy traffic
                would hide nothing.
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
        """Prepare, enrol and participate to the end; return the participations by outcome."""
        actions = StepActions(
            self._remote,
            charter,
            trainer,
            self._pace,
            self._workshop,
            cover=self._cover,
            random_bytes=self._random_bytes,
            source=self._source,
        )
        # Prepare before enrolment: fetch and check the charter's graph, or compute an update once.
        if isinstance(trainer, FetchingUpdates):
            await self._pace.until_ready(heard)
            heard = self._pace.now()
            await trainer.fetch(self._artefact)
        elif self._tries_out:
            await self._try_out(trainer, charter)
        # Enrol at a whole multiple of a fixed time: how long preparation took must not show.
        await self._pace.until_ready(heard)
        await self._patiently(self._enrol)
        memory = self._diary.memory
        ahead = memory.tally()["to come"]
        self._tell(f"client {memory.client} of task {charter.task[:16]}: {ahead} turns to come")
        # Act on one step after another, and report each change of the tally.
        tally = memory.tally()
        while await self._step(actions):
            if memory.tally() != tally:
                tally = memory.tally()
                self._on_outcome(tally)
        return memory.tally()

    async def _try_out(self, trainer: UpdateFunction, charter: Charter) -> None:
        """Compute an update and discard it, so that an error shows before the first participation.

        A computation that exceeds the time limit is no error: a device that stayed away for this
        reason would reveal that its client has many records.

        Raises:
            ParameterError: the computation fails.
        """
        parameters = np.zeros(charter.encoding.dimension, np.float32)
        compute = partial(trainer.update, parameters, self._diary.memory.client)
        try:
            await self._workshop(compute, charter.timing.compute_seconds or 0.0)
        except UnfinishedError as error:
            if not error.late:
                expected = "a function that raises no error"
                raise ParameterError("update", str(error), expected) from None
            self._tell(f"before enrolment, {error}: in a step this device would send zeros")

    async def _artefact(self, named: Artefact) -> bytes:
        return await self._patiently(lambda: self._remote.artefact(named))

    async def _step(self, actions: StepActions) -> bool:
        """Act on the step in progress, then sleep; return False if the device is done."""
        # Get the step in progress; the device is done when the run is over.
        status = await self._patiently(self._remote.status)
        if status.phase is StepPhase.FINISHED:
            actions.over()
            return False
        # Act on the step; a coordinator that does not answer is asked again later.
        try:
            after = await actions.at(status)
        except (UnreachableError, GoneError) as error:
            unreachable = error if isinstance(error, UnreachableError) else None
            await self._pace.after_failure(unreachable)
            return True
        if after is After.TRY_AGAIN:
            await self._pace.after_failure()
            return True
        # Sleep until there is something to do.
        self._pace.succeeded()
        if after is After.AWAIT_ANSWERS:
            await self._pace.until_answers(status)
        elif after is After.DONE:
            following = actions.next_after(status.step)
            if following is None:
                return False
            await self._pace.until_step(status, following)
        return True

    async def _enrol(self) -> None:
        """Register the device's public key at the coordinator; a repetition changes nothing."""
        # A device that enrolled before has nothing to do.
        memory = self._diary.memory
        if memory.enrolled:
            return
        # The request proves with the invitation's secret that the device was invited.
        fields = {
            "client": memory.client,
            "public_key": memory.key.public.hex(),
            "secret": self._invitation.secret.hex(),
        }
        body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
        receipt = await self._link.post(memory, enrolments_path(), -1, body)
        if receipt.answer is not WireAnswer.ACCEPTED:
            reason = receipt.detail or receipt.answer.value
            raise RemoteProtocolError(f"the coordinator refuses the invitation: {reason}")
        # From now on the state file records that the key is registered.
        memory.enrolled, memory.receipt = True, receipt
        self._diary.keep()

    async def _patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Answer to a request; the request is repeated until an answer arrives or patience ends."""
        while True:
            # Send the request; notify the owner once if the answer is slow.
            asked = asyncio.ensure_future(ask())
            try:
                await asyncio.wait({asked}, timeout=_SILENT_SECONDS)
                if not asked.done():
                    self._wait("no answer yet")
                answer = await asked
            except UnreachableError as error:  # pause, longer each time, then repeat the request
                self._wait(str(error))
                await self._pace.after_failure(error)
            else:  # an answer: notify an owner who was told of the wait
                self._pace.heard()
                if self._waits:
                    self._tell("the coordinator answers")
                self._waits = False
                return answer
            finally:
                asked.cancel()

    def _wait(self, reason: str) -> None:
        """Notify the device's owner, once per wait, of the reason for a wait."""
        if not self._waits:
            self._tell(f"waiting for {self._link.address}: {reason}")
        self._waits = True
