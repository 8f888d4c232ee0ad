"""A network trained on public images and adapted to private images in three ways.

    python examples/pretrained/run.py [FOLDER]

The network is trained on MNIST, reduced to 8 by 8 pixels, without privacy. Then clients with one of
the bundled digits each train a whole new network, only the head of the public network, or adapters
of low rank (LoRA) on it, at the same ε. Only trained parameters are clipped and noised.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from network import Network
from safetensors.torch import save_file
from torch.nn import functional

import turnout as tn
from turnout import data as datasets
from turnout.learning.features import standardized
from turnout.plans import Plan

HERE = Path(__file__).parent
WAYS = {
    "from scratch": {},
    "head": {"pretrained": "base.safetensors", "trainable": ["head.*"]},
    "LoRA": {
        "pretrained": "base.safetensors",
        "lora": {"rank": 4, "alpha": 8.0, "layers": ["body.*", "head"]},
    },
}
"""Lines that each way adds to the plan's [model]."""


def small_images(images: np.ndarray) -> torch.Tensor:
    """Middle 24 by 24 pixels of MNIST images, averaged in blocks of three by three."""
    middle = torch.tensor(images[:, 2:26, 2:26]).float() / 255
    return functional.avg_pool2d(middle[:, None], 3)[:, 0]


def pretrain(file: Path, steps: int) -> None:
    """Write the parameters of a network trained on MNIST."""
    public = datasets.mnist().train
    images, labels = standardized(small_images(public.inputs)), torch.tensor(public.labels)
    torch.manual_seed(1)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(steps):
        batch = torch.randint(len(images), (256,))
        loss = functional.cross_entropy(network(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save_file(network.state_dict(), file)


def main(folder: Path, steps: int = 2000, ways: Iterable[str] = WAYS) -> dict[str, float]:
    """Test accuracy by way of training."""
    folder.mkdir(parents=True, exist_ok=True)
    pretrain(folder / "base.safetensors", steps)
    shutil.copy(HERE / "network.py", folder)
    plan = Plan.from_toml((HERE / "plan.toml").read_text("utf-8"))
    scores = {}
    for way in ways:
        tables = plan.model_dump(mode="json", exclude_none=True)
        tables["model"] |= WAYS[way]
        file = folder / f"{way.replace(' ', '-')}.toml"
        file.write_text(Plan.from_mapping(tables).to_toml(), "utf-8")
        run = tn.train(file, out=file.with_suffix(""))
        model = tn.load(file.with_suffix(""))
        scores[way] = run.accuracy
        print(
            f"{way:14}{model.parameters.size:6,} trained parameters: "
            f"{run.accuracy:.1%} at ε ≤ {run.guarantee.epsilon.upper:.4g}"
        )
    return scores


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/pretrained"))
