"""Users per CPU-second of Apple's pfl, simulating one private cohort after another.

benchmarks/simulation.py runs this script with the interpreter of the peers' environment. It prints
one JSON object. pfl is set up as in its own benchmarks: data in tensors made once, user ids drawn
in this process, one local gradient step on the user's whole data set, the Gaussian mechanism
applied centrally, no evaluation inside the timed rounds.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism


class TanhNetwork(torch.nn.Module):
    """Network of the comparison: 16 kernels 8×8, then ``filters`` kernels 4×4, 32 units."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 8, stride=2, padding=3),
            torch.nn.MaxPool2d(2, 1),
            torch.nn.Tanh(),
            torch.nn.Conv2d(16, filters, 4, stride=2),
            torch.nn.MaxPool2d(2, 1),
            torch.nn.Tanh(),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * filters, 32),
            torch.nn.Tanh(),
            torch.nn.Linear(32, 10),
        )

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict:
        right = (self.layers(inputs).argmax(1) == labels).sum().item()
        return {"accuracy": Weighted(right, len(labels))}


class RoundClock(TrainingProcessCallback):
    """CPU and wall seconds at the end of each round."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ends.append((time.process_time(), time.perf_counter()))
        return False, Metrics()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="npz with inputs (n, 28, 28) float32 and labels (n,)")
    parser.add_argument("--filters", type=int, default=16)
    parser.add_argument("--cohort", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=0.5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    np.random.seed(0)

    # One user for each image, with all data in memory before the timed rounds.
    with np.load(given.data) as data:
        inputs = torch.tensor(data["inputs"])[:, None]
        labels = torch.tensor(data["labels"])
    users = [Dataset((inputs[i : i + 1], labels[i : i + 1]), str(i)) for i in range(len(labels))]
    sampler = get_user_sampler("random", range(len(users)))
    training = FederatedDataset(lambda user: users[user], sampler)
    # Clipping and Gaussian noise on the sum, and SGD with momentum at the server.
    backend = SimulatedBackend(
        training_data=training,
        val_data=training,
        postprocessors=[
            CentrallyAppliedPrivacyMechanism(GaussianMechanism(given.clip, given.noise))
        ],
    )
    network = TanhNetwork(given.filters)
    model = PyTorchModel(
        network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=given.rate, momentum=0.9)
    )
    # Run one round that is not timed, and then the timed rounds.
    clock = RoundClock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=given.rounds + 1,
            # The first round, which is not timed, is the only one that evaluates.
            evaluation_frequency=given.rounds + 2,
            train_cohort_size=given.cohort,
            val_cohort_size=None,
        ),
        backend,
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=1.0, local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    ends = np.array(clock.ends)
    cpu, wall = np.diff(ends, axis=0).T
    print(
        json.dumps(
            {
                "parameters": sum(p.numel() for p in network.parameters()),
                "cohort": given.cohort,
                "cpu_seconds": cpu.tolist(),
                "wall_seconds": wall.tolist(),
            }
        )
    )


if __name__ == "__main__":
    main()
