"""Preparation of a plan: its noise is calibrated or checked before a run starts.

`prepare` returns a `PreparedPlan` whose proved ε is at most the plan's target, or raises an error.
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
"""Largest number of steps of a run, whose history has a row for each step."""
_FIRST_CLIENTS = 3  # number of clients for which noise is calibrated first


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan with a proved privacy guarantee, ready to run.

    Attributes:
        plan: plan of the run.
        population: number of clients.
        scheme: scheme of the run, including its noise or ε₀.
        guarantee: proved bounds on the ε of the whole run.
    """

    plan: Plan
    population: int
    scheme: Scheme
    guarantee: Guarantee

    @property
    def noise(self) -> GaussianNoise:
        """Noise that the trusted coordinator adds.

        Raises:
            UnsupportedError: clients randomize their updates, and no coordinator adds noise.
        """
        noise = self.scheme.randomizer
        if not isinstance(noise, GaussianNoise):
            raise UnsupportedError(
                f"with privacy.trust = {self.plan.privacy.trust.value!r} no coordinator adds noise"
            )
        return noise

    @property
    def epsilon0(self) -> float | None:
        """ε₀ of one message of a client; None if a coordinator adds noise."""
        randomizer = self.scheme.randomizer
        if isinstance(randomizer, RepeatedMessages):
            return randomizer.each.epsilon0
        return randomizer.epsilon0 if isinstance(randomizer, NonAdaptiveRandomizer) else None

    def messages(self, dimension: int) -> VectorRandomizer | None:
        """Randomizer of the clients' updates; None if a coordinator adds noise.

        Args:
            dimension: number of parameters of the model.

        Raises:
            ParameterError: messages have more bits than the plan permits.
        """
        section, epsilon0 = self.plan.messages, self.epsilon0
        if section is None or epsilon0 is None:
            return None
        return section.build(dimension, epsilon0, self.plan.privacy.clip_norm)


def prepare(
    plan: Plan, population: int, participation: Participation | None = None
) -> PreparedPlan:
    """Prepared plan: the plan, its calibrated or checked noise, and its privacy guarantee.

    Args:
        plan: plan of the run.
        population: number of clients, at least 1.
        participation: participation of the clients. The caller must give it if it depends on a
            trace file (``law = "availability"``). None: the plan's settings determine it.

    Returns:
        The prepared plan; the upper bound on its ε never exceeds the plan's target.

    Raises:
        ParameterError: the plan's noise leads to an ε above the plan's ε, or the run has too many
            steps.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: no bound can be certified.
    """
    privacy = plan.privacy
    chosen = plan.participation_for(population) if participation is None else participation
    if chosen.steps > MOST_STEPS:
        raise ParameterError("participation.steps", chosen.steps, f"at most {MOST_STEPS:,} steps")

    # Without central trust, clients randomize their updates.
    if plan.messages is not None:
        return _prepared_messages(plan, plan.messages, population, chosen)

    def scheme_for(noise_multiplier: float) -> Scheme:
        noise = GaussianNoise(noise_multiplier)
        return Scheme(noise, chosen, privacy.relation, plan.protocol.release, privacy.unit)

    # With central trust, calibrate the noise to the target ε, or check the given noise against it.
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
    """Prepared plan without a trusted coordinator, with the ε₀ of its clients' messages."""
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

    # If no analysis of the shuffle is known, the error gives the ε with local trust.
    try:
        epsilon0 = section.epsilon0 or _largest_epsilon0(scheme_for, privacy)
        scheme = scheme_for(epsilon0)
        guarantee = price(scheme, privacy.delta)
    except UnsupportedError as error:
        if privacy.trust is not TrustModel.SHUFFLED:
            raise
        raise UnsupportedError(f"{error}; {_local_text(plan, population, chosen)}") from None
    # If both ε₀ and ε are given, the proved ε must be at most the given ε.
    proved = guarantee.epsilon.upper
    if privacy.epsilon is not None and proved > privacy.epsilon:
        given = f"randomizer.epsilon0 = {epsilon0!r}"
        expected = f"at least {_above(proved)}, the proved ε with {given}"
        raise ParameterError("privacy.epsilon", privacy.epsilon, expected)
    return PreparedPlan(plan, population, scheme, guarantee)


def _largest_epsilon0(scheme_for: Callable[[float], Scheme], privacy: PrivacySection) -> float:
    """Largest ε₀ of a message for which the upper bound on ε is at most the target."""
    from turnout.accounting.calibration import UNKNOWNS, calibrate

    unknown = replace(UNKNOWNS["epsilon0"], least=LEAST_EPSILON0, most=LARGEST_EPSILON)
    assert privacy.epsilon is not None  # a plan has epsilon or epsilon0
    return calibrate(scheme_for, unknown, privacy.epsilon, privacy.delta).value


def _local_text(plan: Plan, population: int, chosen: Participation) -> str:
    """End of an error text: the ε that the plan would have with local trust."""
    local = plan.privacy.model_copy(update={"trust": TrustModel.LOCAL})
    try:
        found = prepare(plan.model_copy(update={"privacy": local}), population, chosen)
    except TurnoutError:
        return "no analysis is known with privacy.trust = 'local' either"
    return (
        f"with privacy.trust = 'local' the plan has ε = {_above(found.guarantee.epsilon.upper)}, "
        f"ε₀ = {found.epsilon0:.4g} a message ({plan.privacy.relation.value}, "
        f"{plan.privacy.unit.value}, δ = {plan.privacy.delta:g})"
    )


def _calibrated(
    scheme_for: Callable[[float], Scheme], privacy: PrivacySection
) -> tuple[Scheme, Guarantee]:
    """Scheme with the least noise for which ε is at most the target, and its guarantee."""
    from turnout.accounting import calibrate_noise

    target, proved = privacy.epsilon, math.inf
    assert target is not None  # the section has epsilon or noise_multiplier
    # First calibrate for the few clients that probably have the largest ε, and check the bound for
    # all clients. If the check fails, calibrate for all clients.
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
    raise NumericalError(
        f"calibrated noise leads to the upper bound ε = {proved!r}, above privacy.epsilon = "
        f"{target!r}"
    )


def _priced(scheme: Scheme, delta: float) -> Guarantee:
    """Guarantee of a scheme; it lists bounds for each client if clients have different windows."""
    from turnout.accounting import client_guarantees, price

    guarantee = price(costliest_clients(scheme), delta)
    if guarantee.clients is None:
        return guarantee
    each = client_guarantees(scheme, delta, guarantee.epsilon.upper)
    return replace(guarantee, clients=each)


def _check_budget(privacy: PrivacySection, guarantee: Guarantee) -> None:
    """Raise an error if the proved ε of the given noise is above the target."""
    target, proved = privacy.epsilon, guarantee.epsilon.upper
    if target is None or proved <= target:
        return
    raise ParameterError(
        "privacy.epsilon",
        target,
        f"at least {_above(proved)}, the ε of noise_multiplier = {privacy.noise_multiplier!r} "
        "(a larger noise_multiplier lowers ε; if it is omitted, the noise is calibrated)",
    )


def _above(value: float) -> str:
    """Short decimal number that is not below ``value``."""
    text = f"{value:.4g}"
    return text if float(text) >= value else f"{value * 1.001:.4g}"
