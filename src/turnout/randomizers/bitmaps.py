"""Messages that are one bit for every item: their laws, their bytes, single bits in them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.randomizers.interface import FrequencyRandomizer, Rows
from turnout.randomizers.levels import law_within
from turnout.randomizers.packing import pack_rows, unpack_rows
from turnout.schemes import NonAdaptiveRandomizer

_ONE = np.uint64(1)


@dataclass(frozen=True)
class BitmapRandomizer(FrequencyRandomizer):
    """A message is a bitmap of k bits; its number has bit j set where item j is supported."""

    @property
    @abstractmethod
    def own(self) -> Fraction:
        """Probability that a message supports the client's item."""

    @property
    @abstractmethod
    def other(self) -> Fraction:
        """Probability that a message supports another item."""

    @property
    def law(self) -> NonAdaptiveRandomizer:
        """Two items move two bits only; what they move is `own` − `other`."""
        return law_within(self.epsilon0, self.own - self.other)

    @property
    def message_bits(self) -> int:
        """Bits of a client's message: one an item."""
        return self.items

    @property
    def gain(self) -> Fraction:
        """By how much holding an item raises its mean score."""
        return self.own - self.other

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold."""
        return self.other

    def score(self, message: int, item: int) -> int:
        """1 where the item's bit is set."""
        return message >> item & 1

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts themselves."""
        return counts

    def pack(self, messages: NDArray) -> bytes:
        """The messages as ⌈n · k / 8⌉ bytes."""
        return pack_rows(messages, self.items)

    def unpack(self, data: bytes, n: int) -> Rows:
        """The n messages in ``data``.

        Raises:
            ParameterError: this is not what n clients sent.
        """
        checks.count(0, n=n)
        return unpack_rows(data, n, self.items)


def set_bits(rows: Rows, columns: NDArray[np.int64], bits: NDArray[np.bool_]) -> None:
    """Write one bit in each row, in place.

    Args:
        rows: bitmaps, shape (n, words).
        columns: which bit, shape (n,).
        bits: what to write, shape (n,).
    """
    places = np.arange(len(rows)) * rows.shape[1] + (columns >> 6)
    masks = _ONE << (columns & 63).astype(np.uint64)
    flat = rows.reshape(-1)
    flat[places] = np.where(bits, flat[places] | masks, flat[places] & ~masks)
