"""The engine learns a real task, and a run resumed from a file has the same bits."""

import numpy as np
import pytest
from numpy_task import MemoryCheckpoints
from simulation_cases import same_run

from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.optimizers import Adam, AveragedOptimizer, Constant, ExponentialAverage
from turnout.learning.tasks import SupervisedTask
from turnout.schemes import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme
from turnout.simulation import FileCheckpoints, Simulation

FEATURES, CLASSES = 12, 3


def examples(count, seed):
    centres = np.random.default_rng(0).normal(0, 1, (CLASSES, FEATURES))
    generator = np.random.default_rng(seed)
    labels = generator.integers(CLASSES, size=count)
    noise = generator.normal(0, 0.5, (count, FEATURES))
    return Examples((centres[labels] + noise).astype(np.float32), labels)


def simulation(release=ReleaseRule.AGGREGATED):
    model = build_model("logistic", (FEATURES,), CLASSES)
    task = SupervisedTask(model, examples(400, 1), examples(200, 2))
    scheme = Scheme(GaussianNoise(1.0), CheckIn(window=10, windows=4), Relation.ADD_REMOVE, release)
    optimizer = AveragedOptimizer(Adam(Constant(0.1)), ExponentialAverage(0.8))
    return Simulation(scheme, FedSGD(task, optimizer, 0.5), seed=3, evaluate_every=10)


def test_a_simulation_with_noise_learns_a_real_task():
    accuracy = simulation().run().history.metrics["accuracy"]
    assert accuracy[0] < 0.6
    assert accuracy[-1] > 0.9


@pytest.mark.parametrize("release", ReleaseRule)
def test_a_run_resumed_from_a_file_has_the_same_bits(release, tmp_path):
    kept, file = MemoryCheckpoints(), FileCheckpoints(tmp_path / "run.npz")
    whole = simulation(release).run(checkpoints=kept)
    for checkpoint in kept.kept[1::13]:
        file.save(checkpoint)
        assert same_run(simulation(release).run(from_checkpoint=file.load()), whole)
