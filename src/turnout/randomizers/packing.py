"""Messages as bytes: numbers of a fixed width one after another, lowest bit first.

`pack_codes` and `pack_fields` write messages of one or several numbers, `pack_rows` bitmaps, and
`pack_histogram` the messages of one client without their order. Each has an ``unpack_…`` that
refuses bytes that no message has. `turnout.randomizers` calls them in ``pack`` and ``unpack``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError


def bits_for(count: int) -> int:
    """Bits of a number that distinguishes ``count`` messages: ⌈log₂ count⌉.

    >>> [bits_for(count) for count in (1, 2, 3, 1024, 1025)]
    [0, 1, 2, 10, 11]
    """
    return (count - 1).bit_length()


def pack_codes(codes: NDArray[np.int64], bits: int) -> bytes:
    """Bytes of codes of ``bits`` bits each, from 0 to 62; ⌈n · bits / 8⌉ bytes."""
    return pack_fields(codes, (bits,))


def unpack_codes(data: bytes, n: int, bits: int, count: int) -> NDArray[np.int64]:
    """The codes that `pack_codes` packed.

    Raises:
        ParameterError: a wrong length, padding that is not 0, or a code of at least ``count``.
    """
    codes = _fields(data, n, (bits,))[:, 0]
    if n and int(codes.max(initial=0)) >= count:
        raise ParameterError("data", int(codes.max()), f"codes below {count}")
    return codes


def pack_fields(rows: NDArray[np.int64], widths: tuple[int, ...]) -> bytes:
    """Bytes of rows of numbers, lowest bit first; ⌈n · Σ widths / 8⌉ bytes.

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
        ParameterError: a wrong length, padding that is not 0, or a number of at least its radix.
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


def histogram_bits(values: int, count: int) -> int:
    """Bits that distinguish all histograms of ``count`` messages of ``values`` values.

    >>> histogram_bits(1024, 1), histogram_bits(1024, 8)
    (10, 65)
    """
    return bits_for(math.comb(values + count - 1, count))


def pack_histogram(words: Sequence[int], values: int) -> bytes:
    """Bytes of a histogram: which messages there are and how often, without their order.

        The sorted words, the i-th raised by i, form a set. The bytes hold this set's rank among
        all sets of its size (the combinatorial number system), lowest byte first, in
        ⌈`histogram_bits` / 8⌉ bytes.

    Args:
        words: from 0 to values − 1, at least one.
        values: number of possible words.
    """
    if not all(0 <= word < values for word in words):
        raise ParameterError("messages", "out of range", f"numbers below {values}")
    rank = sum(math.comb(word + i, i + 1) for i, word in enumerate(sorted(words)))
    return rank.to_bytes(-(-histogram_bits(values, len(words)) // 8), "little")


def unpack_histogram(data: bytes, values: int, count: int) -> list[int]:
    """The words that `pack_histogram` packed, in increasing order.

    Raises:
        ParameterError: a wrong length, or a rank that no histogram has.
    """
    size = -(-histogram_bits(values, count) // 8)
    if len(data) != size:
        raise ParameterError("data", f"{len(data)} bytes", f"{size} bytes")
    rank, above = int.from_bytes(data, "little"), values + count - 1
    if rank >= math.comb(above, count):
        raise ParameterError("data", rank, f"a rank below {math.comb(above, count)}")
    words = []
    for i in reversed(range(count)):
        place = _largest_place(rank, i + 1, above)
        rank -= math.comb(place, i + 1)
        words.append(place - i)
        above = place
    return words[::-1]


def _largest_place(rank: int, size: int, above: int) -> int:
    """The largest c below ``above`` with C(c, size) ≤ rank, of arbitrary precision."""
    below = size - 1
    while above - below > 1:
        middle = (below + above) // 2
        if math.comb(middle, size) <= rank:
            below = middle
        else:
            above = middle
    return below


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
    """The first ``size`` bits of ``data``.

    Raises:
        ParameterError: another length, or padding that is not 0.
    """
    if len(data) != -(-size // 8):
        raise ParameterError("data", f"{len(data)} bytes", f"{-(-size // 8)} bytes")
    digits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if digits[size:].any():
        raise ParameterError("data", "padding", "padding of zeros")
    return digits[:size]
