"""How far the number of devices at a step may stray before somebody should look.

Notation
    n  population
    μ  devices expected at a step
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.core import checks
from turnout.core.errors import ParameterError

DEVIATIONS = 3.0
"""Half the width of a band, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Band:
    """The mean, and ``DEVIATIONS`` standard deviations to either side; never below 0."""

    mean: float
    low: float
    high: float

    def holds(self, count: int) -> bool:
        """Whether a count lies in the band, ends included."""
        return self.low <= count <= self.high


def band(expected: float, population: int) -> Band:
    """The band around an expectation; never narrower than the law's own.

    Clients come independently of each other, so the variance is Σp(1 − p), at most μ − μ²/n by
    Cauchy-Schwarz, with equality where all have the same chance. Laws in which some cannot come
    (sliding windows, availability) have a narrower band.

    Args:
        expected: μ, in [0, n].
        population: n, at least 1.

    Raises:
        ParameterError: outside these.

    >>> band(50.0, 100)
    Band(mean=50.0, low=35.0, high=65.0)
    """
    checks.count(population=population)
    checks.non_negative(expected=expected)
    share = expected / population
    if share > 1 + 1e-9:  # a sum of chances may round up
        raise ParameterError("expected", expected, f"at most the population, {population}")
    reach = DEVIATIONS * math.sqrt(expected * max(0.0, 1 - share))
    return Band(expected, max(0.0, expected - reach), expected + reach)
