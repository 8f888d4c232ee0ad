"""LinUCB on noisy Gram matrices and moments: the standard private contextual bandit.

`PrivateLinUCB` protects actions and contexts as well as rewards, with noise in every direction. The
policy itself adds the noise to its statistics. So the policy runs only in simulations, with the
mechanism `PrivateLinUCB.mechanism`, which releases exact rewards and returns the ε of the policy's
releases.

Notation: a client with action a and reward r contributes the statistics s = (aaᵀ, r·a), of which
the learner receives noisy sums. s has D = d(d + 3)/2 numbers; the numbers off the diagonal are
multiplied by √2. For two clients with actions a and b, c = ⟨a, b⟩, norms of at most 1 and |r| ≤ 1,
‖s − s'‖² ≤ 4 + 2|c| − 2c² ≤ 4.5.

Source: Shariff, Sheffet, Differentially private contextual linear bandits, NeurIPS 2018 (tree-based
    Gaussian noise, joint DP); Zheng et al., Locally differentially private (contextual) bandits
    learning, NeurIPS 2020; Chowdhury, Zhou, Shuffle private linear contextual bandits, ICML 2022
    (batches). This module calibrates the noise by certified accounting, and uses no constants of
    these papers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from turnout.accounting import gaussian_epsilon, price, shuffled_price
from turnout.bandits.mechanisms import BareSums, attenuation
from turnout.bandits.policy import (
    Batch,
    BatchRelease,
    PolicySettings,
    Problem,
    RewardPrivacy,
    register_policy,
)
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.showing import shows_shapes
from turnout.estimation.private.central import gaussian_noise
from turnout.randomness import Source
from turnout.schemes import KaryResponse, TrustModel
from turnout.schemes.scheme import shuffled

_SENSITIVITY = math.sqrt(4.5) * (1.0 + 1e-12)
_STEPS = 30
_CLOSE = 0.99  # share of ε at which the search for a larger ε₀ ends
_ROUNDING = 1e-4  # upper limit of the relative width of the bounds on ε of Gaussian noise


@shows_shapes()
@dataclass(frozen=True, eq=False)
class PrivateState:
    """State of the policy `PrivateLinUCB` after some batches.

    Attributes:
        problem: actions and horizon.
        batches: number of updates so far.
        pulled: number of pulls so far.
        total: sum of the clients' statistics s without noise, shape (D,).
        noise: noise of the current node of each level of the tree, shape (levels, D); without a
            tree, the noise of all batches together, shape (1, D).
    """

    problem: Problem
    batches: int
    pulled: int
    total: FloatArray
    noise: FloatArray


@dataclass(frozen=True)
class PrivateLinUCB:
    """LinUCB on noisy Gram matrices and moments, updated every ``batch`` pulls.

    If the last batch is shorter, its statistics are not released: no batch follows it, and with
    fewer clients the shuffled bits would have a larger ε.

    Attributes:
        model: "central" (a tree with Gaussian noise), "local" (Gaussian noise of each client) or
            "shuffled" (a randomized bit for each of the D numbers).
        epsilon_asked: ε under replacement of a client's action, context and reward.
        delta: δ in (0, 1).
        batch: number of pulls between two updates.
        failure: probability with which the confidence ellipsoid may miss θ; 1/(T + 1) if None.

    Raises:
        ParameterError: a parameter outside its domain.
    """

    model: Literal["central", "local", "shuffled"]
    epsilon_asked: float
    delta: float
    batch: int = 100
    failure: float | None = None

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon_asked)
        checks.open_unit(delta=self.delta)
        checks.count(batch=self.batch)
        if self.model not in ("central", "local", "shuffled"):
            raise ParameterError("model", self.model, "'central', 'local' or 'shuffled'")

    def init(self, problem: Problem) -> PrivateState:
        """State before the first pull."""
        numbers = _numbers(problem.actions.shape[1])
        levels = self.levels(problem.horizon) if self.model == "central" else 1
        return PrivateState(problem, 0, 0, np.zeros(numbers), np.zeros((levels, numbers)))

    def levels(self, horizon: int) -> int:
        """Number of levels of the tree over batches: the number of nodes that contain a client."""
        return math.ceil(horizon / self.batch).bit_length()

    def deviation(self, horizon: int, dimension: int) -> float:
        """Standard deviation of the noise on each of the D numbers of a batch or tree node."""
        if self.model == "shuffled":
            return math.sqrt(self.batch) / attenuation(self.bit_level(dimension))
        nodes = self.levels(horizon) if self.model == "central" else 1
        sensitivity = _SENSITIVITY * math.sqrt(nodes)
        one = _noise_of(self.epsilon_asked, self.delta, sensitivity).deviation
        return one if self.model == "central" else one * math.sqrt(self.batch)

    def bit_level(self, dimension: int) -> float:
        """Level ε₀ of each of a client's D shuffled bits, whose composition has the given ε."""
        numbers = _numbers(dimension)
        return _bit_level(self.epsilon_asked, self.delta, self.batch, numbers)

    def epsilon(self, horizon: int, dimension: int) -> Bounds:
        """Bounds on ε of a whole run, under replacement of a client's action, context and reward.

        For Gaussian noise the upper bound covers the release of all tree nodes that contain the
        client (in the local model: the client's noisy statistics). The lower bound is attained by
        two clients whose statistics have the distance √4.5, in the first of at least two batches.

        For shuffled bits a client's statistics are D = d(d + 3)/2 numbers, and each number is sent
        as one shuffled bit. The upper bound covers all D bits; the lower bound covers one bit.

        Args:
            horizon: number of clients T.
            dimension: number of coordinates d of an action.
        """
        # Shuffled bits: the composition of all D numbers from above, one number from below.
        if self.model == "shuffled":
            randomizer, numbers = KaryResponse(self.bit_level(dimension), 2), _numbers(dimension)
            upper = shuffled_price([(randomizer, numbers)], self.batch, self.delta)
            lower = price(shuffled(randomizer, self.batch), self.delta).epsilon.lower
            return Bounds(min(lower, upper), upper)
        # Gaussian noise: the upper bound is for all levels of the tree, the lower bound for the
        # nodes that are released and contain a client of the first batch.
        nodes = self.levels(horizon) if self.model == "central" else 1
        noise = _noise_of(self.epsilon_asked, self.delta, _SENSITIVITY * math.sqrt(nodes))
        seen = (math.ceil(horizon / self.batch) - 1).bit_length() if nodes > 1 else nodes
        multiple = noise.deviation / (_SENSITIVITY * math.sqrt(max(seen, 1)))
        lower = gaussian_epsilon(multiple, self.delta) * (1.0 - _ROUNDING)
        return Bounds(min(lower, noise.epsilon), noise.epsilon)

    def mechanism(self, dimension: int) -> StatisticsOfPolicy:
        """Mechanism that returns the ε of the policy's releases; for simulations only."""
        return StatisticsOfPolicy(self, dimension)

    def plan(self, state: PrivateState, generator: np.random.Generator) -> Batch:
        """Batch of the action of the largest upper confidence bound."""
        # Noisy Gram matrix and moment.
        features, dimension = state.problem.actions, state.problem.actions.shape[1]
        information, moment = _split(state.total + self._noise(state), dimension)
        # Shift the matrix by more than the norm of its noise, so that it is positive definite.
        spread = self._spread(state)
        shift = 2.0 * spread * (2.0 * math.sqrt(dimension) + 2.0)
        values, vectors = np.linalg.eigh(information + (shift + 1.0) * np.eye(dimension))
        inverse = (vectors / np.maximum(values, max(shift, 1.0) / 2.0)) @ vectors.T
        # Width of the confidence ellipsoid, including the noise of matrix and moment.
        logs = float(np.log(np.maximum(values, 1.0)).sum()) + 2.0 * math.log(self._odds(state))
        offset = spread * (math.sqrt(dimension) + 3.0) / math.sqrt(max(shift, 1.0) / 2.0)
        width = math.sqrt(max(logs, 0.0)) + math.sqrt(2.0 * shift + 1.0) + offset
        # The action of the largest upper confidence bound.
        spreads = np.einsum("ij,jk,ik->i", features, inverse, features)
        best = int(np.argmax(features @ inverse @ moment + width * np.sqrt(spreads)))
        left = state.problem.horizon - state.pulled
        return Batch(np.array([best]), np.array([min(self.batch, left)]))

    def update(self, state: PrivateState, release: BatchRelease) -> PrivateState:
        """State after a batch, with the noise of the tree node that the batch completes.

        The noise is a function of the sums so far, so that a simulation can be repeated exactly.
        """
        # Add the statistics of the batch.
        action = state.problem.actions[int(release.batch.actions[0])]
        total = state.total + pull_sums(action, release.batch.size, float(release.sums[0]))
        # Draw the noise of the completed node: it replaces the noise of the nodes below it.
        seed = [state.batches, *np.frombuffer(total.tobytes(), np.uint32).tolist()]
        generator = np.random.default_rng(seed)
        deviation = self.deviation(state.problem.horizon, action.size)
        noise = state.noise.copy()
        number = state.batches + 1
        if self.model == "central":
            closed = (number & -number).bit_length() - 1
            noise[:closed] = 0.0
            noise[closed] = deviation * generator.standard_normal(total.size)
        else:
            noise[0] += deviation * generator.standard_normal(total.size)
        pulled = state.pulled + release.batch.size
        return replace(state, batches=number, pulled=pulled, total=total, noise=noise)

    def _noise(self, state: PrivateState) -> FloatArray:
        return state.noise.sum(axis=0)

    def _spread(self, state: PrivateState) -> float:
        """Standard deviation of the noise on the sums so far."""
        terms = state.batches.bit_count() if self.model == "central" else state.batches
        dimension = state.problem.actions.shape[1]
        return math.sqrt(terms) * self.deviation(state.problem.horizon, dimension)

    def _odds(self, state: PrivateState) -> float:
        return 1.0 / self.failure if self.failure else float(state.problem.horizon + 1)


@dataclass(frozen=True)
class StatisticsOfPolicy(BareSums):
    """Mechanism for the policy `PrivateLinUCB` in simulations; the policy itself adds the noise.

    Attributes:
        policy: policy that adds the noise.
        dimension: number d of coordinates of an action.
    """

    policy: PrivateLinUCB
    dimension: int

    @property
    def trust(self) -> TrustModel:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Trust model of the policy's guarantee."""
        return TrustModel(self.policy.model)

    @property
    def delta(self) -> float:
        """δ of the releases of the policy."""
        return self.policy.delta

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Raises UnsupportedError: messages of real clients would have no noise."""
        raise UnsupportedError(
            "private-linucb is simulated from sums, without messages; it cannot replay a log"
        )

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds on ε of the policy, over the horizon of all batches."""
        horizon = sum(int(pulls.sum()) for pulls in batches)
        return self.policy.epsilon(horizon, self.dimension)


@register_policy(
    "private-linucb",
    "LinUCB on noisy statistics, which protects actions and contexts too",
    first=1000,
    adds_noise=True,
)
def private_linucb_from_plan(settings: PolicySettings, privacy: RewardPrivacy) -> PrivateLinUCB:
    """Private LinUCB with the settings and the trust model of a plan."""
    assert privacy.trust != "none"
    epsilon, delta = privacy.epsilon or 0.0, privacy.delta or 0.0
    return PrivateLinUCB(privacy.trust, epsilon, delta, settings.first_batch, settings.failure)


_noise_of = lru_cache(maxsize=256)(gaussian_noise)


@lru_cache(maxsize=256)
def _bit_level(epsilon: float, delta: float, clients: int, numbers: int) -> float:
    """Level ε₀ at which the composition of the shuffled bits has at most ε, by bisection."""
    low, high = epsilon / numbers, max(epsilon, math.log(clients))
    for _ in range(_STEPS):
        if high - low < 1e-3:
            break
        middle = 0.5 * (low + high)
        cost = shuffled_price([(KaryResponse(middle, 2), numbers)], clients, delta)
        low, high = (middle, high) if cost <= epsilon else (low, middle)
        if _CLOSE * epsilon <= cost <= epsilon:
            break
    return low


def _numbers(dimension: int) -> int:
    """Number D of the statistics of a client."""
    return dimension * (dimension + 3) // 2


def pull_sums(action: FloatArray, pulls: int, rewards: float) -> FloatArray:
    """Sum of the statistics s over pulls of one action, shape (D,)."""
    rows, columns = np.triu_indices(action.size)
    scale = np.where(rows == columns, 1.0, math.sqrt(2.0))
    return np.concatenate([pulls * scale * action[rows] * action[columns], rewards * action])


def _split(sums: FloatArray, dimension: int) -> tuple[FloatArray, FloatArray]:
    """Gram matrix and moment from a sum of statistics, which has D numbers."""
    rows, columns = np.triu_indices(dimension)
    matrix = np.zeros((dimension, dimension))
    part = sums[: rows.size] / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrix[rows, columns] = part
    matrix[columns, rows] = part
    return matrix, sums[rows.size :]
