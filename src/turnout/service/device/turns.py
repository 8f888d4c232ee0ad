"""A device's action in a step: its turn, cover for it, or nothing.

When an update leaves must tell nothing of the records that it is computed from. So the moment is
drawn first; then the update is computed, in a process that is ended at the charter's bound, and
stored; and at the moment the bytes leave, those of the zero vector where there is no update.
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
    covers_path,
    requests_path,
    updates_path,
)
from turnout.service.device.link import Link
from turnout.service.device.memory import Diary
from turnout.service.device.pace import Pace
from turnout.service.device.remote import CoordinatorStatus, Remote
from turnout.service.device.working import Workshop


class UpdateFunction(Protocol):
    """A device's update function: `Trainer`, or one of the user's own, which needs no PyTorch.

    It is called in a forked process, once a turn; an error there is an update of zeros.
    """

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """The client's update, shape ``(d,)``: clipped to the charter's norm where it is sent as
        whole numbers, as it is where a message is made of it, which clips it.
        """
        ...


@runtime_checkable
class FetchingUpdates(UpdateFunction, Protocol):
    """An update function that first needs what the charter names by digest."""

    async def fetch(self, fetch: Callable[[Artefact], Awaitable[bytes]]) -> None:
        """Get it, and refuse what cannot be trusted; before anything is sent."""
        ...

    def close(self) -> None:
        """Give up what it holds; also after a failed update, and it may be used again."""
        ...


TrainerOf = Callable[[Charter], UpdateFunction]
"""Builds an update function once the charter is known."""


class After(Enum):
    """The action after a step was looked at."""

    DONE = auto()
    """Nothing is to be done in this step."""
    SPOKEN = auto()
    """Something was sent, which took time: ask again how far the run is."""
    TRY_AGAIN = auto()
    """The same again, soon."""
    AWAIT_ANSWERS = auto()
    """It checked in, and hears later whether it is asked."""


class Turns:
    """Moves the slots of a device by the protocol's own table, durably before anything is sent.

    Guarantees:
        Nothing is sent for a slot that is not its own, and for each of its own one update at most:
        copies of it are the same bytes, also after a restart.
        An update leaves at a moment that was drawn, and stored, before it was computed: not
        earlier, later or not at all because of how long that took, or how it ended.
        A message is randomized once, from ``source``, and durable before its first byte leaves.

    Args:
        remote: the coordinator.
        charter: the terms.
        trainer: computes updates.
        pace: draws moments, and waits for them.
        workshop: where updates are computed, for so long at most.
        cover: in every step that is not its own, do as much as if it were.
        random_bytes: what is sent as cover.
        source: what messages are drawn from; the operating system's.

    Raises:
        ParameterError: messages, and draws that can be foretold.
        UnsupportedError: cover where one of many is asked; it would hide nothing.
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
        self._asks_one, self._source = charter.asks_one, source or OSRandomness()
        if charter.randomized and not self._source.secure:
            expected = "draws that nobody can foretell"
            raise ParameterError("source", type(self._source).__name__, expected)
        if cover and self._asks_one:
            raise UnsupportedError(
                "cover traffic looks like an update of release = 'aggregated'; with 'one-client' "
                "check-ins and requests would still tell"
            )
        self._remote, self._charter, self._trainer = remote, charter, trainer
        self._pace, self._workshop = pace, workshop
        self._link: Link = remote.link
        self._diary: Diary = remote.diary
        self._cover, self._random_bytes = cover, random_bytes
        self._fetched: tuple[int, NDArray[np.float32]] | None = None
        self._covering: tuple[int, bytes] | None = None
        self._covered_until = -1
        self._checked_in = -1
        self._due = -1  # the last step whose moment this process waited for

    def next_after(self, step: int) -> int | None:
        """The next step in which there is something to do; None when it may leave."""
        if self._cover:
            return step + 1 if step + 1 < self._charter.steps else None
        slots = self._diary.memory.turns.slots.items()
        ahead = (slot for slot, state in slots if slot > step and state is ClientState.WAITING)
        return min(ahead, default=None)

    def over(self) -> None:
        """The run is finished: what lay ahead is missed."""
        self._diary.memory.turns.on_step(StepOpened(self._charter.steps))
        self._diary.keep()

    async def at(self, status: CoordinatorStatus) -> After:
        """Do what is to be done in the step in progress.

        Raises:
            UnreachableError, GoneError: nothing came back; the same may be tried again.
            RemoteProtocolError: the coordinator broke the protocol.
            StorageError: the state may not be durable; nothing was sent.
        """
        self._move(status)
        step = status.step
        if self._has_turn(step):
            return await self._take(status) if status.settled else After.TRY_AGAIN
        if self._cover and self._takes_updates(status) and self._is_bare(step):
            return await self._pretend(status) if status.settled else After.TRY_AGAIN
        return After.DONE

    def _move(self, status: CoordinatorStatus) -> None:
        """Let every slot hear of the step; a turn that begins is durable before it speaks."""
        turns, step = self._diary.memory.turns, status.step
        before = turns.slots
        stands = before.get(step)
        begins = self._takes_check_ins(status)
        goes_on = begins or (self._asks_one and status.phase is StepPhase.ANSWERS)
        if (stands is ClientState.WAITING and not begins) or (
            stands is ClientState.CHECKED_IN and not goes_on
        ):
            turns.on_close(step)
        turns.on_step(StepOpened(step))
        if self._cover or turns.slots != before:
            self._diary.memory.forget_before(step)
            self._diary.keep()

    def _takes_check_ins(self, status: CoordinatorStatus) -> bool:
        """Whether a turn can begin now; one with an update needs time to compute it."""
        if self._asks_one:
            return status.phase is StepPhase.CHECK_INS
        return self._takes_updates(status) and self._pace.has_room(status.phase_ends)

    def _takes_updates(self, status: CoordinatorStatus) -> bool:
        """Whether the phase is that of updates."""
        return status.phase is (StepPhase.ANSWERS if self._asks_one else StepPhase.CHECK_INS)

    def _has_turn(self, step: int) -> bool:
        """Whether the step is its own and nothing final was said about it."""
        memory = self._diary.memory
        stands = memory.turns.slots.get(step)
        unconfirmed = stands is ClientState.ANSWERED and step not in memory.answers
        return stands is ClientState.CHECKED_IN or unconfirmed

    def _is_bare(self, step: int) -> bool:
        """Whether the step is not its own, and nothing covers that yet."""
        return self._covered_until < step and step not in self._diary.memory.turns.slots

    async def _take(self, status: CoordinatorStatus) -> After:
        """Its turn, or what is left of it."""
        step = status.step
        if self._diary.memory.turns.slots[step] is ClientState.CHECKED_IN:
            parameters = await self._parameters(status)
            if self._asks_one:
                after = await self._check_in(status)
                if after is not None:
                    return after
            moment = self._pace.moment(status.phase_ends)
            if moment is None:  # for the network was slow
                return self._closed(step)
            await self._prepare(step, status.phase_ends - moment, parameters)
        await self._await_moment(status)
        return await self._send(step)

    async def _parameters(self, status: CoordinatorStatus) -> NDArray[np.float32]:
        """The model of the step in progress; fetched once."""
        if self._fetched is None or self._fetched[0] != status.step:
            self._fetched = status.step, await self._remote.model(status)
        return self._fetched[1]

    async def _prepare(self, step: int, before_end: float, parameters: NDArray[np.float32]) -> None:
        """Store the moment, then compute the update, then store it; it counts as answered."""
        memory = self._diary.memory
        asked, encoding = UpdateRequests(step, np.array([memory.client])), self._charter.encoding
        # From here on it counts as answered; what is answered is not known yet.
        memory.turns.on_request(asked, lambda: encoding.summed([bytes(encoding.encoded_size)]))
        memory.moments[step] = before_end
        self._diary.keep()
        self._store(step, await self._message(parameters))

    async def _message(self, parameters: NDArray[np.float32]) -> bytes:
        """The bytes of the client's update, and of zeros where it cannot be computed.

        It returns when the bound on computing is over, however long computing took, so that
        nothing that follows begins at a time that depends on the records.
        """
        seconds = self._charter.timing.compute_seconds
        assert seconds is not None
        begun = self._pace.now()
        compute = partial(self._trainer.update, parameters, self._diary.memory.client)
        try:
            update = await self._workshop(compute, seconds)
            body = self._charter.encoding.packed(update, self._source)
        except Exception:  # whatever it is, it may follow from the records, and is not to be seen
            if isinstance(self._trainer, FetchingUpdates):
                self._trainer.close()
            body = self._zeros()
        await self._pace.until(begun + seconds)
        return body

    def _zeros(self) -> bytes:
        """The bytes of an update of zeros, randomized as any other."""
        return self._charter.encoding.packed(
            np.zeros(self._charter.encoding.dimension), self._source
        )

    def _store(self, step: int, body: bytes) -> None:
        """Make durable what leaves in a step."""
        memory = self._diary.memory
        memory.messages[step], memory.digests[step] = body, hashlib.sha256(body).digest()
        self._diary.keep()

    async def _await_moment(self, status: CoordinatorStatus) -> None:
        """Return when the update is to leave.

        A process that was ended goes on with what it stored. Where there is no update, none is
        computed: that may be what ended it. Where the moment has passed meanwhile, one is drawn
        from what is left of the phase.
        """
        step, memory = status.step, self._diary.memory
        if self._due == step:  # what is sent now is a copy
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
        """Say "I am here", or hear whether it is asked; None once it is."""
        memory, step = self._diary.memory, status.step
        if status.phase is not StepPhase.CHECK_INS:
            return await self._hear(step)
        if self._checked_in == step:
            return After.AWAIT_ANSWERS
        receipt = await self._link.post(memory, check_ins_path(step), step, b"")
        if receipt.answer is not WireAnswer.ACCEPTED:
            return self._turned_down(step, receipt)
        self._checked_in = step
        return After.SPOKEN

    async def _hear(self, step: int) -> After | None:
        """Whether it is asked; None if so."""
        memory = self._diary.memory
        receipt = await self._link.post(memory, requests_path(step), step, b"")
        if receipt.answer is not WireAnswer.ACCEPTED:
            return self._turned_down(step, receipt)
        if receipt.asked is None:
            return After.TRY_AGAIN
        return None if receipt.asked else self._closed(step)

    def _closed(self, step: int) -> After:
        """The step is over for it, though it checked in."""
        self._diary.memory.turns.on_close(step)
        self._diary.keep()
        return After.SPOKEN

    def _turned_down(self, step: int, receipt: WireReceipt) -> After:
        """Its check-in did not count; early ones are tried again."""
        if receipt.answer is WireAnswer.EARLY:
            return After.TRY_AGAIN
        turns = self._diary.memory.turns
        if receipt.answer is WireAnswer.LATE:
            turns.on_close(step)
        else:
            turns.on_refusal(step)
        return self._noted(step, receipt)

    async def _send(self, step: int) -> After:
        """The update that is stored."""
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
        """Remember what became of a turn."""
        memory = self._diary.memory
        memory.answers[step], memory.receipt = receipt.answer, receipt
        memory.messages.pop(step, None)
        memory.moments.pop(step, None)
        self._diary.keep()
        return After.SPOKEN

    async def _pretend(self, status: CoordinatorStatus) -> After:
        """All that a turn does, with random bytes; also the work, though its time shows nowhere."""
        step = status.step
        if self._covering is None or self._covering[0] != step:
            parameters = await self._parameters(status)
            moment = self._pace.moment(status.phase_ends)
            if moment is None:
                self._covered_until = step
                return After.SPOKEN
            self._covering = step, self._random_bytes(self._charter.encoding.encoded_size)
            self._diary.keep()
            await self._message(parameters)
            self._diary.keep()
            await self._pace.until(moment)
        receipt = await self._link.post(
            self._diary.memory,
            covers_path(step),
            step,
            self._covering[1],
            self._charter.update_format,
        )
        if receipt.answer is WireAnswer.EARLY:
            return After.TRY_AGAIN
        self._covered_until = step
        self._diary.keep()
        return After.SPOKEN
