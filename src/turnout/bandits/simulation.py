"""Simulated runs of a policy in an environment, batch by batch.

`simulate_bandit` returns a `Run`; each released sum is drawn from its exact distribution.
"""

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
    """Actions of a bandit, and the rewards of their pulls."""

    @property
    def actions(self) -> FloatArray:
        """Public actions, one in each row, shape (K, d)."""
        ...

    @property
    def gaps(self) -> FloatArray:
        """Regret of one pull of each action, shape (K,)."""
        ...

    def sums(self, mechanism: BatchMechanism, batch: Batch, first: int, source: Source) -> IntArray:
        """Released sums of a batch, shape (k,); ``first`` is the number of earlier pulls."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Finished run of a policy in an environment.

    Attributes:
        batches: batches in order.
        pulled: number of pulls up to the end of each batch, shape (batches,).
        regret: expected regret of all pulls up to the end of each batch, shape (batches,).
        state: state of the policy at the end.
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
    """Run of a policy over a horizon; equal streams give equal runs.

    Args:
        policy: policy that plans batches.
        environment: actions and rewards.
        mechanism: mechanism that releases the sums of a batch.
        horizon: number of pulls T, at least 1.
        streams: randomness, for simulation only.

    Raises:
        LocalProtocolError: the policy plans a batch without pulls, or with more pulls than are
            left.
    """
    state = policy.init(Problem(environment.actions, horizon))
    left, regret = horizon, 0.0
    batches: list[Batch] = []
    regrets: list[float] = []
    while left:
        # The policy plans a batch; its state depends only on released sums.
        number = len(batches)
        batch = policy.plan(state, streams.generator("bandit", "plan", number))
        if not 1 <= batch.size <= left or batch.pulls.min() < 1:
            raise LocalProtocolError(
                f"batch {number} has {batch.size} pulls: expected from 1 to {left} pulls, the "
                "number that is left, and at least 1 for each action"
            )
        # The mechanism releases the sums, and the policy updates its state.
        source = SimulationRandomness(streams.generator("bandit", "batch", number))
        sums = environment.sums(mechanism, batch, horizon - left, source)
        state = policy.update(state, BatchRelease(batch, sums, mechanism.channels(batch.pulls)))
        # Add the expected regret, computed from the true means.
        left -= batch.size
        regret += float(batch.pulls @ environment.gaps[batch.actions])
        batches.append(batch)
        regrets.append(regret)
    pulled = np.cumsum([batch.size for batch in batches])
    return Run(tuple(batches), pulled, np.array(regrets), state)
