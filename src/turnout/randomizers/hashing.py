"""Local hashing: each client sends a randomized hash of its item.

`LocalHashing` is the randomizer; `best_cells` chooses its number of cells.

Notation: g is the number of cells (values of a hash function), a prime; d is the number of digits
of an item to base g; a vector s ∈ {0, …, g − 1}^d is the hash function h_s(v) = ⟨s, v⟩ mod g.

Two items differ in at least one digit, and a uniform s maps that difference to a uniform cell. So
two items have the same hash with probability exactly 1/g. The mean and the variance of the
estimator depend on no other property of the hash functions; for example, every h_s may map item 0
to cell 0. There are only g^d functions, so the server counts messages by function and cell, and
computes all items' scores from that table digit by digit, in whole numbers.
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
"""Largest number of additions that decoding may need; the server does them in a few seconds."""


@mechanism("local-hashing", rank=7)
@dataclass(frozen=True)
class LocalHashing(IndexedRandomizer):
    """Randomizer that sends the item's cell under a random hash function, or another cell.

    The item's cell has probability e^ε/(e^ε + g − 1), each other cell 1/(e^ε + g − 1).

    Source: Bassily, Smith, Local, private, efficient protocols for succinct histograms, STOC 2015
        (g = 2, called BLH); Wang, Blocki, Li, Jha, USENIX Security 2017 (g = e^ε + 1, called OLH).
        Their hash functions are from families so large that the server's decoding takes n·k steps;
        the family used here gives the same mean and variance for every item.

    Attributes:
        public: whether the hash functions are public randomness.
        cells: number of cells g, a prime; 2 gives BLH. If None, `best_cells` chooses g.

    Raises:
        ParameterError: a parameter outside its domain, or too many items for the server to decode.

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
        """Cell of each client's item under the client's hash function; shape (n,)."""
        g = self.reply_count
        total = np.zeros(len(values), dtype=np.int64)
        for _ in range(self.digits):
            values, digit = np.divmod(values, g)
            questions, factor = np.divmod(questions, g)
            total += digit * factor
        return total % g

    @property
    def private_priced_as(self) -> NonAdaptiveRandomizer:
        """Accountant's randomizer if the hash functions are not public.

        Its total variation is (1 − a)(1 − 1/g), with a the `blanket` and g the number of cells.
        """
        # Two items have the same hash, hence the same message, with probability 1/g.
        return randomizer_within(self.epsilon0, (1 - self.blanket) * (1 - self.offset))

    @property
    def gain(self) -> Fraction:
        """Mean score of the client's item minus the mean score of any other item."""
        return (1 - self.blanket) * (1 - self.offset)

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold: 1/g for g cells.

        This is the probability that two items have the same hash.
        """
        return Fraction(1, self.reply_count)

    def score(self, message: int, item: int) -> int:
        """Score 1 if the message's hash function maps the item to the message's cell, else 0."""
        function, cell = divmod(message, self.reply_count)
        one = np.array([item]), np.array([function]), np.array([cell])
        return int(self.preferred(*one)[0] == cell)

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of `score` for every item, (items,), digit by digit from counts (messages,)."""
        return _hashed(counts, self.reply_count, self.digits)[: self.items]


def best_cells(epsilon: float, items: int) -> int:
    """The prime g with the smallest expected squared error among those that decode fast enough.

    For an item that no client holds the variance is (e^ε − 1 + g)²/((e^ε − 1)²(g − 1)). This
    variance is smallest at g = e^ε + 1; the nearest primes have at most 3 % more variance.

    Args:
        epsilon: requested privacy level ε, above 0, at most 30.
        items: number of items k, at least 2.

    Raises:
        ParameterError: ``epsilon`` outside its domain, or too many items for the server to decode.
    """
    check_level(epsilon)
    excess = float(exponential_below(epsilon)) - 1
    # The primes up to about twice the optimum.
    largest = min(2 * int(excess) + 16, items + 16, 2**13)
    sieve = [g for g in range(2, largest) if _is_prime(g)]
    # Keep the primes for which the server can decode: few additions, and a table that fits.
    possible = [g for g in sieve if decoding_work(items, g) <= _WORK]
    possible = [g for g in possible if g ** (_digits(items, g) + 1) <= LARGEST_HISTOGRAM]
    if not possible:
        raise ParameterError("items", items, "few enough items for local hashing to decode")

    # Choose the prime of least expected squared error, computed exactly.
    def error(g: int) -> float:
        own, other = (excess + 1) / (excess + g), 1 / g
        return (own * (1 - own) + (items - 1) * other * (1 - other)) / (own - other) ** 2

    return min(possible, key=error)


def decoding_work(items: int, cells: int) -> int:
    """Number of additions that decoding takes: (d − 1)·g^(d + 2).

    Args:
        items: number of items k.
        cells: number of cells g; an item has d digits to base g.
    """
    # Each digit but the last takes g additions for each of the g^(d + 1) entries of the table.
    digits = _digits(items, cells)
    return (digits - 1) * cells ** (digits + 2)


def _digits(items: int, base: int) -> int:
    """The least number of digits d with base^d ≥ items."""
    digits, reached = 1, base
    while reached < items:
        digits, reached = digits + 1, reached * base
    return digits


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))


def _hashed(counts: NDArray[np.int64], g: int, digits: int) -> NDArray[np.int64]:
    """The scores Σ_s table[s, ⟨s, v⟩ mod g] of all items v, shape (g^d,).

    The sum is computed one digit at a time. Each step replaces a digit of s by the same digit of v:
    it sums over that digit of s, after shifting the cells by the product of the two digits. After
    the last digit only the entry of cell 0 is needed.
    """
    # One row of counts for each hash function.
    table = counts.reshape(-1, g)
    # Replace one digit of s after the other by the same digit of v.
    for digit in range(digits - 1, 0, -1):
        # Axes: digits of v computed so far, this digit of s, remaining digits of s, cell.
        old = table.reshape(g ** (digits - 1 - digit), g, g**digit, g)
        new = np.zeros_like(old)
        for s in range(g):
            # A row that is repeated once can be shifted cyclically by taking a slice.
            turned = np.concatenate([old[:, s], old[:, s]], axis=-1)
            for v in range(g):
                shift = s * v % g
                new[:, v] += turned[..., shift : shift + g]
        table = new
    # The last digit: add the count of the cell to which each function maps each v.
    last = table.reshape(-1, g, g)
    every = np.arange(g)
    cells = np.outer(every, every) % g
    out = np.zeros((len(last), g), dtype=np.int64)
    for s in range(g):
        out += last[:, s, cells[s]]
    return out.reshape(-1)
