"""Seeded faults: mechanisms and samplers that do not what was priced, each a mistake of others.

`turnout.auditing` must find more than is proved in each of them; docs/audit.md has the numbers of
trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.auditing.releases import ReleaseGame, canary_steps
from turnout.core.aggregates import Noise, UpdateSum
from turnout.participation.schedule import Schedule, ScheduleBlock, grouped
from turnout.protocol.mechanisms import Mechanism, Released, State
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source
from turnout.schemes import Randomizer
from turnout.schemes.normal_form import Draw

_QUIETER, _OFTENER, _LONGER = 0.8, 1.5, 1.5


@dataclass(frozen=True, slots=True)
class Faulty:
    """A mechanism with one part of another; this one has all parts of ``right``."""

    right: Any

    @property
    def priced_as(self) -> Randomizer:
        """The randomizer that was priced."""
        return self.right.priced_as

    @property
    def clip_norm(self) -> float:
        """C."""
        return self.right.clip_norm

    @property
    def bound(self) -> Any:
        """The sensitivity bound."""
        return self.right.bound

    @property
    def expected_check_ins(self) -> float | None:
        """The public divisor, if there is one."""
        return getattr(self.right, "expected_check_ins", None)

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """One client's message."""
        return self.right.encode(update, source)

    def zero(self) -> UpdateSum:
        """Nobody's."""
        return self.right.zero()

    def require(self, total: UpdateSum) -> None:
        """As the right one."""
        self.right.require(total)

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """As the right one."""
        return self.right.select(arrived, source)

    def initial_state(self) -> State:
        """As the right one."""
        return self.right.initial_state()

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """As the right one."""
        return self.right.release(total, state, step, noise)


class QuieterNoise(Faulty):
    """Noise of 0.8 σ, as after a wrong unit or a rounded configuration."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """With less noise."""
        return self.right.release(total, state, step, lambda s, d: noise(_QUIETER * s, d))


class DividedByCount(Faulty):
    """The average over those who came, in place of the public divisor."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """The noisy sum over the true count; the sum itself is not shown."""
        released, after = self.right.release(total, state, step, noise)
        assert released.total is not None
        direction = self.bound.to_model(released.total / max(total.count, 1))
        return Released(None, direction), after


class NoDummy(Faulty):
    """No release of a step to which nobody came."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Nothing where nobody came."""
        if total.count == 0:
            return Released(None, None, skipped=True), state
        return self.right.release(total, state, step, noise)


class RedrawnNoise(Faulty):
    """Every step released a second time with noise that is drawn anew, as after a restart."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """The mean of both releases, which whoever saw both can form."""
        (one, after), (other, _) = (self.right.release(total, state, step, noise) for _ in range(2))
        assert one.total is not None
        assert other.total is not None
        directions = one.direction, other.direction
        mean = None if directions[0] is None else 0.5 * (directions[0] + directions[1])
        return Released(0.5 * (one.total + other.total), mean), after


class TwoClipNorms(Faulty):
    """Clients clip to 1.5 C, and the noise is for C: the norm was said in two places."""

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """One client's message, longer than the noise was made for."""
        bound = self.bound
        loose = replace(bound, clip_norm=_LONGER * bound.clip_norm)
        return loose.constrained(update)


def _with(fault: type[Faulty]) -> Callable[[ReleaseGame], ReleaseGame]:
    def built(game: ReleaseGame) -> ReleaseGame:
        right = game.mechanism

        def mechanism(dimension: int) -> Mechanism:
            return fault(right(dimension))

        return replace(game, mechanism=mechanism)

    return built


def come_oftener(
    draw: Draw, trials: int, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """The steps of one draw, and in every other trial those of a second one."""
    first, second = (canary_steps(draw, trials, block, source, first_step) for _ in range(2))
    again = source.bernoulli(_OFTENER - 1.0, trials)
    added = again[second.clients]
    slots = np.concatenate([first.slots(), second.slots()[added]]) - block.first_step
    clients = np.concatenate([first.clients, second.clients[added]]).astype(np.int64)
    _, once = np.unique(slots * trials + clients, return_index=True)
    return grouped(block.first_step, block.steps, slots[once], clients[once])


class ShuffledOnce:
    """A loader that shuffles once: the steps of the first block, in all blocks."""

    def __init__(self) -> None:
        self._first: Schedule | None = None

    def __call__(
        self, draw: Draw, trials: int, block: ScheduleBlock, source: Source, first_step: int
    ) -> Schedule:
        """The first block's draw, moved to this block."""
        if block.first_step == 0:
            self._first = canary_steps(draw, trials, block, source, first_step)
        assert self._first is not None
        return Schedule(block.first_step, self._first.offsets, self._first.clients)


FAULTS: Mapping[str, Callable[[ReleaseGame], ReleaseGame]] = {
    "noise at 0.8 σ": _with(QuieterNoise),
    "1.5 times the participation": lambda game: replace(game, sampler=come_oftener),
    "average over the true count": _with(DividedByCount),
    "no dummy update": _with(NoDummy),
    "redrawn noise": _with(RedrawnNoise),
    "two clip norms": _with(TwoClipNorms),
    "a loader that shuffles once": lambda game: replace(game, sampler=ShuffledOnce()),
}
"""From a game to the same one with a fault, whose price is still the right one's."""
