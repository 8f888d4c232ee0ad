"""A comparison: ε by every method at every value."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.plans.sweeps import ShuffleSweep, Sweep
from turnout.schemes import Relation

if TYPE_CHECKING:
    from turnout.accounting.published.comparison import Method, Quote


@dataclass(frozen=True, slots=True)
class Curve:
    """One method's quotes over the sweep; a text says why there is none."""

    method: Method[Any]
    quotes: Sequence[Quote | str]

    def blanks(self, values: Sequence[float]) -> list[tuple[float, str]]:
        """The methods without a number, with their reasons."""
        pairs = zip(values, self.quotes, strict=True)
        return [(value, quote) for value, quote in pairs if isinstance(quote, str)]

    @property
    def empty(self) -> bool:
        """Whether there is no number anywhere."""
        return all(isinstance(quote, str) for quote in self.quotes)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """ε at every value of what is swept, a curve for each method."""

    asked: Sweep
    values: Sequence[float]
    curves: Sequence[Curve]
    seconds: float

    def relation(self, method: Method[Any]) -> Relation:
        """The relation that a method's numbers are about."""
        return method.relation or self.asked.relation


def compared(asked: Sweep, watch: Callable[[int, int], None] = lambda done, of: None) -> Comparison:
    """Every method at every value of a sweep.

    ``watch`` is told how many of how many points are done.
    """
    values, started = asked.values(), time.perf_counter()
    methods, settings = _family(asked, values)
    quotes: list[list[Quote | str]] = [[] for _ in methods]
    for done, setting in enumerate(settings):
        for index, method in enumerate(methods):
            watch(done * len(methods) + index, len(settings) * len(methods))
            quotes[index].append(_quoted(method, setting))
    curves = [Curve(method, row) for method, row in zip(methods, quotes, strict=True)]
    return Comparison(asked, values, curves, time.perf_counter() - started)


def _family(asked: Sweep, values: Sequence[float]) -> tuple[Sequence[Method[Any]], list[Any]]:
    """The methods that are compared, and the settings of the sweep."""
    from turnout.accounting.published import comparison

    points = [asked.at(value) for value in values]
    if isinstance(asked, ShuffleSweep):
        return comparison.SHUFFLE_METHODS, [comparison.ShuffleSetting(**at) for at in points]
    return comparison.METHODS, [comparison.Setting(**at) for at in points]


def _quoted(method: Method[Any], setting: Any) -> Quote | str:
    """ε, or why there is none."""
    try:
        quote = method.quote(setting)
    except ParameterError as refusal:
        if refusal.name == "local_epsilon":  # what a theorem calls --epsilon0
            return f"ε₀ = {refusal.value:g}: expected {refusal.expected}"
        return str(refusal)
    except (UnsupportedError, NumericalError) as refusal:
        return str(refusal)
    return quote if math.isfinite(quote.epsilon) else "no finite ε follows from it"
