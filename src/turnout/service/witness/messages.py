"""Messages between coordinator and witness (docs/witness.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from turnout.service.contract.ledger import Head, Record, verified
from turnout.service.contract.wire import KEY_BYTES, NOT_SO, SignedHead, head_bytes

RECEIPTS_PATH, KEY_PATH = "/v1/receipts", "/v1/key"
MOST_BYTES = 4096
"""The largest size of a message and of an answer."""


def receipt_bytes(task: str, head: Head) -> bytes:
    r"""The bytes that a witness signs to say that it has a head.

    >>> receipt_bytes("ab", Head(0, bytes(32)))[:24]
    b'turnout-witness-1\nab\n0:0'
    """
    return f"turnout-witness-1\n{task}\n{head}".encode("ascii")


@dataclass(frozen=True, slots=True)
class ShownHead:
    """A head that a coordinator shows to a witness.

    Attributes:
        record: the last one of the ledger, canonical; None before the first release.
        begins: the coordinator has no receipt of this witness yet, so that it may be new to it.
    """

    task: str
    key: bytes
    head: SignedHead
    record: Record | None
    begins: bool

    def encoded(self) -> bytes:
        """JSON."""
        fields = {
            "task": self.task,
            "key": self.key.hex(),
            "head": str(self.head),
            "record": None if self.record is None else self.record.document(),
            "begins": self.begins,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The message that `encoded` wrote, checked in itself: signature and record."""
        try:
            fields = json.loads(data)
            record = None if fields["record"] is None else Record.from_document(fields["record"])
            shown = cls(
                fields["task"],
                bytes.fromhex(fields["key"]),
                SignedHead.parsed(fields["head"]),
                record,
                fields["begins"],
            )
            exact = shown.encoded() == json.dumps(
                fields, sort_keys=True, separators=(",", ":")
            ).encode("ascii")
        except NOT_SO:
            raise ValueError("not a head that a coordinator shows") from None
        if not exact or type(shown.begins) is not bool or len(shown.key) != KEY_BYTES:
            raise ValueError("not a head that a coordinator shows")
        shown._require_consistent()
        return shown

    @property
    def previous(self) -> bytes:
        """The digest that its record follows on; the task where there is no record."""
        return bytes.fromhex(self.task) if self.record is None else self.record.previous

    def _require_consistent(self) -> None:
        head, record = self.head.head, self.record
        if not verified(self.key, self.head.signature, head_bytes(self.task, head)):
            raise ValueError("the head does not bear the coordinator's signature")
        start = Head(0, bytes.fromhex(self.task))
        ends = start if record is None else record.head
        if ends != head or (record is not None and record.task != self.task):
            raise ValueError("the head is not that of the record")


def refusal_body(reason: str, newest: SignedHead | None = None) -> bytes:
    """The body of a refusal: why, and the newest head that the witness has, where it has one."""
    fields: dict[str, Any] = {"reason": reason}
    if newest is not None:
        fields["head"] = str(newest)
    return json.dumps(fields, sort_keys=True).encode()
