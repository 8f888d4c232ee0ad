"""Devices and a coordinator over a link that drops, repeats, delays and reorders messages.

Whatever the link does, three statements hold. A client in a release drew that step, checked in,
received a request, and computed exactly one update for the step. No client is in two releases of
one window. Each release is exactly the sum of its clients' updates. The update of client c is
2^−(c+1), so a sum identifies its clients.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_driver import coordinator, ids, no_noise, source

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import RemoteProtocolError
from turnout.participation.drawing import draw
from turnout.participation.schedule import blocks
from turnout.protocol.client import Client
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.messages import CheckIns, StepOpened, UpdateRequests, Updates
from turnout.randomness import SimulationRandomness
from turnout.schemes import CheckIn, ReleaseRule

PARTICIPATION = CheckIn(window=3, windows=2)
CLIENTS = 5


class World:
    """Simulation of a coordinator, its devices, and the messages on the link."""

    def __init__(self, seed, release, crashes):
        self.generator = np.random.default_rng(seed)
        self.release, self.crashes = release, crashes
        self.machine, self.accepted = self.coordinator(), []
        self.link, self.devices, self.computed, self.drawn = [], {}, [], {}

    def coordinator(self, **state):
        return coordinator(
            self.release,
            participation=PARTICIPATION,
            capacity=CLIENTS,
            expected_check_ins=1.0,
            dimension=2,
            **state,
        )

    def send(self, to, message):
        """Queue a message once, twice or not at all."""
        self.link += [(to, message)] * int(self.generator.choice([0, 1, 1, 1, 2]))

    def deliver(self):
        """Deliver some queued messages in random order; other messages arrive later or never."""
        self.generator.shuffle(self.link)
        for _ in range(int(self.generator.integers(len(self.link) + 1))):
            to, message = self.link.pop()
            try:
                if to is None:
                    self.to_coordinator(message)
                else:
                    self.to_device(to, message)
            except RemoteProtocolError:
                continue

    def to_coordinator(self, message):
        if isinstance(message, Updates):
            self.machine.receive(message)
            return
        receipt = self.machine.check_in(message)
        assert message.step == self.machine.step
        self.accepted.append(CheckIns(receipt.step, receipt.accepted))
        for client in receipt.refused.tolist():
            self.send(client, ("refused", message.step))

    def to_device(self, client, message):
        device = self.devices[client]
        if isinstance(message, StepOpened):
            check_in = device.on_step(message)
            if check_in is not None:
                self.send(None, check_in)
        elif isinstance(message, UpdateRequests):
            self.send(None, device.on_request(message, lambda: self.update(client, message.step)))
        elif message[0] == "closed":
            device.on_close(message[1])
        else:
            device.on_refusal(message[1])

    def update(self, client, step):
        self.computed.append((client, step))
        return UpdateSum([2.0 ** -(client + 1), 0.0], 1)

    def begin_window(self, block):
        """Let every device draw its steps of a window before it contacts the coordinator."""
        draws = SimulationRandomness(self.generator)
        for client in range(CLIENTS):
            schedule = draw(PARTICIPATION, CLIENTS, block, draws, client=client)
            self.devices[client] = Client(client, schedule.slots().tolist())
            self.drawn[client, block.index] = set(self.devices[client].slots)

    def step(self):
        """Run one step and return the clients in its release, or None for a skipped step."""
        opened = self.machine.open_step()
        for client in range(CLIENTS):
            self.send(client, opened)
        self.deliver()
        self.deliver()
        request = self.machine.close_check_ins(source("bad link", opened.step))
        for client in request.clients.tolist():
            self.send(client, UpdateRequests(opened.step, ids(client)))
        self.deliver()
        self.deliver()
        release = self.machine.close_step(no_noise)
        for client in range(CLIENTS):
            self.send(client, ("closed", opened.step))
        if self.crashes and self.generator.random() < 0.5:
            self.machine = self.coordinator(
                first_step=self.machine.step,
                admitted=self.accepted,
                mechanism_state=self.machine.mechanism_state,
            )
        return release, request.clients.tolist()


def named(release, scale):
    """Clients whose updates 2^−(c+1) sum to the release, each at most once."""
    if release.direction is None:
        return set()
    total = release.direction[0] * scale * 2**CLIENTS
    bits = round(total)
    assert bits == pytest.approx(total, abs=1e-9)
    return {c for c in range(CLIENTS) if bits >> (CLIENTS - 1 - c) & 1}


def counts_no_client_twice_or_outside_its_step(seed, release_rule, crashes):
    """Run a simulation, check every release, and return the number of updates that arrived."""
    world, served_in_all = World(seed, release_rule, crashes), 0
    for block in blocks(PARTICIPATION):
        world.begin_window(block)
        seen = set()
        for step in range(block.first_step, block.first_step + block.steps):
            release, asked = world.step()
            scale = max(1, release.served) if release_rule is ReleaseRule.AVERAGED else 1
            served = named(release, scale)
            assert len(served) == release.served <= len(asked) <= release.checked_in
            assert served <= set(asked)
            assert not served & seen
            assert all(step in world.drawn[client, block.index] for client in served)
            assert all((client, step) in world.computed for client in served)
            seen |= served
            served_in_all += release.served
    assert len(set(world.computed)) == len(world.computed)
    per_window = [(client, step // PARTICIPATION.window) for client, step in world.computed]
    assert len(set(per_window)) == len(per_window)
    return served_in_all


def many_worlds(count):
    """Number of updates that arrived in ``count`` simulations."""
    rule = ReleaseRule.AGGREGATED
    return sum(
        counts_no_client_twice_or_outside_its_step(seed, rule, seed % 2) for seed in range(count)
    )


@given(st.integers(0, 2**32), st.sampled_from(ReleaseRule), st.booleans())
@settings(max_examples=200, deadline=None)
def test_an_unreliable_link_never_counts_a_client_twice_or_outside_its_step(
    seed, release_rule, crashes
):
    counts_no_client_twice_or_outside_its_step(seed, release_rule, crashes)


def test_some_updates_arrive_over_an_unreliable_link():
    assert many_worlds(20) > 20


def accepts_every_update(self, clients):
    places = np.searchsorted(self._requested, clients)
    return np.minimum(places, self._requested.size - 1)


def accepts_any_step(self, step, what):
    return None


@pytest.mark.parametrize(
    ("method", "mutant"),
    [("_places", accepts_every_update), ("_refuse_other_steps", accepts_any_step)],
)
def test_a_coordinator_that_accepts_every_update_is_detected(method, mutant, mutate):
    mutate(Coordinator, method, mutant)
    with pytest.raises(AssertionError):
        many_worlds(200)
