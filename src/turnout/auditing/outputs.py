"""The distinguishing game on numeric outputs: messages, estimates, sums, and whole bandit runs.

`OutputGame` learns what a ratio looks like from trials of its own, so nothing is assumed of the
distribution that is audited, and a wrong guess about it costs power, never the confidence of a
bound. `messages_of`, `projection_of` and `released_by` build such games; `RewardGame` plays runs of
a bandit in which one client's reward is +1, or −1.
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
"""Outputs of so many trials of a world: numbers of shape (trials,) or (trials, columns)."""

_GROUP, _CELLS = 2**14, 2**21
_FEW_VALUES = 4096  # of which each has a learned ratio of its own
_FEWEST_EACH = 8.0  # trials a value, on average


@dataclass(frozen=True, eq=False)
class OutputGame:
    """A game whose outputs are numbers.

    Attributes:
        outputs: what is seen of so many trials of world 0 or 1.
        learning: trials of each world by which ratios are learned; no bound counts them.
        projected: a statistic of each output that is known beforehand, shape (trials,).
    """

    outputs: Outputs
    learning: int
    projected: Callable[[FloatArray], FloatArray] | None = None

    def __post_init__(self) -> None:
        checks.count(2, learning=self.learning)

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Statistics by name: learned ratios, and what is seen itself where it is one number."""
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
    """Log ratios of rows and of single columns, and the direction between the means."""

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
        """Statistics of what is seen, by name."""
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
    """Log ratios of a number's values as they were seen."""

    values: NDArray[Any]
    ratios: FloatArray

    @classmethod
    def of(cls, ours: NDArray[Any], others: NDArray[Any]) -> _Table | None:
        """The table, or None where values hardly ever come twice."""
        values, where = np.unique(np.concatenate([ours, others]), return_inverse=True)
        if values.size > min(_FEW_VALUES, len(where) / _FEWEST_EACH):
            return None
        counts = [
            np.bincount(part, minlength=values.size)
            for part in (where[: len(ours)], where[len(ours) :])
        ]
        return cls(values, np.log((counts[0] + 0.5) / (counts[1] + 0.5)))

    def ratio(self, seen: NDArray[Any]) -> FloatArray:
        """The ratios; 0 of values that were not seen."""
        places = np.minimum(np.searchsorted(self.values, seen), self.values.size - 1)
        return np.where(self.values[places] == seen, self.ratios[places], 0.0)


def _keys(rows: FloatArray) -> NDArray[Any]:
    """One number a row; rows of several columns by a fixed mixture that hardly ever collides."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    weights = np.random.default_rng(0).uniform(1.0, 2.0, rows.shape[1])
    return rows @ weights


def messages_of(randomizer: Any, worlds: tuple[Any, Any] | None = None) -> Outputs:
    """The messages of a client who holds one of two values.

    Args:
        randomizer: of one item, of a number or of a vector.
        worlds: the two values; by default items 0 and 1, or the farthest two numbers or vectors.

    Raises:
        ParameterError: nothing that sends messages, and no values.
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
    """Projections of vectors' messages on the difference of two vectors; None of other randomizers.

    Messages of many values hardly ever come twice, so that no ratio of theirs can be learned.
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
    """Two values that are as far apart as there are."""
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
    raise ParameterError("worlds", None, f"two inputs of {kind}, as a pair")


def released_by(release: Callable[[Any], Any], worlds: tuple[Any, Any]) -> Outputs:
    """Outputs of a function of one of two inputs, trial by trial, by randomness of its own."""

    def outputs(world: int, trials: int, source: Source) -> NDArray[Any]:
        del source
        each = [np.ravel(np.asarray(release(worlds[world]), np.float64)) for _ in range(trials)]
        return np.array(each)

    return outputs


_ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class RewardGame:
    """Runs of a policy of two actions; the client is the first one to pull action 0.

    All others hold −1, which for shuffled bits is the worst that they can hold. What is seen: the
    sum of the client's own batch (its message, if nobody is trusted), and the pulls of action 0.

    Attributes:
        mechanism: what randomizes rewards and releases sums.
        policy: what chooses the batches.
        horizon: pulls of a run.
    """

    mechanism: BatchMechanism
    policy: Policy[Any]
    horizon: int = 48

    def outputs(self, world: int, trials: int, source: Source) -> NDArray[np.float64]:
        """The views of so many runs, shape (trials, 2).

        Runs of equal releases have equal states, so they are planned together; every message is
        drawn.
        """
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
            if state is root:
                local = self.mechanism.trust is TrustModel.LOCAL
                views[:, 0] = first if local else sums[:, 0]
            if batch.size == state.left:
                views[members, 1] = pulled
                continue
            different, which = np.unique(sums, axis=0, return_inverse=True)
            for number, row in enumerate(different):
                release = BatchRelease(batch, row, self.mechanism.channels(batch.pulls))
                chosen = members[which.ravel() == number]
                groups.append((policy.update(state, release), chosen, pulled))
        return views

    def _released(
        self, batch: Batch, reward: int, runs: int, source: Source
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The client's messages (runs,), and the released sums of equal batches (runs, actions)."""
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
