"""Bodies of signed requests: one incomplete body per client, all of them in bounded memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from turnout.service.storage.writer import BusyError
from turnout.service.web.answers import TOO_LARGE, Receive, RefusedError, next_part


@dataclass(slots=True, eq=False)
class _PendingBody:
    """Incomplete request body; the timeout ``patience`` ends the wait for its further parts."""

    client: int
    patience: asyncio.Timeout
    arrived: bytearray = field(default_factory=bytearray)


class Bodies:
    """Reader of request bodies that bounds the memory of all incomplete bodies.

    Guarantees:
        Each client has at most one incomplete body; a newer body replaces it.
        All incomplete bodies together have at most ``most_bytes``, whatever lengths were announced;
        only a single body may be longer. Above this bound the oldest body is dropped.

    Args:
        most_bytes: bound on the bytes of all incomplete bodies.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # In the order of their first bytes.
        self._pending: dict[int, _PendingBody] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self._pending)

    async def read(self, client: int, receive: Receive, limit: int) -> bytes:
        """Whole body of a client's request, of at most ``limit`` bytes.

        A body that arrives in one part displaces no other body. A longer body must arrive before
        the deadline of its connection.

        Raises:
            BusyError: another body displaced this body.
            RefusedError: the body is longer than ``limit``, or the connection ended before its end.
        """
        first, more = await next_part(receive)
        _require_within(len(first), limit)
        return await self._read_rest(client, receive, first, limit) if more else first

    async def _read_rest(self, client: int, receive: Receive, first: bytes, limit: int) -> bytes:
        """Whole body whose first part has arrived; an older incomplete body is dropped."""
        if client in self._pending:
            self._give_way(self._pending[client])
        try:
            async with asyncio.timeout(None) as patience:
                pending = self._pending[client] = _PendingBody(client, patience)
                try:
                    return await self._read_all(pending, receive, first, limit)
                finally:
                    self._remove(pending)
        except TimeoutError:
            raise BusyError(
                "another body displaced this body: nothing was stored, send the request again"
            ) from None

    async def _read_all(
        self, pending: _PendingBody, receive: Receive, first: bytes, limit: int
    ) -> bytes:
        """All parts of a request body, joined."""
        part, more = first, True
        while True:
            _require_within(len(pending.arrived) + len(part), limit)
            self._add(pending, part)
            if not more:
                return bytes(pending.arrived)
            part, more = await next_part(receive)

    def _add(self, pending: _PendingBody, part: bytes) -> None:
        """Add a part to an incomplete body; drop the oldest bodies while all exceed the bound."""
        if self._pending.get(pending.client) is not pending:  # it was displaced meanwhile
            raise TimeoutError
        pending.arrived += part
        self.held += len(part)
        while self.held > self._most_bytes and len(self._pending) > 1:
            self._give_way(next(other for other in self._pending.values() if other is not pending))

    def _give_way(self, pending: _PendingBody) -> None:
        """Drop an incomplete body and end the wait for its further parts."""
        self._remove(pending)
        pending.patience.reschedule(asyncio.get_running_loop().time())

    def _remove(self, pending: _PendingBody) -> None:
        """Remove an incomplete body from the table, unless a newer body has replaced it."""
        if self._pending.get(pending.client) is pending:
            del self._pending[pending.client]
            self.held -= len(pending.arrived)
            pending.arrived = bytearray()


def _require_within(size: int, limit: int) -> None:
    """Refuse a body of more than ``limit`` bytes."""
    if size > limit:
        raise RefusedError(413, TOO_LARGE)
