"""The sender that a request claims in its headers; nobody believes it yet."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnout.service.wire import (
    CLIENT_HEADER,
    DIGEST_BYTES,
    DIGEST_HEADER,
    FORMAT_HEADER,
    HEAD_HEADER,
    NONCE_BYTES,
    NONCE_HEADER,
    SIGNATURE_BYTES,
    SIGNATURE_HEADER,
    SignedHead,
    SignedRequest,
)

NUMBER = re.compile(rb"0|[1-9][0-9]{0,17}")
"""A count as the wire writes it."""

_REQUIRED = {
    CLIENT_HEADER: NUMBER,
    NONCE_HEADER: re.compile(rb"[0-9a-f]{%d}" % (2 * NONCE_BYTES)),
    DIGEST_HEADER: re.compile(rb"[0-9a-f]{%d}" % (2 * DIGEST_BYTES)),
    SIGNATURE_HEADER: re.compile(rb"[0-9a-f]{%d}" % (2 * SIGNATURE_BYTES)),
}
_OPTIONAL = {
    FORMAT_HEADER: re.compile(rb"[a-z0-9][a-z0-9.-]{0,63}"),
    HEAD_HEADER: re.compile(rb"[0-9a-f:]{1,256}"),
}
_NAMES = {name.lower().encode(): name for name in _REQUIRED | _OPTIONAL}


@dataclass(frozen=True, slots=True)
class Identity:
    """The claims of a request's headers, before anybody believes them.

    Attributes:
        digest: SHA-256 that the body must have.
        format: name of the body's format; "" where there is no body.
        head: as it was sent; parsed it is ``seen``.
        seen: the highest head that the device saw; None before the first.
        signature: 64 bytes.
    """

    client: int
    nonce: bytes
    digest: bytes
    format: str
    head: str
    seen: SignedHead | None
    signature: bytes

    @classmethod
    def parsed(cls, headers: list[tuple[bytes, bytes]]) -> Identity | None:
        """The identity in the headers; None unless each is there once and well-formed."""
        found: dict[str, bytes] = {}
        for name, value in headers:
            known = _NAMES.get(name)
            if known is None:
                continue
            if known in found:
                return None
            found[known] = value
        if len(found) < len(_REQUIRED):
            return None
        for name, form in _REQUIRED.items():
            if not form.fullmatch(found.get(name, b"")):
                return None
        for name, form in _OPTIONAL.items():
            if name in found and not form.fullmatch(found[name]):
                return None
        text = {name: value.decode("ascii") for name, value in found.items()}
        head = text.get(HEAD_HEADER, "")
        try:
            seen = SignedHead.parsed(head) if head else None
        except ValueError:
            return None
        nonce, digest, signature = (
            bytes.fromhex(text[name]) for name in (NONCE_HEADER, DIGEST_HEADER, SIGNATURE_HEADER)
        )
        client, body_format = int(text[CLIENT_HEADER]), text.get(FORMAT_HEADER, "")
        return cls(client, nonce, digest, body_format, head, seen, signature)

    def request(self, task: str, path: str) -> SignedRequest:
        """The request that must have been signed."""
        return SignedRequest(
            task, "POST", path, self.client, self.nonce, self.digest, self.format, self.head
        )
