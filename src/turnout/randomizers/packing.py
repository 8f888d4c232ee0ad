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
    """⌈n · bits / 8⌉ bytes.

    Args:
        codes: shape (n,), each from 0 to 2^bits − 1.
        bits: from 0 to 62.
    """
    shifts = np.arange(bits, dtype=np.int64)
    digits = (np.asarray(codes, dtype=np.int64)[:, None] >> shifts).astype(np.uint8) & np.uint8(1)
    return np.packbits(digits.ravel(), bitorder="little").tobytes()


def unpack_codes(data: bytes, n: int, bits: int, count: int) -> NDArray[np.int64]:
    """The codes that `pack_codes` packed.

    Raises:
        ParameterError: a wrong length, padding that is not 0, or a code that is no message.
    """
    digits = _bits(data, n * bits).reshape(n, bits)
    codes = np.zeros(n, dtype=np.int64)
    for position in range(bits):
        codes |= digits[:, position].astype(np.int64) << position
    if n and int(codes.max(initial=0)) >= count:
        raise ParameterError("data", int(codes.max()), f"codes below {count}")
    return codes


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
