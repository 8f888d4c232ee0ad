"""ε and accuracy of batches by independent assignment, compared with Opacus' Poisson batches.

python benchmarks/opacus_epsilon.py [--seeds N] [--json FILE]

Both kinds of batches have the same expected size and the same σ, and differ only in the assignment
of records to batches. The first table shows ε over σ and epochs: turnout's upper bound for
`CheckIn(batches, epochs)`, and that of Opacus' PRV accountant for as many Poisson batches, both
under add-remove. The second table shows the accuracy of both on 12,000 images of Fashion-MNIST
(``TURNOUT_DATA``; the bundled digits without it), with otherwise equal training loops.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from packages import named_packages

from turnout.accounting import price
from turnout.data import load_images
from turnout.reporting.surroundings import surroundings
from turnout.schemes import CheckIn, GaussianNoise, Scheme

with named_packages():
    import torch
    from opacus import PrivacyEngine
    from opacus.accountants import PRVAccountant
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from turnout.integrations.batches import AssignedBatches
    from turnout.integrations.opacus import make_private

BATCHES, DELTA = 40, 1e-5
SIGMAS, EPOCHS = (0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 4.0), (1, 4, 16, 64)
TRAINED = ((0.6, 4), (1.0, 4), (2.0, 4), (1.0, 16))
RECORDS, CLIP, RATE = 12_000, 1.0, 0.5


def prv_epsilon(sigma: float, epochs: int) -> float:
    """Upper bound on ε for Poisson batches, by Opacus."""
    accountant = PRVAccountant()
    accountant.history = [(sigma, 1 / BATCHES, BATCHES * epochs)]
    return float(accountant.get_epsilon(DELTA))


def epsilons(sigma: float, epochs: int) -> dict[str, Any]:
    """Upper bounds on ε of both kinds of batches, and the CPU-seconds that they took."""
    scheme = Scheme(GaussianNoise(sigma), CheckIn(BATCHES, epochs), "add-remove", unit="example")
    began = time.process_time()
    ours = price(scheme, DELTA).epsilon
    between = time.process_time()
    theirs = prv_epsilon(sigma, epochs)
    return {
        "sigma": sigma,
        "epochs": epochs,
        "lower": ours.lower,
        "upper": ours.upper,
        "opacus": theirs,
        "below": 1 - ours.upper / theirs,
        "seconds": between - began,
        "opacus seconds": time.process_time() - between,
    }


def accuracy(sigma: float, epochs: int, assigned: bool, data: Any) -> float:
    """Test accuracy of softmax regression in percent."""
    inputs, labels, test_inputs, test_labels = data
    records = TensorDataset(inputs, labels)
    model: Any = nn.Sequential(nn.Linear(inputs.shape[1], 10))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=RATE)
    noise: dict[str, Any] = {"noise_multiplier": sigma, "max_grad_norm": CLIP}
    # Batches by independent assignment, or Poisson batches by Opacus.
    if assigned:
        loader: Any = AssignedBatches.of(len(records), BATCHES, epochs).loader(records)
        made = make_private(
            model, optimizer, loader, **noise, relation="add-remove", public_size=len(records)
        )
        model, optimizer, loader, _ = made
    else:
        loader = DataLoader(records, batch_size=len(records) // BATCHES)
        engine = PrivacyEngine(accountant="prv")
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=optimizer, data_loader=loader, **noise
        )
    # The same training loop for both.
    for _ in range(epochs):
        for images, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), targets).backward()
            optimizer.step()
    with torch.no_grad():
        right = model(test_inputs).argmax(1) == test_labels
    return 100 * float(right.float().mean())


def tensors() -> tuple[torch.Tensor, ...]:
    """Inputs and labels for training and for testing."""
    data = load_images("fashion-mnist" if os.environ.get("TURNOUT_DATA") else "digits")
    return tuple(
        part
        for half in (data.train, data.test)
        for part in (
            torch.tensor(half.inputs[:RECORDS], dtype=torch.float32).flatten(1),
            torch.tensor(half.labels[:RECORDS]).long(),
        )
    )


def in_words(values: list[float]) -> str:
    """Mean and standard deviation as text."""
    return f"{mean(values):.2f} ± {stdev(values) if len(values) > 1 else 0.0:.2f} %"


def main() -> None:
    """Print both tables, and write JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", type=int, default=3, help="number of runs for each kind of batches"
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # Opacus warns of its hooks and generator in every loop
    # The table of ε.
    grid = [epsilons(sigma, epochs) for sigma in SIGMAS for epochs in EPOCHS]
    for row in grid:
        print(
            f"σ = {row['sigma']}, {row['epochs']} epochs: turnout {row['upper']:.4f}, Opacus "
            f"{row['opacus']:.4f}, {row['below']:.1%} below; {row['seconds']:.2f} and "
            f"{row['opacus seconds']:.2f} CPU-seconds",
            flush=True,
        )
    # The table of accuracies, with the same data for both kinds of batches.
    data, runs = tensors(), []
    for sigma, epochs in TRAINED:
        found = {
            name: [accuracy(sigma, epochs, assigned, data) for _ in range(asked.seeds)]
            for name, assigned in (("turnout", True), ("opacus", False))
        }
        runs.append({"sigma": sigma, "epochs": epochs, **found})
        print(
            f"σ = {sigma}, {epochs} epochs: accuracy turnout {in_words(found['turnout'])}, "
            f"Opacus {in_words(found['opacus'])}",
            flush=True,
        )
    if asked.json:
        asked.json.write_text(
            json.dumps({"about": surroundings(), "epsilon": grid, "accuracy": runs}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
