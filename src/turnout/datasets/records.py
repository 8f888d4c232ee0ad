"""Labelled records with a fixed public split, and how they are dealt to clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Inputs and labels of one side of a split.

    Attributes:
        inputs: shape ``(records, height, width)``, float32 in [0, 1], or uint8 that stands for
            fractions of 255.
        labels: int64, shape ``(records,)``.
    """

    inputs: NDArray[np.float32] | NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise ParameterError(
                "labels", len(self.labels), f"one for each of {len(self.inputs)} inputs"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class ImageData:
    """A data set: what the clients hold, and what a model is judged by, which is public."""

    name: str
    train: Split
    test: Split
    classes: int = 10


def deal(
    labels: NDArray[np.int64], clients: int, dealing: str, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Which client holds each record.

    Args:
        labels: int, shape ``(records,)``.
        clients: at most one for each record.
        dealing: ``"shuffled"`` deals the records out like cards; ``"by-label"`` sorts them by
            label first, so that most clients see one or two labels only.
        generator: shuffles (simulation only).

    Returns:
        int64, shape ``(records,)``, in 0 … ``clients − 1``.

    Raises:
        ParameterError: more clients than records, or an unknown ``dealing``.

    Guarantees:
        Each record goes to exactly one client, and no client holds two records more than
        another.
    """
    records = len(labels)
    checks.count(clients=clients)
    checks.at_most("records", records, clients=clients)
    owners = np.empty(records, dtype=np.int64)
    order = generator.permutation(records)
    if dealing == "shuffled":
        owners[order] = np.arange(records) % clients
    elif dealing == "by-label":
        order = order[np.argsort(labels[order], kind="stable")]
        owners[order] = np.arange(records) * clients // records
    else:
        raise ParameterError("dealing", dealing, "'shuffled' or 'by-label'")
    return owners
