"""Bandits replayed from a log: each client once, in the log's order.

A log says the reward that each client would have had of each action, as data with labels do. Its
clients are real, so nothing of it may be clipped or used twice in silence.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.bandits.environment import checked_actions, rounded_rewards
from turnout.bandits.mechanisms import Mechanism
from turnout.bandits.policy import Batch
from turnout.core import checks
from turnout.core.errors import InputFileError, ParameterError
from turnout.core.showing import shows_shapes
from turnout.core.values import canonical
from turnout.estimation.private.columns import csv_rows
from turnout.randomness import Source

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
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
        """The number of an action of the largest mean."""
        return int(np.argmax(self.means))

    def sums(self, mechanism: Mechanism, batch: Batch, first: int, source: Source) -> IntArray:
        """A batch's released sums; its clients are those from row ``first`` on, in random order.

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


def read_log(path: Path, actions: ArrayLike) -> LoggedEnvironment:
    """The environment of a CSV file with the columns client, reward_0, …, reward_{K − 1}.

    Raises:
        InputFileError: the file cannot be read, or has other columns.
        ParameterError: a client in two rows, who would be in two batches; a reward that is no
            number from −1 to 1.
    """
    features = checked_actions(actions)
    names = [_CLIENT, *(f"{_REWARD}{i}" for i in range(len(features)))]
    try:
        header, *rows = csv_rows(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from None
    if header != names:
        raise InputFileError(f"{path}: expected the columns {', '.join(names)}")
    _require_once(path, [canonical(row[0]) for row in rows])
    outcomes = [
        [_reward(path, number, *cell) for cell in zip(names[1:], row[1:], strict=True)]
        for number, row in enumerate(rows, start=2)
    ]
    return LoggedEnvironment(features, np.array(outcomes).reshape(len(rows), len(features)))


def _require_once(path: Path, clients: Sequence[str]) -> None:
    """Refuses a client in two rows: its rewards would add up, and ε is that of one."""
    seen: dict[str, int] = {}
    for line, client in enumerate(clients, start=2):
        if not client:
            raise ParameterError("log", f"no client in line {line} of {path}", "one in every row")
        if client in seen:
            said = f"client {client!r} in lines {seen[client]} and {line} of {path}"
            raise ParameterError("log", said, "each client once: epsilon is that of one reward")
        seen[client] = line


def _reward(path: Path, line: int, name: str, text: str) -> float:
    """A reward, as it stands in the file."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) <= 1.0:
        said = f"{name} = {text} in line {line} of {path}"
        raise ParameterError("log", said, "rewards from -1 to 1, which are never clipped")
    return value
