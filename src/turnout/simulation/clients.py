"""The clients' half of a simulated run: updates or messages, and states that stay with clients.

`Clients` computes updates and clips them here; `MessagingClients` also randomizes them, for local
and shuffled trust.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, ParameterError, UnsupportedError
from turnout.learning.algorithm import Batched, Grouped, OfRecords, Separate
from turnout.protocol.mechanisms import CLIPPING_SLACK, Clipping
from turnout.protocol.randomized import Randomized, require_messages
from turnout.randomness import SimulationStreams
from turnout.schemes import ReleaseRule, RepeatedMessages, Scheme
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    DrawTable,
    Kept,
    OneOf,
    OneOfOwn,
    Staggered,
)

if TYPE_CHECKING:
    from turnout.learning.algorithm import Algorithm, ClientState, ClientStates
    from turnout.randomizers.vectors import VectorRandomizer

AT_ONCE = 512
"""Clients with states that are computed in one call."""
ASKED_ALONE = 8
"""Clients at most whose updates are looked at one by one, between two evaluations."""

_REMEMBERED = DrawTable(
    "the privacy of clients that remember earlier steps",
    dict.fromkeys((Always, Bernoulli, Kept, OneOf, OneOfOwn, Staggered), True),
)
"""Draws under which a client's state costs no privacy: docs/design/learning.md has the proof."""

_NO_BATCHES = "without clipped_sum, since its clients have states"

_Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def _layout(state: ClientState) -> _Layout:
    """Names, shapes and types of the arrays of a client's state."""
    return {name: (np.shape(array), np.asarray(array).dtype) for name, array in state.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """All clients of a run, whose updates are summed.

    Attributes:
        bound: clips to C, as the algorithm said it when the run was built.
        layout: of a client's state; None where clients have none.
    """

    algorithm: Algorithm
    bound: Clipping
    streams: SimulationStreams
    layout: _Layout | None

    @classmethod
    def of(cls, algorithm: Algorithm, scheme: Scheme, streams: SimulationStreams) -> Clients:
        """Clients of a scheme.

        Raises:
            ParameterError: no clip norm, or updates in batches of clients that have states.
            UnsupportedError: clients have states, which no analysis of the scheme covers.
        """
        bound = Clipping(algorithm.dimension, getattr(algorithm, "clip_norm", math.nan))
        state = algorithm.init_client(0)
        if state is not None and isinstance(algorithm, Batched):
            raise ParameterError("algorithm", type(algorithm).__name__, _NO_BATCHES)
        if state is not None:
            _REMEMBERED.require(scheme.participation)
            if scheme.release is not ReleaseRule.AGGREGATED:
                raise UnsupportedError(
                    f"{_REMEMBERED.what} is not known for {scheme.release.value} releases"
                )
        layout = None if state is None else _layout(state)
        return cls(algorithm, bound, streams, layout)

    def updates(
        self, sent: NDArray[np.floating], ids: NDArray[np.int64], step: int, states: ClientStates
    ) -> tuple[UpdateSum, ClientStates]:
        """Sum of some clients' clipped updates in a step, and the clients' states after the
        step.
        """
        if isinstance(self.algorithm, Batched):
            return self._batched(self.algorithm, sent, ids), {}
        total, after = np.zeros(self.algorithm.dimension), {}
        for update, client, state in self._each(sent, ids, step, states):
            total += clipped(update, self.bound)
            checked = self._checked(state, client)
            if checked is not None:
                after[client] = checked
        return UpdateSum(total, ids.size), after

    def _each(
        self, sent: NDArray[np.floating], ids: NDArray[np.int64], step: int, states: ClientStates
    ) -> Iterator[tuple[NDArray[np.floating], int, ClientState | None]]:
        """Update of each client before clipping, with the client and its new state."""
        if self.layout is None or not isinstance(self.algorithm, Grouped):
            for client in ids.tolist():
                generator = self.streams.generator("client", client, step)
                state = self._before(client, states)
                update, after = self.algorithm.client_update(sent, state, client, generator)
                yield update, client, after
            return
        for start in range(0, ids.size, AT_ONCE):
            some = ids[start : start + AT_ONCE]
            before = [self._before(client, states) for client in some.tolist()]
            known = [state for state in before if state is not None]
            updates, after = self.algorithm.client_updates(sent, known, some)
            yield from zip(updates, some.tolist(), after, strict=True)

    def _before(self, client: int, states: ClientStates) -> ClientState | None:
        """State of a client: the stored one, or the initial state."""
        state = states.get(client)
        return self._checked(self.algorithm.init_client(client), client) if state is None else state

    def _checked(self, state: ClientState | None, client: int) -> ClientState | None:
        if (None if state is None else _layout(state)) != self.layout:
            raise LocalProtocolError(
                f"client {client}'s state has other names, shapes or types of arrays than client "
                "0's had at first"
            )
        if state is None:
            return None
        kept = {name: np.array(array) for name, array in state.items()}
        for array in kept.values():
            array.flags.writeable = False
        return kept

    def _batched(
        self, algorithm: Batched, sent: NDArray[np.floating], ids: NDArray[np.int64]
    ) -> UpdateSum:
        """Sum of clipped updates by the algorithm's own method, with the clip norm of this run."""
        if self.algorithm.clip_norm != self.bound.clip_norm:
            raise LocalProtocolError(
                f"the algorithm's clip norm is {self.algorithm.clip_norm}, but the run began with "
                f"{self.bound.clip_norm}, by which its noise is scaled"
            )
        return algorithm.clipped_sum(sent, ids)

    def require_clipped(self, sent: NDArray[np.floating], ids: NDArray[np.int64]) -> None:
        """Refuse an algorithm whose sums exceed the clip norm; some clients are checked one by one.

        The coordinator sees a sum, and updates of 2C that point apart have one below n·C.

        Raises:
            LocalProtocolError: an update is longer than C, or not finite.
        """
        if not isinstance(self.algorithm, Batched) or ids.size < 2:
            return
        for client in ids[:: -(-ids.size // ASKED_ALONE)]:
            alone = self._batched(self.algorithm, sent, np.array([client]))
            norm = float(np.sqrt(np.square(alone.total).sum()))
            if not norm <= self.bound.clip_norm * (1 + CLIPPING_SLACK):
                raise LocalProtocolError(
                    f"the algorithm has clip norm {self.bound.clip_norm:g}, but "
                    f"client {client}'s update has norm {norm:g}"
                )


def clipped(update: NDArray[np.floating], bound: Clipping) -> NDArray[np.float64]:
    """Update scaled to the clip norm; zero if a coordinate is not finite, so that no count shows
    it.

    Raises:
        LocalProtocolError: no vector of the bound's dimension.
    """
    vector = np.asarray(update, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.square(vector).sum()))
    return bound.constrained(vector if finite else np.zeros_like(vector)).total


_NUMBERS_KEPT = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class MessagingClients:
    """All clients of a run, each of which sends messages of its own randomizer.

    Guarantee: a client's message depends only on the client's own records and randomness, and
    different messages use different draws.

    Attributes:
        algorithm: algorithm that computes the clients' updates.
        randomizer: randomizer of one message.
        messages: number of messages of a client in each step.
        bound: clipping of an update, whose clip norm is the radius of the randomizer.
        streams: random streams of the simulation.
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
        """Clients of a scheme, each of which randomizes its own updates.

        Raises:
            ParameterError: the randomizer's distribution, dimension or radius does not fit.
            UnsupportedError: the clients have states, for which no analysis is known.
        """
        require_messages(scheme, randomizer)
        for name, ours in (("dimension", algorithm.dimension), ("radius", algorithm.clip_norm)):
            if getattr(randomizer, name) != ours:
                expected = f"{ours}, as of the algorithm's updates"
                raise ParameterError(f"messages.{name}", getattr(randomizer, name), expected)
        if algorithm.init_client(0) is not None:
            raise UnsupportedError("no analysis is known for messages of clients with states")
        if not isinstance(algorithm, Separate):
            expected = "an algorithm with the method updates, which returns each client's update"
            raise ParameterError("algorithm", type(algorithm).__name__, expected)
        # The scheme sets the number of messages of a client, the algorithm the clip norm.
        priced, bound = scheme.randomizer, Clipping(algorithm.dimension, algorithm.clip_norm)
        messages = priced.messages if isinstance(priced, RepeatedMessages) else 1
        if isinstance(algorithm, OfRecords):
            algorithm.require_records(messages)
        return cls(algorithm, randomizer, messages, bound, streams)

    def updates(
        self, sent: NDArray[np.floating], ids: NDArray[np.int64], step: int, states: ClientStates
    ) -> tuple[UpdateSum, ClientStates]:
        """Sum that the messages of these clients in a step encode."""
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
        """Blocks of messages of the clients that have data."""
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
        """Do nothing: each update is clipped before it is encoded."""


class _Kept:
    """Buffer of messages that are decoded many at a time, which is faster for short messages."""

    def __init__(self, mechanism: Randomized) -> None:
        self.count = self._numbers = 0
        self._mechanism, self._total = mechanism, mechanism.zero()
        self._parts: list[NDArray[Any]] = []

    def add(self, messages: NDArray[Any]) -> None:
        """Add messages to the buffer; decode and sum the buffer when it is full."""
        self.count += len(messages)
        self._numbers += messages.size
        self._parts.append(messages)
        if self._numbers > _NUMBERS_KEPT:
            self._total, self._parts, self._numbers = self.total(), [], 0

    def total(self) -> UpdateSum:
        """Sum that all messages encode."""
        if not self._parts:
            return self._total
        return self._total + self._mechanism.summed(np.concatenate(self._parts))
