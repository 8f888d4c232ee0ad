"""A head that is newer than the coordinator's own, which anybody may present."""

from __future__ import annotations

from turnout.service.engine import SetBackError
from turnout.service.signatures import verified
from turnout.service.web.answers import (
    BUSY,
    Receive,
    RefusedError,
    Scope,
    Send,
    received,
    require_short,
    respond,
)
from turnout.service.web.running import Running
from turnout.service.wire import SignedHead, head_bytes

_MOST_BYTES = 256
_ACCEPTED = b'{"answer":"accepted"}'
_REFUSED = b'{"detail":"not a head that this coordinator signed"}'


def holds(running: Running, seen: SignedHead) -> bool:
    """Whether the ledger has a head that somebody saw; False for one that was made up.

    Raises:
        RefusedError: this coordinator signed it, and the storage lacks it: the process ends.
    """

    def signed_by_us() -> bool:
        message = head_bytes(running.task, seen.head)
        return verified(running.charter.coordinator_key, seen.signature, message)

    try:
        return running.engine.require_newer(seen, signed_by_us)
    except SetBackError as error:
        running.set_back(error)
        raise RefusedError(503, BUSY) from None


class HeadsRoute:
    """An ASGI application: POST of a signed head, from anybody.

    The head bears the coordinator's own signature, and that alone counts: a client that an old
    copy of the storage does not know can tell as well, and nobody says who it is.
    """

    def __init__(self, running: Running) -> None:
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            status, body = await self._answered(scope, receive)
        except RefusedError as refused:
            status, body = refused.status, refused.body
        self._running.metrics.requests.labels("heads", status).inc()
        await respond(send, status, body)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        running = self._running
        if running.ended:
            raise RefusedError(503, BUSY)
        try:
            seen = SignedHead.parsed((await _body(scope, receive)).decode("ascii"))
        except ValueError:
            return 422, _REFUSED
        return (200, _ACCEPTED) if holds(running, seen) else (422, _REFUSED)


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The whole body, which is short; its deadline is the connection's."""
    require_short(scope, _MOST_BYTES)
    return await received(receive, _MOST_BYTES)
