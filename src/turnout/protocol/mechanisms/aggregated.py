"""Aggregated check-ins: everybody's sum, one Gaussian, a public divisor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.protocol.mechanisms.gaussian import GaussianMechanism, IndependentNoise
from turnout.protocol.mechanisms.interface import NoiseProcess, Released, State


@dataclass(frozen=True, slots=True)
class Aggregated(GaussianMechanism):
    """The noisy sum of all who came over the public number expected.

    Guarantees: noise of standard deviation σC is in every release, also when nobody came;
    the divisor is a constant of the run, whoever came.

    Attributes:
        expected_check_ins: n̄, a public constant.
        noise: how the draws of the steps belong together. Only independent ones are what a
            scheme's price is for.
    """

    client_noise_allowed: ClassVar[bool] = False

    expected_check_ins: float
    noise: NoiseProcess = field(default_factory=IndependentNoise)

    def __post_init__(self) -> None:
        checks.positive(expected_check_ins=self.expected_check_ins)

    def initial_state(self) -> State:
        """That of the noise."""
        return self.noise.initial_state(self.bound.dimension)

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """(sum + one draw of noise) / expected check-ins."""
        drawn, after = self.noise.draw(self.deviation, total.dimension, state, noise)
        noisy = type(total)(total.total + drawn, total.count).total
        return Released(noisy, self.bound.to_model(noisy / self.expected_check_ins)), after


MECHANISM = Aggregated
