"""A run that checkpoints after every step; a test kills it. Usage: killed_run.py FILE [STEPS].

It stands still once it has saved so many more steps, until it is told how many more it may take:
a number a line on stdin. Without a number it goes on to the end.
"""

import math
import sys

from numpy_task import MeanTask
from simulation_cases import POPULATION, simulation

from turnout.schemes import CheckIn, ReleaseRule
from turnout.simulation import FileCheckpoints


def build():
    law = CheckIn(window=30, windows=20, probability=0.8)
    task = MeanTask(POPULATION, dimension=2000)
    return simulation(law, ReleaseRule.ONE_CLIENT, task=task, minibatch=4, evaluate_every=7)


class Halting(FileCheckpoints):
    """Checkpoints in a file, and a halt after so many of them."""

    def __init__(self, path, steps):
        super().__init__(path)
        self._left = steps

    def save(self, checkpoint):
        super().save(checkpoint)
        self._left -= 1
        while self._left <= 0:
            print("halted", flush=True)
            self._left = float(sys.stdin.readline() or "inf")  # nobody is there to tell


if __name__ == "__main__":
    store = Halting(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else math.inf)
    result = build().run(from_checkpoint=store.load(), checkpoints=store)
    sys.exit(0 if result.finished else 3)
