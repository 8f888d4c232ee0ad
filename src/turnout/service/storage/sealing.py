"""Updates on the disk are encrypted with a key of their step, which the release deletes.

Deleting 32 bytes is quick and can be made sure of; overwriting every update with zeros costs more
than encrypting it (docs/design/storage.md has the figures), and leaves out what a log has copied.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnout.core.errors import StorageError

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
