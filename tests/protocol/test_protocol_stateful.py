"""Random valid and invalid events, compared with a plain-Python model of the coordinator."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from protocol_driver import coordinator, ids, source, std_itself

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, RemoteProtocolError
from turnout.protocol.messages import CheckIns, CoordinatorState, Updates, Verdict
from turnout.schemes import CheckIn, ReleaseRule

PARTICIPATION = CheckIn(window=3, windows=2)
CAPACITY, EXPECTED, SIGMA, MINIBATCH = 6, 2.0, 2.0, 2
clients = st.lists(st.integers(0, CAPACITY), max_size=5)  # the number CAPACITY belongs to no client
coordinates = st.integers(-16, 16).map(lambda k: k / 16)  # sums of these are exact


class AnyOrder(RuleBasedStateMachine):
    """State machine that compares the coordinator with a model of sets after every event."""

    @initialize(release=st.sampled_from(ReleaseRule))
    def begin(self, release):
        self.release_rule = release
        one = release is ReleaseRule.ONE_CLIENT
        self.machine = coordinator(
            release,
            participation=PARTICIPATION,
            sigma=SIGMA,
            capacity=CAPACITY,
            expected_check_ins=EXPECTED,
            minibatch=MINIBATCH if one else 1,
        )
        self.state, self.step = CoordinatorState.IDLE, 0
        self.in_window, self.arrived = set(), set()
        self.asked, self.answers, self.pending = set(), {}, np.zeros(2)

    def refused(self, error, act):
        with pytest.raises(error):
            act()
        assert (self.machine.state, self.machine.step) == (self.state, self.step)

    @rule()
    def open_step(self):
        if self.state is not CoordinatorState.IDLE:
            return self.refused(LocalProtocolError, self.machine.open_step)
        assert self.machine.open_step().step == self.step
        if self.step % PARTICIPATION.window == 0:
            self.in_window = set()
        self.state = CoordinatorState.OPEN
        return None

    @rule(who=clients, shift=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def check_in(self, who, shift):
        message = CheckIns(self.step + shift, ids(*who))
        if self.state is not CoordinatorState.OPEN or shift or CAPACITY in who:
            return self.refused(RemoteProtocolError, lambda: self.machine.check_in(message))
        verdicts = []
        for client in who:
            verdicts.append(Verdict.DUPLICATE if client in self.in_window else Verdict.ACCEPTED)
            self.in_window.add(client)
        accepted = {c for c, v in zip(who, verdicts, strict=True) if v is Verdict.ACCEPTED}
        self.arrived |= accepted
        assert self.machine.check_in(message).verdicts.tolist() == verdicts
        return None

    @rule()
    def close_check_ins(self):
        draw = source("stateful", self.step)
        if self.state is not CoordinatorState.OPEN:
            return self.refused(LocalProtocolError, lambda: self.machine.close_check_ins(draw))
        request = self.machine.close_check_ins(draw).clients.tolist()
        if self.release_rule is ReleaseRule.ONE_CLIENT:
            assert len(request) == min(1, len(self.arrived))
            assert set(request) <= self.arrived
        else:
            assert request == sorted(self.arrived)
        self.asked = set(request)
        self.state = CoordinatorState.COLLECTING
        return None

    @rule(data=st.data(), value=coordinates)
    def answer(self, data, value):
        due = sorted(self.asked - set(self.answers))
        if self.state is not CoordinatorState.COLLECTING or not due:
            return
        who = data.draw(st.lists(st.sampled_from(due), unique=True))
        total = UpdateSum([value * len(who), 0.0], len(who))
        self.machine.receive(Updates(self.step, ids(*who), total))
        self.answers |= dict.fromkeys(who, value)

    @rule(
        who=clients,
        value=st.sampled_from([0.0, np.nan, np.inf, 1.5]),
        dimension=st.sampled_from([1, 2, 3]),
        shift=st.sampled_from([0, 0, -1, 1]),
    )
    def answer_wrongly(self, who, value, dimension, shift):
        vector = np.zeros(dimension)
        vector[0] = value * max(1, len(who))
        message = Updates(self.step + shift, ids(*who), UpdateSum(vector, len(who)))
        sound = not shift and dimension == 2 and value == 0 and len(set(who)) == len(who)
        due = self.asked - set(self.answers)
        if self.state is CoordinatorState.COLLECTING and sound and set(who) <= due:
            self.machine.receive(message)
            self.answers |= dict.fromkeys(who, 0.0)
        else:
            self.refused(RemoteProtocolError, lambda: self.machine.receive(message))

    @rule()
    def close_step(self):
        if self.state is not CoordinatorState.COLLECTING:
            return self.refused(LocalProtocolError, lambda: self.machine.close_step(std_itself))
        release = self.machine.close_step(std_itself)
        assert (release.checked_in, release.served) == (len(self.arrived), len(self.answers))
        expected = self.expected_direction()
        if expected is None:
            assert release.direction is None
        else:
            np.testing.assert_allclose(release.direction, expected, rtol=1e-14)
        self.step += 1
        self.arrived, self.asked, self.answers = set(), set(), {}
        done = self.step == PARTICIPATION.steps
        self.state = CoordinatorState.FINISHED if done else CoordinatorState.IDLE
        assert (self.machine.state, self.machine.step) == (self.state, self.step)
        return None

    def expected_direction(self):
        total, count = np.array([sum(self.answers.values()), 0.0]), len(self.answers)
        if self.release_rule is ReleaseRule.AGGREGATED:
            return (total + SIGMA) / EXPECTED
        if self.release_rule is ReleaseRule.AVERAGED:
            return (total + SIGMA * np.sqrt(count)) / count if count else None
        self.pending = self.pending + total + SIGMA
        if (self.step + 1) % MINIBATCH:
            return None
        full, self.pending = self.pending / MINIBATCH, np.zeros(2)
        return full


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
