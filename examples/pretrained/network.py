"""A small network for images of 8 by 8 pixels."""

from __future__ import annotations

from torch import Tensor, nn


class Network(nn.Module):
    """Network with a body of two layers and a linear head."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Scores (n, 10) of images (n, 8, 8)."""
        return self.head(self.body(images.flatten(1)))
