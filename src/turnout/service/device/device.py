"""A device: it comes in the steps that it drew, sends one update in each, and leaves.

Whatever goes wrong costs it a turn, never privacy: it draws before the first contact and never
again, moves a slot durably before it sends for it, sends the same bytes or none, and stops where
the coordinator's ledger does not go on from where it saw it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from turnout.core.errors import RemoteProtocolError
from turnout.randomness import ByteStream, system_bytes
from turnout.service.device.diary import Diary
from turnout.service.device.link import GoneError, Link, UnreachableError
from turnout.service.device.pace import Pace
from turnout.service.device.remote import Remote
from turnout.service.device.turns import After, Turns
from turnout.service.wire import Answer, Invitation, Phase, enrolments_path

if TYPE_CHECKING:
    from turnout.service.device.trainer import TrainerOf

Said = TypeVar("Said")


class Device:
    """One client of a task, from its invitation to its last turn.

    Guarantees:
        Nothing is sent before its slots are durable (a `Diary` exists only then), and nothing
        that it hears bends them.
        It speaks in the steps that it drew and, with cover, in all; never by its own clock.

    Args:
        invitation: what the operator handed out.
        diary: its durable memory, open for as long as it runs.
        link: the coordinator's address.
        trainer_of: builds what computes its updates, once the charter is known.
        cover: in every step that is not its own, send as much as if it were.
        pace: how it waits.
        random_bytes: what is sent as cover; the operating system's.
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
    ) -> None:
        diary.memory.require(invitation)
        self._invitation, self._diary, self._link = invitation, diary, link
        self._trainer_of, self._cover = trainer_of, cover
        self._pace, self._random_bytes = pace or Pace(), random_bytes
        self._remote = Remote(link, diary)

    def tally(self) -> Counter[str]:
        """How many of its turns ended how, or are to come; no slots."""
        return self._diary.memory.tally()

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
        turns = Turns(
            self._remote,
            charter,
            self._trainer_of(charter),
            cover=self._cover,
            random_bytes=self._random_bytes,
        )
        await self._patiently(self._enrol)
        while await self._step(turns):
            pass
        return self.tally()

    async def _step(self, turns: Turns) -> bool:
        """Look at the step in progress and sleep; False when it may leave."""
        status = await self._patiently(self._remote.status)
        if status.phase is Phase.FINISHED:
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
        if receipt.answer is not Answer.ACCEPTED:
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
