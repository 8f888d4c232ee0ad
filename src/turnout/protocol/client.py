"""One device as a state machine: no network, no clock, no storage.

It draws its slots *before* it makes contact, so nothing that the coordinator says can bend
them. A device that may lose its memory stores `Client.slots` before the first contact and
starts again with exactly these; drawing again would double its chances of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from turnout.core import checks
from turnout.core.aggregates import UpdateSum
from turnout.core.errors import RemoteProtocolError
from turnout.protocol.messages import CheckIns, StepOpened, UpdateRequests, Updates
from turnout.protocol.tables import CLIENT_TABLE, ClientEvent, ClientState, next_state


class Client:
    """The slots of one client in one block of the participation law.

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
        """Its slots and where each stands; the keys are what a device must not forget."""
        return dict(self._states)

    def on_step(self, opened: StepOpened) -> CheckIns | None:
        """The client's reply when it hears that a step is open: a check-in, or nothing."""
        moved = {slot: self._after(slot, _slot_event(slot, opened.step)) for slot in self._states}
        speaks = any(
            moved[slot] is ClientState.CHECKED_IN and state is ClientState.WAITING
            for slot, state in self._states.items()
        )
        self._states = moved
        return CheckIns(opened.step, np.array([self._client])) if speaks else None

    def on_refusal(self, step: int) -> None:
        """Its check-in was refused."""
        self._move(step, ClientEvent.REFUSED)

    def on_close(self, step: int) -> None:
        """A step closed."""
        if step in self._states:
            self._move(step, ClientEvent.CLOSED)

    def on_request(self, request: UpdateRequests, compute: Callable[[], UpdateSum]) -> Updates:
        """Its answer to a request that names it: the clipped update that ``compute`` makes.

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
    """The view of an open step from a slot."""
    if step < slot:
        return ClientEvent.SLOT_AHEAD
    return ClientEvent.SLOT_NOW if step == slot else ClientEvent.SLOT_PAST
