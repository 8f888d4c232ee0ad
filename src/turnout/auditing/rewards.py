"""The distinguishing game on whole runs of a bandit: one client's reward is +1, or −1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.bandits import Batch, Mechanism, Policy, Problem, Release
from turnout.randomness import Source
from turnout.schemes import TrustModel

_ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class RewardGame:
    """Runs of a policy of two actions; the client is the first one to pull action 0.

    All others hold −1, which for shuffled bits is the worst that they can hold. What is seen: the
    sum of the client's own batch (its message, if nobody is trusted), and the pulls of action 0.

    Attributes:
        mechanism: what randomizes rewards and releases sums.
        policy: what chooses the batches.
        horizon: pulls of a run.
    """

    mechanism: Mechanism
    policy: Policy[Any]
    horizon: int = 48

    def outputs(self, world: int, trials: int, source: Source) -> NDArray[np.float64]:
        """The views of so many runs, shape (trials, 2).

        Runs of equal releases have equal states, so they are planned together; every message is
        drawn.
        """
        reward, policy = (1, -1)[world], self.policy
        views = np.empty((trials, 2))
        root = policy.init(Problem(_ACTIONS, self.horizon))
        groups: list[tuple[Any, NDArray[np.int64], int]] = [(root, np.arange(trials), 0)]
        while groups:
            state, members, pulled = groups.pop()
            batch = policy.plan(state, np.random.default_rng(0))
            pulled += int(batch.pulls[batch.actions == 0].sum())
            own = reward if state is root else -1
            first, sums = self._released(batch, own, members.size, source)
            if state is root:
                local = self.mechanism.trust is TrustModel.LOCAL
                views[:, 0] = first if local else sums[:, 0]
            if batch.size == state.left:
                views[members, 1] = pulled
                continue
            different, which = np.unique(sums, axis=0, return_inverse=True)
            for number, row in enumerate(different):
                release = Release(batch, row, self.mechanism.channels(batch.pulls))
                chosen = members[which.ravel() == number]
                groups.append((policy.update(state, release), chosen, pulled))
        return views

    def _released(
        self, batch: Batch, reward: int, runs: int, source: Source
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The client's messages (runs,), and the released sums of equal batches (runs, actions)."""
        totals, first = [], np.zeros(runs, np.int64)
        for action, pulls in enumerate(batch.pulls.tolist()):
            rewards = np.full((runs, pulls), -1)
            rewards[:, 0] = reward if action == 0 else -1
            messages = self.mechanism.messages(rewards.ravel(), pulls, source)
            messages = messages.reshape(runs, pulls)
            totals.append(messages.sum(axis=1))
            first = messages[:, 0] if action == 0 else first
        sums = self.mechanism.release(np.array(totals).T.ravel(), source)
        return first, sums.reshape(runs, batch.pulls.size)
