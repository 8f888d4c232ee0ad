"""The unknowns that can be solved for in a scheme, and their places in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from turnout.accounting.calibration import DELTA as DELTA_UNKNOWN
from turnout.accounting.calibration import UNKNOWNS, Unknown, guessed, most_deviation
from turnout.core.errors import ParameterError
from turnout.schemes import FixedSize, Randomizer, Scheme, TrustModel
from turnout.schemes.parameters import Domain, Parameter, parameters

if TYPE_CHECKING:
    from turnout.schemes import DiscreteGaussianNoise, RoundedGaussianNoise

NOISE, DELTA = "noise", "delta"
"""The unknowns besides parameters; noise by its randomizer's own name."""
_SHUFFLED = {"rounds": "steps", "sampled": "size"}
"""Parameters of a law, by their names where messages are shuffled."""


def unknown_of(name: str) -> Unknown:
    """The unknown of that name.

    Raises:
        ParameterError: there is none.
    """
    if name != DELTA and name not in UNKNOWNS:
        raise ParameterError("solve_for", name, f"one of {', '.join(map(repr, UNKNOWNS))}")
    return DELTA_UNKNOWN if name == DELTA else UNKNOWNS[name]


def named(solve_for: str, scheme: Scheme) -> str:
    """The unknown's own name.

    Raises:
        ParameterError: the scheme has no such parameter, or it cannot be solved for.
    """
    name = str(solve_for).replace("_", "-")
    noise = noise_name(scheme.randomizer)
    allowed = [*([noise] if noise else []), *_places(scheme), DELTA]
    name = noise or name if name == NOISE else name
    if name not in allowed:
        raise ParameterError("solve_for", solve_for, f"one of {', '.join(map(repr, allowed))}")
    return name


def noise_name(randomizer: Randomizer) -> str | None:
    """The name of the parameter that says how much noise there is."""
    levels = [each for each in _parameters(randomizer) if each.domain is Domain.POSITIVE]
    return _dashed(levels[0].key) if levels else None


def with_value(scheme: Scheme, name: str, value: float) -> Scheme:
    """The scheme with a value for one unknown but δ."""
    if name == noise_name(scheme.randomizer):
        key = name.replace("-", "_")
        return replace(scheme, randomizer=replace(scheme.randomizer, **{key: value}))
    place, law = _places(scheme)[name], scheme.participation
    if place != "population":
        return replace(scheme, participation=replace(law, **{place: value}))
    if isinstance(law, FixedSize):
        law = replace(law, population=int(value))
    return replace(scheme, participation=law, population=int(value))


def _places(scheme: Scheme) -> dict[str, str]:
    """The fields of the law, or the population, by the names of unknowns."""
    law, shuffled = scheme.participation, scheme.trust is TrustModel.SHUFFLED
    fields = {each.name: each.key for each in _parameters(law) if each.public}
    if shuffled:
        fields |= {field: word for word, field in _SHUFFLED.items() if field in fields}
    names = {_dashed(word): field for field, word in fields.items() if _dashed(word) in UNKNOWNS}
    counted = shuffled or scheme.release.shows_counts
    return names | ({"clients": "population"} if counted else {})


def limited(
    unknown: Unknown,
    scheme: Scheme,
    epsilon: float,
    delta: float,
    made: Callable[[float], Scheme],
) -> Unknown:
    """The unknown within the limits that the rest of the scheme leaves, and where to look first.

    ``made``: the scheme as a function of the value.
    """
    law = scheme.participation
    if scheme.trust is TrustModel.SHUFFLED:
        return guessed(made, _shuffled(unknown, scheme, epsilon), epsilon, delta)
    for each in _parameters(law):
        if each.at_most and _dashed(each.key) == unknown.name:
            return replace(unknown, most=min(unknown.most, getattr(law, each.at_most)))
        if each.at_most and _dashed(each.at_most) == unknown.name:
            return replace(unknown, least=max(unknown.least, getattr(law, each.name)))
    if unknown.name == "standard-deviation":
        lattice = cast("DiscreteGaussianNoise | RoundedGaussianNoise", scheme.randomizer)
        moved = 2 * lattice.sensitivity  # where others move as well
        least = unknown.least * moved
        return replace(unknown, least=least, most=most_deviation(moved), start=float(moved))
    return unknown


def _shuffled(unknown: Unknown, scheme: Scheme, epsilon: float) -> Unknown:
    """An unknown of shuffled messages within its limits."""
    law = scheme.participation
    if isinstance(law, FixedSize):
        if unknown.name == "sampled":
            unknown = replace(unknown, most=law.population)
        if unknown.name == "clients":
            unknown = replace(unknown, least=law.size)
    if unknown.name == "epsilon0":
        unshuffled = epsilon / law.steps  # costs no more with a shuffler
        start = min(max(unshuffled, unknown.least), unknown.most)
        unknown = replace(unknown, start=start, power=max(1.0, start / 2))  # about as e^{ε₀/2}
    return unknown


def _parameters(spec: Any) -> list[Parameter]:
    return list(parameters(type(spec)))


def _dashed(key: str) -> str:
    return key.replace("_", "-")
