"""Randomizers whose server decodes by one fast Walsh–Hadamard transform.

`OneBitHadamard` sends one randomly flipped entry of the item's Hadamard column.
`HadamardRandomizer` sends the number of a row; rows in which the item's column is +1 are more
likely. `walsh_hadamard` is the transform, which vector randomizers use as well.

Notation: H(i, j) = (−1)^⟨i, j⟩, where ⟨i, j⟩ is the parity of the number of bits that are 1 in both
i and j; a is the blanket of `turnout.randomizers.indexed`.
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
        heavy hitters, ICML 2019; thesis, Section 7.3.2. The paper divides the clients among the
        rows; this class draws each client's row at random, so that the estimate is unbiased for
        every fixed set of clients.

    The message has one bit if the rows are public, and log₂ K + 1 bits if each client draws a row
    and sends its number, with K rows. There may be up to 2⁶¹ items. A server cannot decode that
    many items at once; `turnout.estimation.prefix_search` decodes a few of them.

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
        """Number of replies, 2: reply 0 means the entry +1, reply 1 the entry −1."""
        return 2

    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Preferred reply of each client: 0 where H(row, item) = +1, 1 where it is −1."""
        return parity(questions & values)

    @property
    def private_priced_as(self) -> NonAdaptiveRandomizer:
        """Accountant's randomizer if rows are not public: Hadamard response, of equal privacy."""
        # Each item prefers K of the 2K messages, and two items share K/2 preferred messages.
        return spec.HadamardResponse(self.epsilon0)

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold: 0, as columns are orthogonal."""
        return Fraction(0)

    def score(self, message: int, item: int) -> int:
        """Score +1 if the reply equals the item's entry in the message's row, else −1."""
        row, reply = divmod(message, 2)
        return 1 if (row & item).bit_count() % 2 == reply else -1

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Score of each item, shape (k,): the transform of counts of reply 0 minus reply 1."""
        return walsh_hadamard(counts[0::2] - counts[1::2])[: self.items]

    def variance(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """Variance of each estimated frequency, given the clients' items; shape (k,).

        Args:
            frequencies: share of the clients that hold each item, shape (k,).
            clients: number of clients n, at least 1.

        Raises:
            ParameterError: no client, a wrong shape, or a frequency outside [0, 1].
        """
        return (1 / float(self.gain) ** 2 - self.shares(frequencies, clients)) / clients

    def mse_bound(self, clients: int) -> float:
        """Expected squared ℓ2 error of the raw estimate, the same whichever items the clients hold.

        Raises:
            ParameterError: ``clients`` is below 1.
        """
        checks.count(clients=clients)
        return float((self.items / self.gain**2 - 1) / clients)


@mechanism("hadamard", rank=5)
@dataclass(frozen=True)
class HadamardRandomizer(IndexedRandomizer):
    """Randomizer that sends a row; rows where the item's Hadamard column is +1 are more likely.

    The rows are divided into B blocks of b rows. Item v belongs to block v mod B, where it has the
    column ⌊v/B⌋ + 1; a block has at most b − 1 items. There are B·b messages, the rows of all
    blocks. An item prefers the b/2 rows of its block where H(row, column) = +1.

    Source: Acharya, Sun, Zhang, Hadamard response, AISTATS 2019, Section 5; thesis (7.49). The
        paper sets B = 2^(⌈log₂ min(e^ε, 2k)⌉ − 1) and puts consecutive items into one block. If the
        items are sorted by frequency, one block then has nearly all clients and nearly all noise.
        This class assigns items to the blocks in turn, and uses the B with the smallest error. At
        ε = 1 and k = 1000 this is B = 1, which has 16 % less variance than the paper's B = 2.

    Attributes:
        blocks: number of blocks B; if None, `best_blocks` chooses B.

    Raises:
        ParameterError: a parameter outside its domain, or too many items for the server to decode.
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
        """Number b of rows in a block: the least power of two with b − 1 ≥ k/B."""
        return _block_rows(self.items, self._blocks)

    @property
    def reply_count(self) -> int:
        """Number of replies: the B·b rows of all blocks."""
        return self._blocks * self.block_rows

    @property
    def preferred_count(self) -> int:
        """Number of preferred rows of an item: half of the rows of its block."""
        return self.block_rows // 2

    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """A preferred row for each client, computed from a uniform row; shape (n,)."""
        column, block = np.divmod(values, self._blocks)
        column += 1
        # Take the uniform row's place in the item's own block.
        row = replies & (self.block_rows - 1)
        # If the entry there is −1, flip the row's bit at the column's lowest set bit: the entry
        # becomes +1. So two rows lead to each preferred row, which keeps the result uniform.
        row ^= (column & -column) * parity(row & column)
        return block * self.block_rows + row

    @property
    def private_priced_as(self) -> NonAdaptiveRandomizer:
        """Accountant's randomizer of equal privacy: Hadamard response if there is one block."""
        # With several blocks, items of different blocks have the total variation 1 − a.
        one = self.blocks == 1
        return spec.HadamardResponse(self.epsilon0) if one else super().private_priced_as

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold: 0, as columns are orthogonal."""
        return Fraction(0)

    def score(self, message: int, item: int) -> int:
        """Score: the entry H(row, column) if the row is in the item's block, else 0."""
        column, block = divmod(item, self._blocks)
        at, row = divmod(message, self.block_rows)
        if at != block:
            return 0
        return -1 if (row & (column + 1)).bit_count() % 2 else 1

    @property
    def score_values(self) -> tuple[int, int] | None:  # type: ignore[override]
        """The two values −1 and +1 if there is one block; None otherwise, as 0 also occurs."""
        return (-1, 1) if self.blocks == 1 else None

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Score of each item, shape (k,): one transform for each block."""
        # Item v is column ⌊v/B⌋ + 1 of block v mod B.
        blocks = walsh_hadamard(counts.reshape(-1, self.block_rows))
        return blocks[:, 1:].T.reshape(-1)[: self.items]

    def squares(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of squared scores of each item: the number of messages in its block, shape (k,)."""
        return np.resize(counts.reshape(-1, self.block_rows).sum(axis=1), self.items)

    def variance(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """Variance of each estimated frequency, given the clients' items; shape (k,).

        Args:
            frequencies: share of the clients that hold each item, shape (k,).
            clients: number of clients n, at least 1.

        Raises:
            ParameterError: no client, a wrong shape, or a frequency outside [0, 1].
        """
        shares = self.shares(frequencies, clients)
        # Share of the clients whose item is in the same block.
        block = np.arange(self.items) % self._blocks
        inside = np.bincount(block, weights=shares, minlength=self._blocks)[block]
        gain = float(self.gain)
        # A message has the squared score 1 if it is in the item's block, with this probability.
        hit = float(self.blanket) / self._blocks + gain * inside
        return (hit / gain**2 - shares) / clients

    def mse_bound(self, clients: int) -> float:
        """Largest expected squared ℓ2 error of the raw estimate, over all items of clients.

        The error is largest if all clients' items are in the block with the most items.

        Raises:
            ParameterError: ``clients`` is below 1.
        """
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
    # Fast transform: in each round, add and subtract entries whose numbers differ in one bit.
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
    """Array with 1 where a number has an odd number of set bits, else 0; the shape of the input."""
    return (np.bitwise_count(numbers) & np.uint8(1)).astype(np.int64)


def best_blocks(epsilon: float, items: int) -> int:
    """The number of blocks B that minimises the mean variance over items of equal frequency.

    The variance is about C²/B with C = 1 + 2B/(e^ε − 1). For each power of two b, the candidate is
    the least number of blocks of b rows that holds all items.

    Args:
        epsilon: requested privacy level ε, above 0, at most 30.
        items: number of items k, at least 2.

    Raises:
        ParameterError: for every B there are more messages than the server can count.
    """
    check_level(min(epsilon, LARGEST_EPSILON))
    excess = float(exponential_below(epsilon)) - 1
    # Collect the candidate of each block size b = 2, 4, … until one block holds all items.
    candidates, rows = [], 2
    while True:
        blocks = -(-items // (rows - 1))
        if blocks * rows <= LARGEST_HISTOGRAM:
            candidates.append(blocks)
        if blocks == 1:
            break
        rows *= 2
    if not candidates:
        expected = f"a number that needs at most {LARGEST_HISTOGRAM} different messages"
        raise ParameterError("items", items, expected)
    # Choose the candidate of least variance.
    return min(candidates, key=lambda blocks: (1 + 2 * blocks / excess) ** 2 / blocks)


def _block_rows(items: int, blocks: int) -> int:
    """The least power of two that is above ⌈items / blocks⌉."""
    return 1 << (-(-items // blocks)).bit_length()
