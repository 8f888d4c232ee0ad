"""Mechanisms of trusted coordinators: bounded updates summed, with Gaussian noise.

A mechanism is made of two halves: `SensitivityBound` (`Clipping` for the floating-point updates
of a simulation, `turnout.protocol.lattice` for whole numbers) and `NoiseProcess`
(`IndependentNoise`). `Aggregated` releases the sum over a public divisor, `Averaged` the mean of
noisy updates (Algorithm 2 of the check-in paper), `OneClient` one uniform client or a dummy
(Algorithm 1). `mechanism_for` builds the one that a scheme's release rule names. A coordinator
accepts any object that has the members of `Mechanism`.

| symbol | here | |
|---|---|---|
| C | ``clip_norm`` | ℓ2 bound of one update |
| σ | ``law.noise_multiplier`` | noise standard deviation over C |
| b | ``minibatch`` | steps accumulated before the model moves |
| n̄ | ``expected_check_ins`` | public number that divides an aggregated sum |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.core.errors import (
    LocalProtocolError,
    ParameterError,
    RemoteProtocolError,
    UnsupportedError,
)
from turnout.participation.drawing import expected_check_ins
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source
from turnout.schemes import GaussianNoise, Randomizer, ReleaseRule, Scheme

__all__ = [
    "GaussianMechanism",
    "IndependentNoise",
    "Mechanism",
    "NoiseProcess",
    "Released",
    "SensitivityBound",
    "State",
    "mechanism_for",
    "public_divisor",
]

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


State = Mapping[str, NDArray[Any]]
"""A mechanism's state from step to step: arrays by name, of the same types and shapes always.
They are never changed in place."""


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """The private result of one step.

    Attributes:
        total: the noisy sum of the step in the units of the sums, shape ``(d,)``; None where
            nothing is released.
        direction: float64, shape ``(d,)``, what moves the model, in its units; None where it
            does not move.
        skipped: True where an empty step is left out.
    """

    total: NDArray[Any] | None
    direction: NDArray[np.float64] | None
    skipped: bool = False


class SensitivityBound(Protocol):
    """The first half, on the client: what one client can move the sum by is at most C.

    `clipping.Clipping` (floating point) and `lattice.Lattice` (whole numbers).
    """

    @property
    def dimension(self) -> int:
        """Coordinates d of an update."""
        ...

    @property
    def clip_norm(self) -> float:
        """C, in the model's units."""
        ...

    def constrained(self, update: NDArray[Any]) -> UpdateSum:
        """One client's contribution, a sum of one."""
        ...

    def zero(self) -> UpdateSum:
        """The sum of nobody's updates."""
        ...

    def noise_deviation(self, noise_multiplier: float) -> float:
        """σC in the units of the sums, never below the exact number where sums are exact."""
        ...

    def to_model(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """A released vector in the model's units."""
        ...


class NoiseProcess(Protocol):
    """The second half, on the server: noise of a deviation, step after step.

    The draws of one step are independent over the coordinates; those of different steps need not
    be, which is what the state is for.
    """

    def initial_state(self, dimension: int) -> State:
        """The state before the first step."""
        ...

    def draw(
        self, deviation: float, dimension: int, state: State, fresh: Noise
    ) -> tuple[NDArray[Any], State]:
        """The noise of the next step, and the state after it.

        ``deviation`` is σC in the units of the sums; draws from ``fresh`` were never handed out.
        """
        ...


class Mechanism(Protocol):
    """All that a step does with updates: the client's half, and the server's.

    Guarantees: whatever is released, `law` prices under the scheme's participation and relation
    (docs/design/protocols.md has the argument for each).
    """

    @property
    def priced_as(self) -> Randomizer:
        """The randomizer of the scheme, which accounting prices."""
        ...

    @property
    def clip_norm(self) -> float:
        """C, bound on the ℓ2 norm of one update in the model's units."""
        ...

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """Client: the message of one update, constrained (and randomized, where clients do that).

        A message is the aggregate of one client.
        """
        ...

    def zero(self) -> UpdateSum:
        """The aggregate of nobody: what the messages are added to."""
        ...

    def require(self, total: UpdateSum) -> None:
        """Nothing where messages of so many clients can have this aggregate.

        Raises:
            RemoteProtocolError: they cannot.
        """
        ...

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """The clients asked for an update, of those who checked in; both in increasing order."""
        ...

    def initial_state(self) -> State:
        """The state before the first step; its names, types and shapes stay."""
        ...

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Server: the release of a step, and the state after it.

        ``total`` is the aggregate of all who answered; draws of ``noise`` are in its type.
        """
        ...


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
        priced_as: σ.
        bound: C, and what sums are made of.
    """

    client_noise_allowed: ClassVar[bool] = True

    priced_as: GaussianNoise
    bound: SensitivityBound

    @property
    def clip_norm(self) -> float:
        """C, bound on the ℓ2 norm of one update in the model's units."""
        return self.bound.clip_norm

    @property
    def deviation(self) -> float:
        """σC in the units of the sums."""
        return self.bound.noise_deviation(self.priced_as.noise_multiplier)

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


@dataclass(frozen=True, slots=True)
class Aggregated(GaussianMechanism):
    """The noisy sum of all who came over the public number expected.

    Guarantees: noise of standard deviation σC is in every release, also when nobody came;
    the divisor is a constant of the run, whoever came.

    Attributes:
        expected_check_ins: n̄, a public constant.
        noise: how the draws of the steps belong together. Only independent ones are what a
            scheme's price is for.
    """

    client_noise_allowed: ClassVar[bool] = False

    expected_check_ins: float
    noise: NoiseProcess = field(default_factory=IndependentNoise)

    def __post_init__(self) -> None:
        checks.positive(expected_check_ins=self.expected_check_ins)

    def initial_state(self) -> State:
        """That of the noise."""
        return self.noise.initial_state(self.bound.dimension)

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """(sum + one draw of noise) / expected check-ins."""
        drawn, after = self.noise.draw(self.deviation, total.dimension, state, noise)
        noisy = type(total)(total.total + drawn, total.count).total
        return Released(noisy, self.bound.to_model(noisy / self.expected_check_ins)), after


@dataclass(frozen=True, slots=True)
class Averaged(GaussianMechanism):
    """The mean of updates that each carry their own noise.

    Guarantees: every update in the mean carries its own noise of standard deviation σC; a
    step to which nobody came is left out. The divisor and the skips show the counts.
    """

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Mean of the client-noised updates, or a skip."""
        if total.count == 0:
            return Released(None, None, skipped=True), state
        noisy = total.with_noise(self.deviation, noise).total
        return Released(noisy, self.bound.to_model(noisy / total.count)), state


@dataclass(frozen=True, slots=True)
class OneClient(GaussianMechanism):
    """The noisy update of one of those who came.

    Guarantees: at most one update is asked for; noise of standard deviation σC is in every
    step, also in a dummy one; the model moves in every b-th step only, by the mean of b steps.

    Attributes:
        minibatch: b. The noisy steps so far are the state, ``pending``.
    """

    minibatch: int = 1

    def __post_init__(self) -> None:
        checks.count(minibatch=self.minibatch)

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """One of those who checked in, uniformly; nobody if nobody did."""
        if arrived.size == 0:
            return arrived
        return arrived[source.below(arrived.size, 1)]

    def initial_state(self) -> State:
        """The sum of the noisy steps of a minibatch that is empty, in the units of the sums."""
        return {"pending": np.zeros(self.bound.dimension)}

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """The mean of b noisy steps where a minibatch is full."""
        answer = total if total.count else type(total)(total.total, 1)  # the dummy is zero
        noisy = answer.with_noise(self.deviation, noise).total
        filled = state["pending"] + noisy
        if (step + 1) % self.minibatch:
            return Released(noisy, None), {"pending": filled}
        return Released(noisy, self.bound.to_model(filled / self.minibatch)), self.initial_state()


_BY_RELEASE: dict[ReleaseRule, type[Aggregated] | type[Averaged] | type[OneClient]] = {
    ReleaseRule.AGGREGATED: Aggregated,
    ReleaseRule.AVERAGED: Averaged,
    ReleaseRule.ONE_CLIENT: OneClient,
}


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
    built = _BY_RELEASE[scheme.release]
    settings = {"expected_check_ins": expected_check_ins, "minibatch": minibatch}
    taken = {field.name for field in fields(built)}
    if minibatch != 1 and "minibatch" not in taken:
        raise ParameterError("minibatch", minibatch, f"1 with release rule '{scheme.release}'")
    return built(law, bound, **{name: settings[name] for name in settings if name in taken})


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
