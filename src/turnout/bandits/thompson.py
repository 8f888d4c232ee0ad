"""Batched Thompson sampling on private sums.

`BatchedThompson` pulls each action in proportion to the posterior probability that it is the best.
The policy only postprocesses released sums, so that ε does not depend on it. Its regret is measured
and not proved, since the posterior is Gaussian with estimated variances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from turnout.bandits.elimination import (
    Elimination,
    EliminationState,
    core_set,
    elimination_from_plan,
)
from turnout.bandits.policy import (
    Batch,
    BatchEvidence,
    BatchRelease,
    PolicySettings,
    Problem,
    RewardPrivacy,
    check_growth,
    register_policy,
    whole_batch,
)
from turnout.core import checks
from turnout.core.arrays import FloatArray

_ROUNDS = 3  # rounds in which variances are estimated from means, and means from variances
_CHUNK = 2**22  # largest number of sampled rewards in memory


@dataclass(frozen=True, eq=False)
class Posterior:
    """Normal posterior distribution of θ.

    Attributes:
        mean: mean of θ, shape (d,).
        root: matrix R with covariance R Rᵀ, shape (d, d).
    """

    mean: FloatArray
    root: FloatArray


@dataclass(frozen=True, eq=False)
class ThompsonState:
    """State of the policy `BatchedThompson` after some batches.

    Attributes:
        problem: actions and horizon.
        releases: releases of all batches so far.
        posterior: posterior of θ.
        guard: state of the elimination on the same sums; None without a guard.
    """

    problem: Problem
    releases: tuple[BatchRelease, ...]
    posterior: Posterior
    guard: EliminationState | None = None

    @property
    def left(self) -> int:
        """Number of pulls left."""
        return self.problem.horizon - sum(one.batch.size for one in self.releases)


@dataclass(frozen=True)
class BatchedThompson:
    """Batched Thompson sampling: each action is pulled with the probability that it is the best.

    Source: Thompson, Biometrika 1933; batches after Kalkanli, Özgür, Batched Thompson sampling,
        NeurIPS 2021. The posterior takes the public distribution of the noise into account.

    Attributes:
        growth: ratio of the sizes of successive batches, above 1, at most 100.
        first: number of pulls of the first batch, at least 1; this batch pulls a core set.
        least: smallest probability of being the best with which an action is pulled; each action
            in a batch adds noise.
        samples: number of draws of θ from which the probabilities are estimated.
        commit: share of the horizon, at its end, in which only the action of the largest posterior
            mean is pulled.
        guard: elimination on the same sums; actions that it drops are not pulled. None: no guard.

    Raises:
        ParameterError: a parameter outside its domain.
    """

    growth: float = 1.5
    first: int = 20
    least: float = 0.02
    samples: int = 1000
    commit: float = 0.3
    guard: Elimination | None = None

    def __post_init__(self) -> None:
        check_growth(self.growth)
        checks.count(first=self.first, samples=self.samples)
        checks.probability(least=self.least, commit=self.commit)

    def init(self, problem: Problem) -> ThompsonState:
        """Initial state, whose prior of θ is a standard normal distribution."""
        dimension = problem.actions.shape[1]
        prior = Posterior(np.zeros(dimension), np.eye(dimension))
        guard = None if self.guard is None else self.guard.init(problem)
        return ThompsonState(problem, (), prior, guard)

    def plan(self, state: ThompsonState, generator: np.random.Generator) -> Batch:
        """Next batch: first a core set, then actions by posterior share, finally one action."""
        # The first batch pulls a core set.
        size = self.first * self.growth ** len(state.releases)
        features = state.problem.actions
        if not state.releases:
            design = core_set(features)
            return whole_batch(design.actions, design.shares, size, state.left)
        # The last part of the horizon pulls the action of the largest posterior mean.
        active = np.arange(len(features)) if state.guard is None else state.guard.active
        if state.left <= max(self.commit * state.problem.horizon, 1.0):
            best = active[np.argmax(features[active] @ state.posterior.mean)]
            return Batch(np.array([best]), np.array([state.left]))
        # All other batches: posterior shares, without the actions whose share is too small.
        shares = self._shares(features[active], state.posterior, generator)
        kept = shares >= min(self.least, float(shares.max()))
        return whole_batch(active[kept], shares[kept] / shares[kept].sum(), size, state.left)

    def update(self, state: ThompsonState, release: BatchRelease) -> ThompsonState:
        """State after a release, with the posterior given all sums and the guard's new state."""
        releases = (*state.releases, release)
        posterior = posterior_of(state.problem.actions, releases)
        guard = None
        if self.guard is not None and state.guard is not None:
            guard = self.guard.update(state.guard, release)
        return replace(state, releases=releases, posterior=posterior, guard=guard)

    def _shares(
        self, features: FloatArray, posterior: Posterior, generator: np.random.Generator
    ) -> FloatArray:
        """Share of sampled θ for which each action is the best, shape (K,)."""
        drawn = generator.standard_normal((self.samples, posterior.mean.size))
        sampled = posterior.mean + drawn @ posterior.root.T
        step = max(_CHUNK // len(features), 1)
        best = [
            np.argmax(sampled[start : start + step] @ features.T, axis=1)
            for start in range(0, self.samples, step)
        ]
        return np.bincount(np.concatenate(best), minlength=len(features)) / self.samples


@register_policy(
    "thompson",
    "batched Thompson sampling; its regret is measured, not proved",
    first=20,
    guarded=True,
)
def thompson_from_plan(settings: PolicySettings, privacy: RewardPrivacy) -> BatchedThompson:
    """Thompson sampling with the settings of a plan."""
    guard = elimination_from_plan(settings, privacy) if settings.guard else None
    return BatchedThompson(
        settings.growth, settings.first_batch, commit=settings.commit, guard=guard
    )


def posterior_of(actions: FloatArray, releases: tuple[BatchRelease, ...]) -> Posterior:
    """Posterior of θ for actions (K, d) after releases, from a standard normal prior.

    The variances of rewards depend on the posterior means, and the posterior depends on these
    variances. So both are computed in turn, in a fixed number of rounds.
    """
    dimension = actions.shape[1]
    posterior = Posterior(np.zeros(dimension), np.eye(dimension))
    for _ in range(_ROUNDS):
        information, moment = np.eye(dimension), np.zeros(dimension)
        for release in releases:
            # Evidence of the batch; means are taken within one posterior standard deviation.
            features = actions[release.batch.actions]
            means = features @ posterior.mean
            spread = np.linalg.norm(features @ posterior.root, axis=1)
            low, high = np.clip(means - spread, -1, 1), np.clip(means + spread, -1, 1)
            evidence = BatchEvidence(features, release, low, high)
            information = information + evidence.information
            moment = moment + evidence.moment
        # Mean and covariance from the information matrix.
        values, vectors = np.linalg.eigh(information)
        root = vectors / np.sqrt(values)
        posterior = Posterior(root @ (root.T @ moment), root)
    return posterior
