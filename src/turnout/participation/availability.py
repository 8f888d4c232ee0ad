"""The sampler of windows cut from an availability trace."""

from __future__ import annotations

import numpy as np

from turnout.participation.schedule import Schedule, grouped, numbered
from turnout.participation.subsets import who_came
from turnout.participation.windows import Block
from turnout.randomness import Source
from turnout.spec.draws import OneOfOwn


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
