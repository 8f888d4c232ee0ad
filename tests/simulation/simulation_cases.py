"""Small runs of every participation and every release rule."""

import numpy as np
from numpy_task import MeanTask, Momentum

from turnout.learning.algorithm import FedSGD
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
    SlidingWindow,
)
from turnout.simulation import Simulation

POPULATION = 60
LAWS = {
    "every step": EveryStep(12),
    "poisson": PoissonSampling(0.1, 12),
    "self-sampling": SelfSampling(0.1, 12),
    "fixed size": FixedSize(5, POPULATION, 12),
    "check-in": CheckIn(window=5, windows=3, probability=0.5),
    "sliding": SlidingWindow(window=9, slots=20, clients_per_slot=3),
    "k-subset": KSubset(window=6, picks=2, windows=2),
    "availability": AvailabilityCheckIn(
        np.random.default_rng(3).random((POPULATION, 14)) < 0.3, window=4
    ),
}


def simulation(
    law,
    release=ReleaseRule.AGGREGATED,
    *,
    sigma=1.0,
    seed=1,
    task=None,
    optimizer=None,
    clip_norm=1.0,
    algorithm=None,
    **options,
):
    scheme = Scheme(GaussianNoise(sigma), law, Relation.ADD_REMOVE, release)
    options.setdefault("evaluate_every", 5)
    options.setdefault("minibatch", 2 if release is ReleaseRule.ONE_CLIENT else 1)
    task = MeanTask(POPULATION) if task is None else task
    algorithm = algorithm or FedSGD(task, optimizer or Momentum(), clip_norm)
    return Simulation(scheme, algorithm, seed=seed, **options)


def same_run(first, second):
    """True if two results have the same bits, running time aside; otherwise an AssertionError."""
    assert (first.finished, first.steps_done) == (second.finished, second.steps_done)
    np.testing.assert_array_equal(first.parameters, second.parameters)
    assert first.parameters.dtype == second.parameters.dtype
    assert first.clients.keys() == second.clients.keys()
    for client, state in first.clients.items():
        assert state.keys() == second.clients[client].keys()
        for name, array in state.items():
            np.testing.assert_array_equal(array, second.clients[client][name])
    ours, theirs = first.history.columns(), second.history.columns()
    assert list(ours) == list(theirs)
    for name in ours:
        if name != "seconds":
            np.testing.assert_array_equal(ours[name], theirs[name])
            assert ours[name].dtype == theirs[name].dtype
    return True
