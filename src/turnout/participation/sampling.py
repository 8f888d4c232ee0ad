"""Samplers of draws in which all clients have the same steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import UnsupportedError
from turnout.participation.schedule import Schedule, grouped, numbered
from turnout.participation.subsets import subset_each, who_came
from turnout.participation.windows import Block
from turnout.randomness import Source
from turnout.spec.draws import Always, Bernoulli, Cohort, Kept, KOf, OneOf


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


def _one_step(block: Block, clients: range, came: NDArray[np.int64]) -> Schedule:
    """The schedule of a block of one step."""
    offsets = np.array([0, len(came)], dtype=np.int64)
    return Schedule(block.first_step, offsets, numbered(clients, came))
