"""Biased coins by the million: 64 in a word, decided by comparing bits.

Notation: t/2^b the coin's probability, U uniform on {0, …, 2^b − 1}; a coin is True where U < t.

A word holds one bit of U for each of 64 coins. Reading from the highest bit down, a coin is decided
at the first bit where U and t differ, which takes two bits on average, so a word of 64 coins reads
about seven, whatever b is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Words = Callable[[int], NDArray[np.uint64]]
"""``words(size)`` gives uniform 64-bit words, shape (size,), independent of all others."""

WORD_BITS = 64
_CHUNK = 2**15  # Words; what is written stays in the caches until it is read again.
_ALL = np.uint64(2**64 - 1)


def packed_coins(words: Words, threshold: int, bits: int, size: int) -> NDArray[np.uint64]:
    """``64 · size`` independent coins, each bit 1 with probability ``threshold`` / 2^``bits``.

    Args:
        words: where uniform words come from.
        threshold: from 0 to 2^bits.
        bits: at least 1.
        size: how many words; 0 is allowed.

    Returns:
        uint64 array of shape (size,); the law is exact given that of ``words``.
    """
    out = np.zeros(size, dtype=np.uint64)
    if threshold == 1 << bits:
        out[:] = _ALL
    elif threshold:
        for start in range(0, size, _CHUNK):
            _decide(words, threshold, bits, out[start : start + _CHUNK])
    return out


def _decide(words: Words, threshold: int, bits: int, out: NDArray[np.uint64]) -> None:
    """Set the coins of one chunk, which is 0 everywhere."""
    places: NDArray[np.intp] | None = None  # Of the words with open coins; None for all.
    won, open_coins = out, np.full(len(out), _ALL)
    # Below the lowest 1 of t nothing can fall below t any more: all that is open is False.
    lowest = (threshold & -threshold).bit_length() - 1
    for position in range(bits - 1, lowest - 1, -1):
        drawn = words(len(open_coins))
        if threshold >> position & 1:
            won |= open_coins & ~drawn
            open_coins &= drawn
        else:
            open_coins &= ~drawn
        if 2 * np.count_nonzero(open_coins) < len(open_coins):
            left = np.flatnonzero(open_coins)
            if places is not None:
                out[places] = won
            places = left if places is None else places[left]
            won, open_coins = out[places], open_coins[left]
            if not len(left):
                return
    if places is not None:
        out[places] = won


def cut(packed: NDArray[np.uint64], columns: int) -> NDArray[np.uint64]:
    """The rows with every bit from ``columns`` on set to 0, in place.

    Args:
        packed: shape (rows, ⌈columns / 64⌉).
        columns: at least 1.
    """
    spare = columns % WORD_BITS
    if spare:
        packed[:, -1] &= np.uint64((1 << spare) - 1)
    return packed


def width(columns: int) -> int:
    """Words in a row of ``columns`` bits."""
    return -(-columns // WORD_BITS)
