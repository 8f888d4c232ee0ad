"""Private yes-no answers of clients that have a limited number of random bits.

`LimitedAnswers` is the randomizer; `enough_randomness` is the number of bits beyond which more
random bits do not reduce the error.

Notation (thesis §7.3 → here): R is `randomness_bits`; q is `yes`, the probability of the message
"yes" if the true answer is yes; q/e^ε is `no`, the probability of the message "yes" if the true
answer is no; H₂ is the binary entropy.

More random bits than R = H₂(1/(e^ε+1)) do not reduce the error. For smaller R, the thesis reduces
the probability of "yes" (to the q with H₂(q) = R). Here, a public draw instead selects each client
with probability R/H₂(1/(e^ε+1)), and each selected client uses H₂(1/(e^ε+1)) bits. So the average
over all clients is also R bits, and the error is smaller for every R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.estimation import project_simplex
from turnout.randomizers.interface import check_level, exponential_below
from turnout.randomness import OSRandomness, Source
from turnout.refinement.hadamard import Questions, seeded_words
from turnout.refinement.multilevel import LevelEstimate, checked_values

_ROOM = 1 << 62
_BLOCK = 2**18


def binary_entropy(p: float) -> float:
    """Binary entropy H₂(p) in bits.

    Raises:
        ParameterError: ``p`` outside [0, 1].

    >>> binary_entropy(0.5)
    1.0
    """
    checks.probability(p=p)
    if p in (0, 1):
        return 0.0
    return -(p * math.log(p) + (1 - p) * math.log1p(-p)) / math.log(2)


def enough_randomness(epsilon: float) -> float:
    """Number of random bits per client beyond which more bits do not reduce the error.

    The number is H₂(1/(e^ε + 1)), with H₂ the binary entropy in bits.

    Args:
        epsilon: ε of a client's answer, above 0, in nats.

    Raises:
        ParameterError: ``epsilon`` is not above 0.
    """
    checks.positive(epsilon=epsilon)
    return binary_entropy(1 / (math.exp(epsilon) + 1))


@dataclass(frozen=True)
class LimitedAnswers:
    """Randomizer of one yes-no answer of each client, from at most R random bits on average.

    Source: (7.27), Theorem 7.3.2, Girgis 2023 [girgis2023thesis]. No lower bound on the error is
        given here: the thesis' lower bound for R < H₂(1/(e^ε+1)) is false, since for small R the
        errors of this class and of the thesis' mechanism are both below that bound.

    Attributes:
        size: number of possible values k, at least 2.
        epsilon: local privacy level of a client's answer, in nats.
        randomness_bits: R, above 0: entropy in bits of an answer given the value, on average over
            the public selection of clients.
        seed: public seed, 32 bytes, of the selection of clients and of their questions.

    Guarantees:
        The largest likelihood ratio of an answer under two values is exactly `ratio`, at most e^ε.

    Raises:
        ParameterError: a parameter outside its range.
    """

    size: int
    epsilon: float
    randomness_bits: float
    seed: bytes

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        self.questions  # noqa: B018 - invalid parameters are refused here, not at first use
        checks.positive(randomness_bits=self.randomness_bits)

    @cached_property
    def questions(self) -> Questions:
        """Public question of each client."""
        return Questions(self.size, self.seed)

    @cached_property
    def share(self) -> float:
        """Probability with which the public draw selects a client."""
        return min(1.0, self.randomness_bits / enough_randomness(self.epsilon))

    @cached_property
    def yes(self) -> Fraction:
        """Probability of the answer "yes" if the true answer is yes."""
        return 1 - self.no

    @cached_property
    def no(self) -> Fraction:
        """Probability of the answer "yes" if the true answer is no."""
        return Fraction(math.ceil(_ROOM / (exponential_below(self.epsilon) + 1)), _ROOM)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of an answer under two values, exactly."""
        return max(self.yes / self.no, (1 - self.no) / (1 - self.yes))

    @property
    def entropy_bits(self) -> float:
        """Entropy in bits of an answer given the value, averaged over the public selection.

        The entropy depends on whether the true answer is yes or no; the result is the larger one.
        """
        return self.share * max(binary_entropy(float(self.yes)), binary_entropy(float(self.no)))

    def asked(self, first: int, count: int) -> NDArray[np.bool_]:
        """Whether the public draw selects each of ``count`` clients from ``first`` on; (count,)."""
        if self.share >= 1:
            return np.ones(count, dtype=np.bool_)
        words = seeded_words(self.seed, b"turnout asked", first, count)
        return words < np.uint64(int(Fraction(self.share) * 2**64))

    def encode(
        self, values: ArrayLike, source: Source | None = None, first: int = 0
    ) -> NDArray[np.uint8]:
        """Answers (1 is yes), shape (n,); 0 for clients that are not selected.

        Args:
            values: the clients' values, whole numbers from 0 to k − 1, shape (n,).
            source: source of the clients' randomness; None: the operating system's.
            first: number of the first of these clients.

        Raises:
            ParameterError: a value outside the range, or an array of a wrong shape.
        """
        held = checked_values(values, self.size)
        source = source or OSRandomness()
        answers = np.zeros(len(held), dtype=np.uint8)
        yes, no = int(self.yes * _ROOM), int(self.no * _ROOM)
        for start in range(0, len(held), _BLOCK):
            block = held[start : start + _BLOCK]
            truths = self.questions.truths(block, first + start)
            said = source.below(_ROOM, len(block)) < np.where(truths == 1, yes, no)
            answers[start : start + _BLOCK] = said & self.asked(first + start, len(block))
        return answers

    def totals(self, answers: NDArray[np.uint8], first: int = 0) -> NDArray[np.int64]:
        """Numbers of answers no and yes for each column, shape (2, K).

        Only selected clients are counted. K is the number of columns, `Questions.order`.

        Args:
            answers: answers of the clients from `encode`, shape (n,).
            first: number of the first of these clients, as in `encode`.
        """
        total = np.zeros((2, self.questions.order), dtype=np.int64)
        for start in range(0, len(answers), _BLOCK):
            block = answers[start : start + _BLOCK].astype(np.int64)
            asked = self.asked(first + start, len(block))
            columns = self.questions.columns(first + start, len(block))
            cells = columns + self.questions.order * block
            total += np.bincount(cells[asked], minlength=total.size).reshape(total.shape)
        return total

    def frequencies(self, totals: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased frequencies, shape (k,), from a sum of `totals`.

        Source: (7.29)–(7.31), Girgis 2023 [girgis2023thesis].
        """
        return self.questions.frequencies(totals, float(self.yes - self.no))

    def answered(self, totals: NDArray[np.int64]) -> LevelEstimate:
        """Estimate with its standard errors, from a sum of `totals`, shape (2, K)."""
        raw = self.frequencies(totals)
        projected, asked = project_simplex(raw), int(totals.sum())
        errors = np.sqrt(np.maximum(self.variance(projected, asked), 0))
        return LevelEstimate(self.epsilon, asked, raw, projected, errors)

    def variance(self, shares: NDArray[np.float64], clients: int) -> NDArray[np.float64]:
        """Variance of each of the `frequencies`, shape (k,).

        Args:
            shares: distribution from which clients' values are independent draws, shape (k,).
            clients: number of selected clients.
        """
        return self.questions.variance(shares, clients, float(self.yes - self.no))
