"""Updates as floating-point vectors of bounded norm: what a simulation's mechanisms sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError

CLIPPING_SLACK = 1e-5
"""Relative slack of norm checks: float32 clipping overshoots by a few of its 1e-7 roundings."""


@dataclass(frozen=True, slots=True)
class Clipping:
    """Clipping to ℓ2 norm C, in the model's own units.

    For simulations: floating-point sums and noise have another law than the one that is priced
    (docs/design/lattice.md); a deployment has `turnout.protocol.lattice.Lattice` in its place.

    Attributes:
        dimension: coordinates d of an update.
        clip_norm: C, bound on the ℓ2 norm of one client's update.
    """

    dimension: int
    clip_norm: float

    def __post_init__(self) -> None:
        checks.count(dimension=self.dimension)
        checks.positive(clip_norm=self.clip_norm)

    def constrained(self, update: NDArray[Any]) -> UpdateSum:
        """One client's contribution: the update, scaled down to norm C where it is longer.

        Raises:
            LocalProtocolError: wrong shape, or not finite.
        """
        norm = float(np.sqrt(np.square(update, dtype=np.float64).sum()))
        if update.shape != (self.dimension,) or not np.isfinite(norm):
            raise LocalProtocolError(f"an update is not {self.dimension} finite numbers")
        return UpdateSum(update if norm <= self.clip_norm else update * (self.clip_norm / norm), 1)

    def zero(self) -> UpdateSum:
        """The sum of nobody's updates."""
        return UpdateSum.zero(self.dimension)

    def noise_deviation(self, noise_multiplier: float) -> float:
        """σC."""
        return noise_multiplier * self.clip_norm

    def to_model(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """The vector itself."""
        return vector
