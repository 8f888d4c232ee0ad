"""Ed25519 by the `cryptography` package: keys of devices and of the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

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
