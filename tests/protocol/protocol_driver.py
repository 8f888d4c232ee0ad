"""Helpers that drive a small coordinator by hand, shared by the protocol tests."""

import numpy as np

from turnout.core.aggregates import UpdateSum
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.mechanisms import Clipping, mechanism_for
from turnout.protocol.messages import CheckIns, Updates
from turnout.randomness import SimulationStreams
from turnout.schemes import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme


def scheme(release=ReleaseRule.AGGREGATED, participation=None, sigma=1.0):
    participation = CheckIn(window=4, windows=2) if participation is None else participation
    return Scheme(GaussianNoise(sigma), participation, Relation.ADD_REMOVE, release)


def mechanism(
    release=ReleaseRule.AGGREGATED,
    *,
    participation=None,
    sigma=1.0,
    dimension=2,
    clip_norm=1.0,
    expected_check_ins=2.0,
    minibatch=1,
):
    return mechanism_for(
        scheme(release, participation, sigma),
        Clipping(dimension, clip_norm),
        expected_check_ins=expected_check_ins,
        minibatch=minibatch,
    )


PROGRESS = ("capacity", "first_step", "mechanism_state", "admitted", "used")


def coordinator(release=ReleaseRule.AGGREGATED, *, participation=None, **options):
    progress = {name: options.pop(name) for name in PROGRESS if name in options}
    participation = scheme(release, participation).participation
    progress.setdefault("capacity", 10)
    return Coordinator(
        participation, mechanism(release, participation=participation, **options), **progress
    )


def source(*name):
    return SimulationStreams(5).source("tests", *name)


def std_itself(std, dimension):
    """Noise function that returns the requested standard deviation in every coordinate."""
    return np.full(dimension, std)


def no_noise(std, dimension):
    return np.zeros(dimension)


def unexpected_noise(std, dimension):
    raise AssertionError("no noise is due here")


def ids(*clients):
    return np.array(clients, dtype=np.int64)


def check_in(machine, *clients):
    return machine.check_in(CheckIns(machine.step, ids(*clients)))


def updates(step, vectors, noised=0):
    """Update message of several clients, from ``vectors``: ``{client: vector}``."""
    clients = ids(*sorted(vectors))
    total = sum((np.asarray(vectors[c], float) for c in clients.tolist()), np.zeros(2))
    return Updates(step, clients, UpdateSum(total, clients.size, noised))


def run_step(machine, vectors, noise=std_itself, draw=None):
    """Run one step in which the clients in ``vectors`` check in and send a vector if requested."""
    machine.open_step()
    check_in(machine, *vectors)
    request = machine.close_check_ins(source("select", machine.step) if draw is None else draw)
    asked = {int(client): vectors[int(client)] for client in request.clients}
    if asked:
        machine.receive(updates(request.step, asked))
    return machine.close_step(noise)
