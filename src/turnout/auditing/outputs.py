"""The distinguishing game on numeric outputs: messages, estimates, sums, and whole bandit runs.

`OutputGame` learns likelihood ratios from separate trials. If the ratios are inaccurate, the lower
bounds are smaller but hold with the same confidence, so no assumption on the distribution is
needed. `messages_of`, `projection_of` and `released_by` build such games. `RewardGame` plays runs
of a bandit in which one client's reward is +1 or −1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.auditing.confidence import merged_scores
from turnout.bandits import Batch, BatchMechanism, BatchRelease, Policy, Problem
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError
from turnout.randomizers import FrequencyRandomizer
from turnout.randomizers.numbers import NoisyNumber
from turnout.randomizers.subset import BitmapRandomizer
from turnout.randomizers.vectors import VectorRandomizer
from turnout.randomness import SimulationStreams, Source
from turnout.schemes import TrustModel

Outputs = Callable[[int, int, Source], NDArray[Any]]
"""Function of (world, trials, source) that returns outputs of shape (trials,) or (trials, k)."""

_GROUP, _CELLS = 2**14, 2**21
_FEW_VALUES = 4096  # largest number of values for which one ratio per value is learned
_FEWEST_EACH = 8.0  # least mean number of trials per value for that


@dataclass(frozen=True, eq=False)
class OutputGame:
    """Distinguishing game on numeric outputs, with learned likelihood ratios.

    Attributes:
        outputs: function that draws the outputs of trials of world 0 or 1.
        learning: number of trials of each world from which ratios are learned, at least 2; bounds
            do not use them.
        projected: function that returns a further statistic of outputs, or None.

    Raises:
        ParameterError: fewer than 2 trials for learning.
    """

    outputs: Outputs
    learning: int
    projected: Callable[[FloatArray], FloatArray] | None = None

    def __post_init__(self) -> None:
        checks.count(2, learning=self.learning)

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Scores of trials of a world by the name of the statistic, each of shape (trials,)."""
        learned = self._learned(streams)
        return merged_scores(
            self._named(learned, columns) for columns in self._seen(world, trials, streams, *name)
        )

    def _named(self, learned: _Learned, seen: FloatArray) -> dict[str, FloatArray]:
        found = learned.scores(seen)
        return found if self.projected is None else found | {"estimate": self.projected(seen)}

    def _seen(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> list[FloatArray]:
        groups = []
        for start in range(0, trials, _GROUP):
            source = streams.source("audit", "outputs", *name, world, start)
            seen = np.asarray(self.outputs(world, min(_GROUP, trials - start), source))
            groups.append(seen.reshape(len(seen), -1).astype(np.float64))
        return groups

    def _learned(self, streams: SimulationStreams) -> _Learned:
        known = self._by_seed
        if streams.seed not in known:
            worlds = [self._seen(w, self.learning, streams, "learning") for w in (0, 1)]
            known[streams.seed] = _Learned(*map(np.concatenate, worlds))
        return known[streams.seed]

    @cached_property
    def _by_seed(self) -> dict[int, _Learned]:
        return {}


class _Learned:
    """Learned statistics: log ratios of whole rows, log ratios of columns, and a projection."""

    def __init__(self, ours: FloatArray, others: FloatArray) -> None:
        self._rows = _Table.of(_keys(ours), _keys(others))
        self._columns = [
            _Table.of(one, other) if np.ptp(np.r_[one, other]) > 0 else None
            for one, other in zip(ours.T, others.T, strict=True)
        ]
        spread = np.concatenate([ours, others]).var(axis=0)
        apart = ours.mean(axis=0) - others.mean(axis=0)
        self._direction = np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0)
        self._base = ours.shape[1]

    def scores(self, seen: FloatArray) -> dict[str, FloatArray]:
        """Scores of outputs by the name of the statistic, each of shape (trials,)."""
        separate = np.zeros(len(seen))
        for column, table in zip(seen.T, self._columns, strict=True):
            if table is not None:
                separate += table.ratio(column)
        rows = separate if self._rows is None else self._rows.ratio(_keys(seen))
        found = {"learned ratio": rows, "projection": seen @ self._direction}
        if self._base > 1:
            found["learned ratio by column"] = separate
        return found


@dataclass(frozen=True, eq=False)
class _Table:
    """Learned log ratios of the values of a discrete number."""

    values: NDArray[Any]
    ratios: FloatArray

    @classmethod
    def of(cls, ours: NDArray[Any], others: NDArray[Any]) -> _Table | None:
        """Table of log ratios, or None if there are too many values to learn their ratios."""
        values, where = np.unique(np.concatenate([ours, others]), return_inverse=True)
        if values.size > min(_FEW_VALUES, len(where) / _FEWEST_EACH):
            return None
        counts = [
            np.bincount(part, minlength=values.size)
            for part in (where[: len(ours)], where[len(ours) :])
        ]
        return cls(values, np.log((counts[0] + 0.5) / (counts[1] + 0.5)))

    def ratio(self, seen: NDArray[Any]) -> FloatArray:
        """Log ratios of outputs; 0 for values outside the table."""
        places = np.minimum(np.searchsorted(self.values, seen), self.values.size - 1)
        return np.where(self.values[places] == seen, self.ratios[places], 0.0)


def _keys(rows: FloatArray) -> NDArray[Any]:
    """Number for each row, shape (rows,), that almost surely differs between unequal rows."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    weights = np.random.default_rng(0).uniform(1.0, 2.0, rows.shape[1])
    return rows @ weights


def messages_of(randomizer: Any, worlds: tuple[Any, Any] | None = None) -> Outputs:
    """Function that draws messages of a client with one of two values, for an `OutputGame`.

    Args:
        randomizer: a randomizer of one item, of a number or of a vector.
        worlds: the two values; if None, items 0 and 1, or the two most distant numbers or vectors.

    Raises:
        ParameterError: ``worlds`` is None, and no default is known for the randomizer.
    """
    held = _farthest(randomizer) if worlds is None else worlds

    def outputs(world: int, trials: int, source: Source) -> NDArray[Any]:
        values = np.repeat(np.asarray(held[world])[None], trials, axis=0)
        if getattr(randomizer, "public", False):
            return randomizer.encode(values, source, randomizer.draw_questions(trials, source))
        messages = randomizer.encode(values, source)
        if isinstance(randomizer, BitmapRandomizer):
            return np.unpackbits(messages.view(np.uint8), axis=1, bitorder="little")
        return messages

    return outputs


def projection_of(
    randomizer: Any, worlds: tuple[Any, Any] | None = None
) -> Callable[[FloatArray], FloatArray] | None:
    """Function that projects vector messages on the difference of two vectors, or None.

    The projection is a statistic for messages that have too many values to learn their ratios. The
    function maps n messages, shape (n, …), to shape (n,). The result is None for randomizers of
    items or numbers, and for public randomness.
    """
    if not isinstance(randomizer, VectorRandomizer) or randomizer.public_randomness != "none":
        return None
    one, other = _farthest(randomizer) if worlds is None else worlds
    direction = np.asarray(one, np.float64) - np.asarray(other, np.float64)

    def projected(seen: FloatArray) -> FloatArray:
        messages = seen.astype(np.int64)
        each = [randomizer.mean(randomizer.total(row[None]), 1) @ direction for row in messages]
        return np.array(each)

    return projected


def _farthest(randomizer: Any) -> tuple[Any, Any]:
    """Two inputs of a randomizer with the largest distance."""
    if isinstance(randomizer, FrequencyRandomizer):
        return 0, 1
    if isinstance(randomizer, NoisyNumber):
        return randomizer.clip, -randomizer.clip
    if isinstance(randomizer, VectorRandomizer):
        first = np.zeros(randomizer.dimension)
        first[0] = randomizer.radius
        if randomizer.norm == np.inf:
            first[:] = randomizer.radius
        return first, -first
    kind = type(randomizer).__name__
    raise ParameterError("worlds", None, f"a pair of two inputs of {kind}")


def released_by(release: Callable[[Any], Any], worlds: tuple[Any, Any]) -> Outputs:
    """Function that draws outputs of ``release`` for one of two inputs, for an `OutputGame`.

    Args:
        release: randomized function of an input; its results are numbers or arrays of one shape.
        worlds: the input of world 0, and the input of world 1.
    """

    def outputs(world: int, trials: int, source: Source) -> NDArray[Any]:
        del source
        each = [np.ravel(np.asarray(release(worlds[world]), np.float64)) for _ in range(trials)]
        return np.array(each)

    return outputs


_ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class RewardGame:
    """Distinguishing game on a bandit of two actions: the reward of one client is +1 or −1.

    The client is the first client that pulls action 0. All other rewards are −1, the worst case for
    shuffled bits. The adversary observes the released sum of the client's batch (the client's
    message, under local trust), and the number of pulls of action 0.

    Attributes:
        mechanism: mechanism that randomizes rewards and releases sums.
        policy: policy that chooses the batches.
        horizon: number of pulls of a run.
    """

    mechanism: BatchMechanism
    policy: Policy[Any]
    horizon: int = 48

    def outputs(self, world: int, trials: int, source: Source) -> NDArray[np.float64]:
        """Observations of the adversary in each run, shape (trials, 2).

        Runs with equal releases have equal states, so their batches are planned together.
        """
        # All runs begin in one group with the initial state.
        reward, policy = (1, -1)[world], self.policy
        views = np.empty((trials, 2))
        root = policy.init(Problem(_ACTIONS, self.horizon))
        groups: list[tuple[Any, NDArray[np.int64], int]] = [(root, np.arange(trials), 0)]
        while groups:
            state, members, pulled = groups.pop()
            batch = policy.plan(state, np.random.default_rng(0))
            pulled += int(batch.pulls[batch.actions == 0].sum())
            own = reward if state is root else -1
            first, sums = self._released(batch, own, members.size, source)
            # The client is in the first batch, which has the first pull of action 0.
            if state is root:
                local = self.mechanism.trust is TrustModel.LOCAL
                views[:, 0] = first if local else sums[:, 0]
            if batch.size == state.left:
                views[members, 1] = pulled
                continue
            # Divide the group by the released sums, which determine the next state.
            different, which = np.unique(sums, axis=0, return_inverse=True)
            for number, row in enumerate(different):
                release = BatchRelease(batch, row, self.mechanism.channels(batch.pulls))
                chosen = members[which.ravel() == number]
                groups.append((policy.update(state, release), chosen, pulled))
        return views

    def _released(
        self, batch: Batch, reward: int, runs: int, source: Source
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Client's messages, shape (runs,), and released sums of a batch, shape (runs, actions)."""
        totals, first = [], np.zeros(runs, np.int64)
        for action, pulls in enumerate(batch.pulls.tolist()):
            rewards = np.full((runs, pulls), -1)
            rewards[:, 0] = reward if action == 0 else -1
            messages = self.mechanism.messages(rewards.ravel(), pulls, source)
            messages = messages.reshape(runs, pulls)
            totals.append(messages.sum(axis=1))
            first = messages[:, 0] if action == 0 else first
        sums = self.mechanism.release(np.array(totals).T.ravel(), source)
        return first, sums.reshape(runs, batch.pulls.size)
