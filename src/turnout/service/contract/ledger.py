"""The ledger: releases and their ε, as a chain of records.

Each `Record` contains the digest of the record before it; the first record contains the digest of
the charter. `require_chain` checks that a record continues the ledger. The chain alone does not
show whether the stored ledger is an old copy; a `Head` that was stored outside the coordinator
shows it. `SigningKey` and `verified` make and check the Ed25519 signatures of devices and
coordinator, with the `cryptography` package.
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
    """JSON form of a ledger record; floats are texts of ``float.hex``."""

    task: Hex32
    step: Count
    sum: Hex32
    model: Hex32
    epsilon: str
    delta: str
    previous: Hex32


@dataclass(frozen=True, slots=True)
class Head:
    """Ledger head: the number of released steps and the digest of the last record.

    Attributes:
        steps: number of released steps.
        digest: SHA-256 of the last record; before the first release, SHA-256 of the charter.
    """

    steps: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.steps}:{self.digest.hex()}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Ledger head parsed from the text ``steps:digest``.

        Raises:
            ValueError: the text has another form.
        """
        steps, separator, digest = text.partition(":")
        head = cls(int(steps), bytes.fromhex(digest))
        whole = separator and len(head.digest) == 32 and head.steps >= 0
        if not whole or str(head) != text:
            raise ValueError(f"ledger head = {text[:100]!r}: expected steps:digest")
        return head


@dataclass(frozen=True, slots=True)
class Record:
    """Ledger record of one release.

    Attributes:
        task: the charter's digest, hexadecimal.
        step: number of the released step, from 0.
        sum_digest: SHA-256 of the released sum. Under central trust this is the noisy sum as
            little-endian int64 in units of the lattice; under local trust it is the sum of decoded
            messages as little-endian float64.
        model_digest: SHA-256 of the parameters after the release, little-endian float32.
        epsilon: upper bound on the ε of all releases up to this one.
        delta: the δ of this ε.
        previous: digest of the record before this record; for step 0 the charter's digest.
    """

    task: str
    step: int
    sum_digest: bytes
    model_digest: bytes
    epsilon: float
    delta: float
    previous: bytes

    def canonical(self) -> bytes:
        """Canonical bytes of the record: ASCII JSON with sorted keys and hexadecimal floats.

        The JSON has no spaces.
        """
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":")).encode("ascii")

    def document(self) -> RecordDocument:
        """JSON form of the ledger record."""
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
        """Ledger record from its JSON form.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, OverflowError: ``fields`` differ from
                the JSON form of a record.
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
            raise ValueError("the fields are not the canonical form of a record")
        return record

    @property
    def digest(self) -> bytes:
        """SHA-256 of the record's canonical bytes, 32 bytes."""
        return hashlib.sha256(self.canonical()).digest()

    @property
    def head(self) -> Head:
        """Ledger head of a ledger that ends with this record."""
        return Head(self.step + 1, self.digest)


def require_chain(task: str, before: Head, record: Record) -> Head:
    """Ledger head after ``record``, which must continue the ledger head ``before``.

    Args:
        task: the charter's digest, hexadecimal.
        before: ledger head before the record.
        record: the next record.

    Raises:
        StorageError: the record belongs to another task or step, or does not follow on ``before``,
            so the ledger is damaged.
    """
    fits = record.task == task and record.step == before.steps
    if not (fits and record.previous == before.digest):
        raise StorageError(f"the ledger is damaged: step {record.step} does not follow on {before}")
    return record.head


_UNUSED_KEY = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
"""Public key that verifies nothing: an unknown client costs the time of a known one."""


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """Ed25519 private key, 32 bytes; ``repr`` does not show the bytes."""

    private: bytes

    @classmethod
    def new(cls) -> Self:
        """New private key from the operating system's random generator."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        """Public key that belongs to the private key, 32 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature of a message, 64 bytes; equal messages get equal signatures."""
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(message)


def verified(public_key: bytes | None, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` is a valid signature of ``message`` under ``public_key``.

    If ``public_key`` is None, the result is False after the same computation, so that the time
    reveals nothing.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(_UNUSED_KEY if public_key is None else public_key)
        key.verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return public_key is not None
