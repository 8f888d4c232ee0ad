"""Draws: the few ways in which a client's steps are drawn, of which every law is made.

A participation law is a sequence of blocks of steps, each drawn independently of the others by
one of these. They are a closed set: sampler, expectations, admissions, accounting and verifier
each have one table over them and read nothing else of a law. A draw says how *one* client's
steps within a block are chosen; clients are independent of each other except under `Cohort`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from turnout.core import checks
from turnout.spec.parameters import plain_numbers
from turnout.spec.registry import close


@dataclass(frozen=True, slots=True)
class Always:
    """Guarantee: everybody takes part in the block's one step."""

    steps: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Guarantee: a client takes part in the block's one step with probability ``rate``.

    Attributes:
        unseen: whether each client draws its own coin (self-sampling), unseen by anybody else.
    """

    steps: ClassVar[int] = 1
    rate: float
    unseen: bool = False

    def __post_init__(self) -> None:
        checks.probability(rate=self.rate)
        checks.flag(unseen=self.unseen)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class Cohort:
    """Guarantee: the block's one step serves a uniform subset of ``size`` of ``population``."""

    steps: ClassVar[int] = 1
    size: int
    population: int

    def __post_init__(self) -> None:
        checks.count(size=self.size, population=self.population)
        checks.at_most("population", self.population, size=self.size)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Guarantee: with ``probability`` a client takes part in one uniform step of the block.

    With probability 0 nobody takes part in any.
    """

    steps: int
    probability: float = 1.0

    def __post_init__(self) -> None:
        checks.count(steps=self.steps)
        checks.probability(probability=self.probability)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class KOf:
    """Guarantee: a client takes part in exactly ``picks`` steps of the block, a uniform subset."""

    steps: int
    picks: int

    def __post_init__(self) -> None:
        checks.count(steps=self.steps, picks=self.picks)
        checks.at_most("steps", self.steps, picks=self.picks)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class Kept:
    """Guarantee: a client draws by ``slot`` once and keeps its step in ``epochs`` epochs.

    Attributes:
        slot: the client's draw, of one epoch's steps.
        epochs: how often it is repeated; together they are one block.
    """

    slot: OneOf
    epochs: int

    def __post_init__(self) -> None:
        checks.count(epochs=self.epochs)
        plain_numbers(self)

    @property
    def steps(self) -> int:
        """Steps of the block."""
        return self.slot.steps * self.epochs


@dataclass(frozen=True, slots=True)
class Staggered:
    """Guarantee: a client takes part at most once, in one uniform slot of a window of its own.

    Slots are 0 … ``slots − 1``, and the window of client j begins with slot
    ⌊j / clients_per_slot⌋. The first ``window − 1`` slots are a warm-up before the block's first
    step; who drew one of them, or a slot past the end, does not take part.
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
        """Steps of the block: slots after the warm-up."""
        return self.slots - self.window + 1

    @property
    def population(self) -> int:
        """Clients who have a window."""
        return self.slots * self.clients_per_slot


@dataclass(frozen=True, slots=True, eq=False)
class OneOfOwn:
    """Guarantee: with ``probability`` a client takes part in one uniform step of *its own* ones.

    Attributes:
        available: its own steps, bool, shape (clients, steps), of all of the draw's blocks one
            after the other; not copied.
        steps: of a block; the last one may be shorter.
        probability: of coming at all in a block in which it has a step.
    """

    available: np.ndarray = field(repr=False)
    steps: int
    probability: float = 1.0

    @property
    def population(self) -> int:
        """Clients who have rows."""
        return self.available.shape[0]

    def block_sizes(self) -> np.ndarray:
        """Own steps of each client in each block, int64, shape (clients, blocks)."""
        starts = np.arange(0, self.available.shape[1], self.steps)
        return np.add.reduceat(self.available.astype(np.int64), starts, axis=1)


Draw = Always | Bernoulli | Cohort | OneOf | KOf | Kept | Staggered | OneOfOwn

DRAWS = (Always, Bernoulli, Cohort, OneOf, KOf, Kept, Staggered, OneOfOwn)
"""All of them."""

close(*DRAWS)
