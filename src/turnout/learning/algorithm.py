"""Federated algorithms: the updates that clients send, and the server's step after a release.

`Algorithm` is the interface. `FedSGD` is federated SGD: each client sends the update of its local
training, and a server optimizer descends along the mean update. `RecordSGD` is federated SGD in
which each client draws single records in each step and sends their updates.

An algorithm has a client part and a server part. The client part computes an update from the
received vector, the client's data and the client's state, if there is one. The server part computes
the next server state from a release. The engine between the parts clips and sums the updates, adds
the noise, and keeps the clients' states apart from the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning.optimizers import Optimizer, prefixed, unprefixed
from turnout.learning.tasks import SupervisedTask

ServerState = Mapping[str, NDArray[Any]]
"""State that the server keeps from step to step, as named arrays. The state is postprocessing of
releases, so it may be published."""

ClientState = Mapping[str, NDArray[Any]]
"""State that one client keeps between its steps, as named arrays."""

ClientStates = Mapping[int, ClientState]
"""States of the clients that have participated so far, by client number."""

ClientStore = MutableMapping[int, ClientState]
"""Storage of the clients' states during a run, by client number, such as a ``dict`` in memory."""


class Algorithm(Protocol):
    """Interface of federated algorithms: the clients' updates and the server's steps.

    The result of each method depends only on its arguments and on the settings and data of the
    algorithm, and no method changes any of these. ``client_update`` and ``init_client`` read the
    data of one client only; ``evaluate`` may read all data. The other methods must read no client
    data, since no noise would cover it. `turnout.testing.assert_algorithm` tests these rules.

    A run with checkpoints needs an algorithm whose computation and data can be identified: a
    dataclass of plain values and arrays, or a `turnout.core.identity.Resumable`.
    """

    @property
    def clip_norm(self) -> float:
        """ℓ2 bound C of one client's update, the same for the whole run.

        The engine clips every update to this bound and scales the noise by it.
        """
        ...

    @property
    def dimension(self) -> int:
        """Number of coordinates of an update."""
        ...

    @property
    def population(self) -> int:
        """Number of clients; clients are numbered from 0."""
        ...

    def init(self, generator: np.random.Generator) -> ServerState:
        """Server state before the first step."""
        ...

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """Vector that the server sends to each client of a step, of any length."""
        ...

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """Model that is evaluated and released, as one vector, shape (parameters,)."""
        ...

    def init_client(self, client: int) -> ClientState | None:
        """Initial state of a client; None if the algorithm keeps no client states.

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
        """Unclipped update of a client, shape ``(dimension,)``, and the client's new state.

        Args:
            sent: vector that method `sent` returned.
            client_state: state of the client; None if the algorithm keeps no client states.
            client: number of the client.
            generator: source of the client's randomness in this step.
        """
        ...

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """New server state after a release.

        Args:
            state: server state before the release.
            direction: released estimate of the mean update, shape ``(dimension,)``.
            move: number of earlier updates of the model, skipped updates included.
        """
        ...

    def evaluate(
        self, state: ServerState, clients: ClientStates | None = None
    ) -> Mapping[str, float]:
        """Metrics of the model, by name; every call must return the same names.

        The metrics are for simulations only: they are computed from clients' states and data, and
        ε does not cover them.
        """
        ...


@runtime_checkable
class Batched(Protocol):
    """Algorithm without client states that computes the clipped sum of many clients at once."""

    def clipped_sum(self, sent: NDArray[np.floating], clients: NDArray[np.integer]) -> UpdateSum:
        """Sum of the updates of the given clients, each update clipped to ``clip_norm``.

        The engine checks the norm of every sum and, once between two evaluations, the updates of
        up to eight single clients.

        Args:
            sent: vector that the server sends.
            clients: numbers of the clients, shape (c,).
        """
        ...


@runtime_checkable
class Separate(Protocol):
    """Algorithm without client states that computes many clients' updates as separate rows.

    A run in which each client randomizes its own update needs these rows, not their sum.
    """

    def updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """Results of the callback ``use``, applied to groups of the clients' unclipped updates.

        ``use`` is called for each group, in one of several threads, with the number of clients in
        the earlier groups and the group's updates, shape (clients in the group, dimension). The
        results are in the order of the groups, which is the same in every call. Clients without
        examples are in no group.
        """
        ...


@runtime_checkable
class OfRecords(Protocol):
    """Algorithm whose clients send updates of single records, drawn by each client."""

    def require_records(self, count: int) -> None:
        """Raise a ParameterError if a client holds fewer than ``count`` records."""
        ...

    def record_updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        count: int,
        generator: np.random.Generator,
        use: Callable[[int, int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """Results of the callback ``use`` on the updates of ``count`` drawn records per client.

        ``use`` is called with j (from 0, for the j-th drawn record of each client), the number of
        clients in the earlier groups, and a group's updates, shape (clients in the group,
        dimension).
        """
        ...


@runtime_checkable
class Grouped(Protocol):
    """Algorithm with client states that computes the updates of many clients in one call.

    The updates of such an algorithm use no random numbers, so the method has no generator.
    """

    def client_updates(
        self,
        sent: NDArray[np.floating],
        states: Sequence[ClientState],
        clients: NDArray[np.int64],
    ) -> tuple[NDArray[np.floating], Sequence[ClientState]]:
        """Unclipped updates, shape (clients, dimension), and the clients' new states, in order.

        The update and the new state of a client depend only on the sent vector and on that
        client's state and data.
        """
        ...


SMALLEST_CLIP, LARGEST_CLIP = 1e-6, 1e6
_PARAMETERS, _OPTIMIZER = "parameters", "optimizer."


class Task(Protocol):
    """Interface of a learning task for `FedSGD`: a model and the clients' data.

    Guarantee: each client's term of `clipped_sum` has ℓ2 norm at most ``clip_norm`` and depends
    only on the parameters and on that client's data.

    A run with checkpoints needs a task that is also `turnout.core.identity.Resumable`: its
    ``resume_parts`` returns all settings and data that the methods below depend on.
    """

    @property
    def dimension(self) -> int:
        """Number of parameters, d."""
        ...

    @property
    def population(self) -> int:
        """Number of clients; clients are numbered from 0."""
        ...

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Initial model parameters, shape (parameters,)."""
        ...

    def clipped_sum(
        self, parameters: NDArray[np.floating], clients: NDArray[np.integer], clip_norm: float
    ) -> UpdateSum:
        """Sum of the clipped updates of the given clients.

        Args:
            parameters: model parameters, shape (d,).
            clients: numbers of the clients, shape (c,).
            clip_norm: largest ℓ2 norm of a client's term.
        """
        ...

    def evaluate(self, parameters: NDArray[np.floating]) -> Mapping[str, float]:
        """Metrics of the given parameters, shape (d,), by name."""
        ...


@runtime_checkable
class SeparateTask(Protocol):
    """Task that also returns unclipped updates, for clients that randomize their own updates."""

    def updates(
        self,
        parameters: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """Results of the callback ``use``, applied to groups of the clients' unclipped updates.

        `Separate.updates` describes the groups; ``parameters`` has the shape (d,).
        """
        ...


@dataclass(frozen=True)
class FedSGD:
    """Federated SGD: the server's optimizer descends along the mean of the clients' updates.

    Attributes:
        task: model and clients' data.
        optimizer: server optimizer.
        clip_norm: clip norm of an update, from 1e-6 to 1e6, so that clip factors stay in float32's
            normal range.

    Raises:
        ParameterError: a clip norm outside this range.
    """

    task: Task
    optimizer: Optimizer
    clip_norm: float

    def __post_init__(self) -> None:
        checks.positive(clip_norm=self.clip_norm)
        if not SMALLEST_CLIP <= self.clip_norm <= LARGEST_CLIP:
            expected = f"a number from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}"
            raise ParameterError("clip_norm", self.clip_norm, expected)

    @property
    def dimension(self) -> int:
        """Number of parameters, d."""
        return self.task.dimension

    @property
    def population(self) -> int:
        """Number of clients; clients are numbered from 0."""
        return self.task.population

    def init(self, generator: np.random.Generator) -> ServerState:
        """Initial server state: the initial parameters and the state of the optimizer."""
        parameters = self.task.initial_parameters(generator)
        return _joined(parameters, self.optimizer.init(parameters))

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """Current parameters, shape (parameters,), which the server sends to the clients."""
        return state[_PARAMETERS]

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """Released parameters, (parameters,): the last iterate or an average of the iterates."""
        return self.optimizer.released(state[_PARAMETERS], unprefixed(_OPTIMIZER, state))

    def init_client(self, client: int) -> None:
        """None, since clients of federated SGD keep no state."""

    def client_update(
        self,
        sent: NDArray[np.floating],
        client_state: ClientState | None,
        client: int,
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.floating], None]:
        """Update of one client, shape (d,), already clipped, and None as the client's state."""
        return self.clipped_sum(sent, np.array([client])).total, None

    def clipped_sum(self, sent: NDArray[np.floating], clients: NDArray[np.integer]) -> UpdateSum:
        """Sum of the clipped updates of the given clients."""
        return self.task.clipped_sum(sent, clients, self.clip_norm)

    def updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """Results of the callback ``use``, applied to groups of the clients' unclipped updates.

        Raises:
            UnsupportedError: a task that returns only sums of updates.
        """
        if not isinstance(self.task, SeparateTask):
            kind = type(self.task).__name__
            raise UnsupportedError(
                f"{kind} returns only sums of updates: use a task with a method updates"
            )
        return self.task.updates(sent, clients, use)

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """Server state after one step of the optimizer."""
        parameters = state[_PARAMETERS]
        # Rounding a release is postprocessing, which costs no privacy.
        rounded = direction.astype(parameters.dtype)
        own = unprefixed(_OPTIMIZER, state)
        return _joined(*self.optimizer.update(parameters, own, rounded, move))

    def evaluate(
        self, state: ServerState, clients: ClientStates | None = None
    ) -> Mapping[str, float]:
        """Metrics of the released parameters, by name."""
        return self.task.evaluate(self.model(state))


def _joined(parameters: NDArray[np.floating], own: ServerState) -> ServerState:
    """Server state that contains the current parameters and the optimizer's state."""
    return {_PARAMETERS: parameters, **prefixed(_OPTIMIZER, own)}


@dataclass(frozen=True)
class RecordSGD(FedSGD):
    """Federated SGD whose clients send updates of single records.

    In each step a client draws a fixed number of its records uniformly without replacement.

    Source: Girgis 2023 (thesis), Algorithm 4.3.1 (CLDP-SGD).
    """

    task: SupervisedTask

    @cached_property
    def _by_record(self) -> SupervisedTask:
        """Task in which each record is a client."""
        return self.task.by_record()

    def require_records(self, count: int) -> None:
        """Raise an error if a client holds fewer than ``count`` records.

        Raises:
            ParameterError: a client holds fewer records.
        """
        fewest = int(self.task.holdings.sizes.min())
        if fewest < count:
            expected = f"at most {fewest}, the smallest number of records of a client"
            raise ParameterError("randomizer.messages", count, expected)

    def record_updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        count: int,
        generator: np.random.Generator,
        use: Callable[[int, int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """Results of the callback ``use`` on the updates of ``count`` drawn records per client.

        Args:
            sent: parameters, shape (d,).
            clients: numbers of the participating clients, each with at least ``count`` records.
            count: number s of records that each client draws.
            generator: source of the draws.
            use: function of j (from 0 to s − 1, for the j-th drawn record of each client), the
                number of clients in the earlier groups, and a group's updates, shape (clients in
                the group, dimension).

        Raises:
            ParameterError: a client holds fewer than ``count`` records.
        """
        drawn = self.task.holdings.sampled(np.asarray(clients, np.int64), count, generator)
        for j, records in enumerate(drawn.T):

            def used(first: int, rows: NDArray[np.floating], j: int = j) -> Any:
                return use(j, first, rows)

            yield from self._by_record.updates(sent, records, used)
