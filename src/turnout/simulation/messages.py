"""The clients' half of a run under local or shuffled trust: messages of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning.algorithm import Separate
from turnout.protocol.clipping import Clipping
from turnout.protocol.mechanisms.randomized import Randomized, require_messages
from turnout.randomizers.vectors import VectorRandomizer
from turnout.randomness import SimulationStreams
from turnout.spec import Scheme

if TYPE_CHECKING:
    from turnout.learning.algorithm import Algorithm, ClientStates

_NUMBERS_KEPT = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class MessagingClients:
    """All clients of a run, each of which sends a message of its own randomizer.

    Guarantee: a client's message is made of its own update and its own randomness alone.

    Attributes:
        bound: has the radius, as the clip norm.
    """

    algorithm: Algorithm
    randomizer: VectorRandomizer
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
        bound = Clipping(algorithm.dimension, algorithm.clip_norm)
        return cls(algorithm, randomizer, bound, streams)

    def updates(
        self, sent: NDArray[np.floating], ids: NDArray[np.int64], step: int, states: ClientStates
    ) -> tuple[UpdateSum, ClientStates]:
        """The sum that these clients' messages of a step stand for."""
        assert isinstance(self.algorithm, Separate)
        mechanism = Randomized(self.randomizer, 1.0)

        def encoded(first: int, rows: NDArray[np.floating]) -> NDArray[Any]:
            source = self.streams.source("message", step, first)
            return self.randomizer.encode_updates(rows, source)

        kept = _Kept(mechanism)
        for part in self.algorithm.updates(sent, ids, encoded):
            kept.add(part)
        idle = ids.size - kept.count
        if idle:  # who holds nothing sends a message as well, or its absence would tell
            nothing = np.zeros((idle, self.algorithm.dimension), dtype=np.float32)
            kept.add(encoded(ids.size - idle, nothing))
        return kept.total(), {}

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
