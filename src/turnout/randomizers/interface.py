"""Randomizers of one item out of k: their interface, their names, and exact privacy levels.

`FrequencyRandomizer` is the interface; `mechanism` registers a class under a name and
`all_mechanisms` lists them. A user's own module registers its class in the same way. `level_above`,
`root_below`, `on_grid_above` and `on_grid_below` keep probabilities and their ratios as fractions,
so that ε₀ is the exact level of a randomizer and not a rounded float.

Notation: ε the requested level, E a fraction just below e^ε, r the largest ratio of a randomizer's
probabilities, ε₀ = ln r. Every coin of a randomizer has a probability that is a multiple of 2⁻⁶²,
rounded to the private side. So r is a fraction, r ≤ E ≤ e^ε, and ε₀ falls short of ε by a rounding
only.
"""

from __future__ import annotations

import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomness import Source
from turnout.randomness.source import LARGEST_RANGE
from turnout.schemes.parameters import count, positive
from turnout.schemes.randomizers import (
    AttainedVariation,
    BoundedVariation,
    NonAdaptiveRandomizer,
    PureRandomizer,
)
from turnout.schemes.registry import question_randomizer

LEAST_EPSILON = 1e-12
"""Least ε of a randomizer: below it, coins in steps of 2⁻⁶² would leave little of ε or nothing."""
LARGEST_EPSILON = 30.0
"""Largest ε of a randomizer: above it, coins in steps of 2⁻⁶² would waste a part of ε."""

_DIGITS = 60
_CONTEXT = Context(prec=_DIGITS)
_BELOW = 1 - Fraction(1, 10 ** (_DIGITS - 5))


def check_level(epsilon: float) -> None:
    """Raise an error for an ε that no randomizer here can realise.

    Raises:
        ParameterError: an ``epsilon`` below 1e-12 or above 30.
    """
    checks.positive(epsilon=epsilon)
    if epsilon < LEAST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"at least {LEAST_EPSILON:g}")
    if epsilon > LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"at most {LARGEST_EPSILON:g}")


def exponential_below(epsilon: float) -> Fraction:
    """A fraction E ≤ e^ε, smaller than it by less than 1 part in 10⁵⁴; at least 1."""
    # `Decimal.exp` is correctly rounded to the context's digits.
    return max(Fraction(Decimal(epsilon).exp(_CONTEXT)) * _BELOW, Fraction(1))


def root_below(number: Fraction) -> Fraction:
    """A fraction at most √number, smaller than it by less than 2⁻¹²⁸."""
    scale = 1 << 256
    return Fraction(math.isqrt(number.numerator * scale // number.denominator), 1 << 128)


def level_above(ratio: Fraction) -> float:
    """Logarithm of ``ratio`` rounded up to a float; the logarithm itself is good to 1 part in 10⁵⁰.

    Args:
        ratio: at least 1.
    """
    quotient = _CONTEXT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    exact = quotient.ln(_CONTEXT)
    if exact <= 0:
        return 0.0
    level = float(exact)
    return math.nextafter(level, math.inf) if Decimal(level) < exact else level


def on_grid_above(probability: Fraction) -> Fraction:
    """The smallest multiple of 2⁻⁶² that is at least ``probability``."""
    return Fraction(math.ceil(probability * LARGEST_RANGE), LARGEST_RANGE)


def randomizer_within(
    epsilon0: float, total_variation: Fraction | float, *, attained: bool = False
) -> NonAdaptiveRandomizer:
    """Randomizer of level ``epsilon0`` and of at most the given total variation, rounded up.

    Args:
        epsilon0: local privacy level of a message, in nats.
        total_variation: largest total variation between messages of two records, in [0, 1].
        attained: whether two records have this total variation exactly (`AttainedVariation`).
    """
    above = float(total_variation)
    if isinstance(total_variation, Fraction):
        above = min(math.nextafter(above, 2.0), 1.0)
    kind = AttainedVariation if attained else BoundedVariation
    return NonAdaptiveRandomizer(epsilon0) if above >= 1.0 else kind(epsilon0, above)


def float_below(probability: Fraction) -> Fraction:
    """The largest float, among multiples of 2⁻⁶², that is at most ``probability``."""
    exact = on_grid_below(probability)
    value = float(exact)
    return Fraction(math.nextafter(value, 0.0) if value > exact else value)


def on_grid_below(probability: Fraction) -> Fraction:
    """The largest multiple of 2⁻⁶² that is at most ``probability``."""
    return Fraction(math.floor(probability * LARGEST_RANGE), LARGEST_RANGE)


Codes = NDArray[np.int64]
"""Messages as whole numbers, shape (n,)."""
Rows = NDArray[np.uint64]
"""Messages as bitmaps, shape (n, ⌈k / 64⌉); item j is bit j mod 64 of word ⌊j / 64⌋."""


@dataclass(frozen=True)
class FrequencyRandomizer(ABC):
    """A client's message about its one item out of ``items`` possible ones.

    Guarantees:
        Every message has a probability that is a fraction, returned by `probabilities`. The largest
        ratio of a message's probabilities under two items is `ratio`; ln `ratio` ≤ `epsilon0` ≤
        ``epsilon``. S_v is the sum of `score` over the messages of n clients, of whom n·f_v hold v:
        (S_v / n − `offset`) / `gain` has mean f_v and at most the variance that `variance` returns.

    Attributes:
        epsilon: requested local privacy level ε, above 0, at most 30.
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
        """Mean score of the client's item minus the mean score of any other item."""

    @property
    @abstractmethod
    def offset(self) -> Fraction:
        """Mean score of an item that the client does not hold."""

    @property
    @abstractmethod
    def priced_as(self) -> PureRandomizer:
        """Randomizer that prices a message; `PureRandomizer` if public questions differ."""

    @abstractmethod
    def probabilities(self, item: int) -> Sequence[Fraction]:
        """Probability of each message, by its number; for a small number of messages."""

    score_values: ClassVar[tuple[int, int] | None] = (0, 1)
    """The two values of `score`; None where there are more."""

    @abstractmethod
    def score(self, message: int, item: int) -> int:
        """Amount that a message, by its number, adds to an item's score."""

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of `score` for every item, exactly, shape (k,).

        Args:
            counts: number of messages by their number, or of set bits by item for bitmaps.
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
        """Variance of each estimated frequency, given the clients' items, never below the true one.

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
        """Largest expected squared ℓ2 error of the raw estimate over all possible clients' items.

        For scores of 0 and 1 it is the sum of `variance` over all items, for all frequencies.
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
            source: of the clients' randomness.
        """

    @abstractmethod
    def pack(self, messages: NDArray) -> bytes:
        """Bytes of the messages, ⌈n · `message_bits` / 8⌉ of them."""

    @abstractmethod
    def unpack(self, data: bytes, n: int) -> Codes | Rows:
        """The n messages that ``data`` holds.

        Raises:
            ParameterError: ``data`` is not what n clients send.
        """

    def checked(self, values: ArrayLike) -> NDArray[np.int64]:
        """The values as int64, shape (n,).

        Raises:
            ParameterError: a value that is no whole number from 0 to k − 1, or another shape.
        """
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ParameterError("values", array.dtype.name, "whole numbers of shape (clients,)")
        if array.size and (int(array.min()) < 0 or int(array.max()) >= self.items):
            raise ParameterError("values", "an item outside", f"items from 0 to {self.items - 1}")
        return array.astype(np.int64, copy=False)

    def shares(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """The frequencies as float64, shape (k,).

        Raises:
            ParameterError: no client, another shape, or a frequency outside [0, 1].
        """
        checks.count(clients=clients)
        array = np.asarray(frequencies, dtype=np.float64)
        if array.shape != (self.items,) or not np.all((array >= 0) & (array <= 1)):
            raise ParameterError("frequencies", array.shape, f"{self.items} numbers in [0, 1]")
        return array


Make = TypeVar("Make", bound=Callable[..., Any])
_MECHANISMS: dict[str, tuple[int, Callable[..., FrequencyRandomizer]]] = {}


def mechanism(name: str, *, question: str | None = None, rank: int = 100) -> Callable[[Make], Make]:
    """Decorator that registers a class as the mechanism ``name``; the class takes ε and k.

    Args:
        name: word for it in ``turnout estimate frequencies --mechanism``.
        question: word for it in questions about its privacy guarantee; None: not offered there.
        rank: order among mechanisms of equal error, least first.

    Raises:
        ParameterError: another mechanism has this name.
    """

    def register(make: Make) -> Make:
        if name in _MECHANISMS:
            raise ParameterError("mechanism", name, "a name that no other mechanism has")
        _MECHANISMS[name] = rank, make
        if question is not None:
            question_randomizer(question, shuffled=100)(make)
        return make

    return register


def all_mechanisms() -> Mapping[str, Callable[..., FrequencyRandomizer]]:
    """All registered mechanisms by name, in order of rank; loads `turnout.randomizers`."""
    package = import_module("turnout.randomizers")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.ispkg:
            import_module(module.name)
    return {name: make for name, (_, make) in sorted(_MECHANISMS.items(), key=lambda it: it[1][0])}
