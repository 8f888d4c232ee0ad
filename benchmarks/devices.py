"""Clients per second of clipped updates by device and precision, and ratios to float32 on a CPU.

Two networks are measured: the 13,706-parameter network of the other benchmarks and a wider one, on
batches of 4,096 clients with one image each. A GPU is measured if PyTorch finds one.

    python benchmarks/devices.py [--clients 4096]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn

from turnout.learning.examples import Examples
from turnout.learning.gradients import CPU, Compute, Precision
from turnout.learning.models import Model, build_model
from turnout.learning.modules import build_module
from turnout.learning.tasks import SupervisedTask

REPEATS = 5


def wide() -> nn.Module:
    """Network of 1.2 million parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 400),
                         nn.ReLU(), nn.Linear(400, 10))  # fmt: skip


def clients_a_second(model: Model, compute: Compute, clients: int) -> float:
    """Median rate of several sums over all clients, in clients per second."""
    random = np.random.default_rng(1)
    images = random.random((clients, 28, 28), np.float32)
    examples = Examples(images, random.integers(0, 10, clients))
    task = SupervisedTask(model, examples, Examples(images[:8], examples.labels[:8]),
                          compute=compute)  # fmt: skip
    at, found = task.initial_parameters(random), []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        task.clipped_sum(at, np.arange(clients), 1.0)
        found.append(time.perf_counter() - start)
    return clients / statistics.median(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=4096)
    given = parser.parse_args()
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    settings = [Compute(device, precision) for device in devices for precision in Precision]
    models = {"tanh-cnn-13k": build_model("tanh-cnn-13k", (28, 28), 10), "wide": build_module(wide)}
    for name, model in models.items():
        rates = {compute: clients_a_second(model, compute, given.clients) for compute in settings}
        for compute, rate in rates.items():
            where = f"{name} on {compute.device} in {compute.precision}"
            print(f"{where:36}{rate:12,.0f} clients a second{rate / rates[CPU]:8.2f}")


if __name__ == "__main__":
    main()
