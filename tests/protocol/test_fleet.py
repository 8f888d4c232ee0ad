"""A fleet has the same states, messages and refusals as its clients run one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_driver import ids

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, ParameterError, RemoteProtocolError
from turnout.participation.schedule import Schedule
from turnout.protocol.client import Client, Fleet
from turnout.protocol.messages import ClientState, StepOpened, UpdateRequests

STEPS, FIRST, CLIENTS = 4, 10, 5


@st.composite
def drawn_slots(draw):
    """Strategy for the steps that each client has drawn."""
    steps = st.integers(FIRST, FIRST + STEPS - 1)
    return [sorted(draw(st.sets(steps, max_size=2))) for _ in range(CLIENTS)]


def schedule_of(slots, shuffled=False):
    by_step = [[c for c in range(CLIENTS) if s in slots[c]] for s in range(FIRST, FIRST + STEPS)]
    if shuffled:
        by_step = [clients[::-1] for clients in by_step]
    offsets = np.cumsum([0, *map(len, by_step)])
    return Schedule(FIRST, offsets, np.array([*itertools.chain(*by_step)], np.int64))


def request_of(step, *clients):
    return UpdateRequests(step, ids(*clients))


events = st.tuples(
    st.sampled_from(["open", "close", "request", "refuse"]),
    st.integers(FIRST, FIRST + STEPS - 1),
    st.integers(0, CLIENTS - 1),
)


def tell_clients(clients, kind, step, who):
    """Clients that checked in after an event sent to single clients, or None if it was refused."""
    if kind == "open":
        said = [client.on_step(StepOpened(step)) for client in clients]
        return [int(message.clients[0]) for message in said if message is not None]
    if kind == "close":
        for client in clients:
            client.on_close(step)
    elif kind == "refuse":
        clients[who].on_refusal(step)
    else:
        clients[who].on_request(request_of(step, who), lambda: UpdateSum([0.0], 1))
    return []


def tell_fleet(fleet, kind, step, who):
    if kind == "open":
        return sorted(fleet.on_step(StepOpened(step)).clients.tolist())
    if kind == "close":
        fleet.on_close(step)
    elif kind == "refuse":
        fleet.on_refusal(step, ids(who))
    else:
        assert fleet.on_request(request_of(step, who)).tolist() == [who]
    return []


@given(drawn_slots(), st.lists(events, max_size=20), st.booleans())
def test_a_fleet_has_the_states_of_its_clients_run_one_by_one(slots, happenings, shuffled):
    schedule = schedule_of(slots, shuffled)
    fleet = Fleet(schedule)
    clients = [Client(c, slots[c]) for c in range(CLIENTS)]
    for kind, step, who in happenings:
        try:
            said = tell_clients(clients, kind, step, who)
        except RemoteProtocolError:
            # Some single clients may have changed state before another client refused.
            with pytest.raises(RemoteProtocolError):
                tell_fleet(fleet, kind, step, who)
            return
        assert tell_fleet(fleet, kind, step, who) == said
    for step in range(FIRST, FIRST + STEPS):
        for client, state in zip(schedule.at(step), fleet.states(step), strict=True):
            assert clients[client].slots[step] is state


def test_a_fleet_refuses_a_step_that_is_reopened_after_a_later_step():
    slots = [[FIRST], [FIRST + 1], [], [], []]
    fleet = Fleet(schedule_of(slots))
    for step in (FIRST, FIRST + 1):
        fleet.on_step(StepOpened(step))
    with pytest.raises(RemoteProtocolError, match=f"step {FIRST}: event 'earlier step"):
        fleet.on_step(StepOpened(FIRST))


def test_a_client_checks_in_once_despite_repeated_announcements():
    fleet = Fleet(schedule_of([[FIRST], [FIRST], [], [], []]))
    assert fleet.on_step(StepOpened(FIRST)).clients.tolist() == [0, 1]
    assert fleet.on_step(StepOpened(FIRST)).clients.tolist() == []


def test_a_fleet_that_starts_late_misses_the_earlier_steps():
    fleet = Fleet(schedule_of([[FIRST], [FIRST + 2], [], [], []]))
    fleet.on_step(StepOpened(FIRST + 2))
    assert fleet.states(FIRST) == [ClientState.MISSED]
    assert fleet.states(FIRST + 2) == [ClientState.CHECKED_IN]


def test_a_refused_request_changes_no_client_state():
    fleet = Fleet(schedule_of([[FIRST], [FIRST], [], [], []]))
    fleet.on_step(StepOpened(FIRST))
    with pytest.raises(RemoteProtocolError, match="named client 4, which did not check in"):
        fleet.on_request(request_of(FIRST, 0, 4))
    with pytest.raises(ParameterError, match="each client once"):
        fleet.on_request(request_of(FIRST, 0, 0))
    assert fleet.states(FIRST) == [ClientState.CHECKED_IN] * 2


def test_a_fleet_refuses_steps_outside_its_window():
    fleet = Fleet(schedule_of([[]] * CLIENTS))
    for step in (FIRST - 1, FIRST + STEPS):
        with pytest.raises(LocalProtocolError, match="outside this block: 10 to 13"):
            fleet.on_step(StepOpened(step))


def test_a_client_participates_only_at_the_steps_of_its_schedule():
    schedule = Schedule(FIRST, np.array([0, 0, 1, 1, 2]), np.array([0, 0]))
    client = Client(77, schedule.slots().tolist())
    assert client.slots == {FIRST + 1: ClientState.WAITING, FIRST + 3: ClientState.WAITING}


def test_a_failed_computation_never_leads_to_two_updates():
    client = Client(3, [FIRST])
    client.on_step(StepOpened(FIRST))

    def fails():
        raise OSError("out of battery")

    with pytest.raises(OSError, match="battery"):
        client.on_request(request_of(FIRST, 3), fails)
    with pytest.raises(RemoteProtocolError, match="client 3 in slot 10"):
        client.on_request(request_of(FIRST, 3), lambda: UpdateSum([0.0], 1))


def test_a_client_refuses_a_request_for_another_client():
    client = Client(3, [FIRST])
    client.on_step(StepOpened(FIRST))
    with pytest.raises(RemoteProtocolError, match="client 3 received a request"):
        client.on_request(request_of(FIRST, 4), lambda: UpdateSum([0.0], 1))


@pytest.mark.parametrize("slot", [2.5, -1, "1", True, None])
def test_steps_of_a_client_must_be_whole_numbers(slot):
    """Regression test: 0.5 was rounded to 1, and the text "12" was read as steps 1 and 2."""
    with pytest.raises(ParameterError, match="slot"):
        Client(1, [slot])
    with pytest.raises(ParameterError, match="slot"):
        Client(1, "12")
