"""The independent chunks in which a law is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import overload

from turnout.core.errors import UnsupportedError
from turnout.spec import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    ParticipationLaw,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive steps that are drawn together, independently of all others.

    Attributes:
        index: number of the block; names its random stream.
        first_step: its first step, counted over the whole run.
        steps: how many steps.
    """

    index: int
    first_step: int
    steps: int


class _Blocks(Sequence[Block]):
    """``total`` steps cut into blocks of ``length``, the last maybe shorter; made on demand."""

    def __init__(self, total: int, length: int) -> None:
        self._total = total
        self._length = length

    def __len__(self) -> int:
        return (self._total + self._length - 1) // self._length

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...
    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self[position] for position in positions]
        first = positions * self._length
        return Block(positions, first, min(self._length, self._total - first))


def blocks(law: ParticipationLaw) -> Sequence[Block]:
    """The blocks of a law, in order; together they cover steps 0 … ``law.steps − 1``.

    Returns:
        one block a window for `CheckIn`, `KSubset` and `AvailabilityCheckIn`; one for the
        whole run for `SlidingWindow` and `FixedAssignment`; one a step for the others.

    Raises:
        UnsupportedError: an unknown law.

    >>> blocks(CheckIn(window=5, windows=2))[1]
    Block(index=1, first_step=5, steps=5)
    """
    return _Blocks(law.steps, _block_length(law))


@singledispatch
def _block_length(law: ParticipationLaw) -> int:
    raise UnsupportedError(f"no blocks are known for the law {type(law).__name__}")


@_block_length.register(EveryStep | PoissonSampling | SelfSampling | FixedSize)
def _one_step(law: ParticipationLaw) -> int:
    return 1


@_block_length.register(CheckIn | KSubset | AvailabilityCheckIn)
def _one_window(law: CheckIn | KSubset | AvailabilityCheckIn) -> int:
    return law.window


@_block_length.register(SlidingWindow | FixedAssignment)
def _whole_run(law: SlidingWindow | FixedAssignment) -> int:
    return law.steps
