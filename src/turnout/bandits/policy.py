"""Policies of bandits, and confidence widths of estimates from released sums.

`Policy` is the interface. Its methods `init`, `plan` and `update` are pure: they never change a
state, and equal states, releases and generators give equal results. A policy reads only public
actions and released sums, so its choices are postprocessing of the mechanism's releases. `Widths`
computes confidence widths of estimates (`Estimates`, from `BatchEvidence`) that hold after all
batches together, for any choice of the batches. `register_policy` registers a policy under its name
in plans; `registered_policies` returns all policies.

Notation: batch j pulls action a nⱼₐ times and gives the estimate ȳⱼₐ of its mean; c ∈ ℝᵈ is a
contrast, which is a difference of two actions, or one action; Xⱼ is the least squares estimate of
⟨c, θ⟩ from batch j only, and σⱼ² its variance proxy; wⱼ = 1/σⱼ², W = Σ wⱼ, S = Σ wⱼXⱼ; ψⱼ(x) is an
upper bound on ln E[exp(x(Xⱼ − ⟨c, θ⟩)) | earlier batches].

Given the earlier batches, the actions of batch j, wⱼ and ψⱼ are fixed, and only its sums are
random. So exp(λ(S − W⟨c, θ⟩) − Σψⱼ(λwⱼ)) is a supermartingale for each λ > 0. By Ville's inequality
and a union bound over m values of λ, with probability at least 1 − p, after all batches together,

    ⟨c, θ⟩ ≥ S/W − min over λ of (ln(m/p) + Σψⱼ(λwⱼ)) / (λW).

So the sums of all batches may be combined although earlier sums determine later batches, and no
union bound over batches is needed. docs/design/bandits.md has the proofs.
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
    """Public information that a policy has before the first pull.

    Attributes:
        actions: actions, one in each row, shape (K, d); see `environment.checked_actions`.
        horizon: number of pulls T of the whole run.

    Raises:
        ParameterError: ``horizon`` is not a whole number of at least 1.
    """

    actions: FloatArray
    horizon: int

    def __post_init__(self) -> None:
        checks.count(horizon=self.horizon)


@dataclass(frozen=True, eq=False)
class Batch:
    """Batch of pulls that are planned together.

    Attributes:
        actions: indices of the actions in increasing order, shape (k,).
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
    """Released sums of a batch, from which a policy learns about the rewards.

    Attributes:
        batch: batch as the policy planned it.
        sums: sum of the messages of each action, including noise, shape (k,).
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
    """Rule that chooses the actions to pull."""

    def init(self, problem: Problem) -> State:
        """State before the first pull."""
        ...

    def plan(self, state: State, generator: np.random.Generator) -> Batch:
        """Next batch, with at most as many pulls as are left."""
        ...

    def update(self, state: State, release: BatchRelease) -> State:
        """State of the policy after the release of a batch."""
        ...


class PolicySettings(Protocol):
    """Settings of a policy: the keys of the table [policy] of a plan.

    Attributes:
        growth: ratio of the sizes of successive batches, above 1, at most 100.
        commit: share of the horizon, at its end, in which only the best estimated action is pulled.
        failure: probability with which the confidence widths may fail; None: the policy's default.
        guard: whether the policy has a guard, which is an elimination on the same sums.
    """

    growth: float
    commit: float
    failure: float | None
    guard: bool

    @property
    def first_batch(self) -> int:
        """Number of pulls of the first batch."""
        ...


class RewardPrivacy(Protocol):
    """Privacy settings of one client's reward: the keys of the table [privacy] of a plan.

    Attributes:
        trust: trust model, or "none" without privacy.
        epsilon: ε under replacement of a client's reward; None without privacy.
        delta: δ; None for pure ε and without privacy.
    """

    trust: Any
    epsilon: float | None
    delta: float | None


PolicyBuilder = TypeVar("PolicyBuilder", bound=Callable[..., Policy[Any]])
"""Type of a function that builds a policy from `PolicySettings` and `RewardPrivacy`."""


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """A policy that a plan can select, registered by `register_policy`.

    Attributes:
        name: value of the key ``policy.name`` that selects the policy.
        summary: description of the policy in reports.
        build: function that builds the policy from a plan's settings.
        first: number of pulls of the first batch if the plan gives none.
        guarded: whether the policy can have a guard, which is an elimination on the same sums.
        adds_noise: whether the policy adds the noise itself; its method ``mechanism`` then returns
            the mechanism with its guarantee.
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
    """Decorator that registers a function that builds a policy from a plan's settings.

    Plans, runs and reports use only the registration. The module of the function must be in the
    list of modules in this file.

    Args:
        name: value of the key ``policy.name`` that selects the policy in a plan.
        summary: description of the policy in reports.
        first: number of pulls of the first batch if the plan gives none, at least 1.
        guarded: whether the setting ``guard`` is permitted.
        adds_noise: whether the policy adds the noise itself; its method ``mechanism`` then returns
            the mechanism with its guarantee.

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
    """All policies that a plan can select, by name."""
    for module in _MODULES:
        import_module(f"turnout.bandits.{module}")
    return dict(_REGISTERED)


def whole_batch(actions: IntArray, shares: FloatArray, size: float, left: int) -> Batch:
    """Batch of about ``shares · size`` pulls of each action, and at most ``left`` pulls in all.

    ``actions`` and ``shares`` have the same shape (k,). The numbers of pulls are rounded up, to at
    least 1. If they add up to more than ``left``, the actions with the most pulls lose pulls. So an
    action is omitted only if fewer pulls than actions are left.
    """
    pulls = np.maximum(np.ceil(shares * min(size, left) - 1e-9), 1.0).astype(np.int64)
    while (excess := int(pulls.sum()) - left) > 0:
        most = int(np.argmax(pulls))
        pulls[most] -= min(excess, max(int(pulls[most]) // 2, 1))
    kept = pulls > 0
    order = np.argsort(actions[kept])
    return Batch(actions[kept][order], pulls[kept][order])


def check_growth(growth: float) -> None:
    """Raise an error for a ratio of batch sizes outside (1, 100].

    Raises:
        ParameterError: ``growth`` is outside (1, 100].
    """
    checks.positive(growth=growth)
    if not 1.0 < growth <= 100.0:
        raise ParameterError("growth", growth, "a number above 1, at most 100")


_OUTSIDE = (
    1e-6  # relative distance from a batch's span above which it does not inform on a contrast
)
_SINGULAR = 1e-12
_LEAST_VARIANCE = 1e-3  # lower limit of a bit's variance, so that no weight is infinite
_BLOCK = 2**16  # contrasts times sums in one block: half a MiB, which the processor's cache holds


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """Evidence of one batch: its release, and bounds on mean rewards from earlier batches.

    Attributes:
        features: actions of the batch, one in each row, shape (k, d).
        release: release of the batch.
        low: lower bounds on the mean rewards, shape (k,).
        high: upper bounds on the mean rewards, shape (k,).
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
        """Covariance proxy of the estimate of θ from this batch only, shape (d, d)."""
        return np.linalg.pinv(self.information, rcond=_SINGULAR, hermitian=True)

    def variances(self, contrasts: FloatArray) -> FloatArray:
        """Variance proxy σⱼ² of each contrast, (m, d) to (m,); inf outside the batch's span."""
        along = contrasts @ self.covariance
        missed = np.linalg.norm(along @ self.information - contrasts, axis=1)
        known = missed <= _OUTSIDE * np.linalg.norm(contrasts, axis=1)
        own = np.einsum("ij,ij->i", along, contrasts)
        return np.where(known & (own > 0), np.maximum(own, 1e-300), np.inf)

    def log_moments(self, contrasts: FloatArray, x: FloatArray) -> FloatArray:
        """Upper bounds ψⱼ(x) on the log moment of the estimate of each contrast from this batch.

        Args:
            contrasts: contrasts c, one in each row, shape (contrasts, d).
            x: arguments above 0, m for each contrast, shape (contrasts, m), as the result.
        """
        channels = self.release.channels
        each = self.precision / (channels.pulls * channels.attenuation)
        per_sum = contrasts @ (self.covariance @ (self.features.T * each))
        return channels.log_moments(per_sum, x, self.low, self.high)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimates of contrasts ⟨c, θ⟩, with radii: estimate − radius is a lower bound on ⟨c, θ⟩.

    Attributes:
        values: estimates, shape (contrasts,).
        radii: radius of each estimate, shape (contrasts,); infinite if no batch gives an estimate.
    """

    values: FloatArray
    radii: FloatArray


@dataclass(frozen=True)
class Widths:
    """Confidence widths that hold simultaneously for several contrasts and after all batches.

    Attributes:
        failure: upper bound on the probability that any width fails.
        contrasts: number of contrasts for which the widths hold together.
        horizon: number of pulls of the whole run. Together with the size of the first batch it
            determines the number of values λ.
        pooled: whether estimates use the sums of all batches; False: only those of the last batch.
    """

    failure: float
    contrasts: int
    horizon: int
    pooled: bool = True

    def lower(self, evidence: Sequence[BatchEvidence], contrasts: FloatArray) -> Estimates:
        """Estimates of ⟨c, θ⟩, with radii such that value − radius is a lower bound on ⟨c, θ⟩.

        Args:
            evidence: evidence of all batches so far. The first batch must span all contrasts.
            contrasts: contrasts c, one in each row, shape (·, d).
        """
        # Compute the contrasts in blocks that fit the processor's cache.
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
        """Estimates and radii of a block of contrasts, by the bound in the module's docstring."""
        # The term ln(m/p), with a union bound over contrasts, and the grid of λ, which is scaled
        # for each contrast by its variance in the first batch.
        levels = self._levels(evidence[0].release.batch.size)
        log_odds = math.log(self.contrasts * levels / self._share(len(evidence)))
        with np.errstate(divide="ignore"):
            first = 1.0 / evidence[0].variances(contrasts)
        grid = math.sqrt(2.0 * log_odds) * np.exp2(-np.arange(levels, dtype=np.float64))
        used = evidence if self.pooled else evidence[-1:]
        # The sums over batches Σψⱼ(λwⱼ), Σ wⱼXⱼ and W.
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
        # The smallest radius over the grid of λ, which is an upper bound on the error.
        with np.errstate(divide="ignore", invalid="ignore"):
            lambdas = grid / np.sqrt(first)[:, None]
            radii = ((log_odds + spent) / (lambdas * weight[:, None])).min(axis=1)
            values = total / weight
        known = (weight > 0) & (first > 0)
        return Estimates(np.where(known, values, 0.0), np.where(known, radii, np.inf))

    def _levels(self, first_batch: int) -> int:
        """Number m of values λ, each twice the previous one, that a run of this horizon needs.

        With pooling, the values must suit all precisions W from the first batch to the last.
        """
        if not self.pooled:
            return 3
        return 3 + math.ceil(math.log(max(self.horizon / first_batch, 1.0), 4))

    def _share(self, batches: int) -> float:
        """Failure probability of the widths after the given number of batches.

        Without pooling each batch has its own widths, and the probabilities of all batches sum to
        at most `failure`.
        """
        return self.failure if self.pooled else self.failure / (batches * (batches + 1))
