"""The model: any PyTorch module that treats each record by itself."""

from torch import Tensor, nn


class Net(nn.Module):
    """Network that computes scores of two classes from two measurements."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, records: Tensor) -> Tensor:
        """Scores (n, 2) of records (n, 2)."""
        return self.layers(records)
