"""Coverage: how often the best action is dropped, and how often with widths that are wrong.

Imported by bandits.py. Two orthogonal actions whose means are ±5e-5, so rewards have all the
variance that they can have, no batch tells which is better, and at ε = 0.1 noise is as large as the
sums. At failure 0.1 at most 100 of 1,000 runs may drop the best action, up to chance; widths that
leave something out must drop it more often, or the study could not tell them from those that hold.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from turnout.bandits import (
    CentralSums,
    Elimination,
    LinearEnvironment,
    LocalBits,
    ShuffledBits,
    simulate_bandit,
)
from turnout.bandits.mechanisms import Channels
from turnout.bandits.policy import BatchEvidence, BatchRelease, Estimates, Widths
from turnout.randomness import SimulationStreams

ENVIRONMENT = LinearEnvironment(np.eye(2), np.array([5e-5, -5e-5]))
EPSILON, DELTA, FAILURE, HORIZON, RUNS, FIRST = 0.1, 1e-6, 0.1, 10**5, 1000, 50
MECHANISMS = (CentralSums(EPSILON), ShuffledBits(EPSILON, DELTA), LocalBits(EPSILON))


class WithoutNoise(Elimination):
    """Wrong: estimates as they are, with the variance that bare rewards would have."""

    def _evidence(self, state: Any, release: BatchRelease) -> BatchEvidence:
        pulls = release.batch.pulls
        bare = Channels(pulls, np.ones(pulls.size), np.inf)
        sums: Any = release.means * pulls
        return super()._evidence(state, BatchRelease(release.batch, sums, bare))


class OneLook(Elimination):
    """Wrong: reused sums as if a batch had not been chosen, and looked at, after those before."""

    def _widths(self, state: Any, contrasts: int) -> Widths:
        sound = super()._widths(state, contrasts)
        return _OneLook(sound.failure, sound.contrasts, sound.horizon, sound.pooled)


class _OneLook(Widths):
    def _share(self, batches: int) -> float:
        """The failure of a bound at one batch and one λ, which is then chosen among all."""
        return self.failure * self._levels(FIRST)


class Halved(Elimination):
    """Wrong: half of the widths."""

    def _widths(self, state: Any, contrasts: int) -> Widths:
        sound = super()._widths(state, contrasts)
        return _Halved(sound.failure, sound.contrasts, sound.horizon, sound.pooled)


class _Halved(Widths):
    def lower(self, evidence: Any, contrasts: Any) -> Estimates:
        found = super().lower(evidence, contrasts)
        return Estimates(found.values, found.radii / 2.0)


KINDS = {
    "as proved": Elimination,
    "wrong: noise left out": WithoutNoise,
    "wrong: reused sums as of one look": OneLook,
    "wrong: half of the widths": Halved,
}


def coverage() -> Any:
    """Of 1,000 runs those that drop the best action, at failure 0.1."""
    return {
        f"{sums.word}, {words}": partial(lost, kind(FAILURE, first=FIRST, commit=0.0), sums)
        for words, kind in KINDS.items()
        for sums in MECHANISMS
    }


def lost(policy: Elimination, sums: Any) -> int:
    """Runs that drop the best action."""
    found = 0
    for seed in range(RUNS):
        run = simulate_bandit(policy, ENVIRONMENT, sums, HORIZON, SimulationStreams(seed))
        found += ENVIRONMENT.best not in run.state.active
    return found
