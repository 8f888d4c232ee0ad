"""A number that is only known to lie between two proved bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.core.errors import NumericalError


@dataclass(frozen=True, slots=True)
class Bounds:
    """``lower <= truth <= upper``; both sides are proved.

    Raises:
        NumericalError: a NaN, or a lower bound above the upper one. Nothing certified has
            such bounds, so none can be built.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if math.isnan(self.lower) or math.isnan(self.upper) or self.lower > self.upper:
            raise NumericalError(f"bounds [{self.lower!r}, {self.upper!r}] are not ordered")

    @property
    def relative_width(self) -> float:
        """(upper − lower) / upper; 0 where both are 0."""
        return 0.0 if self.upper == 0 else (self.upper - self.lower) / self.upper

    def __or__(self, other: Bounds) -> Bounds:
        """The bounds of the larger of two quantities (the worse of two directions)."""
        return Bounds(max(self.lower, other.lower), max(self.upper, other.upper))
