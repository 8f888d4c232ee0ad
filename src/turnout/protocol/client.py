"""Devices as state machines, without network, clock and storage: one client, or many clients.

A `Client` gets its slots *before* the first contact, so nothing that the coordinator sends can
change them. A device that may crash stores the keys of `Client.slots` before the first contact and
restarts with exactly these slots; if it drew again, it would double the probability of each step.

A `Fleet` holds the states of all participations of a block, one byte each, and uses the transition
table of `Client`. Memory and time grow with the number of participations; absent clients cost
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, ParameterError, RemoteProtocolError
from turnout.participation.schedule import Schedule
from turnout.protocol.messages import (
    CLIENT_TABLE,
    CheckIns,
    ClientEvent,
    ClientIds,
    ClientState,
    Fault,
    StepOpened,
    UpdateRequests,
    Updates,
    ascending,
    next_state,
)


class Client:
    """State of one client in one block of a participation: the state of each drawn slot.

    Guarantees:
        The client checks in once in each step that it drew, and in no other step.
        The client answers at most one request for each slot, and refuses a request that is late,
        early or without an earlier check-in.

    Args:
        client: id of the client, at least 0.
        slots: steps that the client drew, all different; empty for a client that does not take
            part. To restore an earlier state, pass the value of the property `slots` of that time.

    Raises:
        ParameterError: an id or a step is not a whole number of at least 0.
    """

    def __init__(self, client: int, slots: Iterable[int] | Mapping[int, ClientState]) -> None:
        checks.count(0, client=client)
        self._client = client
        stood = slots if isinstance(slots, Mapping) else dict.fromkeys(slots, ClientState.WAITING)
        for slot in stood:
            checks.count(0, slot=slot)
        self._states = {int(slot): state for slot, state in stood.items()}

    @property
    def slots(self) -> dict[int, ClientState]:
        """State of each slot of the client, by step; a device must store the keys (the steps)."""
        return dict(self._states)

    def on_step(self, opened: StepOpened) -> CheckIns | None:
        """Check-in of the client if it drew the open step, else None.

        Raises:
            RemoteProtocolError: the event is impossible in the state of a slot.
        """
        moved = {slot: self._after(slot, _slot_event(slot, opened.step)) for slot in self._states}
        speaks = any(
            moved[slot] is ClientState.CHECKED_IN and state is ClientState.WAITING
            for slot, state in self._states.items()
        )
        self._states = moved
        return CheckIns(opened.step, np.array([self._client])) if speaks else None

    def on_refusal(self, step: int) -> None:
        """Record that the client's check-in was refused.

        Raises:
            RemoteProtocolError: the event is impossible in the state of the slot.
        """
        self._move(step, ClientEvent.REFUSED)

    def on_close(self, step: int) -> None:
        """Record that a step closed.

        Raises:
            RemoteProtocolError: the event is impossible in the state of the slot.
        """
        if step in self._states:
            self._move(step, ClientEvent.CLOSED)

    def on_request(self, request: UpdateRequests, compute: Callable[[], UpdateSum]) -> Updates:
        """Message with the clipped update of the client, which ``compute`` returns.

        The client counts as having answered before ``compute`` is called, so that a failure of
        ``compute`` can never lead to two answers.

        Raises:
            RemoteProtocolError: the request is not for this client, or not for a slot in which the
                client has checked in and not answered.
        """
        if self._client not in request.clients or request.step not in self._states:
            raise RemoteProtocolError(
                f"client {self._client} received a request for an update in step {request.step}, "
                "but did not check in to this step"
            )
        self._move(request.step, ClientEvent.REQUESTED)
        return Updates(request.step, np.array([self._client]), compute())

    def _move(self, slot: int, event: ClientEvent) -> None:
        if slot not in self._states:
            raise RemoteProtocolError(
                f"client {self._client}: event '{event}' is refused in step {slot}, which the "
                "client did not draw"
            )
        self._states[slot] = self._after(slot, event)

    def _after(self, slot: int, event: ClientEvent) -> ClientState:
        what = f"client {self._client} in slot {slot}"
        return next_state(CLIENT_TABLE, self._states[slot], event, what)


def _slot_event(slot: int, step: int) -> ClientEvent:
    """Event for a slot when a step opens: the slot is ahead, is this step, or is past."""
    if step < slot:
        return ClientEvent.SLOT_AHEAD
    return ClientEvent.SLOT_NOW if step == slot else ClientEvent.SLOT_PAST


STATES = tuple(ClientState)
EVENTS = tuple(ClientEvent)
_FAULT = 255


def _lookup() -> NDArray[np.uint8]:
    """Transition table of clients as codes, with a row for each state and a column per event."""
    codes = np.full((len(STATES), len(EVENTS)), _FAULT, np.uint8)
    for row, state in enumerate(STATES):
        for column, event in enumerate(EVENTS):
            cell = CLIENT_TABLE[state][event]
            if not isinstance(cell, Fault):
                codes[row, column] = STATES.index(cell)
    return codes


_NEXT = _lookup()


class Fleet:
    """States of all clients that take part in one block of a participation.

    Guarantees: the state of each participation changes exactly as in a separate `Client`.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._states = np.full(schedule.participations, STATES.index(ClientState.WAITING), np.uint8)
        # No participation from `_touched` on has changed; those before `_passed` are past.
        self._touched = 0
        self._passed = 0

    @property
    def first_step(self) -> int:
        """First step of the block."""
        return self._schedule.first_step

    @property
    def end_step(self) -> int:
        """First step after the block."""
        return self._schedule.first_step + self._schedule.steps

    def states(self, step: int) -> list[ClientState]:
        """State of each participation in a step, in the order of ``schedule.at(step)``."""
        return [STATES[code] for code in self._states[self._span(step)]]

    def on_step(self, opened: StepOpened) -> CheckIns:
        """Check-ins of all clients that drew this step and have not checked in yet.

        Raises:
            RemoteProtocolError: the event is impossible in the state of a participation.
        """
        span = self._span(opened.step)
        self._move(slice(span.stop, self._touched), None, ClientEvent.SLOT_AHEAD, opened.step)
        self._move(slice(self._passed, span.start), None, ClientEvent.SLOT_PAST, opened.step)
        self._passed = max(self._passed, span.start)
        waiting = self._states[span] == STATES.index(ClientState.WAITING)
        self._move(span, None, ClientEvent.SLOT_NOW, opened.step)
        clients = self._schedule.clients[span]
        return CheckIns(opened.step, clients if waiting.all() else clients[waiting])

    def on_refusal(self, step: int, clients: ClientIds) -> None:
        """Record that the check-ins of these clients were refused.

        Raises:
            RemoteProtocolError: the event is impossible in the state of a participation.
        """
        self._move(self._span(step), clients, ClientEvent.REFUSED, step)

    def on_request(self, request: UpdateRequests) -> ClientIds:
        """Clients that answer a request: all clients in it, or an error if one cannot answer.

        Raises:
            RemoteProtocolError: a client in the request has not checked in, or has answered.
        """
        self._move(self._span(request.step), request.clients, ClientEvent.REQUESTED, request.step)
        return request.clients

    def on_close(self, step: int) -> None:
        """Record that a step closed.

        Raises:
            RemoteProtocolError: the event is impossible in the state of a participation.
        """
        self._move(self._span(step), None, ClientEvent.CLOSED, step)

    def _span(self, step: int) -> slice:
        """Slice with the positions of all participations in a step."""
        index = step - self._schedule.first_step
        if not 0 <= index < self._schedule.steps:
            raise LocalProtocolError(
                f"step {step} is outside this block: {self.first_step} to {self.end_step - 1}"
            )
        return slice(*(int(offset) for offset in self._schedule.offsets[index : index + 2]))

    def _move(self, span: slice, clients: ClientIds | None, event: ClientEvent, step: int) -> None:
        """Apply an event to the participations in a slice, of all or only of the given clients.

        If the event is impossible for one participation, none of them changes.
        """
        if clients is None:
            places: slice | NDArray[np.int64] = span
        else:
            places = self._places(span, clients, step)
        after = _NEXT[self._states[places], EVENTS.index(event)]
        if (after == _FAULT).any():
            raise RemoteProtocolError(
                f"step {step}: event '{event}' is not possible in the client's state"
            )
        self._states[places] = after
        self._touched = max(self._touched, span.stop)

    def _places(self, span: slice, clients: ClientIds, step: int) -> NDArray[np.int64]:
        """Positions of the participations of these clients in a step."""
        here = self._schedule.clients[span]
        if ascending(here) and np.array_equal(here, clients):
            return np.arange(span.start, span.stop)
        order = np.argsort(here, kind="stable")
        ranks = np.searchsorted(here, clients, sorter=order)
        known = ranks < here.size
        known[known] = here[order[ranks[known]]] == clients[known]
        if not known.all():
            raise RemoteProtocolError(
                f"step {step}: the coordinator named client {int(clients[~known][0])}, which did "
                "not check in"
            )
        if ranks.size and np.bincount(ranks).max() > 1:
            raise ParameterError("clients", f"{clients.size} ids", "each client once")
        return span.start + order[ranks]
