"""Requests signed beforehand, as each version of the protocol wants them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from new_tasks import DEVICE_SEED, update_of


@dataclass(frozen=True)
class Bodies:
    """The updates that clients send, 64 different ones.

    Attributes:
        size: bytes of each.
        bodies, digests: by client modulo 64.
    """

    size: int
    bodies: Sequence[bytes]
    digests: Sequence[str]

    @classmethod
    def of(cls, size: int) -> Bodies:
        """All of them."""
        bodies = [update_of(n, size) for n in range(64)]
        return cls(size, bodies, [hashlib.sha256(body).hexdigest() for body in bodies])

    def of_client(self, client: int) -> bytes:
        """Hers."""
        return self.bodies[client % 64]


def protocol_of(source: Path) -> int:
    """Which text a version's devices sign: 1 or 2."""
    wire = (source / "turnout/service/wire.py").read_text()
    return 2 if "turnout-request-1" in wire else 1


def signed_head(protocol: int, task: str, step: int, client: int, bodies: Bodies) -> bytes:
    """The head of a client's request with its update."""
    path, nonce = f"/v1/steps/{step}/updates", os.urandom(16).hex()
    digest = bodies.digests[client % 64]
    headers = {"Turnout-Client": str(client), "Turnout-Nonce": nonce}
    if protocol == 1:
        lines = ("turnout-request-1", task, "POST", path, str(client), nonce, "", digest)
    else:
        named = {"task": task, "method": "POST", "path": path, "client": client, "nonce": nonce}
        named |= {"format": "int32-lattice-1", "digest": digest}
        lines = ("turnout-request-1", *(f"{name}: {value}" for name, value in named.items()))
        headers |= {"Turnout-Digest": digest, "Turnout-Format": "int32-lattice-1"}
    signature = _KEY.sign("\n".join(lines).encode())
    headers["Turnout-Signature"] = signature.hex()
    text = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {bodies.size}"]
    text += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(text) + "\r\n\r\n").encode()


_KEY = Ed25519PrivateKey.from_private_bytes(DEVICE_SEED)
