"""Algorithms: what is learned, from whom, and what a release does to it.

An algorithm has two halves. The client's makes an update of what it was sent, of its own data and,
where there is any, of its own state; the server's makes the next state of a release. Between them
stands the engine, which trusts neither: it clips, sums, adds the noise and keeps the clients'
states apart from the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum

ServerState = Mapping[str, NDArray[Any]]
"""The state that the server keeps from step to step, as named arrays. All of it is postprocessing
of releases, so all of it may be shown."""

ClientState = Mapping[str, NDArray[Any]]
"""The state that one client keeps between its steps, as named arrays."""

ClientStates = Mapping[int, ClientState]
"""The states of the clients that took part so far, by client."""

ClientStore = MutableMapping[int, ClientState]
"""Keeps the clients' states during a run; a ``dict`` keeps them in memory."""


class Algorithm(Protocol):
    """A federated algorithm.

    Every method is a function of its arguments and of the settings and data that the algorithm was
    built with, and changes none of them. Of the clients' data ``client_update`` and
    ``init_client`` read that one client's and ``evaluate`` reads any; the others read none, or the
    model would tell what no noise covers. `turnout.testing.assert_algorithm` tests it.

    A run with checkpoints needs an algorithm that says what it computes, and on which data: a
    dataclass of plain values and arrays, or a `turnout.core.identity.Resumable`.
    """

    @property
    def clip_norm(self) -> float:
        """C, the ℓ2 bound of one client's update, the same for the whole run.

        It is said here alone: the engine clips by it and scales the noise by it.
        """
        ...

    @property
    def dimension(self) -> int:
        """Coordinates of an update."""
        ...

    @property
    def population(self) -> int:
        """Clients, numbered from 0."""
        ...

    def init(self, generator: np.random.Generator) -> ServerState:
        """The server's state before the first step."""
        ...

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """The vector that each client of a step is sent; of any length."""
        ...

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """The model that is evaluated and handed out, as one vector."""
        ...

    def init_client(self, client: int) -> ClientState | None:
        """A client's state before it first takes part; None for all where clients have none.

        The names, shapes and types of its arrays are the same for all clients and all steps.
        """
        ...

    def client_update(
        self,
        sent: NDArray[np.floating],
        client_state: ClientState | None,
        client: int,
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.floating], ClientState | None]:
        """A client's update, not clipped, and its state after it.

        ``sent`` is what `sent` made of the server's state, ``generator`` the client's randomness
        in this step.
        """
        ...

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """The state after a release.

        ``direction`` is the released estimate of the mean update, shape ``(dimension,)``; ``move``
        counts the releases that moved the model before, skipped ones included.
        """
        ...

    def evaluate(
        self, state: ServerState, clients: ClientStates | None = None
    ) -> Mapping[str, float]:
        """Metrics by name, the same names each time. For whoever runs a simulation: ε covers the
        models, but not what is said of the clients' own states and data.
        """
        ...


@runtime_checkable
class Batched(Protocol):
    """An algorithm, without client states, that computes many clients' updates at once."""

    def clipped_sum(self, sent: NDArray[np.floating], clients: NDArray[np.integer]) -> UpdateSum:
        """The sum of these clients' updates, each clipped to ``clip_norm``.

        The engine sees that no sum is too long, and looks at some clients alone before each
        evaluation.
        """
        ...


@runtime_checkable
class Separate(Protocol):
    """An algorithm, without client states, that gives many clients' updates one by one.

    Where clients randomize their own messages no sum of updates exists anywhere.
    """

    def updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """The results of ``use`` on these clients' updates, group by group.

        ``use`` gets the number of clients in the groups before and a group's updates, (c, d), in
        one of several threads; results come in the order of the groups, which is the same each
        time. Clients that hold nothing are in no group.
        """
        ...


@runtime_checkable
class OfRecords(Protocol):
    """An algorithm whose clients answer with updates of single records that they draw."""

    def require_records(self, count: int) -> None:
        """Refuses to draw more records of a client than it holds."""
        ...

    def record_updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        count: int,
        generator: np.random.Generator,
        use: Callable[[int, int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """The results of ``use`` on updates of ``count`` drawn records of each client.

        ``use`` gets the number of the record among the drawn ones of its client, the number of
        clients in the groups before and a group's updates, (c, d).
        """
        ...


@runtime_checkable
class Grouped(Protocol):
    """An algorithm whose clients have states, and no randomness, and are computed many at once."""

    def client_updates(
        self,
        sent: NDArray[np.floating],
        states: Sequence[ClientState],
        clients: NDArray[np.int64],
    ) -> tuple[NDArray[np.floating], Sequence[ClientState]]:
        """These clients' updates, not clipped, (c, d), and their states after them, in order.

        A row is a function of what was sent and of that client's own state and data.
        """
        ...
