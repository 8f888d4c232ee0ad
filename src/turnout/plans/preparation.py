"""Preparation of a plan: its noise is calibrated or checked before anything runs.

`prepare` returns a `PreparedPlan`, whose scheme has a proved guarantee within the plan's target, or
raises an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnout.core.errors import NumericalError, ParameterError, TurnoutError, UnsupportedError
from turnout.plans.plan import LEAST_EPSILON0, Plan, RandomizerSection
from turnout.plans.sections import PrivacySection
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.schemes import (
    GaussianNoise,
    NonAdaptiveRandomizer,
    Participation,
    ReleaseRule,
    RepeatedMessages,
    Scheme,
    TrustModel,
)
from turnout.schemes.participation.availability_check_in import costliest_clients

if TYPE_CHECKING:
    from turnout.accounting import Guarantee
    from turnout.randomizers.vectors import VectorRandomizer

MOST_STEPS = 10_000_000
"""Largest number of steps of a run: each is carried out and has a row in the history."""
_FIRST_CLIENTS = 3  # number of clients for which noise is calibrated first


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan with a proved guarantee, which may run.

    Attributes:
        plan: plan of the run.
        population: number of clients.
        scheme: scheme of the run, its noise or ε₀ included.
        guarantee: proved bounds on the ε of the whole run.
    """

    plan: Plan
    population: int
    scheme: Scheme
    guarantee: Guarantee

    @property
    def noise(self) -> GaussianNoise:
        """Noise of the trusted coordinator.

        Raises:
            UnsupportedError: clients randomize their own updates.
        """
        noise = self.scheme.randomizer
        if not isinstance(noise, GaussianNoise):
            raise UnsupportedError(
                f"with privacy.trust = {self.plan.privacy.trust.value!r} no coordinator adds noise"
            )
        return noise

    @property
    def epsilon0(self) -> float | None:
        """ε₀ of one message of a client; None where a coordinator adds noise."""
        randomizer = self.scheme.randomizer
        if isinstance(randomizer, RepeatedMessages):
            return randomizer.each.epsilon0
        return randomizer.epsilon0 if isinstance(randomizer, NonAdaptiveRandomizer) else None

    def messages(self, dimension: int) -> VectorRandomizer | None:
        """Randomizer of the clients' updates; None where a coordinator adds noise.

        Args:
            dimension: number of parameters of the model.

        Raises:
            ParameterError: its messages are longer than the plan allows.
        """
        section, epsilon0 = self.plan.messages, self.epsilon0
        if section is None or epsilon0 is None:
            return None
        return section.build(dimension, epsilon0, self.plan.privacy.clip_norm)


def prepare(
    plan: Plan, population: int, participation: Participation | None = None
) -> PreparedPlan:
    """Plan with its noise, calibrated or checked, and its guarantee.

    Args:
        plan: plan of the run.
        population: number of clients, at least 1.
        participation: participation of the clients where the plan's needs a trace file
            (``law = "availability"``), which the caller has read; by default the plan's own.

    Returns:
        The prepared plan; the upper bound on its ε never exceeds the plan's target.

    Raises:
        ParameterError: the noise of the plan has an ε above the plan's ε, or the run has too many
            steps.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: nothing can be certified.
    """
    privacy = plan.privacy
    chosen = plan.participation_for(population) if participation is None else participation
    if chosen.steps > MOST_STEPS:
        raise ParameterError("participation.steps", chosen.steps, f"at most {MOST_STEPS:,} in all")

    # Clients randomize their updates, or a trusted coordinator adds noise.
    if plan.messages is not None:
        return _prepared_messages(plan, plan.messages, population, chosen)

    def scheme_for(noise_multiplier: float) -> Scheme:
        noise = GaussianNoise(noise_multiplier)
        return Scheme(noise, chosen, privacy.relation, plan.protocol.release, privacy.unit)

    # The noise follows from the target ε, or is given and checked against it.
    if privacy.noise_multiplier is None:
        scheme, guarantee = _calibrated(scheme_for, privacy)
    else:
        scheme = scheme_for(privacy.noise_multiplier)
        guarantee = _priced(scheme, privacy.delta)
        _check_budget(privacy, guarantee)
    return PreparedPlan(plan, population, scheme, guarantee)


def _prepared_messages(
    plan: Plan, section: RandomizerSection, population: int, chosen: Participation
) -> PreparedPlan:
    """Plan without a trusted coordinator, with the ε₀ of its clients' messages."""
    from turnout.accounting import price

    privacy = plan.privacy

    def scheme_for(epsilon0: float) -> Scheme:
        return Scheme(
            section.priced_as(epsilon0),
            chosen,
            privacy.relation,
            ReleaseRule.AGGREGATED,
            privacy.unit,
            privacy.trust,
            population=population,
        )

    # Without an analysis of the shuffle, the error gives the ε of local trust instead.
    try:
        epsilon0 = section.epsilon0 or _largest_epsilon0(scheme_for, privacy)
        scheme = scheme_for(epsilon0)
        guarantee = price(scheme, privacy.delta)
    except UnsupportedError as error:
        if privacy.trust is not TrustModel.SHUFFLED:
            raise
        raise UnsupportedError(f"{error}; {_local_text(plan, population, chosen)}") from None
    # A given ε₀ must keep to a given ε.
    proved = guarantee.epsilon.upper
    if privacy.epsilon is not None and proved > privacy.epsilon:
        expected = f"at least {_above(proved)}, the ε of randomizer.epsilon0 = {epsilon0!r}"
        raise ParameterError("privacy.epsilon", privacy.epsilon, expected)
    return PreparedPlan(plan, population, scheme, guarantee)


def _largest_epsilon0(scheme_for: Callable[[float], Scheme], privacy: PrivacySection) -> float:
    """Largest ε₀ of a message whose ε, proved from above, is at most the target."""
    from turnout.accounting.calibration import UNKNOWNS, calibrate

    unknown = replace(UNKNOWNS["epsilon0"], least=LEAST_EPSILON0, most=LARGEST_EPSILON)
    assert privacy.epsilon is not None  # the plan holds one of the two
    return calibrate(scheme_for, unknown, privacy.epsilon, privacy.delta).value


def _local_text(plan: Plan, population: int, chosen: Participation) -> str:
    """Text about the ε that the plan has with local trust."""
    local = plan.privacy.model_copy(update={"trust": TrustModel.LOCAL})
    try:
        found = prepare(plan.model_copy(update={"privacy": local}), population, chosen)
    except TurnoutError:
        return "none is known with privacy.trust = 'local' either"
    return (
        f"with privacy.trust = 'local' the plan has ε = {_above(found.guarantee.epsilon.upper)}, "
        f"ε₀ = {found.epsilon0:.4g} a message ({plan.privacy.relation.value}, "
        f"{plan.privacy.unit.value}, δ = {plan.privacy.delta:g})"
    )


def _calibrated(
    scheme_for: Callable[[float], Scheme], privacy: PrivacySection
) -> tuple[Scheme, Guarantee]:
    """Scheme with the least noise that meets the target ε, and its guarantee."""
    from turnout.accounting import calibrate_noise

    target, proved = privacy.epsilon, math.inf
    assert target is not None  # the section holds one of the two
    # Calibrated for a few clients first: the bound for all clients, which must follow, mostly shows
    # that these few have the largest ε.
    for most in (_FIRST_CLIENTS, None):
        noise_multiplier = calibrate_noise(
            lambda sigma, most=most: costliest_clients(scheme_for(sigma), most),
            target,
            privacy.delta,
        )
        scheme = scheme_for(noise_multiplier)
        guarantee = _priced(scheme, privacy.delta)
        proved = guarantee.epsilon.upper
        if proved <= target:
            return scheme, guarantee
    raise NumericalError(f"calibrated noise gives ε = {proved!r}, above privacy.epsilon")


def _priced(scheme: Scheme, delta: float) -> Guarantee:
    """Guarantee of a scheme; clients with own windows have their own bounds, computed on demand."""
    from turnout.accounting import client_guarantees, price

    guarantee = price(costliest_clients(scheme), delta)
    if guarantee.clients is None:
        return guarantee
    each = client_guarantees(scheme, delta, guarantee.epsilon.upper)
    return replace(guarantee, clients=each)


def _check_budget(privacy: PrivacySection, guarantee: Guarantee) -> None:
    """Refuse given noise whose proved ε is above the target."""
    target, proved = privacy.epsilon, guarantee.epsilon.upper
    if target is None or proved <= target:
        return
    raise ParameterError(
        "privacy.epsilon",
        target,
        f"at least {_above(proved)}, the ε of noise_multiplier = {privacy.noise_multiplier!r} "
        "(more noise has a smaller ε; without noise_multiplier it is calibrated)",
    )


def _above(value: float) -> str:
    """Short decimal number that is not below ``value``."""
    text = f"{value:.4g}"
    return text if float(text) >= value else f"{value * 1.001:.4g}"
