"""Environments of linear bandits: public actions, hidden parameters, contexts, and logs.

`LinearEnvironment` draws the rewards of actions, `ContextualEnvironment` reduces a bandit with
contexts to a linear bandit, and `LoggedEnvironment` replays a log. `sphere_environment`,
`two_best_environment` and `contextual_environment` build environments. `contextual_log` builds a
log from rewards of clients with contexts, and `read_log` reads a log from a file.

Notation: a ∈ ℝᵈ an action, ‖a‖ ≤ 1; θ the hidden parameter, ‖θ‖ ≤ 1; a pull of a has a reward of
mean ⟨a, θ⟩ in [−1, 1]; the regret of a pull is max ⟨b, θ⟩ − ⟨a, θ⟩. φ(a, c) the features of action
a in context c, ‖φ‖ ≤ 1; a*(c, θ) the action of the largest ⟨φ(a, c), θ⟩; g(θ) = E φ(a*(c, θ), c)
over the known distribution of contexts.

**Contexts.** The learner sends a parameter θᵢ. The client takes the action a*(c, θᵢ) in its context
c and reports the reward, whose mean is ⟨g(θᵢ), θ*⟩. This is a linear bandit with actions g(θᵢ).

Source: thesis, §6.3.1; Hanna, Yang, Fragouli, Contexts can be cheap, 2023, Theorem 1.

**Logs.** A log has a reward of each client for each action, as labelled data have. Its clients are
real, so a reward out of range and a second use of a client are errors.
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

_BALL = 1.0 + 1e-9  # largest norm that counts as at most 1, with an allowance for rounding


def checked_actions(actions: ArrayLike) -> FloatArray:
    """Actions as floats, one in each row, shape (K, d).

    Raises:
        ParameterError: there is no action, all are zero, or one has a NaN or a norm above 1.
    """
    array = checks.real_array(actions=actions)
    if array.ndim != 2 or array.size == 0:
        given = f"array of shape {array.shape}"
        raise ParameterError("actions", given, "at least one row of at least one number")
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

    Source: thesis, §6.2, Assumption 6.2.1. Rewards in [−1, 1] are rounded to ±1 at random without a
        change of their means (`rounded_rewards`), so only the means matter.

    Attributes:
        actions: public actions, one in each row, ℓ2 norm at most 1, shape (K, d).
        parameter: hidden parameter θ, ℓ2 norm at most 1, shape (d,).

    Raises:
        ParameterError: an action or ``parameter`` has a norm above 1, a NaN or a wrong shape, or
            all actions are zero.

    >>> LinearEnvironment(np.eye(2), np.array([0.6, 0.8])).gaps.round(6).tolist()
    [0.2, 0.0]
    """

    actions: FloatArray
    parameter: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", checked_actions(self.actions))
        parameter = checks.real_array(parameter=self.parameter)
        if parameter.shape != self.actions.shape[1:]:
            expected = f"{self.actions.shape[1]} numbers, as many as an action has"
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
        """Regret of one pull of each action, shape (K,); 0 for the best action."""
        return self.means.max() - self.means

    @property
    def best(self) -> int:
        """Index of an action of the largest mean."""
        return int(np.argmax(self.means))

    def sums(
        self, mechanism: BatchMechanism, batch: Batch, first: int, source: Source
    ) -> NDArray[np.int64]:
        """Released sums of a batch, shape (k,); ``first`` is not used."""
        del first
        return mechanism.simulated(batch.pulls, self.means[batch.actions], source)


def rounded_rewards(rewards: ArrayLike, source: Source) -> NDArray[np.int64]:
    """Rewards in [−1, 1], shape (n,), each rounded to ±1 at random without a change of its mean.

    Raises:
        ParameterError: a reward is outside [−1, 1] or NaN; rewards are not clipped.
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

    Raises:
        ParameterError: ``actions`` or ``dimension`` is not a whole number of at least 1.
    """
    checks.count(actions=actions, dimension=dimension)
    drawn = generator.standard_normal((actions + 1, dimension))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return LinearEnvironment(drawn[1:], drawn[0])


def two_best_environment(gap: float, actions: int = 10) -> LinearEnvironment:
    """Environment with a given gap between the best action, which is θ, and the second best.

    All other actions lie on the unit circle at angles of 90° or more from θ.

    Args:
        gap: difference of the two largest means, in (0, 0.5].
        actions: number of actions, at least 2.

    Raises:
        ParameterError: the gap is outside (0, 0.5], or there are fewer than 2 actions.
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


_MOST_NUMBERS = 2**28  # largest number of floats of a net of parameters


@dataclass(frozen=True, eq=False)
class ContextualEnvironment(LinearEnvironment):
    """Linear environment of a contextual bandit: each action stands for a parameter θᵢ.

    Guarantees:
        A client sends only a reward, which depends on the client's context. A change of context and
        reward changes a sum by at most 2. So the mechanism's ε holds for joint DP (thesis,
        Definition 6.2.3): context and reward are protected against an adversary that observes all
        messages to later clients. The client's action, which depends on the context, is not
        revealed.

    Attributes:
        candidates: parameter θᵢ for which each action stands, shape (K, d).
        optimum: mean reward if each client takes the best action in its context, given θ*.
    """

    candidates: FloatArray
    optimum: float

    @property
    def gaps(self) -> FloatArray:
        """Regret of one pull of each candidate in the contextual bandit, shape (K,)."""
        return np.maximum(self.optimum - self.means, 0.0)


def best_features(features: FloatArray, parameters: FloatArray) -> FloatArray:
    """Mean features g(θ) of the actions that each parameter chooses, over all given contexts.

    Args:
        features: φ(a, c) of N equally likely contexts, shape (N, A, d).
        parameters: parameters θ, shape (K, d).

    Returns:
        g(θ), shape (K, d). If the contexts are a sample from the distribution of contexts, the
        error is of the order of 1/√N in each direction.
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
        candidates: parameters that the learner may send, shape (K, d), such as a `parameter_net`.

    Raises:
        ParameterError: features are not finite or have a norm above 1, or shapes do not match.
    """
    array = checked_contexts(features=features)
    held = _checked_candidates(candidates, array.shape[2])
    optimum = float((array @ parameter).max(axis=1).mean())
    return ContextualEnvironment(best_features(array, held), parameter, held, optimum)


def checked_contexts(**named: ArrayLike) -> FloatArray:
    """Features φ(a, c) as floats of shape (N, A, d), after a check of shapes and norms.

    Args:
        named: the features, as a keyword argument whose name appears in errors.

    Raises:
        ParameterError: a wrong shape, a norm above 1, or numbers that are not finite.
    """
    ((name, given),) = named.items()
    array = checks.real_array(**{name: given})
    if array.ndim != 3 or array.size == 0:
        given_shape = f"array of shape {array.shape}"
        raise ParameterError(name, given_shape, "shape (contexts, actions, coordinates)")
    if not np.all(np.linalg.norm(array, axis=2) <= _BALL):
        raise ParameterError(name, "a vector with a norm above 1 or a NaN", "norms of at most 1")
    return array


def _checked_candidates(candidates: ArrayLike, dimension: int) -> FloatArray:
    """Candidate parameters as floats of shape (K, d), after a check of shape and finiteness."""
    array = checks.real_array(candidates=candidates)
    if array.ndim != 2 or array.size == 0 or array.shape[1] != dimension:
        expected = f"rows of {dimension} numbers, as many as a feature vector has"
        raise ParameterError("candidates", f"array of shape {array.shape}", expected)
    if not np.isfinite(array).all():
        raise ParameterError("candidates", "infinite numbers or NaN", "finite numbers")
    return array


def parameter_net(dimension: int, fineness: float) -> FloatArray:
    """Parameters on the unit sphere such that every point of the sphere is near a parameter.

    The parameters have the shape (parameters, d), and the distance is at most ``fineness``. Only
    the direction of a parameter affects g. In two dimensions the parameters have equally spaced
    angles; in more dimensions they are a grid on the surface of a cube, projected onto the sphere.

    Args:
        dimension: number of coordinates d, at least 1.
        fineness: largest distance of a point of the sphere from the net, above 0.

    Raises:
        ParameterError: ``dimension`` is below 1, or ``fineness`` is not above 0.
        UnsupportedError: the net has too many parameters for the memory.
    """
    checks.count(dimension=dimension)
    checks.positive(fineness=fineness)
    if dimension == 1:
        return np.array([[-1.0], [1.0]])
    if dimension == 2:
        count = max(math.ceil(math.pi / math.asin(min(fineness / 2.0, 1.0)) / 2.0), 4)
        angles = 2.0 * np.pi * np.arange(count) / count
        return np.column_stack([np.cos(angles), np.sin(angles)])
    # Projection of the cube's surface onto the sphere does not increase distances.
    side = math.ceil(math.sqrt(dimension - 1) / fineness) + 1
    if 2.0 * dimension * float(side) ** (dimension - 1) * dimension > _MOST_NUMBERS:
        raise UnsupportedError(
            f"a net of fineness {fineness:g} in {dimension} dimensions has about "
            f"{2.0 * dimension * float(side) ** (dimension - 1):.2g} parameters, too many for the "
            "memory; increase the fineness"
        )
    # A grid on each face of the cube, projected onto the sphere.
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
    """Environment that replays a log with the rewards of n clients for each action.

    Each batch uses the next clients of the log, in random order.

    Attributes:
        actions: public actions, one in each row, shape (K, d).
        outcomes: reward of each client for each action, in [−1, 1], shape (n, K).

    Raises:
        ParameterError: an action or a reward is outside its domain, or has a wrong shape.
    """

    actions: FloatArray
    outcomes: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", checked_actions(self.actions))
        outcomes = checks.real_array(rewards=self.outcomes)
        if outcomes.ndim != 2 or outcomes.shape[1:] != self.actions.shape[:1] or not len(outcomes):
            expected = f"a row for each client, with {len(self.actions)} rewards, one per action"
            raise ParameterError("rewards", f"array of shape {outcomes.shape}", expected)
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
        """Released sums of a batch, shape (k,), of the clients in the rows from ``first`` on.

        Raises:
            ParameterError: the log has too few clients.
        """
        if first + batch.size > len(self.outcomes):
            raise ParameterError(
                "horizon", first + batch.size, f"at most {len(self.outcomes)}, the rows of the log"
            )
        # Deal the clients out to the actions at random, and sum the messages of each action.
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
    """Log of a contextual bandit, with each client's reward for each candidate parameter.

    A client's reward for a candidate is the client's reward for the action that the candidate
    chooses in the client's context.

    Args:
        features: φ(a, c) of N public contexts, each of norm at most 1, shape (N, A, d). The actions
            g of the log are computed from them only, not from the clients' contexts.
        candidates: parameters that the learner may send, shape (K, d).
        clients: φ(a, c) in each client's context, shape (n, A, d).
        rewards: reward of each client for each action, in [−1, 1], shape (n, A).

    Raises:
        ParameterError: a wrong shape, numbers that are not finite, a norm above 1, or a reward
            outside [−1, 1].
    """
    # Check the arrays.
    public = checked_contexts(features=features)
    parameters = _checked_candidates(candidates, public.shape[2])
    held, given = checked_contexts(client_contexts=clients), checks.real_array(rewards=rewards)
    if held.shape[1:] != public.shape[1:]:
        expected = f"shape (clients, {public.shape[1]}, {public.shape[2]}), as in features"
        raise ParameterError("client_contexts", f"array of shape {held.shape}", expected)
    if given.shape != held.shape[:2]:
        expected = f"shape {held.shape[:2]}: a reward of each client for each action"
        raise ParameterError("rewards", f"array of shape {given.shape}", expected)
    # The action that each candidate chooses for each client, and its reward.
    everyone = np.arange(len(held))
    chosen = [given[everyone, np.argmax(held @ theta, axis=1)] for theta in parameters]
    return LoggedEnvironment(best_features(public, parameters), np.column_stack(chosen))


def read_log(path: Path, actions: ArrayLike) -> LoggedEnvironment:
    """Environment that is read from a CSV file with columns client, reward_0, …, reward_{K − 1}.

    Raises:
        InputFileError: the file cannot be read, or has other columns.
        ParameterError: a client has two rows, or a reward is not a number from −1 to 1.
    """
    # The header must have one column for the client and one for each action.
    features = checked_actions(actions)
    names = [_CLIENT, *(f"{_REWARD}{i}" for i in range(len(features)))]
    try:
        header, *rows = csv_rows(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from None
    if header != names:
        raise InputFileError(f"{path}: expected the columns {', '.join(names)}")
    # Check that each client has one row, since ε covers a single reward; then read all rewards.
    _require_once(path, [canonical(row[0]) for row in rows])
    outcomes = [
        [_reward(path, number, *cell) for cell in zip(names[1:], row[1:], strict=True)]
        for number, row in enumerate(rows, start=2)
    ]
    return LoggedEnvironment(features, np.array(outcomes).reshape(len(rows), len(features)))


def _require_once(path: Path, clients: Sequence[str]) -> None:
    """Raise an error if a client has two rows, since ε covers a single reward."""
    seen: dict[str, int] = {}
    for line, client in enumerate(clients, start=2):
        if not client:
            raise ParameterError(
                "log", f"no client in line {line} of {path}", "a client in every row"
            )
        if client in seen:
            said = f"client {client!r} in lines {seen[client]} and {line} of {path}"
            raise ParameterError("log", said, "one row per client, as epsilon covers one reward")
        seen[client] = line


def _reward(path: Path, line: int, name: str, text: str) -> float:
    """Reward in a cell of the file, after a check that the reward is a number from −1 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) <= 1.0:
        said = f"{name} = {text} in line {line} of {path}"
        raise ParameterError("log", said, "rewards from -1 to 1 (rewards are not clipped)")
    return value
