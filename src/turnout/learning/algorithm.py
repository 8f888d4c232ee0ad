"""Algorithms: what clients compute and send, and what the server makes of a release.

`Algorithm` is the interface, `FedSGD` federated SGD (clients send what lowers their own loss, an
optimizer follows the mean), `RecordSGD` descends along updates of single records that clients draw
in each step.

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
"""The state that the server keeps from step to step, as named arrays. All of it is postprocessing
of releases, so all of it may be shown."""

ClientState = Mapping[str, NDArray[Any]]
"""The state that one client keeps between its steps, as named arrays."""

ClientStates = Mapping[int, ClientState]
"""The states of the clients that took part so far, by client."""

ClientStore = MutableMapping[int, ClientState]
"""Keeps the clients' states during a run; a ``dict`` keeps them in memory."""


class Algorithm(Protocol):
    """Interface of federated algorithms: the clients' updates and the server's steps.

    Every method is a function of its arguments and of the settings and data that the algorithm was
    built with, and changes none of them. ``client_update`` and ``init_client`` read the data of one
    client only, and ``evaluate`` may read all data. The other methods must read no client data,
    since no noise would cover it. `turnout.testing.assert_algorithm` tests these rules.

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
        """Number of clients, numbered from 0."""
        ...

    def init(self, generator: np.random.Generator) -> ServerState:
        """Server state before the first step."""
        ...

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """Vector that the server sends to each client of a step, of any length."""
        ...

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """Model that is evaluated and released, as one vector."""
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
        """Unclipped update of a client, and the client's new state.

        ``sent`` is the vector that method `sent` returned; ``generator`` is the source of the
        client's randomness in this step.
        """
        ...

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """New server state after a release.

        ``direction`` is the released estimate of the mean update, shape ``(dimension,)``; ``move``
        counts the releases that moved the model before, skipped ones included.
        """
        ...

    def evaluate(
        self, state: ServerState, clients: ClientStates | None = None
    ) -> Mapping[str, float]:
        """Metrics of the model by name; every call returns the same names.

        The metrics are for a simulation only: ε covers the models, but not metrics of clients'
        states and data.
        """
        ...


@runtime_checkable
class Batched(Protocol):
    """Algorithm without client states that computes the clipped sum of many clients at once."""

    def clipped_sum(self, sent: NDArray[np.floating], clients: NDArray[np.integer]) -> UpdateSum:
        """Sum of the updates of the given clients, each update clipped to ``clip_norm``.

        The engine checks the norm of every sum, and the updates of some single clients before each
        evaluation.
        """
        ...


@runtime_checkable
class Separate(Protocol):
    """Algorithm without client states that computes many clients' updates as separate rows.

    If clients randomize their own messages, no party computes a sum of updates.
    """

    def updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """Results of the callback ``use``, applied to groups of the clients' unclipped updates.

        ``use`` receives the number of clients in the earlier groups and a group's updates, (c, d),
        in one of several threads. Results keep the order of the groups, which is the same in every
        call. Clients without examples are in no group.
        """
        ...


@runtime_checkable
class OfRecords(Protocol):
    """Algorithm whose clients send updates of single records, which each client draws."""

    def require_records(self, count: int) -> None:
        """Raise an error for a count above the number of records of any client."""
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

        ``use`` receives the index of the drawn record, the number of clients in the earlier groups,
        and a group's updates, (c, d).
        """
        ...


@runtime_checkable
class Grouped(Protocol):
    """Algorithm with client states whose clients draw nothing and are computed in groups."""

    def client_updates(
        self,
        sent: NDArray[np.floating],
        states: Sequence[ClientState],
        clients: NDArray[np.int64],
    ) -> tuple[NDArray[np.floating], Sequence[ClientState]]:
        """Unclipped updates of the given clients, (c, d), and the clients' new states, in order.

        Each row is a function of the sent vector and of that client's state and data only.
        """
        ...


SMALLEST_CLIP, LARGEST_CLIP = 1e-6, 1e6
_PARAMETERS, _OPTIMIZER = "parameters", "optimizer."


class Task(Protocol):
    """Interface of a learning task for `FedSGD`: a model and the clients' data.

    Guarantee: `clipped_sum` adds to the total a vector of ℓ2 norm at most ``clip_norm`` for each
    client, which depends on that client's own data and the parameters alone.

    A run with checkpoints needs a task that is `turnout.core.identity.Resumable` as well: its
    ``resume_parts`` names all settings and all data that the methods below depend on.
    """

    @property
    def dimension(self) -> int:
        """Number of parameters, d."""
        ...

    @property
    def population(self) -> int:
        """Number of clients, numbered from 0."""
        ...

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Initial model parameters, (d,)."""
        ...

    def clipped_sum(
        self, parameters: NDArray[np.floating], clients: NDArray[np.integer], clip_norm: float
    ) -> UpdateSum:
        """Sum of the clipped updates of the given clients."""
        ...

    def evaluate(self, parameters: NDArray[np.floating]) -> Mapping[str, float]:
        """Metrics of the given parameters, by name."""
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
        """Results of the callback ``use``, applied to groups of the clients' unclipped updates."""
        ...


@dataclass(frozen=True)
class FedSGD:
    """Federated SGD: the server's optimizer descends along the mean of the clients' updates.

    C, the ``clip_norm``, is from 1e-6 to 1e6: clip factors then stay in float32's normal range.
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
        """Number of clients, numbered from 0."""
        return self.task.population

    def init(self, generator: np.random.Generator) -> ServerState:
        """Initial server state: the initial parameters and the state of the optimizer."""
        parameters = self.task.initial_parameters(generator)
        return _joined(parameters, self.optimizer.init(parameters))

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """Current parameters, (d,), which the server sends to the clients."""
        return state[_PARAMETERS]

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """Released parameters, (d,): the last iterate or an average of the iterates."""
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
        """Update of one client, already clipped, and None as the client's state."""
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
        """Results of the callback ``use``, applied to groups of the clients' unclipped updates."""
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
        # What happens to a release is postprocessing: rounding it costs no privacy.
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

    Source: Girgis 2023 (thesis), Algorithm 4.3.1 (CLDP-SGD): in each step a client draws s of its m
        records uniformly without replacement.
    """

    task: SupervisedTask

    @cached_property
    def _by_record(self) -> SupervisedTask:
        return self.task.by_record()

    def require_records(self, count: int) -> None:
        """Raise an error for a count above the number of records of any client.

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
            sent: shape (d,).
            clients: numbers of the participating clients, each with at least ``count`` records.
            count: s.
            generator: source of the draws.
            use: function of j (the index of each client's drawn record), the number of clients in
                the earlier groups, and a group's updates, (c, d).
        """
        drawn = self.task.holdings.sampled(np.asarray(clients, np.int64), count, generator)
        for j, records in enumerate(drawn.T):

            def used(first: int, rows: NDArray[np.floating], j: int = j) -> Any:
                return use(j, first, rows)

            yield from self._by_record.updates(sent, records, used)
