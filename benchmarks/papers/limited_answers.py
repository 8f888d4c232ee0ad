"""Yes-no answers from limited randomness, as printed in the thesis, where "yes" is rare.

Notation (thesis §7.3 → here): R `randomness_bits`; q `yes`, q/e^ε `no`; H₂ the binary entropy.
`turnout.refinement.LimitedAnswers` asks fewer clients instead and has a smaller error at every R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.hadamard import walsh_hadamard
from turnout.randomizers.interface import exponential_below
from turnout.refinement import LimitedAnswers, enough_randomness
from turnout.refinement.hadamard import Questions
from turnout.refinement.limited import binary_entropy

_ROOM = 1 << 62


def binary_entropy_inverse(bits: float) -> float:
    """p ≤ 1/2 with H₂(p) = ``bits``, never above the exact value; relative error at most 1e-11."""
    checks.probability(bits=bits)
    if bits in (0, 1):
        return bits / 2
    low, high = math.log(1e-300), math.log(0.5)
    if binary_entropy(1e-300) > bits:
        raise ParameterError("bits", bits, "at least 1e-297")

    def excess(log_p: float) -> float:
        return math.log(binary_entropy(math.exp(log_p))) - math.log(bits)

    root: Any = brentq(excess, low, high, xtol=1e-14)
    return math.exp(root) * (1 - 1e-13)


@dataclass(frozen=True)
class PrintedAnswers(LimitedAnswers):
    """Mechanism in which every client answers, with probability q of "yes" and H₂(q) = R.

    Source: (7.27)–(7.32), Theorem 7.3.2, Girgis 2023 [girgis2023thesis].
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.yes > self.no:
            raise ParameterError(
                "randomness_bits", self.randomness_bits, "enough bits for distinct probabilities"
            )

    @cached_property
    def questions(self) -> Questions:
        """Questions of the clients: client i is asked about column i mod K."""
        return Questions(self.size, self.seed, "as-printed")

    @property
    def enough(self) -> bool:
        """Whether R is at least the entropy of an unlimited answer."""
        return self.randomness_bits >= enough_randomness(self.epsilon)

    @cached_property
    def share(self) -> float:
        """Share of the clients that are asked, which is 1."""
        return 1.0

    @cached_property
    def yes(self) -> Fraction:
        """Probability of "yes" if that is the honest answer."""
        if self.enough:
            return 1 - self.no
        return Fraction(int(binary_entropy_inverse(self.randomness_bits) * _ROOM), _ROOM)

    @cached_property
    def no(self) -> Fraction:
        """Probability of "yes" if the honest answer is no."""
        growth = exponential_below(self.epsilon)
        if self.enough:
            return Fraction(math.ceil(_ROOM / (growth + 1)), _ROOM)
        return Fraction(math.ceil(self.yes * _ROOM / growth), _ROOM)

    def frequencies(self, totals: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased frequencies, shape (size,), from sums of `totals`: (7.29)–(7.31)."""
        asked, order = totals.sum(axis=0), self.questions.order
        if not np.all(asked):
            raise ParameterError("clients", int(asked.sum()), f"at least {order}")
        inside = (totals[1] / asked - float(self.no)) / float(self.yes - self.no)
        return walsh_hadamard(2 * inside - 1)[: self.size] / order

    def variance(self, shares: NDArray[np.float64], clients: int) -> NDArray[np.float64]:
        """Variance of `frequencies`, if each column was asked of equally many clients."""
        contrast = float(self.yes - self.no)
        padded = np.zeros(self.questions.order)
        padded[: self.size] = shares
        said = float(self.no) + contrast * (walsh_hadamard(padded) + 1) / 2
        squared = 4 * float((said * (1 - said)).mean()) / (clients * contrast**2)
        return np.full(self.size, squared)

    def error_bound(self, clients: int) -> float:
        """Upper bound on E‖p̂ − p‖₂² for every p: (7.32)."""
        growth = math.exp(-self.epsilon)
        return 2 * self.size / (clients * (float(self.yes) * (1 - growth)) ** 2)
