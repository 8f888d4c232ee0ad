"""The pair of Laplace noise on one number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core import checks

FloatArray = np.ndarray


@dataclass(frozen=True, slots=True)
class LaplacePair:
    """Lap(1, b) against Lap(0, b): ln X = (|z| − |z − 1|)/b with z ~ Lap(0, b) under Q.

    ln X = (2z − 1)/b between 0 and 1, and ±1/b with atoms outside.
    Source: accounting.md, table of pairs.

    Attributes:
        scale: b, the noise's scale divided by the sensitivity of the one number released.
    """

    scale: float

    def __post_init__(self) -> None:
        checks.positive(scale=self.scale)

    @property
    def second_moment(self) -> float:
        """E_Q[X²] = (2e^{1/b} + e^{−2/b})/3."""
        most = min(1.0 / self.scale, 700.0)
        return (2.0 * math.exp(most) + math.exp(-2.0 * most)) / 3.0

    def _place(self, k: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Where z lies when X = k, in [0, 1], and whether k lies below or from the top on."""
        with np.errstate(divide="ignore"):
            z = 0.5 * (self.scale * np.log(k) + 1.0)
        return np.clip(z, 0.0, 1.0), z < 0.0, z >= 1.0

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        z, below, above = self._place(k)
        inside = 1.0 - 0.5 * np.exp(-z / self.scale)
        return np.where(below, 0.0, np.where(above, 1.0, inside))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k)."""
        z, below, above = self._place(k)
        inside = 0.5 * np.exp(-z / self.scale)
        return np.where(below, 1.0, np.where(above, 0.0, inside))

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k)."""
        z, below, above = self._place(k)
        inside = 0.5 * np.exp((z - 1.0) / self.scale)
        return np.where(below, 0.0, np.where(above, 1.0, inside))

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k)."""
        z, below, above = self._place(k)
        inside = 1.0 - 0.5 * np.exp((z - 1.0) / self.scale)
        return np.where(below, 1.0, np.where(above, 0.0, inside))
