"""Search for the most frequent items by prefixes, if there are too many items to list.

`PrefixSearch` draws the groups, encodes messages and finds items; it returns a
`PrefixSearchResult`. `turnout.estimation.private.searches` computes its ε.

Notation: b is the number of bits of an item. The search has L levels (steps); level j estimates the
frequencies of prefixes of b_j bits, with b_1 < … < b_L = b.

Each client is publicly and randomly assigned to one level's group, and sends one bit about its
item's prefix of that level (`OneBitHadamard` with a public row). The server keeps the most frequent
prefixes of a level, and at the next level estimates their continuations only. The groups are
disjoint, so a client sends one message. The last level tests candidates that were chosen from the
messages of other clients, so the test needs a correction only for the number of candidates.

Source: the prefix tree of Bassily, Nissim, Stemmer, Thakurta, Practical locally private heavy
    hitters, NeurIPS 2017, with the groups of Wang, Li, Jha, Locally differentially private heavy
    hitter identification, TDSC 2021 (PEM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation.frequencies import binomial_p_values, check_error, holm
from turnout.randomizers.hadamard import OneBitHadamard, parity, walsh_hadamard
from turnout.randomizers.interface import check_level
from turnout.randomness import Source


class PrefixSearchResult(NamedTuple):
    """Frequent items that a prefix search found.

    Attributes:
        items: item numbers, in order of decreasing evidence.
        frequencies: unbiased estimates of the items' shares, from the last level's clients.
        standard_error: upper bound on the standard error of each estimate of a share of *these*
            clients, from the privacy noise and the random choice of the last level's clients.
        candidates: number of items that the last level tested.
    """

    items: NDArray[np.int64]
    frequencies: NDArray[np.float64]
    standard_error: float
    candidates: int


@dataclass(frozen=True)
class PrefixSearch:
    """Search for frequent items of b bits by prefixes of increasing length.

    Attributes:
        epsilon: privacy level of a client's one message, above 0, at most 30.
        bits: b, from 1 to 61.
        first_bits: b_1, the shortest prefix length; all prefixes of this length are estimated.
        stride: number of bits by which prefixes grow from level to level.
        width: number of prefixes of a level that are continued.

    Raises:
        ParameterError: a number outside its domain; ``first_bits`` and ``stride`` are from 1 to 24.
    """

    epsilon: float
    bits: int
    first_bits: int = 14
    stride: int = 8
    width: int = 64

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.count(
            bits=self.bits, first_bits=self.first_bits, stride=self.stride, width=self.width
        )
        if self.bits > 61:
            raise ParameterError("bits", self.bits, "at most 61")
        for name in ("first_bits", "stride"):
            if getattr(self, name) > 24:
                raise ParameterError(name, getattr(self, name), "at most 24")

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Prefix lengths b_1 < … < b_L = b."""
        inner = range(self.first_bits, self.bits, self.stride)
        return (*inner, self.bits)

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ of a client's whole message, equal at all prefix lengths."""
        return self.randomizer(0).epsilon0

    def randomizer(self, level: int) -> OneBitHadamard:
        """Randomizer of the clients that report a prefix of length ``lengths[level]``."""
        return OneBitHadamard(self.epsilon, 2 ** self.lengths[level], public=True)

    def groups(self, n: int, source: Source) -> NDArray[np.int64]:
        """Public random index into ``lengths`` for each client, uniform over levels, shape (n,)."""
        return source.below(len(self.lengths), n)

    def encode(
        self, values: ArrayLike, groups: NDArray[np.int64], source: Source
    ) -> list[NDArray[np.int64]]:
        """Messages of the clients of each prefix length; ``source`` also draws the public rows.

        Args:
            values: the clients' items, whole numbers from 0 to 2^b − 1, shape (n,).
            groups: index into ``lengths`` of each client, shape (n,), from `groups`.
            source: source of the clients' randomness and of public rows.
        """
        array = np.asarray(values)
        messages = []
        for level, length in enumerate(self.lengths):
            randomizer = self.randomizer(level)
            prefixes = array[groups == level] >> (self.bits - length)
            rows = randomizer.draw_questions(len(prefixes), source)
            messages.append(randomizer.encode(prefixes, source, rows))
        return messages

    def find(
        self, messages: Sequence[NDArray[np.int64]], threshold: float, error: float = 0.05
    ) -> PrefixSearchResult:
        """Items whose frequency is above ``threshold``.

        Guarantees:
            With probability at least 1 − ``error``, over the clients' random bits, no item is
            returned that has a share of ``threshold`` or less among the last level's clients. If
            clients are independent draws from a population, the same holds for the item's share
            in the population.

        Args:
            messages: the messages of each level, as `encode` returned them.
            threshold: share in [0, 1).
            error: family-wise error, above 0, at most 0.25.

        Raises:
            ParameterError: ``threshold`` is outside [0, 1], ``error`` is outside (0, 1/4], or a
                level has no message.
        """
        checks.probability(threshold=threshold)
        check_error(error)
        # Each level needs messages, or its prefixes would be chosen at random.
        if len(messages) != len(self.lengths) or not all(len(part) for part in messages):
            raise ParameterError(
                "messages",
                len(messages),
                f"at least one message at each of {len(self.lengths)} levels",
            )
        # Follow the most frequent prefixes from level to level.
        kept = np.zeros(1, dtype=np.int64)
        growths = np.diff((0, *self.lengths)).tolist()
        for growth, part in zip(growths[:-1], messages[:-1], strict=True):
            scores = continuation_scores(part, kept, growth).ravel()
            order = np.argsort(-scores, kind="stable")[: self.width]
            kept = _continuations(kept, growth)[order]
        # At the last level, test the continuations of these prefixes to whole items.
        scores = continuation_scores(messages[-1], kept, growths[-1]).ravel()
        items = _continuations(kept, growths[-1])
        return self._named(items, scores, len(messages[-1]), threshold, error)

    def _named(
        self,
        items: NDArray[np.int64],
        scores: NDArray[np.int64],
        n: int,
        threshold: float,
        error: float,
    ) -> PrefixSearchResult:
        """Result with the candidates that Holm's test finds more frequent than ``threshold``."""
        gain = float(self.randomizer(len(self.lengths) - 1).gain)
        p_values = binomial_p_values((n + scores) // 2, n, 0.5 + gain / 2 * threshold)
        named = holm(p_values, error)
        return PrefixSearchResult(
            items[named], scores[named] / (n * gain), float(1 / (gain * np.sqrt(n))), items.size
        )


def _continuations(prefixes: NDArray[np.int64], growth: int) -> NDArray[np.int64]:
    """All extensions of the prefixes by ``growth`` bits, prefix by prefix."""
    return ((prefixes[:, None] << growth) + np.arange(1 << growth)).ravel()


def continuation_scores(
    messages: NDArray[np.int64], prefixes: NDArray[np.int64], growth: int
) -> NDArray[np.int64]:
    """Scores of all extensions of the prefixes by ``growth`` bits, shape (prefixes, 2^growth).

    An extension is a prefix and a suffix of ``growth`` bits. With the Hadamard matrix H, the entry
    of a row and an extension is the product of H(upper bits of the row, prefix) and H(lower bits of
    the row, suffix). Each reply is multiplied by the first factor; then one fast transform gives
    the scores of all suffixes of a prefix.

    Args:
        messages: 2·row + reply of each client, shape (n,).
        prefixes: prefixes as whole numbers, shape (prefixes,).
        growth: number of bits of a suffix, at least 0.
    """
    rows, replies = messages >> 1, messages & 1
    upper, lower = rows >> growth, rows & ((1 << growth) - 1)
    scores = np.empty((len(prefixes), 1 << growth), dtype=np.int64)
    for place, prefix in enumerate(prefixes):
        signs = 1 - 2 * (parity(upper & prefix) ^ replies)
        table = np.bincount(lower, weights=signs, minlength=1 << growth)
        scores[place] = walsh_hadamard(np.rint(table).astype(np.int64))
    return scores
