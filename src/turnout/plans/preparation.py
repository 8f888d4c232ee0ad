"""Checks a plan's budget before anything runs: calibrates the noise, or refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.errors import NumericalError, ParameterError
from turnout.plans.plan import Plan
from turnout.plans.sections import PrivacySection
from turnout.spec import AvailabilityCheckIn, GaussianNoise, ParticipationLaw, Scheme

if TYPE_CHECKING:
    from turnout.accounting import Guarantee

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
        """The scheme's randomizer; training has no other."""
        noise = self.scheme.randomizer
        assert isinstance(noise, GaussianNoise)
        return noise


def prepare(plan: Plan, population: int, law: ParticipationLaw | None = None) -> PreparedPlan:
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
    chosen = plan.law(population) if law is None else law
    if chosen.steps > MOST_STEPS:
        raise ParameterError("participation.steps", chosen.steps, f"at most {MOST_STEPS:,} in all")

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
