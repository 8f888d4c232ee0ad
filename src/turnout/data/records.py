"""Labelled records with a fixed public split, and their assignment to clients.

`Records` holds the training or the test records, `ClientData` a whole data set; `deal` assigns
records to clients.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.learning.holdings import Holdings
from turnout.plans.data_sections import DataSection


class PredictionTarget(StrEnum):
    """Kind of a record's label: class, tags, numbers or next tokens."""

    CLASS = "class"
    """One class: int64, shape ``(records,)``, from 0."""
    TAGS = "tags"
    """Any number of tags, each present or absent: uint8 0 or 1, shape ``(records, outputs)``."""
    NUMBERS = "numbers"
    """Real numbers: float32, shape ``(records, outputs)``."""
    TOKENS = "tokens"
    """One class for each token: int64, shape ``(records, length)``, −1 if none is predicted."""


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Inputs and labels of training or test records, in memory or memory-mapped.

    Attributes:
        inputs: float32, float16, uint8 that stands for fractions of 255, or int64 tokens; shape
            ``(records, …)``.
        labels: shape ``(records, …)``, in the form that the `PredictionTarget` describes.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise ParameterError(
                "labels", len(self.labels), f"one for each of {len(self.inputs)} inputs"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClientData:
    """Data set of the clients' training records and of public test records.

    Attributes:
        train: records of the clients.
        test: test records; no client of the run holds one.
        outputs: number of classes, tags, numbers, or tokens of the vocabulary.
        target: kind of label.
        holdings: client of each training record; None if records have no client of their own, so
            that `deal` assigns them.
        names: names of the outputs, in their order; empty if the outputs have no names.
        section: [data] section of a plan that describes the data; None without one.
    """

    name: str
    train: Records
    test: Records
    outputs: int = 10
    target: PredictionTarget = PredictionTarget.CLASS
    holdings: Holdings | None = None
    names: tuple[str, ...] = ()
    section: DataSection | None = None

    def __repr__(self) -> str:
        held = "dealt" if self.holdings is None else f"of {self.holdings.population:,} clients"
        parts = [
            repr(self.name),
            f"train = {self.train}, {held}",
            f"test = {self.test}",
            f"{self.target.value} of {self.outputs:,}",
        ]
        if self.section is not None:
            said = self.section.model_dump(exclude_defaults=True)
            parts += [f"{key} = {reprlib.repr(value)}" for key, value in said.items()]
        return f"ClientData({'; '.join(parts)})"


def deal(
    labels: NDArray[np.int64], clients: int, dealing: str, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Client number of each record, with records assigned in random order or sorted by label.

    Args:
        labels: int, shape ``(records,)``.
        clients: number of clients, at most the number of records.
        dealing: ``"shuffled"`` assigns the records in random order to the clients in turn;
            ``"by-label"`` sorts the records by label and assigns consecutive ranges, so that most
            clients hold one or two labels only.
        generator: source of the shuffle (simulation only).

    Returns:
        int64, shape ``(records,)``, in 0 … ``clients − 1``.

    Raises:
        ParameterError: there are more clients than records, or ``dealing`` is unknown.

    Guarantees:
        Each record is assigned to exactly one client, and the numbers of records of any two clients
        differ by at most 1.
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
