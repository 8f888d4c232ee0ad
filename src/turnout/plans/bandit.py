"""Plans of bandits: a TOML file with the tables environment, privacy, policy and run.

`BanditPlan` is the whole plan; `turnout.runs.bandit` runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from turnout.bandits.policy import RegisteredPolicy, registered_policies
from turnout.core.errors import ParameterError
from turnout.plans.plan import TomlPlan
from turnout.plans.sections import Count, CountFromZero, OpenUnit, Positive, Probability, Section

ActionRow = tuple[float, ...]
_POLICIES = registered_policies()
_GUARDED = " or ".join(policy.name for policy in _POLICIES.values() if policy.guarded)
if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(_POLICIES)]


class EnvironmentSection(Section):
    """Environment of a bandit run: its public actions, the hidden θ of the rewards, the horizon."""

    horizon: Count = Field(..., description="pulls of a run; each is one client with one reward")
    actions: Count | None = Field(
        None,
        description="number of actions, drawn with θ for each run, uniform on the unit sphere",
    )
    dimension: Count = Field(2, description="coordinates of an action")
    gap: Positive | None = Field(
        None,
        description="difference of the two largest mean rewards, in place of drawn actions",
    )
    features: tuple[ActionRow, ...] | None = Field(
        None,
        description="actions in place of drawn ones: a row of norm at most 1 for each action",
    )
    parameter: ActionRow | None = Field(
        None, description="the parameter θ, of norm at most 1; only with `features`"
    )
    log: str | None = Field(
        None,
        description="CSV file of rewards, in place of θ; only with `features`. It has the columns "
        "client, reward_0, … and one row for each client; its path is relative to the plan",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        """Raise an error if keys of random actions and keys of given actions are combined."""
        # Without features, random actions are drawn, and their parameter is random too.
        if self.features is None:
            if self.actions is None:
                raise ParameterError("actions", None, "a number of actions, or features")
            for name in ("parameter", "log"):
                if getattr(self, name) is not None:
                    expected = "no value, since features is not given"
                    raise ParameterError(name, getattr(self, name), expected)
            return self
        # With features, the actions are given, and the rewards follow a parameter or a log.
        for name in ("actions", "gap"):
            if getattr(self, name) is not None:
                expected = "no value, since features is given"
                raise ParameterError(name, getattr(self, name), expected)
        if (self.parameter is None) == (self.log is None):
            expected = "a value of parameter or of log, but not of both"
            raise ParameterError("parameter", self.parameter, expected)
        self._check_features(self.features)
        return self

    @property
    def numbers(self) -> int:
        """Number of coordinates of an action."""
        if self.features is not None:
            return len(self.features[0])
        return 2 if self.gap is not None else self.dimension

    def _check_features(self, rows: tuple[ActionRow, ...]) -> None:
        """Raise an error if actions differ in length, have norm above 1, or are all zero."""
        named = [(f"features[{i}]", row) for i, row in enumerate(rows)]
        if self.parameter is not None:
            named.append(("parameter", self.parameter))
        for name, row in named:
            if len(row) != len(named[0][1]) or not np.linalg.norm(row) <= 1.0 + 1e-9:
                expected = f"{len(named[0][1])} finite numbers of norm at most 1"
                raise ParameterError(name, list(row), expected)
        if not np.any(rows):
            raise ParameterError("features", "all zero", "at least one action that is not zero")


class RewardPrivacySection(Section):
    """Privacy of one client's reward, and the parties that are trusted."""

    trust: Literal["none", "central", "shuffled", "local"] = Field(
        ..., description="trust model (none means no privacy)"
    )
    epsilon: Positive | None = Field(None, description="ε under replace-one of a client's reward")
    delta: OpenUnit | None = Field(
        None, description="δ, only for shuffled messages and for private-linucb"
    )

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        """Raise an error for an ε with trust "none", or for another trust without an ε."""
        if (self.epsilon is None) != (self.trust == "none"):
            expected = "no value with trust = 'none'" if self.epsilon else "a number above 0"
            raise ParameterError("epsilon", self.epsilon, expected)
        return self


class PolicySection(Section):
    """Policy: the rule that chooses the actions."""

    name: PolicyName = Field("elimination", description="the policy")
    growth: Positive = Field(1.5, description="ratio of the sizes of successive batches, above 1")
    first: Count | None = Field(
        None,
        description="pulls of the first batch (for private-linucb, of every batch); unset: 50, "
        + ", ".join(f"for {p.name} {p.first}" for p in _POLICIES.values() if p.first != 50),
    )
    commit: Probability = Field(
        0.3,
        description="fraction of the horizon, at its end, in which only the action with the best "
        "estimate is pulled",
    )
    failure: OpenUnit | None = Field(
        None,
        description="upper bound on the probability of dropping the best action; unset: "
        "1/(horizon + 1)",
    )
    guard: bool = Field(
        False,
        description=f"with {_GUARDED}: pull no action that elimination would drop on the same sums",
    )

    @model_validator(mode="after")
    def _growing(self) -> Self:
        """Raise an error for ``growth`` out of range, or if the policy has no ``guard``."""
        if not 1.0 < self.growth <= 100.0:
            raise ParameterError("growth", self.growth, "a number above 1, at most 100")
        if self.guard and not self.registered.guarded:
            expected = f"false, except with name = '{_GUARDED}'"
            raise ParameterError("guard", self.guard, expected)
        return self

    @property
    def first_batch(self) -> int:
        """Number of pulls of the first batch."""
        return self.first or self.registered.first

    @property
    def registered(self) -> RegisteredPolicy:
        """Registered entry of the policy that `name` selects."""
        return _POLICIES[self.name]


class BanditRunSection(Section):
    """Number of runs and their seeds, for simulation only."""

    seeds: Count = Field(20, description="number of runs over which regret is averaged")
    seed: CountFromZero = Field(
        0, description="seed of the first run; each further run has the next seed"
    )


class BanditPlan(TomlPlan):
    """Plan of a bandit experiment: environment, privacy, policy and number of runs.

    >>> plan = BanditPlan.from_toml('''
    ... [environment]
    ... horizon = 1000
    ... actions = 5
    ... [privacy]
    ... trust = "central"
    ... epsilon = 1.0
    ... ''')
    >>> plan.policy.name
    'elimination'
    """

    environment: EnvironmentSection
    privacy: RewardPrivacySection
    policy: PolicySection = Field(default_factory=lambda: PolicySection.model_validate({}))
    run: BanditRunSection = Field(default_factory=lambda: BanditRunSection.model_validate({}))

    @model_validator(mode="after")
    def _fitting_delta(self) -> Self:
        """Raise an error for a δ, a trust model or a log that the policy does not permit."""
        # A policy that adds its own noise needs a trust model, and cannot replay a log.
        privacy, own = self.privacy, self.policy.registered.adds_noise
        if own and privacy.trust == "none":
            raise ParameterError(
                "privacy.trust",
                privacy.trust,
                f"'central', 'shuffled' or 'local' with policy.name = '{self.policy.name}'",
            )
        if own and self.environment.log is not None:
            raise ParameterError(
                "policy.name",
                self.policy.name,
                f"a policy other than {self.policy.name}, which cannot replay a log",
            )
        # Only shuffled messages and policies that add their own noise have a δ.
        if (privacy.delta is None) == (own or privacy.trust == "shuffled"):
            expected = (
                "no value, since this mechanism has δ = 0"
                if privacy.delta
                else "a number strictly between 0 and 1"
            )
            raise ParameterError("privacy.delta", privacy.delta, expected)
        return self

    @model_validator(mode="after")
    def _whole_batch(self) -> Self:
        """Raise an error for a horizon that is smaller than the first batch."""
        if self.environment.horizon < self.policy.first_batch:
            expected = f"at least {self.policy.first_batch}, the first batch (policy.first)"
            raise ParameterError("environment.horizon", self.environment.horizon, expected)
        return self
