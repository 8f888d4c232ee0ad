"""CLDP-SGD on MNIST with shuffled messages of 15 bits: the runs of the thesis' Figures 4.2 and 5.7.

    python benchmarks/cldp_sgd.py [--figure 4.2 | 5.7] [--seeds 3] [--as-printed] [--json FILE]

60,000 clients with one image each, 10,000 of them a round, clipped to 1/100 coordinate by
coordinate, one sampled coordinate and one bit a message, tanh-cnn-13k. Clients send messages; no
sum of updates is drawn in any other way. Prints the accuracy over the run, ε from both sides at
δ = 1e-5 under replace-one, the bits that are sent and how many times fewer they are than float32.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import turnout as tn
from turnout.datasets import mnist
from turnout.learning.examples import Examples
from turnout.learning.fedsgd import FedSGD
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD
from turnout.learning.tasks import SupervisedTask
from turnout.randomizers.vectors import LInfRandomizer
from turnout.spec.shuffles import shuffled

CLIENTS, SAMPLED, CLIP, DELTA = 60_000, 10_000, 0.01, 1e-5
FIGURES = {"4.2": (2.0, 480), "5.7": (1.5, 1200)}
"""ε₀ and rounds."""


@dataclass(frozen=True, slots=True)
class Rate:
    """0.3, and 0.18 from 7/8 of the run on, as printed; ours is a multiple of it."""

    rounds: int
    factor: float = 1.0

    def __call__(self, step: int) -> float:
        """The rate of a round."""
        return self.factor * (0.3 if step < self.rounds * 7 // 8 else 0.18)


def task() -> SupervisedTask:
    """One image a client."""
    data = mnist()
    train, test = (Examples(part.inputs, part.labels) for part in (data.train, data.test))
    return SupervisedTask(build_model("tanh-cnn-13k", (28, 28), 10), train, test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", choices=FIGURES, default="4.2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--factor", type=float, default=1.0, help="of the learning rate")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--as-printed", action="store_true", help="the printed randomizer")
    parser.add_argument("--json", type=Path, help="where the figures go")
    given = parser.parse_args()
    epsilon0, rounds = FIGURES[given.figure]
    made = task()
    variant = "as-printed" if given.as_printed else "default"
    randomizer = LInfRandomizer(made.dimension, epsilon0, CLIP, variant=variant)
    scheme = shuffled(randomizer.law, CLIENTS, rounds, sampled=SAMPLED)
    epsilon, bits = tn.price(scheme, delta=DELTA).epsilon, randomizer.message_bits
    print(f"ε₀ = {randomizer.epsilon0:.4g}, {rounds} rounds: ε in "
          f"[{epsilon.lower:.4f}, {epsilon.upper:.4f}] at δ = {DELTA:g}")  # fmt: skip
    print(f"{bits} bits a message, 1/{32 * made.dimension / bits:,.0f} of float32")
    runs = []
    for seed in range(1, given.seeds + 1):
        start = time.perf_counter()
        rate = Rate(rounds, given.factor)
        learned = FedSGD(made, SGD(rate, momentum=given.momentum), CLIP)
        run = tn.simulate(scheme, algorithm=learned, messages=randomizer, seed=seed,
                          evaluate_every=rounds // 12)  # fmt: skip
        assert run.history is not None
        scores = run.history.metrics["accuracy"]
        runs.append([float(score) for score in scores])
        shown = " ".join(f"{score:.1%}" for score in scores)
        print(f"seed {seed}: {shown}  ({time.perf_counter() - start:.0f} s)", flush=True)
    last = np.array(runs)[:, -1]
    print(f"accuracy at the end: {last.mean():.2%}, from {last.min():.2%} to {last.max():.2%}")
    if given.json is not None:
        facts = {"figure": given.figure, "epsilon": [epsilon.lower, epsilon.upper], "bits": bits}
        given.json.write_text(json.dumps({**facts, "accuracy": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
