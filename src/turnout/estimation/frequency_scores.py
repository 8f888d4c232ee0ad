"""All items' scores at once, in whole numbers: fast transforms of a tally."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import UnsupportedError
from turnout.estimation.frequency_tallies import FrequencyTally
from turnout.randomizers.bitmaps import BitmapRandomizer
from turnout.randomizers.categorical import KaryRandomizedResponse
from turnout.randomizers.hadamard import HadamardResponse, OneBitHadamard
from turnout.randomizers.hashing import LocalHashing


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a tally says about every item, ready for limits and tests.

    Attributes:
        clients: n.
        sums: sum of scores, int64 of shape (k,).
        squares: sum of squared scores, int64 of shape (k,).
        gain: by how much holding an item raises its mean score.
        counts: messages that support each item, where every message either does or does not;
            None where a message may say nothing about an item.
        other: probability that a message supports an item that its client does not hold.
        lift: by how much holding the item raises that probability.
    """

    clients: int
    sums: NDArray[np.int64]
    squares: NDArray[np.int64]
    gain: float
    counts: NDArray[np.int64] | None
    other: float
    lift: float

    @property
    def items(self) -> int:
        """Items, k."""
        return self.sums.size


def evidence(tally: FrequencyTally) -> Evidence:
    """What the messages say about every item."""
    randomizer, n = tally.randomizer, tally.clients
    sums, gain = scores(tally), float(randomizer.gain)
    if not isinstance(randomizer, OneBitHadamard | HadamardResponse):
        return Evidence(n, sums, sums, gain, sums, float(randomizer.offset), gain)
    if isinstance(randomizer, OneBitHadamard) or randomizer.blocks == 1:
        every = np.full(sums.shape, n, dtype=np.int64)
        return Evidence(n, sums, every, gain, (n + sums) // 2, 0.5, gain / 2)
    in_block = tally.counts.reshape(-1, randomizer.block_rows).sum(axis=1)
    squares = np.resize(in_block, randomizer.items)  # Item v is in block v mod B.
    return Evidence(n, sums, squares, gain, None, 0.0, 0.0)


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
        # Item v is column ⌊v/B⌋ + 1 of block v mod B.
        return blocks[:, 1:].T.reshape(-1)[: randomizer.items]
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
