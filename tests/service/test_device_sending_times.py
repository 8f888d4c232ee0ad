"""Sending times of a device: drawn before its records are read, whatever the records are.

The test controls the clock. A workshop determines how long computing takes and how it ends. All
requests must be sent at the same times, in the same order and with the same lengths.
"""

import asyncio
import os
import signal
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from device_world import Chosen, Killed, World, at_once
from fake_coordinator import charter_of
from forked import HANGS_SECONDS
from graph_samples import GRAPH
from test_device_messages import message_charter
from virtual_time import virtually

from turnout.core.errors import ParameterError
from turnout.schemes import CheckIn, EveryStep, ReleaseRule
from turnout.service.contract.charter import Timing
from turnout.service.device import Pace
from turnout.service.device.working import UnfinishedError, in_a_process
from turnout.service.graphs.sandbox import Sandbox

TIMING = Timing(60.0, 30.0, 20.0, 8.0)
RULES = [ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT]


def failing(after):
    async def workshop(work, seconds):
        await asyncio.sleep(after * seconds)
        raise UnfinishedError("it failed")

    return workshop


def taking(part):
    async def workshop(work, seconds):
        await asyncio.sleep(part * seconds)
        return work()

    return workshop


async def broken(work, seconds):
    return np.zeros(2)  # a result of another shape


async def infinite(work, seconds):
    return np.full(6, np.nan)


WORKSHOPS = {
    "fast": at_once,
    "slow": taking(0.99),
    "too slow": failing(1.0),
    "killed": failing(0.3),
    "failed": failing(0.0),
    "another shape": broken,
    "not a number": infinite,
}


def after_enrolment(workshop):
    """Workshop that is used only after enrolment, so that the trial computation succeeds."""
    tried = set()

    async def after_one(work, seconds):
        client = work.args[1]
        if client in tried:
            return await workshop(work, seconds)
        tried.add(client)
        return work()

    return after_one


def seen(folder, workshop, *, clients=(3,), charter=None, **started):
    """(time, method, path, length, client) of all requests, and the simulation."""
    charter = charter or charter_of(EveryStep(3))
    world = World(folder, replace(charter, timing=TIMING))
    world.workshop, found = after_enrolment(workshop), []
    world.coordinator.on_request = lambda method, path, headers, body: found.append(
        (round(world._now(), 6), method, path, len(body), headers.get("turnout-client"))
    )
    world.start(*clients, **started)
    return found, world


def requests_are_sent_at_a_previously_drawn_time(tmp_path):
    """Check for each rule, and with dummy traffic, that requests do not depend on computing."""
    for rule, cover in ((RULES[0], False), (RULES[0], True), (RULES[1], False)):
        folder, charter = tmp_path / f"{rule.value}-{cover}", charter_of(CheckIn(3), rule)
        due, _ = seen(folder / "due", at_once, charter=charter, cover=cover)
        sent = sum(path.endswith(("updates", "covered")) for _, _, path, *_ in due)
        assert sent == (3 if cover else 1)
        for before, (left, _, path, *_) in pairwise([(0.0, "", ""), *due]):
            if path.endswith(("updates", "covered")):  # not when computing ends, which is later
                assert left - before[0] > TIMING.compute_seconds + 0.9
        for name, workshop in WORKSHOPS.items():
            assert seen(folder / name, workshop, charter=charter, cover=cover)[0] == due, name


def the_sending_time_is_stored_before_records_are_read(tmp_path):
    """Check that the sending time is stored before computing begins, and is kept exactly."""
    for rule in RULES:
        world = World(tmp_path / rule.value, replace(charter_of(EveryStep(2), rule), timing=TIMING))
        drawn, left = {}, {}

        async def look(work, seconds, world=world, drawn=drawn):
            memory = world.memory()
            assert len(memory.moments) == 1
            assert not memory.messages
            drawn.update(memory.moments)
            return await taking(0.5)(work, seconds)

        def note(method, path, headers, body, world=world, left=left):
            if path.endswith("/updates"):
                left[int(path.split("/")[3])] = world.coordinator.at()[2]

        world.workshop, world.coordinator.on_request = after_enrolment(look), note
        world.start()
        assert set(drawn) == {0, 1}
        assert left == pytest.approx(drawn)
        phase = TIMING.update_seconds(asks_one=rule is RULES[1])
        assert all(phase / 8 <= before <= phase - 9.0 for before in drawn.values())


def test_a_failed_update_is_sent_as_zeros_at_the_same_time(tmp_path):
    for name, workshop in WORKSHOPS.items():
        _, world = seen(tmp_path / name, workshop)
        zero = bytes(world.charter.encoding.encoded_size)
        computed = name in ("fast", "slow")
        assert len(world.coordinator.rows) == 3
        assert all((body != zero) is computed for body in world.coordinator.rows.values()), name


def test_a_failed_update_becomes_a_randomized_zero_vector_under_local_trust(tmp_path):
    charter = message_charter(participation=CheckIn(4))
    due, _ = seen(tmp_path / "fast", at_once, charter=charter)
    for name in ("killed", "too slow"):
        found, world = seen(tmp_path / name, WORKSHOPS[name], charter=charter)
        assert found == due
        (body,) = world.coordinator.rows.values()
        charter.encoding.decode(body)


def test_a_slow_device_does_not_delay_other_devices_of_its_process(tmp_path):
    async def slow_for_one(work, seconds):
        return await (failing(1.0) if work.args[1] == 1 else at_once)(work, seconds)

    clients = (0, 1, 2)
    due, _ = seen(tmp_path / "fast", at_once, clients=clients)
    assert seen(tmp_path / "slow", slow_for_one, clients=clients)[0] == due


def test_sending_times_are_uniform_over_the_rest_of_the_phase():
    pace, charter = Pace(), replace(charter_of(), timing=TIMING)
    pace.follow(charter)

    async def drawn():
        return [pace.moment(30.0) for _ in range(400)], pace.moment(12.0)

    moments, too_late = virtually(drawn)
    assert 9.0 <= min(moments) < 10.0
    assert 25.0 < max(moments) <= 30 - 30 / 8
    assert too_late is None


# -- an end in between -----------------------------------------------------------------------


def killed_while_it_computes(folder, participation):
    """Simulation whose device was killed 2 s after the start of its participation."""
    world = World(folder, replace(charter_of(participation), timing=TIMING))

    async def killing(work, seconds):
        await asyncio.sleep(2.0)
        raise Killed

    world.workshop = after_enrolment(killing)
    with pytest.raises(Killed):
        world.start(source=Chosen(1))
    return world


@pytest.mark.parametrize("down_seconds", [0.0, 15.0])
def test_a_device_killed_while_computing_sends_zeros_after_restart(tmp_path, down_seconds):
    """The zeros are sent at the stored time, or at a newly drawn time if that time has passed."""
    world, calls, left = killed_while_it_computes(tmp_path, CheckIn(2)), [], []
    stored = world.memory().moments[1]
    world._elapsed += down_seconds

    async def counting(work, seconds):
        calls.append(work)
        return work()

    world.workshop = counting
    world.coordinator.on_request = lambda method, path, headers, body: (
        left.append(world.coordinator.at()[2]) if path.endswith("updates") else None
    )
    began = 60.0 - world._elapsed % 60.0 - 30.0
    assert world.start(source=Chosen(1)) == {"accepted": 1}
    assert len(calls) == 1  # the trial computation before a device enrols
    assert list(world.coordinator.rows.values()) == [bytes(world.charter.encoding.encoded_size)]
    if began - TIMING.compute_seconds >= stored:
        assert left == pytest.approx([stored])
    else:
        assert 30 / 8 <= left[0] < stored


def test_preparing_records_does_not_change_sending_times(tmp_path):
    def enrolled_at(name, seconds):
        world = World(tmp_path / name, replace(charter_of(CheckIn(2)), timing=TIMING))

        async def preparing(work, bound):
            await asyncio.sleep(seconds if world._now() < 60.0 else 0.0)
            return work()

        world.workshop, times = preparing, []
        world.coordinator.on_request = lambda method, path, headers, body: times.append(
            (path, round(world._now(), 6))
        )
        world.start(source=Chosen(1))
        return dict(times)["/v1/enrolments"]

    assert enrolled_at("fast", 0.0) == enrolled_at("slow", 7.9) == TIMING.compute_seconds
    assert enrolled_at("slower", 8.1) == 2 * TIMING.compute_seconds


def test_an_update_function_that_always_fails_is_refused_before_enrolment(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(2)))
    world.workshop = failing(0.1)
    with pytest.raises(ParameterError, match="expected a function that raises no error"):
        world.start()
    assert not world.coordinator.keys


# -- processes -------------------------------------------------------------------------------


def computed(work, seconds=HANGS_SECONDS):
    return asyncio.run(in_a_process(work, seconds))


def test_updates_are_computed_in_a_child_process():
    held = []
    update = computed(lambda: held.append(1) or np.arange(3, dtype=np.float32))
    assert update.tolist() == [0, 1, 2]
    assert update.dtype == np.float32
    assert held == []


def raises():
    raise ValueError("no\nupdate")


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (raises, "ValueError: no"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "the process ended early"),
        (lambda: os._exit(3), "the process ended early"),
        (object, "Object arrays"),
    ],
)
def test_every_failed_computation_is_reported(work, reason):
    with pytest.raises(UnfinishedError, match=reason) as failure:
        computed(work)
    assert not failure.value.late


def test_a_computation_past_its_deadline_is_killed_with_its_child_processes(tmp_path):
    def work():
        if os.fork() == 0:
            (tmp_path / "started").write_text(str(os.getpid()))
            time.sleep(HANGS_SECONDS)
        time.sleep(HANGS_SECONDS)

    async def ended_when_started():
        working = asyncio.ensure_future(in_a_process(work, HANGS_SECONDS))
        while not (tmp_path / "started").exists():
            await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(ended_when_started())
    until_gone(int((tmp_path / "started").read_text()))
    with pytest.raises(UnfinishedError, match=r"more than 0\.05 seconds") as failure:
        computed(lambda: time.sleep(HANGS_SECONDS), 0.05)
    assert failure.value.late


def until_gone(process):
    """Wait until a process has ended."""
    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{process}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.01)
    raise AssertionError(f"the process {process} goes on")


def computes_for_ever(tell):
    def work():
        tell(os.getpid())
        time.sleep(HANGS_SECONDS)

    computed(work)


def runs_a_graph(tell):
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    with Sandbox(GRAPH) as sandbox:
        tell(sandbox._process.pid)
        time.sleep(HANGS_SECONDS)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux")
@pytest.mark.parametrize("device", [computes_for_ever, runs_a_graph])
def test_the_child_process_ends_with_its_device(device):
    """Killed by SIGKILL the device can end no child, and a stopped child does not see its end."""
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            device(lambda process: os.write(write, b"%d\n" % process))
        finally:
            os._exit(1)
    os.close(write)
    with open(read) as told:
        worker = int(told.readline())
    os.kill(worker, signal.SIGSTOP)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    until_gone(worker)
