"""Devices as state machines: no network, no clock, no storage; one at a time or many at once.

`Client` draws its slots *before* it makes contact, so nothing that the coordinator says can bend
them. A device that may lose its memory stores `Client.slots` before the first contact and starts
again with exactly these; drawing again would double its chances of a step.

`Fleet` is the same for all participations of a block, without an object for each: one byte of
state, moved by the same table. Its cost grows with participations, never with absent clients.
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
    """State of one client in one block of a participation: its drawn slots.

    Guarantees:
        It says that it is there in the steps that it drew and in no other, once each.
        It answers at most one request for each slot, and none that comes late, early or
        without its check-in.

    Args:
        client: its id.
        slots: the steps that it drew, all different; empty when it does not come. What
            `slots` gave goes on where it stood.
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
        """State of each of the client's slots, by step; a device must store the keys."""
        return dict(self._states)

    def on_step(self, opened: StepOpened) -> CheckIns | None:
        """Reply of the client to an open step: a check-in if the client drew the step, else
        None.
        """
        moved = {slot: self._after(slot, _slot_event(slot, opened.step)) for slot in self._states}
        speaks = any(
            moved[slot] is ClientState.CHECKED_IN and state is ClientState.WAITING
            for slot, state in self._states.items()
        )
        self._states = moved
        return CheckIns(opened.step, np.array([self._client])) if speaks else None

    def on_refusal(self, step: int) -> None:
        """Record that the client's check-in was refused."""
        self._move(step, ClientEvent.REFUSED)

    def on_close(self, step: int) -> None:
        """Record that a step closed."""
        if step in self._states:
            self._move(step, ClientEvent.CLOSED)

    def on_request(self, request: UpdateRequests, compute: Callable[[], UpdateSum]) -> Updates:
        """Reply of the client to a request for its update: the clipped update that ``compute``
        returns.

        It counts as having answered before that runs, so a failure in it can never lead to two
        answers.

        Raises:
            RemoteProtocolError: the request is not for it, or not for a slot in which it
                waits for one.
        """
        if self._client not in request.clients or request.step not in self._states:
            raise RemoteProtocolError(
                f"client {self._client} was asked for an update in step {request.step}, "
                "in which it did not check in"
            )
        self._move(request.step, ClientEvent.REQUESTED)
        return Updates(request.step, np.array([self._client]), compute())

    def _move(self, slot: int, event: ClientEvent) -> None:
        if slot not in self._states:
            raise RemoteProtocolError(
                f"client {self._client}: '{event}' in step {slot}, which it did not draw"
            )
        self._states[slot] = self._after(slot, event)

    def _after(self, slot: int, event: ClientEvent) -> ClientState:
        what = f"client {self._client} in slot {slot}"
        return next_state(CLIENT_TABLE, self._states[slot], event, what)


def _slot_event(slot: int, step: int) -> ClientEvent:
    """Event of an open step for a slot: its own step, an earlier one or a later one."""
    if step < slot:
        return ClientEvent.SLOT_AHEAD
    return ClientEvent.SLOT_NOW if step == slot else ClientEvent.SLOT_PAST


STATES = tuple(ClientState)
EVENTS = tuple(ClientEvent)
_FAULT = 255


def _lookup() -> NDArray[np.uint8]:
    """Transition table of clients as codes: row = state, column = event, `_FAULT` for a fault."""
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

    Guarantees: each participation moves exactly as the `Client` who holds it would.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._states = np.full(schedule.participations, STATES.index(ClientState.WAITING), np.uint8)
        # Nobody from `_touched` on has moved; everybody before `_passed` heard of a later step.
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
        """Check-ins of all clients that drew this step and have not checked in yet."""
        span = self._span(opened.step)
        self._move(slice(span.stop, self._touched), None, ClientEvent.SLOT_AHEAD, opened.step)
        self._move(slice(self._passed, span.start), None, ClientEvent.SLOT_PAST, opened.step)
        self._passed = max(self._passed, span.start)
        waiting = self._states[span] == STATES.index(ClientState.WAITING)
        self._move(span, None, ClientEvent.SLOT_NOW, opened.step)
        clients = self._schedule.clients[span]
        return CheckIns(opened.step, clients if waiting.all() else clients[waiting])

    def on_refusal(self, step: int, clients: ClientIds) -> None:
        """Record that the check-ins of these clients were refused."""
        self._move(self._span(step), clients, ClientEvent.REFUSED, step)

    def on_request(self, request: UpdateRequests) -> ClientIds:
        """Clients that answer a request: all clients named in it; an error if one cannot answer.

        Raises:
            RemoteProtocolError: somebody asked has not checked in or has answered.
        """
        self._move(self._span(request.step), request.clients, ClientEvent.REQUESTED, request.step)
        return request.clients

    def on_close(self, step: int) -> None:
        """Record that a step closed."""
        self._move(self._span(step), None, ClientEvent.CLOSED, step)

    def _span(self, step: int) -> slice:
        """Positions of the participations in a step."""
        index = step - self._schedule.first_step
        if not 0 <= index < self._schedule.steps:
            raise LocalProtocolError(
                f"step {step} is outside this block: {self.first_step} to {self.end_step - 1}"
            )
        return slice(*(int(offset) for offset in self._schedule.offsets[index : index + 2]))

    def _move(self, span: slice, clients: ClientIds | None, event: ClientEvent, step: int) -> None:
        """Apply an event to all participations of a span, or to some clients' ones; all change
        or none.
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
                f"step {step}: client {int(clients[~known][0])} is named but did not check in"
            )
        if ranks.size and np.bincount(ranks).max() > 1:
            raise ParameterError("clients", clients.size, "each client once")
        return span.start + order[ranks]
