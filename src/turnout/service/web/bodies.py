"""Bodies of signed requests on their way: one of each client, and a bound on the bytes of all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from turnout.service.storage.writer import BusyError
from turnout.service.web.answers import TOO_LARGE, Receive, RefusedError, part_of


@dataclass(slots=True, eq=False)
class _Coming:
    """A body of which a part arrived; ``patience`` is its reader's, until it gives way."""

    client: int
    patience: asyncio.Timeout
    begun: bytearray = field(default_factory=bytearray)


class Bodies:
    """Reads bodies, and counts the bytes that arrived.

    Guarantees:
        Of each client one body is on its way; a newer one takes its place.
        All together hold at most ``most_bytes``, whatever lengths were told; only a single body
        may be longer. Beyond that, the one that was waited for longest gives way.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # The one that was waited for longest first.
        self._coming: dict[int, _Coming] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self._coming)

    async def read(self, client: int, receive: Receive, limit: int) -> bytes:
        """The whole body, and never more of it than ``limit`` bytes.

        A body that arrived at once, as small ones do, displaces none. The deadline of another one
        is its connection's.

        Raises:
            BusyError: it gave way.
            RefusedError: it is longer, or ended too early.
        """
        begun, more = await part_of(receive)
        _require(len(begun), limit)
        return await self._rest(client, receive, begun, limit) if more else begun

    async def _rest(self, client: int, receive: Receive, begun: bytes, limit: int) -> bytes:
        if client in self._coming:
            self._give_way(self._coming[client])
        try:
            async with asyncio.timeout(None) as patience:
                coming = self._coming[client] = _Coming(client, patience)
                try:
                    return await self._all(coming, receive, begun, limit)
                finally:
                    self._forget(coming)
        except TimeoutError:
            raise BusyError("it gave way to another body") from None

    async def _all(self, coming: _Coming, receive: Receive, begun: bytes, limit: int) -> bytes:
        part, more = begun, True
        while True:
            _require(len(coming.begun) + len(part), limit)
            self._add(coming, part)
            if not more:
                return bytes(coming.begun)
            part, more = await part_of(receive)

    def _add(self, coming: _Coming, part: bytes) -> None:
        if self._coming.get(coming.client) is not coming:  # its reader is about to hear of it
            raise TimeoutError
        coming.begun += part
        self.held += len(part)
        while self.held > self._most_bytes and len(self._coming) > 1:
            self._give_way(next(other for other in self._coming.values() if other is not coming))

    def _give_way(self, coming: _Coming) -> None:
        """It is not waited for any longer."""
        self._forget(coming)
        coming.patience.reschedule(asyncio.get_running_loop().time())

    def _forget(self, coming: _Coming) -> None:
        if self._coming.get(coming.client) is coming:
            del self._coming[coming.client]
            self.held -= len(coming.begun)
            coming.begun = bytearray()


def _require(size: int, limit: int) -> None:
    if size > limit:
        raise RefusedError(413, TOO_LARGE)
