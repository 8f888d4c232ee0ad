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
    """Any ε₀-DP randomizer: its output's law changes by at most e^{ε₀} between any two inputs."""

    epsilon0: float

    def __post_init__(self) -> None:
        checks.positive(epsilon0=self.epsilon0)


@dataclass(frozen=True, slots=True)
class ApproximateRandomizer:
    """Any (ε₀, δ₀)-DP randomizer."""

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
