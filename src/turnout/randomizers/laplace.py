"""Laplace noise on a client's number, in whole steps with probabilities that are fractions.

Notation: C the clip; L steps lie between −C and C; the noise is ±(G + ½) steps with a level
G ≥ 0 and a fair sign; m steps halve its probability: P(G ≥ g + m) = P(G ≥ g)/2.

So G = a·m + r with a geometric (fair coins, exact) and r below m drawn by weights w_r in units of
2⁻⁶². The weights follow 2^{−r/m}, rounded so that they never rise. Two inputs are at most L steps
apart, and the ratio of the noise's probabilities L steps apart is a fraction, whose largest value
over all levels is the ratio that `LaplaceRandomizer.ratio` states: L is the largest number of
steps for which it is at most e^ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.lattice_numbers import NoisyNumber, on_lattice
from turnout.randomizers.levels import check_level, exponential_below, level_above
from turnout.randomness import Source
from turnout.randomness.source import LARGEST_RANGE
from turnout.schemes import NonAdaptiveRandomizer

HALVING = 2**16
"""Steps m in which the noise's probability halves."""


@dataclass(frozen=True)
class LaplaceRandomizer(NoisyNumber):
    """A number in [−C, C] plus Laplace noise of scale 2C/ε, in steps of about 2C·ln 2/(m·ε).

    Source: Dwork, McSherry, Nissim, Smith, TCC 2006; Ghosh, Roughgarden, Sundararajan, STOC 2009
        (whole steps). Floats leak what continuous noise hides (Mironov, CCS 2012); steps do not.

    Attributes:
        epsilon: privacy level asked for, at least 1e-4, at most 30.
        clip: C, above 0; values beyond ±C are clipped.

    >>> randomizer = LaplaceRandomizer(epsilon=1.0, clip=1.0)
    >>> 0.9999 < randomizer.epsilon0 <= 1, round(randomizer.variance_bound, 3)
    (True, 8.0)
    """

    epsilon: float
    clip: float
    halving: int = field(default=HALVING, kw_only=True)

    def __post_init__(self) -> None:
        check_level(self.epsilon)
        checks.positive(clip=self.clip)
        checks.count(2, halving=self.halving)
        checks.at_most("2**20", 2**20, halving=self.halving)
        if self.steps < 1:
            raise ParameterError("epsilon", self.epsilon, f"at least {1 / self.halving:.2g}")

    @cached_property
    def steps(self) -> int:
        """Steps L between −C and C."""
        bound = exponential_below(self.epsilon)
        steps = math.floor(self.halving * self.epsilon / math.log(2))
        while steps > 0 and shift_ratio(self.halving, steps) > bound:
            steps -= 1
        return steps

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two numbers, exactly."""
        return shift_ratio(self.halving, self.steps)

    @property
    def epsilon0(self) -> float:
        """Local privacy level of the message, rounded up by less than one ulp."""
        return level_above(self.ratio)

    @property
    def law(self) -> NonAdaptiveRandomizer:
        """The law that prices the message."""
        return NonAdaptiveRandomizer(self.epsilon0)

    @property
    def step(self) -> float:
        """Length of a step, in the unit of ``clip``."""
        return 2 * self.clip / self.steps

    @property
    def variance_bound(self) -> float:
        """Variance of `decode` where a value lies half-way between steps; on one, step²/4 less."""
        m = self.halving
        levels = np.arange(m) + 0.5
        shares = level_weights(m) / LARGEST_RANGE
        # a is geometric with a fair coin: E a = 1 and E a² = 3.
        noise = 3 * m**2 + 2 * m * float(shares @ levels) + float(shares @ levels**2)
        return (noise + 0.25) * self.step**2

    @property
    def unit(self) -> float:
        """Half a step."""
        return self.step / 2

    def noisy(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Half steps from −C, of any size."""
        places = on_lattice(values, self.clip, self.steps, source)
        levels = _halvings(places.size, source) * self.halving
        drawn = source.below(LARGEST_RANGE, places.size)
        levels += np.searchsorted(np.cumsum(level_weights(self.halving)), drawn, side="right")
        signs = 2 * source.below(2, places.size) - 1
        return 2 * places + signs * (2 * levels + 1)


@cache
def level_weights(halving: int) -> NDArray[np.int64]:
    """Probabilities of r = 0, …, m − 1 in units of 2⁻⁶²: falling, by half within m steps."""
    shares = np.exp2(-np.arange(halving) / halving)
    shares *= LARGEST_RANGE / shares.sum()
    weights = np.minimum.accumulate(np.floor(shares).astype(np.int64))
    # What rounding left over goes to all alike, then one each from the first on: still falling.
    left = LARGEST_RANGE - int(weights.sum())
    weights += left // halving
    weights[: left % halving] += 1
    assert int(weights.sum()) == LARGEST_RANGE
    assert np.all(np.diff(weights) <= 0)
    assert weights[0] <= 2 * weights[-1]
    weights.flags.writeable = False
    return weights


@cache
def shift_ratio(halving: int, steps: int) -> Fraction:
    """The largest ratio of P(G = g) and P(G = g + ``steps``), over all g.

    The probabilities never rise with the level, so no smaller shift has a larger ratio; and they
    halve every m levels, so g = 0, …, m − 1 are all there is to see.
    """
    weights = level_weights(halving)
    whole, rest = divmod(steps, halving)
    later = np.roll(weights, -rest)
    halved = whole + (np.arange(halving) >= halving - rest)
    # Floats find the few candidates, fractions decide among them.
    rough = weights / later * np.exp2(halved - whole)
    candidates = np.flatnonzero(rough >= rough.max() * (1 - 2.0**-48))
    best = max(
        {(int(weights[i]), int(later[i]), int(halved[i])) for i in candidates},
        key=lambda c: Fraction(c[0], c[1]) * 2 ** c[2],
    )
    return Fraction(best[0], best[1]) * 2 ** best[2]


def _halvings(size: int, source: Source) -> NDArray[np.int64]:
    """Geometric draws: how many fair coins fall heads before the first that does not."""
    total = np.zeros(size, dtype=np.int64)
    open_places = np.arange(size)
    while open_places.size:
        drawn = source.below(LARGEST_RANGE, open_places.size)
        lowest = drawn & -drawn
        # frexp of 2^j is (0.5, j + 1); of 0, when all 62 coins are heads, (0, 0).
        zeros = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1
        total[open_places] += np.where(drawn == 0, 62, zeros)
        open_places = open_places[drawn == 0]
    return total
