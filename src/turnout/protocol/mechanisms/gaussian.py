"""Gaussian noise on a sum of bounded updates: what such mechanisms share, and which there are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.core.errors import ParameterError, RemoteProtocolError, UnsupportedError
from turnout.participation.drawing import expected_check_ins
from turnout.protocol.clipping import CLIPPING_SLACK
from turnout.protocol.mechanisms.interface import Mechanism, SensitivityBound, State
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source
from turnout.schemes import GaussianNoise, ReleaseRule, Scheme


class IndependentNoise:
    """A fresh draw of the deviation in every step: a noise process that keeps nothing."""

    def initial_state(self, dimension: int) -> State:
        """Nothing."""
        return {}

    def draw(
        self, deviation: float, dimension: int, state: State, fresh: Noise
    ) -> tuple[NDArray[Any], State]:
        """One draw of N(0, ``deviation``²)."""
        return fresh(deviation, dimension), state


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
        limit = total.count * self.bound.noise_deviation(1.0) * (1 + CLIPPING_SLACK)
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


def public_divisor(scheme: Scheme, population: int, given: float | None) -> float | None:
    """The public divisor n̄ of aggregated check-ins, by default the law's mean a step; else None.

    Raises:
        ParameterError: a law for another population, or a divisor that is not above 0.
    """
    by_law = expected_check_ins(scheme.participation, population)
    if scheme.release is not ReleaseRule.AGGREGATED:
        return None
    if given is None:
        return float(by_law.mean())
    checks.positive(expected_check_ins=given)
    return float(given)


def mechanism_for(
    scheme: Scheme,
    bound: SensitivityBound,
    *,
    expected_check_ins: float | None = None,
    minibatch: int = 1,
) -> Mechanism:
    """The mechanism that executes a scheme's release rule with its noise.

    ``expected_check_ins`` is used by aggregated releases alone; ``minibatch`` is 1 but for
    one-client releases.

    Raises:
        ParameterError: a value outside its domain, or a minibatch that the rule does not have.
        UnsupportedError: the randomizer is not Gaussian noise.
    """
    law = scheme.randomizer
    if not isinstance(law, GaussianNoise):
        raise UnsupportedError(f"training adds Gaussian noise, not {type(law).__name__}")
    built = import_module(f"{__package__}.{scheme.release.value.replace('-', '_')}").MECHANISM
    settings = {"expected_check_ins": expected_check_ins, "minibatch": minibatch}
    taken = {field.name for field in fields(built)}
    if minibatch != 1 and "minibatch" not in taken:
        raise ParameterError("minibatch", minibatch, f"1 with release rule '{scheme.release}'")
    return built(law, bound, **{name: settings[name] for name in settings if name in taken})
