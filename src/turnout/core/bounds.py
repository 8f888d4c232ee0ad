"""Proved lower and upper bounds of a number, and bisections that return such bounds.

`Bounds` holds a lower and an upper bound. `bisected` returns a `Bracket` around the threshold of a
condition. `bisected_each` returns brackets of many thresholds as arrays, and `grown` returns a
first bracket. At the end ``holding`` of a bracket the condition is known to hold: either the search
evaluated the condition there, or the caller guarantees it. So this end is safe to use. Accounting
and calibration build on this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError


@dataclass(frozen=True, slots=True)
class Bounds:
    """Proved bounds of a number: ``lower <= truth <= upper``.

    Raises:
        NumericalError: a bound is NaN, or the lower bound is above the upper bound.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if math.isnan(self.lower) or math.isnan(self.upper) or self.lower > self.upper:
            raise NumericalError(
                f"bounds [{self.lower!r}, {self.upper!r}] are not ordered: a bound is NaN, or the "
                "lower bound is above the upper bound"
            )

    @property
    def relative_width(self) -> float:
        """Relative width (upper − lower)/upper; 0 where both are 0."""
        return 0.0 if self.upper == 0 else (self.upper - self.lower) / self.upper

    def __or__(self, other: Bounds) -> Bounds:
        """Bounds of the larger of two quantities, such as ε in the two directions."""
        return Bounds(max(self.lower, other.lower), max(self.upper, other.upper))


class Bracket(NamedTuple):
    """Two numbers around a threshold: a condition fails at one and holds at the other.

    Attributes:
        failing: number at which the condition fails, or a limit at which it was not evaluated.
        holding: number at which the condition holds.
    """

    failing: float
    holding: float

    @property
    def middle(self) -> float:
        """Approximate threshold; the condition may hold or fail there."""
        return 0.5 * (self.failing + self.holding)


def bisected(
    holds: Callable[[float], bool],
    failing: float,
    holding: float,
    *,
    halvings: int = 1100,
    gap: float = 0.0,
    relative: float = 0.0,
) -> Bracket:
    """Bracket around the threshold of a condition, narrowed by bisection.

    Args:
        holds: the condition; called only between the ends, never at an end.
        failing: an end at which the condition fails, or a limit beyond which it holds nowhere.
        holding: an end at which the condition holds.
        halvings: largest number of bisection steps.
        gap: absolute distance between the ends at which the search stops.
        relative: distance between the ends, relative to ``holding``, at which the search stops.

    >>> bisected(lambda x: x * x >= 2.0, 1.0, 2.0, gap=1e-3).holding
    1.4150390625
    """
    for _ in range(halvings):
        if abs(holding - failing) <= gap + relative * abs(holding):
            break
        middle = 0.5 * (failing + holding)
        if middle in (failing, holding):  # neighbours among the floats
            break
        failing, holding = (failing, middle) if holds(middle) else (middle, holding)
    return Bracket(failing, holding)


def bisected_each(
    holds: Callable[[FloatArray], NDArray[np.bool_]],
    failing: FloatArray,
    holding: FloatArray,
    halvings: int,
) -> tuple[FloatArray, FloatArray]:
    """Ends of brackets around many thresholds, narrowed by bisection.

    Args:
        holds: function from values, shape ``(n,)``, to whether each condition holds at its value.
        failing: ends at which the conditions fail, shape ``(n,)``.
        holding: ends at which the conditions hold, shape ``(n,)``.
        halvings: largest number of bisection steps.

    Returns:
        The narrower ends ``failing`` and ``holding``, each of shape ``(n,)``.
    """
    for _ in range(halvings):
        middle = 0.5 * (failing + holding)
        if np.all((middle == failing) | (middle == holding)):  # neighbours among the floats
            break
        right = holds(middle)
        failing, holding = np.where(right, failing, middle), np.where(right, middle, holding)
    return failing, holding


def grown(
    holds: Callable[[float], bool], start: float, most: float, factor: float = 2.0
) -> Bracket | None:
    """Bracket of a condition between consecutive values of start, factor·start, factor²·start, ….

    The result is None if the condition fails at all these values up to ``most``. If the condition
    holds at ``start``, the end ``failing`` is 0, where the condition is not evaluated.

    Args:
        holds: the condition.
        start: first value, above 0.
        most: largest value at which the condition is evaluated.
        factor: ratio of consecutive values, above 1.
    """
    failing, holding = 0.0, start
    while not holds(holding):
        failing, holding = holding, factor * holding
        if holding > most:
            return None
    return Bracket(failing, holding)
