"""A custom model: any PyTorch module that treats each record independently."""

from torch import Tensor, nn


class Net(nn.Module):
    """Network with scores of two classes from four measurements."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2))

    def forward(self, visits: Tensor) -> Tensor:
        """Scores (n, 2) of visits (n, 4)."""
        return self.layers(visits)
