"""Labelled examples as a model sees them (`Examples`), and which client holds which
(`Holdings`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Inputs and their labels; either may be memory-mapped, and is then read as it is needed.

    Attributes:
        inputs: uint8, float16, float32, or int64 for tokens, shape ``(n, ...)``. Bytes are read as
            fractions of 255. Computing is in float32; what is kept may be smaller. Lists of such
            numbers, and float64, are converted to float32.
        labels: int64 classes from 0, shape ``(n,)``, or what the target says; anything that numpy
            reads as that.
        target: the kind of label: "class"; "tags", 0 or 1 each, shape ``(n, K)``; "numbers",
            float32, ``(n, K)``; or "tokens", int64 classes of which −1 is ignored, ``(n, L)``.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    target: str = "class"

    def __post_init__(self) -> None:
        inputs = _as_inputs(_as_array("inputs", self.inputs))
        object.__setattr__(self, "inputs", inputs)
        if inputs.ndim < 2 or inputs.size == 0:
            raise ParameterError("inputs", inputs.shape, "a shape (examples, ...), not empty")
        labels = _as_array("labels", self.labels)
        object.__setattr__(self, "labels", _as_labels(labels, self.target, len(inputs)))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.inputs.shape[1:]

    @property
    def classes(self) -> int:
        """Outputs that a model needs: one more than the largest class, or the label's columns."""
        if self.target in ("tags", "numbers"):
            return self.labels.shape[1]
        return int(self.labels.max()) + 1


def _as_array(name: str, value: object) -> NDArray:
    """The array, or what a list of numbers is as one."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ParameterError(name, "rows of unequal length", "one array of numbers") from None


def _as_inputs(array: NDArray) -> NDArray:
    """Inputs of a dtype that is kept; float64 becomes float32. Rows lie one after another."""
    if array.dtype in (np.uint8, np.float16, np.float32, np.int64):
        return np.ascontiguousarray(array) if array.ndim else array
    if array.dtype != np.float64:
        expected = "an array of uint8, of floats, or of int64 tokens"
        raise ParameterError("inputs", str(array.dtype), expected)
    limit = np.finfo(np.float32).max
    if np.any(np.abs(array[np.isfinite(array)]) > limit):
        raise ParameterError("inputs", "numbers beyond float32", f"at most {limit:g}")
    return array.astype(np.float32)


def _as_labels(labels: NDArray, target: str, count: int) -> NDArray:
    """Labels of the kind that is said."""
    whole, given = np.issubdtype(labels.dtype, np.integer), (labels.dtype, labels.shape)
    axes = 1 if target == "class" else 2
    fits = labels.shape[:1] == (count,) and labels.ndim == axes and labels.size > 0
    if target in ("class", "tokens"):
        if not whole or not fits:
            each = "one whole number" if target == "class" else "a row of whole numbers"
            expected = f"{each} an example, shape ({count},{'' if axes == 1 else ' L'})"
            raise ParameterError("labels", given, expected)
        least = 0 if target == "class" else -1
        if labels.min() < least:
            raise ParameterError("labels", int(labels.min()), f"classes numbered from {least}")
        return np.ascontiguousarray(labels).astype(np.int64, copy=False)
    number = whole or labels.dtype == np.bool_ or np.issubdtype(labels.dtype, np.floating)
    if not number or not fits:
        raise ParameterError("labels", given, f"a row of numbers an example, shape ({count}, K)")
    if target == "tags":
        if not np.isin(labels, (0, 1)).all():
            raise ParameterError("labels", "other numbers", "0 or 1 for each tag")
        return np.ascontiguousarray(labels).astype(np.uint8, copy=False)
    if not np.isfinite(labels).all():
        row = int(np.flatnonzero(~np.isfinite(labels).all(axis=1))[0])
        raise ParameterError("labels", f"row {row}: {labels[row]}", "finite numbers")
    return np.ascontiguousarray(labels).astype(np.float32, copy=False)


def rows(array: NDArray, index: NDArray[np.int64]) -> Tensor:
    """Some rows, in memory of PyTorch's own alignment; the array may be memory-mapped.

    Matrix products may round differently on differently aligned memory, and a memory-mapped array
    is read here for these rows alone.
    """
    found = torch.from_numpy(np.empty(0, array.dtype)).new_empty((index.size, *array.shape[1:]))
    if index.size:  # "clip" writes without a buffer; the index is known to be within the array
        np.take(array, index, axis=0, out=found.numpy(), mode="clip")
    return found


def as_tensor(array: NDArray) -> Tensor:
    """The array as a tensor, sharing memory where PyTorch can (it wants it writeable)."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_floats(inputs: Tensor) -> Tensor:
    """Bytes as fractions of 255, tokens as they are, other numbers as float32."""
    if inputs.dtype == torch.int64:
        return inputs
    return inputs.to(torch.float32).div_(255) if inputs.dtype == torch.uint8 else inputs.float()


def within(numbers: NDArray[np.integer], limit: int) -> bool:
    """Whether every one of some numbers (at least one) is in 0 … limit − 1."""
    return bool(numbers.min() >= 0 and numbers.max() < limit)


@shows_shapes()
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

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of examples of every client, int64, shape ``(population,)``."""
        return np.diff(self.offsets)

    def sampled(
        self, clients: NDArray[np.int64], count: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Some of each client's examples, a uniform subset in uniform order.

        Args:
            clients: int64, shape ``(c,)``, each with at least ``count`` examples.
            count: s.
            generator: draws them.

        Returns:
            Numbers of examples, int64, shape ``(c, s)``.

        Raises:
            ParameterError: a client holds fewer.
        """
        sizes = self.counts(clients)
        if clients.size and sizes.min() < count:
            raise ParameterError("count", count, f"at most {sizes.min()}, what a client holds")
        places = np.empty((clients.size, count), np.int64)
        for j in range(count):  # the j-th of those left, counted past the ones that are taken
            place = generator.integers(0, sizes - j)
            for taken in np.sort(places[:, :j], axis=1).T:
                place += place >= taken
            places[:, j] = place
        return self.records[self.offsets[clients][:, None] + places]

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
