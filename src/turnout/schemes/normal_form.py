"""Normal form of a participation: a sequence of blocks of steps, each with one random draw.

In each block one draw selects the steps in which a client takes part, independently of the other
blocks. The draws are `Always`, `Bernoulli`, `Cohort`, `OneOf`, `KOf`, `Kept`, `Staggered` and
`OneOfOwn`; users cannot add draws. Sampler, expectations, admissions, accounting and verifier each
have one `DrawTable` with a row for each draw, and use no other property of a participation. Clients
are independent of each other, except with `Cohort`. `Form` is a sequence of blocks; `normal_form`
returns the form of a participation.

>>> from turnout.schemes.normal_form import OneOf
>>> busy, idle = Form.of(OneOf(4)), Form.of(OneOf(4, probability=0.0))
>>> (busy + idle) * 2 == busy + idle + busy + idle
True
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes.parameters import plain_numbers
from turnout.schemes.registry import close, is_registered


@dataclass(frozen=True, slots=True)
class Always:
    """Guarantee: every client takes part in the block's one step."""

    steps: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Guarantee: a client takes part in the block's one step with probability ``rate``.

    Attributes:
        hidden: whether each client makes its draw itself (self-sampling), so that only the client
            knows the result.

    Raises:
        ParameterError: ``rate`` is outside [0, 1], or ``hidden`` is not a bool.
    """

    steps: ClassVar[int] = 1
    rate: float
    hidden: bool = False

    def __post_init__(self) -> None:
        checks.probability(rate=self.rate)
        checks.flag(hidden=self.hidden)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class Cohort:
    """Guarantee: a uniform subset of ``size`` of ``population`` clients takes part in the step.

    Raises:
        ParameterError: a number below 1, or ``size`` above ``population``.
    """

    steps: ClassVar[int] = 1
    size: int
    population: int

    def __post_init__(self) -> None:
        checks.count(size=self.size, population=self.population)
        checks.at_most("population", self.population, size=self.size)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Guarantee: with probability ``probability`` a client takes part in one uniform step.

    With probability 0 no client takes part in any step.

    Raises:
        ParameterError: ``steps`` is below 1, or ``probability`` is outside [0, 1].
    """

    steps: int
    probability: float = 1.0

    def __post_init__(self) -> None:
        checks.count(steps=self.steps)
        checks.probability(probability=self.probability)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class KOf:
    """Guarantee: a client takes part in exactly ``picks`` steps of the block, a uniform subset.

    Raises:
        ParameterError: a number below 1, or ``picks`` above ``steps``.
    """

    steps: int
    picks: int

    def __post_init__(self) -> None:
        checks.count(steps=self.steps, picks=self.picks)
        checks.at_most("steps", self.steps, picks=self.picks)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class Kept:
    """Guarantee: a client draws one step of an epoch, and takes part in this step of every epoch.

    Attributes:
        slot: draw of the client's step within an epoch.
        epochs: number of epochs; all epochs together are one block.

    Raises:
        ParameterError: ``epochs`` is below 1.
    """

    slot: OneOf
    epochs: int

    def __post_init__(self) -> None:
        checks.count(epochs=self.epochs)
        plain_numbers(self)

    @property
    def steps(self) -> int:
        """Number of steps of the block."""
        return self.slot.steps * self.epochs


@dataclass(frozen=True, slots=True)
class Staggered:
    """Guarantee: a client takes part at most once, in one uniform slot of its own window.

    Slots are 0 … ``slots − 1``, and the window of client j begins with slot
    ⌊j / clients_per_slot⌋. The first ``window − 1`` slots are a warm-up before the block's first
    step; a client that draws one of them, or a slot past the end, does not take part.

    Raises:
        ParameterError: a number below 1, or ``window`` above ``slots``.
    """

    window: int
    slots: int
    clients_per_slot: int = 1

    def __post_init__(self) -> None:
        checks.count(window=self.window, slots=self.slots, clients_per_slot=self.clients_per_slot)
        checks.at_most("slots", self.slots, window=self.window)
        plain_numbers(self)

    @property
    def steps(self) -> int:
        """Number of steps of the block: the slots after the warm-up."""
        return self.slots - self.window + 1

    @property
    def population(self) -> int:
        """Number of clients that have a window."""
        return self.slots * self.clients_per_slot


@dataclass(frozen=True, slots=True, eq=False)
class OneOfOwn:
    """Guarantee: with probability ``probability`` a client takes part in one of its own steps.

    The step is uniform among the client's own steps of the block.

    Attributes:
        available: whether a step is among a client's own steps, bool, shape (clients, steps), with
            the steps of all blocks one after the other; the array is not copied.
        steps: number of steps of a block; the last block may be shorter.
        probability: probability that a client takes part in a block in which it has own steps.
    """

    available: np.ndarray = field(repr=False)
    steps: int
    probability: float = 1.0

    @property
    def population(self) -> int:
        """Number of clients: the number of rows of ``available``."""
        return self.available.shape[0]

    def block_sizes(self) -> np.ndarray:
        """Number of own steps of each client in each block, int64, shape (clients, blocks)."""
        starts = np.arange(0, self.available.shape[1], self.steps)
        return np.add.reduceat(self.available.astype(np.int64), starts, axis=1)


Draw = Always | Bernoulli | Cohort | OneOf | KOf | Kept | Staggered | OneOfOwn

DRAWS = (Always, Bernoulli, Cohort, OneOf, KOf, Kept, Staggered, OneOfOwn)
"""The classes of all draws."""

close(*DRAWS)


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive blocks with equal rules for the draw; their draws are independent.

    Attributes:
        draw: draw of each block.
        steps: number of steps of all blocks together.
    """

    draw: Draw
    steps: int

    @property
    def blocks(self) -> int:
        """Number of blocks; with `OneOfOwn` the last block may be shorter."""
        return -(-self.steps // self.draw.steps)


class ReleasedSteps(NamedTuple):
    """Released blocks of a draw: number of whole blocks, and number of steps of an unfinished one.

    Attributes:
        draw: draw of each block.
        full: number of blocks of which all steps are released.
        rest: number of released steps of the block that is not finished; 0 if there is none.
    """

    draw: Draw
    full: int
    rest: int


class Place(NamedTuple):
    """Place of a step in a normal form.

    Attributes:
        span: the span that contains the step.
        first_step: number of the first step of the span, from 0.
        block: number of the block that contains the step, from 0, counted over the whole run.
    """

    span: Span
    first_step: int
    block: int


@dataclass(frozen=True, slots=True)
class Form:
    """Normal form of a participation: spans of blocks, in the order of their steps.

    `Form.of` builds a form; ``+`` appends a form to another, and ``*`` repeats a form. Neighbouring
    spans with equal draws are merged.

    Attributes:
        spans: spans of the run.
        population: number of clients of the run if a draw determines it, else None.

    Raises:
        ParameterError: no span, or draws with different numbers of clients.
    """

    spans: tuple[Span, ...]
    _first_steps: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _first_blocks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    population: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.count(spans=len(self.spans))
        steps = accumulate((span.steps for span in self.spans), initial=0)
        blocks = accumulate((span.blocks for span in self.spans), initial=0)
        object.__setattr__(self, "_first_steps", tuple(steps))
        object.__setattr__(self, "_first_blocks", tuple(blocks))
        draws = (span.draw for span in self.spans)
        known = {d.population for d in draws if isinstance(d, Cohort | Staggered | OneOfOwn)}
        if len(known) > 1:
            expected = "the same number of clients in all draws"
            raise ParameterError("population", sorted(known), expected)
        object.__setattr__(self, "population", known.pop() if known else None)

    @classmethod
    def of(cls, draw: Draw, blocks: int = 1) -> Form:
        """Normal form with ``blocks`` blocks that all use the same draw.

        Args:
            draw: draw of each block.
            blocks: number of blocks, at least 1. It must be 1 for `OneOfOwn`, whose array has the
                steps of all blocks.

        Raises:
            ParameterError: a number of blocks that the draw does not permit.
        """
        checks.count(blocks=blocks)
        if isinstance(draw, OneOfOwn):
            if blocks != 1:
                expected = "1 with OneOfOwn, whose array has the steps of all blocks"
                raise ParameterError("blocks", blocks, expected)
            return cls((Span(draw, draw.available.shape[1]),))
        return cls((Span(draw, draw.steps * blocks),))

    def __add__(self, other: Form) -> Form:
        if not isinstance(other, Form):
            return NotImplemented
        last, first = self.spans[-1], other.spans[0]
        if last.draw == first.draw and not isinstance(last.draw, OneOfOwn):
            merged = Span(last.draw, last.steps + first.steps)
            return Form((*self.spans[:-1], merged, *other.spans[1:]))
        return Form(self.spans + other.spans)

    def __mul__(self, times: int) -> Form:
        checks.count(times=times)
        if len(self.spans) == 1 and not isinstance(self.spans[0].draw, OneOfOwn):
            return Form((Span(self.spans[0].draw, self.spans[0].steps * times),))
        if self.spans[0].draw != self.spans[-1].draw:
            return Form(self.spans * times)
        result = self
        for _ in range(times - 1):
            result = result + self
        return result

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self._first_steps[-1]

    @property
    def blocks(self) -> int:
        """Number of blocks of the whole run."""
        return self._first_blocks[-1]

    def check_population(self, population: int) -> None:
        """Raise an error if the participation cannot have the given number of clients.

        Raises:
            ParameterError: a number below 1, or one that differs from the number of clients that
                the draws determine.
        """
        checks.count(population=population)
        if self.population is not None and population != self.population:
            expected = f"{self.population}, the number of clients of the participation"
            raise ParameterError("population", population, expected)

    def at_step(self, step: int) -> Place:
        """Place of a step: its span and its block.

        Args:
            step: number of the step, from 0, counted over the whole run.
        """
        i = bisect_right(self._first_steps, step, hi=len(self.spans)) - 1
        span, first = self.spans[i], self._first_steps[i]
        return Place(span, first, self._first_blocks[i] + (step - first) // span.draw.steps)

    def block(self, index: int) -> tuple[int, int]:
        """First step of a block, counted over the whole run, and the block's number of steps.

        Args:
            index: number of the block, from 0, counted over the whole run.
        """
        i = bisect_right(self._first_blocks, index, hi=len(self.spans)) - 1
        span = self.spans[i]
        within = (index - self._first_blocks[i]) * span.draw.steps
        return self._first_steps[i] + within, min(span.draw.steps, span.steps - within)

    def released(self, steps: int) -> Sequence[ReleasedSteps]:
        """Blocks of each draw that are released in the first ``steps`` steps of the run.

        For 0 steps the list has one entry, with 0 blocks of the first draw.
        """
        parts: dict[Draw, ReleasedSteps] = {}
        for span, first in zip(self.spans, self._first_steps, strict=False):
            part = min(steps - first, span.steps)
            if part <= 0 and parts:
                break
            full, rest = divmod(max(part, 0), span.draw.steps)
            before = parts.get(span.draw, ReleasedSteps(span.draw, 0, 0))
            parts[span.draw] = ReleasedSteps(span.draw, before.full + full, before.rest + rest)
        return list(parts.values())


def normal_form(participation: Any) -> Form:
    """Normal form of a participation.

    Raises:
        UnsupportedError: the object's class is not registered as a participation, its method
            ``form`` does not return a `Form`, or the number of steps of the form differs from the
            participation's attribute ``steps``.
    """
    kind = type(participation)
    if not is_registered(kind):
        raise UnsupportedError(
            f"no normal form is known for {kind.__name__}, which is not registered as a "
            "participation; register the class with register_participation"
        )
    # Objects that are compared by identity may hold large arrays, which a cache would keep alive.
    by_value = kind.__hash__ is not object.__hash__
    return _cached(participation) if by_value else _form(participation)


def _form(participation: Any) -> Form:
    """Form of a participation, after a check of its type and its number of steps."""
    form = participation.form()
    name = type(participation).__name__
    if not isinstance(form, Form):
        raise UnsupportedError(
            f"{name}.form() returned an object of type {type(form).__name__}; it must return a Form"
        )
    if form.steps != participation.steps:
        raise UnsupportedError(
            f"{name}.steps is {participation.steps}, but {name}.form() has {form.steps} steps; "
            "the two numbers must be equal"
        )
    return form


_cached = lru_cache(maxsize=256)(_form)


class DrawTable(Generic[Row]):
    """Table with a row for each class of draws; looking up a draw without a row is an error.

    Args:
        what: name of the quantity that the table holds, used in error messages.
        rows: row of each class of draws for which the quantity is known.

    Raises:
        UnsupportedError: ``table[draw]`` is read, and the class of the draw has no row.
    """

    def __init__(self, what: str, rows: Mapping[type, Row]) -> None:
        self.what = what
        self.rows = dict(rows)

    def __contains__(self, draw: object) -> bool:
        return type(draw) in self.rows

    def __getitem__(self, draw: object) -> Row:
        row = self.rows.get(type(draw))
        if row is None:
            raise UnsupportedError(f"{self.what} is not known for the draw {type(draw).__name__}")
        return row

    def require(self, participation: Any) -> None:
        """Raise an error if one of a participation's draws has no row.

        Raises:
            UnsupportedError: a draw has no row.
        """
        for span in normal_form(participation).spans:
            if span.draw not in self:
                raise UnsupportedError(
                    f"{self.what} is not known for {type(participation).__name__}, which uses the "
                    f"draw {type(span.draw).__name__}"
                )
