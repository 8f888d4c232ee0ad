"""Schedules: blocks of steps, and the clients that take part in each step, stored in two arrays.

`blocks` returns the `ScheduleBlock`s of a participation. A `Schedule` holds the participations of
consecutive steps; `grouped` and `joined_schedules` make schedules. The samplers of `drawing` return
schedules; `simulation` and devices read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.schemes import Participation
from turnout.schemes.normal_form import Form, normal_form


@dataclass(frozen=True, slots=True)
class ScheduleBlock:
    """Consecutive steps that are drawn together, independently of all other steps.

    Attributes:
        index: number of the block, from 0; the name of the block's random stream contains it.
        first_step: number of the first step, counted over the whole run.
    """

    index: int
    first_step: int
    steps: int


class Blocks(Sequence[ScheduleBlock]):
    """Sequence of the blocks of a normal form, created on demand."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def __len__(self) -> int:
        return self._form.blocks

    @overload
    def __getitem__(self, index: int) -> ScheduleBlock: ...
    @overload
    def __getitem__(self, index: slice) -> list[ScheduleBlock]: ...
    def __getitem__(self, index: int | slice) -> ScheduleBlock | list[ScheduleBlock]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self[position] for position in positions]
        return ScheduleBlock(positions, *self._form.block(positions))


def blocks(participation: Participation) -> Sequence[ScheduleBlock]:
    """Blocks of a participation, in order; together they cover steps 0 … ``steps − 1``.

    There is one block for each window of check-ins or of k-subsets, one for the whole run of
    sliding windows or of a kept slot, and one for each step if steps are independent.

    Raises:
        UnsupportedError: an unknown participation.
    """
    return Blocks(normal_form(participation))


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Participations of consecutive steps, grouped by step.

    Guarantees:
        The clients of a step are in ascending order if a sampler of this package draws them.

    Attributes:
        first_step: number of the first step, counted over the whole run.
        offsets: int64 of shape (steps + 1,): step ``first_step + i`` has the participations
            ``offsets[i]`` to ``offsets[i + 1] − 1``.
        clients: client of each participation, int32 or int64 of shape (participations,).

    Raises:
        ParameterError: a negative ``first_step``, or arrays of another type or shape, or offsets
            that decrease or do not span all participations.
    """

    first_step: int
    offsets: NDArray[np.int64]
    clients: NDArray[np.integer]

    def __post_init__(self) -> None:
        checks.count(0, first_step=self.first_step)
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) < 1 or offsets.dtype != np.int64:
            raise ParameterError("offsets", offsets.shape, "an int64 array of shape (steps + 1,)")
        if offsets[0] != 0 or offsets[-1] != len(self.clients) or np.any(np.diff(offsets) < 0):
            raise ParameterError(
                "offsets", offsets, "numbers from 0 to len(clients), none below the one before"
            )
        if self.clients.ndim != 1 or self.clients.dtype not in (np.int32, np.int64):
            raise ParameterError("clients", self.clients.dtype, "a flat int32 or int64 array")

    @property
    def steps(self) -> int:
        """Number of steps covered."""
        return len(self.offsets) - 1

    @property
    def participations(self) -> int:
        """Number of participations in all steps together."""
        return len(self.clients)

    def at(self, step: int) -> NDArray[np.integer]:
        """Clients of one step, a view of shape (count,).

        Raises:
            ParameterError: the step is outside the schedule.
        """
        i = step - self.first_step
        if not 0 <= i < self.steps:
            last = self.first_step + self.steps - 1
            raise ParameterError("step", step, f"a step from {self.first_step} to {last}")
        return self.clients[self.offsets[i] : self.offsets[i + 1]]

    def counts(self) -> NDArray[np.int64]:
        """Number of participations in each step, shape (steps,)."""
        return np.diff(self.offsets)

    def slots(self) -> NDArray[np.int64]:
        """Step of each participation, counted over the whole run, shape (participations,)."""
        steps = np.arange(self.first_step, self.first_step + self.steps)
        return np.repeat(steps, self.counts())


def numbered(clients: range, positions: NDArray[np.int64]) -> NDArray[np.integer]:
    """Client numbers, shape of ``positions``, at the given positions of the range ``clients``."""
    numbers = positions.astype(np.int32 if clients.stop <= 2**31 else np.int64)
    numbers += clients.start
    return numbers


def grouped(
    first_step: int, steps: int, slots: NDArray[np.integer], clients: NDArray[np.integer]
) -> Schedule:
    """Schedule in which ``clients[i]`` participates at step ``first_step + slots[i]``.

    Within a step the clients keep their order.

    Args:
        first_step: number of the first step, counted over the whole run.
        steps: number of steps that the schedule covers.
        slots: step of each participation, counted from ``first_step``, shape (participations,).
        clients: client of each participation, shape (participations,).

    Raises:
        ParameterError: a slot is outside 0 … ``steps − 1``.
    """
    rows = len(slots)
    if rows == 0:
        return Schedule(first_step, np.zeros(steps + 1, dtype=np.int64), clients)
    if not 0 <= slots.min() <= slots.max() < steps:  # scipy would write outside its arrays.
        raise ParameterError("slots", (int(slots.min()), int(slots.max())), f"0 to {steps - 1}")
    # A matrix with one entry a row, turned from rows to columns: scipy does this by a stable
    # counting sort, linear in participations + steps, and carries the clients along.
    index = np.int32 if max(rows, steps) < 2**31 else np.int64
    by_row = (clients, slots.astype(index, copy=False), np.arange(rows + 1, dtype=index))
    by_step = sparse.csr_array(by_row, shape=(rows, steps)).tocsc()
    carried = by_step.data.astype(clients.dtype, copy=False)
    return Schedule(first_step, by_step.indptr.astype(np.int64), carried)


def joined_schedules(schedules: list[Schedule]) -> Schedule:
    """Schedule of all steps of consecutive schedules.

    Args:
        schedules: schedules of consecutive steps, at least one.

    Raises:
        ParameterError: no schedule is given, or a schedule does not start at the end of the
            previous one.
    """
    checks.count(schedules=len(schedules))
    for before, after in pairwise(schedules):
        expected = before.first_step + before.steps
        if after.first_step != expected:
            raise ParameterError("first_step", after.first_step, f"{expected}")
    counts = np.concatenate([schedule.counts() for schedule in schedules])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    clients = np.concatenate([schedule.clients for schedule in schedules])
    return Schedule(schedules[0].first_step, offsets, clients)
