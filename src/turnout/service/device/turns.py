"""A device's action in a step: its turn, cover for it, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from enum import Enum, auto
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
from turnout.service.device.remote import CoordinatorStatus, Remote


class UpdateFunction(Protocol):
    """A device's update function: `Trainer`, or one of the user's own, which needs no PyTorch."""

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
        """Give up what it holds."""
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
        A message is randomized once, from ``source``, and durable before its first byte leaves.

    Raises:
        ParameterError: messages, and draws that can be foretold.
        UnsupportedError: cover where one of many is asked; it would hide nothing.
    """

    def __init__(
        self,
        remote: Remote,
        charter: Charter,
        trainer: UpdateFunction,
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
        self._link: Link = remote.link
        self._diary: Diary = remote.diary
        self._cover, self._random_bytes = cover, random_bytes
        self._computed: tuple[int, bytes] | None = None
        self._covering: tuple[int, bytes] | None = None
        self._covered_until = -1
        self._checked_in = -1
        self._given_up: set[int] = set()

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
        if self._cover and status.phase is StepPhase.CHECK_INS and self._is_bare(step):
            return await self._pretend(status) if status.settled else After.TRY_AGAIN
        return After.DONE

    def _move(self, status: CoordinatorStatus) -> None:
        """Let every slot hear of the step; a turn that begins is durable before it speaks."""
        turns, step = self._diary.memory.turns, status.step
        before = turns.slots
        stands = before.get(step)
        open_until = StepPhase.ANSWERS if self._asks_one else StepPhase.CHECK_INS
        if (stands is ClientState.WAITING and status.phase is not StepPhase.CHECK_INS) or (
            stands is ClientState.CHECKED_IN
            and status.phase not in (StepPhase.CHECK_INS, open_until)
        ):
            turns.on_close(step)
        turns.on_step(StepOpened(step))
        if self._cover or turns.slots != before:
            self._diary.keep()

    def _has_turn(self, step: int) -> bool:
        """Whether the step is its own and nothing final was said about it."""
        memory = self._diary.memory
        stands = memory.turns.slots.get(step)
        unconfirmed = stands is ClientState.ANSWERED and step not in memory.answers
        return stands is ClientState.CHECKED_IN or (unconfirmed and step not in self._given_up)

    def _is_bare(self, step: int) -> bool:
        """Whether the step is not its own, and nothing covers that yet."""
        return self._covered_until < step and step not in self._diary.memory.turns.slots

    async def _take(self, status: CoordinatorStatus) -> After:
        """Its turn, or what is left of it."""
        body = await self._body(status)
        stands = self._diary.memory.turns.slots[status.step]
        if self._asks_one and stands is ClientState.CHECKED_IN:
            after = await self._check_in(status)
            if after is not None:
                return after
        return await self._send(status.step, body)

    async def _body(self, status: CoordinatorStatus) -> bytes:
        """The bytes of its update; computed, and randomized, once a step."""
        stored = self._diary.memory.messages.get(status.step)
        if stored is not None:  # a second draw for the same step would cost as much again
            return stored
        if self._computed is None or self._computed[0] != status.step:
            parameters = await self._remote.model(status)
            update = self._trainer.update(parameters, self._diary.memory.client)
            self._computed = status.step, self._charter.encoding.packed(update, self._source)
        return self._computed[1]

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
        if receipt.asked:
            return None
        memory.turns.on_close(step)
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

    async def _send(self, step: int, body: bytes) -> After:
        """Its update: the slot counts as answered, durably, before the first byte leaves."""
        memory, charter = self._diary.memory, self._charter
        digest = hashlib.sha256(body).digest()
        if memory.turns.slots[step] is ClientState.CHECKED_IN:
            asked = UpdateRequests(step, np.array([memory.client]))
            memory.turns.on_request(asked, lambda: charter.encoding.summed([body]))
            memory.digests[step] = digest
            if charter.randomized:
                memory.messages[step] = body
            self._diary.keep()
        elif memory.digests.get(step) != digest:
            self._given_up.add(step)  # Other bytes than may be out already are never sent.
            return After.DONE
        receipt = await self._link.post(
            memory, updates_path(step), step, body, charter.update_format
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
        self._diary.keep()
        return After.SPOKEN

    async def _pretend(self, status: CoordinatorStatus) -> After:
        """All that a turn does, with random bytes; also the work, which takes time."""
        step = status.step
        await self._body(status)
        self._diary.keep()
        if self._covering is None or self._covering[0] != step:
            self._covering = step, self._random_bytes(self._charter.encoding.encoded_size)
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
