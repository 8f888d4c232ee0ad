"""Steps at which devices participate have exactly the distribution of the scheme."""

from collections import Counter

import numpy as np
import pytest
from device_world import World
from fake_coordinator import charter_of, invitation

from turnout.randomness import OSRandomness
from turnout.schemes import CheckIn, FixedAssignment, KSubset, SlidingWindow
from turnout.service.device import Memory, drawn_slots
from turnout.testing import assert_frequencies, assert_rejects

DEVICES = 2000
SOURCE = OSRandomness()


def drawn(charter, devices=DEVICES, client=3):
    """Drawn steps of many devices, each from the system's random generator."""
    invited = invitation(charter, client)
    return [tuple(drawn_slots(invited, SOURCE)) for _ in range(devices)]


def frequencies(cells):
    """Check that all given draws are equally frequent."""

    def has_distribution(slots):
        counts = Counter(slots)
        assert set(counts) <= set(cells)
        assert_frequencies([counts[cell] for cell in cells], np.full(len(cells), 1 / len(cells)))

    return has_distribution


def test_check_in_steps_of_a_device_are_uniform_and_independent():
    has_distribution = frequencies([(i, 4 + j) for i in range(4) for j in range(4)])
    has_distribution(drawn(charter_of(CheckIn(4, 2))))
    below = SOURCE.below
    pairs = np.stack([below(4, DEVICES), below(4, DEVICES)], axis=1)
    rarely_last = np.where(pairs == 3, below(4, 2 * DEVICES).reshape(-1, 2), pairs)
    assert_rejects(
        has_distribution,
        {
            "one draw for all windows": [(i, 4 + i) for i in pairs[:, 0].tolist()],
            "the last slot drawn again": [(i, 4 + j) for i, j in rarely_last.tolist()],
            "the earlier of two draws": [
                (min(i, k), 4 + j)
                for (i, j), k in zip(pairs.tolist(), below(4, DEVICES).tolist(), strict=True)
            ],
            "seconds of the clock": [(i // 500, 4 + i // 500) for i in range(DEVICES)],
        },
    )


def test_a_device_abstains_with_the_probability_of_its_participation():
    def has_distribution(slots):
        counts = Counter(slots)
        cells = [(), (0,), (1,), (2,)]
        assert_frequencies([counts[cell] for cell in cells], [0.4, 0.2, 0.2, 0.2])

    has_distribution(drawn(charter_of(CheckIn(3, 1, 0.6))))
    assert_rejects(has_distribution, {"everybody comes": drawn(charter_of(CheckIn(3)))})


@pytest.mark.parametrize(
    ("participation", "client", "cells"),
    [
        (KSubset(4, 2), 3, [(i, j) for j in range(4) for i in range(j)]),
        (FixedAssignment(3, 2), 3, [(i, i + 3) for i in range(3)]),
        (SlidingWindow(4, 20), 8, [(i,) for i in range(5, 9)]),
    ],
)
def test_draws_of_a_device_have_the_distribution_of_each_participation(
    participation, client, cells
):
    has_distribution = frequencies(cells)
    slots = drawn(charter_of(participation), client=client)
    has_distribution(slots)
    skewed = [cells[0] if i % 6 == 0 else slot for i, slot in enumerate(slots)]
    assert_rejects(has_distribution, {"the first one a sixth too often": skewed})


def test_the_stored_steps_of_a_device_equal_its_draw():
    invited = invitation(charter_of(CheckIn(3)))
    stored = []
    for _ in range(1500):
        memory = Memory.drawn(invited)
        read = Memory.decoded(memory.encoded())
        assert read.participant.slots == memory.participant.slots
        stored.append(tuple(read.participant.slots))
    frequencies([(0,), (1,), (2,)])(stored)


def test_the_steps_at_which_devices_participate_follow_the_participation(tmp_path):
    """Complete devices are run: the test counts the updates that arrive at a coordinator."""

    def arrived(name, source):
        world = World(tmp_path / name, charter_of(CheckIn(3), population=75))
        world.start(*range(75), source=source)
        return [(step,) for _, step in world.coordinator.rows]

    class NeverLast(OSRandomness):
        def below(self, n, size):
            return super().below(n - 1, size)

    has_distribution = frequencies([(0,), (1,), (2,)])
    right = arrived("right", OSRandomness())
    assert len(right) == 75
    has_distribution(right)
    assert_rejects(has_distribution, {"never the last slot": arrived("wrong", NeverLast())})
