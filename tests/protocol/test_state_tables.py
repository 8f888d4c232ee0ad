"""Every (state, event) pair has an entry, and the state machines behave as the entry says."""

import itertools

import numpy as np
import pytest
from protocol_driver import check_in, coordinator, ids, source, std_itself, updates

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, RemoteProtocolError
from turnout.participation.schedule import Schedule
from turnout.protocol.client import Client, Fleet
from turnout.protocol.messages import (
    CLIENT_TABLE,
    COORDINATOR_TABLE,
    CheckIns,
    ClientEvent,
    ClientState,
    CoordinatorEvent,
    CoordinatorState,
    Fault,
    StepOpened,
    UpdateRequests,
)
from turnout.schemes import CheckIn

C, S, E, V = ClientState, CoordinatorState, CoordinatorEvent, ClientEvent
COORDINATOR_CELLS = list(itertools.product(S, E))
CLIENT_CELLS = list(itertools.product(C, V))
ERRORS = {Fault.LOCAL: LocalProtocolError, Fault.REMOTE: RemoteProtocolError}
SLOT = 3


def test_state_tables_have_an_entry_for_every_state_and_event():
    for table, states, events in [(COORDINATOR_TABLE, S, E), (CLIENT_TABLE, C, V)]:
        assert set(table) == set(states)
        for row in table.values():
            assert set(row) == set(events)
            assert all(isinstance(cell, (states, Fault)) for cell in row.values())


def test_every_state_is_reachable_and_final_states_are_never_left():
    for table, start in [(COORDINATOR_TABLE, S.IDLE), (CLIENT_TABLE, C.WAITING)]:
        seen, fresh = set(), {start}
        while fresh:
            seen |= fresh
            fresh = {c for s in fresh for c in table[s].values() if c not in ERRORS} - seen
        assert seen == set(table)
    for state in (C.ANSWERED, C.PASSED_OVER, C.MISSED, C.REFUSED):
        assert {c for c in CLIENT_TABLE[state].values() if c not in ERRORS} == {state}


def test_only_clients_that_checked_in_may_send_updates():
    """The guarantee "at most one update per check-in", derived from the state table."""
    leads_to_answer = [
        (state, event)
        for state, event in CLIENT_CELLS
        if CLIENT_TABLE[state][event] is C.ANSWERED and state is not C.ANSWERED
    ]
    assert leads_to_answer == [(C.CHECKED_IN, V.REQUESTED)]
    assert CLIENT_TABLE[C.ANSWERED][V.REQUESTED] is Fault.REMOTE


def coordinator_in(state, last):
    """Coordinator of two steps in a given state, in its last step if ``last``."""
    machine = coordinator(participation=CheckIn(window=2))
    for step in range(3):
        if state is S.IDLE and (step == 1 or not last):
            break
        if state is S.FINISHED and step == 2:
            break
        machine.open_step()
        check_in(machine, step)
        here = step == last
        if state is S.OPEN and here:
            break
        machine.close_check_ins(source())
        if state is S.COLLECTING and here:
            break
        machine.close_step(std_itself)
    assert machine.state is state
    return machine


def push_to_coordinator(machine, event):
    {
        E.OPEN_STEP: machine.open_step,
        E.CHECK_INS: lambda: check_in(machine, 7),
        E.CLOSE_CHECK_INS: lambda: machine.close_check_ins(source()),
        E.UPDATES: lambda: machine.receive(updates(machine.step, {machine.step: [0.5, 0]})),
        E.CLOSE_STEP: lambda: machine.close_step(std_itself),
        E.CLOSE_LAST_STEP: lambda: machine.close_step(std_itself),
    }[event]()


@pytest.mark.parametrize(("state", "event"), COORDINATOR_CELLS)
def test_the_coordinator_behaves_as_its_state_table(state, event):
    machine = coordinator_in(state, last=event is E.CLOSE_LAST_STEP)
    cell = COORDINATOR_TABLE[state][event]
    if isinstance(cell, Fault):
        step = machine.step
        with pytest.raises(ERRORS[cell], match=f"step {step}: .*'.*{state}"):
            push_to_coordinator(machine, event)
        assert (machine.state, machine.step) == (state, step)
    else:
        push_to_coordinator(machine, event)
        assert machine.state is cell


ROUTES = {
    C.WAITING: [],
    C.CHECKED_IN: [V.SLOT_NOW],
    C.ANSWERED: [V.SLOT_NOW, V.REQUESTED],
    C.PASSED_OVER: [V.SLOT_NOW, V.CLOSED],
    C.MISSED: [V.SLOT_PAST],
    C.REFUSED: [V.SLOT_NOW, V.REFUSED],
}


def push_to_client(client, event):
    {
        V.SLOT_AHEAD: lambda: client.on_step(StepOpened(SLOT - 1)),
        V.SLOT_NOW: lambda: client.on_step(StepOpened(SLOT)),
        V.SLOT_PAST: lambda: client.on_step(StepOpened(SLOT + 1)),
        V.CLOSED: lambda: client.on_close(SLOT),
        V.REFUSED: lambda: client.on_refusal(SLOT),
        V.REQUESTED: lambda: client.on_request(
            UpdateRequests(SLOT, ids(9)), lambda: UpdateSum([0.0], 1)
        ),
    }[event]()


def push_to_fleet(fleet, event):
    {
        V.SLOT_AHEAD: lambda: fleet.on_step(StepOpened(SLOT - 1)),
        V.SLOT_NOW: lambda: fleet.on_step(StepOpened(SLOT)),
        V.SLOT_PAST: lambda: fleet.on_step(StepOpened(SLOT + 1)),
        V.CLOSED: lambda: fleet.on_close(SLOT),
        V.REFUSED: lambda: fleet.on_refusal(SLOT, ids(9)),
        V.REQUESTED: lambda: fleet.on_request(UpdateRequests(SLOT, ids(9))),
    }[event]()


@pytest.mark.parametrize(("state", "event"), CLIENT_CELLS)
def test_client_and_fleet_behave_as_their_state_table(state, event):
    client = Client(9, [SLOT])
    # Steps 2, 3 and 4; client 9 alone, in step 3.
    fleet = Fleet(Schedule(SLOT - 1, np.array([0, 0, 1, 1]), ids(9)))
    for earlier in ROUTES[state]:
        push_to_client(client, earlier)
        push_to_fleet(fleet, earlier)
    cell = CLIENT_TABLE[state][event]
    if isinstance(cell, Fault):
        with pytest.raises(ERRORS[cell]):
            push_to_client(client, event)
        with pytest.raises(ERRORS[cell]):
            push_to_fleet(fleet, event)
        cell = state
    else:
        push_to_client(client, event)
        push_to_fleet(fleet, event)
    assert client.slots == {SLOT: cell}
    assert fleet.states(SLOT) == [cell]


@pytest.mark.parametrize(("state", "event"), CLIENT_CELLS)
def test_a_client_sends_only_at_its_check_in(state, event):
    client = Client(9, [SLOT])
    for earlier in ROUTES[state]:
        push_to_client(client, earlier)
    if event in (V.SLOT_AHEAD, V.SLOT_NOW, V.SLOT_PAST) and not isinstance(
        CLIENT_TABLE[state][event], Fault
    ):
        step = SLOT + [V.SLOT_AHEAD, V.SLOT_NOW, V.SLOT_PAST].index(event) - 1
        said = client.on_step(StepOpened(step))
        if (state, event) == (C.WAITING, V.SLOT_NOW):
            assert isinstance(said, CheckIns)
            assert (said.step, said.clients.tolist()) == (SLOT, [9])
        else:
            assert said is None
