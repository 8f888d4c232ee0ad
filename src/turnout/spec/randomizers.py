"""What protects one contribution, as mathematics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import cast, get_args

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.spec.parameters import plain_numbers
from turnout.spec.registry import close


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Gaussian noise on an update whose ℓ2 norm is clipped to C.

    Attributes:
        noise_multiplier: standard deviation of the noise divided by C. Accounting needs
            nothing else; C itself belongs to the task.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        checks.positive(noise_multiplier=self.noise_multiplier)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class LaplaceNoise:
    """Laplace noise on one number clipped to [−C, C].

    Attributes:
        scale: scale of the noise divided by C.
    """

    scale: float

    def __post_init__(self) -> None:
        checks.positive(scale=self.scale)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class PureRandomizer:
    """Any ε₀-DP randomizer: its output's law changes by at most e^{ε₀} between any two inputs.

    In a shuffle the messages before may choose it, as long as the laws that any two clients, with
    any records, would send in the same place are within a factor e^{ε₀}, and the scheme declares
    that the order of speaking is `SpeakingOrder.HIDDEN`.
    """

    epsilon0: float

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class FixedRandomizer(PureRandomizer):
    """One ε₀-DP randomizer, fixed before the round, that all clients of the round use.

    In a shuffle it costs what `PureRandomizer` costs, without a condition on the order of speaking.
    """


@dataclass(frozen=True, slots=True)
class KaryResponse(FixedRandomizer):
    """The true one of k categories with probability e^{ε₀}/(e^{ε₀} + k − 1), else any other.

    Attributes:
        categories: k ≥ 2; with 2 it is Warner's randomized response.
    """

    categories: int = 2

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0)
        checks.count(2, categories=self.categories)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class HadamardResponse(FixedRandomizer):
    """A uniform message of a half of all messages, that of the true value with e^{ε₀} to 1.

    Any two values' halves share a quarter of all messages.
    """


@dataclass(frozen=True, slots=True)
class BitResponse(FixedRandomizer):
    """The number of a uniform coordinate and its bit, which is true with e^{ε₀} to 1."""


@dataclass(frozen=True, slots=True)
class ApproximateRandomizer:
    """Any (ε₀, δ₀)-DP randomizer; in a shuffle on the conditions of `PureRandomizer`.

    If all clients use one that is chosen before the round, the shuffled messages have the same law
    in every order, so `SpeakingOrder.HIDDEN` may be declared.
    """

    epsilon0: float
    delta0: float

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0)
        checks.open_unit(delta0=self.delta0)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianNoise:
    """Integer noise with mass ∝ e^{−n²/2s²} on one integer of at most ``sensitivity`` in size.

    Attributes:
        standard_deviation: s, in units of the lattice.
        sensitivity: largest contribution, in units of the lattice.
    """

    standard_deviation: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        checks.positive(standard_deviation=self.standard_deviation)
        checks.count(sensitivity=self.sensitivity)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class RoundedGaussianNoise:
    """Gaussian noise rounded to integers, on one integer of at most ``sensitivity`` in size.

    Attributes:
        standard_deviation: of the noise before rounding, in units of the lattice.
        sensitivity: largest contribution, in units of the lattice.
    """

    standard_deviation: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        checks.positive(standard_deviation=self.standard_deviation)
        checks.count(sensitivity=self.sensitivity)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class TableRandomizer:
    """A mechanism with finitely many outcomes, by their probabilities with and without her.

    Attributes:
        present: probabilities with her, in any order, shape (outcomes,).
        absent: probabilities without her, in the same order.
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
        leak: probability, with her, of outcomes that are impossible without her.
    """

    pair: object
    leak: float = 0.0

    def __post_init__(self) -> None:
        missing = [name for name in _PAIR_MEMBERS if not hasattr(self.pair, name)]
        if missing or isinstance(self.pair, type):
            raise ParameterError("pair", self.pair, f"an object with {', '.join(_PAIR_MEMBERS)}")
        checks.probability(leak=self.leak)
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

FIXED_RANDOMIZERS = (FixedRandomizer, KaryResponse, HadamardResponse, BitResponse)
"""The subclasses of `PureRandomizer`, of which there are no others."""

close(*get_args(Randomizer), *FIXED_RANDOMIZERS)


def is_adaptive(randomizer: Randomizer) -> bool:
    """Whether the messages before may choose a randomizer, so that a shuffle's order is hidden."""
    if isinstance(randomizer, FixedRandomizer):
        return False
    return isinstance(randomizer, PureRandomizer | ApproximateRandomizer)
