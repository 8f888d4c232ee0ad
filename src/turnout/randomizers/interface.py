"""Randomizers of one item out of k: their interface, their names, and exact privacy levels.

`FrequencyRandomizer` is the interface; `mechanism` registers a class, of turnout or of a custom
module, under a name, and `all_mechanisms` returns all registered classes. `level_above`,
`root_below`, `on_grid_above` and `on_grid_below` compute with probabilities as fractions, so that
ε₀ is the level of the probabilities with which a randomizer really draws.

Notation: ε the requested level, E a fraction just below e^ε, r the largest ratio of a randomizer's
probabilities, ε₀ = ln r. A randomizer draws each random bit with a probability that is a multiple
of 2⁻⁶², rounded in the direction of more privacy. So r is a fraction, r ≤ E ≤ e^ε, and ε₀ is below
ε only by rounding.
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
"""Least ε of a randomizer: below it, rounding probabilities to 2⁻⁶² would lose most of ε."""
LARGEST_EPSILON = 30.0
"""Largest ε of a randomizer: above it, rounding probabilities to 2⁻⁶² would lose a part of ε."""

_DIGITS = 60
_CONTEXT = Context(prec=_DIGITS)
_BELOW = 1 - Fraction(1, 10 ** (_DIGITS - 5))


def check_level(epsilon: float) -> None:
    """Raise an error for an ε outside the range of all randomizers.

    Raises:
        ParameterError: an ``epsilon`` below 1e-12 or above 30.
    """
    checks.positive(epsilon=epsilon)
    if epsilon < LEAST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"at least {LEAST_EPSILON:g}")
    if epsilon > LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"at most {LARGEST_EPSILON:g}")


def exponential_below(epsilon: float) -> Fraction:
    """A fraction E that is at most e^ε, at least 1, and relatively within 10⁻⁵⁴ of e^ε."""
    # `Decimal.exp` is correctly rounded to the context's digits.
    return max(Fraction(Decimal(epsilon).exp(_CONTEXT)) * _BELOW, Fraction(1))


def root_below(number: Fraction) -> Fraction:
    """A fraction that is at most √number and differs from it by less than 2⁻¹²⁸.

    Args:
        number: at least 0.
    """
    scale = 1 << 256
    return Fraction(math.isqrt(number.numerator * scale // number.denominator), 1 << 128)


def level_above(ratio: Fraction) -> float:
    """Logarithm of ``ratio``, computed to a relative error of 10⁻⁵⁰ and rounded up to a float.

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
    """Accountant's randomizer of level ``epsilon0`` and bounded total variation, rounded up.

    Args:
        epsilon0: local privacy level of a message, in nats.
        total_variation: upper bound on the total variation between the distributions of a message
            under two records, in [0, 1].
        attained: whether two records exist whose distributions have exactly this total variation.

    Returns:
        `NonAdaptiveRandomizer` if the rounded total variation is 1, else `AttainedVariation` or
        `BoundedVariation`.
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
"""Messages as bitmaps, shape (n, ⌈k / 64⌉); bit j mod 64 of word ⌊j / 64⌋ belongs to item j."""


@dataclass(frozen=True)
class FrequencyRandomizer(ABC):
    """Randomizer of one client's item out of ``items`` possible items.

    Guarantees:
        Every message has a probability that is a fraction, returned by `probabilities`. The largest
        ratio of a message's probabilities under two items is `ratio`; ln `ratio` ≤ `epsilon0` ≤
        ``epsilon``. Let S_v be the sum of `score` for item v over the messages of n clients, of
        which n·f_v hold item v. Then (S_v / n − `offset`) / `gain` has mean f_v, and its variance
        is at most the value that `variance` returns.

    Attributes:
        epsilon: requested local privacy level ε, above 0, at most 30.
        items: number of possible items k, at least 2.

    Raises:
        ParameterError: ``epsilon`` or ``items`` outside its domain.
    """

    epsilon: float = positive("ε₀ of a message, at most 30", key="epsilon0")
    items: int = count("number of items, one of which is the client's value", least=2)

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.count(2, items=self.items)

    @property
    def epsilon0(self) -> float:
        """Local privacy level ε₀ of a client's whole message, rounded up by less than one ulp."""
        return level_above(self.ratio)

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two items, exactly."""

    @property
    @abstractmethod
    def message_bits(self) -> int:
        """Number of bits of a client's message in the bytes that `pack` returns."""

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
        """Randomizer with which the accountant bounds the privacy loss of a message.

        If public randomness gives clients different randomizers, the accountant uses a plain
        `PureRandomizer`, since these randomizers have only ε₀ in common.
        """

    @abstractmethod
    def probabilities(self, item: int) -> Sequence[Fraction]:
        """Probability of each message under an item; entry i belongs to message number i."""

    score_values: ClassVar[tuple[int, int] | None] = (0, 1)
    """The two possible values of `score`; None if there are more than two."""

    @abstractmethod
    def score(self, message: int, item: int) -> int:
        """Amount that the message with the number ``message`` adds to the score of ``item``."""

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exact sum of `score` over all messages for every item, shape (k,).

        Args:
            counts: how many messages have each number, shape (messages,); for bitmaps, how many
                messages have each item's bit set, shape (k,).
        """
        return self._summed(counts, 1)

    def squares(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exact sum of squared `score` for every item, shape (k,); ``counts`` as in `scores`."""
        return self._summed(counts, 2)

    def _summed(self, counts: NDArray[np.int64], power: int) -> NDArray[np.int64]:
        sums = [0] * self.items
        for message in np.flatnonzero(counts).tolist():
            for item in range(self.items):
                sums[item] += int(counts[message]) * self.score(message, item) ** power
        return np.array(sums, dtype=np.int64)

    def variance(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """Upper bound on the variance of each estimated frequency, given the items; shape (k,).

        Source: Wang, Blocki, Li, Jha, Locally differentially private protocols for frequency
            estimation, USENIX Security 2017, Theorem 2, if scores are 0 or 1; the variance is then
            exact. For other scores `mse_bound` is returned for each item.

        Args:
            frequencies: share of the clients that hold each item, shape (k,).
            clients: number of clients n, at least 1.

        Raises:
            ParameterError: no client, a wrong shape, or a frequency outside [0, 1].
        """
        shares = self.shares(frequencies, clients)
        if self.score_values != (0, 1):
            return np.full(self.items, self.mse_bound(clients))
        # The item scores 1 with probability `own` for clients that hold it, else with `other`.
        own, other = self.gain + self.offset, self.offset
        spread = shares * float(own * (1 - own)) + (1 - shares) * float(other * (1 - other))
        return spread / (clients * float(own - other) ** 2)

    def mse_bound(self, clients: int) -> float:
        """Largest expected squared ℓ2 error of the raw estimate, over all items of clients.

        If scores are 0 or 1, the error is the sum of `variance` over all items. This sum is the
        same for all frequencies.

        Raises:
            ParameterError: ``clients`` is below 1.
        """
        checks.count(clients=clients)
        own, other = self.gain + self.offset, self.offset
        spread = own * (1 - own) + (self.items - 1) * other * (1 - other)
        return float(spread / (clients * (own - other) ** 2))

    @abstractmethod
    def encode(self, values: ArrayLike, source: Source) -> Codes | Rows:
        """Messages of the clients, one for each value.

        Args:
            values: the clients' items, whole numbers from 0 to k − 1, shape (n,).
            source: source of the clients' randomness.

        Raises:
            ParameterError: a value that is not a whole number from 0 to k − 1, or a wrong shape.
        """

    @abstractmethod
    def pack(self, messages: NDArray) -> bytes:
        """Messages packed into ⌈n · `message_bits` / 8⌉ bytes.

        Args:
            messages: messages as `encode` returns them.
        """

    @abstractmethod
    def unpack(self, data: bytes, n: int) -> Codes | Rows:
        """The n messages that ``data`` contains.

        Raises:
            ParameterError: ``data`` cannot be n packed messages.
        """

    def checked(self, values: ArrayLike) -> NDArray[np.int64]:
        """The items as an int64 array of shape (n,), after a check of their range.

        Raises:
            ParameterError: a value that is not a whole number from 0 to k − 1, or a wrong shape.
        """
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            given = f"{array.dtype.name} array of shape {array.shape}"
            raise ParameterError("values", given, "an array of whole numbers of shape (clients,)")
        if array.size and (int(array.min()) < 0 or int(array.max()) >= self.items):
            wrong = int(array.min() if array.min() < 0 else array.max())
            raise ParameterError("values", wrong, f"items from 0 to {self.items - 1}")
        return array.astype(np.int64, copy=False)

    def shares(self, frequencies: ArrayLike, clients: int) -> NDArray[np.float64]:
        """The frequencies as a float64 array of shape (k,), after a check of their range.

        Raises:
            ParameterError: no client, a wrong shape, or a frequency outside [0, 1].
        """
        checks.count(clients=clients)
        array = np.asarray(frequencies, dtype=np.float64)
        if array.shape != (self.items,) or not np.all((array >= 0) & (array <= 1)):
            given = f"array of shape {array.shape}"
            raise ParameterError("frequencies", given, f"{self.items} numbers in [0, 1]")
        return array


Make = TypeVar("Make", bound=Callable[..., Any])
_MECHANISMS: dict[str, tuple[int, Callable[..., FrequencyRandomizer]]] = {}


def mechanism(name: str, *, question: str | None = None, rank: int = 100) -> Callable[[Make], Make]:
    """Decorator that registers a randomizer class as the mechanism ``name``.

    Args:
        name: value of ``turnout estimate frequencies --mechanism`` that selects the class. The
            class is called with the keywords ``epsilon`` and ``items``.
        question: value of ``--randomizer`` that selects the class when a user asks for its privacy
            guarantee; None: the class cannot be selected there.
        rank: among mechanisms of equal error, the one of lowest rank is chosen.

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
    """All registered mechanisms by name, in order of rank.

    The function first imports all modules of `turnout.randomizers`, which register their classes.
    """
    package = import_module("turnout.randomizers")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.ispkg:
            import_module(module.name)
    return {name: make for name, (_, make) in sorted(_MECHANISMS.items(), key=lambda it: it[1][0])}
