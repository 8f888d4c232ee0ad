"""Run that saves a checkpoint after every step, for tests that kill it.

Usage: killed_run.py FILE [STEPS]. After STEPS saves the run halts and reads from stdin how many
more steps to take, one number in each line. Without STEPS, or at the end of stdin, it runs to its
end.
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
    """Store of checkpoints in a file, which halts the run after a number of saves."""

    def __init__(self, path, steps):
        super().__init__(path)
        self._left = steps

    def save(self, checkpoint):
        super().save(checkpoint)
        self._left -= 1
        while self._left <= 0:
            print("halted", flush=True)
            self._left = float(sys.stdin.readline() or "inf")  # "" at the end of stdin


if __name__ == "__main__":
    store = Halting(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else math.inf)
    result = build().run(from_checkpoint=store.load(), checkpoints=store)
    sys.exit(0 if result.finished else 3)
