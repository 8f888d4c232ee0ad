"""Messages as bytes: numbers of a fixed width one after another, lowest bit first.

`pack_codes` and `pack_fields` write messages of one number and of several numbers, `pack_rows`
writes bitmaps, and `pack_histogram` writes several messages of one client without their order. Each
of these functions has an inverse ``unpack_…``, which raises an error for bytes that the packing
function cannot return. The ``pack`` and ``unpack`` methods of `turnout.randomizers` call these
functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError


def bits_for(count: int) -> int:
    """Number of bits that suffice to distinguish ``count`` messages: ⌈log₂ count⌉.

    >>> [bits_for(count) for count in (1, 2, 3, 1024, 1025)]
    [0, 1, 2, 10, 11]
    """
    return (count - 1).bit_length()


def pack_codes(codes: NDArray[np.int64], bits: int) -> bytes:
    """Codes as ⌈n · bits / 8⌉ bytes, with ``bits`` bits (from 0 to 62) for each code.

    Args:
        codes: whole numbers from 0 to 2^``bits`` − 1, shape (n,).
        bits: number of bits of each code, from 0 to 62.
    """
    return pack_fields(codes, (bits,))


def unpack_codes(data: bytes, n: int, bits: int, count: int) -> NDArray[np.int64]:
    """The n codes that `pack_codes` packed, shape (n,).

    Args:
        data: bytes that `pack_codes` returned.
        n: number of codes.
        bits: number of bits of each code, from 0 to 62.
        count: number of possible codes.

    Raises:
        ParameterError: a wrong length, padding that is not 0, or a code that is not below
            ``count``.
    """
    codes = _fields(data, n, (bits,))[:, 0]
    if n and int(codes.max(initial=0)) >= count:
        raise ParameterError("data", f"code {codes.max()}", f"codes below {count}")
    return codes


def pack_fields(rows: NDArray[np.int64], widths: tuple[int, ...]) -> bytes:
    """Rows of numbers as ⌈n · Σ widths / 8⌉ bytes, lowest bit first.

    Args:
        rows: shape (n, len(widths)); numbers of column j are below 2^widths[j].
        widths: number of bits of each column, from 0 to 62.

    Raises:
        ParameterError: a number that does not fit the bits of its column.
    """
    rows = np.asarray(rows, dtype=np.int64).reshape(-1, len(widths))
    # Check that every number fits its column.
    limits = np.array([1 << width for width in widths], dtype=np.int64)
    wrong = rows[(rows < 0) | (rows >= limits)]
    if wrong.size:
        expected = f"columns of numbers of {', '.join(map(str, widths))} bits"
        raise ParameterError("messages", int(wrong[0]), expected)
    # Write the bits of each row, one column of bits at a time.
    digits = np.empty((len(rows), sum(widths)), dtype=np.uint8)
    start = 0
    for column, width in enumerate(widths):
        for position in range(width):
            digits[:, start + position] = (rows[:, column] >> position) & 1
        start += width
    return np.packbits(digits.ravel(), bitorder="little").tobytes()


def unpack_fields(data: bytes, clients: int, radices: tuple[int, ...]) -> NDArray[np.int64]:
    """The numbers that `pack_fields` packed, shape (clients, len(radices)).

    Args:
        data: bytes that `pack_fields` returned.
        clients: number of rows.
        radices: number of possible values of each column; column j has `bits_for` (radices[j])
            bits.

    Raises:
        ParameterError: a wrong length, padding that is not 0, or a number that is not below its
            column's number of values.
    """
    rows = _fields(data, clients, tuple(bits_for(radix) for radix in radices))
    wrong = rows[rows >= np.array(radices, dtype=np.int64)]
    if wrong.size:
        expected = f"columns of numbers below {', '.join(map(str, radices))}"
        raise ParameterError("data", int(wrong[0]), expected)
    return rows


def _fields(data: bytes, clients: int, widths: tuple[int, ...]) -> NDArray[np.int64]:
    """The numbers in ``data``, each column with its number of bits; shape (clients, columns)."""
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
    """Bits that distinguish all histograms of ``count`` messages with ``values`` possible values.

    Args:
        values: number of possible values of a message.
        count: number of messages.

    >>> histogram_bits(1024, 1), histogram_bits(1024, 8)
    (10, 65)
    """
    return bits_for(math.comb(values + count - 1, count))


def pack_histogram(words: Sequence[int], values: int) -> bytes:
    """Messages as ⌈`histogram_bits` / 8⌉ bytes that do not reveal the order of the messages.

    The messages are sorted and i is added to the i-th message, so that the numbers are different.
    The bytes are the rank of this set of numbers among all sets of its size (the combinatorial
    number system), lowest byte first.

    Args:
        words: messages as numbers from 0 to values − 1, at least one.
        values: number of possible values of a message.

    Raises:
        ParameterError: a number that is not from 0 to values − 1.
    """
    if not all(0 <= word < values for word in words):
        wrong = next(word for word in words if not 0 <= word < values)
        raise ParameterError("messages", wrong, f"numbers from 0 to {values - 1}")
    rank = sum(math.comb(word + i, i + 1) for i, word in enumerate(sorted(words)))
    return rank.to_bytes(-(-histogram_bits(values, len(words)) // 8), "little")


def unpack_histogram(data: bytes, values: int, count: int) -> list[int]:
    """The messages that `pack_histogram` packed, in increasing order.

    Args:
        data: bytes that `pack_histogram` returned.
        values: number of possible values of a message.
        count: number of messages.

    Raises:
        ParameterError: a wrong length, or a rank that no histogram has.
    """
    # Check the length, then the range of the rank.
    size = -(-histogram_bits(values, count) // 8)
    if len(data) != size:
        raise ParameterError("data", f"{len(data)} bytes", f"{size} bytes")
    rank, above = int.from_bytes(data, "little"), values + count - 1
    if rank >= math.comb(above, count):
        raise ParameterError("data", f"rank {rank}", f"a rank below {math.comb(above, count)}")
    # Find the numbers of the set, largest first, and subtract i from the i-th.
    words = []
    for i in reversed(range(count)):
        place = _largest_place(rank, i + 1, above)
        rank -= math.comb(place, i + 1)
        words.append(place - i)
        above = place
    return words[::-1]


def _largest_place(rank: int, size: int, above: int) -> int:
    """The largest c below ``above`` whose binomial coefficient C(c, size) is at most ``rank``."""
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
        rows: bitmaps in 64-bit words, shape (n, ⌈columns / 64⌉).
        columns: number of bits of a bitmap, at least 1.
    """
    raw = np.ascontiguousarray(rows.astype("<u8", copy=False)).view(np.uint8)
    if columns % 8 == 0:
        return raw[:, : columns // 8].tobytes()
    digits = np.unpackbits(raw, axis=1, count=columns, bitorder="little")
    return np.packbits(digits.ravel(), bitorder="little").tobytes()


def unpack_rows(data: bytes, n: int, columns: int) -> NDArray[np.uint64]:
    """The bitmaps that `pack_rows` packed, shape (n, ⌈columns / 64⌉).

    Args:
        data: bytes that `pack_rows` returned.
        n: number of bitmaps.
        columns: number of bits of a bitmap, at least 1.

    Raises:
        ParameterError: a wrong length, or padding that is not 0.
    """
    words = -(-columns // 64)
    padded = np.zeros((n, 64 * words), dtype=np.uint8)
    padded[:, :columns] = _bits(data, n * columns).reshape(n, columns)
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _bits(data: bytes, size: int) -> NDArray[np.uint8]:
    """The first ``size`` bits of ``data``, shape (size,).

    Raises:
        ParameterError: a wrong length, or padding that is not 0.
    """
    if len(data) != -(-size // 8):
        raise ParameterError("data", f"{len(data)} bytes", f"{-(-size // 8)} bytes")
    digits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if digits[size:].any():
        raise ParameterError("data", "padding with a set bit", "padding of zero bits")
    return digits[:size]
