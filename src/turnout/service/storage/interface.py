"""The coordinator's interface to its storage: its rows, its errors, and the sealing of updates.

One writer owns the only write connection. A *transaction* is all or nothing and durable once it
is committed. Rows of the ledger are never changed: a second row that contradicts a stored one
raises `ConflictError`, and triggers refuse UPDATE and DELETE.

What joins a client to a step is kept only while the step is open: the transaction that releases
the step deletes it. For a block of the participation that goes on, how often each client took part
stays until the block is over, without the steps.

`Seal` encrypts updates on the disk with a key of their step, which the release deletes. Deleting 32
bytes is quick and can be made sure of; overwriting every update with zeros costs more than
encrypting it (docs/design/storage.md has the figures), and leaves out what a log has copied.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnout.core.errors import StorageError
from turnout.core.showing import shows_shapes
from turnout.service.contract.ledger import Record


class ConflictError(StorageError):
    """A row that contradicts a stored one."""


@shows_shapes()
@dataclass(frozen=True, slots=True)
class InvitationRow:
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
class ParticipationRow:
    """One accepted check-in.

    Attributes:
        digest: SHA-256 of the update; None until there is one (one-client rule).
    """

    client: int
    step: int
    digest: bytes | None


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class ReleaseRow:
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
class LogEvent:
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


KEY_BYTES, _NONCE_BYTES = 32, 12


def new_key() -> bytes:
    """A key for one step, from the operating system's generator."""
    return os.urandom(KEY_BYTES)


class Seal:
    """Closes and opens updates of one step: AES-256-GCM with a random nonce for each.

    Guarantees:
        What opens is the body that was closed for the same client and digest, bit for bit, but
        for a chance of 2⁻¹²⁸; so the digest need not be worked out again.
        Fewer than 2³² updates a key keep the chance of a repeated nonce below 2⁻³².
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def closed(self, client: int, digest: bytes, body: bytes) -> bytes:
        """The encrypted update, with its nonce before it."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, body, _context(client, digest))

    def opened(self, client: int, digest: bytes, sealed: bytes | None) -> bytes:
        """The update.

        Raises:
            StorageError: it is missing, damaged, or not the one of this client and digest.
        """
        try:
            data = memoryview(sealed or b"")
            nonce, rest = bytes(data[:_NONCE_BYTES]), data[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, rest, _context(client, digest))
        except (InvalidTag, ValueError):
            raise StorageError("an update is damaged: it is not the acknowledged one") from None


def _context(client: int, digest: bytes) -> bytes:
    return client.to_bytes(8, "big") + digest
