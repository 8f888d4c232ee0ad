"""The sampler of sliding windows: a window of her own for every client."""

from __future__ import annotations

import numpy as np

from turnout.participation.schedule import Schedule, grouped, numbered
from turnout.participation.windows import Block
from turnout.randomness import Source
from turnout.spec.draws import Staggered


def sliding(
    draw: Staggered, clients: range, block: Block, source: Source, first_step: int
) -> Schedule:
    """Check-in paper §4.2. Step 0 is slot ``window − 1``: those before it are the warm-up."""
    positions = np.arange(len(clients))
    slots = (positions + clients.start) // draw.clients_per_slot
    slots += source.below(draw.window, len(clients))
    slots -= draw.window - 1
    served = np.flatnonzero((slots >= 0) & (slots < block.steps))
    return grouped(block.first_step, block.steps, slots[served], numbered(clients, served))
