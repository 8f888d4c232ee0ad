"""The interface of randomizers of one item out of k."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.levels import check_level, level_above
from turnout.randomness import Source
from turnout.schemes import PureRandomizer
from turnout.schemes.parameters import count, positive

Codes = NDArray[np.int64]
"""Messages as whole numbers, shape (n,)."""
Rows = NDArray[np.uint64]
"""Messages as bitmaps, shape (n, ⌈k / 64⌉); item j is bit j mod 64 of word ⌊j / 64⌋."""


@dataclass(frozen=True)
class FrequencyRandomizer(ABC):
    """A client's one message about the one item it holds, of ``items`` possible ones.

    Guarantees:
        Every message's probability is a fraction that `probabilities` states; the largest ratio of
        two of them, over items, is `ratio`, and ln `ratio` ≤ `epsilon0` ≤ ``epsilon``.
        With S_v the sum of `score` over the messages of n clients, of whom n·f_v hold v,
        (S_v / n − `offset`) / `gain` has mean f_v and the variance that `variance` states, or less.

    Attributes:
        epsilon: privacy level asked for, above 0, at most 30.
        items: k, at least 2.
    """

    epsilon: float = positive("ε₀ of a message, at most 30", key="epsilon0")
    items: int = count("items, of which a client has one", least=2)

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.count(2, items=self.items)

    @property
    def epsilon0(self) -> float:
        """Local privacy level of a client's whole message, rounded up by less than one ulp."""
        return level_above(self.ratio)

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two items, exactly."""

    @property
    @abstractmethod
    def message_bits(self) -> int:
        """Bits of a client's message as `pack` writes it."""

    @property
    @abstractmethod
    def gain(self) -> Fraction:
        """By how much holding an item raises its mean score."""

    @property
    @abstractmethod
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold."""

    @property
    @abstractmethod
    def law(self) -> PureRandomizer:
        """The law that prices a message; `PureRandomizer` where questions tell clients apart."""

    @abstractmethod
    def probabilities(self, item: int) -> Sequence[Fraction]:
        """Probability of each message, by its number; for small cases."""

    score_values: ClassVar[tuple[int, int] | None] = (0, 1)
    """The two values of `score`; None where there are more."""

    @abstractmethod
    def score(self, message: int, item: int) -> int:
        """The amount that a message, by its number, adds to an item's score; for small cases."""

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of `score` for every item, exactly, shape (k,).

        Args:
            counts: of messages by number, or of set bits by item where messages are bitmaps.
        """
        return self._summed(counts, 1)

    def squares(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of squared `score` for every item; arguments as of `scores`."""
        return self._summed(counts, 2)

    def _summed(self, counts: NDArray[np.int64], power: int) -> NDArray[np.int64]:
        sums = [0] * self.items
        for message in np.flatnonzero(counts).tolist():
            for item in range(self.items):
                sums[item] += int(counts[message]) * self.score(message, item) ** power
        return np.array(sums, dtype=np.int64)

    def variance(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """Variance of each estimated frequency, given what the clients hold.

        Source: Wang, Blocki, Li, Jha, Locally differentially private protocols for frequency
            estimation, USENIX Security 2017, Theorem 2, for scores of 0 and 1; else `mse_bound`.

        Args:
            frequencies: share of the clients that hold each item, shape (k,).
            clients: n, at least 1.
        """
        shares = self.shares(frequencies, clients)
        if self.score_values != (0, 1):
            return np.full(self.items, self.mse_bound(clients))
        own, other = self.gain + self.offset, self.offset
        spread = shares * float(own * (1 - own)) + (1 - shares) * float(other * (1 - other))
        return spread / (clients * float(own - other) ** 2)

    def mse_bound(self, clients: int) -> float:
        """Largest expected squared ℓ2 error of the raw estimate, over what the clients hold.

        For scores of 0 and 1 the sum of `variance` over all items, which no frequencies change.
        """
        checks.count(clients=clients)
        own, other = self.gain + self.offset, self.offset
        spread = own * (1 - own) + (self.items - 1) * other * (1 - other)
        return float(spread / (clients * (own - other) ** 2))

    @abstractmethod
    def encode(self, values: ArrayLike, source: Source) -> Codes | Rows:
        """One message for each value.

        Args:
            values: the clients' items, whole numbers from 0 to k − 1, shape (n,).
            source: where the clients' randomness comes from.
        """

    @abstractmethod
    def pack(self, messages: NDArray) -> bytes:
        """The messages as ⌈n · `message_bits` / 8⌉ bytes."""

    @abstractmethod
    def unpack(self, data: bytes, n: int) -> Codes | Rows:
        """The n messages in ``data``.

        Raises:
            ParameterError: this is not what n clients sent.
        """

    def checked(self, values: ArrayLike) -> NDArray[np.int64]:
        """The values, if each is an item."""
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ParameterError("values", array.dtype.name, "whole numbers of shape (clients,)")
        if array.size and (int(array.min()) < 0 or int(array.max()) >= self.items):
            raise ParameterError("values", "an item outside", f"items from 0 to {self.items - 1}")
        return array.astype(np.int64, copy=False)

    def shares(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """The frequencies, if they are k shares of at least one client."""
        checks.count(clients=clients)
        array = np.asarray(frequencies, dtype=np.float64)
        if array.shape != (self.items,) or not np.all((array >= 0) & (array <= 1)):
            raise ParameterError("frequencies", array.shape, f"{self.items} numbers in [0, 1]")
        return array
