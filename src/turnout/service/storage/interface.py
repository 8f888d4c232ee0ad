"""The coordinator's interface to its storage.

One writer owns the only write connection. A *transaction* is all or nothing and durable once it
is committed. Rows of the ledger are never changed: a second row that contradicts a stored one
raises `ConflictError`, and triggers refuse UPDATE and DELETE.

What joins a client to a step is kept only while the step is open: the transaction that releases
the step deletes it. For a block of the law that goes on, how often each client came stays until
the block is over, without the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.errors import StorageError
from turnout.core.showing import shows_shapes
from turnout.service.ledger import Record


class ConflictError(StorageError):
    """A row that contradicts a stored one."""


@shows_shapes()
@dataclass(frozen=True, slots=True)
class Invitation:
    """A client id that was handed out.

    Attributes:
        secret_digest: SHA-256 of the one-time secret in its invitation.
        public_key: Ed25519, 32 bytes; None until the invitation is used.
    """

    client: int
    secret_digest: bytes
    public_key: bytes | None


@shows_shapes()
@dataclass(frozen=True, slots=True)
class Participation:
    """One accepted check-in.

    Attributes:
        digest: SHA-256 of the update; None until there is one (one-client rule).
    """

    client: int
    step: int
    digest: bytes | None


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The outcome of a step, besides its record in the ledger.

    Attributes:
        record: the ledger's record.
        parameters: after the step, little-endian float32.
        optimizer_state: as `learner.packed` writes it.
        mechanism_state: the mechanism's arrays after the step, as `releases` writes them.
        checked_in, served: counts, for the operator only.
    """

    record: Record
    parameters: bytes
    optimizer_state: bytes
    mechanism_state: bytes
    checked_in: int
    served: int


@dataclass(frozen=True, slots=True)
class Scored:
    """The accuracy of the model after some steps on public held-out data."""

    steps: int
    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the operator's log.

    ``at`` is in seconds since the epoch, ``level`` is info, warning or error. ``text`` never
    joins a device with a slot.
    """

    at: float
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class WitnessReceipt:
    """A witness's word that it has a head."""

    witness_key: bytes
    steps: int
    signature: bytes
