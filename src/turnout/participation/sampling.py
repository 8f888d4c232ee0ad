"""Samplers: one function for each draw."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import UnsupportedError
from turnout.participation.schedule import Schedule, grouped, numbered
from turnout.participation.subsets import subset_each, who_came
from turnout.participation.windows import Block
from turnout.randomness import Source
from turnout.spec.draws import (
    Always,
    Bernoulli,
    Cohort,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Staggered,
)


def everybody(
    draw: Always, clients: range, block: Block, source: Source, first_step: int
) -> Schedule:
    """Everybody, without a draw."""
    return _one_step(block, clients, np.arange(len(clients)))


def coins(
    draw: Bernoulli, clients: range, block: Block, source: Source, first_step: int
) -> Schedule:
    """A coin each. Whose hand tosses it, the server's or the client's, is not seen in the law."""
    return _one_step(block, clients, who_came(len(clients), draw.rate, source))


def cohort(draw: Cohort, clients: range, block: Block, source: Source, first_step: int) -> Schedule:
    """A uniform subset, drawn by the server."""
    if len(clients) != draw.population:
        raise UnsupportedError("under FixedSize no client can draw her own steps: sizes are fixed")
    return _one_step(block, clients, source.subset(draw.population, draw.size))


def one_of(draw: OneOf, clients: range, block: Block, source: Source, first_step: int) -> Schedule:
    """One coin, then one uniform step of the block."""
    came = who_came(len(clients), draw.probability, source)
    slots = source.below(block.steps, len(came))
    return grouped(block.first_step, block.steps, slots, numbered(clients, came))


def kept(draw: Kept, clients: range, block: Block, source: Source, first_step: int) -> Schedule:
    """One coin and one uniform slot, which she keeps in every epoch."""
    came = who_came(len(clients), draw.slot.probability, source)
    slots = source.below(draw.slot.steps, len(came))
    steps = np.concatenate([slots + epoch * draw.slot.steps for epoch in range(draw.epochs)])
    who = np.tile(numbered(clients, came), draw.epochs)
    return grouped(block.first_step, block.steps, steps, who)


def k_of(draw: KOf, clients: range, block: Block, source: Source, first_step: int) -> Schedule:
    """A uniform subset of the block for each client."""
    slots = subset_each(len(clients), block.steps, draw.picks, source)
    who = np.repeat(numbered(clients, np.arange(len(clients))), draw.picks)
    return grouped(block.first_step, block.steps, slots.reshape(-1), who)


def staggered(
    draw: Staggered, clients: range, block: Block, source: Source, first_step: int
) -> Schedule:
    """Check-in paper §4.2. Step 0 is slot ``window − 1``: those before it are the warm-up."""
    positions = np.arange(len(clients))
    slots = (positions + clients.start) // draw.clients_per_slot
    slots += source.below(draw.window, len(clients))
    slots -= draw.window - 1
    served = np.flatnonzero((slots >= 0) & (slots < block.steps))
    return grouped(block.first_step, block.steps, slots[served], numbered(clients, served))


def among_available(
    draw: OneOfOwn, clients: range, block: Block, source: Source, first_step: int
) -> Schedule:
    """Each client draws the rank of her step among *her own* ones in the block."""
    begin = block.first_step - first_step
    window = slice(begin, begin + block.steps)
    free = draw.available[clients.start : clients.stop, window]
    free_slots = np.nonzero(free)[1]
    ends = np.cumsum(np.count_nonzero(free, axis=1))
    sizes = np.diff(ends, prepend=0)
    # Only who could come tosses a coin: a device without a free step draws nothing.
    able = np.flatnonzero(sizes)
    came = able[who_came(len(able), draw.probability, source)]
    ranks = source.below_each(sizes[came])
    slots = free_slots[ends[came] - sizes[came] + ranks]
    return grouped(block.first_step, block.steps, slots, numbered(clients, came))


def _one_step(block: Block, clients: range, came: NDArray[np.int64]) -> Schedule:
    """The schedule of a block of one step."""
    offsets = np.array([0, len(came)], dtype=np.int64)
    return Schedule(block.first_step, offsets, numbered(clients, came))
