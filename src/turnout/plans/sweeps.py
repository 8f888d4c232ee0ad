"""The question of `turnout compare`: one setting in which one parameter is swept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.plans.fields import Count, OpenUnit, Positive, Section
from turnout.plans.refusals import MISSING, refusal
from turnout.plans.shuffles import SHUFFLED
from turnout.schemes import Relation
from turnout.schemes.scheme import RELATION

_DIGITS = 4  # of swept values that are not whole
_MOST_POINTS = 1000
_FLAGS = {"first": "--from", "last": "--to"}
_CHECK_IN = "check-in"
_LEAST = {"windows": 1, "rounds": 1}
_WHOLE = ("window", "windows", "clients", "rounds")


class Sweep(Section):
    """A setting, and which parameter takes which values in it; of one of two families."""

    needed: ClassVar[tuple[str, ...]]
    """Parameters that are swept or given."""
    parameters: ClassVar[tuple[str, ...]]
    """All that may be swept or are shown as fixed."""
    kept: ClassVar[tuple[str, ...]]
    """The other parameters of the setting."""

    # Each family says what they may be.
    against: Any
    first: Any
    last: Any
    delta: Any
    relation: Any

    points: Count = Field(12, description="how many values, evenly spaced in their logarithm")
    clients: Count | None = Field(None, description="clients whose messages are shuffled")
    tolerance: OpenUnit = Field(1e-2, description="largest (upper − lower) / upper asked for")
    listed: tuple[float, ...] = Field((), description="the values, where they are not spaced so")

    @property
    def key(self) -> str:
        """The name of the swept field."""
        return self.against.replace("-", "_")

    @property
    def whole(self) -> bool:
        """Whether what is swept is a whole number."""
        return self.key in _WHOLE

    def values(self) -> list[float]:
        """The values, rising, each once."""
        if self.listed:
            return sorted(set(self.listed))
        spaced = np.geomspace(self.first, self.last, self.points)
        if self.whole:
            return sorted({round(value) for value in spaced})
        inner = [float(f"{value:.{_DIGITS}g}") for value in spaced[1:-1]]
        return sorted({self.first, *inner, self.last})

    def fixed(self) -> dict[str, float]:
        """The parameters that stay as they are, unless they say who is compared."""
        said = {name: getattr(self, name) or _LEAST.get(name) for name in self.parameters}
        return {name: value for name, value in said.items() if name != self.key and value}

    def at(self, value: float) -> dict[str, Any]:
        """The setting with one value of what is swept."""
        kept = {name: getattr(self, name) for name in self.kept}
        return {**kept, **self.fixed(), self.key: value}


class CheckInSweep(Sweep):
    """Check-ins with Gaussian noise, and every other way to come."""

    needed: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window")
    parameters: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window", "windows")
    kept: ClassVar[tuple[str, ...]] = ("delta", "relation", "clients", "tolerance")

    against: Literal["noise-multiplier", "window", "windows"] = Field(description="what is swept")
    first: Positive = Field(description="first value of what is swept")
    last: Positive = Field(description="last value of what is swept")
    noise_multiplier: Positive | None = Field(None, description="noise over the clip norm")
    window: Count | None = Field(None, description="steps a window")
    windows: Count | None = Field(None, description="windows of the run")
    delta: OpenUnit = Field(description="the δ of (ε, δ)")
    relation: Relation = Field(description="the neighbouring relation; there is no default")


class ShuffleSweep(Sweep):
    """Shuffled messages of an ε₀-LDP randomizer, by every bound."""

    needed: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "delta")
    parameters: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "rounds", "sampled", "delta")
    kept: ClassVar[tuple[str, ...]] = ("tolerance",)

    against: Literal["epsilon0", "clients", "rounds", "delta"] | None = Field(
        None, description="what is swept"
    )
    first: Positive | None = Field(None, description="first value of what is swept")
    last: Positive | None = Field(None, description="last value of what is swept")
    epsilon0: Positive | None = Field(None, description="the randomizer's own ε₀")
    rounds: Count | None = Field(None, description="rounds, each of which is shuffled afresh")
    sampled: Count | None = Field(None, description="clients who send a message in a round")
    delta: OpenUnit | None = Field(None, description="the δ of (ε, δ)")
    relation: Relation = Field(RELATION, description="the neighbouring relation")

    @field_validator("relation")
    @classmethod
    def _shuffled_relation(cls, relation: Relation) -> Relation:
        if relation is not RELATION:
            raise ParameterError("value", relation.value, f"{RELATION.value}, or nothing")
        return relation

    @property
    def key(self) -> str:
        """The name of the swept field; a single point is a sweep over one δ."""
        return self.against or "delta"

    def values(self) -> list[float]:
        """The values, rising, each once."""
        if self.against is None:
            assert self.delta is not None
            return [self.delta]
        return super().values()


_FAMILIES: dict[str, type[Sweep]] = {_CHECK_IN: CheckInSweep, "shuffle": ShuffleSweep}


def sweep(flags: Mapping[str, object]) -> Sweep:
    """The sweep that command-line flags ask for.

    Args:
        flags: ``scheme`` ("check-in" if not given, or "shuffle") and, by name, the fields of
            `CheckInSweep` or `ShuffleSweep`; None where not given.

    Raises:
        ParameterError: a flag, named with its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    scheme = given.pop("scheme", _CHECK_IN)
    if scheme in SHUFFLED and scheme not in _FAMILIES:
        raise ParameterError("--scheme", scheme, "shuffle, with --sampled for a sample of clients")
    if scheme not in _FAMILIES:
        raise ParameterError("--scheme", scheme, f"one of {', '.join(map(repr, _FAMILIES))}")
    family = _FAMILIES[str(scheme)]
    _check_family(given, str(scheme))
    try:
        asked = family.model_validate(given)
    except ValidationError as error:
        raise refusal(error, family, _flag) from None
    if asked.against is None:
        _check_point(asked, given)
    else:
        _check_swept(asked, given)
    return asked


def _check_family(given: Mapping[str, object], scheme: str) -> None:
    """Refuses flags of the other family."""
    for other, family in _FAMILIES.items():
        for name in family.model_fields:
            if name in given and name not in _FAMILIES[scheme].model_fields:
                raise ParameterError(_flag(name), given[name], f"--scheme {other} beside it")


def _check_point(asked: Sweep, given: Mapping[str, object]) -> None:
    """Refuses flags of a sweep where nothing is swept."""
    for name in ("first", "last", "points"):
        if name in given:
            raise ParameterError(_flag(name), given[name], "--against beside it")
    _check_needed(asked)
    _check_sampled(asked, asked.clients)


def _check_swept(asked: Sweep, given: Mapping[str, object]) -> None:
    """The swept parameter has ends and no value besides; every other one has a value."""
    if asked.key in given:
        raise ParameterError(
            _flag(asked.key), given[asked.key], f"nothing beside --against {asked.against}"
        )
    for name in ("first", "last"):
        if getattr(asked, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value beside --against {asked.against}")
    _check_needed(asked)
    _check_ends(asked)
    _check_sampled(asked, asked.first if asked.key == "clients" else asked.clients)


def _check_needed(asked: Sweep) -> None:
    swept, fields = asked.key if asked.against else None, type(asked).model_fields
    for name in asked.needed:
        if name != swept and getattr(asked, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value ({fields[name].description})")


def _check_ends(asked: Sweep) -> None:
    """Both ends fit what is swept, and lie in this order."""
    for name in ("first", "last"):
        value = getattr(asked, name)
        if asked.whole and value != int(value):
            raise ParameterError(_flag(name), value, f"a whole number, as is --{asked.against}")
        if asked.key == "delta":
            checks.open_unit(**{_flag(name): value})
    if not asked.first < asked.last:
        raise ParameterError("--to", asked.last, f"more than --from = {asked.first:g}")
    if not 2 <= asked.points <= _MOST_POINTS:
        raise ParameterError("--points", asked.points, f"from 2 to {_MOST_POINTS}")


def _check_sampled(asked: Sweep, least_clients: float | None) -> None:
    """No more are sampled than there are."""
    sampled = getattr(asked, "sampled", None)
    if sampled is not None and least_clients is not None and sampled > least_clients:
        expected = f"at most {least_clients:.0f}, the number of clients"
        raise ParameterError("--sampled", sampled, expected)


def _flag(key: str) -> str:
    """A field's name as a command-line flag."""
    return _FLAGS.get(key, "--" + key.replace("_", "-"))
