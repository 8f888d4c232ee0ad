"""Each guarantee of a device as a check, and mutated devices that the check detects."""

import inspect
import textwrap
from types import FunctionType

import pytest
import test_device_messages as sending
import test_device_participation as turning
import test_device_refusals as refusals
import test_device_sending_times as moments
import test_device_state as states
from device_world import Chosen, Killed, World, accepted_once_each
from fake_coordinator import charter_of, invitation

from turnout.core.errors import ParameterError, RemoteProtocolError, StorageError
from turnout.randomness import SimulationStreams
from turnout.schemes import CheckIn, ReleaseRule
from turnout.service.device import device, link, memory, remote
from turnout.service.device.step_actions import StepActions

STEP = 8.0


def drawn_steps_are_stored_before_the_first_request(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(10**6)))
    drawn = []

    def killing(request):
        assert world.path().exists()
        drawn.append(world.slots())
        if len(drawn) == 3:
            raise Killed

    world.wire.fault = killing
    with pytest.raises(Killed):
        world.start()
    assert all(slots == drawn[0] for slots in drawn)


def drawn_steps_survive_a_restart(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(3, 4)))
    refusals.halted_at(world, 4, 0, 1, 2, 0)
    before = world.slots()
    world.start()
    assert world.slots() == before
    accepted_once_each(world)


def the_update_counts_as_sent_before_a_byte_leaves(tmp_path):
    for rule in (ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT):
        world = World(tmp_path / rule.value, charter_of(CheckIn(3, 2), rule))
        looked = []

        def look(method, path, headers, body, world=world, looked=looked):
            parts = path.split("/")
            if parts[-1] in ("updates", "check-ins"):
                stored, step = world.memory(), int(parts[3])
                stands = stored.participant.slots[step].value
                looked.append(stands)
                assert stands == ("answered" if parts[-1] == "updates" else "checked in")
                assert parts[-1] == "check-ins" or step in stored.digests

        world.coordinator.on_request = look
        world.start()
        assert looked


def the_ledger_head_is_stored_before_any_other_action(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    seen = []

    def look(method, path, headers, body):
        seen.append(path)
        if "/v1/status" in seen[:-1]:
            assert world.memory().head is not None
        if "turnout-head" in headers:
            assert str(world.memory().head) == headers["turnout-head"]

    world.coordinator.on_request = look
    world.start(source=Chosen(5, 5))
    assert len(world.coordinator.heads) == 3


def a_restored_coordinator_gets_no_further_request(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    refusals.halted_at(world, 3, 3, 5)
    sent = len(world.coordinator.heads)
    world._elapsed = 2.0 * STEP
    with pytest.raises(RemoteProtocolError, match="the coordinator was set back"):
        world.start()
    assert len(world.coordinator.heads) == sent


def a_kill_during_a_write_leaves_a_whole_state_file(tmp_path, monkeypatch):
    for after in (False, True):
        states.test_a_kill_during_the_first_write_leaves_a_whole_state_file_or_none(
            tmp_path, monkeypatch, after
        )


def only_a_model_in_the_ledger_is_used(tmp_path):
    refusals.test_a_device_refuses_a_model_with_another_digest(tmp_path, ReleaseRule.AGGREGATED, 2)


def draws_use_the_system_generator(tmp_path):
    with pytest.raises(ParameterError, match="an unpredictable source"):
        memory.Memory.drawn(invitation(charter_of()), SimulationStreams(1).source("x"))


def an_invitation_is_used_once(tmp_path):
    world = World(tmp_path)
    world.start()
    world.path().unlink()
    with pytest.raises(RemoteProtocolError, match="refuses the invitation"):
        world.start()
    assert len(world.coordinator.heads) == 4


def mutated(function, old, new):
    """Function with a part of its source replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, (source.count(old), old)
    code = compile(
        "from __future__ import annotations\n" + source.replace(old, new), "mutant", "exec"
    )
    scope = {}
    exec(code, function.__globals__, scope)
    made = next(value for value in scope.values() if isinstance(value, FunctionType))
    made.__globals__.pop("annotations", None)
    return made


KEEP = "self._diary.keep()"
REDRAW = "charter = await self._patiently(self._remote.charter)"
FOLLOW = (remote.Remote, "_status", "if seen is not None:", "if False:")
DECODE = "self.memory = Memory.decoded(data)"
SET_BACK = "forked or head.steps < seen.head.steps"
UNLOCKED = "os.open(lock_path, os.O_RDWR | os.O_CREAT)"
MUTANTS = {
    "draws after the first contact": (
        drawn_steps_are_stored_before_the_first_request,
        (device.TaskDevice, "run", REDRAW, REDRAW
         + "\n    from turnout.service.device import Memory"
         "\n    self._diary.memory = Memory.drawn(self._invitation)\n    self._diary.keep()"),
    ),
    "contacts before the draw is stored": (
        drawn_steps_are_stored_before_the_first_request,
        (memory.Diary, "__init__", "self.keep()", "pass"),
    ),
    "draws again on restart": (
        drawn_steps_survive_a_restart, (memory.Diary, "__init__", "if data is None:", "if True:"),
    ),
    "draws again where the file is damaged": (
        states.test_a_damaged_state_file_is_refused_and_no_step_is_drawn_again,
        (memory.Diary, "__init__", DECODE,
         f"try:\n            {DECODE}\n        except StorageError:"
         "\n            self.memory = Memory.drawn(invitation, source)"),
    ),
    "takes another task's state": (
        states.test_a_state_file_of_another_task_client_or_participation_is_refused,
        (memory.Memory, "require", "if _BEGUN(self)", "if not _BEGUN(self) and _BEGUN(self)"),
    ),
    "draws from a seed": (
        draws_use_the_system_generator, (memory, "drawn_slots", "not source.secure", "False"),
    ),
    "writes in place": (
        a_kill_during_a_write_leaves_a_whole_state_file,
        (memory.StateFile, "store", "_write(partial, data, ", "_write(self._path, data, "),
    ),
    "syncs nothing": (
        states.test_a_state_file_is_synced_before_its_rename_and_its_folder_afterwards,
        (memory, "_write", "os.fsync(file.fileno())", "pass"),
    ),
    "does not lock": (
        states.test_a_state_file_is_used_by_one_process_at_a_time,
        (memory.StateFile, "__enter__", "lock_file(lock_path, wait=False)", UNLOCKED),
    ),
    "lets others read": (
        states.test_a_state_file_is_readable_only_by_its_owner,
        (memory, "_write", "os.fchmod(file.fileno(), _MODE)", "pass"),
    ),
    "sends before it is stored": (
        the_update_counts_as_sent_before_a_byte_leaves, (StepActions, "_store", KEEP, "pass"),
    ),
    "checks in before it is stored": (
        the_update_counts_as_sent_before_a_byte_leaves, (StepActions, "_move", KEEP, "pass"),
    ),
    "comes late all the same": (
        turning.test_a_device_that_returns_after_its_step_has_missed_the_step,
        (StepActions, "_move", "on_step(StepOpened(step))", "on_step(StepOpened(min(before)))"),
    ),
    "sleeps by an old status": (
        turning.test_a_late_update_is_lost_and_later_steps_continue,
        (device.TaskDevice, "_step", "elif after is After.DONE:", "else:"),
    ),
    "covers its own step as well": (
        turning.test_with_dummy_traffic_all_steps_have_the_same_requests,
        (StepActions, "_needs_dummy", " and step not in self._diary.memory.participant.slots", ""),
    ),
    "follows a shorter ledger": (
        a_restored_coordinator_gets_no_further_request,
        (remote, "require_newer", SET_BACK, "forked"), FOLLOW,
    ),
    "follows another ledger": (
        refusals.test_a_device_refuses_another_ledger_of_the_same_length,
        (remote, "require_newer", SET_BACK, "False"), FOLLOW,
    ),
    "does not follow the chain": (
        refusals.test_a_device_refuses_a_ledger_that_was_restored_and_grew_again, FOLLOW,
    ),
    "forgets the head": (
        the_ledger_head_is_stored_before_any_other_action,
        (remote.Remote, "_status", "self.diary.keep()", "pass"),
    ),
    "tells nobody": (
        refusals.test_a_device_refuses_a_shortened_ledger_and_sends_nothing,
        (remote.Remote, "status", "await self.tell()", "pass"),
    ),
    "tells its own client id": (
        refusals.test_a_device_refuses_a_shortened_ledger_and_sends_nothing,
        (link.Link, "tell", '{"Content-Type": "text/plain"}', '{"Turnout-Client": "3"}'),
    ),
    "believes any head": (
        refusals.test_a_device_refuses_a_ledger_head_with_a_wrong_signature,
        (remote, "require_newer", "if not verified(", "if False and not verified("),
    ),
    "believes any model": (
        only_a_model_in_the_ledger_is_used,
        (remote.Remote, "model", "hashlib.sha256(data).digest() != digest", "False"),
    ),
    "believes any charter": (
        refusals.test_a_device_refuses_a_charter_of_another_task_before_enrolment,
        (remote, "charter_of", "hashlib.sha256(data).hexdigest() != memory.task", "False"),
    ),
    "uses a nonce again": (
        turning.test_a_retry_sends_the_same_bytes_with_a_new_nonce,
        (link.Link, "post", "self._random_bytes(NONCE_BYTES)", "bytes(NONCE_BYTES)"),
    ),
    "makes another message after a restart": (
        sending.a_message_is_drawn_once,
        (StepActions, "_await_moment", "if step not in memory.messages:", "if True:"),
    ),
    "makes another message for every copy": (
        sending.a_message_that_may_have_been_sent_is_not_redrawn,
        (StepActions, "_send", "memory = self._diary.memory",
         "memory = self._diary.memory\n    self._store(step, self._zeros())"),
    ),
    "sends when it is done": (
        moments.requests_are_sent_at_a_previously_drawn_time,
        (StepActions, "_await_moment", "await self._pace.until(moment)", "pass"),
    ),
    "covers when it is done": (
        moments.requests_are_sent_at_a_previously_drawn_time,
        (StepActions, "_send_dummy", "await self._pace.until(moment)", "pass"),
    ),
    "draws the moment when it is done": (
        moments.the_sending_time_is_stored_before_records_are_read,
        (StepActions, "_await_moment", "status.phase_ends - memory.moments.get(step, np.inf)",
         "self._pace.moment(status.phase_ends)"),
    ),
    "opens its records before the moment is stored": (
        moments.the_sending_time_is_stored_before_records_are_read,
        (StepActions, "_prepare", KEEP, "pass"),
    ),
    "sends nothing where it cannot compute": (
        moments.requests_are_sent_at_a_previously_drawn_time,
        (StepActions, "_message", "body = self._zeros()",
         "from turnout.service.device.link import GoneError\n        raise GoneError('failed')"),
    ),
    "randomizes from a seed": (
        sending.message_draws_use_the_system_generator,
        (StepActions, "__init__", "charter.randomized and not self._source.secure", "False"),
    ),
    "takes part without being enrolled": (
        an_invitation_is_used_once,
        (device.TaskDevice, "_enrol", "receipt.answer is not WireAnswer.ACCEPTED", "False"),
    ),
}  # fmt: skip
GUARANTEES = {function.__name__: function for function, *_ in MUTANTS.values()}


def checked(guarantee, tmp_path, monkeypatch):
    given = {"tmp_path": tmp_path, "monkeypatch": monkeypatch}
    takes = inspect.signature(guarantee).parameters
    guarantee(**{key: value for key, value in given.items() if key in takes})


@pytest.mark.parametrize("name", sorted(n for n in GUARANTEES if not n.startswith("test_")))
def test_the_unmodified_device_keeps_each_guarantee(tmp_path, monkeypatch, name):
    checked(GUARANTEES[name], tmp_path, monkeypatch)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutated_device_is_detected(tmp_path, monkeypatch, mutate, mutant):
    guarantee, *changes = MUTANTS[mutant]
    for owner, name, old, new in changes:
        broken = mutated(getattr(owner, name), old, new)
        mutate(owner, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception, StorageError, RemoteProtocolError)):
        checked(guarantee, tmp_path, monkeypatch)
