"""The sampler of sliding windows: a window of her own for every client."""

from __future__ import annotations

import numpy as np

from turnout.participation.schedule import Schedule, grouped, numbered
from turnout.participation.windows import Block
from turnout.randomness import Source
from turnout.spec import SlidingWindow


def sliding(law: SlidingWindow, clients: range, block: Block, source: Source) -> Schedule:
    """Check-in paper §4.2. Step 0 is slot ``window − 1``: those before it are the warm-up."""
    positions = np.arange(len(clients))
    slots = (positions + clients.start) // law.clients_per_slot
    slots += source.below(law.window, len(clients))
    slots -= law.window - 1
    served = np.flatnonzero((slots >= 0) & (slots < block.steps))
    return grouped(block.first_step, block.steps, slots[served], numbered(clients, served))
