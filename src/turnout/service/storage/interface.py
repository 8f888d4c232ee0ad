"""Rows and errors of the coordinator's storage, and the encryption of stored updates.

One writer has the only write connection. A transaction is stored as a whole or not at all, and is
durable once it is committed. Rows of the ledger are never changed: a second row that contradicts a
stored row raises `ConflictError`, and triggers refuse UPDATE and DELETE.

Data that link a client to a step are stored only while the step is open: the transaction that
releases the step deletes them. Until the block of the participation is over, the storage still has
the number of each client's check-ins in the block, without the steps of these check-ins.

`Seal` encrypts stored updates with a separate key for each step; the release of a step deletes the
step's key. Deleting 32 bytes is quick and certain. Overwriting every update with zeros takes longer
than encrypting it, and would miss copies in a log; docs/design/storage.md has the figures.
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
    """A new row contradicts a row that is already stored."""


@shows_shapes()
@dataclass(frozen=True, slots=True)
class InvitationRow:
    """Stored invitation of a client.

    Attributes:
        client: the client's id.
        secret_digest: SHA-256 of the one-time secret in the invitation.
        public_key: the client's Ed25519 key, 32 bytes; None until the invitation is used.
    """

    client: int
    secret_digest: bytes
    public_key: bytes | None


@shows_shapes()
@dataclass(frozen=True, slots=True)
class ParticipationRow:
    """Stored check-in of a client.

    Attributes:
        client: the client's id.
        step: step of the check-in.
        digest: SHA-256 of the update; None until there is an update (one-client rule).
    """

    client: int
    step: int
    digest: bytes | None


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class ReleaseRow:
    """Stored release of a step: its ledger record, and the state after it.

    Attributes:
        record: record of the ledger.
        parameters: parameters after the step, little-endian float32.
        optimizer_state: optimizer's state after the step (`coordinator.releases.pack_state`).
        mechanism_state: mechanism's state after the step
            (`coordinator.releases.pack_mechanism_state`).
        checked_in: number of check-ins, for the operator alone.
        served: number of updates in the sum, for the operator alone.
    """

    record: Record
    parameters: bytes
    optimizer_state: bytes
    mechanism_state: bytes
    checked_in: int
    served: int


@dataclass(frozen=True, slots=True)
class Scored:
    """Accuracy and loss of a model on public data.

    Attributes:
        steps: number of steps after which the model was published.
        accuracy: fraction of correct predictions.
        loss: mean loss.
    """

    steps: int
    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line of the operator's log.

    Attributes:
        at: time in seconds since the epoch.
        level: "info", "warning" or "error".
        text: the message; it never links a device to a step.
    """

    at: float
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class WitnessReceipt:
    """Signature of a witness under a ledger head.

    Attributes:
        witness_key: Ed25519 public key of the witness, 32 bytes.
        steps: number of releases in the ledger head.
        signature: 64 bytes.
    """

    witness_key: bytes
    steps: int
    signature: bytes


KEY_BYTES, _NONCE_BYTES = 32, 12


def new_key() -> bytes:
    """New encryption key of a step, 32 bytes from the operating system's generator."""
    return os.urandom(KEY_BYTES)


class Seal:
    """Cipher for the updates of one step: AES-256-GCM with a random nonce per update.

    Guarantees:
        A decrypted body equals the body that was encrypted for the same client and digest, except
        with probability 2⁻¹²⁸, so the digest need not be computed again.
        With fewer than 2³² updates for a key, a nonce repeats with probability below 2⁻³².

    Args:
        key: key of the step, 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def encrypt(self, client: int, digest: bytes, body: bytes) -> bytes:
        """Nonce and encrypted update of a client, joined; ``digest`` is the update's SHA-256."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, body, _context(client, digest))

    def decrypt(self, client: int, digest: bytes, sealed: bytes | None) -> bytes:
        """Decrypted update of a client; ``digest`` is the update's SHA-256.

        Raises:
            StorageError: ``sealed`` is missing or damaged, or belongs to another client or digest.
        """
        try:
            data = memoryview(sealed or b"")
            nonce, rest = bytes(data[:_NONCE_BYTES]), data[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, rest, _context(client, digest))
        except (InvalidTag, ValueError):
            raise StorageError(
                "the database is damaged: a stored update differs from the acknowledged update"
            ) from None


def _context(client: int, digest: bytes) -> bytes:
    """Associated data of an encrypted update: its client and its digest."""
    return client.to_bytes(8, "big") + digest
