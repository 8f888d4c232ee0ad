"""Assignment of examples to clients; needs NumPy alone, so that devices can import it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Assignment of examples to clients, stored as the rows of a sparse 0/1 matrix.

    Attributes:
        offsets: int64, shape ``(population + 1,)``, from 0, not decreasing.
        records: indices of examples, int64, shape ``(offsets[-1],)``; client ``i`` holds the
            examples ``records[offsets[i]:offsets[i + 1]]``.

    Raises:
        ParameterError: offsets that decrease or do not begin with 0, or records of another shape.
    """

    offsets: NDArray[np.int64]
    records: NDArray[np.int64]

    def __post_init__(self) -> None:
        steps = np.diff(self.offsets)
        if self.offsets.size < 2 or self.offsets[0] != 0 or (steps < 0).any():
            raise ParameterError("offsets", self.offsets[:3], "offsets from 0, not decreasing")
        if self.records.shape != (self.offsets[-1],):
            expected = f"shape ({int(self.offsets[-1])},), as the last of the offsets requires"
            raise ParameterError("records", self.records.shape, expected)

    @classmethod
    def one_each(cls, population: int) -> Holdings:
        """Holdings in which client ``i`` has the single example ``i``.

        Raises:
            ParameterError: a population below 1.
        """
        checks.count(population=population)
        return cls(np.arange(population + 1), np.arange(population))

    @classmethod
    def from_owners(cls, owners: NDArray[np.integer], population: int) -> Holdings:
        """Holdings in which example ``r`` belongs to client ``owners[r]``.

        Args:
            owners: client of each example, from 0 to population − 1, shape ``(n,)``.
            population: number of clients, at least 1.

        Raises:
            ParameterError: a population below 1, or an owner outside the population.
        """
        checks.count(population=population)
        owners = np.asarray(owners, dtype=np.int64)
        if owners.size and not within(owners, population):
            raise ParameterError("owners", owners, f"clients from 0 to {population - 1}")
        counts = np.bincount(owners, minlength=population)
        return cls(np.concatenate(([0], np.cumsum(counts))), np.argsort(owners, kind="stable"))

    @property
    def population(self) -> int:
        """Number of clients, including those without examples."""
        return self.offsets.size - 1

    def counts(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of examples of each of the given clients, int64, shape ``(c,)``."""
        return self.offsets[clients + 1] - self.offsets[clients]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of examples of every client, int64, shape ``(population,)``."""
        return np.diff(self.offsets)

    def sampled(
        self, clients: NDArray[np.int64], count: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Random examples of each client, drawn uniformly without replacement.

        Args:
            clients: numbers of clients, int64, shape ``(c,)``.
            count: number s of examples to draw for each client.
            generator: source of the draws.

        Returns:
            Indices of the drawn examples in the order of the draws, int64, shape ``(c, s)``.

        Raises:
            ParameterError: a client holds fewer than ``count`` examples.
        """
        sizes = self.counts(clients)
        if clients.size and sizes.min() < count:
            raise ParameterError(
                "count", count, f"at most {sizes.min()}, the fewest examples of a client"
            )
        places = np.empty((clients.size, count), np.int64)
        for j in range(count):
            # Draw among the places that are left, then skip the places that are already taken.
            place = generator.integers(0, sizes - j)
            for taken in np.sort(places[:, :j], axis=1).T:
                place += place >= taken
            places[:, j] = place
        return self.records[self.offsets[clients][:, None] + places]

    def padded(self, clients: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Examples of some clients as a padded array, with each example's weight in the mean.

        Args:
            clients: int64, shape ``(c,)``, each with at least one example.

        Returns:
            ``(records, weights)``: indices of examples, int64, and their weights, float32, both of
            shape ``(c, m)``, where m is the largest number of examples of a client. A weight is
            1 / (number of the client's examples). Short rows repeat the client's *own* last example
            with weight 0, so that a defect in one client's data affects only that client.
        """
        counts = self.counts(clients)
        column = np.arange(counts.max())
        index = self.offsets[clients][:, None] + np.minimum(column, counts[:, None] - 1)
        weights = np.where(column < counts[:, None], 1.0 / counts[:, None], 0.0)
        return self.records[index], weights.astype(np.float32)


def within(numbers: NDArray[np.integer], limit: int) -> bool:
    """Whether all numbers lie in 0 … limit − 1; any shape with at least one number."""
    return bool(numbers.min() >= 0 and numbers.max() < limit)
