"""Messages between coordinator and witness, as documented in docs/witness.md.

`ShownHead` is the request, `receipt_bytes` returns the bytes that a witness signs, and
`refusal_body` returns a refusal. `app` and `client` exchange these messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from turnout.service.contract.ledger import Head, Record, verified
from turnout.service.contract.wire import KEY_BYTES, NOT_SO, SignedHead, head_bytes

RECEIPTS_PATH, KEY_PATH = "/v1/receipts", "/v1/key"
MOST_BYTES = 4096
"""Largest size of a request and of an answer, in bytes."""


def receipt_bytes(task: str, head: Head) -> bytes:
    r"""Bytes that a witness signs as its receipt for a ledger head.

    >>> receipt_bytes("ab", Head(0, bytes(32)))[:24]
    b'turnout-witness-1\nab\n0:0'
    """
    return f"turnout-witness-1\n{task}\n{head}".encode("ascii")


@dataclass(frozen=True, slots=True)
class ShownHead:
    """A ledger head that a coordinator shows to a witness.

    Attributes:
        task: digest of the charter, hexadecimal.
        key: the coordinator's public key.
        head: the signed ledger head.
        record: the ledger's last record, canonical; None before the first release.
        begins: whether the coordinator has no receipt of this witness yet, so that the task may be
            new to it.
    """

    task: str
    key: bytes
    head: SignedHead
    record: Record | None
    begins: bool

    def encoded(self) -> bytes:
        """The message as canonical ASCII JSON."""
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
        """Message parsed from the bytes of `encoded`, with signature and record checked.

        Raises:
            ValueError: the bytes are not such a message, or contradict each other.
        """
        # The fields of the message; encoding them again must give the same bytes.
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
            raise ValueError("the body is not a coordinator's message") from None
        if not exact or type(shown.begins) is not bool or len(shown.key) != KEY_BYTES:
            raise ValueError("the body is not a coordinator's message")
        # Signature, head and record must agree.
        shown._require_consistent()
        return shown

    @property
    def previous(self) -> bytes:
        """Digest that precedes the last record; the charter's digest if there is no record."""
        return bytes.fromhex(self.task) if self.record is None else self.record.previous

    def _require_consistent(self) -> None:
        head, record = self.head.head, self.record
        if not verified(self.key, self.head.signature, head_bytes(self.task, head)):
            raise ValueError("the ledger head does not bear the coordinator's signature")
        start = Head(0, bytes.fromhex(self.task))
        ends = start if record is None else record.head
        if ends != head or (record is not None and record.task != self.task):
            raise ValueError("the ledger head does not match the record")


def refusal_body(reason: str, newest: SignedHead | None = None) -> bytes:
    """Body of a refusal: the reason, and the witness's newest ledger head, if any."""
    fields: dict[str, Any] = {"reason": reason}
    if newest is not None:
        fields["head"] = str(newest)
    return json.dumps(fields, sort_keys=True).encode()
