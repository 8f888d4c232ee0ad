"""Source of cryptographic randomness: the operating system's generator, made exactly uniform."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.randomness.source import LARGEST_RANGE, Source, check_range, check_subset

ByteStream = Callable[[int], bytes]
"""``read(n)`` gives the next n bytes; they must be independent of all others ever read."""

_REST = 2**47  # Fifteen bits fit a word of sixteen.
"""Number of values of the last bits of a coin, which are seldom read."""
_WORDS = (np.uint8, np.uint16, np.uint32, np.uint64)


class OSRandomness(Source):
    """Source that draws from the operating system's cryptographic generator.

    There is no seed and no fallback: if the system has no such generator, every draw raises an
    error.

    Guarantees:
        `below` is exactly uniform (rejection, no modulo bias), for every ``n``.
    """

    secure: ClassVar[bool] = True

    def below(self, n: int, size: int) -> NDArray[np.int64]:
        """``size`` independent integers, each exactly uniform on {0, …, n − 1}.

        Raises:
            ParameterError: ``n`` is outside 1 to 2⁶², or ``size`` is below 0.
        """
        check_range(n, size)
        word, largest = _word(n)
        if n & (n - 1) == 0:  # Every word counts, and its low bits are uniform.
            raw = np.frombuffer(os.urandom(size * word().itemsize), dtype=word)
            return (raw & word(n - 1)).astype(np.int64)
        drawn = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            raw = np.frombuffer(os.urandom((size - filled) * word().itemsize), dtype=word)
            # Words past the last whole multiple of n would favour small values: drop them.
            kept = raw[raw <= word(largest)]
            drawn[filled : filled + len(kept)] = kept % word(n)
            filled += len(kept)
        return drawn

    def bernoulli(self, p: float | Fraction, size: int) -> NDArray[np.bool_]:
        """Array of ``size`` independent truth values, each True with probability ``p``.

        As in `Source.bernoulli`, sixty-two bits are compared with ``p``. The first fifteen bits are
        read first, the others only if the first fifteen equal those of ``p``. The distribution is
        the same, and a quarter of the bytes is enough.

        Raises:
            ParameterError: ``p`` is outside [0, 1].
        """
        checks.probability(p=p)
        threshold = int(Fraction(p) * LARGEST_RANGE)
        high, low = divmod(threshold, _REST)
        first = self.below(LARGEST_RANGE // _REST, size)
        coins = first < high
        open_places = np.flatnonzero(first == high)
        if open_places.size and low:
            coins[open_places] = self.below(_REST, open_places.size) < low
        return coins

    def packed_bernoulli(self, p: float | Fraction, rows: int, columns: int) -> NDArray[np.uint64]:
        """Packed bits of ``rows × columns`` truth values, 64 in a word (see `Source`)."""
        from turnout.randomness.packed_coins import packed_from_words

        return packed_from_words(_words, p, rows, columns)

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """Uniform subset of ``k`` elements of {0, …, n − 1}, ascending, shape (k,).

        The first ``k`` different values of a uniform sequence are a uniform subset. A sequence is
        drawn in bulk, which is faster than Floyd's algorithm. If ``k`` is more than half of ``n``,
        the complement is drawn, so that few values repeat.

        Raises:
            ParameterError: ``k`` is below 0 or above ``n``.
        """
        check_subset(n, k)
        if 2 * k > n:
            absent = np.ones(n, dtype=np.bool_)
            absent[self.subset(n, n - k)] = False
            return np.flatnonzero(absent)
        chosen = np.empty(0, dtype=np.int64)
        while len(chosen) < k:
            sequence = np.concatenate([chosen, self.below(n, 2 * (k - len(chosen)))])
            _, first_seen = np.unique(sequence, return_index=True)
            chosen = sequence[np.sort(first_seen)][:k]
        return np.sort(chosen)


def _words(size: int) -> NDArray[np.uint64]:
    """Uniform 64-bit words."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def _word(n: int) -> tuple[type[np.unsignedinteger], int]:
    """Smallest word type with at most 1/8 of its values unused, and the largest used value."""
    for word in _WORDS[:-1]:
        span = 2 ** (8 * word().itemsize)
        if n < span and 8 * (span % n) <= span:
            return word, span - span % n - 1
    span = 2**64
    return _WORDS[-1], span - span % n - 1


def system_bytes(size: int) -> bytes:
    """Fresh bytes from AES-256 in counter mode, under a key from the operating system.

    Every call draws a new 256-bit key, uses the key once and discards it. So there is no state that
    could be stored, restored or copied by a fork, and no two calls share a stream.

    Raises:
        ImportError: the package ``cryptography`` (extra ``service``) is not installed.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = OSRandomness().below(256, 32).astype(np.uint8).tobytes()
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16)))
    return cipher.encryptor().update(bytes(size))
