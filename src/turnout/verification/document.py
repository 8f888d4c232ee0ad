"""The lines of an exported ledger, read strictly: what is not exactly as written is a fault.

What reads a line or a value raises ValueError for anything but what its docstring says.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from turnout.verification.verdict import Fault

_PREFIX, _SUFFIX = b'{"charter":', b"}"


class DamagedError(Exception):
    """The error of a file that is no ledger; carries the `Fault`."""

    def __init__(self, what: str, step: int | None = None) -> None:
        super().__init__(what)
        self.fault = Fault(what, step)


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One release, as its line has it; ``digest`` is SHA-256 of the line."""

    task: str
    step: int
    sum_digest: bytes
    model_digest: bytes
    epsilon: float
    delta: float
    previous: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class HeadLine:
    """The last line: how far the ledger is, and the coordinator's signature under it."""

    steps: int
    digest: bytes
    signature: bytes

    def signed(self, task: str) -> bytes:
        """The bytes under the signature."""
        return f"turnout-head-1\n{task}\n{self.steps}:{self.digest.hex()}".encode("ascii")


@dataclass(frozen=True, slots=True)
class Document:
    """An exported ledger whose lines could be read.

    Attributes:
        charter: the charter's bytes, as they stand in the first line.
        records: in the order of the file.
        head: the last line.
    """

    charter: bytes
    records: tuple[RecordLine, ...]
    head: HeadLine

    @property
    def task(self) -> str:
        """SHA-256 of the charter, hexadecimal."""
        return hashlib.sha256(self.charter).hexdigest()


def parsed(data: bytes) -> Document:
    """The lines of a file.

    Raises:
        DamagedError: a line is not one, down to the last byte.
    """
    lines = data.split(b"\n")
    if lines.pop() != b"":
        raise DamagedError("the last line has no end: the file was cut off")
    if len(lines) < 2:
        raise DamagedError("a ledger has at least a charter and a head")
    first, *middle, last = lines
    if not (first.startswith(_PREFIX) and first.endswith(_SUFFIX)):
        raise DamagedError("the first line is not a charter")
    records = tuple(_record(line, number) for number, line in enumerate(middle))
    return Document(first[len(_PREFIX) : -len(_SUFFIX)], records, _head(last))


def canonical_fields(line: bytes) -> dict[str, Any]:
    """The JSON object that is written in these bytes: keys sorted, no spaces, ASCII, no floats."""
    try:
        fields = json.loads(line.decode("ascii"), parse_float=_refused, parse_constant=_refused)
        again = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    if again != line:
        raise ValueError("not the canonical form")
    return fields


def number_of(text: object) -> float:
    """The finite float that ``float.hex`` wrote."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a number's hexadecimal form")
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a number's hexadecimal form") from None
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    if value.hex() != text:
        raise ValueError(f"{text[:40]!r} is not how float.hex writes {value!r}")
    return value


def digest_of(text: object) -> bytes:
    """32 bytes from 64 lower-case hexadecimal digits."""
    return _bytes_of(text, 32)


def count_of(value: object) -> int:
    """A whole number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _bytes_of(text: object, length: int) -> bytes:
    if not isinstance(text, str) or len(text) != 2 * length:
        raise ValueError(f"not {length} bytes in hexadecimal")
    value = bytes.fromhex(text)
    if value.hex() != text:
        raise ValueError(f"not {length} bytes in lower-case hexadecimal")
    return value


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text}: floats are written by float.hex, NaN and Infinity not at all")


def _record(line: bytes, number: int) -> RecordLine:
    names = {"task", "step", "sum", "model", "epsilon", "delta", "previous"}
    try:
        fields = canonical_fields(line)
        if set(fields) != names:
            raise ValueError(f"its fields are {', '.join(sorted(fields))}")
        return RecordLine(
            str(fields["task"]),
            count_of(fields["step"]),
            digest_of(fields["sum"]),
            digest_of(fields["model"]),
            number_of(fields["epsilon"]),
            number_of(fields["delta"]),
            digest_of(fields["previous"]),
            hashlib.sha256(line).digest(),
        )
    except ValueError as error:
        raise DamagedError(f"line {number + 2} is not a record: {error}", number) from None


def _head(line: bytes) -> HeadLine:
    try:
        fields = canonical_fields(line)
        if set(fields) != {"head", "signature"}:
            raise ValueError("a head is the last line, and there is none: the file was cut off")
        steps, digest = head_of(fields["head"])
        return HeadLine(steps, digest, _bytes_of(fields["signature"], 64))
    except ValueError as error:
        raise DamagedError(f"the last line is not a head: {error}") from None


def head_of(text: object) -> tuple[int, bytes]:
    """Steps and digest of ``steps:digest``."""
    steps, _, digest = str(text).partition(":")
    if not (steps.isascii() and steps.isdigit()):
        raise ValueError("a head is steps:digest")
    head = int(steps), digest_of(digest)
    if f"{head[0]}:{digest}" != text:
        raise ValueError("a head is steps:digest")
    return head
