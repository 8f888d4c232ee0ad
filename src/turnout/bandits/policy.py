"""Policies: batches of pulls, planned from what was released, and nothing else.

`init`, `plan` and `update` are pure: a state is never changed, and equal states, releases and
generators give equal results. A policy is told public actions and released sums alone, so whatever
it computes is postprocessing of what the mechanism released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from turnout.bandits.channels import Channels
from turnout.core import checks
from turnout.core.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
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
class Release:
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

    def update(self, state: State, release: Release) -> State:
        """The state that also knows a release."""
        ...


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
