"""Environments of linear bandits: public actions, hidden parameters, contexts, and logs.

`LinearEnvironment` draws rewards of actions, `ContextualEnvironment` turns contexts into actions,
`LoggedEnvironment` replays a log. `sphere_environment`, `two_best_environment` and
`contextual_environment` build instances, `contextual_log` replays rewards of clients with contexts,
`read_log` reads a file.

Notation: a ∈ ℝᵈ an action, ‖a‖ ≤ 1; θ the hidden parameter, ‖θ‖ ≤ 1; a pull of a has a reward of
mean ⟨a, θ⟩ in [−1, 1]; the regret of a pull is max ⟨b, θ⟩ − ⟨a, θ⟩. φ(a, c) the features of action
a in context c, ‖φ‖ ≤ 1; a*(c, θ) the action of the largest ⟨φ(a, c), θ⟩; g(θ) = E φ(a*(c, θ), c)
over the known distribution of contexts.

**Contexts.** The learner sends θᵢ, the client takes a*(c, θᵢ) in its own context and reports its
reward, whose mean is ⟨g(θᵢ), θ*⟩: a linear bandit with the actions g(θᵢ).

Source: thesis, §6.3.1; Hanna, Yang, Fragouli, Contexts can be cheap, 2023, Theorem 1.

**Logs.** A log has the reward that each client would have had of each action, as labelled data do.
Its clients are real, so a reward is never clipped or used twice without an error.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.bandits.mechanisms import BatchMechanism
from turnout.bandits.policy import Batch
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import InputFileError, ParameterError, UnsupportedError
from turnout.core.showing import shows_shapes
from turnout.core.values import canonical
from turnout.estimation.private.columns import csv_rows
from turnout.randomness import Source

if TYPE_CHECKING:
    from turnout.bandits.mechanisms import BatchMechanism
    from turnout.bandits.policy import Batch

_BALL = 1.0 + 1e-9  # norms up to here are 1 but for rounding


def checked_actions(actions: ArrayLike) -> FloatArray:
    """Actions as floats, one a row, shape (K, d).

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
    """Stochastic linear bandit with rewards of ±1 and mean ⟨a, θ⟩.

    Source: thesis, §6.2, Assumption 6.2.1. A reward of [−1, 1] that is rounded to ±1 by chance has
        the same mean, so sums of rewards with any noise have the same distribution.

    Attributes:
        actions: public actions, one a row, ℓ2 norm at most 1, shape (K, d).
        parameter: hidden parameter θ, ℓ2 norm at most 1, shape (d,).

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
        """Mean reward ⟨a, θ⟩ of each action, in [−1, 1], shape (K,)."""
        return np.clip(self.actions @ self.parameter, -1.0, 1.0)

    @property
    def gaps(self) -> FloatArray:
        """Regret of one pull of each action, shape (K,); 0 for the best."""
        return self.means.max() - self.means

    @property
    def best(self) -> int:
        """Index of an action of the largest mean."""
        return int(np.argmax(self.means))

    def sums(
        self, mechanism: BatchMechanism, batch: Batch, first: int, source: Source
    ) -> NDArray[np.int64]:
        """Released sums of a batch, drawn at once; ``first`` is not used."""
        del first
        return mechanism.simulated(batch.pulls, self.means[batch.actions], source)


def rounded_rewards(rewards: ArrayLike, source: Source) -> NDArray[np.int64]:
    """Rewards of [−1, 1], each rounded to ±1 at random without a change of its mean.

    Raises:
        ParameterError: a reward outside [−1, 1], or NaN; rewards are never clipped.
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
    """Environment whose actions and θ are uniform on the unit sphere.

    Source: thesis, §6.6, "Data Generation".
    """
    checks.count(actions=actions, dimension=dimension)
    drawn = generator.standard_normal((actions + 1, dimension))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return LinearEnvironment(drawn[1:], drawn[0])


def two_best_environment(gap: float, actions: int = 10) -> LinearEnvironment:
    """Environment of actions on the half circle around θ, with a gap between the two best.

    Args:
        gap: difference of the two largest means, in (0, 0.5].
        actions: number of actions, at least 2.
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


_MOST_NUMBERS = 2**28  # of a net of parameters


@dataclass(frozen=True, eq=False)
class ContextualEnvironment(LinearEnvironment):
    """Linear environment whose pulls are parameters, with the regret of the contextual problem.

    Guarantees:
        what a client sends is a function of its context and reward that moves by at most 2 in a
        sum when both change, so the mechanism's ε is one of joint DP (thesis, Definition 6.2.3):
        it covers context and reward against an adversary who sees all that later clients receive.
        Only the client sees its action, which depends on its context.

    Attributes:
        candidates: parameter θᵢ of each pull, shape (K, d).
        optimum: mean reward of the best action in each context, given θ*.
    """

    candidates: FloatArray
    optimum: float

    @property
    def gaps(self) -> FloatArray:
        """Contextual regret of one pull of each candidate, shape (K,)."""
        return np.maximum(self.optimum - self.means, 0.0)


def best_features(features: FloatArray, parameters: FloatArray) -> FloatArray:
    """Features g(θ) of each parameter, over equally likely contexts.

    Args:
        features: φ(a, c) of N contexts from the known distribution, shape (N, A, d).
        parameters: shape (K, d).

    Returns:
        g(θ), shape (K, d); where the contexts are a sample, the error is of the order of 1/√N in
        each direction.
    """
    found = np.empty_like(parameters)
    everywhere = np.arange(len(features))
    for i, parameter in enumerate(parameters):
        chosen = np.argmax(features @ parameter, axis=1)
        found[i] = features[everywhere, chosen].mean(axis=0)
    return found


def contextual_environment(
    features: FloatArray, parameter: FloatArray, candidates: FloatArray
) -> ContextualEnvironment:
    """Linear environment of a contextual bandit with N equally likely contexts.

    Args:
        features: φ(a, c), each of norm at most 1, shape (N, A, d).
        parameter: θ*, of norm at most 1, shape (d,).
        candidates: parameters that may be pulled, shape (K, d), for example a `parameter_net`.

    Raises:
        ParameterError: features that are not finite, or of norm above 1.
    """
    array = checked_contexts(features=features)
    held = _checked_candidates(candidates, array.shape[2])
    optimum = float((array @ parameter).max(axis=1).mean())
    return ContextualEnvironment(best_features(array, held), parameter, held, optimum)


def checked_contexts(**named: ArrayLike) -> FloatArray:
    """Features φ(a, c) as floats of shape (N, A, d), given by the name of the argument.

    Raises:
        ParameterError: another shape, a norm above 1, or numbers that are not finite.
    """
    ((name, given),) = named.items()
    array = checks.real_array(**{name: given})
    if array.ndim != 3 or array.size == 0:
        raise ParameterError(name, array.shape, "an array of shape (N, A, d)")
    if not np.all(np.linalg.norm(array, axis=2) <= _BALL):
        raise ParameterError(name, "a norm above 1, or NaN", "norms of at most 1")
    return array


def _checked_candidates(candidates: ArrayLike, dimension: int) -> FloatArray:
    """Candidates as floats, shape (K, d)."""
    array = checks.real_array(candidates=candidates)
    if array.ndim != 2 or array.size == 0 or array.shape[1] != dimension:
        expected = f"shape (K, {dimension}): a row of {dimension} numbers each, as features have"
        raise ParameterError("candidates", array.shape, expected)
    if not np.isfinite(array).all():
        raise ParameterError("candidates", "infinite, or NaN", "finite numbers")
    return array


def parameter_net(dimension: int, fineness: float) -> FloatArray:
    """Net of parameters on the unit sphere: at most (3/ζ)^d, with fineness ζ.

    Each point of the sphere has a parameter of the net within ``fineness``. Only directions matter
    to g. In the plane the net has equally spaced angles; in more dimensions, it is a grid on the
    cube projected onto the sphere.

    Raises:
        UnsupportedError: the net has too many parameters to hold in memory.
    """
    checks.count(dimension=dimension)
    checks.positive(fineness=fineness)
    if dimension == 1:
        return np.array([[-1.0], [1.0]])
    if dimension == 2:
        count = max(math.ceil(math.pi / math.asin(min(fineness / 2.0, 1.0)) / 2.0), 4)
        angles = 2.0 * np.pi * np.arange(count) / count
        return np.column_stack([np.cos(angles), np.sin(angles)])
    # Points ζ apart on the cube's faces are at most that far apart once projected inwards.
    side = math.ceil(math.sqrt(dimension - 1) / fineness) + 1
    if 2.0 * dimension * float(side) ** (dimension - 1) * dimension > _MOST_NUMBERS:
        raise UnsupportedError(
            f"a net of fineness {fineness:g} in {dimension} dimensions has about "
            f"{2.0 * dimension * float(side) ** (dimension - 1):.2g} parameters, too many to hold"
        )
    line = np.linspace(-1.0, 1.0, side)
    face = np.stack(np.meshgrid(*[line] * (dimension - 1), indexing="ij"), -1)
    flat = face.reshape(-1, dimension - 1)
    faces = [
        np.insert(flat, axis, sign, axis=1) for axis in range(dimension) for sign in (-1.0, 1.0)
    ]
    grid = np.unique(np.concatenate(faces), axis=0)
    return grid / np.linalg.norm(grid, axis=1, keepdims=True)


_CLIENT, _REWARD = "client", "reward_"


@shows_shapes()
@dataclass(frozen=True, eq=False)
class LoggedEnvironment:
    """Rewards of n clients for each action; the client in row i answers pull i.

    Attributes:
        actions: public, shape (K, d).
        outcomes: rewards in [−1, 1], shape (n, K).
    """

    actions: FloatArray
    outcomes: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", checked_actions(self.actions))
        outcomes = checks.real_array(rewards=self.outcomes)
        if outcomes.ndim != 2 or outcomes.shape[1:] != self.actions.shape[:1] or not len(outcomes):
            expected = (
                f"a row for each client with a reward for each of {len(self.actions)} actions"
            )
            raise ParameterError("rewards", outcomes.shape, expected)
        bad = np.argwhere(~(np.abs(outcomes) <= 1.0))
        if bad.size:
            row, column = bad[0].tolist()
            value = float(outcomes[row, column])
            raise ParameterError(f"rewards[{row}][{column}]", value, "a number from -1 to 1")
        object.__setattr__(self, "outcomes", outcomes)

    @cached_property
    def means(self) -> FloatArray:
        """Mean logged reward of each action, shape (K,)."""
        return self.outcomes.mean(axis=0)

    @property
    def gaps(self) -> FloatArray:
        """Regret of one pull of each action, shape (K,)."""
        return self.means.max() - self.means

    @property
    def best(self) -> int:
        """Index of an action of the largest mean."""
        return int(np.argmax(self.means))

    def sums(self, mechanism: BatchMechanism, batch: Batch, first: int, source: Source) -> IntArray:
        """Released sums of a batch from the rows from ``first`` on, in random order.

        Raises:
            ParameterError: the log has too few clients.
        """
        if first + batch.size > len(self.outcomes):
            raise ParameterError(
                "horizon", first + batch.size, f"at most {len(self.outcomes)} rows"
            )
        rows = first + np.argsort(source.below(2**62, batch.size), kind="stable")
        totals, begin = [], 0
        for action, pulls in zip(batch.actions.tolist(), batch.pulls.tolist(), strict=True):
            rewards = rounded_rewards(self.outcomes[rows[begin : begin + pulls], action], source)
            totals.append(int(mechanism.messages(rewards, pulls, source).sum()))
            begin += pulls
        return mechanism.release(np.array(totals, np.int64), source)


def contextual_log(
    features: ArrayLike, candidates: ArrayLike, clients: ArrayLike, rewards: ArrayLike
) -> LoggedEnvironment:
    """Log in which client i reports the reward of the action that each candidate chooses for it.

    Args:
        features: φ(a, c) of N public contexts, each of norm at most 1, shape (N, A, d); the
            published g of a candidate is their mean and reads nothing of the clients.
        candidates: parameters that may be pulled, shape (K, d).
        clients: φ(a, c) in each client's own context, shape (n, A, d).
        rewards: of each action to each client, in [−1, 1], shape (n, A).

    Raises:
        ParameterError: an array of another shape, numbers that are not finite, a norm above 1, or a
            reward outside [−1, 1].
    """
    public = checked_contexts(features=features)
    parameters = _checked_candidates(candidates, public.shape[2])
    held, given = checked_contexts(client_contexts=clients), checks.real_array(rewards=rewards)
    if held.shape[1:] != public.shape[1:]:
        expected = f"shape (n, {public.shape[1]}, {public.shape[2]}), as the public contexts have"
        raise ParameterError("client_contexts", held.shape, expected)
    if given.shape != held.shape[:2]:
        expected = f"shape {held.shape[:2]}: a reward of each action to each client"
        raise ParameterError("rewards", given.shape, expected)
    everyone = np.arange(len(held))
    chosen = [given[everyone, np.argmax(held @ theta, axis=1)] for theta in parameters]
    return LoggedEnvironment(best_features(public, parameters), np.column_stack(chosen))


def read_log(path: Path, actions: ArrayLike) -> LoggedEnvironment:
    """Environment of a CSV file with the columns client, reward_0, …, reward_{K − 1}.

    Raises:
        InputFileError: the file cannot be read, or has other columns.
        ParameterError: a client in two rows, which would be in two batches, or a reward that is no
            number from −1 to 1.
    """
    # Header: one column for the client, one for each action.
    features = checked_actions(actions)
    names = [_CLIENT, *(f"{_REWARD}{i}" for i in range(len(features)))]
    try:
        header, *rows = csv_rows(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from None
    if header != names:
        raise InputFileError(f"{path}: expected the columns {', '.join(names)}")
    # Each client once, since ε is that of one reward; then the rewards of all rows.
    _require_once(path, [canonical(row[0]) for row in rows])
    outcomes = [
        [_reward(path, number, *cell) for cell in zip(names[1:], row[1:], strict=True)]
        for number, row in enumerate(rows, start=2)
    ]
    return LoggedEnvironment(features, np.array(outcomes).reshape(len(rows), len(features)))


def _require_once(path: Path, clients: Sequence[str]) -> None:
    """Refuse a client in two rows: ε is that of one reward."""
    seen: dict[str, int] = {}
    for line, client in enumerate(clients, start=2):
        if not client:
            raise ParameterError(
                "log", f"no client in line {line} of {path}", "a client in every row"
            )
        if client in seen:
            said = f"client {client!r} in lines {seen[client]} and {line} of {path}"
            raise ParameterError("log", said, "each client once: epsilon is that of one reward")
        seen[client] = line


def _reward(path: Path, line: int, name: str, text: str) -> float:
    """Reward in a cell of the file, from −1 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) <= 1.0:
        said = f"{name} = {text} in line {line} of {path}"
        raise ParameterError("log", said, "rewards from -1 to 1, which are never clipped")
    return value
