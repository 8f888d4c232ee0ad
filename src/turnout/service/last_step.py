"""The clients that came at the last released step, in this process's memory alone.

The storage forgets it with the release. A client that missed the answer to its last request
sends the request again, most often within seconds: that is what this is for. After a restart,
and once the next step is released, such a client hears that the step is over.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from turnout.service.storage.interface import Participation

_DIGEST_BYTES = 32


class Remembered:
    """The check-ins of one step, given by client: 41 bytes each."""

    def __init__(self, step: int, participations: Iterable[Participation]) -> None:
        clients: list[int] = []
        digests, answered = bytearray(), bytearray()
        for participation in participations:
            clients.append(participation.client)
            digests += participation.digest or bytes(_DIGEST_BYTES)
            answered.append(participation.digest is not None)
        self._step = step
        self._clients = np.array(clients, dtype=np.int64)
        self._digests, self._answered = bytes(digests), bytes(answered)

    def participation_at(self, client: int, step: int) -> Participation | None:
        """The check-in of a client at the step that is remembered."""
        place = int(np.searchsorted(self._clients, client))
        if step != self._step or place == self._clients.size or self._clients[place] != client:
            return None
        start = place * _DIGEST_BYTES
        digest = self._digests[start : start + _DIGEST_BYTES] if self._answered[place] else None
        return Participation(client, step, digest)
