"""Checks a plan's budget before anything runs: calibrates the noise, or refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.errors import NumericalError, ParameterError, TurnoutError, UnsupportedError
from turnout.plans.plan import LEAST_EPSILON0, Plan, RandomizerSection
from turnout.plans.sections import PrivacySection
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.schemes import (
    AvailabilityCheckIn,
    GaussianNoise,
    NonAdaptiveRandomizer,
    Participation,
    ReleaseRule,
    RepeatedMessages,
    Scheme,
    TrustModel,
)

if TYPE_CHECKING:
    from turnout.accounting import Guarantee
    from turnout.randomizers.vectors import VectorRandomizer

MOST_STEPS = 10_000_000
"""Steps of a run: each is carried out and has a row in its history."""
_FIRST_CLIENTS = 3  # for which noise is calibrated first


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan whose guarantee is known: what may run."""

    plan: Plan
    population: int
    scheme: Scheme
    guarantee: Guarantee

    @property
    def noise(self) -> GaussianNoise:
        """The noise of a trusted coordinator.

        Raises:
            UnsupportedError: clients randomize their own updates.
        """
        noise = self.scheme.randomizer
        if not isinstance(noise, GaussianNoise):
            raise UnsupportedError(
                f"privacy.trust = {self.plan.privacy.trust.value!r} has no noise of a coordinator"
            )
        return noise

    @property
    def epsilon0(self) -> float | None:
        """ε₀ of one message of a client on its own; None where a coordinator adds noise."""
        law = self.scheme.randomizer
        if isinstance(law, RepeatedMessages):
            return law.each.epsilon0
        return law.epsilon0 if isinstance(law, NonAdaptiveRandomizer) else None

    def messages(self, dimension: int) -> VectorRandomizer | None:
        """The randomizer of clients' updates of a model; None where a coordinator adds noise.

        Raises:
            ParameterError: its messages are longer than the plan allows.
        """
        section, epsilon0 = self.plan.messages, self.epsilon0
        if section is None or epsilon0 is None:
            return None
        return section.build(dimension, epsilon0, self.plan.privacy.clip_norm)


def prepare(plan: Plan, population: int, law: Participation | None = None) -> PreparedPlan:
    """The plan with its noise calibrated (or checked) and its guarantee.

    A law that needs a trace file (``law = "availability"``) is built by whoever reads files; any
    other is the plan's own. The scheme's ε upper bound never exceeds the plan's target.

    Raises:
        ParameterError: the noise that the plan names does not give the ε that it names, or the run
            has too many steps.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: nothing can be certified.
    """
    privacy = plan.privacy
    chosen = plan.participation_for(population) if law is None else law
    if chosen.steps > MOST_STEPS:
        raise ParameterError("participation.steps", chosen.steps, f"at most {MOST_STEPS:,} in all")

    if plan.messages is not None:
        return _prepared_messages(plan, plan.messages, population, chosen)

    def scheme_for(noise_multiplier: float) -> Scheme:
        noise = GaussianNoise(noise_multiplier)
        return Scheme(noise, chosen, privacy.relation, plan.protocol.release, privacy.unit)

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
    """The plan with the ε₀ of its clients' messages."""
    from turnout.accounting import price

    privacy = plan.privacy

    def scheme_for(epsilon0: float) -> Scheme:
        law = section.priced_as(epsilon0)
        return Scheme(
            law, chosen, privacy.relation, ReleaseRule.AGGREGATED, privacy.unit, privacy.trust,
            population=population,
        )  # fmt: skip

    try:
        epsilon0 = section.epsilon0 or _largest_epsilon0(scheme_for, privacy)
        scheme = scheme_for(epsilon0)
        guarantee = price(scheme, privacy.delta)
    except UnsupportedError as error:
        if privacy.trust is not TrustModel.SHUFFLED:
            raise
        raise UnsupportedError(f"{error}; {_in_its_place(plan, population, chosen)}") from None
    proved = guarantee.epsilon.upper
    if privacy.epsilon is not None and proved > privacy.epsilon:
        expected = f"at least {_above(proved)}, which randomizer.epsilon0 = {epsilon0!r} gives"
        raise ParameterError("privacy.epsilon", privacy.epsilon, expected)
    return PreparedPlan(plan, population, scheme, guarantee)


def _largest_epsilon0(scheme_for: Callable[[float], Scheme], privacy: PrivacySection) -> float:
    """The largest ε₀ whose messages cost at most the target."""
    from turnout.accounting.calibration import UNKNOWNS, calibrate

    unknown = replace(UNKNOWNS["epsilon0"], least=LEAST_EPSILON0, most=LARGEST_EPSILON)
    assert privacy.epsilon is not None  # the plan holds one of the two
    return calibrate(scheme_for, unknown, privacy.epsilon, privacy.delta).value


def _in_its_place(plan: Plan, population: int, chosen: Participation) -> str:
    """What local trust has to say where no shuffle has an analysis."""
    local = plan.privacy.model_copy(update={"trust": TrustModel.LOCAL})
    try:
        found = prepare(plan.model_copy(update={"privacy": local}), population, chosen)
    except TurnoutError:
        return "privacy.trust = 'local' has none either"
    return (
        f"with privacy.trust = 'local' the plan has ε = {_above(found.guarantee.epsilon.upper)}, "
        f"ε₀ = {found.epsilon0:.4g} a message ({plan.privacy.relation.value}, "
        f"{plan.privacy.unit.value}, δ = {plan.privacy.delta:g})"
    )


def _calibrated(
    scheme_for: Callable[[float], Scheme], privacy: PrivacySection
) -> tuple[Scheme, Guarantee]:
    """The scheme whose noise gives the target ε, and its guarantee."""
    from turnout.accounting import calibrate_noise

    target, proved = privacy.epsilon, math.inf
    assert target is not None  # the section holds one of the two
    # A few clients first: a price of all, which must follow anyway, mostly shows that they suffice.
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
    """The price of a scheme; where clients have windows of their own, each one's when asked for."""
    from turnout.accounting import client_guarantees, price

    guarantee = price(costliest_clients(scheme), delta)
    if guarantee.clients is None:
        return guarantee
    each = client_guarantees(scheme, delta, guarantee.epsilon.upper)
    return replace(guarantee, clients=each)


def costliest_clients(scheme: Scheme, most: int | None = None) -> Scheme:
    """The scheme with fewer clients but the same worst ε, where each has windows of its own.

    A client costs no less than another who has, for each window of the other, one of its own
    that is no larger: an average over fewer slots is larger in convex order, and more windows
    are more releases. A client that is dominated needs no price of its own.

    With ``most``, that many clients at most, and perhaps not the worst: those with the largest sum
    of 1/size, about the variance of their losses.
    """
    law = scheme.participation
    if not isinstance(law, AvailabilityCheckIn) or law.population == 0:
        return scheme
    sizes = law.window_sizes().astype(np.float64)
    sizes[sizes == 0] = np.inf
    sizes.sort(axis=1)
    order, first = np.unique(sizes, axis=0, return_index=True)
    kept: list[int] = []
    for i, client in zip(range(len(order)), first, strict=True):
        dominated = (order <= order[i]).all(axis=1)
        dominated[i] = False
        if not dominated.any():
            kept.append(int(client))
    if most is not None:
        kept = sorted(kept, key=lambda client: -float((1.0 / sizes[client]).sum()))[:most]
    return replace(scheme, participation=law.part(clients=sorted(kept)))


def _check_budget(privacy: PrivacySection, guarantee: Guarantee) -> None:
    """Refuses given noise whose guarantee is above the target."""
    target, proved = privacy.epsilon, guarantee.epsilon.upper
    if target is None or proved <= target:
        return
    raise ParameterError(
        "privacy.epsilon",
        target,
        f"at least {_above(proved)}, which noise_multiplier = {privacy.noise_multiplier!r} gives "
        "(more noise gives less; without noise_multiplier it is calibrated)",
    )


def _above(value: float) -> str:
    """A short decimal number that is not below ``value``."""
    text = f"{value:.4g}"
    return text if float(text) >= value else f"{value * 1.001:.4g}"
