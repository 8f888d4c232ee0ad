"""Base class of randomizers that answer a question drawn independently of the item.

`IndexedRandomizer` is the base class of the k-ary, hashing and Hadamard randomizers. The question
is, for example, the number of a hash function or of a row of the Hadamard matrix.
`KaryRandomizedResponse` has a single question, whose replies are the items themselves.

Notation: F questions (`index_count`), R replies (`reply_count`), m preferred replies of an item
(`preferred_count`), a the *blanket*: the probability with which a client ignores its item.

A client draws a question uniformly. With probability a it sends a uniform reply, otherwise a
uniform reply among those that its item prefers. So a preferred reply has probability
a/R + (1 − a)/m and any other reply a/R. Their ratio is r = 1 + (1 − a)·R/(a·m), hence
a = R/(R + m(r − 1)).

Source of the decomposition: Balle, Bell, Gascón, Nissim, The privacy blanket of the shuffle model,
    CRYPTO 2019, Section 3.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.interface import (
    Codes,
    FrequencyRandomizer,
    exponential_below,
    mechanism,
    on_grid_above,
    randomizer_within,
)
from turnout.randomizers.packing import bits_for, pack_codes, unpack_codes
from turnout.randomness import Source
from turnout.schemes.randomizers import KaryResponse, NonAdaptiveRandomizer, PureRandomizer

LARGEST_HISTOGRAM = 2**26
"""Largest number of different messages for which the server keeps one count for each."""


@dataclass(frozen=True)
class IndexedRandomizer(FrequencyRandomizer):
    """Randomizer whose message is the number question · R + reply, from 0 to F·R − 1.

    Attributes:
        public: whether the questions are public randomness. A client then sends only its reply, and
            the server knows the questions already (`draw_questions` draws them).

    Raises:
        ParameterError: a parameter outside its domain, or more than `largest_count` different
            messages.
    """

    public: bool = False

    largest_count: ClassVar[int] = LARGEST_HISTOGRAM
    """Largest number of different messages that the randomizer may have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.flag(public=self.public)
        if self.message_count > self.largest_count:
            expected = f"a number that needs at most {self.largest_count} different messages"
            raise ParameterError("items", self.items, expected)

    @property
    def index_count(self) -> int:
        """Number of questions, F."""
        return 1

    @property
    @abstractmethod
    def reply_count(self) -> int:
        """Number of replies to a question, R."""

    @property
    def preferred_count(self) -> int | Fraction:
        """Number m of preferred replies of an item.

        If the map from uniform replies to preferred replies is uneven, m is R divided by the
        largest number of replies that are mapped to one preferred reply.
        """
        return 1

    @property
    def gain(self) -> Fraction:
        """Mean score of the client's item minus the mean score of any other item."""
        return 1 - self.blanket

    @abstractmethod
    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """A preferred reply for each client, shape (n,).

        Args:
            values: the clients' items, shape (n,).
            questions: the clients' questions, shape (n,).
            replies: numbers from 0 to R − 1, shape (n,). If they are uniform, the result is uniform
                among the preferred replies.
        """

    @property
    def message_count(self) -> int:
        """Number of different messages, F·R."""
        return self.index_count * self.reply_count

    @cached_property
    def blanket(self) -> Fraction:
        """Probability a that a reply does not depend on the item."""
        excess = self.preferred_count * (exponential_below(self.epsilon) - 1)
        return on_grid_above(self.reply_count / (self.reply_count + excess))

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two items, exactly."""
        a = self.blanket
        return 1 + (1 - a) / a * Fraction(self.reply_count, self.preferred_count)

    @property
    def message_bits(self) -> int:
        """Number of bits of a client's message; public questions are not sent and not counted."""
        return bits_for(self.reply_count if self.public else self.message_count)

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer with which the accountant bounds the privacy loss of a message."""
        # Clients with different public questions use different randomizers: only ε₀ is common.
        asked = self.public and self.index_count > 1
        return PureRandomizer(self.epsilon0) if asked else self.private_priced_as

    @property
    def private_priced_as(self) -> NonAdaptiveRandomizer:
        """Accountant's randomizer if questions are not public.

        It has the level ε₀ and the total variation 1 − a, with a the `blanket`.
        """
        # With probability a the item is ignored, so the total variation is at most 1 − a.
        return randomizer_within(self.epsilon0, 1 - self.blanket)

    def probabilities(self, item: int) -> list[Fraction]:
        """Probability of each message under an item; entry i belongs to message number i."""
        questions = np.repeat(np.arange(self.index_count), self.reply_count)
        replies = np.tile(np.arange(self.reply_count), self.index_count)
        # Count how many uniform replies are mapped to each message.
        own = self.preferred(np.full(len(replies), item), questions, replies)
        likely = np.bincount(questions * self.reply_count + own, minlength=self.message_count)
        a = self.blanket
        return [(a + (1 - a) * int(count)) / self.message_count for count in likely]

    def draw_questions(self, n: int, source: Source) -> NDArray[np.int64]:
        """Uniform public questions for n clients, shape (n,), independent of the clients' items."""
        return source.below(self.index_count, n)

    def encode(
        self, values: ArrayLike, source: Source, questions: NDArray[np.int64] | None = None
    ) -> Codes:
        """Messages of the clients, one for each value.

        Args:
            values: the clients' items, whole numbers from 0 to k − 1, shape (n,).
            source: source of the clients' randomness.
            questions: the public questions, shape (n,); None: each client draws its question.

        Returns:
            int64 array of shape (n,), numbers from 0 to F·R − 1.

        Raises:
            ParameterError: a value out of range, or missing public questions.
        """
        array = self.checked(values)
        asked = self._questions(array.size, source, questions)
        # Each client draws a uniform reply, and keeps it with probability a.
        replies = source.below(self.reply_count, array.size)
        honest = np.flatnonzero(~source.bernoulli(self.blanket, array.size))
        # Otherwise the reply is mapped to a preferred reply of the client's item.
        replies[honest] = self.preferred(array[honest], asked[honest], replies[honest])
        return asked * self.reply_count + replies

    def pack(self, messages: NDArray) -> bytes:
        """Messages, shape (n,), packed into ⌈n · `message_bits` / 8⌉ bytes."""
        sent = messages % self.reply_count if self.public else messages
        return pack_codes(sent, self.message_bits)

    def unpack(self, data: bytes, n: int, questions: NDArray[np.int64] | None = None) -> Codes:
        """The n messages that ``data`` contains, shape (n,).

        Args:
            data: bytes that `pack` returned.
            n: number of messages.
            questions: the public questions, shape (n,), if questions are public.

        Raises:
            ParameterError: ``data`` cannot be n packed messages, or public questions are missing.
        """
        checks.count(0, n=n)
        if not self.public:
            return unpack_codes(data, n, self.message_bits, self.message_count)
        if questions is None or len(questions) != n:
            given = None if questions is None else f"{len(questions)} numbers"
            raise ParameterError("questions", given, f"one public question for each of {n} clients")
        replies = unpack_codes(data, n, self.message_bits, self.reply_count)
        return self._checked_questions(questions, n) * self.reply_count + replies

    def _questions(
        self, n: int, source: Source, questions: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        if questions is None:
            if self.public and self.index_count > 1:
                expected = f"one public question for each of {n} clients"
                raise ParameterError("questions", None, expected)
            return self.draw_questions(n, source)
        return self._checked_questions(questions, n)

    def _checked_questions(self, questions: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        asked = np.asarray(questions, dtype=np.int64)
        inside = asked.shape == (n,) and bool(np.all((asked >= 0) & (asked < self.index_count)))
        if not inside:
            raise ParameterError(
                "questions", asked.shape, f"{n} whole numbers from 0 to {self.index_count - 1}"
            )
        return asked


@mechanism("k-ary", rank=1)
@dataclass(frozen=True)
class KaryRandomizedResponse(IndexedRandomizer):
    """k-ary randomized response: sends the item with probability e^ε/(e^ε + k − 1).

    Source: Kairouz, Oh, Viswanath, Extremal mechanisms for local differential privacy, JMLR 2016;
        thesis, Table 7.1 (RR); for two items Warner, JASA 1965.

    Each other item has probability 1/(e^ε + k − 1). This randomizer suits few items or a large ε (k
    < 3e^ε + 2), because the error grows as k².

    >>> randomizer = KaryRandomizedResponse(epsilon=1.0, items=4)
    >>> randomizer.epsilon0, randomizer.message_bits
    (1.0, 2)
    """

    @property
    def reply_count(self) -> int:
        """Number of replies, k: one reply for each item."""
        return self.items

    def preferred(
        self, values: NDArray[np.int64], questions: NDArray[np.int64], replies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Preferred reply of each client, shape (n,): the client's item."""
        return values

    @property
    def private_priced_as(self) -> KaryResponse:
        """k-ary response, the accountant's randomizer with exactly the same probabilities."""
        return KaryResponse(self.epsilon0, self.items)

    @property
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold."""
        return self.blanket / self.items

    def score(self, message: int, item: int) -> int:
        """Score 1 if the message is the item's number, else 0."""
        return int(message == item)

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Score of each item, shape (k,): the number of messages equal to the item's number."""
        return counts
