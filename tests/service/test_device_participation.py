"""Devices on time, late, early, offline, on a bad link, and next to a copy of their state."""

import random
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
from device_world import (
    Chosen,
    Killed,
    World,
    accepted_once_each,
    posted_steps,
)
from fake_coordinator import charter_of

from turnout.core.errors import RemoteProtocolError, UnsupportedError
from turnout.protocol.messages import ClientState
from turnout.schemes import CheckIn, EveryStep, ReleaseRule, SlidingWindow
from turnout.service.contract.charter import Timing
from turnout.service.contract.wire import SignedHead, StepPhase

ONE = ReleaseRule.ONE_CLIENT
STEP = 8.0


def test_a_device_participates_in_its_drawn_steps_and_exits(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(4, 2)))
    tally = world.start(source=Chosen(2, 1))
    assert tally == {"accepted": 2}
    assert set(world.coordinator.rows) == {(3, 2), (3, 5)}
    assert world.states() == [ClientState.ANSWERED] * 2
    assert [path for _, path, _, _ in world.coordinator.requests[-2:]] == [
        "/v1/steps/5/updates",
        "/v1/status",
    ]


def test_a_device_polls_rarely_until_its_step(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(400), step_seconds=60.0))
    world.start(source=Chosen(399))
    asked = sum(path == "/v1/status" for _, path, _, _ in world.coordinator.requests)
    # 399 minutes in sleeps of 5 to 10 minutes.
    assert 399 / 10 <= asked <= 399 / 5 + 2
    assert (3, 399) in world.coordinator.rows


def test_the_requests_of_devices_in_one_step_are_spread_over_time(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(2)))
    times = []
    world.coordinator.on_request = lambda method, path, headers, body: (
        times.append(world.coordinator.at()[2]) if path.endswith("updates") else None
    )
    for client in range(8):
        world.coordinator.shift = -8.0 * client
        world._elapsed = 8.0 * client
        world.start(client, source=Chosen(1))
    assert len(times) == 8
    assert max(times) - min(times) > 0.2 * STEP * 0.75 / 2


def test_every_update_of_a_device_is_within_the_clip_norm(tmp_path):
    world = World(tmp_path, charter_of(EveryStep(4)))
    world.start(1, 2)
    lattice = world.charter.encoding
    assert len(world.coordinator.rows) == 8
    for body in world.coordinator.rows.values():
        update = lattice.decode(body)
        norm = float((update.astype(float) ** 2).sum()) ** 0.5 * lattice.step
        assert 0.5 * lattice.clip_norm < norm <= lattice.clip_norm


@pytest.mark.parametrize("participation", [CheckIn(4, 2, 0.5), SlidingWindow(2, 20), EveryStep(3)])
def test_devices_follow_every_participation(tmp_path, participation):
    world = World(tmp_path, charter_of(participation))
    world.start(*range(5))
    for client in range(5):
        expected = {(client, step) for step in world.slots(client)}
        assert {row for row in world.coordinator.rows if row[0] == client} == expected


def test_one_client_is_selected_in_a_step_and_other_clients_need_not_answer(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(2), ONE))
    tallies = world.start(*range(6))
    for step, came in world.coordinator.checked_in.items():
        assert {row for row in world.coordinator.rows if row[1] == step} == {(max(came), step)}
    assert sum(tally["accepted"] for tally in tallies) == len(world.coordinator.rows)
    assert sum(tally["passed over"] for tally in tallies) == 6 - len(world.coordinator.rows)


# -- late, early, off line -------------------------------------------------------------------


def test_a_device_that_returns_after_its_step_has_missed_the_step(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(4)))
    world._elapsed = 2 * STEP + 0.1
    tally = world.start(source=Chosen(1))
    assert tally == {"missed": 1}
    assert world.coordinator.posts == {}


@pytest.mark.parametrize("rule", [ReleaseRule.AGGREGATED, ONE])
@pytest.mark.parametrize("phase", [StepPhase.ANSWERS, StepPhase.CLOSED])
def test_a_device_that_returns_in_a_closed_phase_has_missed_the_step(tmp_path, rule, phase):
    world = World(tmp_path, charter_of(CheckIn(4), rule))
    world._elapsed = STEP + (0.75 * STEP if phase is StepPhase.ANSWERS else 0.95 * STEP)
    assert world.start(source=Chosen(1)) == {"missed": 1}
    assert world.coordinator.posts == {}
    assert not world.coordinator.checked_in


def test_a_device_that_returns_after_the_run_has_missed_all_steps(tmp_path):
    world = World(tmp_path)
    world._elapsed = 100 * STEP
    assert world.start() == {"missed": 2}


def test_a_late_update_is_lost_and_later_steps_continue(tmp_path):
    def slow(request):
        return 3 * STEP if request.url.path.endswith("/1/updates") else None

    world = World(tmp_path, charter_of(CheckIn(3, 2)), slow)
    assert world.start(source=Chosen(1, 2)) == {"late": 1, "accepted": 1}
    assert set(world.coordinator.rows) == {(3, 5)}
    assert world.memory().answers == {1: "late", 5: "accepted"}


def test_a_device_retries_an_update_that_arrived_too_early(tmp_path):
    """The fake coordinator reports a status that is ahead of its step."""
    world = World(tmp_path, charter_of(CheckIn(3), step_seconds=60.0))
    early = []

    def ahead(method, path, headers, body):
        if path.endswith("/updates"):
            early.append(body)
            world.coordinator.shift = 0.0 if len(early) > 2 else -60.0
        else:
            world.coordinator.shift = 0.0

    world.coordinator.on_request = ahead
    assert world.start(source=Chosen(2)) == {"accepted": 1}
    assert len(early) == 3
    assert len(set(early)) == 1


def test_a_device_that_is_offline_for_a_while_misses_only_those_steps(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(4, 2)))
    world.wire.fault = lambda request: (
        "unheard" if STEP <= world._now() < 5 * STEP and world.coordinator.keys else None
    )
    assert world.start(source=Chosen(2, 3)) == {"missed": 1, "accepted": 1}
    assert set(world.coordinator.rows) == {(3, 7)}


def test_a_device_that_stays_offline_gives_up_after_its_patience(tmp_path):
    world = World(tmp_path, fault=lambda request: "unheard")
    with pytest.raises(
        RemoteProtocolError, match="no usable answer for too long: the coordinator does not answer"
    ):
        world.start()
    assert world.states() == [ClientState.WAITING] * 2


def test_a_retry_sends_the_same_bytes_with_a_new_nonce(tmp_path):
    tries = []

    def busy(request):
        if not request.url.path.endswith("/updates"):
            return None
        tries.append((dict(request.headers), request.content))
        return "busy" if len(tries) < 4 else None

    world = World(tmp_path, charter_of(CheckIn(2), step_seconds=60.0), busy)
    assert world.start() == {"accepted": 1}
    nonces = {headers["turnout-nonce"] for headers, _ in tries}
    assert len(nonces) == len(tries) == 4
    assert len({body for _, body in tries}) == 1


def test_pauses_between_retries_grow_and_respect_retry_after(tmp_path):
    times = []

    def busy(request):
        times.append(world._now())
        return "busy" if len(times) < 8 else None

    world = World(tmp_path, fault=busy)
    world.start()
    pauses = [after - before for before, after in pairwise(times[:8])]
    assert all(pause >= 1.0 for pause in pauses)
    assert pauses[-1] > 4.0


# -- drops, duplicates, delays ---------------------------------------------------------------


@pytest.mark.parametrize("rule", [ReleaseRule.AGGREGATED, ONE])
@pytest.mark.parametrize("seed", range(12))
def test_no_link_failure_makes_a_device_participate_twice(tmp_path, rule, seed):
    dice = random.Random(seed)

    def bad(request):
        fault = dice.choice([*[None] * 5, "unheard", "unanswered", "twice", "busy", 0.0])
        return dice.expovariate(0.5) if fault == 0.0 else fault

    world = World(tmp_path, charter_of(CheckIn(4, 2), rule, step_seconds=120.0), bad, seed)
    clients = range(3)
    tallies = world.start(*clients)
    for client in clients:
        accepted_once_each(world, client)
    assert all(tally.total() == 2 for tally in tallies)
    by_window = [(client, step // 4) for client, step in world.coordinator.rows]
    assert len(set(by_window)) == len(by_window)
    assert by_window


@pytest.mark.parametrize("rule", [ReleaseRule.AGGREGATED, ONE])
@pytest.mark.parametrize("heard", [False, True])
def test_a_device_killed_while_sending_resends_the_same_bytes(tmp_path, rule, heard):
    def killing(request):
        if request.url.path.endswith("/updates") and not killed:
            killed.append(request.content)
            if not heard:
                raise Killed
            return "unanswered"
        if killed and len(killed) == 1 and heard:
            killed.append(b"")
            raise Killed
        return None

    killed = []
    # A start takes one second; the rest of the phase must always be longer.
    timing = Timing(800.0, 400.0, 300.0, 0.3)
    world = World(tmp_path, replace(charter_of(CheckIn(2), rule), timing=timing), killing)
    with pytest.raises(Killed):
        world.start()
    assert world.states() == [ClientState.ANSWERED]
    assert world.memory().answers == {}
    assert world.start() == {"accepted": 1}
    assert list(world.coordinator.rows.values()) == [killed[0]]


def test_a_restarted_device_resends_its_stored_message(tmp_path):
    """The update may have arrived; another update for the same step would be a second answer."""
    world, tried = World(tmp_path, charter_of(CheckIn(2))), []

    def killing(request):
        if request.url.path.endswith("/updates"):
            tried.append(request.content)
            raise Killed

    world.wire.fault = killing
    with pytest.raises(Killed):
        world.start(salt=0)
    world.wire.fault = lambda request: None
    assert world.start(salt=1) == {"accepted": 1}
    assert list(world.coordinator.rows.values()) == tried


# -- copies ----------------------------------------------------------------------------------


def copied(world):
    """Second state file with the same contents, as on a cloned disk."""
    shutil.copy(world.path(), world.path(name="-copy"))


def draw_only(world):
    """Let a device draw and store its steps, and nothing more."""
    world.wire.fault = lambda request: (_ for _ in ()).throw(Killed())
    with pytest.raises(Killed):
        world.start()
    world.wire.fault = lambda request: None


def test_a_cloned_device_with_the_same_records_sends_identical_bytes(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(3, 2)))
    draw_only(world)
    copied(world)
    world.start()
    world._elapsed = 0.0
    world.coordinator.shift = 0.0
    world.start(name="-copy")
    assert posted_steps(world.coordinator) == world.slots()
    for bodies in world.coordinator.posts.values():
        assert len(bodies) == 2
        assert len(set(bodies)) == 1
    assert world.memory(name="-copy").tally() == {"accepted": 2}


def test_a_cloned_device_with_other_records_is_refused(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(3)))
    draw_only(world)
    copied(world)
    world.start()
    rows = dict(world.coordinator.rows)
    world._elapsed = 0.0
    assert world.start(name="-copy", salt=1) == {"conflict": 1}
    assert world.coordinator.rows == rows


def test_a_cloned_device_that_starts_one_step_later_sends_no_second_update(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(3)))
    world.start(source=Chosen(0))
    shutil.copy(world.path(), world.path(name="-copy"))
    world._elapsed = 1.5 * STEP
    world.start(name="-copy")
    assert [len(bodies) for bodies in world.coordinator.posts.values()] == [1]


# -- refusals --------------------------------------------------------------------------------


def test_a_device_whose_key_is_rejected_at_a_step_misses_only_that_step(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(2, 2)))
    world.coordinator.on_request = lambda method, path, headers, body: (
        world.coordinator.keys.clear() if path.endswith("updates") and body not in seen else None
    )
    seen = []
    assert world.start() == {"unknown": 2}
    assert world.coordinator.rows == {}


@pytest.mark.parametrize("what", ["check_ins", "requests", "updates"])
def test_a_device_that_is_refused_in_any_phase_misses_only_that_step(tmp_path, what, mutate):
    world = World(tmp_path, charter_of(CheckIn(2, 2), ONE))

    def refuse(client, step, body):
        return world.coordinator._receipt(world_answer, client, step)

    from turnout.service.contract.wire import WireAnswer

    for world_answer in (WireAnswer.REFUSED, WireAnswer.LATE, WireAnswer.CONFLICT):
        world = World(tmp_path / world_answer, charter_of(CheckIn(2, 2), ONE))
        mutate(world.coordinator, f"_{what}", refuse)
        assert world.start() == {world_answer.value: 2}
        assert world.coordinator.rows == {}


# -- cover -----------------------------------------------------------------------------------


def shapes(coordinator, steps):
    """Requests of each step as an observer sees them: only their lengths."""
    found = {step: [] for step in range(steps)}
    now = 0
    for method, path, headers, body in coordinator.requests[2:]:
        parts = path.split("/")
        now = int(parts[3]) if parts[2] in ("models", "steps") else now
        lengths = sorted((name, len(value)) for name, value in headers.items())
        if parts[2] in ("models", "steps"):
            found[now].append((method, len(path), lengths, len(body)))
    return list(found.values())


def test_with_dummy_traffic_all_steps_have_the_same_requests(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(4, 2)))
    assert world.start(cover=True) == {"accepted": 2}
    seen = shapes(world.coordinator, 8)
    assert all(len(step) == 2 for step in seen)
    assert all(step == seen[0] for step in seen)
    assert set(world.coordinator.rows) == {(3, step) for step in world.slots()}
    assert set(world.coordinator.covers) == {(3, s) for s in set(range(8)) - world.slots()}
    plain = World(tmp_path / "plain", charter_of(CheckIn(4, 2)))
    plain.start()
    assert sum(map(bool, shapes(plain.coordinator, 8))) == 2


def test_dummy_traffic_that_cannot_hide_participation_is_refused(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(4), ONE))
    with pytest.raises(UnsupportedError, match="would still reveal"):
        world.start(cover=True)
    assert [path for _, path, _, _ in world.coordinator.requests] == ["/v1/charter"]


def test_signed_requests_contain_the_last_known_ledger_head(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(4, 2)))
    world.start(source=Chosen(1, 3))
    heads = [SignedHead.parsed(text).head.steps for text in world.coordinator.heads[1:]]
    assert world.coordinator.heads[0] == ""
    assert heads == [1, 7]
