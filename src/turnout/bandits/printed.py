"""The three bandit algorithms of the thesis as printed, only for figures and audits.

Source: thesis, Algorithms 6.3.1, 6.3.2 and 6.4.1, with two repairs without which they cannot run:
    the last batch is shortened so that the run has T pulls, and the pseudo-inverse replaces the
    inverse. The printed algorithms have three faults (docs/errata.md). (1) The noise assumes a
    sensitivity of 1, but the sensitivity is 2, so the true ε is twice the stated ε. (2) The
    shuffled algorithm counts the pulls of all actions, but only messages about the same action hide
    a client's message. It also uses the clones bound outside the bound's range. (3) The widths γᵢ
    are not valid. With ``sensitivity`` 2 the central and the local algorithm have the stated ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from turnout.bandits.elimination import core_set
from turnout.bandits.mechanisms import BatchMechanism, Channels
from turnout.bandits.policy import Batch, BatchRelease, Problem, whole_batch
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import Bounds
from turnout.core.errors import UnsupportedError
from turnout.randomness import Source

Model = Literal["none", "central", "local", "shuffled"]


@dataclass(frozen=True)
class PrintedSums(BatchMechanism):
    """Mechanism of the printed algorithms: sums with continuous Laplace noise.

    Attributes:
        model: trust model.
        epsilon_asked: ε of the thesis, above 0.
        delta_asked: δ of the shuffled model.
        sensitivity: 1 as printed; 2 is the true sensitivity of a sum of rewards in [−1, 1].

    Raises:
        ParameterError: a parameter outside its domain.
    """

    model: Model
    epsilon_asked: float = 1.0
    delta_asked: float = 1e-6
    sensitivity: int = 1
    word = "as printed"
    trust = None

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon_asked)
        checks.open_unit(delta=self.delta_asked)
        checks.count(sensitivity=self.sensitivity)

    def channels(self, pulls: IntArray) -> Channels:
        """Distributions of the sums as if without noise, as the thesis' estimates assume."""
        return Channels(pulls, np.ones(pulls.size), np.inf)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Raises UnsupportedError, since only sums are simulated."""
        raise UnsupportedError(
            "the algorithms as printed have no messages; use `simulated`, for figures only"
        )

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Raises UnsupportedError, since only sums are simulated."""
        raise UnsupportedError(
            "the algorithms as printed have no messages; use `simulated`, for figures only"
        )

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Equal lower and upper bound on ε of a run under replacement of a reward.

        A sum of rewards changes by at most 2. The printed algorithms scale their noise to
        ``sensitivity``, so ε is 2/``sensitivity`` times ``epsilon_asked``; the model "none" has
        infinite ε.

        Args:
            batches: number of pulls of each action, (k,), for each released batch. The bounds do
                not depend on it, because a client takes part in one batch.

        Raises:
            UnsupportedError: the shuffled model, for which no ε is proved.
        """
        if self.model == "shuffled":
            raise UnsupportedError(
                "Algorithm 6.4.1 as printed has no proved epsilon; use ShuffledBits"
            )
        if self.model == "none":
            return Bounds(np.inf, np.inf)
        true = 2.0 * self.epsilon_asked / self.sensitivity
        return Bounds(true, true)

    def simulated(self, pulls: IntArray, means: FloatArray, source: Source) -> IntArray:
        """Noisy sums of a batch as floats, since continuous noise is added; shape (k,)."""
        generator = np.random.default_rng(int(source.below(2**62, 1)[0]))
        totals = 2.0 * generator.binomial(pulls, 0.5 * (1.0 + means)) - pulls
        if self.model == "none":
            return totals  # pyright: ignore[reportReturnType]
        scale = self.sensitivity / self.level(int(pulls.sum()))
        # A sum of n Laplace draws is the difference of two gamma draws of shape n.
        shape = np.ones(pulls.size) if self.model == "central" else pulls.astype(np.float64)
        noise = generator.gamma(shape) - generator.gamma(shape)
        return totals + scale * noise  # pyright: ignore[reportReturnType]

    def level(self, batch: int) -> float:
        """ε of a sum, or in the shuffled model ε₀ of a message, if ``batch`` clients take part."""
        if self.model != "shuffled":
            return self.epsilon_asked
        return printed_local_epsilon(self.epsilon_asked, self.delta_asked, batch)


@lru_cache(maxsize=4096)
def printed_local_epsilon(epsilon: float, delta: float, clients: int) -> float:
    """Level ε₀ at which the thesis' bound (6.10) on ε equals ``epsilon``, by bisection.

    As in the thesis, the condition on ε₀ under which (6.10) holds is not checked.
    """

    def amplified(level: float) -> float:
        root = 8.0 * math.sqrt(math.exp(level) * math.log(4.0 / delta) / clients)
        return math.log1p(math.tanh(0.5 * level) * (root + 8.0 * math.exp(level) / clients))

    low, high = 0.0, 60.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if amplified(middle) <= epsilon else (low, middle)
    return max(low, 1e-9)


@dataclass(frozen=True, eq=False)
class PrintedState:
    """State of the printed elimination, with the numbers of batches and pulls so far."""

    problem: Problem
    active: IntArray
    estimate: FloatArray
    batches: int = 0
    pulled: int = 0


@dataclass(frozen=True)
class PrintedElimination:
    """Elimination with the numbers of pulls qⁱ and the confidence widths γᵢ of the thesis.

    Attributes:
        sums: mechanism; the widths depend on its trust model and its ε.
        core_sets: whether a core set is pulled; False: all active actions are pulled equally often
            (Figure 6.2b).
    """

    sums: PrintedSums
    core_sets: bool = True

    def init(self, problem: Problem) -> PrintedState:
        """Initial state, in which all actions are active."""
        count, dimension = problem.actions.shape
        return PrintedState(problem, np.arange(count), np.zeros(dimension))

    def plan(self, state: PrintedState, generator: np.random.Generator) -> Batch:
        """Next batch: batch i has about qⁱ pulls, and the last batch has all pulls that are left.

        The last batch follows ⌊log T⌋ − 1 batches, and pulls the action of the largest estimate.
        """
        # The last batch pulls the action of the largest estimate.
        horizon = state.problem.horizon
        left = horizon - state.pulled
        features = state.problem.actions[state.active]
        if state.batches >= math.floor(math.log(horizon)) - 1:
            best = state.active[np.argmax(features @ state.estimate)]
            return Batch(np.array([best]), np.array([left]))
        # Other batches pull a core set of the active actions, or all of them.
        size = self._size(horizon, state.batches + 1)
        if not self.core_sets:
            shares = np.full(state.active.size, 1.0 / state.active.size)
            return whole_batch(state.active, shares, size, left)
        design = core_set(features)
        return whole_batch(state.active[design.actions], design.shares, size, left)

    def update(self, state: PrintedState, release: BatchRelease) -> PrintedState:
        """State without the actions whose estimate is more than 2γᵢ below the largest estimate."""
        # Least squares estimate of θ from this batch only.
        batch, features = release.batch, state.problem.actions
        pulled = features[batch.actions]
        information = pulled.T @ (batch.pulls[:, None] * pulled)
        estimate = np.linalg.pinv(information, hermitian=True) @ (pulled.T @ release.sums)
        # Keep the actions whose estimate is within 2γᵢ of the largest estimate.
        number = state.batches + 1
        looks = features[state.active] @ estimate
        width = self._width(state, number, batch)
        kept = state.active[looks >= looks.max() - 2.0 * width]
        return replace(
            state,
            active=kept,
            estimate=estimate,
            batches=number,
            pulled=state.pulled + batch.size,
        )

    def _size(self, horizon: int, number: int) -> float:
        """Number of pulls qⁱ of batch i."""
        return (2.0 * horizon) ** (number / math.log(horizon))

    def _width(self, state: PrintedState, number: int, batch: Batch) -> float:
        """Confidence width γᵢ of batch i in the trust model, with the thesis' constant B = 1."""
        horizon, dimension = state.problem.horizon, state.problem.actions.shape[1]
        size = self._size(horizon, number)
        logs = math.log(4.0 * state.active.size * horizon**2)
        bare = math.sqrt(4.0 * dimension / size * logs)
        if self.sums.model == "none":
            return bare
        scale = self.sums.sensitivity / self.sums.level(batch.size)
        if self.sums.model == "central":
            return bare + scale * (2.0 * dimension**2 + 2.0 * dimension * logs) / size
        return bare + math.sqrt(logs) * 2.0 * dimension * math.sqrt(batch.size) * scale / size
