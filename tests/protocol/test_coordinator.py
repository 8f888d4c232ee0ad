import numpy as np
import pytest
from protocol_driver import (
    check_in,
    coordinator,
    ids,
    no_noise,
    run_step,
    source,
    std_itself,
    updates,
)

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.protocol.messages import CheckIns, CoordinatorState, UpdateRequests, Updates, Verdict
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    KSubset,
    PoissonSampling,
    ReleaseRule,
    SlidingWindow,
)

ACCEPTED, DUPLICATE, OUTSIDE = Verdict


def close(machine):
    machine.close_check_ins(source())
    return machine.close_step(no_noise)


def test_a_client_is_admitted_once_in_each_window():
    machine = coordinator(participation=CheckIn(window=2, windows=2))
    verdicts = []
    for _ in range(4):
        machine.open_step()
        verdicts.append(check_in(machine, 3).verdicts.tolist())
        close(machine)
    assert verdicts == [[ACCEPTED], [DUPLICATE], [ACCEPTED], [DUPLICATE]]


def test_an_invalid_check_in_of_one_client_does_not_affect_other_clients():
    machine = coordinator()
    machine.open_step()
    check_in(machine, 5)
    receipt = check_in(machine, 7, 5, 2, 7)
    assert receipt.verdicts.tolist() == [ACCEPTED, DUPLICATE, ACCEPTED, DUPLICATE]
    assert receipt.accepted.tolist() == [7, 2]
    assert receipt.refused.tolist() == [5, 7]
    assert machine.close_check_ins(source()).clients.tolist() == [2, 5, 7]


def test_every_step_participation_admits_a_client_once_per_step():
    for participation in (EveryStep(3), PoissonSampling(0.5, 3)):
        machine = coordinator(participation=participation)
        for _ in range(3):
            machine.open_step()
            assert check_in(machine, 1, 1).verdicts.tolist() == [ACCEPTED, DUPLICATE]
            close(machine)


def test_k_subset_participation_admits_a_client_at_k_steps_per_window():
    machine = coordinator(participation=KSubset(window=4, picks=2, windows=2))
    verdicts = []
    for _ in range(8):
        machine.open_step()
        verdicts.append(check_in(machine, 1, 1).verdicts[0])
        close(machine)
    assert verdicts == [ACCEPTED, ACCEPTED, DUPLICATE, DUPLICATE] * 2


def test_sliding_windows_admit_a_client_only_within_its_window():
    # Slots 0…5, windows of 3, two clients wake a slot: step s is slot s + 2, so that in it
    # clients of slots s, s + 1, s + 2 may participate, that is clients 2s … 2s + 5.
    participation = SlidingWindow(window=3, slots=6, clients_per_slot=2)
    machine = coordinator(participation=participation, capacity=12)
    for step in range(4):
        expected = [ACCEPTED if 2 * step <= c < 2 * step + 6 else OUTSIDE for c in range(12)]
        fresh = coordinator(participation=participation, capacity=12, first_step=step)
        fresh.open_step()
        assert check_in(fresh, *range(12)).verdicts.tolist() == expected
    machine.open_step()
    check_in(machine, 5)
    close(machine)
    machine.open_step()
    assert check_in(machine, 5).verdicts.tolist() == [DUPLICATE]


def test_a_client_is_admitted_only_at_steps_where_its_trace_is_available():
    available = np.array([[1, 0, 1], [0, 0, 1]], bool)
    machine = coordinator(participation=AvailabilityCheckIn(available, window=2))
    verdicts = []
    for _ in range(3):
        machine.open_step()
        verdicts.append(check_in(machine, 0, 1, 2).verdicts.tolist())
        close(machine)
    assert verdicts == [
        [ACCEPTED, OUTSIDE, OUTSIDE],
        [OUTSIDE, OUTSIDE, OUTSIDE],
        [ACCEPTED, ACCEPTED, OUTSIDE],
    ]


def test_late_and_early_check_ins_are_refused_and_not_recorded():
    machine = coordinator()
    run_step(machine, {})
    machine.open_step()
    for step, word in [(0, "late"), (2, "early"), (-1, "late")]:
        with pytest.raises(RemoteProtocolError, match=f"step {step} is {word}: step 1"):
            machine.check_in(CheckIns(step, ids(4)))
    assert check_in(machine, 4).verdicts.tolist() == [ACCEPTED]


def test_a_check_in_message_that_names_an_unknown_client_is_refused_entirely():
    machine = coordinator(capacity=10)
    machine.open_step()
    with pytest.raises(RemoteProtocolError, match="client 10 checked in, but ids end at 9"):
        check_in(machine, 1, 10)
    assert check_in(machine, 1).verdicts.tolist() == [ACCEPTED]


@pytest.mark.parametrize("clients", [np.array([-1]), np.array([[1]]), np.array([0.5])])
@pytest.mark.parametrize("message", [CheckIns, UpdateRequests])
def test_messages_with_invalid_client_numbers_are_refused(message, clients):
    with pytest.raises(ParameterError, match="clients"):
        message(0, clients)


def test_an_update_message_lists_as_many_clients_as_it_sums():
    with pytest.raises(ParameterError, match=r"sum.count = 2: expected 1"):
        Updates(0, ids(3), UpdateSum([1.0], 2))


def collecting(release=ReleaseRule.AGGREGATED, **options):
    machine = coordinator(release, **options)
    machine.open_step()
    check_in(machine, 1, 4, 6)
    machine.close_check_ins(source())
    return machine


BAD_UPDATES = {
    "unasked": (updates(0, {2: [0, 0]}), "client 2 sent an update that was not requested"),
    "unasked, beyond all": (
        updates(0, {9: [0, 0]}),
        "client 9 sent an update that was not requested",
    ),
    "one of two unasked": (
        updates(0, {1: [0, 0], 5: [0, 0]}),
        "client 5 sent an update that was not requested",
    ),
    "twice in one message": (
        Updates(0, ids(4, 4), UpdateSum([0, 0], 2)),
        "a client sent a second update",
    ),
    "early": (updates(1, {1: [0, 0]}), "update for step 1 is early: step 0"),
    "late": (updates(-1, {1: [0, 0]}), "update for step -1 is late: step 0"),
    "too long": (
        Updates(0, ids(1), UpdateSum([0, 0, 0], 1)),
        "update of 3 coordinates: expected 2",
    ),
    "NaN": (updates(0, {1: [np.nan, 0]}), "not finite"),
    "infinite": (updates(0, {1: [0, -np.inf]}), "not finite"),
    "not clipped": (updates(0, {1: [1.0, 0.01]}), "one of them is not clipped"),
    "sum not clipped": (updates(0, {1: [1.0, 1.0], 4: [1.0, 1.0]}), "norm of 2 updates"),
    "noised already": (updates(0, {1: [0, 0]}, noised=1), "has noise"),
}


@pytest.mark.parametrize("kind", BAD_UPDATES)
def test_invalid_updates_are_refused_and_change_nothing(kind):
    message, reason = BAD_UPDATES[kind]
    machine = collecting()
    with pytest.raises(RemoteProtocolError, match=reason):
        machine.receive(message)
    assert machine.state is CoordinatorState.COLLECTING
    machine.receive(updates(0, {1: [0.25, 0], 4: [0, 0], 6: [0, 0.5]}))
    assert machine.close_step(no_noise).direction.tolist() == [0.125, 0.25]


def test_a_second_update_of_a_client_is_refused():
    machine = collecting()
    machine.receive(updates(0, {4: [0.5, 0]}))
    with pytest.raises(RemoteProtocolError, match="a client sent a second update"):
        machine.receive(updates(0, {1: [0, 0], 4: [0.5, 0]}))
    machine.receive(updates(0, {1: [0.5, 0]}))
    assert machine.close_step(no_noise).direction.tolist() == [0.5, 0]


def test_float32_updates_may_exceed_the_clip_norm_only_by_rounding():
    at_the_rim = np.float32([0.6, 0.8]) * np.float32(1 + 5e-7)
    machine = collecting()
    machine.receive(updates(0, {1: at_the_rim}))
    with pytest.raises(RemoteProtocolError, match="not clipped"):
        machine.receive(updates(0, {4: [0.6001, 0.8]}))


def test_updates_are_accepted_in_any_number_of_messages():
    vectors = {1: [0.5, 0.25], 4: [0.25, -0.5], 6: [-0.125, 1.0 / 8]}
    whole, parted = collecting(), collecting()
    whole.receive(updates(0, vectors))
    for client in (6, 1, 4):
        parted.receive(updates(0, {client: vectors[client]}))
    first, second = whole.close_step(std_itself), parted.close_step(std_itself)
    np.testing.assert_array_equal(first.direction, second.direction)
    assert first.served == second.served == 3


def test_a_restarted_coordinator_continues_the_stored_window():
    before = coordinator(participation=CheckIn(window=4))
    run_step(before, {1: [0, 0], 2: [0, 0]})
    remembered = [CheckIns(0, ids(1, 2))]
    after = coordinator(participation=CheckIn(window=4), first_step=1, admitted=remembered)
    after.open_step()
    assert after.step == 1
    assert check_in(after, 1, 2, 3).verdicts.tolist() == [DUPLICATE, DUPLICATE, ACCEPTED]


@pytest.mark.parametrize("first", [4, 5, 6, 7])
def test_a_restarted_coordinator_knows_the_used_check_ins(first):
    """Counts of used check-ins restore the same state as the list of the steps of each client."""
    participation = KSubset(window=4, picks=2, windows=2)
    came = {4: [1, 2], 5: [2, 3], 6: [3]}
    earlier = [clients for step, clients in came.items() if step < first]
    used = np.bincount([client for clients in earlier for client in clients], minlength=4)
    clients = np.flatnonzero(used)
    turns = (clients, used[clients].astype(np.int64))
    by_turns = coordinator(participation=participation, first_step=first, used=turns)
    steps = [CheckIns(step, ids(*clients)) for step, clients in came.items() if step < first]
    by_steps = coordinator(participation=participation, first_step=first, admitted=steps)
    for _ in range(8 - first):
        verdicts = []
        for machine in (by_turns, by_steps):
            machine.open_step()
            verdicts.append(check_in(machine, 0, 1, 2, 3, 3).verdicts.tolist())
            close(machine)
        assert verdicts[0] == verdicts[1]
    if first < 7:
        return
    assert verdicts[0][1:] == [ACCEPTED, DUPLICATE, DUPLICATE, DUPLICATE]


@pytest.mark.parametrize("used", [([1], [0]), ([1], [2]), ([99], [1]), ([-1], [1]), ([1, 2], [1])])
def test_a_restarted_coordinator_refuses_impossible_used_check_ins(used):
    turns = tuple(np.array(column, dtype=np.int64) for column in used)
    with pytest.raises(ParameterError, match=r"used|clients"):
        coordinator(participation=CheckIn(window=4), first_step=1, used=turns)


def test_a_restarted_coordinator_continues_a_partial_minibatch():
    rule = ReleaseRule.ONE_CLIENT
    whole = coordinator(rule, minibatch=2)
    run_step(whole, {1: [0.5, 0]})
    again = coordinator(rule, minibatch=2, first_step=1, mechanism_state=whole.mechanism_state)
    expected = run_step(whole, {2: [0, 0.5]}).direction
    assert expected is not None
    np.testing.assert_array_equal(run_step(again, {2: [0, 0.5]}).direction, expected)


def test_a_coordinator_started_after_the_last_step_is_finished():
    assert coordinator(first_step=8).state is CoordinatorState.FINISHED


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"first_step": 9}, "first_step"),
        ({"first_step": -1}, "first_step"),
        ({"dimension": 0}, "dimension"),
        ({"capacity": 0}, "capacity"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": np.nan}, "clip_norm"),
        ({"expected_check_ins": None}, "expected_check_ins"),
        ({"expected_check_ins": 0.0}, "expected_check_ins"),
        ({"minibatch": 2}, "minibatch = 2: expected 1 with release rule 'aggregated'"),
        ({"minibatch": 0}, "minibatch"),
        ({"mechanism_state": {"pending": np.zeros(2)}}, "pending"),
    ],
)
def test_coordinator_parameters_outside_their_domain_are_refused(options, name):
    with pytest.raises(ParameterError, match=name):
        coordinator(**options)


@pytest.mark.parametrize(
    "pending", [np.zeros(3), np.array([np.nan, 0]), np.zeros(2, np.float32), None]
)
def test_a_coordinator_refuses_the_state_of_another_mechanism(pending):
    state = {} if pending is None else {"pending": pending}
    with pytest.raises(ParameterError, match="pending"):
        coordinator(ReleaseRule.ONE_CLIENT, first_step=1, mechanism_state=state)


def test_the_repr_of_a_release_hides_its_counts():
    release = run_step(coordinator(), {1: [0, 0]})
    assert repr(release) == "Release(step=0, skipped=False)"
