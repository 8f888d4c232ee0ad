"""The coordinator's status, charter, ledger records and models, checked by the device.

`Remote` fetches and checks these data for `device` and `step_actions`; `CoordinatorStatus` is the
parsed status. The device checks a charter against the digest in the invitation, a ledger head
against the coordinator's signature, a record against the hash chain that ends in a ledger head, and
a model against the digest in a record.
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
    """The coordinator's ledger does not extend the ledger that this device saw earlier."""


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """Progress of the run as reported by the coordinator.

    Attributes:
        step: the step in progress; the number of steps when all steps are over.
        phase: the phase of that step.
        seconds_left: time to the end of the phase, by the coordinator's clock.
        seconds_to_next_step: time to the beginning of the next step.
        head: the signed ledger head.
        model_steps: number of releases in the model that the coordinator serves.
        phase_ends: end of the phase by the event loop's clock, never later than the end by the
            coordinator's clock.
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
        """Whether model and ledger already include all steps before the step in progress."""
        return self.head.head.steps == self.step == self.model_steps

    @classmethod
    def parsed(cls, data: bytes, task: str, steps: int) -> Self:
        """Status parsed from the body of an answer.

        Raises:
            RemoteProtocolError: the body is no status, or names another task.
        """
        # Each field is checked for its type and range; the step counts are at most the run's.
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
            raise RemoteProtocolError(f"the coordinator's status is invalid: {error}") from None
        # The status must be that of this device's task.
        if named != task:
            raise RemoteProtocolError("the coordinator serves another task")
        return status


@dataclass(slots=True)
class Remote:
    """Client of the coordinator that checks every charter, status and model that it fetches.

    Guarantees:
        A ledger head that does not extend the newest ledger head that this device saw is refused.
        The device then sends its newest head to the coordinator, which stops if the head arrives.
        The newest head is durable before the device sends anything.
        Every model has a digest that is stated in the charter or in a record under a signed ledger
        head.
    """

    link: Link
    diary: Diary
    _charter: Charter | None = None
    _record: Record | None = None

    async def charter(self) -> Charter:
        """Charter of the task, checked against the digest in the invitation."""
        if self._charter is None:
            data = await self.link.get(CHARTER_PATH, _CHARTER_BYTES)
            self._charter = charter_of(data, self.diary.memory)
        return self._charter

    async def artefact(self, named: Artefact) -> bytes:
        """Bytes of an artefact, checked against the charter's digest.

        Raises:
            UnreachableError: no answer arrived.
            RemoteProtocolError: the bytes have another digest, or the coordinator does not have the
                artefact.
        """
        return named.checked(await self.link.get(artefact_path(named.digest.hex()), named.size))

    async def status(self) -> CoordinatorStatus:
        """Progress of the run; the ledger head in it is durable on return.

        Raises:
            UnreachableError: no answer arrived.
            RemoteProtocolError: the answer is no status.
            CoordinatorSetBackError: the coordinator restored an old ledger; this device tried to
                send its newest ledger head to the coordinator.
        """
        try:
            return await self._status()
        except CoordinatorSetBackError:
            await self.tell()
            raise

    async def tell(self) -> bool:
        """Send this device's newest ledger head; return whether the coordinator accepted it.

        The call is safe at any time: the message contains only the ledger head, and no client id.
        """
        head = self.diary.memory.head
        for pause in (*_TELLING_PAUSES, None):
            if head is None:
                break
            try:
                return await self.link.tell(str(head))
            except UnreachableError:  # a coordinator that stops because of the head does not answer
                if pause is not None:
                    await asyncio.sleep(pause)
        return False

    async def _status(self) -> CoordinatorStatus:
        """Progress of the run, checked against the newest ledger head of this device."""
        charter, memory = await self.charter(), self.diary.memory
        # The phase is timed from before the request: its end is never dated too late.
        asked = asyncio.get_running_loop().time()
        data = await self.link.get(STATUS_PATH, _STATUS_BYTES)
        status = CoordinatorStatus.parsed(data, memory.task, charter.steps)
        longest = charter.timing.update_seconds(asks_one=charter.asks_one)
        status = replace(status, phase_ends=asked + min(status.seconds_left, longest))
        # A new ledger head must extend the one that the device saw; it is stored before use.
        seen, new = memory.head, status.head
        require_newer(seen, new, memory.task, memory.coordinator_key)
        if seen is None or new.head != seen.head:
            if seen is not None:
                await self._follow(seen.head, new)
            memory.head = new
            self.diary.keep()
        return status

    async def model(self, status: CoordinatorStatus) -> NDArray[np.float32]:
        """Model parameters at the beginning of the step in progress, float32 ``(d,)``.

        Raises:
            RemoteProtocolError: the model is not the model in the ledger.
        """
        charter = await self.charter()
        digest = await self._model_digest(status.head.head, charter)
        size = 4 * charter.encoding.dimension
        data = await self.link.get(model_path(status.step), size)
        if len(data) != size or hashlib.sha256(data).digest() != digest:
            raise RemoteProtocolError(
                f"the model after {status.step} steps is not the model in the ledger"
            )
        return np.frombuffer(data, dtype="<f4").astype(np.float32)

    async def _model_digest(self, head: Head, charter: Charter) -> bytes:
        """SHA-256 digest of the model that belongs to a checked ledger head."""
        if head.steps == 0:
            return charter.initial_model
        if self._record is None or self._record.head != head:
            records = await self._records(head.steps - 1)
            if not records or records[0].head != head:
                raise RemoteProtocolError("the ledger's last record does not match the ledger head")
            self._record = records[0]
        return self._record.model_digest

    async def _follow(self, seen: Head, new: SignedHead) -> None:
        """Check that the ledger's records lead from ledger head ``seen`` to ledger head ``new``."""
        at, until = seen, new.head.steps
        while at.steps < until:
            records = await self._records(at.steps)
            after = followed(self.diary.memory.task, at, records, until)
            if after == at:
                raise RemoteProtocolError("the coordinator does not return its ledger's records")
            self._record = records[after.steps - at.steps - 1]
            at = after
        if at != new.head:
            raise CoordinatorSetBackError(
                "the coordinator was set back: its records do not lead to its ledger head"
            )

    async def _records(self, first: int) -> list[Record]:
        """Ledger records from step ``first`` on; the coordinator may return only some of them."""
        return records_of(await self.link.get(f"{RECORDS_PATH}?from={first}", _RECORDS_BYTES))


def charter_of(data: bytes, memory: Memory) -> Charter:
    """Charter in the body of an answer, checked against the invitation in the device's memory.

    Raises:
        RemoteProtocolError: the charter has another digest, participation, population or
            coordinator key, or is damaged.
    """
    if hashlib.sha256(data).hexdigest() != memory.task:
        raise RemoteProtocolError("the charter does not have the digest in the invitation")
    try:
        charter = Charter.from_canonical(data)
    except StorageError as error:
        raise RemoteProtocolError(str(error)) from None
    # The digest fixes the charter; its terms must also be those from which the slots were drawn.
    for what, held, named in (
        ("participation", participation_to_dict(charter.scheme.participation), memory.law),
        ("population", charter.population, memory.population),
        ("coordinator key", charter.coordinator_key, memory.coordinator_key),
    ):
        if held != named:
            raise RemoteProtocolError(f"the charter has another {what} than the invitation")
    return charter


def require_newer(seen: SignedHead | None, new: SignedHead, task: str, key: bytes) -> None:
    """Check that the ledger head ``new`` is signed and has at least as many steps as ``seen``.

    Raises:
        RemoteProtocolError: the signature is wrong.
        CoordinatorSetBackError: the ledger is shorter than before, or differs at the same length.
    """
    head = new.head
    if not verified(key, new.signature, head_bytes(task, head)):
        raise RemoteProtocolError("the ledger head does not bear the coordinator's signature")
    if head.steps == 0 and head.digest.hex() != task:
        raise RemoteProtocolError("the ledger does not begin with the charter")
    if seen is None:
        return
    forked = head.steps == seen.head.steps and head.digest != seen.head.digest
    if forked or head.steps < seen.head.steps:
        now = "other releases" if forked else f"only {head.steps}"
        raise CoordinatorSetBackError(
            f"the coordinator was set back: its ledger had {seen.head.steps} releases before, and "
            f"has {now} now"
        )


def records_of(data: bytes) -> list[Record]:
    """Ledger records in the body of an answer.

    Raises:
        RemoteProtocolError: the records are invalid.
    """
    try:
        return [Record.from_document(fields) for fields in json.loads(data)["records"]]
    except NOT_SO as error:
        raise RemoteProtocolError(f"the ledger's records are invalid: {error}") from None


def followed(task: str, before: Head, records: list[Record], until: int) -> Head:
    """Ledger head after the records that follow ``before``, up to ``until`` releases.

    Raises:
        CoordinatorSetBackError: the records do not extend the ledger that the device saw before.
    """
    try:
        for record in records:
            if before.steps < until:
                before = require_chain(task, before, record)
    except StorageError:
        raise CoordinatorSetBackError(
            "the coordinator was set back: its ledger does not extend the ledger that this device "
            "saw before"
        ) from None
    return before


def _count(value: object, limit: int) -> int:
    """JSON value that must be a whole number from 0 to ``limit``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ValueError(f"expected a whole number from 0 to {limit}")
    return value


def _seconds(value: object) -> float:
    """JSON value that must be a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a number of seconds")
    if not 0.0 <= value < math.inf:
        raise ValueError("expected a finite number of seconds of at least 0")
    return float(value)
