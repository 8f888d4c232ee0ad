"""Batched elimination on core sets, on private sums, with widths that hold.

Source: after thesis, Algorithms 6.3.1, 6.3.2 and 6.4.1; docs/design/bandits.md says what differs,
and why the widths hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnout.bandits.confidence import Evidence, Widths
from turnout.bandits.core_sets import CoreSet, core_set
from turnout.bandits.policy import Batch, Problem, Release, check_growth, whole_batch
from turnout.core import checks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_MEANS_SHARE = 0.1  # of the failure probability, for the bounds on means that bound variances
_CHAMPIONS = 4  # actions to which all others are compared


@dataclass(frozen=True, eq=False)
class EliminationState:
    """The state of an elimination.

    Attributes:
        problem: actions and horizon.
        active: numbers of the actions that may be the best, ascending.
        evidence: all batches so far.
    """

    problem: Problem
    active: IntArray
    evidence: tuple[Evidence, ...] = ()

    @property
    def done(self) -> int:
        """Pulls so far."""
        return sum(one.release.batch.size for one in self.evidence)

    @property
    def left(self) -> int:
        """Pulls to come."""
        return self.problem.horizon - self.done


@dataclass(frozen=True)
class Elimination:
    """Pulls a core set of the actions that may be the best, in growing batches, and drops others.

    Guarantees:
        the best action is dropped with probability at most ``failure``, whatever the actions, θ and
        the horizon: on which batches pull what, nothing is assumed.

    Attributes:
        failure: that probability; 1/T if None.
        growth: ratio of the sizes of successive batches, above 1.
        first: pulls of the first batch.
        commit: share of the horizon in which the action that looks best is played alone.
        contrasts: compare actions by ⟨a − b, θ⟩; else by each one's own width, as the thesis does.
        reuse: use earlier batches' sums too; else each batch stands alone.
        variances: bound the variance of rewards by what is known of their means; else by 1.
        core_sets: pull a core set; else all active actions equally often.
    """

    failure: float | None = None
    growth: float = 1.5
    first: int = 50
    commit: float = 0.3
    contrasts: bool = True
    reuse: bool = True
    variances: bool = True
    core_sets: bool = True

    def __post_init__(self) -> None:
        if self.failure is not None:
            checks.open_unit(failure=self.failure)
        check_growth(self.growth)
        checks.count(first=self.first)
        checks.probability(commit=self.commit)

    def init(self, problem: Problem) -> EliminationState:
        """All actions may be the best."""
        return EliminationState(problem, np.arange(len(problem.actions)))

    def plan(self, state: EliminationState, generator: np.random.Generator) -> Batch:
        """The active actions' core set; at the end the action that looks best."""
        size = self.first * self.growth ** len(state.evidence)
        last = state.left <= max(self.commit * state.problem.horizon, 1.0)
        if state.evidence and (state.active.size == 1 or last):
            best = state.active[np.argmax(state.problem.actions[state.active] @ pooled(state))]
            return Batch(np.array([best]), np.array([state.left]))
        design = self._design(state)
        return whole_batch(state.active[design.actions], design.shares, size, state.left)

    def update(self, state: EliminationState, release: Release) -> EliminationState:
        """Drops what another action beats for sure."""
        known = replace(state, evidence=(*state.evidence, self._evidence(state, release)))
        if state.active.size == 1 or known.left == 0:
            return known
        return replace(known, active=self.survivors(known))

    def survivors(self, state: EliminationState) -> IntArray:
        """The active actions that none of the champions beats for sure."""
        features = state.problem.actions[state.active]
        champions = np.argsort(-(features @ pooled(state)))[:_CHAMPIONS]
        kept = np.ones(state.active.size, dtype=np.bool_)
        compared = self._beaten_by_contrast if self.contrasts else self._beaten_by_widths
        for champion in champions:
            kept &= ~compared(state, features, int(champion))
        kept[champions[0]] |= not kept.any()
        return state.active[kept]

    def _beaten_by_contrast(
        self, state: EliminationState, features: FloatArray, champion: int
    ) -> NDArray[np.bool_]:
        """⟨champion − a, θ⟩ > 0 for sure.

        The best action is dropped only if one of the K − 1 bounds on ⟨a − best, θ⟩ fails.
        """
        widths = self._widths(state, len(state.problem.actions) - 1)
        found = widths.lower(state.evidence, features[champion] - features)
        return found.values > found.radii

    def _beaten_by_widths(
        self, state: EliminationState, features: FloatArray, champion: int
    ) -> NDArray[np.bool_]:
        """The champion's lower bound is above the other's upper bound."""
        widths = self._widths(state, len(state.problem.actions) + 1)
        up = widths.lower(state.evidence, features[[champion]])
        down = widths.lower(state.evidence, -features)
        return up.values - up.radii > -down.values + down.radii

    def _widths(self, state: EliminationState, contrasts: int) -> Widths:
        share = 1.0 - _MEANS_SHARE if self.variances else 1.0
        horizon = state.problem.horizon
        return Widths(share * self._failure(horizon), max(contrasts, 1), horizon, self.reuse)

    def _failure(self, horizon: int) -> float:
        return 1.0 / (horizon + 1) if self.failure is None else self.failure

    def _evidence(self, state: EliminationState, release: Release) -> Evidence:
        """A batch with bounds on its actions' means, from the batches before."""
        features = state.problem.actions[release.batch.actions]
        low, high = -np.ones(len(features)), np.ones(len(features))
        if self.variances and state.evidence:
            horizon = state.problem.horizon
            share = _MEANS_SHARE * self._failure(horizon)
            widths = Widths(share, 2 * len(state.problem.actions), horizon, self.reuse)
            up = widths.lower(state.evidence, features)
            down = widths.lower(state.evidence, -features)
            low = np.clip(up.values - up.radii, -1.0, 1.0)
            high = np.clip(-down.values + down.radii, -1.0, 1.0)
            low, high = np.minimum(low, high), np.maximum(low, high)
        return Evidence(features, release, low, high)

    def _design(self, state: EliminationState) -> CoreSet:
        features = state.problem.actions[state.active]
        if not features.any():
            return CoreSet(np.zeros(1, np.int64), np.ones(1), 0.0, 0)
        if not self.core_sets:
            count = state.active.size
            return CoreSet(np.arange(count), np.full(count, 1.0 / count), np.inf, 0)
        return _cached_design(features.tobytes(), features.shape)


def pooled(state: EliminationState) -> FloatArray:
    """The least squares estimate of θ from all batches, shape (d,)."""
    information = sum(one.information for one in state.evidence)
    moment = sum(one.moment for one in state.evidence)
    return np.linalg.pinv(information, rcond=1e-12, hermitian=True) @ moment


@lru_cache(maxsize=256)
def _cached_design(features: bytes, shape: tuple[int, int]) -> CoreSet:
    return core_set(np.frombuffer(features).reshape(shape))
