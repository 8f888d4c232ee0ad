"""One check-in of a randomizer with few ratios: exact sums over how often each comes, no grid.

The sum of a window's ratios depends only on how many of them take which value, which is a
multinomial law. With X = e^{±ε₀}, what any ε₀-DP randomizer is bounded by, it is the binomial law
of t and 1/(e^{ε₀} + 1) under Q.

Source: accounting.md §2, "Pure ε₀-DP randomizer".

Notation: c_j = how often value x_j comes, m_j = its mass under Q, d_j = c_j − t·m_j. Since the
ratio has mean 1, S − 1 = Σ d_j·(x_j − x₀)/t whatever x₀ is, which keeps its digits where S is
near 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from turnout.accounting.divergence.curves import Direction, Side, running_sums
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, Pair
from turnout.core.bounds import bisected_each

FloatArray = np.ndarray
_MASS_ERROR = 1e-10  # relative error of a binomial mass, ten times what forty digits showed
_MOST_STATES = 1 << 20
_MOST_FREE = 8  # counts that are looked at one by one
_FORGOTTEN = {True: 1e-290, False: 1e-40}  # mass that may be left out: of two values, of more
_HALVINGS = 60
_CLOSE = 2.0  # K up to which S − 1 is looked at, not S


@runtime_checkable
class AtomicPair(Protocol):
    """A pair whose ratio takes finitely many values."""

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """The values of X, 0 among them, and Q's masses on them, shape (n,) each."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The law of S − base on increasing ``points`` by running sums, from each on or up to it.

    Attributes:
        base: 1, which keeps digits where S is near 1, or 0, which keeps them where S is near 0.
        points: S − base.
        mass: Σ q.
        excess: Σ q·(S − base).
        blur: Σ q times a bound on the rounding of S − base.
        nearly: how far rounding may have moved a point, absolutely and relative to it.
    """

    base: float
    points: FloatArray
    mass: FloatArray
    excess: FloatArray
    blur: FloatArray
    nearly: tuple[float, float]

    @classmethod
    def of(
        cls,
        base: float,
        points: FloatArray,
        blur: FloatArray,
        law: _Law,
        nearly: tuple[float, float],
    ) -> _Sums:
        """Sums from each point on (remove) or up to it (add)."""
        order = np.argsort(points, kind="stable")
        points, masses = points[order], law.masses[order]
        mass, excess, blurred = (
            running_sums(part, law.direction)
            for part in (masses, masses * points, masses * blur[order])
        )
        return cls(base, points, mass, excess, blurred, nearly)

    def price(self, direction: Direction, k: FloatArray) -> tuple[FloatArray, ...]:
        """E[(S − K)₊] or E[(1 − K·S)₊], its rounding, what that is relative to, and dδ/dK."""
        if direction is Direction.REMOVE:
            factor, due = np.ones_like(k), self.base - k
            index, blurred = self._from(-due, -1.0, "right")
            slope = -self.mass[index]
        else:
            factor, due = -k, 1.0 - k * self.base
            index, blurred = self._from(due / k, 1.0, "left")
            slope = -(self.excess[index] + self.base * self.mass[index])
        near, far = factor * self.excess[index], due * self.mass[index]
        blur = np.abs(factor) * self.blur[blurred]
        return near + far, blur, np.abs(near) + np.abs(far), slope

    def _from(
        self, threshold: FloatArray, outwards: float, side: Literal["left", "right"]
    ) -> tuple[FloatArray, FloatArray]:
        """Indices at which sums begin, and the same for points that may be across the threshold."""
        absolute, relative = self.nearly
        shifted = threshold + outwards * (absolute + relative * np.abs(threshold))
        return (
            np.searchsorted(self.points, threshold, side=side),
            np.searchsorted(self.points, shifted, side=side),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """The law of S in one direction: S − 1, S, bounds on their rounding, and Q's masses."""

    direction: Direction
    offsets: FloatArray
    blur: FloatArray
    ratios: FloatArray
    masses: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class MultinomialCurve:
    """δ(K) of one window of a randomizer with few ratios, exact but for rounding to its side.

    Attributes:
        close, far: the law of S, for K up to 2 and beyond.
        forgotten: what was left out could add at most.
        mass_error: relative error of a mass.
    """

    direction: Direction
    side: Side
    close: _Sums
    far: _Sums
    forgotten: float
    mass_error: float

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1."""
        value, blur, size, _ = self._price(np.asarray(k, dtype=float))
        error = blur + (self.mass_error + 4.0 * UNIT_ROUNDOFF * self.close.points.size) * size
        if self.side is Side.UPPER:
            return np.clip(value + error + self.forgotten, 0.0, 1.0)
        return np.clip(value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        return self._price(np.asarray(k, dtype=float))[3]

    def _price(self, k: FloatArray) -> list[FloatArray]:
        close, far = (sums.price(self.direction, k) for sums in (self.close, self.far))
        return [np.where(k <= _CLOSE, one, other) for one, other in zip(close, far, strict=True)]


def multinomial_curve(
    pair: Pair, window: int, direction: Direction, side: Side
) -> MultinomialCurve | None:
    """The curve of one check-in in a window of t steps; None where counts are too many."""
    if not isinstance(pair, AtomicPair):
        return None
    upper = _upper(pair, window, direction)
    return upper if upper is None or side is Side.UPPER else replace(upper, side=side)


@lru_cache(maxsize=32)
def _upper(pair: AtomicPair, window: int, direction: Direction) -> MultinomialCurve | None:
    values, masses = pair.atoms
    order = np.argsort(masses, kind="stable")  # the commonest value's count follows from the rest
    values, masses = values[order], masses[order]
    forgotten = _left_out(window, masses)
    if forgotten is None:
        return None
    law = _law(direction, window, values, masses, forgotten)
    close = _Sums.of(1.0, law.offsets, law.blur, law, (float(law.blur.max()), 0.0))
    relative = 8.0 * values.size * UNIT_ROUNDOFF
    far = _Sums.of(0.0, law.ratios, relative * law.ratios, law, (0.0, 2.0 * relative))
    levels = values.size - 1
    lost = 2.0 * levels * forgotten * max(float(values.max()), 1.0)
    return MultinomialCurve(direction, Side.UPPER, close, far, lost, levels * _MASS_ERROR)


def _law(
    direction: Direction, window: int, values: FloatArray, masses: FloatArray, forgotten: float
) -> _Law:
    """Every choice of counts that matters."""
    from scipy import stats  # slow to import

    left, chances = np.array([window]), np.ones(1)
    offsets, moved, ratios = np.zeros(1), np.zeros(1), np.zeros(1)
    rests = np.cumsum(masses[::-1])[::-1]
    for j in range(values.size - 1):
        share = min(float(masses[j] / rests[j]), 1.0)
        low, high = _range(left, share, forgotten)
        sizes = high - low + 1
        parent = np.repeat(np.arange(sizes.size), sizes)
        counts = np.arange(parent.size) - (np.cumsum(sizes) - sizes - low)[parent]
        left, chances = left[parent], chances[parent] * stats.binom.pmf(counts, left[parent], share)
        distance = counts - window * masses[j]
        offsets = offsets[parent] + distance * ((values[j] - values[-1]) / window)
        moved = moved[parent] + np.abs(distance) / window
        ratios = ratios[parent] + counts * (values[j] / window)
        left = left - counts
    ratios = ratios + left * (values[-1] / window)
    blur = 4.0 * UNIT_ROUNDOFF * (float(values.max()) * moved + 1.0 + float(values[-1]))
    return _Law(direction, offsets, blur, ratios, chances)


def _range(trials: FloatArray, share: float, forgotten: float) -> tuple[FloatArray, FloatArray]:
    """Counts beyond which Chernoff's bound on a binomial tail is ``forgotten``, by halving."""
    from scipy.special import rel_entr

    goal = math.inf if forgotten == 0.0 else -math.log(forgotten)
    mean, ends = trials * share, []

    def rare(count: FloatArray) -> np.ndarray:
        return ~(rel_entr(count, mean) + rel_entr(trials - count, trials - mean) < goal)

    for last in (np.zeros_like(mean), trials.astype(float)):
        ends.append(bisected_each(rare, mean, last, _HALVINGS)[1])
    return np.floor(ends[0]).astype(np.int64), np.ceil(ends[1]).astype(np.int64)


def _left_out(window: int, masses: FloatArray) -> float | None:
    """The mass that may be left out of each count, 0 if possible; None for too many counts."""
    free = masses.size - 1
    choices = math.lgamma(window + free + 1) - math.lgamma(window + 1) - math.lgamma(free + 1)
    if choices <= math.log(_MOST_STATES):
        return 0.0
    if free > _MOST_FREE:
        return None
    forgotten = _FORGOTTEN[free == 1]
    ranges = [_range(np.array([window]), float(m), forgotten) for m in masses[:-1]]
    widths = [float(high[0] - low[0]) + 1.0 for low, high in ranges]
    return forgotten if math.prod(widths) <= _MOST_STATES else None
