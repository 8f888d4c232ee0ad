"""One run with canaries of a served task: the engine of `turnout serve`, its storage and its wire.

One run is few trials, so it finds coarse mistakes alone; docs/audit.md says what finds others.
"""

import hashlib
from functools import cache

import numpy as np
from memory_storage import MemoryStorage

import turnout as tn
from turnout.auditing.canaries import log_ratios
from turnout.auditing.one_run import guessed
from turnout.participation.drawing import draw_run
from turnout.protocol.lattice import Lattice
from turnout.randomness import SimulationStreams, rounded_gaussian
from turnout.service.charter import Charter, Timing
from turnout.service.engine import Engine

CANARIES, LAW, DELTA, DIVISOR = 400, tn.CheckIn(3, 2), 1e-6, 100.0


def scheme_of(sigma):
    return tn.Scheme(tn.GaussianNoise(sigma), LAW, "add-remove")


class Sum:
    """A learner that moves by the released direction itself."""

    def init(self, parameters):
        return {}

    def moved(self, parameters, state, direction, move):
        return parameters + direction.astype(np.float32), state

    def released(self, parameters, state):
        return parameters


@cache
def charter_of(sigma) -> Charter:
    steps = LAW.steps
    return Charter(
        plan="",
        population=CANARIES,
        scheme=scheme_of(sigma),
        delta=DELTA,
        target=100.0,
        charged_steps=tuple(range(steps + 1)),
        charged=tuple(float(s) for s in range(steps + 1)),
        encoding=Lattice.for_noise(sigma, 1.0, CANARIES),
        expected_check_ins=DIVISOR,
        minibatch=1,
        initial_model=hashlib.sha256(bytes(4 * CANARIES)).digest(),
        timing=Timing(),
        coordinator_key=bytes(32),
    )


def served_run(sigma, inside, noise_share, seed):
    """The released coordinates of all canaries, in units of C, shape (steps, canaries)."""
    streams, storage, charter = SimulationStreams(seed), MemoryStorage(), charter_of(sigma)
    lattice = charter.encoding
    generator = streams.generator("noise")
    with storage.transaction() as tx:
        tx.create_task(charter.canonical(), bytes(32), bytes(4 * CANARIES))
    engine = Engine.open(
        storage,
        lambda _: Sum(),
        source=streams.source("selection"),
        noise=lambda s, d: rounded_gaussian(noise_share * s, d, generator.bytes),
    )
    models = [np.zeros(CANARIES, np.float32)]
    for schedule in draw_run(LAW, CANARIES, streams):
        for step in range(schedule.first_step, schedule.first_step + schedule.steps):
            for client in schedule.at(step).tolist():
                update = np.zeros(CANARIES)
                update[client] = lattice.clip_norm * inside[client]
                upload = engine.inspect(lattice.encode(lattice.quantise(update)))
                with storage.transaction() as tx:
                    engine.update(tx, client, step, upload)
            with storage.transaction() as tx:
                engine.close_step(tx)
            models.append(np.frombuffer(engine.publish().parameters, "<f4"))
    return np.diff(np.array(models, np.float64), axis=0) * DIVISOR


def found(sigma, noise_share=1.0):
    inside = SimulationStreams(3).source("coins").bernoulli(0.5, CANARIES)
    scores = log_ratios(scheme_of(sigma), served_run(sigma, inside, noise_share, 3))
    return guessed(scores, inside, DELTA, 0.001).epsilon


def stated(sigma):
    return tn.price(scheme_of(sigma), delta=DELTA).epsilon.upper


def test_a_served_task_keeps_its_promise_as_far_as_one_run_shows():
    assert 0.2 < found(0.6) <= stated(0.6)
    assert found(2.0) <= stated(2.0)


def test_a_served_task_almost_without_noise_is_found():
    assert found(2.0, noise_share=0.02) > stated(2.0)
