"""Federated SGD: clients send what lowers their own loss, and an optimiser follows the mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning.algorithm import ClientState, ClientStates, ServerState
from turnout.learning.optimizers import Optimizer, prefixed, unprefixed

SMALLEST_CLIP, LARGEST_CLIP = 1e-6, 1e6
_PARAMETERS, _OPTIMIZER = "parameters", "optimizer."


class Task(Protocol):
    """A model and the clients' data: what `FedSGD` needs to know of them.

    Guarantee: `clipped_sum` adds to the total a vector of ℓ2 norm at most ``clip_norm`` for each
    client, which depends on that client's own data and the parameters alone.

    A run with checkpoints needs a task that is `turnout.core.identity.Resumable` as well: its
    ``resume_parts`` names all settings and all data that the methods below depend on.
    """

    @property
    def dimension(self) -> int:
        """Parameters, d."""
        ...

    @property
    def population(self) -> int:
        """Clients, numbered from 0."""
        ...

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """The initial parameters, (d,)."""
        ...

    def clipped_sum(
        self, parameters: NDArray[np.floating], clients: NDArray[np.integer], clip_norm: float
    ) -> UpdateSum:
        """The sum of these clients' updates, each clipped."""
        ...

    def evaluate(self, parameters: NDArray[np.floating]) -> Mapping[str, float]:
        """Metrics of these parameters, by name."""
        ...


@runtime_checkable
class SeparateTask(Protocol):
    """A task that gives each client's update as it is, for clients that randomize their own."""

    def updates(
        self,
        parameters: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """The results of ``use`` on these clients' updates, group by group."""
        ...


@dataclass(frozen=True)
class FedSGD:
    """The optimiser's descent along the mean of the clients' updates.

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
        """Parameters, d."""
        return self.task.dimension

    @property
    def population(self) -> int:
        """Clients, numbered from 0."""
        return self.task.population

    def init(self, generator: np.random.Generator) -> ServerState:
        """The initial parameters, and what the optimiser remembers of none."""
        parameters = self.task.initial_parameters(generator)
        return _joined(parameters, self.optimizer.init(parameters))

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """The last iterate, (d,)."""
        return state[_PARAMETERS]

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """The last iterate, or the average that the optimiser hands out, (d,)."""
        return self.optimizer.released(state[_PARAMETERS], unprefixed(_OPTIMIZER, state))

    def init_client(self, client: int) -> None:
        """None: clients remember nothing."""

    def client_update(
        self,
        sent: NDArray[np.floating],
        client_state: ClientState | None,
        client: int,
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.floating], None]:
        """One client's update, clipped already."""
        return self.clipped_sum(sent, np.array([client])).total, None

    def clipped_sum(self, sent: NDArray[np.floating], clients: NDArray[np.integer]) -> UpdateSum:
        """The sum of these clients' clipped updates."""
        return self.task.clipped_sum(sent, clients, self.clip_norm)

    def updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """The results of ``use`` on these clients' updates as they are, group by group."""
        if not isinstance(self.task, SeparateTask):
            kind = type(self.task).__name__
            raise UnsupportedError(f"{kind} gives sums alone, and a message is of one update")
        return self.task.updates(sent, clients, use)

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """The optimiser's next iterate and state."""
        parameters = state[_PARAMETERS]
        # What happens to a release is postprocessing: rounding it costs no privacy.
        rounded = direction.astype(parameters.dtype)
        own = unprefixed(_OPTIMIZER, state)
        return _joined(*self.optimizer.update(parameters, own, rounded, move))

    def evaluate(
        self, state: ServerState, clients: ClientStates | None = None
    ) -> Mapping[str, float]:
        """The task's metrics of the model that is handed out."""
        return self.task.evaluate(self.model(state))


def _joined(parameters: NDArray[np.floating], own: ServerState) -> ServerState:
    """The server's state of the iterate and of the optimiser's own."""
    return {_PARAMETERS: parameters, **prefixed(_OPTIMIZER, own)}
