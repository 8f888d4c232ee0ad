"""Signed requests, prepared before a measurement."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from new_tasks import DEVICE_SEED, update_of


@dataclass(frozen=True)
class Bodies:
    """Updates of clients, with 64 different contents.

    Attributes:
        size: length of each in bytes.
        bodies: by client modulo 64.
        digests: their SHA-256, hexadecimal.
    """

    size: int
    bodies: Sequence[bytes]
    digests: Sequence[str]

    @classmethod
    def of(cls, size: int) -> Bodies:
        """Updates of a given length."""
        bodies = [update_of(n, size) for n in range(64)]
        return cls(size, bodies, [hashlib.sha256(body).hexdigest() for body in bodies])

    def of_client(self, client: int) -> bytes:
        """Update of a client."""
        return self.bodies[client % 64]


def signed_head(request_format: str, task: str, step: int, client: int, bodies: Bodies) -> bytes:
    """HTTP head of a client's signed request; ``request_format`` is the first signed line."""
    path, nonce = f"/v1/steps/{step}/updates", os.urandom(16).hex()
    digest = bodies.digests[client % 64]
    named = {"task": task, "method": "POST", "path": path, "client": client, "nonce": nonce}
    named |= {"format": "int32-lattice-1", "digest": digest}
    lines = (request_format, *(f"{name}: {value}" for name, value in named.items()))
    headers = {"Turnout-Client": str(client), "Turnout-Nonce": nonce}
    headers |= {"Turnout-Digest": digest, "Turnout-Format": "int32-lattice-1"}
    signature = _KEY.sign("\n".join(lines).encode())
    headers["Turnout-Signature"] = signature.hex()
    text = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {bodies.size}"]
    text += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(text) + "\r\n\r\n").encode()


_KEY = Ed25519PrivateKey.from_private_bytes(DEVICE_SEED)
