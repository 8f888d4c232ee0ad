"""A plan under local trust, simulated and served with equal draws, and refused tasks."""

import hashlib
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from memory_storage import MemoryStorage
from mutants import mutation

from turnout.accounting import price
from turnout.core.errors import ParameterError, RemoteProtocolError, UnsupportedError
from turnout.device import require_price, within_promise
from turnout.learning.tasks import SupervisedTask
from turnout.participation.drawing import draw_run
from turnout.plans import Plan, prepare
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode
from turnout.randomness import SimulationStreams, Source
from turnout.runs.building import build_algorithm
from turnout.runs.workload import gather
from turnout.schemes import CheckIn, EveryStep, KSubset
from turnout.service.contract.charter import Timing
from turnout.service.contract.wire import WireAnswer
from turnout.service.coordinator import releases
from turnout.service.coordinator.engine import Engine
from turnout.service.coordinator.new_task import new_task
from turnout.service.device.trainer import Trainer, trainer_on_dealt
from turnout.simulation import Simulation
from turnout.verification.cost import least_bound

PLAN = """
[data]
name = "digits"
clients = 40
dealing = "by-label"
[model]
name = "logistic"
features = "standardized"
[participation]
law = "check-in"
window = 3
windows = 2
[privacy]
trust = "local"
relation = "replace-one"
delta = 1e-5
clip_norm = CLIP
[randomizer]
norm = "NORM"
epsilon0 = 4.0
[client]
steps = 2
learning_rate = 0.1
[optimizer]
learning_rate = 0.05
momentum = 0.5
"""
CLIPS = {"l2": 0.2, "linf": 0.01, "l1": 2.0}
"""Clip norms below the norm of nearly every update."""
KINDS = {"l2": SeededCode, "linf": LInfRandomizer, "l1": L1Randomizer}


def text(norm):
    return PLAN.replace("NORM", norm).replace("CLIP", str(CLIPS[norm]))


@cache
def task(norm):
    return new_task(text(norm), Path(), Timing())


class Told(Source):
    """Random source that depends only on client and step, for tests only."""

    secure = True

    def __init__(self, step, client):
        self._of, self._calls = b"%d %d" % (step, client), 0

    def below(self, n, size):
        self._calls += 1
        drawn = (hashlib.sha256(b"%b %d %d" % (self._of, self._calls, i)) for i in range(size))
        values = [int.from_bytes(each.digest()[:16], "little") % n for each in drawn]
        return np.array(values, dtype=np.int64)


def simulated(norm):
    """Final parameters, and the number of times that each message was sent in each step."""
    plan = Plan.from_toml(text(norm))
    sent, source = defaultdict(Counter), SimulationStreams.source
    encode = KINDS[norm].encode_updates
    order, groups = [], SupervisedTask._groups

    def ordered(learned, clients):
        made = list(groups(learned, clients))
        order[:] = np.concatenate(made).tolist()
        return made

    def named(streams, label, *parts):
        return parts if label == "message" else source(streams, label, *parts)

    def told(randomizer, values, drawn):
        step, place = drawn
        rows = [
            encode(randomizer, row[None], Told(step, client))
            for row, client in zip(values, order[place:], strict=False)
        ]
        sent[step].update(randomizer.pack(row) for row in rows)
        return np.concatenate(rows)

    with mutation() as mutate:
        mutate(SimulationStreams, "source", named)
        mutate(KINDS[norm], "encode_updates", told)
        mutate(SupervisedTask, "_groups", ordered)
        workload = gather(plan, Path())
        prepared, algorithm = prepare(plan, workload.population), build_algorithm(workload)
        run = Simulation(
            prepared.scheme,
            algorithm,
            seed=plan.run.seed,
            evaluate_every=prepared.scheme.participation.steps,
            messages=prepared.messages(algorithm.dimension),
        ).run()
    return releases.to_bytes(run.last), sent


class Served:
    """Engine with the same clients at the same steps, each with a device's trainer."""

    def __init__(self, norm, trainer=None):
        self.new = task(norm)
        self.charter = self.new.charter
        self.storage = MemoryStorage()
        self.new.create_task(self.storage)
        self.trainer = trainer or trainer_on_dealt()(self.charter)
        self.sent = defaultdict(Counter)
        self.open()

    def open(self):
        """Start the engine, or restart it from its storage."""

        def no_noise(deviation, size):
            raise AssertionError("a coordinator adds no noise to messages")

        self.engine = Engine.open(self.storage, releases.Learner, noise=no_noise)

    def message(self, client, step):
        parameters = releases.from_bytes(self.engine.published.parameters)
        update = self.trainer.update(parameters, client)
        return self.charter.encoding.packed(update, Told(step, client))

    def send(self, client, step, body):
        with self.storage.transaction() as tx:
            return self.engine.update(tx, client, step, self.engine.inspect(body))

    def take(self, schedule, step):
        """Send the messages of all clients of a step, and release the step."""
        for client in schedule.at(step).tolist():
            body = self.message(client, step)
            self.sent[step][body] += 1
            assert self.send(client, step, body).answer is WireAnswer.ACCEPTED
        self.close()

    def close(self):
        with self.storage.transaction() as tx:
            self.engine.close_step(tx)
        self.engine.publish()

    def run(self):
        participation, population = self.charter.scheme.participation, self.charter.population
        seed = Plan.from_toml(self.charter.plan).run.seed
        for schedule in draw_run(participation, population, SimulationStreams(seed)):
            for step in range(schedule.first_step, schedule.first_step + schedule.steps):
                self.take(schedule, step)
        return self.engine.published.parameters


@pytest.mark.parametrize("norm", KINDS)
def test_simulation_and_service_give_identical_models_for_equal_draws(norm, monkeypatch):
    parameters, sent = simulated(norm)
    served = Served(norm)
    assert served.run() == parameters
    assert served.sent == sent
    assert sum(count for step in sent.values() for count in step.values()) == 2 * 40
    assert sum(map(len, sent.values())) > 2 * 40 * 0.9  # clients draw independently
    assert parameters != task(norm).parameters


def test_a_device_that_clips_in_another_norm_is_detected(monkeypatch):
    """Negative control of the test that compares simulated and served models."""
    _, sent = simulated("linf")
    right = trainer_on_dealt()(task("linf").charter)
    served = Served("linf", Trainer(right._task))  # clips in ℓ2, as for whole numbers
    served.run()
    assert served.sent != sent


def test_malformed_messages_are_refused_and_valid_ones_counted_once():
    served = Served("linf")
    randomizer = served.charter.encoding.randomizer
    body = served.message(1, 0)
    largest = max(randomizer.radices).to_bytes(len(body), "little")  # 650 coordinates, 2 values
    for wrong in (b"", body[:-1], body + b"\0", largest, b"\xff" * len(body)):
        with pytest.raises(RemoteProtocolError):
            served.engine.inspect(wrong)
    receipt = served.send(1, 0, body)
    assert receipt.answer is WireAnswer.ACCEPTED
    assert served.send(1, 0, body) == receipt
    other = bytes([body[0] ^ 1]) + body[1:]
    assert served.send(1, 0, other).answer is WireAnswer.CONFLICT
    served.open()
    assert served.send(1, 0, other).answer is WireAnswer.CONFLICT
    assert served.send(1, 1, other).answer is WireAnswer.EARLY
    served.close()
    assert served.send(1, 1, other).answer is WireAnswer.CONFLICT  # once per window
    assert served.send(2, 0, body).answer is WireAnswer.LATE
    with served.storage.snapshot(whole=True) as view:
        release = view.release_at(0)
    total = randomizer.mean(randomizer.total(randomizer.unpack(body, 1)), 1)
    assert release.record.sum_digest == hashlib.sha256(total.astype("<f8").tobytes()).digest()
    assert (release.checked_in, release.served) == (1, 1)


def test_a_step_without_messages_is_released_and_survives_a_restart():
    """The sum of no messages is zero; messages after a restart are added to earlier messages."""
    apart, whole = Served("l2"), Served("l2")
    for served in (apart, whole):
        for client in (3, 4, 5):
            served.send(client, 0, served.message(client, 0))
            if served is apart:
                served.open()
        served.close()
        served.close()
    assert apart.engine.published.head == whole.engine.published.head
    assert apart.engine.published.parameters == whole.engine.published.parameters
    with whole.storage.snapshot(whole=True) as view:
        empty = view.release_at(1)
    assert empty.record.sum_digest == hashlib.sha256(bytes(8 * 650)).digest()
    assert empty.served == 0


def test_the_charter_contains_epsilon_of_observed_messages():
    charter = task("l2").charter
    prepared = prepare(Plan.from_toml(text("l2")), 40)
    assert charter.scheme == prepared.scheme
    assert charter.target == prepared.guarantee.epsilon.upper == charter.spent(charter.steps)
    assert charter.spent(1) > 3.9  # a single message, though its window has two steps left


@pytest.mark.parametrize(
    ("said", "instead", "why"),
    [
        ('trust = "local"', 'trust = "shuffled"\nepsilon = 4', "shuffler"),
        ('norm = "l2"', 'norm = "linf"\nas_printed = true', "as_printed"),
        ("windows = 2", 'windows = 2\n[protocol]\nrelease = "one-client"', "aggregated"),
        ('norm = "l2"', 'norm = "l2"\nbits = 30', "bits = 30"),
        (
            'law = "check-in"\nwindow = 3\nwindows = 2',
            'law = "fixed-size"\nsize = 3\nsteps = 2',
            "under FixedSize no device can draw its own steps",
        ),
    ],
)
def test_unsupported_tasks_under_local_trust_are_refused_in_one_line(said, instead, why):
    changed = text("l2").replace(said, instead)
    assert changed != text("l2")
    with pytest.raises((UnsupportedError, ParameterError), match=why) as refused:
        new_task(changed, Path(), Timing())
    assert "\n" not in str(refused.value)


def test_a_device_refuses_a_charter_with_another_randomizer():
    charter = task("l2").charter
    for said, instead, why in (
        ('norm = "l2"', 'norm = "l2"\npreferred = 3', "randomizer"),
        ("epsilon0 = 4.0", "epsilon0 = 3.0", "randomizer.epsilon0"),
        ("clip_norm = 0.2", "clip_norm = 0.1", "clip_norm"),
    ):
        plan = charter.plan.replace(said, instead)
        assert plan != charter.plan
        with pytest.raises(ParameterError, match=why):
            trainer_on_dealt()(replace(charter, plan=plan))


def test_a_device_refuses_a_charter_that_charges_too_little_epsilon():
    """The charter is valid, but lists less ε than its messages have."""
    charter = task("linf").charter
    require_price(charter)
    less = tuple(0.9 * e for e in charter.charged)
    liar = replace(charter, charged=less)
    with pytest.raises(RemoteProtocolError, match="but its messages cost"):
        require_price(liar)
    built = []
    with pytest.raises(RemoteProtocolError, match="but its messages cost"):
        within_promise(built.append)(liar)
    assert built == []
    assert within_promise(lambda given: given)(charter) is charter


@pytest.mark.parametrize("norm", KINDS)
def test_a_device_never_refuses_a_charter_with_a_correct_epsilon(norm):
    """A lower bound is compared with an upper bound, so no tolerance is needed for long runs."""
    charter = task(norm).charter
    message = replace(charter.encoding.randomizer, epsilon=0.3).priced_as
    for participation in (CheckIn(9, 8, 0.3), EveryStep(25), KSubset(4, 2, 3)):
        scheme = replace(charter.scheme, randomizer=message, participation=participation)
        charged = price(scheme, charter.delta).epsilon.upper
        least = least_bound(scheme, participation.steps, charter.delta)
        assert 0.97 * charged < least <= charged
