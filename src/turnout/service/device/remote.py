"""The coordinator as a device sees it: its status, its records, its charter and its models.

Nothing here is believed because it was sent: a charter has the digest that the invitation names,
a head the coordinator's signature, a record the digest that a head leads to, a model the digest
that a record names.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import RemoteProtocolError, StorageError
from turnout.schemes.codec import participation_to_dict
from turnout.service.contract.charter import Charter
from turnout.service.contract.computation import Artefact
from turnout.service.contract.ledger import Head, Record, require_chain, verified
from turnout.service.contract.wire import (
    CHARTER_PATH,
    NOT_SO,
    RECORDS_PATH,
    STATUS_PATH,
    SignedHead,
    StepPhase,
    artefact_path,
    head_bytes,
    model_path,
)
from turnout.service.device.link import Link, UnreachableError
from turnout.service.device.memory import Diary, Memory

_TELLING_PAUSES = (0.2, 0.6, 1.8)
_CHARTER_BYTES, _STATUS_BYTES, _RECORDS_BYTES = 1 << 26, 1 << 14, 1 << 24


class CoordinatorSetBackError(RemoteProtocolError):
    """The coordinator's ledger is behind the one that this device saw, or is another one."""


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """The coordinator's answer to "how far are you?".

    Attributes:
        step: the step in progress; the number of steps when all are over.
        seconds_left: to the end of the phase, by the coordinator's clock.
        seconds_to_next_step: to the beginning of the next step.
        head: how far its ledger is, signed.
        model_steps: releases that went into the model that is handed out.
        phase_ends: when the phase is over by the event loop's clock, or a little earlier.
    """

    step: int
    phase: StepPhase
    seconds_left: float
    seconds_to_next_step: float
    head: SignedHead
    model_steps: int
    phase_ends: float = 0.0

    @property
    def settled(self) -> bool:
        """Whether model and ledger are those that the step in progress begins with."""
        return self.head.head.steps == self.step == self.model_steps

    @classmethod
    def parsed(cls, data: bytes, task: str, steps: int) -> Self:
        """The content of a body.

        Raises:
            RemoteProtocolError: another task, or not a status.
        """
        try:
            fields = json.loads(data)
            named = fields["task"]
            status = cls(
                _count(fields["step"], steps),
                StepPhase(fields["phase"]),
                _seconds(fields["seconds_left"]),
                _seconds(fields["seconds_to_next_step"]),
                SignedHead.parsed(fields["head"]),
                _count(fields["model_steps"], steps),
            )
        except NOT_SO as error:
            raise RemoteProtocolError(f"the coordinator's status is none: {error}") from None
        if named != task:
            raise RemoteProtocolError("the coordinator serves another task")
        return status


@dataclass(slots=True)
class Remote:
    """The charter, how far the run is, and the models.

    Guarantees:
        A head that is behind what this device ever saw, or does not follow on it, is refused,
        and the highest one is durable before anything is sent. A coordinator that shows one is
        told the head that it is behind, so that it stops.
        A model is one whose digest the charter or a record under a signed head names.
    """

    link: Link
    diary: Diary
    _charter: Charter | None = None
    _record: Record | None = None

    async def charter(self) -> Charter:
        """The frozen terms, as the invitation names them."""
        if self._charter is None:
            data = await self.link.get(CHARTER_PATH, _CHARTER_BYTES)
            self._charter = charter_of(data, self.diary.memory)
        return self._charter

    async def artefact(self, named: Artefact) -> bytes:
        """The content that the charter names by digest.

        Raises:
            UnreachableError: nothing came back.
            RemoteProtocolError: it is something else, or the coordinator has it not.
        """
        return named.checked(await self.link.get(artefact_path(named.digest.hex()), named.size))

    async def status(self) -> CoordinatorStatus:
        """The progress of the run; the ledger's head is remembered.

        Raises:
            UnreachableError: nothing came back.
            RemoteProtocolError: not a status.
            SetBackError: the coordinator was set back; it was told, if it could be reached.
        """
        try:
            return await self._status()
        except CoordinatorSetBackError:
            await self.tell()
            raise

    async def tell(self) -> bool:
        """Show the coordinator the newest head that this device saw; whether it was heard.

        It may be done at any time. The message says nothing else, and not from whom it comes.
        """
        head = self.diary.memory.head
        for pause in (*_TELLING_PAUSES, None):
            if head is None:
                break
            try:
                return await self.link.tell(str(head))
            except UnreachableError:  # which a coordinator that stops is, too
                if pause is not None:
                    await asyncio.sleep(pause)
        return False

    async def _status(self) -> CoordinatorStatus:
        """See `status`."""
        charter, memory = await self.charter(), self.diary.memory
        asked = asyncio.get_running_loop().time()
        data = await self.link.get(STATUS_PATH, _STATUS_BYTES)
        status = CoordinatorStatus.parsed(data, memory.task, charter.steps)
        longest = charter.timing.update_seconds(asks_one=charter.asks_one)
        status = replace(status, phase_ends=asked + min(status.seconds_left, longest))
        seen, new = memory.head, status.head
        require_newer(seen, new, memory.task, memory.coordinator_key)
        if seen is None or new.head != seen.head:
            if seen is not None:
                await self._follow(seen.head, new)
            memory.head = new
            self.diary.keep()
        return status

    async def model(self, status: CoordinatorStatus) -> NDArray[np.float32]:
        """The parameters that the step in progress begins with, shape ``(d,)``."""
        charter = await self.charter()
        digest = await self._model_digest(status.head.head, charter)
        size = 4 * charter.encoding.dimension
        data = await self.link.get(model_path(status.step), size)
        if len(data) != size or hashlib.sha256(data).digest() != digest:
            raise RemoteProtocolError(
                f"the model after {status.step} steps is not the one in the ledger"
            )
        return np.frombuffer(data, dtype="<f4").astype(np.float32)

    async def _model_digest(self, head: Head, charter: Charter) -> bytes:
        """SHA-256 of the model at a head that was checked."""
        if head.steps == 0:
            return charter.initial_model
        if self._record is None or self._record.head != head:
            records = await self._records(head.steps - 1)
            if not records or records[0].head != head:
                raise RemoteProtocolError("the ledger's last record is not the one of its head")
            self._record = records[0]
        return self._record.model_digest

    async def _follow(self, seen: Head, new: SignedHead) -> None:
        """Nothing where the ledger goes on from ``seen`` to ``new``."""
        at, until = seen, new.head.steps
        while at.steps < until:
            records = await self._records(at.steps)
            after = followed(self.diary.memory.task, at, records, until)
            if after == at:
                raise RemoteProtocolError("the coordinator does not show its ledger's records")
            self._record = records[after.steps - at.steps - 1]
            at = after
        if at != new.head:
            raise CoordinatorSetBackError(
                "the coordinator was set back: its records do not lead to its head"
            )

    async def _records(self, first: int) -> list[Record]:
        """The ledger's records from a step on; maybe not all."""
        return records_of(await self.link.get(f"{RECORDS_PATH}?from={first}", _RECORDS_BYTES))


def charter_of(data: bytes, memory: Memory) -> Charter:
    """The charter in a body, if it is the one that it was invited to.

    Raises:
        RemoteProtocolError: another task, participation, population or coordinator.
    """
    if hashlib.sha256(data).hexdigest() != memory.task:
        raise RemoteProtocolError("the charter is not the one that the invitation names")
    try:
        charter = Charter.from_canonical(data)
    except StorageError as error:
        raise RemoteProtocolError(str(error)) from None
    for what, held, named in (
        ("participation law", participation_to_dict(charter.scheme.participation), memory.law),
        ("population", charter.population, memory.population),
        ("coordinator key", charter.coordinator_key, memory.coordinator_key),
    ):
        if held != named:
            raise RemoteProtocolError(f"the charter has another {what} than the invitation")
    return charter


def require_newer(seen: SignedHead | None, new: SignedHead, task: str, key: bytes) -> None:
    """Nothing where ``new`` is signed and not behind what the device saw.

    Raises:
        RemoteProtocolError: a wrong signature.
        SetBackError: the coordinator was set back.
    """
    head = new.head
    if not verified(key, new.signature, head_bytes(task, head)):
        raise RemoteProtocolError("the ledger's head does not bear the coordinator's signature")
    if head.steps == 0 and head.digest.hex() != task:
        raise RemoteProtocolError("the ledger does not begin with the charter")
    if seen is None:
        return
    forked = head.steps == seen.head.steps and head.digest != seen.head.digest
    if forked or head.steps < seen.head.steps:
        raise CoordinatorSetBackError(
            f"the coordinator was set back: its ledger was seen at {seen.head.steps} releases, "
            f"and is at {head.steps}{' other ones' if forked else ''} now"
        )


def records_of(data: bytes) -> list[Record]:
    """The ledger's records in a body."""
    try:
        return [Record.from_document(fields) for fields in json.loads(data)["records"]]
    except NOT_SO as error:
        raise RemoteProtocolError(f"the ledger's records are none: {error}") from None


def followed(task: str, before: Head, records: list[Record], until: int) -> Head:
    """The head after the records that follow on ``before``, up to ``until`` releases."""
    try:
        for record in records:
            if before.steps < until:
                before = require_chain(task, before, record)
    except StorageError:
        raise CoordinatorSetBackError(
            "the coordinator was set back: its ledger does not go on from where it was seen"
        ) from None
    return before


def _count(value: object, limit: int) -> int:
    """A whole number from 0 to ``limit``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ValueError(f"a whole number from 0 to {limit} was expected")
    return value


def _seconds(value: object) -> float:
    """A finite number of seconds of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number of seconds was expected")
    if not 0.0 <= value < math.inf:
        raise ValueError("a finite number of seconds of at least 0 was expected")
    return float(value)
