"""Speed of computing features and training with two threads compared with one.

python benchmarks/two_cores.py [--clients 20000] [--repeats 3]

The script prints the seconds of the example `mnist` with fewer clients, separately for features and
training, and of training the network tanh-cnn-13k on the same images, alternating between one
thread and two, and the ratio of their medians. It needs two idle cores. Memory bandwidth limits the
linear model's training.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict

import numpy as np
import torch

from turnout.data import mnist
from turnout.learning.examples import Examples
from turnout.learning.features import apply_features
from turnout.learning.models import build_model
from turnout.learning.tasks import SupervisedTask

FEATURES = "deskewed | scattering + hog"
CLIENTS_A_STEP, STEPS, CLIP_NORM = 4000, 20, 8.0
NETWORK = "tanh-cnn-13k"


def features_seconds(images: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds for the features of the given images, and the features."""
    start = time.perf_counter()
    made = apply_features(FEATURES, images)
    return time.perf_counter() - start, made


def training_seconds(model: str, inputs: np.ndarray, labels: np.ndarray) -> float:
    """Seconds for clipped sums of several steps, with one example per client."""
    built = build_model(model, inputs.shape[1:], 10)
    task = SupervisedTask(built, Examples(inputs, labels), Examples(inputs[:64], labels[:64]))
    generator = np.random.default_rng(1)
    parameters = built.initial_parameters(generator)
    start = time.perf_counter()
    for _ in range(STEPS):
        clients = generator.choice(task.population, CLIENTS_A_STEP, replace=False)
        parameters -= 1e-4 * task.clipped_sum(parameters, clients, CLIP_NORM).total.astype("f4")
    return time.perf_counter() - start


def main() -> None:
    """Print one line for features and one for training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    data = mnist()
    images, labels = data.train.inputs[: given.clients], data.train.labels[: given.clients]
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(given.repeats):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            seconds, made = features_seconds(images)
            found["features", threads].append(seconds)
            found["linear model", threads].append(training_seconds("logistic", made, labels))
            found[NETWORK, threads].append(training_seconds(NETWORK, images, labels))
    for name in ("features", "linear model", NETWORK):
        one, two = (statistics.median(found[name, threads]) for threads in (1, 2))
        print(f"{name}: {one:.2f} s on one thread, {two:.2f} s on two, {one / two:.2f} times")


if __name__ == "__main__":
    main()
