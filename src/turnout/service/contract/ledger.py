"""The ledger: releases and their costs, as a chain of signed records.

`Record` holds the digest of the one before, the first one that of the charter; `require_chain`
checks it. A chain does not notice an old copy of itself put back; a `Head` that left the
coordinator does. `SigningKey` and `verified` are Ed25519 by the `cryptography` package, for devices
and coordinator.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias, TypedDict

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from turnout.core.errors import StorageError

Document: TypeAlias = dict[str, Any]
HEX32: Document = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
COUNT: Document = {"type": "integer", "minimum": 0}
Hex32 = Annotated[str, HEX32]
"""32 bytes in JSON: 64 hexadecimal digits, lower case."""
Count = Annotated[int, COUNT]
"""Whole number, at least 0."""


class RecordDocument(TypedDict):
    """A `Record` in JSON; floats are texts that ``float.hex`` writes."""

    task: Hex32
    step: Count
    sum: Hex32
    model: Hex32
    epsilon: str
    delta: str
    previous: Hex32


@dataclass(frozen=True, slots=True)
class Head:
    """A ledger's head: ``steps`` are released, and the digest of the last record.

    Before the first release ``digest`` is the charter's.
    """

    steps: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.steps}:{self.digest.hex()}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """The head that ``str`` wrote."""
        steps, separator, digest = text.partition(":")
        head = cls(int(steps), bytes.fromhex(digest))
        whole = separator and len(head.digest) == 32 and head.steps >= 0
        if not whole or str(head) != text:
            raise ValueError("a head is steps:digest")
        return head


@dataclass(frozen=True, slots=True)
class Record:
    """One release.

    Attributes:
        task: the charter's digest, hexadecimal.
        sum_digest: SHA-256 of what was released: the noisy sum, little-endian int64 in units of the
            lattice; of messages the sum that they stand for, little-endian float64.
        model_digest: SHA-256 of the parameters after it, little-endian float32.
        epsilon: what has been spent with this release, a proved upper bound.
        previous: digest of the record before; of the charter for step 0.
    """

    task: str
    step: int
    sum_digest: bytes
    model_digest: bytes
    epsilon: float
    delta: float
    previous: bytes

    def canonical(self) -> bytes:
        """The record as bytes: JSON with sorted keys and no spaces, ASCII; floats by hex."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":")).encode("ascii")

    def document(self) -> RecordDocument:
        """The fields as JSON has them."""
        return {
            "task": self.task,
            "step": self.step,
            "sum": self.sum_digest.hex(),
            "model": self.model_digest.hex(),
            "epsilon": self.epsilon.hex(),
            "delta": self.delta.hex(),
            "previous": self.previous.hex(),
        }

    @classmethod
    def from_document(cls, fields: dict[str, Any]) -> Self:
        """The ledger that `document` wrote.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, OverflowError: anything else.
        """
        record = cls(
            str(fields["task"]),
            int(fields["step"]),
            bytes.fromhex(fields["sum"]),
            bytes.fromhex(fields["model"]),
            float.fromhex(fields["epsilon"]),
            float.fromhex(fields["delta"]),
            bytes.fromhex(fields["previous"]),
        )
        if record.document() != fields:
            raise ValueError("a record that does not read back as it was sent")
        return record

    @property
    def digest(self) -> bytes:
        """SHA-256 of `canonical`, 32 bytes."""
        return hashlib.sha256(self.canonical()).digest()

    @property
    def head(self) -> Head:
        """The head of a ledger that ends here."""
        return Head(self.step + 1, self.digest)


def require_chain(task: str, before: Head, record: Record) -> Head:
    """The head after a record that follows on ``before``.

    Raises:
        StorageError: the record belongs elsewhere: the ledger is damaged.
    """
    fits = record.task == task and record.step == before.steps
    if not (fits and record.previous == before.digest):
        raise StorageError(f"the ledger is damaged: step {record.step} does not follow on {before}")
    return record.head


_NOBODY = Ed25519PrivateKey.generate().public_key().public_bytes_raw()


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A private key; it does not show itself."""

    private: bytes

    @classmethod
    def new(cls) -> Self:
        """A fresh key from the operating system's generator."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The signature, 64 bytes; the same for the same message."""
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(message)


def verified(public_key: bytes | None, signature: bytes, message: bytes) -> bool:
    """Whether the signature is that key's; without a key the same work is done for nothing."""
    try:
        key = Ed25519PublicKey.from_public_bytes(_NOBODY if public_key is None else public_key)
        key.verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return public_key is not None
