"""Answers as bytes, and requests as ASGI hands them over, without a framework in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from turnout.service.wire import Answer, Receipt

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

UNKNOWN = Receipt(Answer.UNKNOWN).encoded()
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
