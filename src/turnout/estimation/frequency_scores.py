"""Evidence of a tally about every item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.estimation.frequency_tallies import FrequencyTally


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence of a tally about every item, ready for limits and tests.

    Attributes:
        clients: n.
        sums: sum of scores, int64 of shape (k,).
        squares: sum of squared scores, int64 of shape (k,).
        gain: by how much holding an item raises its mean score.
        counts: messages that support each item, where every message either does or does not;
            None where a message may say nothing about an item.
        other: probability that a message supports an item that its client does not hold.
        lift: by how much holding the item raises that probability.
    """

    clients: int
    sums: NDArray[np.int64]
    squares: NDArray[np.int64]
    gain: float
    counts: NDArray[np.int64] | None
    other: float
    lift: float

    @property
    def items(self) -> int:
        """Items, k."""
        return self.sums.size


def evidence(tally: FrequencyTally) -> Evidence:
    """The evidence of the messages about every item."""
    randomizer, n = tally.randomizer, tally.clients
    sums, gain, offset = randomizer.scores(tally.counts), randomizer.gain, randomizer.offset
    if randomizer.score_values is None:
        squares = randomizer.squares(tally.counts)
        return Evidence(n, sums, squares, float(gain), None, 0.0, 0.0)
    low, high = randomizer.score_values
    width = high - low
    counts = (sums - low * n) // width
    squares = low**2 * (n - counts) + high**2 * counts
    other, lift = float((offset - low) / width), float(gain / width)
    return Evidence(n, sums, squares, float(gain), counts, other, lift)
