"""First names given to children born in the United States in 2017, one name a child."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import StorageError
from turnout.datasets.files import DataFile, contents

_FILE = DataFile(
    "names/ssa_names_2017_counts.csv.gz",
    "ea0a4a88283119e27220b948dda7d8a1479c91d07e87c7ecc3564b59f5fd100f",
)


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """The number of people who hold each item, the most frequent first."""

    items: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def people(self) -> int:
        """People, n."""
        return int(self.counts.sum())

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Share of the people that hold each item, shape (k,)."""
        return self.counts / self.people

    def holdings(self) -> NDArray[np.int64]:
        """Each person's item, int64 of shape (n,), in the order of the items."""
        return np.repeat(np.arange(len(self.items)), self.counts)


def first_names(top: int | None = None) -> ItemCounts:
    """US first names of 2017 by number of children, both sexes together.

    Source: US Social Security Administration, national data of baby names (names given to fewer
        than five children of a sex are not in it); 29,910 names of 3,546,301 children.
    """
    text = contents(_FILE).decode()
    try:
        rows = [(row["name"], int(row["n"])) for row in csv.DictReader(io.StringIO(text))]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{_FILE.path} is no table of names and numbers: {error}") from error
    rows.sort(key=lambda row: (-row[1], row[0]))
    if top is not None:
        checks.count(top=top)
        checks.at_most("names", len(rows), top=top)
        rows = rows[:top]
    return ItemCounts(tuple(name for name, _ in rows), np.array([n for _, n in rows]))
