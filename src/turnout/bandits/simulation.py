"""Runs of a policy in an environment, batch by batch, each sum drawn in its exact distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from turnout.bandits.mechanisms import BatchMechanism
from turnout.bandits.policy import Batch, BatchRelease, Policy, Problem
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import LocalProtocolError
from turnout.randomness import SimulationRandomness, SimulationStreams, Source


class Environment(Protocol):
    """Where rewards come from."""

    @property
    def actions(self) -> FloatArray:
        """Public, shape (K, d)."""
        ...

    @property
    def gaps(self) -> FloatArray:
        """Regret of one pull of each action, shape (K,)."""
        ...

    def sums(self, mechanism: BatchMechanism, batch: Batch, first: int, source: Source) -> IntArray:
        """A batch's released sums; ``first`` pulls were made before."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run.

    Attributes:
        batches: in order.
        pulled: pulls up to the end of each batch, shape (batches,).
        regret: expected regret of all pulls up to there, shape (batches,).
        state: the policy's, at the end.
    """

    batches: tuple[Batch, ...]
    pulled: IntArray
    regret: FloatArray
    state: Any


def simulate_bandit(
    policy: Policy[Any],
    environment: Environment,
    mechanism: BatchMechanism,
    horizon: int,
    streams: SimulationStreams,
) -> Run:
    """One run of T pulls; equal streams give equal runs.

    Raises:
        LocalProtocolError: the policy plans no pull, or more than are left.
    """
    state = policy.init(Problem(environment.actions, horizon))
    left, regret = horizon, 0.0
    batches: list[Batch] = []
    regrets: list[float] = []
    while left:
        number = len(batches)
        batch = policy.plan(state, streams.generator("bandit", "plan", number))
        if not 1 <= batch.size <= left or batch.pulls.min() < 1:
            raise LocalProtocolError(f"batch {number} has {batch.size} pulls, {left} are left")
        source = SimulationRandomness(streams.generator("bandit", "batch", number))
        sums = environment.sums(mechanism, batch, horizon - left, source)
        state = policy.update(state, BatchRelease(batch, sums, mechanism.channels(batch.pulls)))
        left -= batch.size
        regret += float(batch.pulls @ environment.gaps[batch.actions])
        batches.append(batch)
        regrets.append(regret)
    pulled = np.cumsum([batch.size for batch in batches])
    return Run(tuple(batches), pulled, np.array(regrets), state)
