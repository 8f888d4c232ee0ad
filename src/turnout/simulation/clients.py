"""The clients' half of a run: their updates, clipped here, and the states that stay with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, ParameterError, UnsupportedError
from turnout.learning.algorithm import Batched, Grouped
from turnout.protocol.mechanisms import CLIPPING_SLACK, Clipping
from turnout.randomness import SimulationStreams
from turnout.schemes import ReleaseRule, Scheme
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
    """Names, shapes and types of a client's arrays."""
    return {name: (np.shape(array), np.asarray(array).dtype) for name, array in state.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """All clients of a run.

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
        """The clients of a scheme.

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
        """The sum of some clients' clipped updates in a step, and their states after it."""
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
        """Each client's update as it is, the client and its state after it."""
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
        """A client's state as it is kept, or as it begins."""
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
        """The algorithm's own sum, by the clip norm of this run."""
        if self.algorithm.clip_norm != self.bound.clip_norm:
            raise LocalProtocolError(
                f"the algorithm's clip norm is {self.algorithm.clip_norm}, but the run began with "
                f"{self.bound.clip_norm}, by which its noise is scaled"
            )
        return algorithm.clipped_sum(sent, ids)

    def require_clipped(self, sent: NDArray[np.floating], ids: NDArray[np.int64]) -> None:
        """Refuses an algorithm that sums updates longer than it says; it is asked for some alone.

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
                    f"the algorithm says that it clips to norm {self.bound.clip_norm:g}, but "
                    f"client {client}'s update has norm {norm:g}"
                )


def clipped(update: NDArray[np.floating], bound: Clipping) -> NDArray[np.float64]:
    """The update, clipped; zero where it is not finite, which must not show in a count.

    Raises:
        LocalProtocolError: no vector of the bound's dimension.
    """
    vector = np.asarray(update, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.square(vector).sum()))
    return bound.constrained(vector if finite else np.zeros_like(vector)).total
