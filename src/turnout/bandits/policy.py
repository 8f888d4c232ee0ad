"""Policies: batches of pulls planned from released sums alone, and bounds on their errors.

`Policy` is the interface; its `init`, `plan` and `update` are pure: a state is never changed, and
equal states, releases and generators give equal results. A policy reads public actions and released
sums alone, so whatever it computes is postprocessing of what the mechanism released. `Widths`
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
    """The public facts before the first pull.

    Attributes:
        actions: one a row, shape (K, d); see `environment.checked_actions`.
        horizon: pulls of the whole run, T.
    """

    actions: FloatArray
    horizon: int

    def __post_init__(self) -> None:
        checks.count(horizon=self.horizon)


@dataclass(frozen=True, eq=False)
class Batch:
    """Pulls that are decided together: each of different actions at least once.

    Attributes:
        actions: numbers of the actions, ascending, shape (k,).
        pulls: of each, shape (k,).
    """

    actions: IntArray
    pulls: IntArray

    @property
    def size(self) -> int:
        """Pulls of all actions together."""
        return int(self.pulls.sum())


@dataclass(frozen=True, eq=False)
class BatchRelease:
    """The part of a batch that a policy sees.

    Attributes:
        batch: as it was planned.
        sums: of each action's messages, noise included, shape (k,).
        channels: the public laws of those messages and of that noise.
    """

    batch: Batch
    sums: IntArray
    channels: Channels

    @property
    def means(self) -> FloatArray:
        """Unbiased estimates of the actions' mean rewards, shape (k,)."""
        return self.sums / (self.batch.pulls * self.channels.attenuation)


class Policy(Protocol[State]):
    """Chooses what to pull."""

    def init(self, problem: Problem) -> State:
        """The state before the first pull."""
        ...

    def plan(self, state: State, generator: np.random.Generator) -> Batch:
        """The next batch, of at most the pulls that are left."""
        ...

    def update(self, state: State, release: BatchRelease) -> State:
        """The state that also knows a release."""
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
    """At least ``shares · size`` pulls of each action, cut to what is left of the horizon.

    The cut takes from the actions that have the most, so none is lost before it must be.
    """
    pulls = np.maximum(np.ceil(shares * min(size, left) - 1e-9), 1.0).astype(np.int64)
    while (excess := int(pulls.sum()) - left) > 0:
        most = int(np.argmax(pulls))
        pulls[most] -= min(excess, max(int(pulls[most]) // 2, 1))
    kept = pulls > 0
    order = np.argsort(actions[kept])
    return Batch(actions[kept][order], pulls[kept][order])


def check_growth(growth: float) -> None:
    """Refuses batches that do not grow, or by more than a hundred."""
    checks.positive(growth=growth)
    if not 1.0 < growth <= 100.0:
        raise ParameterError("growth", growth, "a number above 1, at most 100")


_OUTSIDE = 1e-6  # relative distance from the span beyond which a batch says nothing of a contrast
_SINGULAR = 1e-12
_LEAST_VARIANCE = 1e-3  # of a bit, so that no weight is infinite
_BLOCK = 2**16  # contrasts times sums at once: half a MiB, so that temporaries stay in the cache


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """One batch's sums, and bounds on its actions' means that were known before it.

    Attributes:
        features: the actions, one a row, shape (k, d).
        release: their sums.
        low, high: bounds on the mean rewards, shape (k,).
    """

    features: FloatArray
    release: BatchRelease
    low: FloatArray
    high: FloatArray

    @cached_property
    def precision(self) -> FloatArray:
        """1 over the variance proxy of each action's estimated mean, shape (k,)."""
        nearest = np.clip(0.0, self.low, self.high)
        bits = 1.0 - (self.release.channels.attenuation * nearest) ** 2
        return 1.0 / self.release.channels.variances(np.maximum(bits, _LEAST_VARIANCE))

    @cached_property
    def information(self) -> FloatArray:
        """Σ precision · a aᵀ, shape (d, d)."""
        return self.features.T @ (self.precision[:, None] * self.features)

    @cached_property
    def moment(self) -> FloatArray:
        """Σ precision · estimate · a, shape (d,)."""
        return self.features.T @ (self.precision * self.release.means)

    @cached_property
    def covariance(self) -> NDArray[np.floating]:
        """The information's pseudo-inverse: variance proxies of the batch's own estimate."""
        return np.linalg.pinv(self.information, rcond=_SINGULAR, hermitian=True)

    def variances(self, contrasts: FloatArray) -> FloatArray:
        """σⱼ² of each contrast; infinite for one that the batch says nothing of."""
        along = contrasts @ self.covariance
        missed = np.linalg.norm(along @ self.information - contrasts, axis=1)
        known = missed <= _OUTSIDE * np.linalg.norm(contrasts, axis=1)
        own = np.einsum("ij,ij->i", along, contrasts)
        return np.where(known & (own > 0), np.maximum(own, 1e-300), np.inf)

    def log_moments(self, contrasts: FloatArray, x: FloatArray) -> FloatArray:
        """ψⱼ(x) of each contrast, for x > 0 of shape (contrasts, m)."""
        channels = self.release.channels
        each = self.precision / (channels.pulls * channels.attenuation)
        per_sum = contrasts @ (self.covariance @ (self.features.T * each))
        return channels.log_moments(per_sum, x, self.low, self.high)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimated contrasts and how far above the truth they may be.

    Attributes:
        values: shape (contrasts,).
        radii: the truth is at least value − radius, shape (contrasts,); infinite where nothing is
            known.
    """

    values: FloatArray
    radii: FloatArray


@dataclass(frozen=True)
class Widths:
    """Widths that hold for all contrasts of a family together, over all batches.

    Attributes:
        failure: probability with which any of them may fail.
        contrasts: how many there are in the family.
        horizon: pulls of the whole run; with the first batch's it says how many λ there are.
        pooled: whether earlier batches' sums are reused; else each batch stands alone.
    """

    failure: float
    contrasts: int
    horizon: int
    pooled: bool = True

    def lower(self, evidence: Sequence[BatchEvidence], contrasts: FloatArray) -> Estimates:
        """Estimates of ⟨c, θ⟩ with radii below which the truth does not lie.

        Args:
            evidence: all batches so far; the first one's actions span all contrasts.
            contrasts: one a row, shape (·, d).
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
        levels = self._levels(evidence[0].release.batch.size)
        price = math.log(self.contrasts * levels / self._share(len(evidence)))
        with np.errstate(divide="ignore"):
            first = 1.0 / evidence[0].variances(contrasts)
        grid = math.sqrt(2.0 * price) * np.exp2(-np.arange(levels, dtype=np.float64))
        used = evidence if self.pooled else evidence[-1:]
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
        with np.errstate(divide="ignore", invalid="ignore"):
            lambdas = grid / np.sqrt(first)[:, None]
            radii = ((price + spent) / (lambdas * weight[:, None])).min(axis=1)
            values = total / weight
        known = (weight > 0) & (first > 0)
        return Estimates(np.where(known, values, 0.0), np.where(known, radii, np.inf))

    def _levels(self, first_batch: int) -> int:
        """λ's, a factor 2 apart: the information grows from the first batch's to the horizon's."""
        if not self.pooled:
            return 3
        return 3 + math.ceil(math.log(max(self.horizon / first_batch, 1.0), 4))

    def _share(self, batches: int) -> float:
        """The failure allowed now: without pooling each batch has a share of its own."""
        return self.failure if self.pooled else self.failure / (batches * (batches + 1))
