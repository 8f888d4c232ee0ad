"""HTTP answers and request bodies in plain ASGI, without a framework.

`respond` sends an answer, `read_body` reads a body of bounded length, and `RefusedError` ends a
request. `ClientIdentity` is the sender that the headers of a request claim, not yet verified.
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
BUSY = b'{"detail":"the coordinator is not ready: nothing was stored, send the request again"}'
TOO_LARGE = b'{"detail":"the body is too long"}'
NOT_FOUND = b'{"detail":"there is no such resource"}'
JSON = b"application/json"

CONNECTION = "turnout.connection"
"""Key of a request's connection in its scope; tests have requests without a connection."""


class RefusedError(Exception):
    """Error that ends a request with the given HTTP status and body."""

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
    """Send the HTTP answer to one request.

    Args:
        send: ASGI's function that sends a message.
        status: HTTP status; 503 gets the header Retry-After.
        body: the whole body.
        content_type: media type of the body.
        more: further headers; if there are none, the answer has the header Cache-Control: no-store.
        head: leave out the body, as the answer to a HEAD request must.
    """
    # Headers of every answer; an answer that states no caching is not stored.
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
    # Head and body as two messages of ASGI.
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})


def require_short(scope: Scope, limit: int) -> None:
    """Refuse a request whose header Content-Length states more than ``limit`` bytes.

    Raises:
        RefusedError: the header states a larger length, or its value is not a number.
    """
    for name, value in scope["headers"]:
        is_length = name == b"content-length"
        if is_length and (not value.isdigit() or int(value[:20]) > limit):
            raise RefusedError(413, TOO_LARGE)


async def next_part(receive: Receive) -> tuple[bytes, bool]:
    """Next part of a request body, and whether more parts of the body follow.

    Raises:
        RefusedError: the connection ended.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        raise RefusedError(400, b"")
    return message.get("body", b""), message.get("more_body", False)


async def read_body(receive: Receive, limit: int) -> bytes:
    """Whole request body of at most ``limit`` bytes.

    Raises:
        RefusedError: the body has more than ``limit`` bytes, or the connection ended.
    """
    body, more = b"", True
    while more:
        part, more = await next_part(receive)
        body += part
        if len(body) > limit:
            raise RefusedError(413, TOO_LARGE)
    return body


NUMBER = re.compile(rb"0|[1-9][0-9]{0,17}")
"""Decimal count, without leading zeros."""

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
    """Sender's claims in the headers of a request, not yet verified.

    Attributes:
        client: the client's id.
        nonce: 16 bytes.
        digest: SHA-256 that the body must have.
        format: name of the body's format; "" without a body.
        head: text of the signed ledger head that the device sent; "" if it has none yet.
        seen: this signed ledger head, parsed; None if the device has none yet.
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
        """Claims in the headers; None if a header is missing, malformed or repeated."""
        # Known headers, each at most once.
        found: dict[str, bytes] = {}
        for name, value in headers:
            known = _NAMES.get(name)
            if known is None:
                continue
            if known in found:
                return None
            found[known] = value
        # Forms of all values; optional headers may be missing.
        if len(found) < len(_REQUIRED):
            return None
        for name, form in _REQUIRED.items():
            if not form.fullmatch(found.get(name, b"")):
                return None
        for name, form in _OPTIONAL.items():
            if name in found and not form.fullmatch(found[name]):
                return None
        # The ledger head, and values as bytes and numbers.
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
        """Request, of the given task and path, that the device's signature must cover."""
        return SignedRequest(
            task, "POST", path, self.client, self.nonce, self.digest, self.format, self.head
        )
