"""Biased coins by the million: 64 in a word, decided by comparing bits.

Notation: t/2^b the coin's probability, U uniform on {0, …, 2^b − 1}; a coin is True where U < t.

A word holds one bit of U for each of 64 coins. Reading from the highest bit down, a coin is decided
at the first bit where U and t differ, which takes two bits on average. So 64 coins read eight or
nine words, whatever b is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Words = Callable[[int], NDArray[np.uint64]]
"""``words(size)`` gives uniform 64-bit words, shape (size,), independent of all others."""

WORD_BITS = 64
_CHUNK = 2**14  # Words; longer arrays leave the fast caches, and fresh pages cost more than draws.
_FIRST, _MORE = 8, 3  # Bits that are read before the words with open coins are picked out.
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
    if threshold in (0, 1 << bits):
        return np.full(size, _ALL if threshold else 0, dtype=np.uint64)
    # Below the lowest 1 of t nothing falls below t any more: what is still open is False.
    lowest = (threshold & -threshold).bit_length() - 1
    out, places, open_coins = np.zeros(size, dtype=np.uint64), None, None
    position = bits
    while position > lowest and (places is None or len(places)):
        last = max(position - (_FIRST if places is None else _MORE), lowest)
        digits = [threshold >> place & 1 for place in range(position - 1, last - 1, -1)]
        places, open_coins = _read(words, digits, out, places, open_coins)
        position = last
    return out


def _read(
    words: Words,
    digits: list[int],
    out: NDArray[np.uint64],
    places: NDArray[np.intp] | None,
    open_coins: NDArray[np.uint64] | None,
) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Set the coins that some digits of t decide; the words in which others stay open, and which.

    Args:
        words: where uniform words come from.
        digits: the next digits of t, highest first.
        out: all coins.
        places: the words with open coins; None for all.
        open_coins: the open coins in them; None for all.
    """
    found: list[NDArray[np.intp]] = [np.empty(0, dtype=np.intp)]
    masks: list[NDArray[np.uint64]] = [np.empty(0, dtype=np.uint64)]
    total = len(out) if places is None else len(places)
    for start in range(0, total, _CHUNK):
        part = slice(start, min(start + _CHUNK, total))
        where = part if places is None else places[part]
        size = part.stop - start
        left = np.full(size, _ALL) if open_coins is None else open_coins[part]
        won = _decide(words, digits, left)
        out[where] |= won
        still = np.flatnonzero(left)
        found.append(still + start if places is None else places[part][still])
        masks.append(left[still])
    return np.concatenate(found), np.concatenate(masks)


def _decide(words: Words, digits: list[int], open_coins: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The open coins that these digits make True; those that they decide are closed in place."""
    won, falling = np.zeros_like(open_coins), np.empty_like(open_coins)
    for digit in digits:
        drawn = words(len(open_coins))  # A 1 where U has a 0: as likely, and fewer operations.
        if digit:
            np.bitwise_and(open_coins, drawn, out=falling)
            won |= falling
            open_coins ^= falling
        else:
            open_coins &= drawn
    return won


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
