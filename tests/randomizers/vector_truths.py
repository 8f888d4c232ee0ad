"""What small randomizers of vectors must be, by going through every message they can send."""

from __future__ import annotations

import itertools

import numpy as np

from turnout.testing import enumerate_outputs


def all_messages(randomizer) -> np.ndarray:
    """Every message, in the order of its law."""
    return np.array(list(itertools.product(*[range(radix) for radix in randomizer.radices])))


def vectors_of_messages(randomizer) -> np.ndarray:
    """What each message alone is taken for by the server."""
    return np.array(
        [randomizer.mean(randomizer.total(row[None]), 1) for row in all_messages(randomizer)]
    )


def sampled_law(randomizer, value) -> np.ndarray:
    """The exact law of what `encode` does with one client's vector, as fractions."""
    vectors = np.atleast_2d(value)
    law = enumerate_outputs(lambda source: tuple(randomizer.encode(vectors, source)[0]))
    return np.array([law.get(tuple(row), 0) for row in all_messages(randomizer).tolist()])


def largest_loss(laws) -> float:
    """ln of the largest ratio of a message's probabilities under two of the laws."""
    stacked = np.array(laws, dtype=np.float64)
    return float(np.log(stacked.max(axis=0) / stacked.min(axis=0)).max())
