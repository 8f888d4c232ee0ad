"""Messages as bytes: codes of a fixed number of bits one after another, lowest bit first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError


def bits_for(count: int) -> int:
    """Bits of a code that tells ``count`` messages apart: ⌈log₂ count⌉.

    >>> [bits_for(count) for count in (1, 2, 3, 1024, 1025)]
    [0, 1, 2, 10, 11]
    """
    return (count - 1).bit_length()


def pack_codes(codes: NDArray[np.int64], bits: int) -> bytes:
    """Codes of ``bits`` bits each, from 0 to 62, as ⌈n · bits / 8⌉ bytes."""
    return pack_fields(codes, (bits,))


def unpack_codes(data: bytes, n: int, bits: int, count: int) -> NDArray[np.int64]:
    """The codes that `pack_codes` packed.

    Raises:
        ParameterError: a wrong length, padding that is not 0, or a code that is no message.
    """
    codes = _fields(data, n, (bits,))[:, 0]
    if n and int(codes.max(initial=0)) >= count:
        raise ParameterError("data", int(codes.max()), f"codes below {count}")
    return codes


def pack_fields(rows: NDArray[np.int64], widths: tuple[int, ...]) -> bytes:
    """⌈n · Σ widths / 8⌉ bytes, lowest bit first.

    Args:
        rows: shape (n, len(widths)), the j-th column below 2^widths[j].
        widths: bits of each column, from 0 to 62.
    """
    rows = np.asarray(rows, dtype=np.int64).reshape(-1, len(widths))
    limits = np.array([1 << width for width in widths], dtype=np.int64)
    if not (np.all(rows >= 0) and np.all(rows < limits)):
        raise ParameterError("messages", "out of range", "numbers that fit their fields")
    digits = np.empty((len(rows), sum(widths)), dtype=np.uint8)
    start = 0
    for column, width in enumerate(widths):
        for position in range(width):
            digits[:, start + position] = (rows[:, column] >> position) & 1
        start += width
    return np.packbits(digits.ravel(), bitorder="little").tobytes()


def unpack_fields(data: bytes, clients: int, radices: tuple[int, ...]) -> NDArray[np.int64]:
    """The fields that `pack_fields` packed, shape (clients, len(radices)).

    Raises:
        ParameterError: a wrong length, padding that is not 0, or a number that none can have.
    """
    rows = _fields(data, clients, tuple(bits_for(radix) for radix in radices))
    if np.any(rows >= np.array(radices, dtype=np.int64)):
        raise ParameterError("data", "a number out of range", f"numbers below {radices}")
    return rows


def _fields(data: bytes, clients: int, widths: tuple[int, ...]) -> NDArray[np.int64]:
    total = sum(widths)
    digits = _bits(data, clients * total).reshape(clients, total)
    rows = np.zeros((clients, len(widths)), dtype=np.int64)
    start = 0
    for column, width in enumerate(widths):
        for position in range(width):
            rows[:, column] |= digits[:, start + position].astype(np.int64) << position
        start += width
    return rows


def pack_rows(rows: NDArray[np.uint64], columns: int) -> bytes:
    """Bitmaps of ``columns`` bits as ⌈n · columns / 8⌉ bytes.

    Args:
        rows: shape (n, ⌈columns / 64⌉).
        columns: at least 1.
    """
    raw = np.ascontiguousarray(rows.astype("<u8", copy=False)).view(np.uint8)
    if columns % 8 == 0:
        return raw[:, : columns // 8].tobytes()
    digits = np.unpackbits(raw, axis=1, count=columns, bitorder="little")
    return np.packbits(digits.ravel(), bitorder="little").tobytes()


def unpack_rows(data: bytes, n: int, columns: int) -> NDArray[np.uint64]:
    """The bitmaps that `pack_rows` packed.

    Raises:
        ParameterError: a wrong length, or padding that is not 0.
    """
    words = -(-columns // 64)
    padded = np.zeros((n, 64 * words), dtype=np.uint8)
    padded[:, :columns] = _bits(data, n * columns).reshape(n, columns)
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _bits(data: bytes, size: int) -> NDArray[np.uint8]:
    """The first ``size`` bits, if there are no others but padding."""
    if len(data) != -(-size // 8):
        raise ParameterError("data", f"{len(data)} bytes", f"{-(-size // 8)} bytes")
    digits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if digits[size:].any():
        raise ParameterError("data", "padding", "padding of zeros")
    return digits[:size]
