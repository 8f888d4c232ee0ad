"""Tallies of the clients' messages: whole numbers that merge in any grouping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation.column_sums import column_sums
from turnout.randomizers.indexed import LARGEST_HISTOGRAM, IndexedRandomizer
from turnout.randomizers.interface import FrequencyRandomizer
from turnout.randomizers.subset import BitmapRandomizer
from turnout.randomness import Source

BLOCK_CLIENTS = 2**15
"""Clients whose messages `collect` holds at once: at k = 1000 they take 4 MiB at most."""


@dataclass(frozen=True, eq=False)
class FrequencyTally:
    """Counts of messages (or of their bits) and of clients: a commutative monoid.

    Attributes:
        counts: int64; by message where messages are codes, by item where they are bitmaps.
        clients: how many messages went into it.
    """

    randomizer: FrequencyRandomizer
    counts: NDArray[np.int64]
    clients: int

    def __post_init__(self) -> None:
        checks.count(0, clients=self.clients)

    @classmethod
    def zero(cls, randomizer: FrequencyRandomizer) -> FrequencyTally:
        """The tally of nobody's messages."""
        return cls(randomizer, np.zeros(_size(randomizer), dtype=np.int64), 0)

    @classmethod
    def of(cls, randomizer: FrequencyRandomizer, messages: NDArray) -> FrequencyTally:
        """The tally of messages as `FrequencyRandomizer.encode` or ``unpack`` gave them.

        Raises:
            ParameterError: these are no messages of this randomizer.
        """
        size = _size(randomizer)
        if isinstance(randomizer, BitmapRandomizer):
            if messages.ndim != 2 or messages.shape[1] != -(-size // 64):
                raise ParameterError("messages", messages.shape, f"bitmaps of {size} bits")
            return cls(randomizer, column_sums(messages, size), len(messages))
        if messages.ndim != 1 or (len(messages) and not _codes_below(messages, size)):
            raise ParameterError("messages", messages.shape, f"codes from 0 to {size - 1}")
        counts = np.bincount(messages, minlength=size).astype(np.int64, copy=False)
        return cls(randomizer, counts, len(messages))

    def __add__(self, other: FrequencyTally) -> FrequencyTally:
        """The tally of both groups, which must not share a client."""
        if self.randomizer != other.randomizer:
            raise ParameterError("randomizer", other.randomizer, f"{self.randomizer}, as before")
        return FrequencyTally(
            self.randomizer, self.counts + other.counts, self.clients + other.clients
        )


def collect(
    randomizer: FrequencyRandomizer,
    values: ArrayLike,
    source: Source,
    block_clients: int = BLOCK_CLIENTS,
) -> FrequencyTally:
    """The tally of one message for each value, made block by block.

    This plays both sides, for simulation: the messages of a block exist, are counted and go.

    Args:
        randomizer: what the clients use.
        values: the clients' items, shape (n,); a memory-mapped array is read block by block.
        source: where the clients' randomness comes from; public questions are drawn from it too.
        block_clients: how many messages exist at once.
    """
    checks.count(block_clients=block_clients)
    array = np.asanyarray(values)
    total = FrequencyTally.zero(randomizer)
    for start in range(0, len(array), block_clients):
        block = array[start : start + block_clients]
        if isinstance(randomizer, IndexedRandomizer) and randomizer.public:
            questions = randomizer.draw_questions(len(block), source)
            messages = randomizer.encode(block, source, questions)
        else:
            messages = randomizer.encode(block, source)
        total += FrequencyTally.of(randomizer, messages)
    return total


def _codes_below(messages: NDArray, size: int) -> bool:
    return messages.dtype.kind in "iu" and int(messages.min()) >= 0 and int(messages.max()) < size


def _size(randomizer: FrequencyRandomizer) -> int:
    if isinstance(randomizer, IndexedRandomizer):
        if randomizer.message_count > LARGEST_HISTOGRAM:
            raise UnsupportedError(
                f"{randomizer.message_count:,} different messages are too many to count: see "
                "turnout.estimation.prefix_search"
            )
        return randomizer.message_count
    if isinstance(randomizer, BitmapRandomizer):
        return randomizer.items
    raise UnsupportedError(f"no tally is known for {type(randomizer).__name__}")
