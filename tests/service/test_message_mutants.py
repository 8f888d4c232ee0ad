"""Coordinators with one fault in handling messages: some simulation must detect each fault."""

from dataclasses import replace

import pytest
from test_service_mutants import noticed

from turnout.protocol.randomized import MessageEncoding, Randomized


def _first_message_twice(right):
    return lambda self, bodies: right(self, [*(all_ := list(bodies)), *all_[:1]])


def _last_message_forgotten(right):
    return lambda self, bodies: right(self, list(bodies)[:-1])


def _symbols_not_checked(right):
    return lambda self, data: right(self, data[:-1] + bytes([data[-1] & 3]))


def _noise_on_messages(right):
    def release(self, total, state, step, noise):
        released, after = right(self, total, state, step, noise)
        return replace(released, total=released.total + noise(1.0, total.dimension)), after

    return release


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (MessageEncoding, "summed", _first_message_twice),
        (MessageEncoding, "summed", _last_message_forgotten),
        (MessageEncoding, "decode", _symbols_not_checked),
        (Randomized, "release", _noise_on_messages),
    ],
)
def test_a_coordinator_that_mishandles_messages_is_detected(mutate, owner, name, wrong):
    mutate(owner, name, wrong(getattr(owner, name)))
    assert noticed()
