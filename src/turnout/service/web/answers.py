"""Answers as bytes, and requests as ASGI hands them over, without a framework in between.

`RefusedError` ends a request; `ClientIdentity` is the sender that a request claims in its headers,
not yet believed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from turnout.service.contract.wire import (
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
    WireAnswer,
    WireReceipt,
)

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

UNKNOWN = WireReceipt(WireAnswer.UNKNOWN).encoded()
BUSY = b'{"detail":"too much is waiting; nothing happened, send the same again"}'
TOO_LARGE = b'{"detail":"the body is too long"}'
NOT_FOUND = b'{"detail":"there is no such thing here"}'
JSON = b"application/json"

CONNECTION = "turnout.connection"
"""The key in a request's scope of the connection that it came over, when there is one."""


class RefusedError(Exception):
    """A request that ends here."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = JSON,
    more: tuple[tuple[bytes, bytes], ...] = (),
    *,
    head: bool = False,
) -> None:
    """Send a whole answer; of one to HEAD, all but the body."""
    headers = [
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        *more,
    ]
    if not more:
        headers.append((b"cache-control", b"no-store"))
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})


def require_short(scope: Scope, limit: int) -> None:
    """Nothing where the request does not say that its body is longer than ``limit`` bytes.

    Raises:
        RefusedError: it says so, or what it says is no length.
    """
    for name, value in scope["headers"]:
        told = name == b"content-length"
        if told and (not value.isdigit() or int(value[:20]) > limit):
            raise RefusedError(413, TOO_LARGE)


async def part_of(receive: Receive) -> tuple[bytes, bool]:
    """The next part of a body, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise RefusedError(400, b"")
    return message.get("body", b""), message.get("more_body", False)


async def received(receive: Receive, limit: int) -> bytes:
    """The whole body, and never more of it than ``limit`` bytes."""
    body, more = b"", True
    while more:
        part, more = await part_of(receive)
        body += part
        if len(body) > limit:
            raise RefusedError(413, TOO_LARGE)
    return body


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
class ClientIdentity:
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
    def parsed(cls, headers: list[tuple[bytes, bytes]]) -> ClientIdentity | None:
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
