"""Yes-no questions from a Hadamard matrix, one a client, and the way back to frequencies.

H is Sylvester's matrix of order K, the least power of two that holds all values: H[x, c] is +1
where x and c share an even number of binary ones. Client i is asked whether H[x, c_i] = +1; its
column c_i is public and has nothing to do with its value.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.hadamard import walsh_hadamard
from turnout.randomness import Source
from turnout.refinement.groups import LARGEST_ORDER

SEED_BYTES = 32
_BLOCK = 2**9

Variant = Literal["default", "as-printed"]


def public_seed(source: Source) -> bytes:
    """A fresh public seed."""
    return source.below(256, SEED_BYTES).astype(np.uint8).tobytes()


def seeded_words(seed: bytes, label: bytes, first: int, count: int) -> NDArray[np.uint64]:
    """64-bit words ``first`` … ``first + count − 1`` of a public stream, the same everywhere.

    SHAKE-256 of the label, the seed and the number of a block of 512 words. Nothing private
    rests on it: whoever has the seed has the words.
    """
    blocks = range(first // _BLOCK, -(-(first + count) // _BLOCK))
    parts = [
        np.frombuffer(
            hashlib.shake_256(label + seed + block.to_bytes(8, "little")).digest(8 * _BLOCK), "<u8"
        )
        for block in blocks
    ]
    if not parts:
        return np.empty(0, dtype=np.uint64)
    start = first - blocks[0] * _BLOCK
    return np.concatenate(parts)[start : start + count].astype(np.uint64)


@dataclass(frozen=True)
class Questions:
    """Which column each client is asked about, and what the answers say.

    Source: Section 7.3.2, Girgis 2023 [girgis2023thesis], after Acharya and Sun 2019.

    Attributes:
        size: k, how many values there are: 0, …, k − 1; at least 2.
        seed: public, `SEED_BYTES` bytes: what columns are drawn from.
        variant: "default" draws each client's column uniformly from the K − 1 columns that are
            not constant; "as-printed" gives client i column i mod K, the constant one
            included, which says nothing, and needs values that do not depend on i.
    """

    size: int
    seed: bytes
    variant: Variant = "default"

    def __post_init__(self) -> None:
        checks.count(2, size=self.size)
        if self.size > LARGEST_ORDER:
            raise ParameterError("size", self.size, "at most 2**24")
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_BYTES:
            raise ParameterError("seed", self.seed, f"{SEED_BYTES} bytes")
        if self.variant not in ("default", "as-printed"):
            raise ParameterError("variant", self.variant, "'default' or 'as-printed'")

    @cached_property
    def order(self) -> int:
        """K."""
        return 1 << (self.size - 1).bit_length()

    def columns(self, first: int, count: int) -> NDArray[np.int64]:
        """The columns of ``count`` clients from number ``first`` on."""
        if self.variant == "as-printed":
            return np.arange(first, first + count, dtype=np.int64) % self.order
        words = seeded_words(self.seed, b"turnout column", first, count)
        # The remainder favours a column by less than K·2⁻⁶⁴.
        return 1 + (words % np.uint64(self.order - 1)).astype(np.int64)

    def truths(self, values: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """1 where the honest answer is yes, else 0; ``values`` of clients ``first`` on."""
        shared = np.bitwise_count(values & self.columns(first, len(values)))
        return 1 - (shared & 1).astype(np.int64)

    def totals(self, answers: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """The numbers of replies no and yes about each column, shape (2, K)."""
        cells = self.columns(first, len(answers)) + self.order * answers
        return np.bincount(cells, minlength=2 * self.order).reshape(2, self.order)

    def frequencies(self, totals: NDArray[np.int64], contrast: float) -> NDArray[np.float64]:
        """Unbiased frequencies of all values, shape (size,).

        Args:
            totals: of `totals`, summed over any blocks of clients; not empty.
            contrast: Pr[yes | honest yes] − Pr[yes | honest no], answers being symmetric.
        """
        signed = (totals[1] - totals[0]).astype(np.float64)
        asked = totals.sum(axis=0)
        if self.variant == "as-printed":
            if not np.all(asked):
                raise ParameterError("clients", int(asked.sum()), f"at least {self.order}")
            return walsh_hadamard(signed / asked)[: self.size] / (self.order * contrast)
        scale = (self.order - 1) / (self.order * float(asked.sum()) * contrast)
        return 1 / self.order + scale * walsh_hadamard(signed)[: self.size]

    def variance(
        self, shares: NDArray[np.float64], clients: int, contrast: float
    ) -> NDArray[np.float64]:
        """Variance of `frequencies`, values being independent draws from ``shares``.

        For "as-printed" every column is asked of equally many clients.
        """
        if self.variant == "as-printed":
            squares = float(np.square(shares).sum())
            return np.full(self.size, (contrast**-2 - squares) / clients)
        order = self.order
        mean = (order * shares - 1) / (order - 1)
        return ((order - 1) / order) ** 2 * (contrast**-2 - np.square(mean)) / clients
