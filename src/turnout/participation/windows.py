"""The independent chunks in which a law is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from turnout.spec import ParticipationLaw
from turnout.spec.forms import Form, normal_form


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


class Blocks(Sequence[Block]):
    """The blocks of a normal form, made on demand."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def __len__(self) -> int:
        return self._form.blocks

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...
    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self[position] for position in positions]
        return Block(positions, *self._form.block(positions))


def blocks(law: ParticipationLaw) -> Sequence[Block]:
    """The blocks of a law, in order; together they cover steps 0 … ``law.steps − 1``.

    Returns:
        the blocks of its normal form: one a window of check-ins or of k-subsets; one for the
        whole run of sliding windows or of a slot that is kept; one a step where steps stand for
        themselves.

    Raises:
        UnsupportedError: an unknown law.

    >>> from turnout.spec import CheckIn
    >>> blocks(CheckIn(window=5, windows=2))[1]
    Block(index=1, first_step=5, steps=5)
    """
    return Blocks(normal_form(law))
