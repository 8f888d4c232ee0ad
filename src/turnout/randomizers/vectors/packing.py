"""Messages of several whole numbers as bytes: each in as many bits as it needs, without gaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError


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
    """What `pack_fields` packed, shape (clients, len(radices)).

    Args:
        data: the bytes.
        clients: n.
        radices: how many values each number can take.

    Raises:
        ParameterError: a wrong length, padding that is not 0, or a number that none can have.
    """
    widths = [(radix - 1).bit_length() for radix in radices]
    total = clients * sum(widths)
    if len(data) != -(-total // 8):
        raise ParameterError("data", f"{len(data)} bytes", f"{-(-total // 8)} bytes")
    stream = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if stream[total:].any():
        raise ParameterError("data", "padding", "padding of zeros")
    digits = stream[:total].reshape(clients, sum(widths))
    rows = np.zeros((clients, len(widths)), dtype=np.int64)
    start = 0
    for column, width in enumerate(widths):
        for position in range(width):
            rows[:, column] |= digits[:, start + position].astype(np.int64) << position
        start += width
    if np.any(rows >= np.array(radices, dtype=np.int64)):
        raise ParameterError("data", "a number out of range", f"numbers below {radices}")
    return rows
