"""Every transition of the protocol, one table an endpoint.

A cell is the next state, or whose fault the event is there: `Fault.LOCAL` where the program
that drives the endpoint is wrong, `Fault.REMOTE` where the other side is. Every (state, event)
pair has a cell; nothing outside this file decides a transition.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TypeVar

from turnout.core.errors import LocalProtocolError, RemoteProtocolError


class Fault(Enum):
    """The party that broke the rules."""

    LOCAL = "this endpoint was driven wrongly"
    REMOTE = "the other endpoint broke the protocol"


class CoordinatorState(StrEnum):
    """The states of the coordinator."""

    IDLE = "idle"
    """Between steps; the next one may be opened."""
    OPEN = "open"
    """A step takes check-ins."""
    COLLECTING = "collecting"
    """Check-ins are closed, requests are out, updates come in."""
    FINISHED = "finished"
    """The last step is released."""


class CoordinatorEvent(StrEnum):
    """The events of the coordinator."""

    OPEN_STEP = "open step"
    CHECK_INS = "check-ins"
    CLOSE_CHECK_INS = "close check-ins"
    UPDATES = "updates"
    CLOSE_STEP = "close step"
    CLOSE_LAST_STEP = "close last step"


class ClientState(StrEnum):
    """The states of one participation (one drawn slot of one client)."""

    WAITING = "waiting"
    """The slot is drawn and lies ahead."""
    CHECKED_IN = "checked in"
    """The slot is open, and the client said that it is there."""
    ANSWERED = "answered"
    """The one request that is ever answered for this slot was answered."""
    PASSED_OVER = "passed over"
    """The step closed without a request to the client."""
    MISSED = "missed"
    """The slot went by before the client made contact; it is given up."""
    REFUSED = "refused"
    """The coordinator turned the check-in down."""


class ClientEvent(StrEnum):
    """The events of one participation, in the words of docs/device-protocol.md."""

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
# went back would ask for the same contribution twice. Final states ignore the clock otherwise.
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
    """The state after an event.

    Errors, of the kind that the cell says, begin with ``what`` ("step 7", "client 12 in slot 3").
    """
    cell = table[state][event]
    if cell is Fault.LOCAL:
        raise LocalProtocolError(f"{what}: '{event}' is not possible while {state}")
    if cell is Fault.REMOTE:
        raise RemoteProtocolError(f"{what}: '{event}' came while {state}; refused")
    assert not isinstance(cell, Fault)
    return cell
