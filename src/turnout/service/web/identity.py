"""Who a request says it comes from, as its headers have it; nobody believes it yet."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnout.service.wire import (
    CLIENT_HEADER,
    HEAD_HEADER,
    NONCE_BYTES,
    NONCE_HEADER,
    SIGNATURE_BYTES,
    SIGNATURE_HEADER,
    SignedHead,
)

NUMBER = re.compile(rb"0|[1-9][0-9]{0,17}")
"""A count as the wire writes it."""

_NONCE = re.compile(rb"[0-9a-f]{%d}" % (2 * NONCE_BYTES))
_SIGNATURE = re.compile(rb"[0-9a-f]{%d}" % (2 * SIGNATURE_BYTES))
_HEAD_BYTES = 256
_NAMES = {
    name.lower().encode(): name
    for name in (CLIENT_HEADER, NONCE_HEADER, HEAD_HEADER, SIGNATURE_HEADER)
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What the headers of a request say, before anybody believes it.

    Attributes:
        client: her id.
        nonce: 16 bytes.
        head: as she sent it; parsed it is ``seen``.
        seen: the head that she saw last; None before the first.
        signature: 64 bytes.
    """

    client: int
    nonce: bytes
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
        client = found.get(CLIENT_HEADER, b"")
        nonce, signature = found.get(NONCE_HEADER, b""), found.get(SIGNATURE_HEADER, b"")
        head = found.get(HEAD_HEADER, b"")
        well_formed = (
            NUMBER.fullmatch(client) and _NONCE.fullmatch(nonce) and _SIGNATURE.fullmatch(signature)
        )
        if not well_formed or len(head) > _HEAD_BYTES:
            return None
        try:
            text = head.decode("ascii")
            seen = SignedHead.parsed(text) if text else None
        except ValueError:
            return None
        unhex = bytes.fromhex
        return cls(int(client), unhex(nonce.decode()), text, seen, unhex(signature.decode()))
