"""Linear bandits: public actions, a hidden parameter, and the sums of rewards of many pulls.

Notation: a ∈ ℝᵈ an action, ‖a‖ ≤ 1; θ the hidden parameter, ‖θ‖ ≤ 1; a pull of a has a reward of
mean ⟨a, θ⟩ in [−1, 1]; the regret of a pull is max ⟨b, θ⟩ − ⟨a, θ⟩.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomness import Source

if TYPE_CHECKING:
    from turnout.bandits.mechanisms import Mechanism
    from turnout.bandits.policy import Batch

FloatArray = NDArray[np.float64]
_BALL = 1.0 + 1e-9  # norms up to here are 1 but for rounding


def checked_actions(actions: ArrayLike) -> FloatArray:
    """The actions as floats, one a row, shape (K, d).

    Raises:
        ParameterError: no action, all zero, a NaN, or a norm above 1.
    """
    array = checks.real_array(actions=actions)
    if array.ndim != 2 or array.size == 0:
        raise ParameterError("actions", array.shape, "at least one action, a row of d >= 1 numbers")
    norms = np.linalg.norm(array, axis=1)
    bad = np.flatnonzero(~(norms <= _BALL))
    if bad.size:
        raise ParameterError(
            f"actions[{bad[0]}]", array[bad[0]].tolist(), "finite numbers of ℓ2 norm at most 1"
        )
    if not norms.any():
        raise ParameterError("actions", "all zero", "at least one action that is not zero")
    return array


@dataclass(frozen=True, eq=False)
class LinearEnvironment:
    """A stochastic linear bandit whose rewards are ±1 with mean ⟨a, θ⟩.

    Source: thesis, §6.2, Assumption 6.2.1. A reward of [−1, 1] that is rounded to ±1 by chance has
        the same mean, so whatever noise such rewards have, their sums have this law.

    Attributes:
        actions: public, one a row, ℓ2 norm at most 1, shape (K, d).
        parameter: θ, ℓ2 norm at most 1, shape (d,).

    >>> LinearEnvironment(np.eye(2), np.array([0.6, 0.8])).gaps.round(6).tolist()
    [0.2, 0.0]
    """

    actions: FloatArray
    parameter: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", checked_actions(self.actions))
        parameter = checks.real_array(parameter=self.parameter)
        if parameter.shape != self.actions.shape[1:]:
            expected = f"{self.actions.shape[1]} numbers, as an action has"
            raise ParameterError("parameter", parameter.tolist(), expected)
        if not np.linalg.norm(parameter) <= _BALL:
            expected = "finite numbers of ℓ2 norm at most 1"
            raise ParameterError("parameter", parameter.tolist(), expected)
        object.__setattr__(self, "parameter", parameter)

    @cached_property
    def means(self) -> FloatArray:
        """⟨a, θ⟩ of each action, in [−1, 1], shape (K,)."""
        return np.clip(self.actions @ self.parameter, -1.0, 1.0)

    @property
    def gaps(self) -> FloatArray:
        """Regret of one pull of each action, shape (K,); 0 for the best."""
        return self.means.max() - self.means

    @property
    def best(self) -> int:
        """The number of an action of the largest mean."""
        return int(np.argmax(self.means))

    def sums(
        self, mechanism: Mechanism, batch: Batch, first: int, source: Source
    ) -> NDArray[np.int64]:
        """A batch's released sums, drawn at once; the number of its first pull does not matter."""
        del first
        return mechanism.simulated(batch.pulls, self.means[batch.actions], source)


def rounded_rewards(rewards: ArrayLike, source: Source) -> NDArray[np.int64]:
    """Rewards of [−1, 1], each rounded to ±1 by chance so that its mean stays.

    Raises:
        ParameterError: a reward outside [−1, 1], which is never clipped in silence, or NaN.
    """
    values = np.atleast_1d(checks.real_array(rewards=rewards))
    bad = np.flatnonzero(~(np.abs(values) <= 1.0))
    if bad.size:
        raise ParameterError(f"rewards[{bad[0]}]", float(values[bad[0]]), "a number from -1 to 1")
    above = source.below(2**62, values.size) < np.floor((1.0 + values) * 2.0**61).astype(np.int64)
    return np.where(above, 1, -1)


def sphere_environment(
    actions: int, dimension: int, generator: np.random.Generator
) -> LinearEnvironment:
    """Actions and θ uniform on the unit sphere.

    Source: thesis, §6.6, "Data Generation".
    """
    checks.count(actions=actions, dimension=dimension)
    drawn = generator.standard_normal((actions + 1, dimension))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return LinearEnvironment(drawn[1:], drawn[0])


def two_best_environment(gap: float, actions: int = 10) -> LinearEnvironment:
    """Actions on the half circle around θ, the two best ones' means ``gap`` apart.

    Args:
        gap: difference of the two largest means, in (0, 0.5].
        actions: how many, at least 2.
    """
    checks.positive(gap=gap)
    checks.count(2, actions=actions)
    if gap > 0.5:
        raise ParameterError("gap", gap, "at most 0.5")
    angles = np.concatenate(
        [[0.0, np.arccos(1.0 - gap)], -np.linspace(0.5 * np.pi, np.pi, actions - 2)]
    )
    return LinearEnvironment(
        np.column_stack([np.cos(angles), np.sin(angles)]), np.array([1.0, 0.0])
    )
