"""Randomizers whose server decodes by one fast Walsh–Hadamard transform.

`OneBitHadamard` sends one entry of the item's Hadamard column, `HadamardRandomizer` a row in which
the column is likely +1. `walsh_hadamard` is the transform, which vector randomizers use as well.

Notation: H(i, j) = (−1)^⟨i, j⟩ with ⟨i, j⟩ the parity of the bits that i and j share; a the
blanket of `turnout.randomizers.indexed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.indexed import LARGEST_HISTOGRAM, IndexedRandomizer
from turnout.randomizers.interface import LARGEST_EPSILON, check_level, exponential_below, mechanism
from turnout.schemes import randomizers as spec
from turnout.schemes.randomizers import NonAdaptiveRandomizer

Number = TypeVar("Number", np.int64, np.float32, np.float64)


@mechanism("one-bit-hadamard", rank=6)
@dataclass(frozen=True)
class OneBitHadamard(IndexedRandomizer):
    """One random entry of the item's Hadamard column, flipped with probability 1/(e^ε + 1).

    Source: Acharya, Sun, Communication complexity in locally private distribution estimation and
        heavy hitters, ICML 2019; thesis, Section 7.3.2. There the clients are divided among the
        rows; here each row is drawn, so that the estimate is unbiased for these very clients.

    The message is one bit where the rows are public, log₂ K + 1 bits where a client sends its own.
    There may be up to 2⁶¹ items. A server cannot decode that many items at once;
    `turnout.estimation.prefix_search` decodes a few of them.

    >>> OneBitHadamard(epsilon=1.0, items=1000, public=True).message_bits
    1
    """

    largest_count: ClassVar[int] = 2**62
    score_values: ClassVar[tuple[int, int]] = (-1, 1)

    @property
    def index_count(self) -> int:
        """Number of rows K: the smallest power of two that is at least k."""
        return 1 << (self.items - 1).bit_length()

    @property
    def reply_count(self) -> int:
        """Two replies: 0 for an entry +1, 1 for an entry −1."""
        return 2

    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """0 where H(row, item) = +1, else 1."""
        return parity(questions & values)

    @property
    def private_priced_as(self) -> NonAdaptiveRandomizer:
        """Hadamard response: K of 2K messages are likely; two columns agree in K/2 rows."""
        return spec.HadamardResponse(self.epsilon0)

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold: 0, as columns are orthogonal."""
        return Fraction(0)

    def score(self, message: int, item: int) -> int:
        """+1 where the reply is the item's entry in that row, −1 where it is not."""
        row, reply = divmod(message, 2)
        return 1 if (row & item).bit_count() % 2 == reply else -1

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The transform of the counts of reply 0 minus those of reply 1."""
        return walsh_hadamard(counts[0::2] - counts[1::2])[: self.items]

    def variance(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """Variance of each estimated frequency, given what the clients hold."""
        return (1 / float(self.gain) ** 2 - self.shares(frequencies, clients)) / clients

    def mse_bound(self, clients: int) -> float:
        """Expected squared ℓ2 error of the raw estimate, the same whatever the clients hold."""
        checks.count(clients=clients)
        return float((self.items / self.gain**2 - 1) / clients)


@mechanism("hadamard", rank=5)
@dataclass(frozen=True)
class HadamardRandomizer(IndexedRandomizer):
    """A row of the item's block; rows where the item's Hadamard column is +1 are more likely.

    Item v is in block v mod B and has column ⌊v/B⌋ + 1 of at most b − 1 there. The messages are the
    B·b rows of all blocks. An item prefers the b/2 rows of its block where H(row, column) = +1.

    Source: Acharya, Sun, Zhang, Hadamard response, AISTATS 2019, Section 5; thesis (7.49). There
        B = 2^(⌈log₂ min(e^ε, 2k)⌉ − 1), and consecutive items share a block, so that of items
        sorted by frequency one block has nearly all clients and nearly all noise. Here B is chosen
        for the least error: at ε = 1, k = 1000 B = 1 has 16 % less variance than the printed B = 2.

    Attributes:
        blocks: B; None: the number of least error.
    """

    blocks: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.count(2, items=self.items)
        if self.blocks is None:
            object.__setattr__(self, "blocks", best_blocks(self.epsilon, self.items))
        checks.count(blocks=self.blocks)
        super().__post_init__()

    @property
    def _blocks(self) -> int:
        assert self.blocks is not None
        return self.blocks

    @property
    def block_rows(self) -> int:
        """Number b of rows of a block: the least power of two with b − 1 ≥ k/B."""
        return _block_rows(self.items, self._blocks)

    @property
    def reply_count(self) -> int:
        """Number of rows of all blocks, B·b."""
        return self._blocks * self.block_rows

    @property
    def preferred_count(self) -> int:
        """Preferred rows of an item: half of its block."""
        return self.block_rows // 2

    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The uniform row, moved into the item's block, and by one bit if its entry is −1."""
        column, block = np.divmod(values, self._blocks)
        column += 1
        row = replies & (self.block_rows - 1)
        # Flipping the lowest bit of the column changes the sign: two rows go to each preferred one.
        row ^= (column & -column) * parity(row & column)
        return block * self.block_rows + row

    @property
    def private_priced_as(self) -> NonAdaptiveRandomizer:
        """Hadamard response for one block; else ε₀ and the total variation 1 − a of two blocks."""
        one = self.blocks == 1
        return spec.HadamardResponse(self.epsilon0) if one else super().private_priced_as

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold: 0, as columns are orthogonal."""
        return Fraction(0)

    def score(self, message: int, item: int) -> int:
        """The item's entry H(row, column) in its block, 0 for a row of another block."""
        column, block = divmod(item, self._blocks)
        at, row = divmod(message, self.block_rows)
        if at != block:
            return 0
        return -1 if (row & (column + 1)).bit_count() % 2 else 1

    @property
    def score_values(self) -> tuple[int, int] | None:  # type: ignore[override]
        """The two values +1 and −1 for one block; None for several, where 0 occurs as well."""
        return (-1, 1) if self.blocks == 1 else None

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """One transform for each block: item v is column ⌊v/B⌋ + 1 of block v mod B."""
        blocks = walsh_hadamard(counts.reshape(-1, self.block_rows))
        return blocks[:, 1:].T.reshape(-1)[: self.items]

    def squares(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of messages in each item's block: each scores ±1, so its square is 1."""
        return np.resize(counts.reshape(-1, self.block_rows).sum(axis=1), self.items)

    def variance(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """Variance of each estimated frequency, given what the clients hold."""
        shares = self.shares(frequencies, clients)
        block = np.arange(self.items) % self._blocks
        inside = np.bincount(block, weights=shares, minlength=self._blocks)[block]
        gain = float(self.gain)
        hit = float(self.blanket) / self._blocks + gain * inside
        return (hit / gain**2 - shares) / clients

    def mse_bound(self, clients: int) -> float:
        """Largest expected squared ℓ2 error of the raw estimate: all items in the fullest block."""
        checks.count(clients=clients)
        a, fullest = self.blanket, -(-self.items // self._blocks)
        spread = a * self.items / self._blocks + (1 - a) * fullest
        return float((spread / self.gain**2 - 1) / clients)


def walsh_hadamard(table: NDArray[Number]) -> NDArray[Number]:
    """The transform Σ_i (−1)^⟨i, j⟩ table[…, i] for every j, shape (…, K).

    Args:
        table: shape (…, K), K a power of two, of int64, float32 or float64.

    >>> walsh_hadamard(np.array([1, 0, 2, 0])).tolist()
    [3, 3, -1, -1]
    """
    out = np.array(table)
    size, half = out.shape[-1], 1
    while half < size:
        pairs = out.reshape(*out.shape[:-1], size // (2 * half), 2, half)
        low, high = pairs[..., 0, :].copy(), pairs[..., 1, :].copy()
        np.add(low, high, out=pairs[..., 0, :])
        np.subtract(low, high, out=pairs[..., 1, :])
        half *= 2
    return out


def parity(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """1 where a number has an odd number of set bits, else 0."""
    return (np.bitwise_count(numbers) & np.uint8(1)).astype(np.int64)


def best_blocks(epsilon: float, items: int) -> int:
    """The number of blocks B of least mean variance over items of equal frequency.

    With C = 1/(1 − a) = 1 + 2B/(e^ε − 1) the variance is about C²/B. The candidates are the numbers
    of blocks of b rows that hold all items, for each power of two b.

    Raises:
        ParameterError: so many items that every choice has more messages than the server counts.
    """
    check_level(min(epsilon, LARGEST_EPSILON))
    excess = float(exponential_below(epsilon)) - 1
    candidates, rows = [], 2
    while True:
        blocks = -(-items // (rows - 1))
        if blocks * rows <= LARGEST_HISTOGRAM:
            candidates.append(blocks)
        if blocks == 1:
            break
        rows *= 2
    if not candidates:
        raise ParameterError("items", items, f"few enough for {LARGEST_HISTOGRAM} messages")
    return min(candidates, key=lambda blocks: (1 + 2 * blocks / excess) ** 2 / blocks)


def _block_rows(items: int, blocks: int) -> int:
    """The least power of two that is above ⌈items / blocks⌉."""
    return 1 << (-(-items // blocks)).bit_length()
