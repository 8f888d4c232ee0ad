"""Policies of bandits, which plan batches from released sums alone, and widths of estimates.

`Policy` is the interface; its `init`, `plan` and `update` are pure: a state is never changed, and
equal states, releases and generators give equal results. A policy reads public actions and released
sums alone, so its choices are postprocessing of the releases of the mechanism. `Widths`
bounds how far estimates (`Estimates`, from `BatchEvidence`) are off, over all batches, however they
were chosen. `register_policy` gives a policy its name in plans; `registered_policies` lists them.

Notation: batch j pulled actions a with nⱼₐ pulls and gave estimates ȳⱼₐ of their means; c ∈ ℝᵈ a
contrast (a difference of two actions, or one action); Xⱼ the least squares estimate of ⟨c, θ⟩ from
batch j alone and σⱼ² its variance proxy; wⱼ = 1/σⱼ², W = Σ wⱼ, S = Σ wⱼXⱼ; ψⱼ(x) an upper bound on
ln E[exp(x(Xⱼ − ⟨c, θ⟩)) | batches before].

Nothing about batch j but its sums is drawn once the batches before are known: which actions it
pulls, wⱼ and ψⱼ are fixed by then. So exp(λ(S − W⟨c, θ⟩) − Σψⱼ(λwⱼ)) is a supermartingale for each
λ > 0, and by Ville's inequality, over a grid of m numbers λ, with probability at least 1 − p

    ⟨c, θ⟩ ≥ S/W − min over λ of (ln(m/p) + Σψⱼ(λwⱼ)) / (λW)    after every batch at once.

So sums of batches that were chosen by earlier ones may be used again, without a union bound over
batches. docs/design/bandits.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from turnout.bandits.mechanisms import Channels
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import ParameterError

State = TypeVar("State")


@dataclass(frozen=True, eq=False)
class Problem:
    """Public facts before the first pull.

    Attributes:
        actions: actions, one a row, shape (K, d); see `environment.checked_actions`.
        horizon: number of pulls of the whole run, T.
    """

    actions: FloatArray
    horizon: int

    def __post_init__(self) -> None:
        checks.count(horizon=self.horizon)


@dataclass(frozen=True, eq=False)
class Batch:
    """Batch: pulls that are planned together.

    Attributes:
        actions: indices of the actions, ascending, shape (k,).
        pulls: number of pulls of each action, at least 1, shape (k,).
    """

    actions: IntArray
    pulls: IntArray

    @property
    def size(self) -> int:
        """Number of pulls of all actions together."""
        return int(self.pulls.sum())


@dataclass(frozen=True, eq=False)
class BatchRelease:
    """Release of a batch: all that a policy sees of its rewards.

    Attributes:
        batch: batch as it was planned.
        sums: sum of the messages of each action, noise included, shape (k,).
        channels: public distributions of the messages and of the noise.
    """

    batch: Batch
    sums: IntArray
    channels: Channels

    @property
    def means(self) -> FloatArray:
        """Unbiased estimates of the mean rewards of the actions, shape (k,)."""
        return self.sums / (self.batch.pulls * self.channels.attenuation)


class Policy(Protocol[State]):
    """Policy: the rule that chooses the actions to pull."""

    def init(self, problem: Problem) -> State:
        """State before the first pull."""
        ...

    def plan(self, state: State, generator: np.random.Generator) -> Batch:
        """Next batch, of at most the number of pulls left."""
        ...

    def update(self, state: State, release: BatchRelease) -> State:
        """State after a release."""
        ...


class PolicySettings(Protocol):
    """Settings of a policy, as the [policy] section of a plan has them."""

    growth: float
    commit: float
    failure: float | None
    guard: bool

    @property
    def first_batch(self) -> int:
        """Number of pulls of the first batch."""
        ...


class RewardPrivacy(Protocol):
    """Privacy of one client's reward, as the [privacy] section of a plan has it."""

    trust: Any
    epsilon: float | None
    delta: float | None


PolicyBuilder = TypeVar("PolicyBuilder", bound=Callable[..., Policy[Any]])
"""Kind of a function that builds a policy from `PolicySettings` and `RewardPrivacy`."""


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """A policy that plans can name, as `register_policy` registers it.

    Attributes:
        name: word for it in plans.
        summary: description of it in reports.
        build: builds the policy from a plan's settings.
        first: pulls of the first batch if the plan gives no number.
        guarded: whether the policy has a guard, an elimination on the same sums.
        adds_noise: whether the policy adds the noise itself, by its method ``mechanism``.
    """

    name: str
    summary: str
    build: Callable[..., Policy[Any]]
    first: int = 50
    guarded: bool = False
    adds_noise: bool = False


_MODULES = ("elimination", "thompson", "private_ucb")
_REGISTERED: dict[str, RegisteredPolicy] = {}


def register_policy(
    name: str,
    summary: str,
    *,
    first: int = 50,
    guarded: bool = False,
    adds_noise: bool = False,
) -> Callable[[PolicyBuilder], PolicyBuilder]:
    """Decorator that registers the function that builds a policy from a plan's settings.

    Plans, runs and reports read the registration alone. The module of the function must be in the
    list of modules of this file.

    Args:
        name: word for the policy in plans.
        summary: description of the policy in reports.
        first: pulls of the first batch if the plan gives no number, at least 1.
        guarded: whether the policy takes the setting ``guard``.
        adds_noise: whether the policy adds the noise itself; then its method ``mechanism`` returns
            the mechanism that states its guarantee.

    Raises:
        ParameterError: another policy has the name.
    """

    def register(build: PolicyBuilder) -> PolicyBuilder:
        if name in _REGISTERED:
            raise ParameterError("policy", name, "a name that no other policy has")
        _REGISTERED[name] = RegisteredPolicy(name, summary, build, first, guarded, adds_noise)
        return build

    return register


@cache
def registered_policies() -> dict[str, RegisteredPolicy]:
    """Policies that plans can name, by name."""
    for module in _MODULES:
        import_module(f"turnout.bandits.{module}")
    return dict(_REGISTERED)


def whole_batch(actions: IntArray, shares: FloatArray, size: float, left: int) -> Batch:
    """Batch of at least ``shares · size`` pulls of each action, cut to the pulls left.

    The cut takes pulls from the actions that have the most, so an action loses its last pull only
    where fewer pulls than actions are left.
    """
    pulls = np.maximum(np.ceil(shares * min(size, left) - 1e-9), 1.0).astype(np.int64)
    while (excess := int(pulls.sum()) - left) > 0:
        most = int(np.argmax(pulls))
        pulls[most] -= min(excess, max(int(pulls[most]) // 2, 1))
    kept = pulls > 0
    order = np.argsort(actions[kept])
    return Batch(actions[kept][order], pulls[kept][order])


def check_growth(growth: float) -> None:
    """Refuse a ratio of batch sizes outside of (1, 100]."""
    checks.positive(growth=growth)
    if not 1.0 < growth <= 100.0:
        raise ParameterError("growth", growth, "a number above 1, at most 100")


_OUTSIDE = 1e-6  # relative distance from the span beyond which a batch says nothing of a contrast
_SINGULAR = 1e-12
_LEAST_VARIANCE = 1e-3  # of a bit, so that no weight is infinite
_BLOCK = 2**16  # contrasts times sums at once: half a MiB, so that temporaries stay in the cache


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """Release of one batch, with bounds on mean rewards from the batches before it.

    Attributes:
        features: actions of the batch, one a row, shape (k, d).
        release: release of the batch.
        low, high: lower and upper bounds on the mean rewards, shape (k,).
    """

    features: FloatArray
    release: BatchRelease
    low: FloatArray
    high: FloatArray

    @cached_property
    def precision(self) -> FloatArray:
        """Inverse variance proxy of the estimated mean of each action, shape (k,)."""
        nearest = np.clip(0.0, self.low, self.high)
        bits = 1.0 - (self.release.channels.attenuation * nearest) ** 2
        return 1.0 / self.release.channels.variances(np.maximum(bits, _LEAST_VARIANCE))

    @cached_property
    def information(self) -> FloatArray:
        """Information matrix, the sum of precision · a aᵀ; shape (d, d)."""
        return self.features.T @ (self.precision[:, None] * self.features)

    @cached_property
    def moment(self) -> FloatArray:
        """Moment, the sum of precision · estimate · a; shape (d,)."""
        return self.features.T @ (self.precision * self.release.means)

    @cached_property
    def covariance(self) -> NDArray[np.floating]:
        """Covariance proxy of the estimate from this batch alone, shape (d, d)."""
        return np.linalg.pinv(self.information, rcond=_SINGULAR, hermitian=True)

    def variances(self, contrasts: FloatArray) -> FloatArray:
        """Variance proxy σⱼ² of each contrast; infinite outside of the span of the batch."""
        along = contrasts @ self.covariance
        missed = np.linalg.norm(along @ self.information - contrasts, axis=1)
        known = missed <= _OUTSIDE * np.linalg.norm(contrasts, axis=1)
        own = np.einsum("ij,ij->i", along, contrasts)
        return np.where(known & (own > 0), np.maximum(own, 1e-300), np.inf)

    def log_moments(self, contrasts: FloatArray, x: FloatArray) -> FloatArray:
        """Upper bounds ψⱼ(x) of each contrast, for x > 0 of shape (contrasts, m)."""
        channels = self.release.channels
        each = self.precision / (channels.pulls * channels.attenuation)
        per_sum = contrasts @ (self.covariance @ (self.features.T * each))
        return channels.log_moments(per_sum, x, self.low, self.high)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimated contrasts with their radii: value − radius is a lower bound on the truth.

    Attributes:
        values: estimates, shape (contrasts,).
        radii: radii, shape (contrasts,); infinite where no batch informs about the contrast.
    """

    values: FloatArray
    radii: FloatArray


@dataclass(frozen=True)
class Widths:
    """Widths that hold for all contrasts of a family together, over all batches.

    Attributes:
        failure: upper bound on the probability that any width fails.
        contrasts: number of contrasts of the family.
        horizon: number of pulls of the whole run; with the first batch, it sets the number of λ.
        pooled: whether the sums of earlier batches are reused; else each batch is used alone.
    """

    failure: float
    contrasts: int
    horizon: int
    pooled: bool = True

    def lower(self, evidence: Sequence[BatchEvidence], contrasts: FloatArray) -> Estimates:
        """Estimates of ⟨c, θ⟩, with radii such that value − radius is a lower bound on ⟨c, θ⟩.

        Args:
            evidence: all batches so far; the actions of the first batch span all contrasts.
            contrasts: contrasts c, one a row, shape (·, d).
        """
        rows = max(_BLOCK // max((len(one.features) for one in evidence), default=1), 1)
        parts = [
            self._block(evidence, contrasts[start : start + rows])
            for start in range(0, len(contrasts), rows)
        ]
        if not parts:
            return Estimates(np.empty(0), np.empty(0))
        values = np.concatenate([part.values for part in parts])
        return Estimates(values, np.concatenate([part.radii for part in parts]))

    def _block(self, evidence: Sequence[BatchEvidence], contrasts: FloatArray) -> Estimates:
        """Estimates and radii of a block of contrasts, by the bound of the module's docstring."""
        # ln(m/p), with a union bound over contrasts, and the grid of λ, scaled by the first batch.
        levels = self._levels(evidence[0].release.batch.size)
        log_odds = math.log(self.contrasts * levels / self._share(len(evidence)))
        with np.errstate(divide="ignore"):
            first = 1.0 / evidence[0].variances(contrasts)
        grid = math.sqrt(2.0 * log_odds) * np.exp2(-np.arange(levels, dtype=np.float64))
        used = evidence if self.pooled else evidence[-1:]
        # Sums over batches: Σψⱼ(λwⱼ), Σ wⱼXⱼ and W.
        total, weight = np.zeros(len(contrasts)), np.zeros(len(contrasts))
        spent = np.zeros((len(contrasts), levels))
        for one in used:
            weights = 1.0 / one.variances(contrasts)
            base = first if self.pooled else weights
            scaled = np.where(weights > 0, weights / np.sqrt(np.where(base > 0, base, 1.0)), 0.0)
            spent += one.log_moments(contrasts, scaled[:, None] * grid)
            total += weights * (contrasts @ (one.covariance @ one.moment))
            weight += weights
        if not self.pooled:
            first = weight
        # The smallest radius over the grid: an upper bound on the error.
        with np.errstate(divide="ignore", invalid="ignore"):
            lambdas = grid / np.sqrt(first)[:, None]
            radii = ((log_odds + spent) / (lambdas * weight[:, None])).min(axis=1)
            values = total / weight
        known = (weight > 0) & (first > 0)
        return Estimates(np.where(known, values, 0.0), np.where(known, radii, np.inf))

    def _levels(self, first_batch: int) -> int:
        """Number of λ, a factor of 2 apart, from the first batch to the horizon."""
        if not self.pooled:
            return 3
        return 3 + math.ceil(math.log(max(self.horizon / first_batch, 1.0), 4))

    def _share(self, batches: int) -> float:
        """Probability of failure allowed now; without pooling, each batch has a share of it."""
        return self.failure if self.pooled else self.failure / (batches * (batches + 1))
