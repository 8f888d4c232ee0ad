"""Fields of a protobuf message, read so strictly that no two readers could disagree on it."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED32, BYTES = 0, 5, 2
"""Wire types that are read; others (64-bit numbers, groups) are refused."""

MOST_FIELDS = 100_000
"""In one message; more are no graph, and would cost a reader memory."""

_MOST_PACKED = 64

Value = int | bytes


class MalformedError(ValueError):
    """Bytes that are no message of the kind that was expected."""


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field, in the order of the message.

    Raises:
        MalformedError: (while iterating) cut off, too many, or a wire type that is not read.
    """
    at = count = 0
    while at < len(data):
        count += 1
        if count > MOST_FIELDS:
            raise MalformedError(f"a message has more than {MOST_FIELDS} fields")
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise MalformedError("a field has the number 0")
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind == FIXED32:
            size = 4
        else:
            raise MalformedError(f"field {number} has the wire type {kind}")
        if size > len(data) - at:
            raise MalformedError(f"field {number} is cut off")
        yield number, kind, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A whole number of at most 64 bits, and the place after it.

    Raises:
        MalformedError: cut off, or longer.
    """
    value = 0
    for i in range(10):
        if at + i >= len(data):
            raise MalformedError("a number is cut off")
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at + i + 1
    raise MalformedError("a number has more than 64 bits")


def signed(value: int) -> int:
    """The number that an int64 field means."""
    return value - (1 << 64) if value >= 1 << 63 else value


def whole_numbers(kind: int, value: Value) -> list[int]:
    """The numbers of a repeated int64 field, packed or one at a time."""
    if isinstance(value, int):
        return [signed(value)]
    if kind != BYTES or len(value) > 10 * _MOST_PACKED:
        raise MalformedError("few whole numbers were expected")
    numbers, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        numbers.append(signed(number))
    return numbers
