"""The parameters of a scheme that can be solved for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """A parameter, and what is known of how the cost moves with it.

    Attributes:
        name: as a person calls it.
        falling: whether ε falls with the value. Then the *smallest* value that meets a target is
            asked for, else the largest.
        least, most: limits of the search; nothing outside is ever tried.
        start: where to look first.
        power: the cost changes about as value to this power, in the unit of `search`.
        whole: whether values are whole numbers; others have so many ``digits``.
        largest_jump: factor by which one step may leave the values tried so far.
    """

    name: str
    falling: bool
    least: float
    most: float
    start: float
    power: float
    whole: bool = False
    digits: int = 6
    largest_jump: float = 1e3

    @property
    def private_limit(self) -> float:
        """The value that costs least."""
        return self.most if self.falling else self.least

    @property
    def costly_limit(self) -> float:
        """The value that costs most: where it meets the target, nothing is left to search."""
        return self.least if self.falling else self.most

    def position(self, value: float) -> float:
        """Logarithm of the value with the sign that makes it grow towards the private side."""
        return math.log(value) if self.falling else -math.log(value)

    def value(self, position: float) -> float:
        """The value at a position as it is printed: whole on the private side, or six digits."""
        sign = 1.0 if self.falling else -1.0
        low, high = sorted((self.position(self.least), self.position(self.most)))
        value = math.exp(sign * min(max(position, low), high))
        if self.whole:
            value = math.ceil(value - 1e-9) if self.falling else math.floor(value + 1e-9)
        else:
            value = float(f"{value:.{self.digits}g}")
        return min(max(value, self.least), self.most)

    def said(self, value: float) -> str:
        """The value as text."""
        return f"{value:,.0f}" if self.whole else f"{value:g}"


_ALL = (
    Unknown("noise-multiplier", True, 0.02, 1e6, start=1.0, power=1.2),
    Unknown("scale", True, 0.02, 1e6, start=1.0, power=1.2),
    Unknown("standard-deviation", True, 0.05, 1600.0, start=1.0, power=1.2),
    Unknown("epsilon0", False, 1e-6, 300.0, start=1.0, power=1.0),
    Unknown("window", True, 1, 10**7, start=1000, power=0.5, whole=True),
    Unknown("windows", False, 1, 10**6, start=1, power=0.5, whole=True),
    Unknown("probability", False, 1e-15, 1.0, start=1.0, power=1.0),
    Unknown("rate", False, 1e-15, 1.0, start=1e-3, power=1.0),
    Unknown("steps", False, 1, 10**7, start=100, power=0.5, whole=True),
    Unknown("epochs", False, 1, 10**6, start=1, power=0.7, whole=True),
    Unknown("rounds", False, 1, 10**7, start=100, power=0.5, whole=True),
    Unknown("sampled", False, 1, 10**9, start=1000, power=0.5, whole=True),
    Unknown("clients", True, 1, 10**9, start=10**5, power=0.5, whole=True),
    Unknown("picks", False, 1, 10**6, start=1, power=1.0, whole=True),
)

UNKNOWNS: Mapping[str, Unknown] = {unknown.name: unknown for unknown in _ALL}
"""Parameters of a scheme, by name."""

DELTA = Unknown("delta", True, 1e-300, 0.999999, start=1e-6, power=0.0, largest_jump=1e5)
"""δ is part of the privacy target, not of the scheme."""
