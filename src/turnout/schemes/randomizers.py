"""Randomizers of one client's contribution, with the properties that accounting uses.

`GaussianNoise`, `LaplaceNoise` and the lattice noises are noise that is added to clipped
contributions. `PureRandomizer` and its subclasses describe messages of a known level ε₀.
`TableRandomizer` and `PairRandomizer` are given by their output distributions. `Randomizer` is the
union of all these classes. The classes of `turnout.randomizers` run on a client; their attribute
``priced_as`` is an object of a class of this module, which accounting uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Self, cast, get_args

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes.parameters import Checked, count, open_unit, plain_numbers, positive
from turnout.schemes.registry import close, question_randomizer

_LEVEL = (
    "privacy parameter ε₀ of one message: changing the input changes the probability of a message "
    "by a factor of at most e^ε₀"
)
_DEVIATION = "standard deviation of the integer noise"
_SENSITIVITY = "largest absolute value of the integer that a client contributes"


@question_randomizer("gaussian", shuffled=7)
@dataclass(frozen=True, slots=True)
class GaussianNoise(Checked):
    """Gaussian noise on an update whose ℓ2 norm is clipped to C.

    Accounting needs only the multiplier; the clip norm C belongs to the task.

    Attributes:
        noise_multiplier: standard deviation of the noise divided by C, above 0.

    Raises:
        ParameterError: ``noise_multiplier`` is not above 0 and finite.
    """

    noise_multiplier: float = positive("standard deviation of the noise divided by the clip norm")


@question_randomizer("laplace")
@dataclass(frozen=True, slots=True)
class LaplaceNoise(Checked):
    """Laplace noise on one number clipped to [−C, C].

    Attributes:
        scale: scale of the noise divided by C, above 0.

    Raises:
        ParameterError: ``scale`` is not above 0 and finite.
    """

    scale: float = positive("scale of the noise divided by the clip bound")


@question_randomizer("pure", shuffled=1)
@dataclass(frozen=True, slots=True)
class PureRandomizer(Checked):
    """Any ε₀-DP randomizer: probabilities under two inputs differ by at most the factor e^{ε₀}.

    In a shuffle the randomizer of a message may depend on earlier messages under two conditions.
    First, at each position in the order, the probabilities of a message differ by at most the
    factor e^{ε₀} between any two clients with any records. Second, the scheme's order is
    `SpeakingOrder.HIDDEN`.

    Attributes:
        epsilon0: ε₀, above 0, in nats.

    Raises:
        ParameterError: ``epsilon0`` is not above 0 and finite.
    """

    epsilon0: float = positive(_LEVEL)


@question_randomizer("approximate", shuffled=6)
@dataclass(frozen=True, slots=True)
class ApproximateRandomizer(Checked):
    """Any (ε₀, δ₀)-DP randomizer; in a shuffle the conditions of `PureRandomizer` apply.

    If all clients use one randomizer that is chosen before the round, the shuffled messages have
    the same distribution in every order, and `SpeakingOrder.HIDDEN` may be declared.

    Attributes:
        epsilon0: ε₀, above 0, in nats.
        delta0: δ₀, strictly between 0 and 1.

    Raises:
        ParameterError: ``epsilon0`` or ``delta0`` is outside its domain.
    """

    epsilon0: float = positive(_LEVEL)
    delta0: float = open_unit("parameter δ₀ of the (ε₀, δ₀)-DP guarantee of the randomizer")


@question_randomizer("non-adaptive", shuffled=2)
@dataclass(frozen=True, slots=True)
class NonAdaptiveRandomizer(PureRandomizer):
    """An ε₀-DP randomizer that is chosen before the round and used by all clients of the round.

    The bounds of `PureRandomizer` hold for shuffled messages of this class in any order of the
    clients.
    """


@dataclass(frozen=True, slots=True)
class BoundedVariation(NonAdaptiveRandomizer):
    """A `NonAdaptiveRandomizer` with an upper bound on a total variation distance.

    Attributes:
        total_variation: τ, an upper bound on the total variation between the output distributions
            of any two inputs, in (0, 1]. Every ε₀-DP randomizer has τ of at most
            (e^{ε₀} − 1)/(e^{ε₀} + 1).

    Raises:
        ParameterError: ``epsilon0`` or ``total_variation`` is outside its domain.
    """

    total_variation: float = 1.0

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0, total_variation=self.total_variation)
        checks.probability(total_variation=self.total_variation)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class AttainedVariation(BoundedVariation):
    """A `BoundedVariation` whose ε₀ and τ are attained by two records, so lower bounds hold too.

    For each of the two records there is an event whose probability under this record is e^{ε₀}
    times the probability under the other record. The two probabilities differ by τ, which is at
    most (e^{ε₀} − 1)/(e^{ε₀} + 1). Every message outside these two events is equally likely under
    both records.
    """


@dataclass(frozen=True, slots=True)
class RepeatedMessages(NonAdaptiveRandomizer):
    """Several messages of each client in a step; the i-th messages of all clients share a shuffle.

    The messages of a client are independent draws of the same randomizer, from one record or from
    several records of the client, all of which the neighbouring relation may replace. Separate
    shuffles reveal less than one shuffle in which the messages of a client stay together.

    Attributes:
        epsilon0: ε₀ of all messages of a client together, ``messages`` times that of ``each``.
        each: randomizer of one message.
        messages: number of messages, at least 1.

    Raises:
        ParameterError: ``each`` is adaptive or a `RepeatedMessages`, or ``epsilon0`` is wrong.
    """

    each: NonAdaptiveRandomizer = NonAdaptiveRandomizer(1.0)
    messages: int = 1

    def __post_init__(self) -> None:
        checks.count(messages=self.messages)
        checks.positive(epsilon0=self.epsilon0)
        if not isinstance(self.each, NonAdaptiveRandomizer) or type(self.each) is type(self):
            expected = "a NonAdaptiveRandomizer of one message"
            raise ParameterError("each", type(self.each).__name__, expected)
        total = self.messages * self.each.epsilon0
        if self.epsilon0 != total:
            expected = f"{total}, which is messages * each.epsilon0"
            raise ParameterError("epsilon0", self.epsilon0, expected)
        plain_numbers(self)

    @classmethod
    def of(cls, each: NonAdaptiveRandomizer, messages: int) -> Self:
        """Randomizer that sends ``messages`` messages, each from the randomizer ``each``.

        Raises:
            ParameterError: ``each`` is adaptive or is itself a `RepeatedMessages`, or ``messages``
                is not a whole number of at least 1.
        """
        return cls(messages * each.epsilon0, each, messages)


@question_randomizer("kary-response", shuffled=3)
@dataclass(frozen=True, slots=True)
class KaryResponse(NonAdaptiveRandomizer):
    """k-ary randomized response: sends the true category with probability e^{ε₀}/(e^{ε₀} + k − 1).

    Otherwise the randomizer sends one of the k − 1 other categories, which are equally likely. The
    case of two categories is Warner's randomized response.

    Attributes:
        categories: number of categories k, at least 2.

    Raises:
        ParameterError: ``epsilon0`` or ``categories`` is outside its domain.
    """

    categories: int = count("number of categories, one of which is the client's value", 2, least=2)


@question_randomizer("hadamard-response", shuffled=4)
@dataclass(frozen=True, slots=True)
class HadamardResponse(NonAdaptiveRandomizer):
    """Hadamard response: one half of all messages is e^{ε₀} times as likely as the other half.

    The client's value determines the more likely half. The more likely halves of any two values
    have a quarter of all messages in common.
    """


@question_randomizer("sampled-bit-response", shuffled=5)
@dataclass(frozen=True, slots=True)
class SampledBitResponse(NonAdaptiveRandomizer):
    """Sampled-bit response: the index of a uniform coordinate, and a noisy value of its bit.

    The sent bit is the true bit with odds of e^{ε₀} to 1.

    The class also describes every randomizer that draws one of several disjoint pairs of messages
    uniformly and sends one message of the pair, where the client's record determines which message
    of the pair is e^{ε₀} times as likely as the other.
    """


@question_randomizer("discrete-gaussian")
@dataclass(frozen=True, slots=True)
class DiscreteGaussianNoise(Checked):
    """Discrete Gaussian noise n with probability ∝ e^{−n²/2s²}, added to a bounded integer.

    Attributes:
        standard_deviation: the parameter s, about the standard deviation, in units of the lattice.
        sensitivity: largest absolute value of a contribution, at least 1.

    Raises:
        ParameterError: a parameter is outside its domain.
    """

    standard_deviation: float = positive(_DEVIATION)
    sensitivity: int = count(_SENSITIVITY, 1)


@question_randomizer("rounded-gaussian")
@dataclass(frozen=True, slots=True)
class RoundedGaussianNoise(Checked):
    """Gaussian noise that is rounded to an integer and added to a bounded integer.

    Attributes:
        standard_deviation: standard deviation of the noise before rounding, in units of the
            lattice.
        sensitivity: largest absolute value of a contribution, at least 1.

    Raises:
        ParameterError: a parameter is outside its domain.
    """

    standard_deviation: float = positive(_DEVIATION)
    sensitivity: int = count(_SENSITIVITY, 1)


@dataclass(frozen=True, slots=True)
class TableRandomizer:
    """A mechanism with finitely many outcomes, given by their probabilities.

    Attributes:
        present: probabilities of the outcomes with the client, shape (outcomes,).
        absent: probabilities of the same outcomes without the client, shape (outcomes,).

    Raises:
        ParameterError: the probabilities do not sum to 1, or the numbers of outcomes differ.
    """

    present: Sequence[float]
    absent: Sequence[float]

    def __post_init__(self) -> None:
        for name in ("present", "absent"):
            object.__setattr__(self, name, _distribution(name, getattr(self, name)))
        if len(self.present) != len(self.absent):
            given = f"{len(self.present)} probabilities"
            raise ParameterError("present", given, f"{len(self.absent)}, the number in absent")


def _distribution(name: str, values: object) -> tuple[float, ...]:
    """Probabilities as a tuple, after a check that they are in [0, 1] and sum to 1."""
    expected = "a sequence of probabilities that sum to 1"
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise ParameterError(name, values, expected)
    masses = tuple(cast("Iterable[float]", values))
    for i, mass in enumerate(masses):
        checks.probability(**{f"{name}[{i}]": mass})
    if not abs(math.fsum(masses) - 1.0) <= 1e-9:
        raise ParameterError(name, f"numbers of sum {math.fsum(masses)!r}", expected)
    return tuple(map(float, masses))


_PAIR_MEMBERS = ("second_moment", "q_below", "q_above", "p_below", "p_above")


@dataclass(frozen=True, slots=True)
class PairRandomizer:
    """A mechanism given by the distribution of its likelihood ratio.

    Attributes:
        pair: an object with the members of `turnout.accounting.Pair`, such as
            `turnout.accounting.MonotonePair` of two densities.
        infinity_mass: probability, with the client, of outcomes that are impossible without it,
            in [0, 1].

    Raises:
        ParameterError: ``pair`` lacks a member, or ``infinity_mass`` is not in [0, 1].
    """

    pair: object
    infinity_mass: float = 0.0

    def __post_init__(self) -> None:
        missing = [name for name in _PAIR_MEMBERS if not hasattr(self.pair, name)]
        if missing or isinstance(self.pair, type):
            expected = f"an object with the members {', '.join(_PAIR_MEMBERS)}"
            raise ParameterError("pair", self.pair, expected)
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
"""All subclasses of `PureRandomizer`."""

close(*get_args(Randomizer), *FIXED_RANDOMIZERS)


def is_adaptive(randomizer: Randomizer) -> bool:
    """Whether a client's randomizer may depend on the messages of earlier clients.

    The shuffled messages of such a randomizer have a bound on ε only if the order of the clients is
    hidden.
    """
    if isinstance(randomizer, NonAdaptiveRandomizer):
        return False
    return isinstance(randomizer, PureRandomizer | ApproximateRandomizer)
