"""Device in JavaScript: test vectors, real tasks, SIGKILL at every write, a restored ledger."""

import re
import subprocess
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
from fake_coordinator import charter_of, invitation
from forked import HANGS_SECONDS
from hurried import hurry_fleet
from node_devices import (
    FOLDER,
    Recorder,
    by_any_devices,
    device,
    ended,
    memory,
    node,
    records_file,
)
from processes import done, free_port, turnout, waited_for
from served_fake import MomentsNoted, ServedFake
from test_deployed import records_of

from turnout.schemes import CheckIn
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.computation import Computation
from turnout.service.contract.wire import Invitation
from turnout.service.device.trainer import trainer_on_dealt
from turnout.service.storage.opening import open_storage

PLAN = """
[data]
name = "digits"
clients = 6
[model]
name = "logistic"
features = "standardized"
[participation]
law = "check-in"
window = 3
windows = {windows}
[privacy]
relation = "add-remove"
delta = 1e-3
noise_multiplier = 1.0
clip_norm = 0.5
[protocol]
release = "{release}"
[client]
steps = 2
learning_rate = 0.5
[optimizer]
learning_rate = 0.5
"""


def test_the_javascript_device_passes_the_test_vectors():
    ran = subprocess.run(
        [node(), "--test", "--test-reporter=tap"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert int(re.search(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)[1]) >= 20
    assert re.search(r"^# (fail|skipped|todo) [^0]", ran.stdout, re.MULTILINE) is None


class Task:
    """Task that is served until its devices in Python and JavaScript have finished."""

    def __init__(self, folder, text):
        self.folder, self.states, self.left = folder, folder / "states", folder / "left"
        self.states.mkdir()
        self.plan, self.log, self.text = folder / "plan.toml", folder / "server.log", text
        self.plan.write_text(text)
        self.db, self.port = folder / "task.sqlite", free_port()
        options = ["--db", self.db, "--plan", self.plan, "--out", folder / "tokens"]
        options += ["--step-seconds", 3600]
        done(turnout("enrol", 6, *options, log=self.log), self.log)
        self.tokens = (folder / "tokens").read_text().split()

    def run(self, in_javascript):
        """Recorded requests and the exits of the devices, after the run has finished."""
        serve = ["serve", self.plan, "--db", self.db, "--port", self.port]
        serve += ["--exit-when-finished", "--wait-for", len(self.tokens)]
        clock = partial(by_any_devices, self.states, self.left)
        server, others, fleet = turnout(*serve, log=self.log, prepare=clock), [], None
        try:
            waited_for(f"http://127.0.0.1:{self.port}/readyz", server, self.log)
            with Recorder(self.port) as recorder:
                for token in self.tokens[:in_javascript]:
                    others.append(self._joined(recorder.url, token))
                if self.tokens[in_javascript:]:
                    fleet = self._fleet(recorder.url, self.tokens[in_javascript:])
                ends = [ended(process) for process in others]
                if fleet is not None:
                    done(*fleet)
                self.left.touch()
                done(server, self.log)
            return recorder, ends
        finally:
            for process in (server, *others, *([fleet[0]] if fleet else [])):
                if process.poll() is None:
                    process.kill()

    def _joined(self, url, token):
        client = Invitation.decoded(token).client
        path = self.folder / f"client-{client}.jsonl"
        records = records_file(path, *records_of(self.text, client))
        return device(url, token, records, self.states / f"client-{client}.json")

    def _fleet(self, url, tokens):
        crowd, log = self.folder / "crowd.txt", self.folder / "fleet.log"
        crowd.write_text("\n".join(tokens))
        fleet = ["fleet", url, "--tokens", crowd, "--processes", 1, "--folder", self.states]
        return turnout(*fleet, log=log, prepare=hurry_fleet), log

    def stored(self):
        """Charter, and the numbers of check-ins and updates in each step."""
        with (
            closing(open_storage(str(self.db), serving=False)) as storage,
            storage.snapshot() as view,
        ):
            return Charter.from_canonical(view.charter()), list(view.counts())


def test_javascript_and_python_devices_send_equal_updates_in_one_task(tmp_path):
    """Updates on the same records differ by at most one unit of the lattice."""
    task = Task(tmp_path, PLAN.format(windows=2, release="aggregated"))
    recorder, ends = task.run(in_javascript=3)
    assert ends == [(0, "turns: 2 accepted\n", "")] * 3
    charter, counts = task.stored()
    assert sum(served for _, _, served in counts) == 6 * 2
    assert len(recorder.updates) == 12
    assert set(recorder.statuses) == {200}
    trainer = trainer_on_dealt()(charter)
    lattice = charter.encoding
    for (client, step), bodies in recorder.updates.items():
        parameters = np.frombuffer(recorder.models[step], "<f4")
        expected = lattice.quantise(trainer.update(parameters, client)).astype(int)
        difference = np.abs(lattice.decode(bodies[0]).astype(int) - expected).max()
        assert difference <= (1 if client < 3 else 0), (client, step)
        assert np.abs(expected).max() > 100
    assert len({bodies[0] for bodies in recorder.updates.values()}) == 12


def test_the_javascript_device_answers_only_if_it_is_selected(tmp_path):
    task = Task(tmp_path, PLAN.format(windows=1, release="one-client"))
    recorder, ends = task.run(in_javascript=6)
    _, counts = task.stored()
    assert sum(came for _, came, _ in counts) == 6
    assert [served for _, came, served in counts] == [min(came, 1) for _, came, _ in counts]
    assert len(recorder.updates) == sum(served for _, _, served in counts)
    assert {code for code, _, _ in ends} == {0}
    accepted = [out for _, out, _ in ends if out == "turns: 1 accepted\n"]
    assert len(accepted) == len(recorder.updates)
    assert set(recorder.statuses) == {200}


# -- against a coordinator that a test holds in its hands ------------------------------------

CHARTER = charter_of(CheckIn(2, 2), dimension=4, step_seconds=3600)


class Fake(ServedFake):
    """Coordinator without clock: a step ends when the device has stored its receipt."""

    def _memories(self):
        return [memory(path) for path in self._folder.glob("*.json")]


def started(fake, folder, **environment):
    inputs, labels = np.array([[0.5], [1.0]]), np.array([0, 1])
    records = records_file(folder / "records.jsonl", inputs, labels)
    token, state = invitation(fake.coordinator.charter).encoded(), folder / "state.json"
    return device(fake.url, token, records, state, **environment)


def test_the_javascript_device_keeps_its_draw_and_message_if_killed(tmp_path):
    at, killed, charter = 0, True, charter_of(CheckIn(2), dimension=4, step_seconds=3600)
    while killed:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        state = folder / "state.json"
        with Fake(charter, 1, folder) as fake:
            first = ended(started(fake, folder, KILLED_AT=str(at)))
            killed = first[0] == -9
            assert killed or first[0] == 0, first
            drawn = memory(state).participant.slots.keys() if state.exists() else None
            if drawn is None:  # no request was sent before the steps were stored
                assert fake.coordinator.requests == []
            again = ended(started(fake, folder))
            assert again == (0, "turns: 1 accepted\n", ""), (at, again)
            end = memory(state)
            assert drawn is None or end.participant.slots.keys() == drawn
            assert {step for _, step in fake.coordinator.posts} == end.participant.slots.keys()
            for bodies in fake.coordinator.posts.values():
                assert len(set(bodies)) == 1
            assert list(folder.glob("*.new")) == []
    assert at > 10


class SetBack(Fake):
    """Coordinator that hides its ledger after the second update, as if it had been restored."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.told, self.newest, self._answer = [], "", self.coordinator.answer
        self.coordinator.answer = self._answered

    def _answered(self, method, path, query, headers, body):
        if path == "/v1/heads":
            self.told.append((method, body.decode(), [n for n in headers if "turnout" in n]))
            return 503 if len(self.told) == 1 else 200, b'{"answer":"accepted"}'
        if path == "/v1/steps/1/updates":
            self.newest = headers["turnout-head"]
            self.coordinator.says["head"] = str(self.coordinator.head(0))
        return self._answer(method, path, query, headers, body)


def test_the_javascript_device_detects_a_restored_coordinator(tmp_path):
    charter = charter_of(CheckIn(1, 3), dimension=4, step_seconds=3600)
    with SetBack(charter, 1, tmp_path) as fake:
        code, _, error = ended(started(fake, tmp_path))
    assert (code, error) == (5, "node-device: the coordinator was set back from 1 to 0\n")
    assert fake.newest.startswith("1:")
    assert fake.told == [("POST", fake.newest, [])] * 2
    assert {step for _, step in fake.coordinator.posts} == {0, 1}


def test_the_javascript_device_refuses_unknown_formats_before_enrolment(tmp_path):
    computation = Computation(features="scattering-1", input_shape=(8, 8))
    with Fake(charter_of(dimension=4, computation=computation), 1, tmp_path) as fake:
        code, _, error = ended(started(fake, tmp_path))
    assert code == 5
    assert 'does not know the format "scattering-1" of model.features' in error
    assert {method for method, *_ in fake.coordinator.requests} == {"GET"}


def test_the_javascript_device_refuses_a_locked_or_damaged_state_file(tmp_path):
    with Fake(CHARTER, 1, tmp_path) as fake:
        fake.coordinator.on_request = lambda *_: entered.wait(HANGS_SECONDS)
        entered = threading.Event()
        first = started(fake, tmp_path)
        while not fake.coordinator.requests:
            assert first.poll() is None
        code, _, error = ended(started(fake, tmp_path))
        assert (code, "used by another process" in error) == (4, True)
        entered.set()
        assert ended(first)[0] == 0
        state = tmp_path / "state.json"
        whole = state.read_bytes()
        state.write_bytes(whole.replace(b'"answered"', b'"waiting"', 1))
        code, _, error = ended(started(fake, tmp_path))
        assert (code, "damaged" in error) == (4, True)
        state.write_bytes(whole)
        assert ended(started(fake, tmp_path))[:2] == (0, "turns: 2 accepted\n")


def test_the_javascript_device_sends_zeros_if_its_computation_is_late(tmp_path):
    charter = replace(CHARTER, timing=Timing(8.0, 6.0, 1.0, 0.001))
    with Fake(charter, 1, tmp_path) as fake:
        noted = MomentsNoted(fake.coordinator, tmp_path / "state.json")
        assert ended(started(fake, tmp_path, IN_TIME="1")) == (0, "turns: 2 accepted\n", "")
    assert set(fake.coordinator.rows.values()) == {bytes(charter.encoding.encoded_size)}
    assert set(noted.stored.values()) == {True}
    assert min(noted.waited.values()) >= 6.0 / 16  # the earliest sending time
