"""Users per CPU-second of clipped updates: a custom module, the layered model, Opacus, JAX Privacy.

The model is the 13,706-parameter tanh network, with one 28×28 example per user, batches of 1,000
and one thread. The implementations alternate. Each figure is that of the median round; the other
packages run with the best setting of each mode. A round of turnout and of JAX Privacy is the sum of
clipped updates; a round of Opacus adds noise and an SGD step, which cost a hundredth of it.

    python benchmarks/own_modules.py --json own_modules.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from peers.environment import python as peers_python
from torch import nn

from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.modules import build_module
from turnout.learning.tasks import SupervisedTask
from turnout.reporting.surroundings import surroundings

LEAST = {"turnout, module by vmap": 1.2, "turnout, layered": 2.5}
"""Least acceptable ratios to Opacus' fastest mode."""

PEERS = {
    "Opacus": ("opacus", "opacus_updates.py"),
    "JAX Privacy": ("jax-privacy", "jax_updates.py"),
}
"""Environment and script of each peer."""


class Network(nn.Module):
    """The network as a user would write it in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 8, 2, 3), nn.Conv2d(16, 16, 4, 2)
        self.pool, self.hidden = nn.MaxPool2d(2, 1), nn.Linear(256, 32)
        self.scores = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of shape (n, 10)."""
        values = torch.tanh(self.pool(self.first(images)))
        values = torch.tanh(self.pool(self.second(values)))
        return self.scores(torch.tanh(self.hidden(values.flatten(1))))


def seconds_of(task: SupervisedTask, start: np.ndarray, rounds: int) -> list[float]:
    """CPU-seconds of each round, after one round that does not count."""
    clients, found = np.arange(task.population), []
    for _ in range(rounds + 1):
        begin = time.process_time()
        task.clipped_sum(start, clients, 1.0)
        found.append(time.process_time() - begin)
    return found[1:]


def peer_seconds(peer: str, batch: int, rounds: int) -> dict[str, dict[int, list[float]]]:
    """CPU-seconds of another package, by mode and number of examples per batch."""
    environment, script = PEERS[peer]
    interpreter, file = peers_python(environment), Path(__file__).parent / "peers" / script
    command = [str(interpreter), str(file), str(batch), str(rounds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for row in map(json.loads, done.stdout.splitlines()):
        found[f"{peer}, {row['mode']}"][row["at_once"]] = row["cpu_seconds"]
    return found


def tasks(batch: int) -> dict[str, tuple[SupervisedTask, np.ndarray]]:
    """Both implementations of turnout, with the parameters at which updates are computed."""
    random = np.random.default_rng(1)
    images, labels = random.random((batch, 28, 28), np.float32), random.integers(0, 10, batch)
    flat, channelled = Examples(images, labels), Examples(images[:, None], labels)
    layered, module = build_model("tanh-cnn-13k", (28, 28), 10), build_module(Network)
    assert layered.dimension == module.dimension == 13_706
    return {
        "turnout, module by vmap": (SupervisedTask(module, channelled, channelled), module.start),
        "turnout, layered": (
            SupervisedTask(layered, flat, flat),
            layered.initial_parameters(random),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument(
        "--rounds", type=int, default=6, help="timed rounds of each implementation per turn"
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="JSON file for the results")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ours, theirs = defaultdict(list), defaultdict(lambda: defaultdict(list))
    made = tasks(given.batch)
    # Alternate between the implementations, so that changes of the machine's load affect all.
    for _ in range(given.turns):
        for name, (task, start) in made.items():
            ours[name] += seconds_of(task, start, given.rounds)
        for peer in PEERS:
            for mode, settings in peer_seconds(peer, given.batch, given.rounds).items():
                for at_once, seconds in settings.items():
                    theirs[mode][at_once] += seconds
    # Rates of the median round, for other packages with their best setting.
    rates = {name: given.batch / float(np.median(seconds)) for name, seconds in ours.items()}
    for mode, settings in theirs.items():
        best = min(float(np.median(seconds)) for seconds in settings.values())
        rates[mode] = given.batch / best
    report(rates, given.json)


def report(rates: dict[str, float], file: Path | None) -> None:
    """Print the table and ratios to Opacus' fastest mode, and write the file."""
    fastest = max(rate for name, rate in rates.items() if name.startswith("Opacus"))
    for name, rate in rates.items():
        wanted = f" (wanted: {LEAST[name]})" if name in LEAST else ""
        print(f"{name:26}{rate:10,.0f} users per CPU-second{rate / fastest:8.2f}{wanted}")
    if file is not None:
        found = {
            "users_per_cpu_second": rates,
            "ratios": {name: rate / fastest for name, rate in rates.items()},
            **surroundings(),
        }
        file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
