"""Batched elimination on core sets with proved confidence widths, and baseline policies.

`Elimination` is the policy. `core_set` returns a few actions and their shares of the pulls; the
rewards of these few actions suffice to estimate the mean rewards of all actions. `LinUCB` and
`phased_elimination` are baselines; `BatchedThompson` on `BareSums` is Thompson sampling without
privacy.

Source: after thesis, Algorithms 6.3.1, 6.3.2 and 6.4.1; docs/design/bandits.md lists the
differences, and has the proof of the widths.

**Core sets.** Notation: r the dimension of the actions' span, x ∈ ℝʳ an action in coordinates of
the span; π a design, which is a distribution on the actions; M(π) = Σ π(x)·x xᵀ; g(π) the value of
a design, the maximum of xᵀ M(π)⁻¹ x over all actions x, which is at least r.

Source: Kiefer, Wolfowitz, The equivalence of two extremum problems, Can. J. Math. 1960 (the minimum
of g is r, attained where det M is largest); Todd, Yıldırım, On Khachiyan's algorithm, Discrete
Appl. Math. 2007 (away steps); Kumar, Yıldırım, JOTA 2005 (initial points).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from turnout.bandits.policy import (
    Batch,
    BatchEvidence,
    BatchRelease,
    PolicySettings,
    Problem,
    RewardPrivacy,
    Widths,
    check_growth,
    register_policy,
    whole_batch,
)
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import NumericalError

TOLERANCE = 0.01
"""Accepted relative excess of a design's value over r."""
_RANK = 1e-9  # singular values below this share of the largest count as 0
_ENTERING = 64  # actions that join the working set at a time
_ROUNDS, _STEPS = 200, 20_000
_REFRESH = 200  # steps after which the inverse is computed anew


@dataclass(frozen=True, eq=False)
class CoreSet:
    """Nearly optimal design on a few actions.

    Attributes:
        actions: indices of the actions in increasing order, shape (k,), k ≤ r(r + 1)/2.
        shares: shares of the pulls of these actions, with sum 1, shape (k,).
        value: value g of the design over all actions, up to rounding; at most 1.01·r.
        rank: dimension r of the span of all actions.
    """

    actions: IntArray
    shares: FloatArray
    value: float
    rank: int


def core_set(actions: FloatArray) -> CoreSet:
    """Design on at most r(r + 1)/2 of the actions, with a value of at most 1.01·r.

    Since g(π) ≥ r for every design π, the value is within 1 % of the optimum.

    Args:
        actions: one action in each row, shape (K, d), not all zero.

    Raises:
        NumericalError: no design with this value was found, since the actions nearly lie in a
            smaller space.

    >>> square = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> core_set(square).actions.tolist()
    [0, 1]
    """
    # Start with a few actions that span the space, in equal shares.
    points = span_coordinates(actions)
    rank = points.shape[1]
    working = _spread(points)
    shares = np.full(working.size, 1.0 / working.size)
    # Improve the design on the working set of actions, and drop actions without a share.
    for _ in range(_ROUNDS):
        shares = _improved(points[working], shares, 0.5 * TOLERANCE)
        kept = shares > 0
        working, shares = working[kept], shares[kept]
        # Stop if the value is small enough; else add the actions of the largest values.
        values = _values(points, points[working], shares)
        if values.max() <= rank * (1 + TOLERANCE):
            break
        far = np.argsort(-values)[:_ENTERING]
        new = np.setdiff1d(far[values[far] > rank], working)
        working = np.concatenate([working, new])
        shares = np.concatenate([shares, np.zeros(new.size)])
    else:
        raise NumericalError(
            "no core set was found, since the actions nearly lie in a space of lower dimension; "
            "remove the directions in which they hardly differ"
        )
    # Reduce the number of actions, and compute the value over all actions again.
    working, shares = _thinned(points, working, shares)
    order = np.argsort(working)
    value = float(_values(points, points[working], shares).max())
    return CoreSet(working[order], shares[order], value, rank)


def span_coordinates(actions: FloatArray) -> FloatArray:
    """Coordinates of the actions in their span, scaled to equal singular values; shape (K, r).

    A linear map of the actions does not change the optimal design, and the search converges faster
    on well-conditioned points.
    """
    _, sizes, basis = np.linalg.svd(actions, full_matrices=False)
    rank = int(np.count_nonzero(sizes > _RANK * sizes[0]))
    return actions @ (basis[:rank].T / sizes[:rank]) * np.sqrt(len(actions))


def _values(points: FloatArray, chosen: FloatArray, shares: FloatArray) -> FloatArray:
    """Values xᵀ M⁻¹ x of all points x, for the design on ``chosen`` with ``shares``; shape (K,)."""
    root = np.linalg.cholesky(chosen.T @ (shares[:, None] * chosen))
    solved = np.linalg.solve(root, points.T)
    return np.einsum("ij,ij->j", solved, solved)


def _spread(points: FloatArray) -> IntArray:
    """Indices of at most 2r points that span the space.

    The points are chosen in pairs: the point that is farthest from the span of the previous points,
    and the point that is extreme in the opposite direction.
    """
    rank = points.shape[1]
    chosen: list[int] = []
    rest = np.eye(rank)
    for _ in range(rank):
        left = points @ rest
        first = int(np.argmax(np.einsum("ij,ij->i", left, left)))
        along = left[first] / np.linalg.norm(left[first])
        chosen += [first, int(np.argmin(points @ along))]
        rest = rest - np.outer(along, along)
    return np.unique(np.array(chosen))


def _improved(points: FloatArray, shares: FloatArray, tolerance: float) -> FloatArray:
    """Shares of a design on the given points, with a value of at most (1 + tolerance)·r over them.

    Each step increases the share of the point of the largest value, or decreases the share of the
    point of the smallest value, by the amount that maximises det M.
    """
    rank, shares = points.shape[1], shares.copy()
    inverse, values = _inverse(points, shares)
    for step in range(1, _STEPS):
        # Recompute the inverse now and then, since its updates accumulate rounding errors.
        if step % _REFRESH == 0:
            inverse, values = _inverse(points, shares)
        # Candidates: the point of the largest value, and the point of the smallest value among
        # those with a positive share.
        high = int(np.argmax(values))
        low = int(np.argmin(np.where(shares > 0, values, np.inf)))
        gain, loss = values[high] / rank - 1.0, 1.0 - values[low] / rank
        if gain <= tolerance:
            break
        # The step length that maximises det M, limited so that no share becomes negative.
        at = high if gain >= loss else low
        length = (values[at] / rank - 1.0) / (values[at] - 1.0) if values[at] > 1 else -np.inf
        emptied = at == low and length <= -shares[low] / (1.0 - shares[low])
        if emptied:
            length = -shares[low] / (1.0 - shares[low])
        # Update shares, inverse and values (Sherman–Morrison formula).
        shares *= 1.0 - length
        shares[at] = 0.0 if emptied else shares[at] + length
        moved = inverse @ points[at]
        scale = length / (1.0 - length + length * values[at])
        inverse = (inverse - scale * np.outer(moved, moved)) / (1.0 - length)
        values = (values - scale * (points @ moved) ** 2) / (1.0 - length)
    return shares / shares.sum()


def _inverse(points: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverse of the matrix M of a design, and the value xᵀ M⁻¹ x of each point x."""
    inverse = np.linalg.inv(points.T @ (shares[:, None] * points))
    return inverse.astype(np.float64), np.einsum("ij,jk,ik->i", points, inverse, points)


def _thinned(
    points: FloatArray, working: IntArray, shares: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Design on at most r(r + 1)/2 of the points, whose matrix M is at least the given design's.

    Source: Carathéodory's theorem. A symmetric matrix M has r(r + 1)/2 numbers, so with more points
        a linear combination of the matrices x xᵀ is 0, and so is the negative of this combination.
        The coefficients of the one with a sum of at least 0 are scaled and subtracted from the
        shares, so that one share becomes 0 and the sum of the shares does not increase.
    """
    rank = points.shape[1]
    most = rank * (rank + 1) // 2
    rows, columns = np.triu_indices(rank)
    while working.size > most:
        # Coefficients with a sum of at least 0 for which Σ c·x xᵀ is 0.
        some = np.arange(min(working.size, most + 1))
        chosen = points[working[some]]
        products = chosen[:, rows] * chosen[:, columns]
        null = np.linalg.svd(products.T, full_matrices=True)[2][-1]
        null = null if null.sum() >= 0 else -null
        # Subtract the multiple at which the first share becomes 0, and remove its point.
        positive = null > 1e-12
        ratios = np.full(null.size, np.inf)
        ratios[positive] = shares[some][positive] / null[positive]
        least = int(np.argmin(ratios))
        shares[some] = np.maximum(shares[some] - ratios[least] * null, 0.0)
        shares[least] = 0.0
        kept = shares > 0
        working, shares = working[kept], shares[kept]
    return working, shares / shares.sum()


_MEANS_SHARE = 0.1  # share of the failure probability for the bounds on means
_CHAMPIONS = 4  # actions to which all others are compared


@dataclass(frozen=True, eq=False)
class EliminationState:
    """State of the policy `Elimination` after some batches.

    Attributes:
        problem: actions and horizon.
        active: indices of the actions that are not dropped, in increasing order.
        evidence: evidence of all batches so far.
    """

    problem: Problem
    active: IntArray
    evidence: tuple[BatchEvidence, ...] = ()

    @property
    def done(self) -> int:
        """Number of pulls so far."""
        return sum(one.release.batch.size for one in self.evidence)

    @property
    def left(self) -> int:
        """Number of pulls left."""
        return self.problem.horizon - self.done


@dataclass(frozen=True)
class Elimination:
    """Batched elimination: pulls a core set of active actions, and drops actions proved worse.

    Guarantees:
        The best action is dropped with probability at most ``failure``, for all actions, θ and
        horizons, and for any choice of batches.

    Attributes:
        failure: upper bound on the probability of dropping the best action; 1/(T + 1) if None.
        growth: ratio of the sizes of successive batches, above 1, at most 100.
        first: number of pulls of the first batch, at least 1.
        commit: share of the horizon, at its end, in which only the action of the largest estimate
            is pulled.
        contrasts: True: compare two actions by bounds on ⟨a − b, θ⟩. False: compare them by bounds
            on each mean, as the thesis does.
        reuse: whether a comparison uses the sums of all batches; False: only of the last batch.
        variances: True: bound the variances of rewards by bounds on the mean rewards. False: bound
            them by 1.
        core_sets: whether a core set is pulled; False: all active actions are pulled equally often.

    Raises:
        ParameterError: a parameter outside its domain.
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
        """Initial state, in which all actions are active."""
        return EliminationState(problem, np.arange(len(problem.actions)))

    def plan(self, state: EliminationState, generator: np.random.Generator) -> Batch:
        """Batch of a core set of active actions; at the end, of the action of largest estimate."""
        # At the end, or if one action is left, pull only the action of the largest estimate.
        size = self.first * self.growth ** len(state.evidence)
        last = state.left <= max(self.commit * state.problem.horizon, 1.0)
        if state.evidence and (state.active.size == 1 or last):
            best = state.active[np.argmax(state.problem.actions[state.active] @ pooled(state))]
            return Batch(np.array([best]), np.array([state.left]))
        design = self._design(state)
        return whole_batch(state.active[design.actions], design.shares, size, state.left)

    def update(self, state: EliminationState, release: BatchRelease) -> EliminationState:
        """State after a release, without the actions that are proved worse than another action."""
        known = replace(state, evidence=(*state.evidence, self._evidence(state, release)))
        if state.active.size == 1 or known.left == 0:
            return known
        return replace(known, active=self.survivors(known))

    def survivors(self, state: EliminationState) -> IntArray:
        """Indices (n,) of the active actions that are not proved worse than a champion.

        Champions are the few active actions of the largest estimates.
        """
        # Compare every active action with each champion.
        features = state.problem.actions[state.active]
        champions = np.argsort(-(features @ pooled(state)))[:_CHAMPIONS]
        kept = np.ones(state.active.size, dtype=np.bool_)
        compared = self._beaten_by_contrast if self.contrasts else self._beaten_by_widths
        for champion in champions:
            kept &= ~compared(state, features, int(champion))
        # Keep at least the action of the largest estimate.
        kept[champions[0]] |= not kept.any()
        return state.active[kept]

    def _beaten_by_contrast(
        self, state: EliminationState, features: FloatArray, champion: int
    ) -> NDArray[np.bool_]:
        """Whether each action a is proved worse: the lower bound on ⟨champion − a, θ⟩ is above 0.

        The best action is dropped only if one of the K − 1 bounds on ⟨a − best, θ⟩ fails.
        """
        widths = self._widths(state, len(state.problem.actions) - 1)
        found = widths.lower(state.evidence, features[champion] - features)
        return found.values > found.radii

    def _beaten_by_widths(
        self, state: EliminationState, features: FloatArray, champion: int
    ) -> NDArray[np.bool_]:
        """Whether the upper bound on each action's mean is below the champion's lower bound."""
        widths = self._widths(state, len(state.problem.actions) + 1)
        up = widths.lower(state.evidence, features[[champion]])
        down = widths.lower(state.evidence, -features)
        return up.values - up.radii > -down.values + down.radii

    def _widths(self, state: EliminationState, contrasts: int) -> Widths:
        """Confidence widths that hold simultaneously for ``contrasts`` contrasts."""
        share = 1.0 - _MEANS_SHARE if self.variances else 1.0
        horizon = state.problem.horizon
        return Widths(share * self._failure(horizon), max(contrasts, 1), horizon, self.reuse)

    def _failure(self, horizon: int) -> float:
        """Upper bound on the probability of dropping the best action."""
        return 1.0 / (horizon + 1) if self.failure is None else self.failure

    def _evidence(self, state: EliminationState, release: BatchRelease) -> BatchEvidence:
        """Evidence of a batch, with bounds on the means of its actions from earlier batches."""
        # Without bounds the means are in [−1, 1].
        features = state.problem.actions[release.batch.actions]
        low, high = -np.ones(len(features)), np.ones(len(features))
        if self.variances and state.evidence:
            # Bounds from earlier batches, with a share of the failure probability.
            horizon = state.problem.horizon
            share = _MEANS_SHARE * self._failure(horizon)
            widths = Widths(share, 2 * len(state.problem.actions), horizon, self.reuse)
            up = widths.lower(state.evidence, features)
            down = widths.lower(state.evidence, -features)
            low = np.clip(up.values - up.radii, -1.0, 1.0)
            high = np.clip(-down.values + down.radii, -1.0, 1.0)
            low, high = np.minimum(low, high), np.maximum(low, high)
        return BatchEvidence(features, release, low, high)

    def _design(self, state: EliminationState) -> CoreSet:
        """Design of the next batch, on the active actions."""
        features = state.problem.actions[state.active]
        if not features.any():
            return CoreSet(np.zeros(1, np.int64), np.ones(1), 0.0, 0)
        if not self.core_sets:
            count = state.active.size
            return CoreSet(np.arange(count), np.full(count, 1.0 / count), np.inf, 0)
        return _cached_design(features.tobytes(), features.shape)


def pooled(state: EliminationState) -> FloatArray:
    """Least squares estimate of θ from all batches, shape (d,)."""
    information = sum(one.information for one in state.evidence)
    moment = sum(one.moment for one in state.evidence)
    return np.linalg.pinv(information, rcond=1e-12, hermitian=True) @ moment


@lru_cache(maxsize=256)
def _cached_design(features: bytes, shape: tuple[int, int]) -> CoreSet:
    """Core set of actions that are given as bytes, since bytes can be keys of a cache."""
    return core_set(np.frombuffer(features).reshape(shape))


@dataclass(frozen=True, eq=False)
class LinUCBState:
    """State of the policy `LinUCB` after some batches.

    Attributes:
        problem: actions and horizon.
        pulled: number of pulls so far.
        inverse: inverse of V = λI + Σ a aᵀ, shape (d, d).
        moment: sum of reward · a, shape (d,).
    """

    problem: Problem
    pulled: int
    inverse: FloatArray
    moment: FloatArray


@dataclass(frozen=True)
class LinUCB:
    """LinUCB: pulls the action of the largest upper confidence bound on its mean reward.

    Source: Abbasi-Yadkori, Pál, Szepesvári, Improved algorithms for linear stochastic bandits,
        NeurIPS 2011, Theorem 2; §5.1 for rare switches: an action is pulled until det V has grown
        by the factor 1 + ``switch``.

    The width is proved for rewards of ±1 without noise, so the regret bound holds only with
    `BareSums`.

    Attributes:
        failure: probability that the confidence ellipsoid misses θ; 1/(T + 1) if None.
        ridge: regularisation λ, above 0.
        switch: relative growth of det V after which the action is chosen again; 0: after each pull.

    Raises:
        ParameterError: a parameter outside its domain.
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
        """State before the first pull."""
        dimension = problem.actions.shape[1]
        return LinUCBState(problem, 0, np.eye(dimension) / self.ridge, np.zeros(dimension))

    def plan(self, state: LinUCBState, generator: np.random.Generator) -> Batch:
        """Batch of the action of the largest upper confidence bound."""
        # Upper confidence bound of each action: its estimate plus the width.
        features = state.problem.actions
        spreads = np.einsum("ij,jk,ik->i", features, state.inverse, features)
        bounds = features @ (state.inverse @ state.moment)
        bounds += self._width(state) * np.sqrt(np.maximum(spreads, 0.0))
        best = int(np.argmax(bounds))
        # n pulls of action a multiply det V by 1 + n·aᵀV⁻¹a: pull until it grows by `switch`.
        pulls = math.floor(self.switch / max(float(spreads[best]), 1e-300)) + 1
        pulls = min(pulls, state.problem.horizon - state.pulled)
        return Batch(np.array([best]), np.array([pulls]))

    def update(self, state: LinUCBState, release: BatchRelease) -> LinUCBState:
        """State after the pulls and rewards of a batch."""
        action = state.problem.actions[int(release.batch.actions[0])]
        pulls = release.batch.size
        moved = state.inverse @ action
        inverse = state.inverse - np.outer(moved, moved) * pulls / (1.0 + pulls * (action @ moved))
        moment = state.moment + float(release.means[0]) * pulls * action
        return replace(state, pulled=state.pulled + pulls, inverse=inverse, moment=moment)

    def _width(self, state: LinUCBState) -> float:
        """Radius β = √(ln(det V/(λᵈp²))) + √λ of the ellipsoid ‖θ̂ − θ‖_V ≤ β, for ‖θ‖ ≤ 1."""
        failure = self.failure or 1.0 / (state.problem.horizon + 1)
        log_det = -float(np.linalg.slogdet(state.inverse * self.ridge)[1])
        return math.sqrt(log_det + 2.0 * math.log(1.0 / failure)) + math.sqrt(self.ridge)


def phased_elimination(failure: float | None = None, growth: float = 2.0) -> Elimination:
    """Policy of phased elimination, with widths of single actions from the last batch only.

    Source: Lattimore, Szepesvári, Bandit algorithms, 2020, §22.1.
    """
    return Elimination(failure, growth, commit=0.0, contrasts=False, reuse=False, variances=False)


@register_policy(
    "elimination",
    "batched elimination on core sets; the best action is dropped with a stated "
    "probability at most (proved)",
)
def elimination_from_plan(settings: PolicySettings, privacy: RewardPrivacy) -> Elimination:
    """Elimination with the settings of a plan."""
    first, commit = settings.first_batch, settings.commit
    return Elimination(settings.failure, settings.growth, first, commit)


@register_policy("linucb", "LinUCB with rare switches; its width is proved without privacy alone")
def linucb_from_plan(settings: PolicySettings, privacy: RewardPrivacy) -> LinUCB:
    """LinUCB with the settings of a plan."""
    return LinUCB(settings.failure)


@register_policy("phased-elimination", "phased elimination as in textbooks")
def phased_from_plan(settings: PolicySettings, privacy: RewardPrivacy) -> Elimination:
    """Phased elimination with the settings of a plan."""
    return phased_elimination(settings.failure, settings.growth)
