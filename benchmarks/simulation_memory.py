"""Running time and peak memory of one check-in window with a million clients on one machine.

1,000,000 clients hold one image of 784 bytes each. Each client checks in once in a window of 1,000
steps; a linear model learns from aggregated check-ins. The images are made up (noisy class
prototypes) and stored as bytes, as they would be on disk.

    python benchmarks/simulation_memory.py [--clients N] [--steps N] [--json FILE]

The script prints a table, and exits with 1 if the peak is above 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD, Constant
from turnout.learning.tasks import SupervisedTask
from turnout.reporting.surroundings import surroundings
from turnout.schemes import CheckIn, GaussianNoise, Relation, Scheme
from turnout.simulation import Simulation

FEATURES, CLASSES, HELD_OUT, CHUNK = 784, 10, 10_000, 50_000
CLIP_NORM, NOISE_MULTIPLIER, LIMIT_GIB = 1.0, 1.0, 2.0


def synthetic(count: int, seed: int) -> Examples:
    """Byte images near one prototype per class, made in chunks to save memory."""
    prototypes = np.random.default_rng(0).integers(0, 128, (CLASSES, FEATURES), np.uint8)
    generator = np.random.default_rng(seed)
    labels = generator.integers(CLASSES, size=count)
    inputs = np.empty((count, FEATURES), np.uint8)
    for start in range(0, count, CHUNK):
        part = inputs[start : start + CHUNK]
        part[:] = generator.integers(0, 128, part.shape, np.uint8)
        part += prototypes[labels[start : start + CHUNK]]
    return Examples(inputs, labels)


def peak_gib() -> float:
    """Peak resident memory of this process so far, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def measure(clients: int, steps: int) -> dict[str, float]:
    """Measurements of one window, from made-up data to the last model."""
    started = time.perf_counter()
    # Made-up data, model and simulation.
    examples, held_out = synthetic(clients, 1), synthetic(HELD_OUT, 2)
    model = build_model("logistic", (FEATURES,), CLASSES)
    task = SupervisedTask(model, examples, held_out)
    algorithm = FedSGD(task, SGD(Constant(0.5)), CLIP_NORM)
    scheme = Scheme(GaussianNoise(NOISE_MULTIPLIER), CheckIn(window=steps), Relation.ADD_REMOVE)
    simulation = Simulation(scheme, algorithm, seed=0, evaluate_every=steps)
    # Only the run itself is timed.
    prepared, cpu = time.perf_counter(), time.process_time()
    result = simulation.run()
    seconds, cpu_seconds = time.perf_counter() - prepared, time.process_time() - cpu
    return {
        "clients": clients,
        "steps": steps,
        "participations": result.history.participations,
        "accuracy": float(result.history.metrics["accuracy"][-1]),
        "seconds_data": prepared - started,
        "seconds_run": seconds,
        "cpu_seconds_run": cpu_seconds,
        "clients_per_cpu_second": result.history.participations / cpu_seconds,
        "peak_gib": peak_gib(),
    }


def main() -> int:
    """Measure, print, and compare with the limit."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = measure(arguments.clients, arguments.steps)
    for name, value in figures.items():
        print(
            f"{name:24} {value:>14,.3f}" if isinstance(value, float) else f"{name:24} {value:>14,}"
        )
    if arguments.json is not None:
        found = {"about": surroundings(), **figures}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    within = figures["peak_gib"] <= LIMIT_GIB
    print(f"limit {LIMIT_GIB} GiB: {'kept' if within else 'EXCEEDED'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
