"""Users per CPU-second of Opacus, in each of its modes: python opacus_updates.py BATCH ROUNDS

Each user has one example; a round is one private step: gradients, clipping, noise, SGD. The script
prints one JSON object for each mode and microbatch size. benchmarks/own_modules.py runs it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable

import torch
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
    GradSampleModuleFastGradientClipping,
)
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

MODES = ("hooks", "ghost", "functorch")
AT_ONCE = (1000, 250, 100)


def network() -> nn.Sequential:
    """Network tanh-cnn-13k with 13,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3),
        nn.MaxPool2d(2, 1),
        nn.Tanh(),
        nn.Conv2d(16, 16, 4, 2),
        nn.MaxPool2d(2, 1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def private_step(mode: str, batch: int) -> Callable[[int], None]:
    """Function for one private step in a mode, with a given microbatch size."""
    inputs, labels = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    noise = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
    # Ghost clipping has its own model, optimizer and loss.
    if mode == "ghost":
        model = GradSampleModuleFastGradientClipping(
            network(), max_grad_norm=1.0, use_ghost_clipping=True
        )
        plain = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer = DPOptimizerFastGradientClipping(plain, **noise)
        loss = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())
    else:
        model = GradSampleModule(network(), force_functorch=mode == "functorch")
        optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), **noise)
        loss = nn.CrossEntropyLoss()

    def step(at_once: int) -> None:
        for start in range(0, batch, at_once):
            # Only the last microbatch of a batch ends the step.
            if at_once < batch:
                optimizer.signal_skip_step(do_skip=start + at_once < batch)
            some = slice(start, start + at_once)
            loss(model(inputs[some]), labels[some]).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    batch, rounds = map(int, sys.argv[1:3])
    for mode in MODES:
        step = private_step(mode, batch)
        for at_once in AT_ONCE:
            step(at_once)
            seconds = []
            for _ in range(rounds):
                start = time.process_time()
                step(at_once)
                seconds.append(time.process_time() - start)
            print(json.dumps({"mode": mode, "at_once": at_once, "cpu_seconds": seconds}))


if __name__ == "__main__":
    main()
