"""Local hashing: a randomized hash of the item; the server decodes all hash functions at once.

`LocalHashing` is the randomizer; `best_cells` chooses its number of cells.

Notation: g the cells (a prime), d the digits of an item to base g, s ∈ {0, …, g − 1}^d the hash
function h_s(v) = ⟨s, v⟩ mod g.

Two items differ in a digit, and a uniform s maps that difference to a uniform cell. So two items
collide with probability 1/g exactly, which is all that the estimator's mean and variance need.
(A linear h_s sends item 0 to cell 0 always; that is a message like any other.) There are only g^d
functions, so the server counts messages by function and cell and computes all items' scores from
that table digit by digit, in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.indexed import LARGEST_HISTOGRAM, IndexedRandomizer
from turnout.randomizers.interface import (
    check_level,
    exponential_below,
    mechanism,
    randomizer_within,
)
from turnout.schemes.randomizers import NonAdaptiveRandomizer

_WORK = 2**31
"""Largest number of additions that the server's decoding may take: some seconds."""


@mechanism("local-hashing", rank=7)
@dataclass(frozen=True)
class LocalHashing(IndexedRandomizer):
    """The item's cell under a random hash function with probability e^ε/(e^ε + g − 1).

    Any other cell has probability 1/(e^ε + g − 1).

    Source: Bassily, Smith, Local, private, efficient protocols for succinct histograms, STOC 2015
        (g = 2, BLH); Wang, Blocki, Li, Jha, USENIX Security 2017 (g = e^ε + 1, OLH). There each
        client has a function of its own and the server works n·k steps; this family has the same
        mean and variance for every item.

    Attributes:
        public: whether the hash functions are public randomness.
        cells: g, a prime; None: the one of least error. 2 gives BLH.

    >>> LocalHashing(epsilon=1.0, items=1000, public=True).message_bits
    2
    """

    cells: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.count(2, items=self.items)
        if self.cells is None:
            object.__setattr__(self, "cells", best_cells(self.epsilon, self.items))
        checks.count(2, cells=self.cells)
        if not _is_prime(self.reply_count):
            raise ParameterError("cells", self.cells, "a prime number")
        super().__post_init__()

    @property
    def digits(self) -> int:
        """Number of digits d of an item to base g."""
        return _digits(self.items, self.reply_count)

    @property
    def index_count(self) -> int:
        """Number of hash functions, g^d."""
        return self.reply_count**self.digits

    @property
    def reply_count(self) -> int:
        """Number of cells, g."""
        assert self.cells is not None
        return self.cells

    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The items' cells under the functions with the given numbers."""
        g = self.reply_count
        total = np.zeros(len(values), dtype=np.int64)
        for _ in range(self.digits):
            values, digit = np.divmod(values, g)
            questions, factor = np.divmod(questions, g)
            total += digit * factor
        return total % g

    @property
    def private_priced_as(self) -> NonAdaptiveRandomizer:
        """Randomizer of ε₀ and total variation (1 − a)(1 − 1/g), as two items collide with 1/g."""
        return randomizer_within(self.epsilon0, (1 - self.blanket) * (1 - self.offset))

    @property
    def gain(self) -> Fraction:
        """Mean score of the client's item minus the mean score of any other item."""
        return (1 - self.blanket) * (1 - self.offset)

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold: the chance 1/g of a collision."""
        return Fraction(1, self.reply_count)

    def score(self, message: int, item: int) -> int:
        """1 where the function maps the item to the message's cell, else 0."""
        function, cell = divmod(message, self.reply_count)
        one = np.array([item]), np.array([function]), np.array([cell])
        return int(self.preferred(*one)[0] == cell)

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of `score` for every item, computed digit by digit from the table of counts."""
        return _hashed(counts, self.reply_count, self.digits)[: self.items]


def best_cells(epsilon: float, items: int) -> int:
    """The prime g of least expected squared error whose decoding is fast enough.

    For an item that no client holds the variance is (e^ε − 1 + g)²/((e^ε − 1)²(g − 1)), least at
    g = e^ε + 1; the nearest primes are within 3 % of it.

    Raises:
        ParameterError: too many items for the server's decoding.
    """
    check_level(epsilon)
    excess = float(exponential_below(epsilon)) - 1
    largest = min(2 * int(excess) + 16, items + 16, 2**13)
    sieve = [g for g in range(2, largest) if _is_prime(g)]
    possible = [g for g in sieve if decoding_work(items, g) <= _WORK]
    possible = [g for g in possible if g ** (_digits(items, g) + 1) <= LARGEST_HISTOGRAM]
    if not possible:
        raise ParameterError("items", items, "few enough to decode local hashing")

    def error(g: int) -> float:
        own, other = (excess + 1) / (excess + g), 1 / g
        return (own * (1 - own) + (items - 1) * other * (1 - other)) / (own - other) ** 2

    return min(possible, key=error)


def decoding_work(items: int, cells: int) -> int:
    """Additions of the decoding: g for each entry of the table and each digit but the last."""
    digits = _digits(items, cells)
    return (digits - 1) * cells ** (digits + 2)


def _digits(items: int, base: int) -> int:
    """The least d with base^d ≥ items."""
    digits, reached = 1, base
    while reached < items:
        digits, reached = digits + 1, reached * base
    return digits


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))


def _hashed(counts: NDArray[np.int64], g: int, digits: int) -> NDArray[np.int64]:
    """The scores Σ_s table[s, ⟨s, v⟩ mod g] for every v, from one digit of s and v after the other.

    After some digits the table holds, for those digits of v, the sum over those digits of s of the
    cell ⟨s, v⟩ places further on. After the last digit only cell 0 is needed.
    """
    # One row of counts for each hash function.
    table = counts.reshape(-1, g)
    # Replace one digit of s after the other by the same digit of v.
    for digit in range(digits - 1, 0, -1):
        # Axes: digits of v so far, this digit of s, the digits of s to come, cell.
        old = table.reshape(g ** (digits - 1 - digit), g, g**digit, g)
        new = np.zeros_like(old)
        for s in range(g):
            # Written twice, a row can be shifted cyclically by a slice.
            turned = np.concatenate([old[:, s], old[:, s]], axis=-1)
            for v in range(g):
                shift = s * v % g
                new[:, v] += turned[..., shift : shift + g]
        table = new
    # The last digit: add up the cell that each function gives each v.
    last = table.reshape(-1, g, g)
    every = np.arange(g)
    cells = np.outer(every, every) % g
    out = np.zeros((len(last), g), dtype=np.int64)
    for s in range(g):
        out += last[:, s, cells[s]]
    return out.reshape(-1)
