"""Labelled examples, and which client holds which of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.core import checks
from turnout.core.errors import ParameterError


def within(numbers: NDArray[np.integer], limit: int) -> bool:
    """Whether every one of some numbers (at least one) is in 0 … limit − 1."""
    return bool(numbers.min() >= 0 and numbers.max() < limit)


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Inputs and their classes.

    Attributes:
        inputs: uint8, float16 or float32, shape ``(n, ...)``. Bytes are read as fractions of
            255. Computing is in float32; what is kept may be smaller. Lists of such numbers, and
            float64, are converted to float32.
        labels: int64 classes from 0, shape ``(n,)``, or anything that numpy reads as that.
    """

    inputs: NDArray[np.uint8] | NDArray[np.float16] | NDArray[np.float32]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        inputs = _as_inputs(_as_array("inputs", self.inputs))
        object.__setattr__(self, "inputs", inputs)
        if inputs.ndim < 2 or inputs.size == 0:
            raise ParameterError("inputs", inputs.shape, "a shape (examples, ...), not empty")
        labels = _as_array("labels", self.labels)
        if not np.issubdtype(labels.dtype, np.integer) or labels.shape != inputs.shape[:1]:
            expected = f"one whole number an example, shape {inputs.shape[:1]}"
            raise ParameterError("labels", (labels.dtype, labels.shape), expected)
        if labels.min() < 0:
            raise ParameterError("labels", int(labels.min()), "classes numbered from 0")
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.inputs.shape[1:]

    @property
    def classes(self) -> int:
        """One more than the largest class present."""
        return int(self.labels.max()) + 1


def _as_array(name: str, value: object) -> NDArray:
    """The array, or what a list of numbers is as one."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ParameterError(name, "rows of unequal length", "one array of numbers") from None


def _as_inputs(array: NDArray) -> NDArray:
    """Inputs of a dtype that is kept; float64 becomes float32."""
    if array.dtype in (np.uint8, np.float16, np.float32):
        return array
    if array.dtype != np.float64:
        raise ParameterError("inputs", str(array.dtype), "an array of uint8 or of floats")
    limit = np.finfo(np.float32).max
    if np.any(np.abs(array[np.isfinite(array)]) > limit):
        raise ParameterError("inputs", "numbers beyond float32", f"at most {limit:g}")
    return array.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Which client holds which examples: row ``i`` of a sparse 0/1 matrix is client ``i``.

    Attributes:
        offsets: int64, shape ``(population + 1,)``, from 0, not decreasing.
        records: int64, shape ``(offsets[-1],)``; client ``i`` holds examples
            ``records[offsets[i]:offsets[i + 1]]``.
    """

    offsets: NDArray[np.int64]
    records: NDArray[np.int64]

    def __post_init__(self) -> None:
        steps = np.diff(self.offsets)
        if self.offsets.size < 2 or self.offsets[0] != 0 or (steps < 0).any():
            raise ParameterError("offsets", self.offsets[:3], "offsets from 0, not decreasing")
        if self.records.shape != (self.offsets[-1],):
            expected = f"shape ({int(self.offsets[-1])},), as the offsets say"
            raise ParameterError("records", self.records.shape, expected)

    @classmethod
    def one_each(cls, population: int) -> Holdings:
        """Client ``i`` holds example ``i`` and nothing else."""
        checks.count(population=population)
        return cls(np.arange(population + 1), np.arange(population))

    @classmethod
    def from_owners(cls, owners: NDArray[np.integer], population: int) -> Holdings:
        """Holdings in which example ``r`` belongs to client ``owners[r]``, shape ``(n,)``."""
        checks.count(population=population)
        owners = np.asarray(owners, dtype=np.int64)
        if owners.size and not within(owners, population):
            raise ParameterError("owners", owners, f"clients from 0 to {population - 1}")
        counts = np.bincount(owners, minlength=population)
        return cls(np.concatenate(([0], np.cumsum(counts))), np.argsort(owners, kind="stable"))

    @property
    def population(self) -> int:
        """Clients, those without examples included."""
        return self.offsets.size - 1

    def counts(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of examples of each of ``clients``, int64, shape ``(clients,)``."""
        return self.offsets[clients + 1] - self.offsets[clients]

    def padded(self, clients: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The examples of some clients as a rectangle, and each one's weight in its mean.

        Args:
            clients: int64, shape ``(c,)``, each with at least one example.

        Returns:
            ``(records, weights)``, both of shape ``(c, m)`` where m is the largest count.
            Short rows repeat the client's *own* last example with weight 0, so that whatever
            is wrong with one client's data stays with that client.
        """
        counts = self.counts(clients)
        column = np.arange(counts.max())
        index = self.offsets[clients][:, None] + np.minimum(column, counts[:, None] - 1)
        weights = np.where(column < counts[:, None], 1.0 / counts[:, None], 0.0)
        return self.records[index], weights.astype(np.float32)


def as_tensor(array: NDArray) -> Tensor:
    """The array as a tensor, sharing memory where PyTorch can (it wants it writeable)."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_floats(inputs: Tensor) -> Tensor:
    """Bytes as fractions of 255, other numbers as they are; float32."""
    return inputs.to(torch.float32).div_(255) if inputs.dtype == torch.uint8 else inputs.float()
