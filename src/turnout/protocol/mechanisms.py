"""Mechanisms of trusted coordinators: sums of bounded updates with Gaussian noise.

A mechanism has two halves. A `SensitivityBound` bounds the norm of updates: `Clipping` is for the
floating-point updates of a simulation, `turnout.protocol.lattice` for whole numbers. A
`NoiseProcess`, such as `IndependentNoise`, draws the noise. `Aggregated` releases the noisy sum
divided by a public number. `Averaged` releases the mean of noisy updates (Algorithm 2 of the
check-in paper). `OneClient` releases the noisy update of one uniformly drawn client, or noise alone
(Algorithm 1). `mechanism_for` builds the mechanism of a scheme's release rule. A coordinator
accepts any object that has the members of `Mechanism`.

| symbol | here | |
|---|---|---|
| C | ``clip_norm`` | ℓ2 bound of one update |
| σ | ``priced_as.noise_multiplier`` | noise standard deviation over C |
| b | ``minibatch`` | number of steps between moves of the model |
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
"""Relative slack of norm checks: float32 clipping overshoots by a few roundings of 1e-7."""


@dataclass(frozen=True, slots=True)
class Clipping:
    """Clipping to ℓ2 norm C, in the units of the model.

    For simulations only: floating-point sums and noise differ from the distribution that accounting
    analyses (docs/design/lattice.md). A deployment uses `turnout.protocol.lattice.Lattice` instead.

    Attributes:
        dimension: number d of coordinates of an update.
        clip_norm: C, bound on the ℓ2 norm of one client's update.
    """

    dimension: int
    clip_norm: float

    def __post_init__(self) -> None:
        checks.count(dimension=self.dimension)
        checks.positive(clip_norm=self.clip_norm)

    def constrained(self, update: NDArray[Any]) -> UpdateSum:
        """Contribution of one client: the update, scaled down to ℓ2 norm C if its norm is larger.

        Raises:
            LocalProtocolError: the update has another shape, or is not finite.
        """
        norm = float(np.sqrt(np.square(update, dtype=np.float64).sum()))
        if update.shape != (self.dimension,) or not np.isfinite(norm):
            raise LocalProtocolError(
                f"an update does not consist of {self.dimension} finite numbers"
            )
        return UpdateSum(update if norm <= self.clip_norm else update * (self.clip_norm / norm), 1)

    def zero(self) -> UpdateSum:
        """Sum of no updates."""
        return UpdateSum.zero(self.dimension)

    def noise_deviation(self, noise_multiplier: float) -> float:
        """Standard deviation σC of the noise."""
        return noise_multiplier * self.clip_norm

    def to_model(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """Released vector in the model's units, shape ``(d,)``, which is the given vector."""
        return vector


State = Mapping[str, NDArray[Any]]
"""State of a mechanism between steps: arrays by name, of constant types and shapes.
They are never changed in place."""


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """Private result of one step.

    Attributes:
        total: noisy sum of the step in the units of the sums, shape ``(d,)``; None where nothing is
            released.
        direction: direction in which the model moves, in the units of the model, float64, shape
            ``(d,)``; None if the model does not move.
        skipped: whether the step is left out, since no client sent an update.
    """

    total: NDArray[Any] | None
    direction: NDArray[np.float64] | None
    skipped: bool = False


class SensitivityBound(Protocol):
    """Client's half of a mechanism: it bounds the norm of a client's contribution by C.

    `Clipping` is for floating point, `lattice.Lattice` for whole numbers.
    """

    @property
    def dimension(self) -> int:
        """Number d of coordinates of an update."""
        ...

    @property
    def clip_norm(self) -> float:
        """Bound C on the ℓ2 norm of one update, in the units of the model."""
        ...

    def constrained(self, update: NDArray[Any]) -> UpdateSum:
        """Contribution of one client with update ``(d,)``, as a sum of one update."""
        ...

    def zero(self) -> UpdateSum:
        """Sum of no updates."""
        ...

    def noise_deviation(self, noise_multiplier: float) -> float:
        """Standard deviation σC in the units of the sums, rounded up if sums are exact."""
        ...

    def to_model(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """Released vector in the units of the model, shape ``(d,)``."""
        ...


class NoiseProcess(Protocol):
    """Server's half of a mechanism: it draws the noise of each step.

    The draws of one step are independent over the coordinates. The draws of different steps may
    depend on each other through the state.
    """

    def initial_state(self, dimension: int) -> State:
        """State before the first step."""
        ...

    def draw(
        self, deviation: float, dimension: int, state: State, fresh: Noise
    ) -> tuple[NDArray[Any], State]:
        """Noise of the next step, shape (d,), and the state after this step.

        Args:
            deviation: standard deviation σC in the units of the sums.
            dimension: number d of coordinates.
            state: state after the last step.
            fresh: source of independent draws, none of which was used before.
        """
        ...


class Mechanism(Protocol):
    """Mechanism of a step: how clients encode updates, and what the server releases.

    Guarantees: the privacy analysis of the randomizer `priced_as`, under the participation and
    relation of the scheme, covers all releases (docs/design/protocols.md proves this for each
    mechanism).
    """

    @property
    def priced_as(self) -> Randomizer:
        """Randomizer of the scheme, which accounting analyses."""
        ...

    @property
    def clip_norm(self) -> float:
        """Bound C on the ℓ2 norm of one update, in the units of the model."""
        ...

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """Message of one client: its clipped update ``(d,)``, randomized if clients add the noise.

        A message has the form of an aggregate of one client.
        """
        ...

    def zero(self) -> UpdateSum:
        """Aggregate of no messages, to which messages are added."""
        ...

    def require(self, total: UpdateSum) -> None:
        """Raise an error for an aggregate that valid messages of as many clients cannot have.

        Raises:
            RemoteProtocolError: no valid messages have this aggregate.
        """
        ...

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """Clients whose update is requested, among the clients ``arrived`` that checked in.

        Both arrays of ids are in increasing order, of shape ``(clients,)``.
        """
        ...

    def initial_state(self) -> State:
        """State before the first step; later states have the same array names, types and shapes."""
        ...

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Release of a step by the server, and the state of the mechanism after the step.

        Args:
            total: aggregate of the messages of the step.
            state: state after the last step.
            step: number of the step, from 0.
            noise: source of fresh noise, in the type of the aggregate.
        """
        ...


class IndependentNoise:
    """Noise process with an independent draw in each step, and no state."""

    def initial_state(self, dimension: int) -> State:
        """Empty state."""
        return {}

    def draw(
        self, deviation: float, dimension: int, state: State, fresh: Noise
    ) -> tuple[NDArray[Any], State]:
        """Draw of N(0, ``deviation``²), shape (dimension,), and the state unchanged."""
        return fresh(deviation, dimension), state


@dataclass(frozen=True, slots=True)
class GaussianMechanism:
    """Base of mechanisms with Gaussian noise: encoding, check of sums, and noise deviation.

    Attributes:
        priced_as: Gaussian noise with its noise multiplier σ.
        bound: sensitivity bound, with C and the units of the sums.
    """

    client_noise_allowed: ClassVar[bool] = True

    priced_as: GaussianNoise
    bound: SensitivityBound

    @property
    def clip_norm(self) -> float:
        """Bound C on the ℓ2 norm of one update, in the units of the model."""
        return self.bound.clip_norm

    @property
    def deviation(self) -> float:
        """Standard deviation σC of the noise, in the units of the sums."""
        return self.bound.noise_deviation(self.priced_as.noise_multiplier)

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """Clipped update of one client, shape ``(d,)``; the coordinator adds the noise."""
        return self.bound.constrained(update)

    def zero(self) -> UpdateSum:
        """Sum of no updates."""
        return self.bound.zero()

    def require(self, total: UpdateSum) -> None:
        """Raise an error for a sum that finite, clipped updates cannot have.

        Raises:
            RemoteProtocolError: the sum has another dimension, numbers that are not finite, noise
                of clients, or a norm above the number of updates times C.
        """
        # Shape, finite numbers, and noise only where clients may add it.
        if total.dimension != self.bound.dimension:
            raise RemoteProtocolError(
                f"update of {total.dimension} coordinates: expected {self.bound.dimension}"
            )
        if not np.isfinite(total.total).all():
            raise RemoteProtocolError("an update is not finite: expected finite numbers")
        if total.noised and not self.client_noise_allowed:
            raise RemoteProtocolError(
                "an update has noise: expected none, since the coordinator adds the noise once"
            )
        # Norm: at most C for each update; a deviation for σ = 1 is C in the units of the sum.
        # np.linalg.norm is not used: its BLAS threads take longer than the rest of a step.
        limit = total.count * self.bound.noise_deviation(1.0) * (1 + CLIPPING_SLACK)
        norm = float(np.sqrt(np.square(total.total, dtype=np.float64).sum()))
        if not total.noised and norm > limit:
            raise RemoteProtocolError(
                f"the norm of {total.count} updates is above {limit:.6g}, so one of them is not "
                "clipped"
            )

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """All clients that checked in."""
        return arrived

    def initial_state(self) -> State:
        """Empty state."""
        return {}


@dataclass(frozen=True, slots=True)
class Aggregated(GaussianMechanism):
    """Noisy sum of all updates, divided by the public expected number of check-ins.

    Guarantees: each release has noise of standard deviation σC, even if there is no update; the
    divisor is a constant of the run and does not depend on the check-ins.

    Attributes:
        expected_check_ins: n̄, a public constant.
        noise: process of the noise over the steps. The privacy guarantee of a scheme covers
            independent draws only.
    """

    client_noise_allowed: ClassVar[bool] = False

    expected_check_ins: float
    noise: NoiseProcess = field(default_factory=IndependentNoise)

    def __post_init__(self) -> None:
        checks.positive(expected_check_ins=self.expected_check_ins)

    def initial_state(self) -> State:
        """State of the noise process before the first step."""
        return self.noise.initial_state(self.bound.dimension)

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Noisy sum, and as direction the noisy sum divided by the expected check-ins."""
        drawn, after = self.noise.draw(self.deviation, total.dimension, state, noise)
        noisy = type(total)(total.total + drawn, total.count).total
        return Released(noisy, self.bound.to_model(noisy / self.expected_check_ins)), after


@dataclass(frozen=True, slots=True)
class Averaged(GaussianMechanism):
    """Mean of updates, each with noise of its client.

    Guarantees: each update in the mean has noise of standard deviation σC; a step without any
    update is skipped. The divisor and the skipped steps reveal the number of updates.
    """

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Mean of the noisy updates; the step is skipped if there is no update."""
        if total.count == 0:
            return Released(None, None, skipped=True), state
        noisy = total.with_noise(self.deviation, noise).total
        return Released(noisy, self.bound.to_model(noisy / total.count)), state


@dataclass(frozen=True, slots=True)
class OneClient(GaussianMechanism):
    """Noisy update of one client, drawn from those that checked in.

    Guarantees: at most one update is requested in a step. Each step has noise of standard deviation
    σC, even a step without any update. The model moves in each b-th step only, by the mean of the
    noisy updates of b steps.

    Attributes:
        minibatch: number b of steps between moves of the model. The state ``pending`` is the sum of
            the noisy updates since the last move.
    """

    minibatch: int = 1

    def __post_init__(self) -> None:
        checks.count(minibatch=self.minibatch)

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """One client, uniform among those that checked in; none if no client checked in."""
        if arrived.size == 0:
            return arrived
        return arrived[source.below(arrived.size, 1)]

    def initial_state(self) -> State:
        """Sum of the noisy updates of an empty minibatch: zero, in the units of the sums."""
        return {"pending": np.zeros(self.bound.dimension)}

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Noisy update, and after each b-th step the mean of b noisy updates as direction."""
        answer = total if total.count else type(total)(total.total, 1)  # without an update: zero
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
    """Mechanism that executes the release rule of a scheme with its noise.

    Args:
        scheme: scheme with Gaussian noise.
        bound: sensitivity bound of one update.
        expected_check_ins: public divisor n̄, above 0; only aggregated releases use it.
        minibatch: steps between moves of the model, at least 1; only one-client releases permit
            a value above 1.

    Raises:
        ParameterError: a value is outside its domain, or the release rule has no minibatch.
        UnsupportedError: the randomizer is not Gaussian noise.
    """
    # Trusted coordinators add Gaussian noise only.
    randomizer = scheme.randomizer
    if not isinstance(randomizer, GaussianNoise):
        raise UnsupportedError(
            f"training has no mechanism for {type(randomizer).__name__}; use GaussianNoise"
        )
    # The class of the release rule, with the settings that it has.
    built = _BY_RELEASE[scheme.release]
    settings = {"expected_check_ins": expected_check_ins, "minibatch": minibatch}
    taken = {field.name for field in fields(built)}
    if minibatch != 1 and "minibatch" not in taken:
        raise ParameterError("minibatch", minibatch, f"1 with release rule '{scheme.release}'")
    return built(randomizer, bound, **{name: settings[name] for name in settings if name in taken})


def public_divisor(scheme: Scheme, population: int, given: float | None) -> float | None:
    """Public divisor n̄ of aggregated sums; None for other release rules.

    Args:
        scheme: scheme of the task.
        population: number of clients.
        given: divisor in the plan, above 0; if None, the expected number of check-ins, averaged
            over the steps.

    Raises:
        ParameterError: the participation is for another population, or the divisor is not above 0.
    """
    expected = expected_check_ins(scheme.participation, population)
    if scheme.release is not ReleaseRule.AGGREGATED:
        return None
    if given is None:
        return float(expected.mean())
    checks.positive(expected_check_ins=given)
    return float(given)
