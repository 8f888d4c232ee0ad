"""The coordinator as a device sees it: every word checked before it counts."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import RemoteProtocolError
from turnout.service.charter import Charter
from turnout.service.device.diary import Diary
from turnout.service.device.link import Link, UnreachableError
from turnout.service.device.status import (
    SetBackError,
    Status,
    charter_of,
    followed,
    records_of,
    require_newer,
)
from turnout.service.ledger import Head, Record
from turnout.service.wire import CHARTER_PATH, RECORDS_PATH, STATUS_PATH, SignedHead, model_path

_TELLING_PAUSES = (0.2, 0.6, 1.8)
_CHARTER_BYTES, _STATUS_BYTES, _RECORDS_BYTES = 1 << 26, 1 << 14, 1 << 24


@dataclass(slots=True)
class Remote:
    """The charter, how far the run is, and the models.

    Guarantees:
        A head that is behind what this device ever saw, or does not follow on it, is refused,
        and the highest one is durable before anything is sent. A coordinator that shows one is
        told the head that it is behind, so that it stops.
        A model is one whose digest the charter or a record under a signed head names.
    """

    link: Link
    diary: Diary
    _charter: Charter | None = None
    _record: Record | None = None

    async def charter(self) -> Charter:
        """The frozen terms, as the invitation names them.

        Raises:
            UnreachableError: nothing came back.
            RemoteProtocolError: other terms.
        """
        if self._charter is None:
            data = await self.link.get(CHARTER_PATH, _CHARTER_BYTES)
            self._charter = charter_of(data, self.diary.memory)
        return self._charter

    async def status(self) -> Status:
        """How far the run is; the ledger's head is remembered.

        Raises:
            UnreachableError: nothing came back.
            RemoteProtocolError: not a status.
            SetBackError: the coordinator was set back; it was told, if it could be reached.
        """
        try:
            return await self._status()
        except SetBackError:
            await self.tell()
            raise

    async def tell(self) -> bool:
        """Show the coordinator the newest head that this device saw; whether it was heard.

        It may be done at any time. The message says nothing else, and not from whom it comes.
        """
        head = self.diary.memory.head
        for pause in (*_TELLING_PAUSES, None):
            if head is None:
                break
            try:
                return await self.link.tell(str(head))
            except UnreachableError:  # which a coordinator that stops is, too
                if pause is not None:
                    await asyncio.sleep(pause)
        return False

    async def _status(self) -> Status:
        """See `status`."""
        charter, memory = await self.charter(), self.diary.memory
        data = await self.link.get(STATUS_PATH, _STATUS_BYTES)
        status = Status.parsed(data, memory.task, charter.steps)
        seen, new = memory.head, status.head
        require_newer(seen, new, memory.task, memory.coordinator_key)
        if seen is None or new.head != seen.head:
            if seen is not None:
                await self._follow(seen.head, new)
            memory.head = new
            self.diary.keep()
        return status

    async def model(self, status: Status) -> NDArray[np.float32]:
        """The parameters that the step in progress begins with, shape ``(d,)``.

        Raises:
            UnreachableError, GoneError: nothing came back, or the step is over.
            RemoteProtocolError: other parameters than the ledger says.
        """
        charter = await self.charter()
        digest = await self._model_digest(status.head.head, charter)
        size = 4 * charter.lattice.dimension
        data = await self.link.get(model_path(status.step), size)
        if len(data) != size or hashlib.sha256(data).digest() != digest:
            raise RemoteProtocolError(
                f"the model after {status.step} steps is not the one in the ledger"
            )
        return np.frombuffer(data, dtype="<f4").astype(np.float32)

    async def _model_digest(self, head: Head, charter: Charter) -> bytes:
        """SHA-256 of the model at a head that was checked."""
        if head.steps == 0:
            return charter.initial_model
        if self._record is None or self._record.head != head:
            records = await self._records(head.steps - 1)
            if not records or records[0].head != head:
                raise RemoteProtocolError("the ledger's last record is not the one of its head")
            self._record = records[0]
        return self._record.model_digest

    async def _follow(self, seen: Head, new: SignedHead) -> None:
        """Nothing where the ledger goes on from ``seen`` to ``new``."""
        at, until = seen, new.head.steps
        while at.steps < until:
            records = await self._records(at.steps)
            after = followed(self.diary.memory.task, at, records, until)
            if after == at:
                raise RemoteProtocolError("the coordinator does not show its ledger's records")
            self._record = records[after.steps - at.steps - 1]
            at = after
        if at != new.head:
            raise SetBackError("the coordinator was set back: its records do not lead to its head")

    async def _records(self, first: int) -> list[Record]:
        """The ledger's records from a step on; maybe not all."""
        return records_of(await self.link.get(f"{RECORDS_PATH}?from={first}", _RECORDS_BYTES))
