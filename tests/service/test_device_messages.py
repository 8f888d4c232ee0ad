"""Devices that randomize their updates: one message per step, drawn once, kept until answered."""

import pytest
from device_world import Killed, Repeatable, World, accepted_once_each
from fake_coordinator import charter_of, invitation

from turnout.core.errors import ParameterError
from turnout.protocol.messages import ClientState
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode
from turnout.randomness import SimulationStreams
from turnout.schemes import CheckIn, EveryStep
from turnout.service.device import Memory
from turnout.service.device.step_actions import StepActions

DIMENSION = 6
MESSAGES = {
    "seeded-code-1": SeededCode(DIMENSION, 2.0, 0.5, directions=4),
    "sampled-bit-1": LInfRandomizer(DIMENSION, 2.0, 0.5),
    "hadamard-bit-1": L1Randomizer(DIMENSION, 2.0, 0.5),
}
WIDE = SeededCode(DIMENSION, 2.0, 0.5, directions=4)
"""Randomizer with seeds of 32 bits, so that two draws practically never agree."""


def message_charter(messages=WIDE, participation=None):
    return charter_of(participation or CheckIn(3, 2), dimension=DIMENSION, messages=messages)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_device_sends_one_randomized_message_at_each_of_its_steps(tmp_path, name):
    charter = message_charter(MESSAGES[name], EveryStep(4))
    assert charter.update_format == name
    world = World(tmp_path, charter)
    for tally in world.start(1, 2):
        assert tally == {"accepted": 4}
    bodies = list(world.coordinator.rows.values())
    assert len(bodies) == 8
    assert {len(body) for body in bodies} == {charter.encoding.encoded_size}
    assert charter.encoding.summed(bodies).count == 8


def killed_once_stored(world, *, arrives):
    """Kill a device with a stored message, before or after the coordinator received the message."""

    def killing(request):
        if request.url.path.endswith("/updates") and not arrives:
            raise Killed

    def answering(method, path, headers, body):
        if path.endswith("/updates") and arrives:
            world.coordinator._updates(3, int(path.split("/")[3]), body)
            raise Killed

    world.wire.fault, world.coordinator.on_request = killing, answering
    with pytest.raises(Killed):
        world.start()
    world.wire.fault = lambda request: None
    world.coordinator.on_request = lambda *request: None


def a_message_is_drawn_once(tmp_path):
    """Check that a killed device resends the same bytes, whatever its records are."""
    for arrives in (False, True):
        world = World(tmp_path / str(arrives), message_charter())
        killed_once_stored(world, arrives=arrives)
        first, kept = min(world.slots()), world.memory().messages
        assert list(kept) == [first]
        for salt in (1, 2):
            tally = world.start(salt=salt)
            assert tally == {"accepted": 2}
        assert world.coordinator.rows[3, first] == kept[first]
        accepted_once_each(world)


def a_message_that_may_have_been_sent_is_not_redrawn(tmp_path):
    """Check that a device without an answer resends copies of one message."""
    world, left = World(tmp_path, message_charter()), [4]

    def fault(request):
        left[0] -= request.url.path.endswith("/updates")
        lost = request.url.path.endswith("/updates") and left[0] >= 0
        return "unanswered" if lost else None

    world.wire.fault = fault
    assert world.start() == {"accepted": 2}
    assert max(len(bodies) for bodies in world.coordinator.posts.values()) > 2
    accepted_once_each(world)


def message_draws_use_the_system_generator(tmp_path):
    world = World(tmp_path, message_charter())
    world.start()
    weak = SimulationStreams(1).source("message")
    with pytest.raises(ParameterError, match="an unpredictable source"):
        StepActions(_Nothing(), message_charter(), None, None, None, source=weak)
    StepActions(_Nothing(), charter_of(), None, None, None, source=weak)  # a lattice uses no draws


class _Nothing:
    link = diary = None


def test_a_stored_message_is_deleted_after_its_receipt(tmp_path):
    world = World(tmp_path, message_charter())
    killed_once_stored(world, arrives=False)
    kept = world.memory()
    assert list(kept.messages) == [min(world.slots())]
    assert Memory.decoded(kept.encoded()).messages == kept.messages
    assert list(kept.participant.slots.values()).count(ClientState.ANSWERED) == 1
    world.start()
    assert world.memory().messages == {}
    assert "message" not in world.path().read_text()


def test_two_devices_with_equal_updates_send_independent_messages(tmp_path):
    """Each device draws its own randomness, so equal updates do not give equal messages."""
    charter = message_charter(participation=EveryStep(3))
    bodies = set()
    for name in "ab":
        world = World(tmp_path / name, charter, seed=ord(name))
        world.start()
        bodies |= set(world.coordinator.rows.values())
    assert len(bodies) == 6
    again = World(tmp_path / "c", charter, seed=ord("a"))
    again.start()
    assert set(again.coordinator.rows.values()) <= bodies  # negative control: the same draws


def test_dummy_traffic_is_as_long_as_a_message(tmp_path):
    charter = message_charter(participation=CheckIn(4))
    world = World(tmp_path, charter)
    assert world.start(cover=True) == {"accepted": 1}
    covered = [length for lengths in world.coordinator.covers.values() for length in lengths]
    assert covered == [charter.encoding.encoded_size] * 3


def test_an_invitation_does_not_depend_on_the_message_format(tmp_path):
    drawn = Memory.drawn(invitation(message_charter()), Repeatable(World(tmp_path).dice))
    assert drawn.messages == {}
    assert drawn.task == message_charter().task != charter_of(dimension=DIMENSION).task
