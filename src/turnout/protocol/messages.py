"""Messages between coordinator and clients, and every transition of the protocol.

On a network a message is from or to one client; in a simulation it may be for many clients. Client
ids are whole numbers from 0, which the coordinator's side assigns.

`next_state` reads one table for each endpoint. A cell holds the next state, or the party at fault:
`Fault.LOCAL` if the program that drives the endpoint is wrong, `Fault.REMOTE` if the other endpoint
is wrong. Every pair (state, event) has a cell, and only these tables determine transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, ParameterError, RemoteProtocolError
from turnout.core.showing import shows_shapes

ClientIds = NDArray[np.integer]
"""Client ids, int32 or int64, shape ``(clients,)``."""


def _checked_ids(clients: ClientIds) -> ClientIds:
    """Read-only view of ids, shape ``(n,)``, after a check that they are whole and at least 0."""
    ids = np.asarray(clients)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ParameterError("clients", (ids.dtype, ids.shape), "a flat array of whole numbers")
    if ids.size and ids.min() < 0:
        raise ParameterError("clients", int(ids.min()), "ids of at least 0")
    view = ids.view()
    view.flags.writeable = False
    return view


def ascending(clients: ClientIds) -> bool:
    """Whether the ids are in strictly ascending order, so that they need no sorting."""
    return clients.size < 2 or bool((clients[1:] > clients[:-1]).all())


@dataclass(frozen=True, slots=True)
class StepOpened:
    """Message from the coordinator to all clients: a step is open for check-ins.

    Attributes:
        step: number of the step, from 0.
    """

    step: int


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class CheckIns:
    """Message from clients to the coordinator: these clients drew the step and check in.

    Attributes:
        step: number of the step, from 0.
        clients: ids of the clients, shape ``(clients,)``.
    """

    step: int
    clients: ClientIds

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checked_ids(self.clients))


class Verdict(IntEnum):
    """Outcome of one check-in."""

    ACCEPTED = 0
    DUPLICATE = 1
    """The client already took part in this step, or as often as this window permits."""
    OUTSIDE_ITS_WINDOW = 2
    """The participation never lets the client take part in this step."""


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Receipt:
    """Message from the coordinator to clients: the verdict on each check-in.

    Attributes:
        step: the step of the check-ins.
        clients: clients of the `CheckIns`, shape ``(clients,)``.
        verdicts: uint8 codes of `Verdict`, same shape and order.
    """

    step: int
    clients: ClientIds
    verdicts: NDArray[np.uint8]

    @property
    def accepted(self) -> ClientIds:
        """Clients whose check-ins were accepted."""
        return self.clients[self.verdicts == Verdict.ACCEPTED]

    @property
    def refused(self) -> ClientIds:
        """Clients whose check-ins were refused."""
        return self.clients[self.verdicts != Verdict.ACCEPTED]


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class UpdateRequests:
    """Message from the coordinator to the clients that must send an update, in ascending order.

    Attributes:
        step: number of the step, from 0.
        clients: ids of the clients, shape ``(clients,)``.
    """

    step: int
    clients: ClientIds

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checked_ids(self.clients))


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Message from clients to the coordinator: the sum of the updates of exactly these clients.

    Attributes:
        step: number of the step, from 0.
        clients: ids of the clients, shape ``(clients,)``.
        sum: sum of the updates of these clients.
    """

    step: int
    clients: ClientIds
    sum: UpdateSum

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checked_ids(self.clients))
        if self.sum.count != self.clients.size:
            raise ParameterError(
                "sum.count", self.sum.count, f"{self.clients.size}, one for each of these clients"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Outcome of a step.

    The counts ``checked_in`` and ``served``, and ``dummy``, are for the operator only. Unless the
    release rule reveals the counts, the guarantee assumes that the adversary does not see them, so
    ``repr`` leaves them out. The other attributes may be published.

    Attributes:
        step: number of the released step.
        total: noisy sum of the step in the units of the sums, shape ``(d,)``; None if the step is
            skipped.
        direction: float64, shape ``(d,)``: private mean update that changes the model; None if the
            model does not change in this step.
        skipped: whether the step is left out for lack of updates (averaged releases only). A step
            within an incomplete minibatch is not skipped.
        checked_in: number of accepted check-ins.
        served: number of clients whose update was received.
        dummy: whether the release consists of noise alone, since no update was received.
    """

    step: int
    total: NDArray[Any] | None = field(repr=False)
    direction: NDArray[np.float64] | None = field(repr=False)
    skipped: bool
    checked_in: int = field(repr=False)
    served: int = field(repr=False)
    dummy: bool = field(repr=False)


class Fault(Enum):
    """Party that violated the protocol."""

    LOCAL = "this endpoint was driven wrongly"
    REMOTE = "the other endpoint broke the protocol"


class CoordinatorState(StrEnum):
    """States of the coordinator."""

    IDLE = "idle"
    """Between steps; the next step may be opened."""
    OPEN = "open"
    """A step is open for check-ins."""
    COLLECTING = "collecting"
    """Check-ins are closed, updates are requested, and the coordinator receives them."""
    FINISHED = "finished"
    """The last step is released."""


class CoordinatorEvent(StrEnum):
    """Events of the coordinator."""

    OPEN_STEP = "open step"
    CHECK_INS = "check-ins"
    CLOSE_CHECK_INS = "close check-ins"
    UPDATES = "updates"
    CLOSE_STEP = "close step"
    CLOSE_LAST_STEP = "close last step"


class ClientState(StrEnum):
    """States of one participation (one drawn slot of one client)."""

    WAITING = "waiting"
    """The slot is drawn and lies ahead."""
    CHECKED_IN = "checked in"
    """The slot is open, and the client has checked in."""
    ANSWERED = "answered"
    """The client answered a request in this slot; it answers no further one."""
    PASSED_OVER = "passed over"
    """The step closed without a request to the client."""
    MISSED = "missed"
    """The slot passed before the client contacted the coordinator; it is not used."""
    REFUSED = "refused"
    """The coordinator refused the check-in."""


class ClientEvent(StrEnum):
    """Events of one participation, named as in docs/device-protocol.md."""

    SLOT_AHEAD = "earlier step opens"
    SLOT_NOW = "own step opens"
    SLOT_PAST = "later step opens"
    CLOSED = "own step closes"
    REFUSED = "refused"
    REQUESTED = "asked"


_S, _E = CoordinatorState, CoordinatorEvent

COORDINATOR_TABLE: Mapping[
    CoordinatorState, Mapping[CoordinatorEvent, CoordinatorState | Fault]
] = {
    _S.IDLE: {
        _E.OPEN_STEP: _S.OPEN,
        _E.CHECK_INS: Fault.REMOTE,
        _E.CLOSE_CHECK_INS: Fault.LOCAL,
        _E.UPDATES: Fault.REMOTE,
        _E.CLOSE_STEP: Fault.LOCAL,
        _E.CLOSE_LAST_STEP: Fault.LOCAL,
    },
    _S.OPEN: {
        _E.OPEN_STEP: Fault.LOCAL,
        _E.CHECK_INS: _S.OPEN,
        _E.CLOSE_CHECK_INS: _S.COLLECTING,
        _E.UPDATES: Fault.REMOTE,
        _E.CLOSE_STEP: Fault.LOCAL,
        _E.CLOSE_LAST_STEP: Fault.LOCAL,
    },
    _S.COLLECTING: {
        _E.OPEN_STEP: Fault.LOCAL,
        _E.CHECK_INS: Fault.REMOTE,
        _E.CLOSE_CHECK_INS: Fault.LOCAL,
        _E.UPDATES: _S.COLLECTING,
        _E.CLOSE_STEP: _S.IDLE,
        _E.CLOSE_LAST_STEP: _S.FINISHED,
    },
    _S.FINISHED: {
        _E.OPEN_STEP: Fault.LOCAL,
        _E.CHECK_INS: Fault.REMOTE,
        _E.CLOSE_CHECK_INS: Fault.LOCAL,
        _E.UPDATES: Fault.REMOTE,
        _E.CLOSE_STEP: Fault.LOCAL,
        _E.CLOSE_LAST_STEP: Fault.LOCAL,
    },
}

_C, _V = ClientState, ClientEvent

# Once a client has acted on its slot, an earlier step must not be open again: a coordinator that
# went back would request the same contribution twice. Otherwise final states ignore the clock.
CLIENT_TABLE: Mapping[ClientState, Mapping[ClientEvent, ClientState | Fault]] = {
    _C.WAITING: {
        _V.SLOT_AHEAD: _C.WAITING,
        _V.SLOT_NOW: _C.CHECKED_IN,
        _V.SLOT_PAST: _C.MISSED,
        _V.CLOSED: _C.MISSED,
        _V.REFUSED: Fault.REMOTE,
        _V.REQUESTED: Fault.REMOTE,
    },
    _C.CHECKED_IN: {
        _V.SLOT_AHEAD: Fault.REMOTE,
        _V.SLOT_NOW: _C.CHECKED_IN,
        _V.SLOT_PAST: _C.PASSED_OVER,
        _V.CLOSED: _C.PASSED_OVER,
        _V.REFUSED: _C.REFUSED,
        _V.REQUESTED: _C.ANSWERED,
    },
    _C.ANSWERED: {
        _V.SLOT_AHEAD: Fault.REMOTE,
        _V.SLOT_NOW: _C.ANSWERED,
        _V.SLOT_PAST: _C.ANSWERED,
        _V.CLOSED: _C.ANSWERED,
        _V.REFUSED: Fault.REMOTE,
        _V.REQUESTED: Fault.REMOTE,
    },
    _C.PASSED_OVER: {
        _V.SLOT_AHEAD: Fault.REMOTE,
        _V.SLOT_NOW: _C.PASSED_OVER,
        _V.SLOT_PAST: _C.PASSED_OVER,
        _V.CLOSED: _C.PASSED_OVER,
        _V.REFUSED: Fault.REMOTE,
        _V.REQUESTED: Fault.REMOTE,
    },
    _C.MISSED: {
        _V.SLOT_AHEAD: Fault.REMOTE,
        _V.SLOT_NOW: _C.MISSED,
        _V.SLOT_PAST: _C.MISSED,
        _V.CLOSED: _C.MISSED,
        _V.REFUSED: Fault.REMOTE,
        _V.REQUESTED: Fault.REMOTE,
    },
    _C.REFUSED: {
        _V.SLOT_AHEAD: Fault.REMOTE,
        _V.SLOT_NOW: _C.REFUSED,
        _V.SLOT_PAST: _C.REFUSED,
        _V.CLOSED: _C.REFUSED,
        _V.REFUSED: _C.REFUSED,
        _V.REQUESTED: Fault.REMOTE,
    },
}

_StateT = TypeVar("_StateT", CoordinatorState, ClientState)
_EventT = TypeVar("_EventT", CoordinatorEvent, ClientEvent)


def next_state(
    table: Mapping[_StateT, Mapping[_EventT, _StateT | Fault]],
    state: _StateT,
    event: _EventT,
    what: str,
) -> _StateT:
    """State of the coordinator or of a participation after an event.

    Args:
        table: for each state and each event, the next state or the party at fault.
        state: state before the event.
        event: the event.
        what: beginning of the text of an error, such as "step 7" or "client 12 in slot 3".

    Raises:
        LocalProtocolError: the event is a fault of the program that drives the endpoint.
        RemoteProtocolError: the event is a fault of the other endpoint.
    """
    cell = table[state][event]
    if cell is Fault.LOCAL:
        raise LocalProtocolError(f"{what}: '{event}' is not possible while {state}")
    if cell is Fault.REMOTE:
        raise RemoteProtocolError(f"{what}: event '{event}' is refused while {state}")
    assert not isinstance(cell, Fault)
    return cell
