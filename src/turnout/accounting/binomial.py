"""One check-in of a pure-DP randomizer: exact sums over the number of large ratios, no grid.

With X = e^{±ε₀} the sum of a window's ratios depends only on how many of them are large, which is
Binomial(t, 1/(e^{ε₀} + 1)) under Q. For (ε₀, δ₀) the number of zero ratios, Binomial(t, δ₀), is
summed over as well.

Source: accounting.md §2, "Pure ε₀-DP randomizer".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.curves import Direction, Side
from turnout.accounting.pairs import UNIT_ROUNDOFF, PurePair
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_REACH = 40.0  # standard deviations beyond which binomial masses are no floats
_MASS_ERROR = 1e-11  # relative error of a binomial mass, ten times what forty digits showed
_MOST_ZEROS = 64
_FORGOTTEN = 1e-40  # mass of larger numbers of zeros


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The law of S on increasing ``values`` by running sums, from each on (remove) or up to it."""

    values: FloatArray
    mass: FloatArray
    excess: FloatArray

    @classmethod
    def of(cls, values: FloatArray, masses: FloatArray, direction: Direction) -> _Sums:
        weighted = masses * (values - 1.0)
        if direction is Direction.REMOVE:
            mass, excess = (np.append(np.cumsum(v[::-1])[::-1], 0.0) for v in (masses, weighted))
        else:
            mass, excess = (np.append(0.0, np.cumsum(v)) for v in (masses, weighted))
        return cls(values, mass, excess)


@dataclass(frozen=True, slots=True, eq=False)
class BinomialCurve:
    """δ(K) of one window of a pure-DP randomizer, exact but for rounding.

    Attributes:
        direction: remove or add.
        side: to which side rounding is moved.
        parts: for each number of zero ratios, the law of S times that number's probability.
        forgotten: what more zeros could add at most.
    """

    direction: Direction
    side: Side
    parts: tuple[_Sums, ...]
    forgotten: float

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1."""
        k = np.asarray(k, dtype=float)
        total, error = np.zeros_like(k), np.zeros_like(k)
        for part in self.parts:
            value, size = self._price(part, k)
            total += value
            error += (_MASS_ERROR + 4.0 * UNIT_ROUNDOFF * part.values.size) * size
        if self.side is Side.UPPER:
            return np.clip(total + error + self.forgotten, 0.0, 1.0)
        return np.clip(total - error, 0.0, 1.0)

    def _price(self, part: _Sums, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """E[(S − K)₊] or E[(1 − K S)₊], and what its rounding is relative to."""
        if self.direction is Direction.REMOVE:
            index = np.searchsorted(part.values, k, side="right")
            near, far = part.excess[index], (k - 1.0) * part.mass[index]
        else:
            index = np.searchsorted(part.values, 1.0 / k, side="left")
            near, far = -k * part.excess[index], (k - 1.0) * part.mass[index]
        return np.maximum(near - far, 0.0), np.abs(near) + np.abs(far)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        total = np.zeros_like(np.asarray(k, dtype=float))
        for part in self.parts:
            if self.direction is Direction.REMOVE:
                total -= part.mass[np.searchsorted(part.values, k, side="right")]
            else:
                index = np.searchsorted(part.values, 1.0 / np.asarray(k), side="left")
                total -= part.mass[index] + part.excess[index]
        return total


def binomial_curve(pair: PurePair, window: int, direction: Direction, side: Side) -> BinomialCurve:
    """The curve of one check-in in a window of t steps.

    Raises:
        NumericalError: so many ratios are 0 (t·δ₀ above about 20) that they are not summed over.
    """
    from scipy import stats  # slow to import

    zeros = np.arange(_MOST_ZEROS)
    chances = stats.binom.pmf(zeros, window, pair.delta0)
    beyond = stats.binom.sf(zeros, window, pair.delta0)
    enough = np.flatnonzero(beyond <= _FORGOTTEN)
    if not enough.size:
        raise NumericalError("too many steps can fail: window times delta0 is above about 20")
    last = int(enough[0])
    small, large = (math.exp(s * pair.epsilon0) / (1.0 - pair.delta0) for s in (-1.0, 1.0))
    parts: list[_Sums] = []
    for zero, chance in zip(zeros[: last + 1].tolist(), chances.tolist(), strict=False):
        trials = window - zero
        if trials < 0 or chance == 0.0:
            continue
        counts = _likely_counts(trials, pair.likely)
        values = (small * (trials - counts) + large * counts) / window
        masses = stats.binom.pmf(counts, trials, pair.likely) * chance
        parts.append(_Sums.of(values, masses, direction))
    return BinomialCurve(direction, side, tuple(parts), float(beyond[last]) * large)


def _likely_counts(trials: int, likely: float) -> FloatArray:
    """Every count whose probability is a float."""
    mean, deviation = trials * likely, math.sqrt(trials * likely * (1.0 - likely))
    reach = _REACH * deviation + 800.0  # few expected: a Poisson tail, longer than a normal one
    return np.arange(max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach)) + 1)
