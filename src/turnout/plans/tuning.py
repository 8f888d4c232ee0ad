"""The [tune] table of a plan: which keys are searched, over what, and on whose data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from turnout.core.errors import ParameterError
from turnout.plans.data import DataSection
from turnout.plans.fields import Count, OpenUnit, Section
from turnout.plans.sections import ClientSection, ModelSection, OptimizerSection

_TABLES: dict[str, type[Section]] = {
    "optimizer": OptimizerSection,
    "client": ClientSection,
    "model": ModelSection,
}
_ONE_PRICE = "a key of [optimizer], [client] or [model], but for metrics, or privacy.clip_norm"
_RANGE = "{ low = …, high = … }, with log = true for a logarithmic scale, or a list of choices"


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two ends, uniform on a linear or a logarithmic scale; or choices.

    Attributes:
        whole: whether whole numbers are drawn.
        choices: in place of the ends, where there are any.
    """

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest number."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def draw(self, generator: np.random.Generator) -> Any:
        """A value; which values are drawn is public."""
        if self.choices:
            return self.choices[int(generator.integers(len(self.choices)))]
        if self.log:
            ends = math.log(self.low), math.log(self.high)
            value = math.exp(generator.uniform(*ends))
        elif self.whole:
            return int(generator.integers(int(self.low), int(self.high) + 1))
        else:
            value = generator.uniform(self.low, self.high)
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(f"{value:.6g}")


def parse_ranges(ranges: Mapping[str, Any]) -> dict[str, Range]:
    """The ranges by the dotted keys of a plan.

    Raises:
        ParameterError: a key that no search may choose, or something that is no range.
    """
    return {key: _range(key, value) for key, value in _flat(ranges).items()}


def _flat(ranges: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys; TOML reads those without quotes as tables."""
    flat: dict[str, Any] = {}
    for key, value in ranges.items():
        if "." not in key and isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            flat[key] = value
    return flat


def _range(key: str, value: Any) -> Range:
    whole = _is_whole(key)
    if isinstance(value, list | tuple):
        if not value:
            raise ParameterError(key, list(value), _RANGE)
        return Range(choices=tuple(value))
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= _RANGE_KEYS:
        raise ParameterError(key, value, _RANGE)
    low, high, log = value["low"], value["high"], value.get("log", False)
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (low, high))
    if not numbers or not -math.inf < low < high < math.inf or (log and low <= 0):
        raise ParameterError(key, dict(value), "numbers low < high, above 0 with log = true")
    if not isinstance(log, bool):
        raise ParameterError(key, dict(value), "log = true or false")
    if whole and (low != int(low) or high != int(high)):
        raise ParameterError(key, dict(value), "whole numbers")
    return Range(float(low), float(high), log, whole)


_RANGE_KEYS = {"low", "high", "log"}


def _is_whole(key: str) -> bool:
    """Whether a key takes whole numbers.

    Raises:
        ParameterError: a key that would change the price of a run, or how it is judged.
    """
    table, _, name = key.partition(".")
    fields = _TABLES[table].model_fields if table in _TABLES else {}
    if key == "privacy.clip_norm":
        return False
    if name not in fields or key == "model.metrics":
        raise ParameterError("tune.ranges", key, _ONE_PRICE)
    return fields[name].annotation is int


def _checked(value: Any) -> Any:
    """A table of ranges, as it was given."""
    if not isinstance(value, Mapping) or not value:
        raise ParameterError("value", value, f"a table of keys, each with {_RANGE}")
    parse_ranges(value)
    return dict(value)


class TuneSection(Section):
    """A random search, on public clients or on private ones at a price."""

    ranges: Annotated[dict[str, Any], BeforeValidator(_checked)] = Field(
        description="keys of [optimizer], [client], [model] or privacy.clip_norm, each with "
        f"{_RANGE}"
    )
    candidates: Count = Field(
        10, description="runs that are tried; on private clients their mean number, drawn at random"
    )
    held_out: OpenUnit = Field(
        0.1, description="share of the training clients on which runs are compared"
    )
    data: DataSection | None = Field(
        None,
        description="a public data set, as in [data], on which the search is free; unset: the "
        "plan's own clients, at a price in ε",
    )
    stopping: Literal["geometric", "logarithmic", "poisson"] = Field(
        "geometric", description="law of the number of runs on private clients"
    )
