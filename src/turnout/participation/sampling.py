"""Samplers of the laws that are drawn step by step or window by window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import UnsupportedError
from turnout.participation.schedule import Schedule, grouped, numbered
from turnout.participation.subsets import subset_each, who_came
from turnout.participation.windows import Block
from turnout.randomness import Source
from turnout.spec import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    PoissonSampling,
    SelfSampling,
)


def every_step(law: EveryStep, clients: range, block: Block, source: Source) -> Schedule:
    """Everybody, without a draw."""
    return _one_step(block, clients, np.arange(len(clients)))


def coins(
    law: PoissonSampling | SelfSampling, clients: range, block: Block, source: Source
) -> Schedule:
    """A coin each. Whose hand tosses it, the server's or the client's, is not seen in the law."""
    return _one_step(block, clients, who_came(len(clients), law.rate, source))


def fixed_size(law: FixedSize, clients: range, block: Block, source: Source) -> Schedule:
    """A uniform subset, drawn by the server."""
    if len(clients) != law.population:
        raise UnsupportedError("under FixedSize no client can draw her own steps: sizes are fixed")
    return _one_step(block, clients, source.subset(law.population, law.size))


def check_in(law: CheckIn, clients: range, block: Block, source: Source) -> Schedule:
    """One coin, then one uniform step of the window."""
    came = who_came(len(clients), law.probability, source)
    slots = source.below(block.steps, len(came))
    return grouped(block.first_step, block.steps, slots, numbered(clients, came))


def fixed_assignment(
    law: FixedAssignment, clients: range, block: Block, source: Source
) -> Schedule:
    """One coin and one uniform slot, which she keeps in every epoch."""
    came = who_came(len(clients), law.probability, source)
    slots = source.below(law.window, len(came))
    steps = np.concatenate([slots + epoch * law.window for epoch in range(law.epochs)])
    who = np.tile(numbered(clients, came), law.epochs)
    return grouped(block.first_step, block.steps, steps, who)


def k_subset(law: KSubset, clients: range, block: Block, source: Source) -> Schedule:
    """A uniform subset of the window for each client."""
    slots = subset_each(len(clients), block.steps, law.picks, source)
    who = np.repeat(numbered(clients, np.arange(len(clients))), law.picks)
    return grouped(block.first_step, block.steps, slots.reshape(-1), who)


def _one_step(block: Block, clients: range, came: NDArray[np.int64]) -> Schedule:
    """The schedule of a block of one step."""
    offsets = np.array([0, len(came)], dtype=np.int64)
    return Schedule(block.first_step, offsets, numbered(clients, came))
