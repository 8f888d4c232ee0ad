"""The number of n bitmaps in which each bit is set, by adding 64 columns at a time.

Three rows of bits a, b, c sum, in every column, to a ⊕ b ⊕ c plus twice the majority of a, b and c
(a carry-save adder). So n rows of weight 1 become n/3 of weight 1 and n/3 of weight 2, and so on
until few are left to unpack: about ten word operations an input word, and none a bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FEW = 24
"""Rows of one weight that are unpacked and added as they are."""
_CHUNK = 2**15  # Words that are summed at once; they stay in the fast caches.


def column_sums(rows: NDArray[np.uint64], columns: int) -> NDArray[np.int64]:
    """The number of rows in which each bit is set, shape (columns,).

    Args:
        rows: bitmaps, shape (n, ⌈columns / 64⌉); bit j is bit j mod 64 of word ⌊j / 64⌋.
        columns: at least 1.

    >>> column_sums(np.array([[5], [4], [1]], dtype=np.uint64), 3).tolist()
    [2, 0, 2]
    """
    total = np.zeros(columns, dtype=np.int64)
    step = max(_CHUNK // rows.shape[1], 3 * _FEW)
    for start in range(0, len(rows), step):
        left, weight = rows[start : start + step], 1
        while len(left):
            left, carries = _carried(left)
            raw = np.ascontiguousarray(left.astype("<u8", copy=False)).view(np.uint8)
            bits = np.unpackbits(raw, axis=1, count=columns, bitorder="little")
            total += weight * bits.sum(axis=0, dtype=np.int64)
            left, weight = carries, 2 * weight
    return total


def _carried(rows: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """At most `_FEW` rows of this weight, and rows of twice the weight, with the same sum."""
    carries = []
    while len(rows) > _FEW:
        third = len(rows) // 3
        a, b, c = (rows[part * third : (part + 1) * third] for part in range(3))
        either = a ^ b
        carries.append((a & b) | (either & c))
        rows = np.concatenate([either ^ c, rows[3 * third :]])
    return rows, np.concatenate(carries) if carries else rows[:0]
