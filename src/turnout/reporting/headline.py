"""The headline metric of a run in words and numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PERSONAL = "personal_accuracy"
"""The metric of clients' own models on their own classes, which no ε covers."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The metric that titles, axes and cards speak of, by its name."""

    name: str

    @property
    def is_share(self) -> bool:
        """Whether it is a share of examples, which is read in per cent."""
        return self.name.endswith("accuracy") or self.name.startswith("top-")

    @property
    def title(self) -> str:
        """Its name on the test set, as the title of an axis."""
        return f"Test {self.words}"

    @property
    def words(self) -> str:
        """Its name within a sentence."""
        if self.name in ("rmse", "mae", "auc"):
            return self.name.upper()
        return self.name.replace("_", " ")

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.words}, %" if self.is_share else self.words

    def drawn(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Values in the unit of the axis."""
        return 100 * values if self.is_share else values

    def text(self, value: float, digits: int = 2) -> str:
        """A value with that many digits of a per cent, or about as many of a number."""
        return f"{value:.{digits}%}" if self.is_share else f"{value:.{digits + 2}g}"

    def interval(self, value: float, records: int) -> tuple[float, float] | None:
        """Wilson's 95 % interval of a share of so many records; None of another metric.

        A mean over clients is none: their records are not drawn independently.
        """
        if not self.is_share or self.name == PERSONAL:
            return None
        z = 1.959963984540054
        middle = (value + z * z / (2 * records)) / (1 + z * z / records)
        spread = value * (1 - value) / records + (z / (2 * records)) ** 2
        half = z / (1 + z * z / records) * math.sqrt(spread)
        return max(0.0, middle - half), min(1.0, middle + half)

    def lost(self, better: float, worse: float) -> str:
        """The difference of two values."""
        if self.is_share:
            return f"{100 * (better - worse):.2f} points"
        return f"{better - worse:.4g}"
