"""Batched elimination on core sets, from private sums with proved widths; and baselines.

`Elimination` is the policy. `core_set` returns few actions and their shares of the pulls, from
which the means of all actions follow. `LinUCB` and `phased_elimination` are baselines; Thompson
sampling without privacy is `BatchedThompson` on `BareSums`.

Source: after thesis, Algorithms 6.3.1, 6.3.2 and 6.4.1; docs/design/bandits.md says what differs,
and has the proof of the widths.

**Core sets.** Notation: r the dimension of the actions' span, x ∈ ℝʳ an action there; π a design, a
distribution on the actions; M(π) = Σ π(x)·x xᵀ; g(π) = max xᵀ M(π)⁻¹ x, the design's value, which
is at least r.

Source: Kiefer, Wolfowitz, The equivalence of two extremum problems, Can. J. Math. 1960 (the least g
is r, at the largest det M); Todd, Yıldırım, On Khachiyan's algorithm, Discrete Appl. Math. 2007
(away steps); Kumar, Yıldırım, JOTA 2005 (where to begin).
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
"""How far a value may exceed r, relatively."""
_RANK = 1e-9  # singular values below this share of the largest count as 0
_ENTERING = 64  # actions that join the working set at a time
_ROUNDS, _STEPS = 200, 20_000
_REFRESH = 200  # steps after which the inverse is computed anew


@dataclass(frozen=True, eq=False)
class CoreSet:
    """Optimal design that has few actions.

    Attributes:
        actions: indices of the actions, ascending, shape (k,), k ≤ r(r + 1)/2.
        shares: their shares of the pulls, summing to 1, shape (k,).
        value: g of this design over all actions, an upper bound but for rounding; at most 1.01·r.
        rank: r.
    """

    actions: IntArray
    shares: FloatArray
    value: float
    rank: int


def core_set(actions: FloatArray) -> CoreSet:
    """Design of value at most 1.01·r over the actions, on at most r(r + 1)/2 of them.

    The duality gap certifies the value: g(π) ≥ r for every design, so g ≤ 1.01·r is within 1 %.

    Args:
        actions: one a row, shape (K, d), not all zero.

    Raises:
        NumericalError: the value is not reached, since the actions are close to a smaller span.

    >>> square = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> core_set(square).actions.tolist()
    [0, 1]
    """
    # Start: few actions that span the space, all with the same share.
    points = span_coordinates(actions)
    rank = points.shape[1]
    working = _spread(points)
    shares = np.full(working.size, 1.0 / working.size)
    # Improve the design on the working set, then let the actions of the largest values join it.
    for _ in range(_ROUNDS):
        shares = _improved(points[working], shares, 0.5 * TOLERANCE)
        kept = shares > 0
        working, shares = working[kept], shares[kept]
        values = _values(points, points[working], shares)
        if values.max() <= rank * (1 + TOLERANCE):
            break
        far = np.argsort(-values)[:_ENTERING]
        new = np.setdiff1d(far[values[far] > rank], working)
        working = np.concatenate([working, new])
        shares = np.concatenate([shares, np.zeros(new.size)])
    else:
        raise NumericalError("no design of value within 1 % of the dimension was found")
    # Fewest actions; the value is computed again over all actions.
    working, shares = _thinned(points, working, shares)
    order = np.argsort(working)
    value = float(_values(points, points[working], shares).max())
    return CoreSet(working[order], shares[order], value, rank)


def span_coordinates(actions: FloatArray) -> FloatArray:
    """Coordinates of the actions in their span, with singular values of 1; shape (K, r).

    A linear map of the actions does not change the best design, and the search converges faster on
    well-conditioned points.
    """
    _, sizes, basis = np.linalg.svd(actions, full_matrices=False)
    rank = int(np.count_nonzero(sizes > _RANK * sizes[0]))
    return actions @ (basis[:rank].T / sizes[:rank]) * np.sqrt(len(actions))


def _values(points: FloatArray, chosen: FloatArray, shares: FloatArray) -> FloatArray:
    """Values xᵀ M⁻¹ x of all points, shape (K,)."""
    root = np.linalg.cholesky(chosen.T @ (shares[:, None] * chosen))
    solved = np.linalg.solve(root, points.T)
    return np.einsum("ij,ij->j", solved, solved)


def _spread(points: FloatArray) -> IntArray:
    """Indices of at most 2r points that span the space.

    In each direction that is not spanned yet: the two most extreme points.
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
    """Shares of a design on the given points with a value over them of at most (1 + tolerance)·r.

    Each step moves share to the point of the largest value, or away from the point of the smallest
    value among those with a share, by the length that enlarges det M most.
    """
    rank, shares = points.shape[1], shares.copy()
    inverse, values = _inverse(points, shares)
    for step in range(1, _STEPS):
        # The inverse is updated by rank one; computing it anew removes rounding errors.
        if step % _REFRESH == 0:
            inverse, values = _inverse(points, shares)
        # Candidates: the point of the largest value, and of the smallest value with a share.
        high = int(np.argmax(values))
        low = int(np.argmin(np.where(shares > 0, values, np.inf)))
        gain, loss = values[high] / rank - 1.0, 1.0 - values[low] / rank
        if gain <= tolerance:
            break
        # The length that enlarges det M most, cut where a share would fall below 0.
        at = high if gain >= loss else low
        length = (values[at] / rank - 1.0) / (values[at] - 1.0) if values[at] > 1 else -np.inf
        emptied = at == low and length <= -shares[low] / (1.0 - shares[low])
        if emptied:
            length = -shares[low] / (1.0 - shares[low])
        # Shares, inverse and values after the step (Sherman–Morrison).
        shares *= 1.0 - length
        shares[at] = 0.0 if emptied else shares[at] + length
        moved = inverse @ points[at]
        scale = length / (1.0 - length + length * values[at])
        inverse = (inverse - scale * np.outer(moved, moved)) / (1.0 - length)
        values = (values - scale * (points @ moved) ** 2) / (1.0 - length)
    return shares / shares.sum()


def _inverse(points: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverse of M, and the value of each point."""
    inverse = np.linalg.inv(points.T @ (shares[:, None] * points))
    return inverse.astype(np.float64), np.einsum("ij,jk,ik->i", points, inverse, points)


def _thinned(
    points: FloatArray, working: IntArray, shares: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Design of the same M, or a larger one, on at most r(r + 1)/2 points.

    Carathéodory: with more points than the r(r + 1)/2 numbers of M, a linear combination of x xᵀ is
    0. It is subtracted until a share is 0, with the sign that does not raise the sum of shares.
    """
    rank = points.shape[1]
    most = rank * (rank + 1) // 2
    rows, columns = np.triu_indices(rank)
    while working.size > most:
        # A combination of most + 1 products x xᵀ that is 0, with a sum of at least 0.
        some = np.arange(min(working.size, most + 1))
        chosen = points[working[some]]
        products = chosen[:, rows] * chosen[:, columns]
        null = np.linalg.svd(products.T, full_matrices=True)[2][-1]
        null = null if null.sum() >= 0 else -null
        # The multiple of it at which the first share becomes 0.
        positive = null > 1e-12
        ratios = np.full(null.size, np.inf)
        ratios[positive] = shares[some][positive] / null[positive]
        least = int(np.argmin(ratios))
        shares[some] = np.maximum(shares[some] - ratios[least] * null, 0.0)
        shares[least] = 0.0
        kept = shares > 0
        working, shares = working[kept], shares[kept]
    return working, shares / shares.sum()


_MEANS_SHARE = 0.1  # of the failure probability, for the bounds on means that bound variances
_CHAMPIONS = 4  # actions to which all others are compared


@dataclass(frozen=True, eq=False)
class EliminationState:
    """State of an elimination.

    Attributes:
        problem: actions and horizon.
        active: indices of the actions that may be the best, ascending.
        evidence: all batches so far.
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
    """Batched elimination: pulls a core set of the actions that may be best, and drops the others.

    Guarantees:
        the best action is dropped with probability at most ``failure``, for all actions, θ and
        horizons; nothing is assumed about the choice of batches.

    Attributes:
        failure: upper bound on the probability of dropping the best action; 1/(T + 1) if None.
        growth: ratio of the sizes of successive batches, above 1, at most 100.
        first: pulls of the first batch, at least 1.
        commit: share of the horizon, at its end, in which the action of best estimate is pulled.
        contrasts: compare actions by ⟨a − b, θ⟩; else by separate widths, as the thesis does.
        reuse: use the sums of earlier batches too; else each batch alone.
        variances: bound the variance of rewards by bounds on their means; else by 1.
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
        """State in which all actions may be the best."""
        return EliminationState(problem, np.arange(len(problem.actions)))

    def plan(self, state: EliminationState, generator: np.random.Generator) -> Batch:
        """Batch of a core set of the active actions; at the end, of the best estimate."""
        size = self.first * self.growth ** len(state.evidence)
        last = state.left <= max(self.commit * state.problem.horizon, 1.0)
        if state.evidence and (state.active.size == 1 or last):
            best = state.active[np.argmax(state.problem.actions[state.active] @ pooled(state))]
            return Batch(np.array([best]), np.array([state.left]))
        design = self._design(state)
        return whole_batch(state.active[design.actions], design.shares, size, state.left)

    def update(self, state: EliminationState, release: BatchRelease) -> EliminationState:
        """State after a release, without the actions that are proved worse than another."""
        known = replace(state, evidence=(*state.evidence, self._evidence(state, release)))
        if state.active.size == 1 or known.left == 0:
            return known
        return replace(known, active=self.survivors(known))

    def survivors(self, state: EliminationState) -> IntArray:
        """Active actions that are not proved worse than one of the champions."""
        # Champions: the actions of the largest estimates.
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
        """Actions a with a lower bound on ⟨champion − a, θ⟩ above 0.

        The best action is dropped only if one of the K − 1 bounds on ⟨a − best, θ⟩ fails.
        """
        widths = self._widths(state, len(state.problem.actions) - 1)
        found = widths.lower(state.evidence, features[champion] - features)
        return found.values > found.radii

    def _beaten_by_widths(
        self, state: EliminationState, features: FloatArray, champion: int
    ) -> NDArray[np.bool_]:
        """Actions whose upper bound is below the lower bound of the champion."""
        widths = self._widths(state, len(state.problem.actions) + 1)
        up = widths.lower(state.evidence, features[[champion]])
        down = widths.lower(state.evidence, -features)
        return up.values - up.radii > -down.values + down.radii

    def _widths(self, state: EliminationState, contrasts: int) -> Widths:
        """Widths that hold for a number of contrasts together."""
        share = 1.0 - _MEANS_SHARE if self.variances else 1.0
        horizon = state.problem.horizon
        return Widths(share * self._failure(horizon), max(contrasts, 1), horizon, self.reuse)

    def _failure(self, horizon: int) -> float:
        """Upper bound on the probability of dropping the best action."""
        return 1.0 / (horizon + 1) if self.failure is None else self.failure

    def _evidence(self, state: EliminationState, release: BatchRelease) -> BatchEvidence:
        """Evidence of a batch, with bounds on the means of its actions from earlier batches."""
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
        return BatchEvidence(features, release, low, high)

    def _design(self, state: EliminationState) -> CoreSet:
        """Design of the next batch on the active actions."""
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
    """Core set of the actions in these bytes."""
    return core_set(np.frombuffer(features).reshape(shape))


@dataclass(frozen=True, eq=False)
class LinUCBState:
    """State of LinUCB.

    Attributes:
        problem: actions and horizon.
        pulled: pulls so far.
        inverse: inverse of λI + Σ a aᵀ, shape (d, d).
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
        NeurIPS 2011, Theorem 2; §5.1 (rare switches: an action is kept until det V has grown by
        ``switch``).

    The width assumes rewards of ±1 without noise, so the regret bound holds on `BareSums` alone.

    Attributes:
        failure: probability that the confidence ellipsoid misses θ; 1/(T + 1) if None.
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
        """State before the first pull."""
        dimension = problem.actions.shape[1]
        return LinUCBState(problem, 0, np.eye(dimension) / self.ridge, np.zeros(dimension))

    def plan(self, state: LinUCBState, generator: np.random.Generator) -> Batch:
        """Batch of the action of the largest upper confidence bound."""
        features = state.problem.actions
        spreads = np.einsum("ij,jk,ik->i", features, state.inverse, features)
        bounds = features @ (state.inverse @ state.moment)
        bounds += self._width(state) * np.sqrt(np.maximum(spreads, 0.0))
        best = int(np.argmax(bounds))
        # n pulls of a multiply det V by 1 + n·aᵀV⁻¹a.
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
        """Radius β of the ellipsoid ‖θ̂ − θ‖_V ≤ β: √(ln(det V/(λᵈp²))) + √λ, with ‖θ‖ ≤ 1."""
        failure = self.failure or 1.0 / (state.problem.horizon + 1)
        log_det = -float(np.linalg.slogdet(state.inverse * self.ridge)[1])
        return math.sqrt(log_det + 2.0 * math.log(1.0 / failure)) + math.sqrt(self.ridge)


def phased_elimination(failure: float | None = None, growth: float = 2.0) -> Elimination:
    """Phased elimination: separate widths, from the sums of one batch, with variance 1.

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
