"""Seeded faults: mechanisms and samplers that deviate from the analysed scheme in one known way.

For each fault, `turnout.auditing` must find a lower bound above the proved ε; docs/audit.md has the
numbers of trials.
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
    """Base of mechanisms with one faulty method; all other methods are those of ``right``.

    Attributes:
        right: correct mechanism.
    """

    right: Any

    @property
    def priced_as(self) -> Randomizer:
        """Randomizer with which ε is computed, as in the right mechanism."""
        return self.right.priced_as

    @property
    def clip_norm(self) -> float:
        """Clip norm C of the right mechanism."""
        return self.right.clip_norm

    @property
    def bound(self) -> Any:
        """Bound of the right mechanism on the change of a sum by one client."""
        return self.right.bound

    @property
    def expected_check_ins(self) -> float | None:
        """Public divisor of the right mechanism; None without one."""
        return getattr(self.right, "expected_check_ins", None)

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """Message of one client, as in the right mechanism."""
        return self.right.encode(update, source)

    def zero(self) -> UpdateSum:
        """Sum of no messages, as in the right mechanism."""
        return self.right.zero()

    def require(self, total: UpdateSum) -> None:
        """Check a sum, as in the right mechanism."""
        self.right.require(total)

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """Selection of clients, as in the right mechanism."""
        return self.right.select(arrived, source)

    def initial_state(self) -> State:
        """Initial state, as in the right mechanism."""
        return self.right.initial_state()

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Release of a step, as in the right mechanism."""
        return self.right.release(total, state, step, noise)


class QuieterNoise(Faulty):
    """Fault: noise of 0.8 σ, as from a wrong unit or a rounded setting."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Release of a step with less noise than in the analysed scheme."""
        return self.right.release(total, state, step, lambda s, d: noise(_QUIETER * s, d))


class DividedByCount(Faulty):
    """Fault: division by the number of actual participants instead of the public divisor."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Noisy sum divided by the true count; the sum itself is not released."""
        released, after = self.right.release(total, state, step, noise)
        assert released.total is not None
        direction = self.bound.to_model(released.total / max(total.count, 1))
        return Released(None, direction), after


class NoDummy(Faulty):
    """Fault: no release in a step without participants."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Release of a step, or no release if the step has no participants."""
        if total.count == 0:
            return Released(None, None, skipped=True), state
        return self.right.release(total, state, step, noise)


class RedrawnNoise(Faulty):
    """Fault: every step is released a second time with fresh noise, as after a restart."""

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Mean of both releases, which an adversary who saw both can compute."""
        (one, after), (other, _) = (self.right.release(total, state, step, noise) for _ in range(2))
        assert one.total is not None
        assert other.total is not None
        directions = one.direction, other.direction
        mean = None if directions[0] is None else 0.5 * (directions[0] + directions[1])
        return Released(0.5 * (one.total + other.total), mean), after


class TwoClipNorms(Faulty):
    """Fault: clients clip to 1.5 C while the noise is scaled by C, since two settings disagree."""

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """Message of one client, whose norm may exceed C."""
        bound = self.bound
        loose = replace(bound, clip_norm=_LONGER * bound.clip_norm)
        return loose.constrained(update)


def _with(fault: type[Faulty]) -> Callable[[ReleaseGame], ReleaseGame]:
    """Function that returns a game with a faulty mechanism."""

    def built(game: ReleaseGame) -> ReleaseGame:
        right = game.mechanism

        def mechanism(dimension: int) -> Mechanism:
            return fault(right(dimension))

        return replace(game, mechanism=mechanism)

    return built


def come_oftener(
    draw: Draw, trials: int, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Fault: the canary takes part in the steps of one draw and, in some trials, of a second one.

    Each trial has the second draw with probability ½.
    """
    first, second = (canary_steps(draw, trials, block, source, first_step) for _ in range(2))
    again = source.bernoulli(_OFTENER - 1.0, trials)
    added = again[second.clients]
    slots = np.concatenate([first.slots(), second.slots()[added]]) - block.first_step
    clients = np.concatenate([first.clients, second.clients[added]]).astype(np.int64)
    _, once = np.unique(slots * trials + clients, return_index=True)
    return grouped(block.first_step, block.steps, slots[once], clients[once])


class ShuffledOnce:
    """Fault: a loader that shuffles once, so that every block repeats the first block's steps."""

    def __init__(self) -> None:
        self._first: Schedule | None = None

    def __call__(
        self, draw: Draw, trials: int, block: ScheduleBlock, source: Source, first_step: int
    ) -> Schedule:
        """Schedule of the first block, with its steps renumbered as those of this block."""
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
"""Functions by name of a fault: each adds the fault to a game, whose proved ε stays the same."""
