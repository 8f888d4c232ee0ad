"""The clients' half of a run under local or shuffled trust: messages of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning.algorithm import OfRecords, Separate
from turnout.protocol.mechanisms import Clipping
from turnout.protocol.randomized import Randomized, require_messages
from turnout.randomizers.vectors import VectorRandomizer
from turnout.randomness import SimulationStreams
from turnout.schemes import RepeatedMessages, Scheme

if TYPE_CHECKING:
    from turnout.learning.algorithm import Algorithm, ClientStates

_NUMBERS_KEPT = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class MessagingClients:
    """All clients of a run, each of which sends messages of its own randomizer.

    Guarantee: a client's message is made of its own records and its own randomness alone, and no
    two messages of the same draws.

    Attributes:
        randomizer: of one message.
        messages: of a client in each step.
        bound: has the radius, as the clip norm.
    """

    algorithm: Algorithm
    randomizer: VectorRandomizer
    messages: int
    bound: Clipping
    streams: SimulationStreams

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        scheme: Scheme,
        randomizer: VectorRandomizer,
        streams: SimulationStreams,
    ) -> MessagingClients:
        """The clients of a scheme.

        Raises:
            ParameterError: a randomizer of another law, dimension or radius.
            UnsupportedError: clients with states, or an algorithm that gives sums alone.
        """
        require_messages(scheme, randomizer)
        for name, ours in (("dimension", algorithm.dimension), ("radius", algorithm.clip_norm)):
            if getattr(randomizer, name) != ours:
                expected = f"{ours}, as of the algorithm's updates"
                raise ParameterError(f"messages.{name}", getattr(randomizer, name), expected)
        if algorithm.init_client(0) is not None:
            raise UnsupportedError("messages of clients with states have no analysis here")
        if not isinstance(algorithm, Separate):
            expected = "one with the method updates, which gives each client's"
            raise ParameterError("algorithm", type(algorithm).__name__, expected)
        law, bound = scheme.randomizer, Clipping(algorithm.dimension, algorithm.clip_norm)
        messages = law.messages if isinstance(law, RepeatedMessages) else 1
        if isinstance(algorithm, OfRecords):
            algorithm.require_records(messages)
        return cls(algorithm, randomizer, messages, bound, streams)

    def updates(
        self, sent: NDArray[np.floating], ids: NDArray[np.int64], step: int, states: ClientStates
    ) -> tuple[UpdateSum, ClientStates]:
        """The sum that these clients' messages of a step stand for."""
        kept = _Kept(Randomized(self.randomizer, 1.0, self.messages))
        for part in self._parts(sent, ids, step):
            kept.add(part)
        idle = ids.size - kept.count // self.messages
        if idle:  # who holds nothing sends messages as well, or their absence would tell
            nothing = np.zeros((idle, self.algorithm.dimension), dtype=np.float32)
            kept.add(self._encoded(step, ids.size - idle, nothing))
        return kept.total(), {}

    def _parts(
        self, sent: NDArray[np.floating], ids: NDArray[np.int64], step: int
    ) -> Iterator[NDArray[Any]]:
        """All messages of the clients that hold something, some at a time."""
        if isinstance(self.algorithm, OfRecords):

            def of_records(j: int, first: int, rows: NDArray[np.floating]) -> NDArray[Any]:
                return self._message(step, first, j, rows)

            drawing = self.streams.generator("records", step)
            yield from self.algorithm.record_updates(sent, ids, self.messages, drawing, of_records)
            return
        assert isinstance(self.algorithm, Separate)
        yield from self.algorithm.updates(sent, ids, partial(self._encoded, step))

    def _encoded(self, step: int, first: int, rows: NDArray[np.floating]) -> NDArray[Any]:
        """All messages of a block of clients."""
        each = [self._message(step, first, j, rows) for j in range(self.messages)]
        return each[0] if len(each) == 1 else np.concatenate(each)

    def _message(
        self, step: int, first: int, number: int, rows: NDArray[np.floating]
    ) -> NDArray[Any]:
        """One message of each client of a block."""
        name = ("message", step, first) + ((number,) if number else ())
        return self.randomizer.encode_updates(rows, self.streams.source(*name))

    def require_clipped(self, sent: NDArray[np.floating], ids: NDArray[np.int64]) -> None:
        """Nothing: each update is constrained here."""


class _Kept:
    """Messages that are summed many at a time, which short ones gain by."""

    def __init__(self, mechanism: Randomized) -> None:
        self.count = self._numbers = 0
        self._mechanism, self._total = mechanism, mechanism.zero()
        self._parts: list[NDArray[Any]] = []

    def add(self, messages: NDArray[Any]) -> None:
        """Keeps messages, or sums all that are kept."""
        self.count += len(messages)
        self._numbers += messages.size
        self._parts.append(messages)
        if self._numbers > _NUMBERS_KEPT:
            self._total, self._parts, self._numbers = self.total(), [], 0

    def total(self) -> UpdateSum:
        """The sum that all messages stand for."""
        if not self._parts:
            return self._total
        return self._total + self._mechanism.summed(np.concatenate(self._parts))
