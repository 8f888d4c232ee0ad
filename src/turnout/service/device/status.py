"""What the coordinator says about itself, read strictly: its status, its records, its charter.

Nothing here is believed because it was sent: a charter has the digest that the invitation names,
a head the coordinator's signature, a record the digest that a head leads to.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Self

from turnout.core.errors import RemoteProtocolError, StorageError
from turnout.service.charter import Charter
from turnout.service.device.memory import Memory
from turnout.service.ledger import Head, Record, require_chain
from turnout.service.signatures import verified
from turnout.service.wire import NOT_SO, Phase, SignedHead, head_bytes
from turnout.spec.codec import scheme_to_dict


class SetBackError(RemoteProtocolError):
    """The coordinator's ledger is behind the one that this device saw, or is another one."""


@dataclass(frozen=True, slots=True)
class Status:
    """The coordinator's answer to "how far are you?".

    Attributes:
        step: the step in progress; the number of steps when all are over.
        phase: what it takes.
        seconds_left: to the end of the phase, by the coordinator's clock.
        seconds_to_next_step: to the beginning of the next step.
        head: how far its ledger is, signed.
        model_steps: releases that went into the model that is handed out.
    """

    step: int
    phase: Phase
    seconds_left: float
    seconds_to_next_step: float
    head: SignedHead
    model_steps: int

    @property
    def settled(self) -> bool:
        """Whether model and ledger are those that the step in progress begins with."""
        return self.head.head.steps == self.step == self.model_steps

    @classmethod
    def parsed(cls, data: bytes, task: str, steps: int) -> Self:
        """What a body says.

        Args:
            data: JSON.
            task: the task that it must be about.
            steps: of the whole run.

        Raises:
            RemoteProtocolError: another task, or not a status.
        """
        try:
            fields = json.loads(data)
            named = fields["task"]
            status = cls(
                _count(fields["step"], steps),
                Phase(fields["phase"]),
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


def charter_of(data: bytes, memory: Memory) -> Charter:
    """The charter in a body, if it is the one that it was invited to.

    Raises:
        RemoteProtocolError: another task, law, population or coordinator.
    """
    if hashlib.sha256(data).hexdigest() != memory.task:
        raise RemoteProtocolError("the charter is not the one that the invitation names")
    try:
        charter = Charter.from_canonical(data)
    except StorageError as error:
        raise RemoteProtocolError(str(error)) from None
    if scheme_to_dict(charter.scheme)["participation"] != memory.law:
        raise RemoteProtocolError("the charter has another participation law than the invitation")
    if charter.population != memory.population:
        raise RemoteProtocolError("the charter has another population than the invitation")
    if charter.coordinator_key != memory.coordinator_key:
        raise RemoteProtocolError("the charter has another coordinator key than the invitation")
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
        raise SetBackError(
            f"the coordinator was set back: its ledger was seen at {seen.head.steps} releases, "
            f"and is at {head.steps}{' other ones' if forked else ''} now"
        )


def records_of(data: bytes) -> list[Record]:
    """The ledger's records in a body.

    Raises:
        RemoteProtocolError: something else.
    """
    try:
        return [Record.from_document(fields) for fields in json.loads(data)["records"]]
    except NOT_SO as error:
        raise RemoteProtocolError(f"the ledger's records are none: {error}") from None


def followed(task: str, before: Head, records: list[Record], until: int) -> Head:
    """The head after the records that follow on ``before``, up to ``until`` releases.

    Raises:
        SetBackError: they do not follow.
    """
    try:
        for record in records:
            if before.steps < until:
                before = require_chain(task, before, record)
    except StorageError:
        raise SetBackError(
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
