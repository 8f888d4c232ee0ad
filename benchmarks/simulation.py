"""Users per CPU-second of a private simulation: turnout compared with Apple's pfl.

Both packages simulate the same task on the same machine, alternating: MNIST, one image per user,
cohorts of 1,000 users, the tanh network with 13,706 parameters, one local gradient each, clipped to
norm 1, Gaussian noise on the sum, SGD with momentum on the server. A CPU-second is a second of one
core, user and system time, from the end of one round to the end of the next. Rounds with an
evaluation, start-up and data loading are left out for both. The figure of each package is its
median round; the ratio compares the medians.

    TURNOUT_DATA=... python benchmarks/simulation.py --json simulation.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from peers.environment import python as peers_python

from turnout import data as datasets
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.local_updates import LayeredUpdates, LocalTraining, VmappedUpdates
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD, Constant
from turnout.learning.tasks import SupervisedTask
from turnout.reporting.surroundings import surroundings
from turnout.schemes import FixedSize, GaussianNoise, Relation, Scheme
from turnout.simulation import Progress, Simulation

MODEL, CLIP_NORM, NOISE, RATE, MOMENTUM = "tanh-cnn-13k", 1.0, 1.0, 0.5, 0.9
NEEDED = 15.0


@dataclass(frozen=True)
class Rounds:
    """CPU and wall seconds of each round of one run."""

    cpu_seconds: list[float]
    wall_seconds: list[float]


def turnout_rounds(task: SupervisedTask, cohort: int, rounds: int, rate: float = RATE) -> Rounds:
    """Rounds of a whole simulation by turnout: draws, protocol, updates, noise and optimizer."""
    participation = FixedSize(cohort, task.population, rounds + 2)
    scheme = Scheme(GaussianNoise(NOISE), participation, Relation.ZERO_OUT)
    algorithm = FedSGD(task, SGD(Constant(rate), MOMENTUM), CLIP_NORM)
    simulation = Simulation(
        scheme,
        algorithm,
        expected_check_ins=float(cohort),
        seed=1,
        evaluate_every=rounds + 2,
    )
    ends: list[tuple[float, float]] = []

    def note(progress: Progress) -> None:
        if 1 <= progress.step <= rounds + 1:
            ends.append((time.process_time(), time.perf_counter()))

    simulation.run(on_progress=note)
    cpu, wall = np.diff(np.array(ends), axis=0).T
    return Rounds(cpu.tolist(), wall.tolist())


def pfl_rounds(data: Path, cohort: int, rounds: int, threads: int) -> Rounds:
    """Rounds of the same simulation by pfl, in the peers' environment."""
    script = Path(__file__).parent / "peers" / "pfl_simulation.py"
    numbers = {"cohort": cohort, "rounds": rounds, "threads": threads}
    flags = [f"--{name}={value}" for name, value in numbers.items()]
    flags += [f"--clip={CLIP_NORM}", f"--noise={NOISE}", f"--rate={RATE}"]
    command = [str(peers_python()), "-W", "ignore", str(script), str(data), *flags]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["parameters"] == build_model(MODEL, (28, 28), 10).dimension
    return Rounds(found["cpu_seconds"], found["wall_seconds"])


def task_of(name: str, vmapped: bool, train: Examples, test: Examples) -> SupervisedTask:
    """Task whose updates are computed with or without vectorised gradients."""
    model = build_model(name, train.input_shape, 10)
    updates = (VmappedUpdates if vmapped else LayeredUpdates)(model, LocalTraining())
    return SupervisedTask(model, train, test, updates=updates)


def users_a_second(cohort: int, rounds: list[Rounds], what: str) -> float:
    """Users per second of the median round."""
    return cohort / float(np.median([s for part in rounds for s in getattr(part, what)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cohort", type=int, default=1000)
    parser.add_argument(
        "--rounds", type=int, default=8, help="timed rounds of each package per turn"
    )
    parser.add_argument("--turns", type=int, default=3, help="number of turns of each package")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of PyTorch, for both packages"
    )
    parser.add_argument("--others", action="store_true", help="also measure turnout's other models")
    parser.add_argument("--json", type=Path, help="JSON file for the results")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = datasets.load_images("mnist")
    train = Examples(data.train.inputs, data.train.labels)
    test = Examples(data.test.inputs, data.test.labels)
    task = task_of(MODEL, False, train, test)
    ours: list[Rounds] = []
    theirs: list[Rounds] = []
    # Both packages take turns on the same data, so that load on the machine affects both.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mnist.npz"
        inputs = train.inputs.astype(np.float32)
        np.savez(file, inputs=inputs / max(1.0, inputs.max()), labels=train.labels)
        for _ in range(given.turns):
            theirs.append(pfl_rounds(file, given.cohort, given.rounds, given.threads))
            ours.append(turnout_rounds(task, given.cohort, 4 * given.rounds))
    rows = [
        ("turnout simulation", MODEL, ours),
        ("pfl 0.6.0 simulation", MODEL, theirs),
    ]
    # Other models and ways to compute gradients, without comparison.
    if given.others:
        for name, vmapped in (
            (MODEL, True),
            ("tanh-cnn-26k", False),
            ("tanh-cnn-26k", True),
            ("logistic", False),
            ("logistic", True),
        ):
            other = task_of(name, vmapped, train, test)
            path = "vmap" if vmapped else "layered"
            rows.append((f"turnout, {path}", name, [turnout_rounds(other, given.cohort, 16)]))
    report(rows, given)


def report(rows: list[tuple[str, str, list[Rounds]]], given: argparse.Namespace) -> None:
    """Print the table and the ratio, and write the file."""
    figures = [
        {
            "what": what,
            "model": model,
            "users_per_cpu_second": users_a_second(given.cohort, rounds, "cpu_seconds"),
            "users_per_second": users_a_second(given.cohort, rounds, "wall_seconds"),
            "rounds": sum(len(part.cpu_seconds) for part in rounds),
        }
        for what, model, rounds in rows
    ]
    # The first row is turnout's and the second pfl's.
    ratio = figures[0]["users_per_cpu_second"] / figures[1]["users_per_cpu_second"]
    print(f"{'':24}{'model':16}{'users per CPU-second':>22}{'users per second':>18}")
    for row in figures:
        print(
            f"{row['what']:24}{row['model']:16}"
            f"{row['users_per_cpu_second']:>22,.0f}{row['users_per_second']:>18,.0f}"
        )
    print(f"ratio {ratio:.1f} (needed: {NEEDED:.0f})")
    # Write the requested results; the exit status is 1 if the ratio is too small.
    if given.json is not None:
        found = {
            "ratio": ratio,
            "needed": NEEDED,
            "figures": figures,
            "cohort": given.cohort,
            "threads": given.threads,
            **surroundings(),
        }
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if ratio >= NEEDED else 1)


if __name__ == "__main__":
    main()
