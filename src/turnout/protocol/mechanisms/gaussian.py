"""What all mechanisms with Gaussian noise on a sum of bounded updates share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import RemoteProtocolError
from turnout.protocol.mechanisms.interface import SensitivityBound, State
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source
from turnout.spec import GaussianNoise

CLIP_SLACK = 1e-5
"""Relative slack of the norm check: float32 clipping overshoots by a few of its 1e-7 roundings."""


@dataclass(frozen=True, slots=True)
class GaussianMechanism:
    """The client's half, the check of a sum, and the deviation of the noise.

    Attributes:
        law: σ.
        bound: C, and what sums are made of.
    """

    client_noise_allowed: ClassVar[bool] = True

    law: GaussianNoise
    bound: SensitivityBound

    @property
    def clip_norm(self) -> float:
        """C, bound on the ℓ2 norm of one update in the model's units."""
        return self.bound.clip_norm

    @property
    def deviation(self) -> float:
        """σC in the units of the sums."""
        return self.bound.noise_deviation(self.law.noise_multiplier)

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """One client's update, bounded; the noise is the coordinator's."""
        return self.bound.constrained(update)

    def zero(self) -> UpdateSum:
        """The sum of nobody's updates."""
        return self.bound.zero()

    def require(self, total: UpdateSum) -> None:
        """Refuses a sum that no clipped, finite updates can have."""
        if total.dimension != self.bound.dimension:
            raise RemoteProtocolError(
                f"an update has {total.dimension} coordinates, not {self.bound.dimension}"
            )
        if not np.isfinite(total.total).all():
            raise RemoteProtocolError("an update is not finite")
        if total.noised and not self.client_noise_allowed:
            raise RemoteProtocolError("an update carries noise, which this rule adds once itself")
        # σ = 1 is C in the units of the sum. Not linalg.norm: its BLAS threads spin for longer
        # than all else in a step takes.
        limit = total.count * self.bound.noise_deviation(1.0) * (1 + CLIP_SLACK)
        norm = float(np.sqrt(np.square(total.total, dtype=np.float64).sum()))
        if not total.noised and norm > limit:
            raise RemoteProtocolError(
                f"the norm of {total.count} updates is above {limit:.6g}, so one of them is not "
                "clipped"
            )

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """Everybody who checked in."""
        return arrived

    def initial_state(self) -> State:
        """Nothing."""
        return {}
