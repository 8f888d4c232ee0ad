"""All items' scores at once, in whole numbers: fast transforms of a tally."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import UnsupportedError
from turnout.estimation.frequency_tallies import FrequencyTally
from turnout.randomizers.bitmaps import BitmapRandomizer
from turnout.randomizers.categorical import KaryRandomizedResponse
from turnout.randomizers.hadamard import HadamardResponse, OneBitHadamard
from turnout.randomizers.hashing import LocalHashing


def scores(tally: FrequencyTally) -> NDArray[np.int64]:
    """Sum of `FrequencyRandomizer.score` over the messages, for every item, exactly.

    Returns:
        int64 array of shape (k,).
    """
    randomizer, counts = tally.randomizer, tally.counts
    if isinstance(randomizer, KaryRandomizedResponse | BitmapRandomizer):
        return counts
    if isinstance(randomizer, OneBitHadamard):
        return walsh_hadamard(counts[0::2] - counts[1::2])[: randomizer.items]
    if isinstance(randomizer, HadamardResponse):
        blocks = walsh_hadamard(counts.reshape(-1, randomizer.block_rows))
        return blocks[:, 1:].reshape(-1)[: randomizer.items]
    if isinstance(randomizer, LocalHashing):
        return _hashed(counts, randomizer.reply_count, randomizer.digits)[: randomizer.items]
    raise UnsupportedError(f"no decoder is known for {type(randomizer).__name__}")


def walsh_hadamard(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Σ_i (−1)^⟨i, j⟩ table[…, i] for every j, by butterflies.

    Args:
        table: shape (…, K), K a power of two.

    >>> walsh_hadamard(np.array([1, 0, 2, 0])).tolist()
    [3, 3, -1, -1]
    """
    out = np.array(table, dtype=np.int64)
    size, half = out.shape[-1], 1
    while half < size:
        pairs = out.reshape(*out.shape[:-1], size // (2 * half), 2, half)
        low, high = pairs[..., 0, :].copy(), pairs[..., 1, :].copy()
        np.add(low, high, out=pairs[..., 0, :])
        np.subtract(low, high, out=pairs[..., 1, :])
        half *= 2
    return out


def _hashed(counts: NDArray[np.int64], g: int, digits: int) -> NDArray[np.int64]:
    """Σ_s table[s, ⟨s, v⟩ mod g] for every v, one digit of s and v after the other.

    After some digits the table holds, for their part of v, the sum over their part of s of the
    cell that lies ⟨s, v⟩ further on; after the last one only cell 0 is asked for.
    """
    table = counts.reshape(-1, g)
    for digit in range(digits - 1, 0, -1):
        # Axes: digits of v so far, this digit of s, the digits of s to come, cell.
        old = table.reshape(g ** (digits - 1 - digit), g, g**digit, g)
        new = np.zeros_like(old)
        for s in range(g):
            turned = np.concatenate([old[:, s], old[:, s]], axis=-1)
            for v in range(g):
                shift = s * v % g
                new[:, v] += turned[..., shift : shift + g]
        table = new
    last = table.reshape(-1, g, g)
    every = np.arange(g)
    cells = np.outer(every, every) % g
    out = np.zeros((len(last), g), dtype=np.int64)
    for s in range(g):
        out += last[:, s, cells[s]]
    return out.reshape(-1)
