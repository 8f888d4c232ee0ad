"""Speed of training with two Ray workers compared with one, and the cost of a block of clients.

python benchmarks/ray_workers.py [--model tanh-cnn-13k] [--clients 4000] [--steps 20] [--repeats 3]

The script prints seconds of a private simulation's steps (draws, sums, noise, optimizer; no
evaluation) on MNIST, alternating between one worker and two, the ratio of their medians, and the
same on one thread of this process. It also prints the cost of a block of clients: CPU time, and
bytes sent to the process that sums the blocks. It needs two idle cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import nullcontext

import numpy as np
import torch

from turnout import data as datasets
from turnout.integrations.ray import RayEngine
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD, Constant
from turnout.learning.tasks import SupervisedTask
from turnout.schemes import FixedSize, GaussianNoise, Relation, Scheme
from turnout.simulation import Progress, Simulation

WARM_UP = 12
"""Steps before the measurement, in which frequent shapes are compiled."""


def seconds_a_step(task: SupervisedTask, clients: int, steps: int) -> tuple[float, np.ndarray]:
    """Median seconds of a step, and the parameters at the end."""
    participation = FixedSize(clients, task.population, WARM_UP + steps)
    scheme = Scheme(GaussianNoise(1.0), participation, Relation.ZERO_OUT)
    algorithm = FedSGD(task, SGD(Constant(0.5), 0.9), 1.0)
    simulation = Simulation(
        scheme, algorithm, expected_check_ins=float(clients), seed=1, evaluate_every=10**6
    )
    ends: list[float] = []

    def note(progress: Progress) -> None:
        if WARM_UP <= progress.step < participation.steps:
            ends.append(time.perf_counter())

    result = simulation.run(on_progress=note)
    return float(np.median(np.diff(ends))), result.parameters


def main() -> None:
    """Print a line for each number of workers, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tanh-cnn-13k")
    parser.add_argument("--clients", type=int, default=4000, help="clients per step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    # The task that all engines compute.
    data = datasets.load_images("mnist")
    examples = Examples(data.train.inputs, data.train.labels)
    held_out = Examples(data.test.inputs[:64], data.test.labels[:64])
    model = build_model(given.model, examples.input_shape, 10)
    task = SupervisedTask(model, examples, held_out)
    found: dict[str, list[float]] = {"one thread": [], "one worker": [], "two workers": []}
    ends: list[np.ndarray] = []
    # The engines alternate, so that load on the machine affects all of them.
    for _ in range(given.repeats):
        for name, workers in zip(found, (None, 1, 2), strict=True):
            with RayEngine(workers=workers) if workers else nullcontext() as engine:
                seconds, end = seconds_a_step(task.computed_by(engine), given.clients, given.steps)
            found[name].append(seconds)
            ends.append(end)
    medians = {name: statistics.median(each) for name, each in found.items()}
    for name, seconds in medians.items():
        print(f"{name}: {seconds * 1e3:.1f} ms a step, {given.clients / seconds:,.0f} clients/s")
    print(f"two workers are {medians['one worker'] / medians['two workers']:.2f} times one")
    print(f"the same bits: {all(np.array_equal(end, ends[0]) for end in ends)}")
    print(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
