"""What protects one contribution, as mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnout.core import checks


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


@dataclass(frozen=True, slots=True)
class LaplaceNoise:
    """Laplace noise on one number clipped to [−C, C].

    Attributes:
        scale: scale of the noise divided by C.
    """

    scale: float

    def __post_init__(self) -> None:
        checks.positive(scale=self.scale)


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
        object.__setattr__(self, "present", tuple(self.present))
        object.__setattr__(self, "absent", tuple(self.absent))


@dataclass(frozen=True, slots=True)
class PairRandomizer:
    """A mechanism by the law of its likelihood ratio.

    Attributes:
        pair: an object with the members of `turnout.accounting.pairs.Pair`, such as
            `turnout.accounting.pairs.MonotonePair` of two densities.
        leak: probability, with her, of outcomes that are impossible without her.
    """

    pair: object
    leak: float = 0.0

    def __post_init__(self) -> None:
        checks.probability(leak=self.leak)


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
