"""Reference results for small randomizers of vectors, by enumeration of all messages."""

from __future__ import annotations

import itertools

import numpy as np

from turnout.testing import enumerate_outputs


def all_messages(randomizer) -> np.ndarray:
    """All messages, in the order of the array of their probabilities."""
    return np.array(list(itertools.product(*[range(radix) for radix in randomizer.radices])))


def vectors_of_messages(randomizer) -> np.ndarray:
    """Vectors that the server decodes from each single message."""
    return np.array(
        [randomizer.mean(randomizer.total(row[None]), 1) for row in all_messages(randomizer)]
    )


def sampled_distribution(randomizer, value) -> np.ndarray:
    """Exact distribution of the message that `encode` returns for one vector, from fractions."""
    vectors = np.atleast_2d(value)
    distribution = enumerate_outputs(lambda source: tuple(randomizer.encode(vectors, source)[0]))
    return np.array([distribution.get(tuple(row), 0) for row in all_messages(randomizer).tolist()])


def largest_loss(distributions) -> float:
    """Logarithm of the largest ratio of a message's probabilities under two distributions."""
    stacked = np.array(distributions, dtype=np.float64)
    return float(np.log(stacked.max(axis=0) / stacked.min(axis=0)).max())
