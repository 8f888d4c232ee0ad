"""State file of a device: whole or refused, never two draws, whenever the process is killed."""

import hashlib
import json
import os
import stat

import pytest
from device_world import Chosen, Killed, World, accepted_once_each, posted_steps
from fake_coordinator import charter_of, invitation

from turnout.core import files
from turnout.core.errors import ParameterError, RemoteProtocolError, StorageError
from turnout.protocol.messages import ClientState
from turnout.randomness import SimulationStreams
from turnout.schemes import CheckIn, EveryStep, FixedSize, KSubset, ReleaseRule
from turnout.service.device import (
    Diary,
    Memory,
    StateFile,
    default_place,
    drawn_slots,
)
from turnout.service.device import (
    memory as diary,
)

WIDE = charter_of(CheckIn(10**6, 2))
"""Participation for which two draws practically never agree."""


class KillingOS:
    """Replacement of the `os` module that raises `Killed` at one of the calls of a write."""

    def __init__(self, at, after):
        self.left, self.after, self.done = at, after, []

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("open", "fchmod", "fsync", "replace"):
            return real

        def call(*arguments, **options):
            self.left -= 1
            if self.left == 0 and not self.after:
                raise Killed
            result = real(*arguments, **options)
            if self.left == 0:
                if name == "open":
                    os.close(result)
                raise Killed
            return result

        return call


def opened(path, invited, source=None):
    with StateFile(path) as file:
        return Diary(file, invited, source).memory


def killed_at(monkeypatch, at, after, action):
    """Whether the action was killed at the given call."""
    with monkeypatch.context() as patch:
        killing = KillingOS(at, after)
        for module in (diary, files):
            patch.setattr(module, "os", killing)
        try:
            action()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_during_the_first_write_leaves_a_whole_state_file_or_none(
    tmp_path, monkeypatch, after
):
    invited, survived = invitation(WIDE), 0
    for at in range(1, 20):
        path = tmp_path / f"{at}-{after}.json"
        if not killed_at(monkeypatch, at, after, lambda path=path: opened(path, invited)):
            break
        there = path.exists()
        before = Memory.decoded(path.read_bytes()).participant.slots if there else None
        now = opened(path, invited).participant.slots
        assert before in (None, now)
        survived += there
    assert at > 6
    assert survived > 0


@pytest.mark.parametrize("rule", [ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT])
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_write_never_leads_to_a_second_draw(tmp_path, monkeypatch, rule, after):
    """The device is killed at every call of every write of a whole run, and restarted."""
    for at in range(1, 200):
        world = World(tmp_path / f"{at}", charter_of(CheckIn(4), rule))
        first = killed_at(monkeypatch, at, after, world.start)
        before = world.slots() if world.path().exists() else None
        if before is None:
            assert world.coordinator.requests == []
        world.start()
        assert before in (None, world.slots())
        assert posted_steps(world.coordinator) <= world.slots()
        accepted_once_each(world)
        if not first:
            break
    assert at > 20


def test_a_state_file_is_synced_before_its_rename_and_its_folder_afterwards(tmp_path, monkeypatch):
    calls = []

    class Noted:
        def __getattr__(self, name):
            def call(*arguments, **options):
                calls.append(name)
                return getattr(os, name)(*arguments, **options)

            return call if name in ("fsync", "replace") else getattr(os, name)

    for module in (diary, files):
        monkeypatch.setattr(module, "os", Noted())
    opened(tmp_path / "state.json", invitation(WIDE))
    assert calls == ["fsync", "replace", "fsync"]
    with StateFile(tmp_path / "trial.json", synced=False) as file:
        file.store(b"")
    assert calls[3:] == ["replace"]


def test_partially_written_state_files_are_ignored(tmp_path):
    world = World(tmp_path, WIDE)
    memory = opened(world.path(), invitation(WIDE))
    partial = world.path().with_name(world.path().name + ".partial")
    for size in (0, 1, 100):
        partial.write_bytes(world.path().read_bytes()[:size])
        again = opened(world.path(), invitation(WIDE))
        assert again.participant.slots == memory.participant.slots


def test_a_damaged_state_file_is_refused_and_no_step_is_drawn_again(tmp_path):
    invited, path = invitation(WIDE), tmp_path / "state.json"
    opened(path, invited)
    whole = path.read_bytes()
    slot = json.loads(whole)["state"]["turns"][0]["slot"]
    damaged = [
        *(whole[:size] for size in (0, 1, len(whole) // 2, len(whole) - 1)),
        whole + b" ",
        whole.replace(b'"slot":%d' % slot, b'"slot":%d' % (slot ^ 1)),
        whole.replace(b'"waiting"', b'"missed"', 1),
        whole.replace(b"turnout-device-1", b"turnout-device-2"),
        b"null",
        b"[" * 100_000,
        b'{"format":"turnout-device-1"}',
        b"\xff" * 50,
    ]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(StorageError, match="damaged"):
            opened(path, invited)
        assert path.read_bytes() == data
    path.write_bytes(whole)
    opened(path, invited)


def test_a_device_with_a_damaged_state_file_sends_nothing(tmp_path):
    world = World(tmp_path)
    world.path().write_text("{")
    with pytest.raises(StorageError, match="damaged"):
        world.start()
    assert world.coordinator.requests == []


def test_a_state_file_of_another_task_client_or_participation_is_refused(tmp_path):
    path = tmp_path / "state.json"
    opened(path, invitation(WIDE))
    others = [
        invitation(charter_of(CheckIn(10**6, 3))),
        invitation(WIDE, client=4),
        invitation(charter_of(CheckIn(10**6, 2), population=21)),
    ]
    for other in others:
        with pytest.raises(StorageError, match="another task or another client"):
            opened(path, other)


def test_a_state_file_is_used_by_one_process_at_a_time(tmp_path):
    path, invited = tmp_path / "state.json", invitation(WIDE)
    with StateFile(path) as file:
        Diary(file, invited)
        with pytest.raises(StorageError, match="another process uses it"), StateFile(path):
            pass
    opened(path, invited)
    with pytest.raises(StorageError, match="not open"):
        file.store(b"")


def test_a_state_file_is_readable_only_by_its_owner(tmp_path):
    path = tmp_path / "folder" / "state.json"
    old = os.umask(0)
    try:
        path.parent.mkdir()
        partial = path.with_name(path.name + ".partial")
        partial.touch(0o666)
        opened(path, invitation(WIDE))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_unwritable_state_file_stops_the_device_before_its_first_request(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    world = World(tmp_path)
    world.syncs = True
    monkeypatch.setattr(diary.os, "fsync", full)
    with pytest.raises(StorageError, match="no space left"):
        world.start()
    assert world.coordinator.requests == []


def test_an_unreadable_state_file_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="state file"), StateFile(tmp_path / "file" / "state"):
        pass
    (tmp_path / "folder").mkdir()
    with StateFile(tmp_path / "folder") as file, pytest.raises(StorageError, match="directory"):
        file.load()


def test_a_device_state_round_trips_in_every_client_state():
    invited = invitation(charter_of(EveryStep(6), rule=ReleaseRule.ONE_CLIENT))
    memory = Memory.drawn(invited)
    assert list(memory.participant.slots) == list(range(6))
    document = json.loads(memory.encoded())
    for turn, state in zip(document["state"]["turns"], ClientState, strict=True):
        turn["state"] = state.value
    text = json.dumps(document["state"], sort_keys=True, separators=(",", ":"))
    document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    again = Memory.decoded(data)
    assert list(again.participant.slots.values()) == list(ClientState)
    assert again.encoded() == data
    assert again.key == memory.key
    assert "private" not in repr(again.key)


def test_a_predictable_random_source_is_refused_for_participation():
    with pytest.raises(ParameterError, match="an unpredictable source"):
        drawn_slots(invitation(WIDE), SimulationStreams(1).source("x"))
    assert drawn_slots(invitation(charter_of(CheckIn(5, 2))), Chosen(3, 1)) == [3, 6]


def test_an_invitation_whose_participation_one_client_cannot_draw_is_refused(tmp_path):
    cases = [
        (invitation(charter_of(FixedSize(2, 20, 4))), "under FixedSize: the server draws"),
        (invitation(WIDE, client=20), "below the population"),
    ]
    for invited, why in cases:
        with pytest.raises(Exception, match=why):
            opened(tmp_path / "state.json", invited)
        assert not (tmp_path / "state.json").exists()


def test_a_device_with_a_restored_old_state_does_not_participate_twice(tmp_path):
    world = World(tmp_path, charter_of(KSubset(4, 2)))
    opened(world.path(), invitation(world.charter))
    old = world.path().read_bytes()
    world.start()
    drawn, rows = world.slots(), dict(world.coordinator.rows)
    assert len(rows) == 2
    world.path().write_bytes(old)
    world.start()
    assert world.slots() == drawn
    assert world.coordinator.rows == rows


def test_a_device_that_lost_its_state_cannot_enrol_again(tmp_path):
    world = World(tmp_path)
    world.start()
    rows = dict(world.coordinator.rows)
    world.path().unlink()
    with pytest.raises(RemoteProtocolError, match="the invitation was used"):
        world.start()
    assert world.coordinator.rows == rows


def test_each_task_and_client_has_its_own_default_state_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = {default_place(invitation(c, i)) for c in (WIDE, charter_of()) for i in (1, 2)}
    assert len(places) == 4
    assert all(place.is_relative_to(tmp_path / "turnout") for place in places)
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_place(invitation(WIDE)).parts[-4:-2] == (".local", "state")
