"""Coverage of confidence widths: how often the best action is dropped, also with faulty widths.

Imported by bandits.py. Two orthogonal actions have means ±5e-5. Rewards then have the largest
possible variance, no batch shows which action is better, and at ε = 0.1 the noise is as large as
the sums. At failure probability 0.1 at most 100 of 1,000 runs may drop the best action, up to
sampling error. Faulty widths must drop it more often; otherwise the study could not distinguish
them from correct widths.
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
    """Faulty widths: the variance of the rewards without that of the privacy noise."""

    def _evidence(self, state: Any, release: BatchRelease) -> BatchEvidence:
        pulls = release.batch.pulls
        bare = Channels(pulls, np.ones(pulls.size), np.inf)
        sums: Any = release.means * pulls
        return super()._evidence(state, BatchRelease(release.batch, sums, bare))


class OneLook(Elimination):
    """Faulty widths: reused sums are treated as if no batch depended on earlier batches."""

    def _widths(self, state: Any, contrasts: int) -> Widths:
        sound = super()._widths(state, contrasts)
        return _OneLook(sound.failure, sound.contrasts, sound.horizon, sound.pooled)


class _OneLook(Widths):
    def _share(self, batches: int) -> float:
        """Failure probability for one batch and one λ, although λ is chosen among all batches."""
        return self.failure * self._levels(FIRST)


class Halved(Elimination):
    """Faulty widths: half of the correct widths."""

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
    """Number of 1,000 runs that drop the best action, at failure probability 0.1."""
    return {
        f"{sums.word}, {words}": partial(lost, kind(FAILURE, first=FIRST, commit=0.0), sums)
        for words, kind in KINDS.items()
        for sums in MECHANISMS
    }


def lost(policy: Elimination, sums: Any) -> int:
    """Number of runs that drop the best action."""
    found = 0
    for seed in range(RUNS):
        run = simulate_bandit(policy, ENVIRONMENT, sums, HORIZON, SimulationStreams(seed))
        found += ENVIRONMENT.best not in run.state.active
    return found
