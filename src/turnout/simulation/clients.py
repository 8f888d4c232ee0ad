"""Clients of a simulated run: their updates or messages, and their states.

`Clients` computes and clips the clients' updates. `MessagingClients` also randomizes each update,
for local and shuffled trust.
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
"""Number of clients with states that are computed in one call."""
ASKED_ALONE = 8
"""Largest number of clients whose updates are checked one by one between two evaluations."""

_REMEMBERED = DrawTable(
    "the privacy of clients that remember earlier steps",
    dict.fromkeys((Always, Bernoulli, Kept, OneOf, OneOfOwn, Staggered), True),
)
"""Draws under which a client's state costs no privacy: docs/design/learning.md has the proof."""

_NO_BATCHES = "an algorithm without clipped_sum, since its clients have states"

_Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def _layout(state: ClientState) -> _Layout:
    """Names, shapes and types of the arrays of a client's state."""
    return {name: (np.shape(array), np.asarray(array).dtype) for name, array in state.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """All clients of a run with central trust, whose clipped updates are summed.

    Attributes:
        algorithm: algorithm that computes the clients' updates.
        bound: clipping to C, the algorithm's clip norm when the run was built.
        streams: random streams of the simulation.
        layout: names, shapes and types of a client's state; None if clients have no states.
    """

    algorithm: Algorithm
    bound: Clipping
    streams: SimulationStreams
    layout: _Layout | None

    @classmethod
    def of(cls, algorithm: Algorithm, scheme: Scheme, streams: SimulationStreams) -> Clients:
        """Clients that compute an algorithm under a scheme.

        Raises:
            ParameterError: the algorithm has no clip norm above 0, or is `Batched` although its
                clients have states.
            UnsupportedError: no analysis of the scheme is known for clients with states.
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
        """Sum of some clients' clipped updates in a step, and their states after the step.

        Args:
            sent: vector that the server sends.
            ids: numbers of the clients, shape (c,).
            step: number of the step, which selects the random streams.
            states: states of the clients that have participated.

        Raises:
            LocalProtocolError: an update has a wrong dimension, a state has another layout than the
                initial state of client 0, or the clip norm changed during the run.
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
        """Iterator over clients: unclipped update, number of the client, and new state."""
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
        """Read-only copy of a client's state, after a check of its layout."""
        if (None if state is None else _layout(state)) != self.layout:
            raise LocalProtocolError(
                f"client {client}'s state has other names, shapes or types of arrays than the "
                "initial state of client 0: keep them the same for all clients and steps"
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
                f"the algorithm's clip norm is {self.algorithm.clip_norm}, but the noise of the "
                f"run is scaled by {self.bound.clip_norm}: keep the clip norm during a run"
            )
        return algorithm.clipped_sum(sent, ids)

    def require_clipped(self, sent: NDArray[np.floating], ids: NDArray[np.int64]) -> None:
        """Raise an error if a `Batched` algorithm returns an unclipped update of a single client.

        The updates of up to eight clients are computed one by one. The norm of a sum of n updates
        cannot replace this check: updates of norm 2C, with C the clip norm, may have a sum of norm
        below n·C. The arguments are those of `updates`.

        Raises:
            LocalProtocolError: an update has an ℓ2 norm above the clip norm, or is not finite.
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
    """Update clipped to the clip norm, float64, (d,); zero if a coordinate is not finite.

    A client whose update is not finite is still counted, so that the count does not reveal this.

    Raises:
        LocalProtocolError: the update is not a vector of the bound's dimension.
    """
    vector = np.asarray(update, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.square(vector).sum()))
    return bound.constrained(vector if finite else np.zeros_like(vector)).total


_NUMBERS_KEPT = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class MessagingClients:
    """All clients of a run with local or shuffled trust, each of which randomizes its own updates.

    Guarantee: a client's message depends only on the sent vector and the client's own records and
    random numbers, and no two messages share random numbers.

    Attributes:
        algorithm: algorithm that computes the clients' updates.
        randomizer: randomizer of one message.
        messages: number of messages of a client in each step.
        bound: clipping to the algorithm's clip norm, which equals the radius of the randomizer.
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
        """Clients that compute an algorithm under a scheme and randomize their updates.

        Raises:
            ParameterError: the randomizer does not fit the scheme, or the algorithm's dimension or
                clip norm; the algorithm does not return single updates; or a client has fewer
                records than messages.
            UnsupportedError: no analysis is known for clients with states, for the scheme's release
                rule, or for the randomizer's public randomness.
        """
        # The randomizer must fit the scheme and the algorithm's updates.
        require_messages(scheme, randomizer)
        for name, ours in (("dimension", algorithm.dimension), ("radius", algorithm.clip_norm)):
            if getattr(randomizer, name) != ours:
                expected = f"{ours}, the {name} of the algorithm's updates"
                raise ParameterError(f"messages.{name}", getattr(randomizer, name), expected)
        # The algorithm must return each client's update and keep no client states.
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
        """Sum encoded by the messages of some clients in a step, and an empty dict of states.

        Clients without data encode the zero vector, so that the number of messages does not reveal
        that they have no data. The arguments are those of `Clients.updates`.
        """
        # Messages of clients with data, then those of the remaining clients.
        kept = _Kept(Randomized(self.randomizer, 1.0, self.messages))
        for part in self._parts(sent, ids, step):
            kept.add(part)
        idle = ids.size - kept.count // self.messages
        if idle:
            nothing = np.zeros((idle, self.algorithm.dimension), dtype=np.float32)
            kept.add(self._encoded(step, ids.size - idle, nothing))
        return kept.total(), {}

    def _parts(
        self, sent: NDArray[np.floating], ids: NDArray[np.int64], step: int
    ) -> Iterator[NDArray[Any]]:
        """Messages of the clients that have data, block by block."""
        if isinstance(self.algorithm, OfRecords):

            def of_records(j: int, first: int, rows: NDArray[np.floating]) -> NDArray[Any]:
                return self._message(step, first, j, rows)

            drawing = self.streams.generator("records", step)
            yield from self.algorithm.record_updates(sent, ids, self.messages, drawing, of_records)
            return
        assert isinstance(self.algorithm, Separate)
        yield from self.algorithm.updates(sent, ids, partial(self._encoded, step))

    def _encoded(self, step: int, first: int, rows: NDArray[np.floating]) -> NDArray[Any]:
        """All messages of a block of clients whose updates are ``rows``."""
        each = [self._message(step, first, j, rows) for j in range(self.messages)]
        return each[0] if len(each) == 1 else np.concatenate(each)

    def _message(
        self, step: int, first: int, number: int, rows: NDArray[np.floating]
    ) -> NDArray[Any]:
        """Message number ``number`` of each client of a block."""
        name = ("message", step, first) + ((number,) if number else ())
        return self.randomizer.encode_updates(rows, self.streams.source(*name))

    def require_clipped(self, sent: NDArray[np.floating], ids: NDArray[np.int64]) -> None:
        """Do nothing, since each update is clipped before it is encoded."""


class _Kept:
    """Buffer of messages; decoding them in large groups is faster."""

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
        """Sum that all added messages encode."""
        if not self._parts:
            return self._total
        return self._total + self._mechanism.summed(np.concatenate(self._parts))
