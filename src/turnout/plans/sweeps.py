"""What `turnout compare` is asked: one setting in which one parameter is swept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from turnout.core.errors import ParameterError
from turnout.plans.fields import Count, OpenUnit, Positive, Section
from turnout.plans.refusals import MISSING, refusal
from turnout.spec import Relation

_DIGITS = 4  # of swept values that are not whole
_MOST_POINTS = 1000
_FLAGS = {"first": "--from", "last": "--to"}


class Sweep(Section):
    """A setting, and which parameter takes which values in it."""

    against: Literal["noise-multiplier", "window", "windows"] = Field(
        description="what is swept: 'noise-multiplier', 'window' or 'windows'"
    )
    first: Positive = Field(description="first value of what is swept")
    last: Positive = Field(description="last value of what is swept")
    points: Count = Field(12, description="how many values, evenly spaced in their logarithm")
    noise_multiplier: Positive | None = Field(None, description="noise over the clip norm")
    window: Count | None = Field(None, description="steps a window")
    windows: Count | None = Field(None, description="windows of the run")
    clients: Count | None = Field(None, description="clients whose messages are shuffled")
    delta: OpenUnit = Field(description="the δ of (ε, δ)")
    relation: Relation = Field(description="the neighbouring relation; there is no default")
    tolerance: OpenUnit = Field(1e-2, description="largest (upper − lower) / upper asked for")

    @property
    def key(self) -> str:
        """The name of the swept field."""
        return self.against.replace("-", "_")

    @property
    def whole(self) -> bool:
        """Whether what is swept is a whole number."""
        return self.against != "noise-multiplier"

    def values(self) -> list[float]:
        """The values, rising, each once."""
        spaced = np.geomspace(self.first, self.last, self.points)
        if self.whole:
            return sorted({round(value) for value in spaced})
        inner = [float(f"{value:.{_DIGITS}g}") for value in spaced[1:-1]]
        return sorted({self.first, *inner, self.last})

    def fixed(self) -> dict[str, float]:
        """The parameters that stay as they are."""
        kept = {
            "noise_multiplier": self.noise_multiplier,
            "window": self.window,
            "windows": self.windows or 1,
        }
        return {name: value for name, value in kept.items() if name != self.key and value}


def sweep(flags: Mapping[str, object]) -> Sweep:
    """The sweep that command-line flags ask for.

    Args:
        flags: by the names of `Sweep`'s fields, None where not given.

    Raises:
        ParameterError: a flag, named with its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        asked = Sweep.model_validate(given)
    except ValidationError as error:
        raise refusal(error, Sweep, _flag) from None
    if asked.key in given:
        raise ParameterError(
            _flag(asked.key), given[asked.key], f"nothing beside --against {asked.against}"
        )
    for name in ("noise_multiplier", "window"):
        if name not in (asked.key, *asked.fixed()):
            raise ParameterError(_flag(name), MISSING, "a value beside what is swept")
    _check_ends(asked)
    return asked


def _check_ends(asked: Sweep) -> None:
    """Both ends fit what is swept, and lie in this order.

    Raises:
        ParameterError: --from, --to or --points.
    """
    for name in ("first", "last") if asked.whole else ():
        value = getattr(asked, name)
        if value != int(value):
            raise ParameterError(_flag(name), value, f"a whole number, as is --{asked.against}")
    if not asked.first < asked.last:
        raise ParameterError("--to", asked.last, f"more than --from = {asked.first:g}")
    if not 2 <= asked.points <= _MOST_POINTS:
        raise ParameterError("--points", asked.points, f"from 2 to {_MOST_POINTS}")


def _flag(key: str) -> str:
    """A field's name as a command-line flag."""
    return _FLAGS.get(key, "--" + key.replace("_", "-"))
