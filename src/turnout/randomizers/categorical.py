"""k-ary randomized response: the item itself, or any item."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from turnout.randomizers.indexed import IndexedRandomizer
from turnout.randomizers.registry import mechanism
from turnout.schemes import KaryResponse


@mechanism("k-ary", rank=1)
@dataclass(frozen=True)
class KaryRandomizedResponse(IndexedRandomizer):
    """The true item with probability e^ε/(e^ε + k − 1), any other one with 1/(e^ε + k − 1).

    Source: Kairouz, Oh, Viswanath, Extremal mechanisms for local differential privacy, JMLR 2016;
        thesis, Table 7.1 (RR); for two items Warner, JASA 1965.

    Best for few items or a large ε (k < 3e^ε + 2); its error grows as k².

    >>> randomizer = KaryRandomizedResponse(epsilon=1.0, items=4)
    >>> randomizer.epsilon0, randomizer.message_bits
    (1.0, 2)
    """

    @property
    def reply_count(self) -> int:
        """One reply an item."""
        return self.items

    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The items themselves."""
        return values

    @property
    def private_law(self) -> KaryResponse:
        """Known altogether."""
        return KaryResponse(self.epsilon0, self.items)

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold."""
        return self.blanket / self.items

    def score(self, message: int, item: int) -> int:
        """1 where the message names the item."""
        return int(message == item)

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts themselves."""
        return counts
