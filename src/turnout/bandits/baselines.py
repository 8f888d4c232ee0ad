"""Policies to compare with: LinUCB, and phased elimination as textbooks have it.

Thompson sampling without privacy is `BatchedThompson` on `BareSums`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from turnout.bandits.elimination import Elimination
from turnout.bandits.policy import Batch, Problem, Release
from turnout.core import checks

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinUCBState:
    """The state of LinUCB.

    Attributes:
        problem: actions and horizon.
        pulled: pulls so far.
        inverse: of λI + Σ a aᵀ, shape (d, d).
        moment: Σ reward · a, shape (d,).
    """

    problem: Problem
    pulled: int
    inverse: FloatArray
    moment: FloatArray


@dataclass(frozen=True)
class LinUCB:
    """Pulls the action of the largest upper confidence bound, on sums of any noise of bits.

    Source: Abbasi-Yadkori, Pál, Szepesvári, Improved algorithms for linear stochastic bandits,
        NeurIPS 2011, Theorem 2; §5.1 (rare switches: an action is kept until det V has grown by
        ``switch``).

    The width is for rewards of ±1 without noise, so its regret bound holds on `BareSums` alone.

    Attributes:
        failure: probability with which the confidence ellipsoid may fail; 1/T if None.
        ridge: λ, above 0.
        switch: growth of det V at which the action is chosen anew; 0: at every pull.
    """

    failure: float | None = None
    ridge: float = 1.0
    switch: float = 0.1

    def __post_init__(self) -> None:
        if self.failure is not None:
            checks.open_unit(failure=self.failure)
        checks.positive(ridge=self.ridge)
        checks.non_negative(switch=self.switch)

    def init(self, problem: Problem) -> LinUCBState:
        """No pull yet."""
        dimension = problem.actions.shape[1]
        return LinUCBState(problem, 0, np.eye(dimension) / self.ridge, np.zeros(dimension))

    def plan(self, state: LinUCBState, generator: np.random.Generator) -> Batch:
        """The most promising action, until it has told enough."""
        features = state.problem.actions
        spreads = np.einsum("ij,jk,ik->i", features, state.inverse, features)
        bounds = features @ (state.inverse @ state.moment)
        bounds += self._width(state) * np.sqrt(np.maximum(spreads, 0.0))
        best = int(np.argmax(bounds))
        # n pulls of a multiply det V by 1 + n·aᵀV⁻¹a.
        pulls = math.floor(self.switch / max(float(spreads[best]), 1e-300)) + 1
        pulls = min(pulls, state.problem.horizon - state.pulled)
        return Batch(np.array([best]), np.array([pulls]))

    def update(self, state: LinUCBState, release: Release) -> LinUCBState:
        """Adds pulls and rewards."""
        action = state.problem.actions[int(release.batch.actions[0])]
        pulls = release.batch.size
        moved = state.inverse @ action
        inverse = state.inverse - np.outer(moved, moved) * pulls / (1.0 + pulls * (action @ moved))
        moment = state.moment + float(release.means[0]) * pulls * action
        return replace(state, pulled=state.pulled + pulls, inverse=inverse, moment=moment)

    def _width(self, state: LinUCBState) -> float:
        """β of the ellipsoid ‖θ̂ − θ‖_V ≤ β: √(ln(det V/(λᵈp²))) + √λ, with ‖θ‖ ≤ 1."""
        failure = self.failure or 1.0 / (state.problem.horizon + 1)
        log_det = -float(np.linalg.slogdet(state.inverse * self.ridge)[1])
        return math.sqrt(log_det + 2.0 * math.log(1.0 / failure)) + math.sqrt(self.ridge)


def phased_elimination(failure: float | None = None, growth: float = 2.0) -> Elimination:
    """Elimination with each action's own width, from each batch's sums alone, variance taken as 1.

    Source: Lattimore, Szepesvári, Bandit algorithms, 2020, §22.1.
    """
    return Elimination(failure, growth, commit=0.0, contrasts=False, reuse=False, variances=False)
