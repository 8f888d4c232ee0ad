"""Opacus on Fashion-MNIST with batches by independent assignment: python examples/opacus/run.py

``TURNOUT_DATA`` names the folder of the images; without it the bundled digits are used. Comments
mark the five lines that differ from a script for Opacus' own engine.
"""

from __future__ import annotations

import os
import sys
import warnings

import torch
from torch import nn
from torch.utils.data import TensorDataset

from turnout.data import load_images
from turnout.integrations.batches import AssignedBatches  # 1: was DataLoader
from turnout.integrations.opacus import make_private  # 2: was PrivacyEngine

EPOCHS, BATCHES, DELTA = 4, 40, 1e-5


def main() -> None:
    """Train, and print ε after every epoch."""
    # Every training loop with Opacus causes this warning.
    warnings.filterwarnings("ignore", "Full backward hook is firing")
    data = load_images("fashion-mnist" if os.environ.get("TURNOUT_DATA") else "digits")
    inputs = torch.tensor(data.train.inputs, dtype=torch.float32).flatten(1)
    records = TensorDataset(inputs, torch.tensor(data.train.labels).long())
    batches = AssignedBatches.of(len(records), BATCHES, EPOCHS)  # 3: was shuffle=True
    loader = batches.loader(records)  # 4
    model = nn.Sequential(nn.Linear(inputs.shape[1], 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    model, optimizer, loader, engine = make_private(  # 5: was engine.make_private
        model, optimizer, loader, noise_multiplier=1.0, max_grad_norm=1.0, relation="zero-out"
    )
    for epoch in range(EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: epsilon = {engine.get_epsilon(DELTA):.3f}")
    with torch.no_grad():
        scores = model(torch.tensor(data.test.inputs, dtype=torch.float32).flatten(1))
    right = scores.argmax(1) == torch.tensor(data.test.labels)
    print(
        f"test accuracy {100 * right.float().mean():.1f} % at delta = {DELTA:g}, zero-out, a record"
    )


if __name__ == "__main__":
    sys.exit(main())
