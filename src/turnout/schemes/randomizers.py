"""Randomizers of one contribution, as mathematics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Self, cast, get_args

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes.parameters import Checked, count, open_unit, plain_numbers, positive
from turnout.schemes.registry import asked_randomizer, close

_LEVEL = "level ε₀ of one message: largest ln of the ratio of its probabilities under two inputs"
_DEVIATION = "standard deviation of the noise, in units of the lattice"
_SENSITIVITY = "largest contribution, in units of the lattice"


@asked_randomizer("gaussian", shuffled=7)
@dataclass(frozen=True, slots=True)
class GaussianNoise(Checked):
    """Gaussian noise on an update whose ℓ2 norm is clipped to C.

    Accounting needs nothing but the multiplier; C itself belongs to the task.
    """

    noise_multiplier: float = positive("standard deviation of the noise divided by the clip norm")


@asked_randomizer("laplace")
@dataclass(frozen=True, slots=True)
class LaplaceNoise(Checked):
    """Laplace noise on one number clipped to [−C, C]."""

    scale: float = positive("scale of the noise divided by the clip bound")


@asked_randomizer("pure", shuffled=1)
@dataclass(frozen=True, slots=True)
class PureRandomizer(Checked):
    """Any ε₀-DP randomizer: its output's law changes by at most e^{ε₀} between any two inputs.

    In a shuffle the messages before may choose it, as long as the laws that any two clients, with
    any records, would send in the same place are within a factor e^{ε₀}, and the scheme declares
    that the order of speaking is `SpeakingOrder.HIDDEN`.
    """

    epsilon0: float = positive(_LEVEL)


@asked_randomizer("approximate", shuffled=6)
@dataclass(frozen=True, slots=True)
class ApproximateRandomizer(Checked):
    """Any (ε₀, δ₀)-DP randomizer; in a shuffle on the conditions of `PureRandomizer`.

    If all clients use one that is chosen before the round, the shuffled messages have the same law
    in every order, so `SpeakingOrder.HIDDEN` may be declared.
    """

    epsilon0: float = positive(_LEVEL)
    delta0: float = open_unit("the δ₀ of the randomizer's own (ε₀, δ₀)")


@asked_randomizer("non-adaptive", shuffled=2)
@dataclass(frozen=True, slots=True)
class NonAdaptiveRandomizer(PureRandomizer):
    """One ε₀-DP randomizer, fixed before the round, that all clients of the round use.

    In a shuffle it costs what `PureRandomizer` costs, without a condition on the order of speaking.
    """


@dataclass(frozen=True, slots=True)
class BoundedVariation(NonAdaptiveRandomizer):
    """One ε₀-DP randomizer whose output's laws under any two inputs are known to be nearer yet.

    Attributes:
        total_variation: τ, how far apart they are at most, in (0, 1]; ε₀ alone bounds it by
            (e^{ε₀} − 1)/(e^{ε₀} + 1).
    """

    total_variation: float = 1.0

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0, total_variation=self.total_variation)
        checks.probability(total_variation=self.total_variation)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class AttainedVariation(BoundedVariation):
    """A `BoundedVariation` whose bounds two records attain, so that it has lower bounds too.

    Each of the two records has an event of its own that it prefers with e^{ε₀} to 1 and by τ, and
    every other message is as likely under both. τ is at most (e^{ε₀} − 1)/(e^{ε₀} + 1).
    """


@dataclass(frozen=True, slots=True)
class RepeatedMessages(NonAdaptiveRandomizer):
    """Several messages of a client in a step, each in a shuffle with the others' of its number.

    They are made one by one by the same randomizer, of one record or of several that change
    together. What a shuffle of whole answers would show is more than these shuffles show.

    Attributes:
        epsilon0: ε₀ of all messages together, ``messages`` times that of ``each``.
        each: the law of one message.
        messages: how many there are.
    """

    each: NonAdaptiveRandomizer = NonAdaptiveRandomizer(1.0)
    messages: int = 1

    def __post_init__(self) -> None:
        checks.count(messages=self.messages)
        checks.positive(epsilon0=self.epsilon0)
        if not isinstance(self.each, NonAdaptiveRandomizer) or type(self.each) is type(self):
            expected = "one randomizer of one message, the same for all clients"
            raise ParameterError("each", type(self.each).__name__, expected)
        total = self.messages * self.each.epsilon0
        if self.epsilon0 != total:
            raise ParameterError("epsilon0", self.epsilon0, f"{total}, that of all messages")
        plain_numbers(self)

    @classmethod
    def of(cls, each: NonAdaptiveRandomizer, messages: int) -> Self:
        """So many messages of one law."""
        return cls(messages * each.epsilon0, each, messages)


@asked_randomizer("kary-response", shuffled=3)
@dataclass(frozen=True, slots=True)
class KaryResponse(NonAdaptiveRandomizer):
    """The true one of k categories with probability e^{ε₀}/(e^{ε₀} + k − 1), else any other.

    With two it is Warner's randomized response.
    """

    categories: int = count("categories, of which a client has one", 2, least=2)


@asked_randomizer("hadamard-response", shuffled=4)
@dataclass(frozen=True, slots=True)
class HadamardResponse(NonAdaptiveRandomizer):
    """Hadamard response: a uniform message of one half of all, the value's with e^{ε₀} to 1.

    Any two values' halves share a quarter of all messages.
    """


@asked_randomizer("sampled-bit-response", shuffled=5)
@dataclass(frozen=True, slots=True)
class SampledBitResponse(NonAdaptiveRandomizer):
    """Sampled-bit randomized response: a uniform coordinate and its bit, true with e^{ε₀} to 1.

    Or one of a uniform pair of messages, of which the client's record prefers one with e^{ε₀} to 1.
    """


@asked_randomizer("discrete-gaussian")
@dataclass(frozen=True, slots=True)
class DiscreteGaussianNoise(Checked):
    """Integer noise with mass ∝ e^{−n²/2s²} on one integer of at most ``sensitivity`` in size."""

    standard_deviation: float = positive(_DEVIATION)
    sensitivity: int = count(_SENSITIVITY, 1)


@asked_randomizer("rounded-gaussian")
@dataclass(frozen=True, slots=True)
class RoundedGaussianNoise(Checked):
    """Gaussian noise rounded to integers, on one integer of at most ``sensitivity`` in size."""

    standard_deviation: float = positive(_DEVIATION)
    sensitivity: int = count(_SENSITIVITY, 1)


@dataclass(frozen=True, slots=True)
class TableRandomizer:
    """A mechanism with finitely many outcomes, by their probabilities with and without the client.

    Attributes:
        present, absent: probabilities with and without the client, in one order, shape (outcomes,).
    """

    present: Sequence[float]
    absent: Sequence[float]

    def __post_init__(self) -> None:
        for name in ("present", "absent"):
            object.__setattr__(self, name, _distribution(name, getattr(self, name)))
        if len(self.present) != len(self.absent):
            expected = f"as many outcomes as absent, {len(self.absent)}"
            raise ParameterError("present", len(self.present), expected)


def _distribution(name: str, values: object) -> tuple[float, ...]:
    """The probabilities as a tuple, each between 0 and 1, summing to 1 but for rounding."""
    expected = "a sequence of probabilities that sum to 1"
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise ParameterError(name, values, expected)
    masses = tuple(cast("Iterable[float]", values))
    for i, mass in enumerate(masses):
        checks.probability(**{f"{name}[{i}]": mass})
    if not abs(math.fsum(masses) - 1.0) <= 1e-9:
        raise ParameterError(name, math.fsum(masses), expected)
    return tuple(map(float, masses))


_PAIR_MEMBERS = ("second_moment", "q_below", "q_above", "p_below", "p_above")


@dataclass(frozen=True, slots=True)
class PairRandomizer:
    """A mechanism by the law of its likelihood ratio.

    Attributes:
        pair: an object with the members of `turnout.accounting.Pair`, such as
            `turnout.accounting.MonotonePair` of two densities.
        infinity_mass: probability, with the client, of outcomes that are impossible without it.
    """

    pair: object
    infinity_mass: float = 0.0

    def __post_init__(self) -> None:
        missing = [name for name in _PAIR_MEMBERS if not hasattr(self.pair, name)]
        if missing or isinstance(self.pair, type):
            raise ParameterError("pair", self.pair, f"an object with {', '.join(_PAIR_MEMBERS)}")
        checks.probability(infinity_mass=self.infinity_mass)
        plain_numbers(self)


Randomizer = (
    GaussianNoise
    | LaplaceNoise
    | PureRandomizer
    | ApproximateRandomizer
    | DiscreteGaussianNoise
    | RoundedGaussianNoise
    | TableRandomizer
    | PairRandomizer
)

FIXED_RANDOMIZERS = (
    NonAdaptiveRandomizer,
    BoundedVariation,
    AttainedVariation,
    RepeatedMessages,
    KaryResponse,
    HadamardResponse,
    SampledBitResponse,
)
"""The subclasses of `PureRandomizer`, of which there are no others."""

close(*get_args(Randomizer), *FIXED_RANDOMIZERS)


def is_adaptive(randomizer: Randomizer) -> bool:
    """Whether the messages before may choose a randomizer, so that a shuffle's order is hidden."""
    if isinstance(randomizer, NonAdaptiveRandomizer):
        return False
    return isinstance(randomizer, PureRandomizer | ApproximateRandomizer)
