"""Algorithm 2 of the check-in paper: the mean of the noisy updates of all who came."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.aggregates import Noise, UpdateSum
from turnout.protocol.mechanisms.gaussian import GaussianMechanism
from turnout.protocol.mechanisms.interface import Released, State


@dataclass(frozen=True, slots=True)
class Averaged(GaussianMechanism):
    """The mean of updates that each carry their own noise.

    Guarantees: every update in the mean carries its own noise of standard deviation σC; a
    step to which nobody came is left out. The divisor and the skips show the counts.
    """

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Mean of the client-noised updates, or a skip."""
        if total.count == 0:
            return Released(None, None, skipped=True), state
        noisy = total.with_noise(self.deviation, noise).total
        return Released(noisy, self.bound.to_model(noisy / total.count)), state


MECHANISM = Averaged
