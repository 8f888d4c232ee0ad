"""A device's action in a step: its participation, dummy traffic, or nothing.

`StepActions` decides and acts; `device.TaskDevice` calls `StepActions` once for each status.
`UpdateFunction` computes an update; `trainer`, `turnout.service.graphs.updates` or a user's
function implements it.

The time at which an update leaves must not depend on the client's records. So a participation has
four steps: draw the moment of sending; compute the update, in a process that is killed at the
charter's time limit; store the update; send the update at the drawn moment. Without an update,
zeros are sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError, RemoteProtocolError, UnsupportedError
from turnout.protocol.messages import ClientState, StepOpened, UpdateRequests
from turnout.randomness import ByteStream, OSRandomness, Source, system_bytes
from turnout.service.contract.charter import Charter
from turnout.service.contract.computation import Artefact
from turnout.service.contract.wire import (
    StepPhase,
    WireAnswer,
    WireReceipt,
    check_ins_path,
    dummy_traffic_path,
    requests_path,
    updates_path,
)
from turnout.service.device.link import Link
from turnout.service.device.memory import Diary
from turnout.service.device.pace import Pace
from turnout.service.device.remote import CoordinatorStatus, Remote
from turnout.service.device.working import Workshop


class UpdateFunction(Protocol):
    """Interface of a function that computes a client's update, with or without PyTorch.

    `Trainer`, a graph, or a user's function implements it.

    The function runs in a forked process, once per participation. If it raises an error, the device
    sends zeros.
    """

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """Update of the client, shape ``(d,)``.

        The update is clipped to the charter's norm; under local trust the randomizer clips the
        update instead.
        """
        ...


@runtime_checkable
class FetchingUpdates(UpdateFunction, Protocol):
    """Update function that needs artefacts, such as a graph, which the charter names by digest."""

    async def fetch(self, fetch: Callable[[Artefact], Awaitable[bytes]]) -> None:
        """Fetch and check the charter's artefacts, before the device sends anything."""
        ...

    def close(self) -> None:
        """Release all resources, such as processes; a later `update` acquires them again."""
        ...


TrainerOf = Callable[[Charter], UpdateFunction]
"""Builds an update function once the charter is known."""


class After(Enum):
    """Outcome of an action, which determines the device's next action."""

    DONE = auto()
    """Nothing is left to do in this step: sleep until the next step in which the device acts."""
    SPOKEN = auto()
    """Something was sent, which took time: read the status again."""
    TRY_AGAIN = auto()
    """Too early or not possible yet: repeat the action after a short pause."""
    AWAIT_ANSWERS = auto()
    """The device checked in: wait until the coordinator has chosen a client."""


class StepActions:
    """Actions of a device in one step: check-in, update, or dummy traffic.

    Each new state of a slot is durable before anything is sent.

    Guarantees:
        No update is sent in a step that the device did not draw, and at most one update is sent in
        a drawn step; repetitions have the same bytes, also after a restart.
        An update leaves at a moment that was drawn and stored before the update was computed.
        Neither the time nor the success of the computation changes that moment.
        A message is randomized once, from ``source``, and is durable before its first byte leaves.

    Args:
        remote: the coordinator's checked answers.
        charter: the terms of the task.
        trainer: computes updates.
        pace: schedule that draws moments of sending and waits for them.
        workshop: runs the update function for at most the charter's time limit.
        cover: send dummy traffic in every step that the device did not draw.
        random_bytes: bytes of the dummy traffic.
        source: randomness of messages; by default the operating system's.

    Raises:
        ParameterError: ``source`` is predictable, and the task has local trust.
        UnsupportedError: ``cover`` is True under the one-client rule, where dummy traffic would
            hide nothing.
    """

    def __init__(
        self,
        remote: Remote,
        charter: Charter,
        trainer: UpdateFunction,
        pace: Pace,
        workshop: Workshop,
        *,
        cover: bool = False,
        random_bytes: ByteStream = system_bytes,
        source: Source | None = None,
    ) -> None:
        # Messages need unpredictable randomness; dummy traffic must be able to hide something.
        self._asks_one, self._source = charter.asks_one, source or OSRandomness()
        if charter.randomized and not self._source.secure:
            expected = "an unpredictable source"
            raise ParameterError("source", type(self._source).__name__, expected)
        if cover and self._asks_one:
            raise UnsupportedError(
                "dummy traffic (cover) exists only for release = 'aggregated'; with 'one-client', "
                "check-ins and requests would still reveal who participates"
            )
        # The objects that the actions use.
        self._remote, self._charter, self._trainer = remote, charter, trainer
        self._pace, self._workshop = pace, workshop
        self._link: Link = remote.link
        self._diary: Diary = remote.diary
        self._cover, self._random_bytes = cover, random_bytes
        # What this process has done in the step in progress.
        self._fetched: tuple[int, NDArray[np.float32]] | None = None
        self._dummy: tuple[int, bytes] | None = None  # step and bytes of the dummy update
        self._dummy_sent_until = -1  # the last step with complete dummy traffic
        self._checked_in = -1  # the last step with an accepted check-in of this process
        self._due = -1  # the last step whose moment of sending this process waited for

    def next_after(self, step: int) -> int | None:
        """Next step in which the device acts; None if no such step is left."""
        if self._cover:
            return step + 1 if step + 1 < self._charter.steps else None
        slots = self._diary.memory.participant.slots.items()
        ahead = (slot for slot, state in slots if slot > step and state is ClientState.WAITING)
        return min(ahead, default=None)

    def over(self) -> None:
        """Mark all remaining slots as missed, because the run has ended."""
        self._diary.memory.participant.on_step(StepOpened(self._charter.steps))
        self._diary.keep()

    async def at(self, status: CoordinatorStatus) -> After:
        """Act on the step in progress: participate, send dummy traffic, or do nothing.

        Raises:
            UnreachableError, GoneError: no answer arrived; the same action may be repeated.
            RemoteProtocolError: the coordinator broke the protocol.
            StorageError: the state may not be durable; nothing was sent.
        """
        self._move(status)
        step = status.step
        if self._participates(step):
            return await self._participate(status) if status.settled else After.TRY_AGAIN
        if self._cover and self._takes_updates(status) and self._needs_dummy(step):
            return await self._send_dummy(status) if status.settled else After.TRY_AGAIN
        return After.DONE

    def _move(self, status: CoordinatorStatus) -> None:
        """Update the states of all slots for the step in progress; store any changed state.

        A check-in or an update is sent only afterwards, so the state file is never older than what
        was sent.
        """
        participant, step = self._diary.memory.participant, status.step
        before = participant.slots
        state = before.get(step)
        # Close the step's own slot where it is too late to begin, or to continue after a restart.
        begins = self._takes_check_ins(status)
        goes_on = begins or (self._asks_one and status.phase is StepPhase.ANSWERS)
        if (state is ClientState.WAITING and not begins) or (
            state is ClientState.CHECKED_IN and not goes_on
        ):
            participant.on_close(step)
        # The opened step misses earlier slots and begins this one. With dummy traffic every step
        # writes to the disk, so that writing does not distinguish drawn steps.
        participant.on_step(StepOpened(step))
        if self._cover or participant.slots != before:
            self._diary.memory.forget_before(step)
            self._diary.keep()

    def _takes_check_ins(self, status: CoordinatorStatus) -> bool:
        """Whether the device can begin to participate now, with time left for an update."""
        if self._asks_one:
            return status.phase is StepPhase.CHECK_INS
        return self._takes_updates(status) and self._pace.has_room(status.phase_ends)

    def _takes_updates(self, status: CoordinatorStatus) -> bool:
        """Whether the coordinator accepts updates in the current phase."""
        return status.phase is (StepPhase.ANSWERS if self._asks_one else StepPhase.CHECK_INS)

    def _participates(self, step: int) -> bool:
        """Whether the device drew this step and has no final answer for the step yet."""
        memory = self._diary.memory
        state = memory.participant.slots.get(step)
        unconfirmed = state is ClientState.ANSWERED and step not in memory.answers
        return state is ClientState.CHECKED_IN or unconfirmed

    def _needs_dummy(self, step: int) -> bool:
        """Whether the device did not draw this step and has not sent dummy traffic in it yet."""
        return self._dummy_sent_until < step and step not in self._diary.memory.participant.slots

    async def _participate(self, status: CoordinatorStatus) -> After:
        """Participate in the step, or continue an interrupted participation."""
        step = status.step
        if self._diary.memory.participant.slots[step] is ClientState.CHECKED_IN:
            parameters = await self._parameters(status)
            if self._asks_one:  # check in, then learn whether this client was chosen
                after = await self._check_in(status)
                if after is not None:
                    return after
            # Draw the moment of sending before the update is computed.
            moment = self._pace.moment(status.phase_ends)
            if moment is None:  # a slow network left no time to compute
                return self._closed(step)
            await self._prepare(step, status.phase_ends - moment, parameters)
        await self._await_moment(status)
        return await self._send(step)

    async def _parameters(self, status: CoordinatorStatus) -> NDArray[np.float32]:
        """Model parameters at the beginning of the step, shape ``(d,)``, fetched once per step."""
        if self._fetched is None or self._fetched[0] != status.step:
            self._fetched = status.step, await self._remote.model(status)
        return self._fetched[1]

    async def _prepare(self, step: int, before_end: float, parameters: NDArray[np.float32]) -> None:
        """Store the sending time of the update, then compute and store the update.

        The slot is stored as answered before the computation, so a restart never computes again.
        """
        memory = self._diary.memory
        asked, encoding = UpdateRequests(step, np.array([memory.client])), self._charter.encoding
        # The protocol's state needs an update; the real one is not known yet, zeros stand for it.
        zeros = [bytes(encoding.encoded_size)]
        memory.participant.on_request(asked, lambda: encoding.summed(zeros))
        memory.moments[step] = before_end
        self._diary.keep()
        self._store(step, await self._message(parameters))

    async def _message(self, parameters: NDArray[np.float32]) -> bytes:
        """Encoded update of the client; an encoded zero vector if the computation fails or is late.

        The function returns when the limit on computing time is over, however long the computation
        took, so that the time of the next action does not depend on the records.
        """
        seconds = self._charter.timing.compute_seconds
        assert seconds is not None
        begun = self._pace.now()
        compute = partial(self._trainer.update, parameters, self._diary.memory.client)
        try:
            update = await self._workshop(compute, seconds)
            body = self._charter.encoding.packed(update, self._source)
        except Exception:  # any error may depend on the records, so it must not show
            if isinstance(self._trainer, FetchingUpdates):
                self._trainer.close()
            body = self._zeros()
        await self._pace.until(begun + seconds)
        return body

    def _zeros(self) -> bytes:
        """Encoded zero vector, randomized like any other update."""
        return self._charter.encoding.packed(
            np.zeros(self._charter.encoding.dimension), self._source
        )

    def _store(self, step: int, body: bytes) -> None:
        """Store the bytes to be sent in a step durably."""
        memory = self._diary.memory
        memory.messages[step], memory.digests[step] = body, hashlib.sha256(body).digest()
        self._diary.keep()

    async def _await_moment(self, status: CoordinatorStatus) -> None:
        """Wait until the stored sending time of the update.

        After a restart the stored update and moment are used. If no update was stored, zeros are
        sent and nothing is computed again, since the computation may have ended the process. If the
        moment has passed, a new moment is drawn from the rest of the phase.
        """
        step, memory = status.step, self._diary.memory
        if self._due == step:  # a repetition of bytes that were sent already
            return
        if step not in memory.messages:
            self._store(step, self._zeros())
        moment = status.phase_ends - memory.moments.get(step, np.inf)
        if not self._takes_updates(status) or moment < self._pace.now():
            moment = self._pace.late_moment(status.phase_ends)
            memory.moments[step] = status.phase_ends - moment
            self._diary.keep()
        await self._pace.until(moment)
        self._due = step

    async def _check_in(self, status: CoordinatorStatus) -> After | None:
        """Check in or await the coordinator's choice; return None if this client is chosen."""
        memory, step = self._diary.memory, status.step
        if status.phase is not StepPhase.CHECK_INS:
            return await self._await_choice(step)
        if self._checked_in == step:
            return After.AWAIT_ANSWERS
        receipt = await self._link.post(memory, check_ins_path(step), step, b"")
        if receipt.answer is not WireAnswer.ACCEPTED:
            return self._rejected(step, receipt)
        self._checked_in = step
        return After.SPOKEN

    async def _await_choice(self, step: int) -> After | None:
        """Ask the coordinator whether this client is chosen; return None if it is chosen."""
        memory = self._diary.memory
        receipt = await self._link.post(memory, requests_path(step), step, b"")
        if receipt.answer is not WireAnswer.ACCEPTED:
            return self._rejected(step, receipt)
        if receipt.asked is None:
            return After.TRY_AGAIN
        return None if receipt.asked else self._closed(step)

    def _closed(self, step: int) -> After:
        """Close the slot, so that no update can be sent for it."""
        self._diary.memory.participant.on_close(step)
        self._diary.keep()
        return After.SPOKEN

    def _rejected(self, step: int, receipt: WireReceipt) -> After:
        """Store the outcome of a refused check-in; a check-in that was too early is repeated."""
        if receipt.answer is WireAnswer.EARLY:
            return After.TRY_AGAIN
        participant = self._diary.memory.participant
        if receipt.answer is WireAnswer.LATE:
            participant.on_close(step)
        else:
            participant.on_refusal(step)
        return self._noted(step, receipt)

    async def _send(self, step: int) -> After:
        """Send the stored update and record the coordinator's answer."""
        memory = self._diary.memory
        body, digest = memory.messages[step], memory.digests[step]
        receipt = await self._link.post(
            memory, updates_path(step), step, body, self._charter.update_format
        )
        if receipt.answer is WireAnswer.EARLY:
            return After.TRY_AGAIN
        if receipt.answer is WireAnswer.ACCEPTED and receipt.digest != digest:
            raise RemoteProtocolError("the coordinator's receipt is for another update")
        return self._noted(step, receipt)

    def _noted(self, step: int, receipt: WireReceipt) -> After:
        """Store the outcome of a participation and delete the bytes of its update."""
        memory = self._diary.memory
        memory.answers[step], memory.receipt = receipt.answer, receipt
        memory.messages.pop(step, None)
        memory.moments.pop(step, None)
        self._diary.keep()
        return After.SPOKEN

    async def _send_dummy(self, status: CoordinatorStatus) -> After:
        """Send dummy traffic: the requests, work and disk writes of a participation.

        The dummy update consists of random bytes.

        An update is computed and discarded, so that the machine has the same load.
        """
        # Once per step: fetch the model, compute and write in the order of a participation, and
        # wait for a random time of sending.
        step = status.step
        if self._dummy is None or self._dummy[0] != step:
            parameters = await self._parameters(status)
            moment = self._pace.moment(status.phase_ends)
            if moment is None:
                self._dummy_sent_until = step
                return After.SPOKEN
            self._dummy = step, self._random_bytes(self._charter.encoding.encoded_size)
            self._diary.keep()
            await self._message(parameters)
            self._diary.keep()
            await self._pace.until(moment)
        # Send the random bytes; the coordinator answers and drops them.
        receipt = await self._link.post(
            self._diary.memory,
            dummy_traffic_path(step),
            step,
            self._dummy[1],
            self._charter.update_format,
        )
        # As after an update: repeat if it was too early, otherwise write to the disk once more.
        if receipt.answer is WireAnswer.EARLY:
            return After.TRY_AGAIN
        self._dummy_sent_until = step
        self._diary.keep()
        return After.SPOKEN
