"""A run that checkpoints after every step; a test kills it. Usage: killed_run.py FILE."""

import sys

from numpy_task import MeanTask
from simulation_cases import POPULATION, simulation

from turnout.simulation import FileCheckpoints
from turnout.spec import CheckIn, ReleaseRule


def build():
    law = CheckIn(window=30, windows=20, probability=0.8)
    task = MeanTask(POPULATION, dimension=2000)
    return simulation(law, ReleaseRule.ONE_CLIENT, task=task, minibatch=4, evaluate_every=7)


if __name__ == "__main__":
    store = FileCheckpoints(sys.argv[1])
    result = build().run(from_checkpoint=store.load(), checkpoints=store)
    sys.exit(0 if result.finished else 3)
