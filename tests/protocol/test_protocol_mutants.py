"""Each guarantee of the coordinator as a check, and mutated coordinators that the check detects."""

from dataclasses import replace

import numpy as np
import pytest
from protocol_driver import (
    check_in,
    coordinator,
    ids,
    no_noise,
    run_step,
    source,
    updates,
)

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import RemoteProtocolError
from turnout.protocol import messages
from turnout.protocol.client import Client
from turnout.protocol.coordinator import RULES, Admissions, Coordinator
from turnout.protocol.mechanisms import Aggregated, Averaged, GaussianMechanism, OneClient, Released
from turnout.protocol.messages import StepOpened, UpdateRequests, Verdict
from turnout.schemes import KSubset, ReleaseRule, SlidingWindow
from turnout.schemes.normal_form import KOf, Staggered

AGGREGATED, ONE_CLIENT, AVERAGED = ReleaseRule


def every_step_carries_noise():
    """Check that AGGREGATED and ONE_CLIENT add noise σ·C whichever clients participate."""
    for rule, divisor in [(AGGREGATED, 2.0), (ONE_CLIENT, 1.0)]:
        for come in ({}, {1: [0.0, 0.0]}):
            release = run_step(coordinator(rule, sigma=3.0), come)
            assert release.direction is not None
            assert release.direction.tolist() == [3.0 / divisor] * 2


def the_divisor_is_public():
    machine = coordinator(AGGREGATED)
    for come in ({1: [1.0, 0.0]}, {2: [1.0, 0.0], 3: [0.0, 0.0], 4: [0.0, 0.0]}):
        assert run_step(machine, come, no_noise).direction.tolist() == [0.5, 0.0]


def one_client_serves_one():
    machine = coordinator(ONE_CLIENT)
    machine.open_step()
    check_in(machine, 1, 2, 3)
    assert machine.close_check_ins(source()).clients.size == 1


def every_averaged_update_is_noised():
    come = {c: [0.0, 0.0] for c in range(4)}
    assert run_step(coordinator(AVERAGED), come).direction.tolist() == [0.5, 0.5]


def a_client_participates_once_per_window():
    machine = coordinator()
    for expected in (Verdict.ACCEPTED, Verdict.DUPLICATE):
        machine.open_step()
        assert check_in(machine, 1).verdicts.tolist() == [expected]
        machine.close_check_ins(source())
        machine.close_step(no_noise)
    other = coordinator()
    other.open_step()
    assert check_in(other, 2, 2).verdicts.tolist() == [Verdict.ACCEPTED, Verdict.DUPLICATE]


def k_subset_admits_at_most_k_steps():
    machine = coordinator(participation=KSubset(window=4, picks=2))
    came = 0
    for _ in range(4):
        machine.open_step()
        came += check_in(machine, 1).accepted.size
        machine.close_check_ins(source())
        machine.close_step(no_noise)
    assert came == 2


def sliding_clients_keep_to_their_window():
    machine = coordinator(participation=SlidingWindow(window=2, slots=5))
    machine.open_step()  # slot 1: clients 0 and 1 may participate
    outside = Verdict.OUTSIDE_ITS_WINDOW
    assert check_in(machine, 0, 1, 2).verdicts.tolist() == [0, 0, outside]


def only_requested_clients_send_one_update():
    for wrong in [(5,), (1, 5)]:
        machine = coordinator()
        machine.open_step()
        check_in(machine, 1)
        machine.close_check_ins(source())
        with pytest.raises(RemoteProtocolError):
            machine.receive(updates(0, {c: [0.0, 0.0] for c in wrong}))
        machine.receive(updates(0, {1: [0.0, 0.0]}))
        with pytest.raises(RemoteProtocolError):
            machine.receive(updates(0, {1: [0.0, 0.0]}))


def only_clipped_finite_updates_count():
    for vector in ([np.nan, 0.0], [np.inf, 0.0], [1.1, 0.0]):
        machine = coordinator()
        machine.open_step()
        check_in(machine, 1)
        machine.close_check_ins(source())
        with pytest.raises(RemoteProtocolError):
            machine.receive(updates(0, {1: vector}))


def a_device_sends_one_update_per_step():
    client = Client(1, [0])
    client.on_step(StepOpened(0))
    client.on_request(UpdateRequests(0, ids(1)), lambda: UpdateSum([0.0], 1))
    with pytest.raises(RemoteProtocolError):
        client.on_request(UpdateRequests(0, ids(1)), lambda: UpdateSum([0.0], 1))


def a_late_device_sends_nothing():
    client = Client(1, [0])
    assert client.on_step(StepOpened(1)) is None
    assert client.on_step(StepOpened(0)) is None


GUARANTEES = [
    every_step_carries_noise,
    the_divisor_is_public,
    one_client_serves_one,
    every_averaged_update_is_noised,
    a_client_participates_once_per_window,
    k_subset_admits_at_most_k_steps,
    sliding_clients_keep_to_their_window,
    only_requested_clients_send_one_update,
    only_clipped_finite_updates_count,
    a_device_sends_one_update_per_step,
    a_late_device_sends_nothing,
]


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda check: check.__name__)
def test_the_unmutated_coordinator_keeps_each_guarantee(guarantee):
    guarantee()


def silent_when_empty(original):
    def release(self, total, state, step, noise):
        if total.count == 0:
            return Released(total.total, np.zeros(total.dimension)), state
        return original(self, total, state, step, noise)

    return release


def skips_when_empty(original):
    def release(self, total, state, step, noise):
        if total.count == 0:
            return Released(None, None, skipped=True), state
        return original(self, total, state, step, noise)

    return release


def divides_by_the_count(self, total, state, step, noise):
    noisy = total.total + noise(self.deviation, total.dimension)
    return Released(noisy, noisy / total.count), state


def noise_once_for_all(self, total, state, step, noise):
    noisy = total.total + noise(self.deviation, total.dimension)
    return Released(noisy, noisy / total.count), state


def noise_on_the_mean(self, total, state, step, noise):
    mean = total.total / total.count
    noisy = mean + noise(self.deviation, total.dimension)
    return Released(noisy, noisy), state


def forgets_the_window(original):
    def has_quota(self, *place):
        self._window_stamp[:] = 0
        return original(self, *place)

    return has_quota


def window_one_short(original):
    def init(self, participation, capacity):
        original(self, participation, capacity)
        self._span = self._span._replace(block_steps=max(1, participation.window - 3))

    return init


def one_pick_more(mutate):
    rule = replace(RULES.rows[KOf], quota=lambda draw: draw.picks + 1)
    mutate(RULES, "rows", {**RULES.rows, KOf: rule})


def any_client_at_any_step(mutate):
    rule = replace(RULES.rows[Staggered], eligible=None)
    mutate(RULES, "rows", {**RULES.rows, Staggered: rule})


def table_with(table, state, event, cell):
    """Copy of a state table in which one entry is changed."""
    return {s: {**row, event: cell} if s is state else row for s, row in table.items()}


def second_answer(mutate):
    answered = messages.ClientState.ANSWERED
    broken = table_with(messages.CLIENT_TABLE, answered, messages.ClientEvent.REQUESTED, answered)
    mutate("turnout.protocol.client", "CLIENT_TABLE", broken)


def late_check_in(mutate):
    waiting = messages.ClientState.WAITING
    checked_in = messages.ClientState.CHECKED_IN
    broken = table_with(messages.CLIENT_TABLE, waiting, messages.ClientEvent.SLOT_PAST, checked_in)
    mutate("turnout.protocol.client", "CLIENT_TABLE", broken)


def replaced(owner, name, make):
    """Mutation that replaces one method of ``owner``."""
    return lambda mutate: mutate(owner, name, make(getattr(owner, name)))


def always(value):
    return lambda original: value


MUTANTS = {
    "aggregated: no noise on an empty step": (
        every_step_carries_noise,
        replaced(Aggregated, "release", silent_when_empty),
    ),
    "aggregated: an empty step is skipped": (
        every_step_carries_noise,
        replaced(Aggregated, "release", skips_when_empty),
    ),
    "one-client: no dummy": (
        every_step_carries_noise,
        replaced(OneClient, "release", skips_when_empty),
    ),
    "one-client: dummy without noise": (
        every_step_carries_noise,
        replaced(OneClient, "release", silent_when_empty),
    ),
    "aggregated: divided by the true count": (
        the_divisor_is_public,
        replaced(Aggregated, "release", always(divides_by_the_count)),
    ),
    "one-client: serves everybody": (
        one_client_serves_one,
        replaced(OneClient, "select", always(lambda self, arrived, source: arrived)),
    ),
    "one-client: serves two": (
        one_client_serves_one,
        replaced(OneClient, "select", always(lambda self, arrived, source: arrived[:2])),
    ),
    "averaged: noise not scaled by the root of the count": (
        every_averaged_update_is_noised,
        replaced(Averaged, "release", always(noise_once_for_all)),
    ),
    "averaged: noise not divided": (
        every_averaged_update_is_noised,
        replaced(Averaged, "release", always(noise_on_the_mean)),
    ),
    "duplicates accepted": (
        a_client_participates_once_per_window,
        replaced(Admissions, "_has_quota", forgets_the_window),
    ),
    "acceptance not recorded": (
        a_client_participates_once_per_window,
        replaced(Admissions, "_record", always(lambda self, clients, step, stamp: None)),
    ),
    "window too short": (
        a_client_participates_once_per_window,
        replaced(Admissions, "__init__", window_one_short),
    ),
    "one pick too many": (k_subset_admits_at_most_k_steps, one_pick_more),
    "sliding: anybody may come": (sliding_clients_keep_to_their_window, any_client_at_any_step),
    "updates of anybody": (
        only_requested_clients_send_one_update,
        replaced(
            Coordinator,
            "_places",
            always(lambda self, clients: np.zeros(clients.size, np.int64)),
        ),
    ),
    "updates not checked": (
        only_clipped_finite_updates_count,
        replaced(GaussianMechanism, "require", always(lambda self, total: None)),
    ),
    "a device answers twice": (a_device_sends_one_update_per_step, second_answer),
    "a late device comes anyway": (a_late_device_sends_nothing, late_check_in),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutated_coordinator_is_detected(name, mutate):
    guarantee, mutant = MUTANTS[name]
    mutant(mutate)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        guarantee()
