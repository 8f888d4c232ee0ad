"""What protects one contribution, as mathematics."""

from __future__ import annotations

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
