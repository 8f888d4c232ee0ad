"""Algorithm 1 of the check-in paper: one uniform client of those who came, or a dummy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.protocol.mechanisms.gaussian import GaussianMechanism
from turnout.protocol.mechanisms.interface import Released, State
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source


@dataclass(frozen=True, slots=True)
class OneClient(GaussianMechanism):
    """The noisy update of one of those who came.

    Guarantees: at most one update is asked for; noise of standard deviation σC is in every
    step, also in a dummy one; the model moves in every b-th step only, by the mean of b steps.

    Attributes:
        minibatch: b. The noisy steps so far are the state, ``pending``.
    """

    minibatch: int = 1

    def __post_init__(self) -> None:
        checks.count(minibatch=self.minibatch)

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """One of those who checked in, uniformly; nobody if nobody did."""
        if arrived.size == 0:
            return arrived
        return arrived[source.below(arrived.size, 1)]

    def initial_state(self) -> State:
        """The sum of the noisy steps of a minibatch that is empty, in the units of the sums."""
        return {"pending": np.zeros(self.bound.dimension)}

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """The mean of b noisy steps where a minibatch is full."""
        answer = total if total.count else type(total)(total.total, 1)  # the dummy is zero
        noisy = answer.with_noise(self.deviation, noise).total
        filled = state["pending"] + noisy
        if (step + 1) % self.minibatch:
            return Released(noisy, None), {"pending": filled}
        return Released(noisy, self.bound.to_model(filled / self.minibatch)), self.initial_state()


MECHANISM = OneClient
