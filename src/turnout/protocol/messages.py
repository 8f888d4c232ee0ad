"""Messages between coordinator and clients.

Each message may speak for one client (a network) or for a batch (a simulation). Client ids
are whole numbers from 0 that whoever authenticates the clients hands out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes

ClientIds = NDArray[np.integer]
"""Client ids, int32 or int64, shape ``(clients,)``."""


def _checked_ids(clients: ClientIds) -> ClientIds:
    """A read-only view of ids, refused unless one-dimensional, whole and not negative."""
    ids = np.asarray(clients)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ParameterError("clients", (ids.dtype, ids.shape), "a flat array of whole numbers")
    if ids.size and ids.min() < 0:
        raise ParameterError("clients", int(ids.min()), "ids of at least 0")
    view = ids.view()
    view.flags.writeable = False
    return view


def ascending(clients: ClientIds) -> bool:
    """Whether ids strictly ascend, as those of a sampled schedule do; sorts are spared then."""
    return clients.size < 2 or bool((clients[1:] > clients[:-1]).all())


@dataclass(frozen=True, slots=True)
class StepOpened:
    """Coordinator to all: this step takes check-ins."""

    step: int


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class CheckIns:
    """Clients to coordinator: these drew this step and are here."""

    step: int
    clients: ClientIds

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checked_ids(self.clients))


class Verdict(IntEnum):
    """The outcome of one check-in."""

    ACCEPTED = 0
    DUPLICATE = 1
    """The client took part in this step, or as often as the law allows in this window, already."""
    OUTSIDE_ITS_WINDOW = 2
    """The participation law gives the client no chance of this step."""


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Receipt:
    """Coordinator to clients: what became of each check-in.

    Attributes:
        step: the step of the check-ins.
        clients: as in the `CheckIns`, shape ``(clients,)``.
        verdicts: uint8 codes of `Verdict`, same shape and order.
    """

    step: int
    clients: ClientIds
    verdicts: NDArray[np.uint8]

    @property
    def accepted(self) -> ClientIds:
        """The clients that are checked in now."""
        return self.clients[self.verdicts == Verdict.ACCEPTED]

    @property
    def refused(self) -> ClientIds:
        """The clients that are not."""
        return self.clients[self.verdicts != Verdict.ACCEPTED]


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class UpdateRequests:
    """Coordinator to clients: these, in increasing order, shall send an update."""

    step: int
    clients: ClientIds

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checked_ids(self.clients))


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Clients to coordinator: the sum of the updates of exactly these clients."""

    step: int
    clients: ClientIds
    sum: UpdateSum

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checked_ids(self.clients))
        if self.sum.count != self.clients.size:
            raise ParameterError(
                "sum.count", self.sum.count, f"{self.clients.size}, one for each client named"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The outcome of a step.

    The counts are for the operator: where the release rule does not show them the guarantee
    assumes that the adversary does not see them, so they are kept out of the text form of this
    object. The rest may be published.

    Attributes:
        step: the step released.
        total: the noisy sum of the step in the units of the sums, shape ``(d,)``; None where an
            empty step is left out.
        direction: float64, shape ``(d,)``: the private mean update that moves the model; None
            when the model does not move in this step.
        skipped: True when an empty step is left out (averaged check-ins). The model not moving
            because a minibatch is still filling is not a skip.
        checked_in: clients accepted in this step.
        served: of these, clients whose update came in.
        dummy: True when noise alone went into the release because no update came in.
    """

    step: int
    total: NDArray[Any] | None = field(repr=False)
    direction: NDArray[np.float64] | None = field(repr=False)
    skipped: bool
    checked_in: int = field(repr=False)
    served: int = field(repr=False)
    dummy: bool = field(repr=False)
