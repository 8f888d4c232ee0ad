"""Randomizers whose messages are sets of items: subset selection and unary encodings.

`BitmapRandomizer` is the common base class; a message is a bitmap with one bit for every item.
`SubsetSelection` sends a random set of ω items that contains the client's item with probability c;
`UnaryEncoding` encodes the item as a bitmap with one set bit and flips every bit independently.

Notation: ω is the size of the set (`size`), c the probability that the client's item is in the set.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from math import comb, floor, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import (
    FrequencyRandomizer,
    Rows,
    check_level,
    exponential_below,
    mechanism,
    on_grid_above,
    on_grid_below,
    randomizer_within,
    root_below,
)
from turnout.randomizers.packing import pack_rows, unpack_rows
from turnout.randomness import Source
from turnout.schemes.randomizers import NonAdaptiveRandomizer

_ONE = np.uint64(1)


@dataclass(frozen=True)
class BitmapRandomizer(FrequencyRandomizer):
    """Randomizer whose message is a bitmap of k bits, one for each item.

    As a number, a message has bit j set where the bit of item j is set.
    """

    @property
    @abstractmethod
    def own(self) -> Fraction:
        """Probability that the bit of the client's item is set."""

    @property
    @abstractmethod
    def other(self) -> Fraction:
        """Probability that the bit of another item is set."""

    @property
    def priced_as(self) -> NonAdaptiveRandomizer:
        """Randomizer with which the accountant bounds the privacy loss of a message."""
        # The distributions under two items have a total variation of at most `own` − `other`.
        return randomizer_within(self.epsilon0, self.own - self.other)

    @property
    def message_bits(self) -> int:
        """Number of bits of a client's message, k: one bit for each item."""
        return self.items

    @property
    def gain(self) -> Fraction:
        """Mean score of the client's item minus the mean score of any other item."""
        return self.own - self.other

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold."""
        return self.other

    def score(self, message: int, item: int) -> int:
        """Score 1 if the item's bit is set in the message, else 0."""
        return message >> item & 1

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Score of each item, shape (k,): the number of messages that have the item's bit set."""
        return counts

    def pack(self, messages: NDArray) -> bytes:
        """Messages, shape (n, ⌈k / 64⌉), packed into ⌈n · k / 8⌉ bytes."""
        return pack_rows(messages, self.items)

    def unpack(self, data: bytes, n: int) -> Rows:
        """The n messages that ``data`` contains, shape (n, ⌈k / 64⌉).

        Raises:
            ParameterError: ``data`` cannot be n packed messages.
        """
        checks.count(0, n=n)
        return unpack_rows(data, n, self.items)


def set_bits(rows: Rows, columns: NDArray[np.int64], bits: NDArray[np.bool_]) -> None:
    """Write one bit in each row of bitmaps, in place.

    Args:
        rows: bitmaps, shape (n, words).
        columns: position of the bit, shape (n,).
        bits: value to write, shape (n,).
    """
    places = np.arange(len(rows)) * rows.shape[1] + (columns >> 6)
    masks = _ONE << (columns & 63).astype(np.uint64)
    flat = rows.reshape(-1)
    flat[places] = np.where(bits, flat[places] | masks, flat[places] & ~masks)


@mechanism("subset", rank=4)
@dataclass(frozen=True)
class SubsetSelection(BitmapRandomizer):
    """Subset selection: a random set of ω items that has the client's item with probability c.

    All sets with the item are equally likely, and all sets without it are equally likely. With
    c = ωe^ε/(ωe^ε + k − ω), a set with the client's item is e^ε times as likely as a set without.

    Source: Ye, Barg, Optimal schemes for discrete distribution estimation under locally
        differential privacy, IEEE Trans. Inf. Theory 2018; Wang et al., arXiv:1607.08025.

    Attributes:
        size: number ω of items in a set, below k. If None, `best_size` chooses ω, about
            k/(e^ε + 1).

    Raises:
        ParameterError: a parameter outside its domain.

    >>> SubsetSelection(epsilon=1.0, items=1000).size
    269
    """

    size: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is None:
            object.__setattr__(self, "size", best_size(self.epsilon, self.items))
        checks.count(size=self.size)
        checks.at_most("items - 1", self.items - 1, size=self._size)

    @property
    def _size(self) -> int:
        assert self.size is not None
        return self.size

    @property
    def own(self) -> Fraction:
        """Probability c that the set has the client's item."""
        return self._inside

    @cached_property
    def _inside(self) -> Fraction:
        weight = self._size * exponential_below(self.epsilon)
        return on_grid_below(weight / (weight + self.items - self._size))

    @property
    def other(self) -> Fraction:
        """Probability that the set has another item."""
        return (self._size - self.own) / (self.items - 1)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two items, exactly."""
        c = self.own
        return c / (1 - c) * Fraction(self.items - self._size, self._size)

    def probabilities(self, item: int) -> list[Fraction]:
        """Probability of each of the 2^k bitmaps under an item; for small k."""
        # All sets with the item are equally likely, and so are all sets without it.
        inside = self.own / comb(self.items - 1, self._size - 1)
        outside = (1 - self.own) / comb(self.items - 1, self._size)
        return [
            (inside if number >> item & 1 else outside)
            if number.bit_count() == self._size
            else Fraction(0)
            for number in range(2**self.items)
        ]

    def encode(self, values: ArrayLike, source: Source) -> Rows:
        """One bitmap with ω bits set for each value, uint64 of shape (n, ⌈k / 64⌉).

        Raises:
            ParameterError: a value that is not a whole number from 0 to k − 1, or a wrong shape.
        """
        array = self.checked(values)
        inside = source.bernoulli(self.own, array.size)
        rows = _sets_without(array, self._size - inside, self.items, source)
        set_bits(rows, array, inside)
        return rows


def best_size(epsilon: float, items: int) -> int:
    """The size ω of a set with the smallest expected squared error.

    Source: Ye and Barg 2018, who show that this size is one of the two whole numbers nearest to
        k/(e^ε + 1).

    Args:
        epsilon: requested privacy level ε, above 0, at most 30.
        items: number of items k, at least 2.

    Raises:
        ParameterError: ``epsilon`` outside its domain.
    """
    check_level(epsilon)
    e = float(exponential_below(epsilon))
    low = min(max(floor(items / (e + 1)), 1), items - 1)

    def spread(size: int) -> float:
        own = size * e / (size * e + items - size)
        other = (size - own) / (items - 1)
        return (own * (1 - own) + (items - 1) * other * (1 - other)) / (own - other) ** 2

    return min((low, min(low + 1, items - 1)), key=spread)


def _sets_without(
    excluded: NDArray[np.int64], sizes: NDArray[np.int64], columns: int, source: Source
) -> Rows:
    """Bitmaps of a uniform set of ``sizes[i]`` columns in each row i, without ``excluded[i]``.

    First each column is put into the set independently, all with the same probability; given the
    size of the set, the set is uniform. If the set is too small, uniform columns outside the set
    are added one by one; if the set is too large, uniform columns of the set are removed. Both
    steps keep the set uniform given its size, since a uniform set plus a uniform column outside it
    (or minus a uniform column of the set) is a uniform set of the next size.
    """
    mean = float(sizes.mean()) if len(sizes) else 0.0
    # The common probability changes only the running time, not the result. It makes sets slightly
    # too small, as a random column can be added more often than it can be removed.
    share = (mean - 0.8 * sqrt(mean * (1 - mean / columns))) / (columns - 1)
    rows = source.packed_bernoulli(min(max(share, 0.0), 1.0), len(excluded), columns)
    set_bits(rows, excluded, np.zeros(len(excluded), dtype=np.bool_))
    # Remove the excluded column, then bring each set to its size.
    lacking = sizes - np.bitwise_count(rows).sum(axis=1, dtype=np.int64)
    _resize(rows, lacking, excluded, columns, source)
    return rows


def _resize(
    rows: Rows,
    lacking: NDArray[np.int64],
    excluded: NDArray[np.int64],
    columns: int,
    source: Source,
) -> None:
    """Set ``lacking[i]`` more bits in row i, in place; a negative number clears bits."""
    # For the rows that need a change: number of bits, first word, and whether to set or to clear.
    flat, words = rows.reshape(-1), rows.shape[1]
    open_rows = np.flatnonzero(lacking)
    left, starts = np.abs(lacking[open_rows]), open_rows * words
    wanted, skipped = lacking[open_rows] > 0, excluded[open_rows]
    while len(left):
        # A uniform column other than the excluded one.
        column = source.below(columns - 1, len(left))
        column += column >= skipped
        places = starts + (column >> 6)
        masks = _ONE << (column & 63).astype(np.uint64)
        word = flat[places]
        # Flip the column's bit if that brings the set closer to its size; else draw again.
        flips = ((word & masks) == 0) == wanted
        flat[places] = np.where(flips, word ^ masks, word)
        left -= flips
        # Keep the rows that still need a change.
        if not left.all():
            kept = np.flatnonzero(left)
            left, starts, wanted, skipped = left[kept], starts[kept], wanted[kept], skipped[kept]


@mechanism("oue", rank=3)
@dataclass(frozen=True)
class UnaryEncoding(BitmapRandomizer):
    """Unary encoding: the bit of the client's item is 1 with probability p, any other with q.

    The bitmaps of two items differ in two bits, so the ratio is p(1 − q)/(q(1 − p)).

    Source: "symmetric", p = 1 − q = e^{ε/2}/(e^{ε/2} + 1): Erlingsson, Pihur, Korolova, RAPPOR,
        CCS 2014 (the permanent response without Bloom filter). "optimised", p = 1/2 and
        q = 1/(e^ε + 1): Wang, Blocki, Li, Jha, USENIX Security 2017 (OUE). Table 7.1 of the thesis
        prints p = e^ε/(e^ε + 1) for RAPPOR; with this p the randomizer is only 2ε-private.

    Attributes:
        form: "optimised" or "symmetric"; selects p and q as above.

    Raises:
        ParameterError: a parameter outside its domain.

    >>> UnaryEncoding(epsilon=1.0, items=10).mse_bound(clients=1) < 37.9
    True
    """

    form: Literal["optimised", "symmetric"] = field(default="optimised", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in ("optimised", "symmetric"):
            raise ParameterError("form", self.form, "'optimised' or 'symmetric'")

    @property
    def other(self) -> Fraction:
        """Probability q that the bit of another item is set."""
        return self._noise

    @cached_property
    def _noise(self) -> Fraction:
        e = exponential_below(self.epsilon)
        return on_grid_above(1 / (1 + (root_below(e) if self.form == "symmetric" else e)))

    @property
    def own(self) -> Fraction:
        """Probability p that the bit of the client's item is set."""
        return 1 - self.other if self.form == "symmetric" else Fraction(1, 2)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two items, exactly."""
        return self.own / (1 - self.own) * (1 - self.other) / self.other

    def probabilities(self, item: int) -> list[Fraction]:
        """Probability of each of the 2^k bitmaps under an item; for small k."""
        distribution = [Fraction(1)]
        for column in range(self.items):
            one = self.own if column == item else self.other
            without = [p * (1 - one) for p in distribution]
            distribution = without + [p * one for p in distribution]
        return distribution

    def encode(self, values: ArrayLike, source: Source) -> Rows:
        """One bitmap for each value, uint64 of shape (n, ⌈k / 64⌉).

        Raises:
            ParameterError: a value that is not a whole number from 0 to k − 1, or a wrong shape.
        """
        array = self.checked(values)
        rows = source.packed_bernoulli(self.other, array.size, self.items)
        set_bits(rows, array, source.bernoulli(self.own, array.size))
        return rows


mechanism("rappor", rank=2)(partial(UnaryEncoding, form="symmetric"))
