"""Batched Thompson sampling on private sums: a batch's pulls are the posterior's shares.

Privacy is postprocessing of released sums, as for every policy. That its regret is small is
measured, not proved: the posterior is Gaussian with plugged-in variances, which bounds nothing.
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

_ROUNDS = 3  # of estimating variances from means and means with variances
_CHUNK = 2**22  # numbers of a block of sampled rewards


@dataclass(frozen=True, eq=False)
class Posterior:
    """A normal law of θ.

    Attributes:
        mean: shape (d,).
        root: a square root of the covariance, shape (d, d).
    """

    mean: FloatArray
    root: FloatArray


@dataclass(frozen=True, eq=False)
class ThompsonState:
    """The state of Thompson sampling.

    Attributes:
        problem: actions and horizon.
        releases: all batches so far.
        posterior: of θ.
        guard: the state of the elimination on the same sums, if there is one.
    """

    problem: Problem
    releases: tuple[BatchRelease, ...]
    posterior: Posterior
    guard: EliminationState | None = None

    @property
    def left(self) -> int:
        """Pulls to come."""
        return self.problem.horizon - sum(one.batch.size for one in self.releases)


@dataclass(frozen=True)
class BatchedThompson:
    """Each action is pulled as often as the posterior has it for the best, in growing batches.

    Source: Thompson, Biometrika 1933; batches after Kalkanli, Özgür, Batched Thompson sampling,
        NeurIPS 2021. The posterior knows the mechanism's noise, which is public.

    Attributes:
        growth: ratio of the sizes of successive batches, above 1.
        first: pulls of the first batch, which are a core set's.
        least: share below which an action is not pulled: noise is paid for each action.
        samples: draws of θ from which shares are counted.
        commit: share of the horizon in which the action of the largest posterior mean is pulled
            alone.
        guard: an elimination on the same sums whose dropped actions are not pulled, or None.
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
        """The prior: standard normal, wider than the ball in which θ lies."""
        dimension = problem.actions.shape[1]
        prior = Posterior(np.zeros(dimension), np.eye(dimension))
        guard = None if self.guard is None else self.guard.init(problem)
        return ThompsonState(problem, (), prior, guard)

    def plan(self, state: ThompsonState, generator: np.random.Generator) -> Batch:
        """First a core set; then the posterior's shares; at the end the best posterior mean."""
        size = self.first * self.growth ** len(state.releases)
        features = state.problem.actions
        if not state.releases:
            design = core_set(features)
            return whole_batch(design.actions, design.shares, size, state.left)
        active = np.arange(len(features)) if state.guard is None else state.guard.active
        if state.left <= max(self.commit * state.problem.horizon, 1.0):
            best = active[np.argmax(features[active] @ state.posterior.mean)]
            return Batch(np.array([best]), np.array([state.left]))
        shares = self._shares(features[active], state.posterior, generator)
        kept = shares >= min(self.least, float(shares.max()))
        return whole_batch(active[kept], shares[kept] / shares[kept].sum(), size, state.left)

    def update(self, state: ThompsonState, release: BatchRelease) -> ThompsonState:
        """The posterior of all sums, and what the guard drops."""
        releases = (*state.releases, release)
        posterior = posterior_of(state.problem.actions, releases)
        guard = None
        if self.guard is not None and state.guard is not None:
            guard = self.guard.update(state.guard, release)
        return replace(state, releases=releases, posterior=posterior, guard=guard)

    def _shares(
        self, features: FloatArray, posterior: Posterior, generator: np.random.Generator
    ) -> FloatArray:
        """How often each action is the best one of sampled θ."""
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
    """The posterior of a standard normal prior, with variances of rewards at its own means."""
    dimension = actions.shape[1]
    posterior = Posterior(np.zeros(dimension), np.eye(dimension))
    for _ in range(_ROUNDS):
        information, moment = np.eye(dimension), np.zeros(dimension)
        for release in releases:
            features = actions[release.batch.actions]
            means = features @ posterior.mean
            spread = np.linalg.norm(features @ posterior.root, axis=1)
            low, high = np.clip(means - spread, -1, 1), np.clip(means + spread, -1, 1)
            evidence = BatchEvidence(features, release, low, high)
            information = information + evidence.information
            moment = moment + evidence.moment
        values, vectors = np.linalg.eigh(information)
        root = vectors / np.sqrt(values)
        posterior = Posterior(root @ (root.T @ moment), root)
    return posterior
