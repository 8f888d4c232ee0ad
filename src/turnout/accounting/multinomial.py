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
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np

from turnout.accounting.curves import Direction, Side
from turnout.accounting.pairs import UNIT_ROUNDOFF, Pair

FloatArray = np.ndarray
_MASS_ERROR = 1e-11  # relative error of a binomial mass, ten times what forty digits showed
_MOST_STATES = 1 << 19
_FORGOTTEN = {True: 1e-290, False: 1e-60}  # mass of counts left out: of two values, of more


@runtime_checkable
class AtomicPair(Protocol):
    """A pair whose ratio takes finitely many values."""

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """The values of X, 0 among them, and Q's masses on them, shape (n,) each."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The law of S on increasing ``offsets`` S − 1 by running sums, from each on or up to it.

    Attributes:
        offsets: S − 1.
        mass: Σ q.
        excess: Σ q·(S − 1).
        blur: Σ q times a bound on the rounding of S.
        forgotten: what states that were left out could add.
        mass_error: relative error of each q.
    """

    offsets: FloatArray
    mass: FloatArray
    excess: FloatArray
    blur: FloatArray
    forgotten: float
    mass_error: float


@dataclass(frozen=True, slots=True, eq=False)
class MultinomialCurve:
    """δ(K) of one window of a randomizer with few ratios, exact but for rounding.

    Attributes:
        direction: remove or add.
        side: to which side rounding is moved.
        sums: the law of S.
    """

    direction: Direction
    side: Side
    sums: _Sums

    def _index(self, k: FloatArray) -> FloatArray:
        """The first sum above K (remove), or how many lie below 1/K (add)."""
        if self.direction is Direction.REMOVE:
            return np.searchsorted(self.sums.offsets, k - 1.0, side="right")
        return np.searchsorted(self.sums.offsets, (1.0 - k) / k, side="left")

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1: E[(S − K)₊] or E[(1 − K·S)₊]."""
        k, sums = np.asarray(k, dtype=float), self.sums
        index = self._index(k)
        up = self.direction is Direction.REMOVE
        factor = 1.0 if up else -k
        near, far = factor * sums.excess[index], (k - 1.0) * sums.mass[index]
        rounding = sums.mass_error + 4.0 * UNIT_ROUNDOFF * sums.offsets.size
        error = np.abs(factor) * sums.blur[index] + rounding * (np.abs(near) + far)
        if self.side is Side.UPPER:
            return np.clip(near - far + error + sums.forgotten, 0.0, 1.0)
        return np.clip(near - far - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        index = self._index(np.asarray(k, dtype=float))
        if self.direction is Direction.REMOVE:
            return -self.sums.mass[index]
        return -(self.sums.mass[index] + self.sums.excess[index])


def multinomial_curve(
    pair: Pair, window: int, direction: Direction, side: Side
) -> MultinomialCurve | None:
    """The curve of one check-in in a window of t steps; None where counts are too many."""
    if not isinstance(pair, AtomicPair):
        return None
    sums = _sums(pair, window, direction)
    return None if sums is None else MultinomialCurve(direction, side, sums)


@lru_cache(maxsize=32)
def _sums(pair: AtomicPair, window: int, direction: Direction) -> _Sums | None:
    values, masses = pair.atoms
    order = np.argsort(masses, kind="stable")  # the commonest value's count follows from the rest
    values, masses = values[order], masses[order]
    forgotten = _FORGOTTEN[values.size == 2]
    if not _few(window, masses, forgotten):
        return None
    offsets, blur, chances = _states(window, values, masses, forgotten)
    order = np.argsort(offsets, kind="stable")
    offsets, blur, chances = offsets[order], blur[order], chances[order]
    parts = chances, chances * offsets, chances * blur
    if direction is Direction.REMOVE:
        mass, excess, blur = (np.append(np.cumsum(v[::-1])[::-1], 0.0) for v in parts)
    else:
        mass, excess, blur = (np.append(0.0, np.cumsum(v)) for v in parts)
    levels = values.size - 1
    lost = 2.0 * levels * forgotten * max(float(values.max()), 1.0)
    return _Sums(offsets, mass, excess, blur, lost, levels * _MASS_ERROR)


def _states(
    window: int, values: FloatArray, masses: FloatArray, forgotten: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """S − 1, a bound on its rounding and Q's mass, for every choice of counts that matters."""
    from scipy import stats  # slow to import

    left, chances = np.array([window]), np.ones(1)
    offsets, moved = np.zeros(1), np.zeros(1)
    rests = np.cumsum(masses[::-1])[::-1]
    for j in range(values.size - 1):
        share = min(float(masses[j] / rests[j]), 1.0)
        reach = _reach(left, share, forgotten)
        low = np.maximum(np.floor(left * share - reach), 0.0).astype(np.int64)
        high = np.minimum(np.ceil(left * share + reach).astype(np.int64), left)
        sizes = high - low + 1
        parent = np.repeat(np.arange(sizes.size), sizes)
        counts = np.arange(parent.size) - (np.cumsum(sizes) - sizes - low)[parent]
        left, chances = left[parent], chances[parent] * stats.binom.pmf(counts, left[parent], share)
        distance = counts - window * masses[j]
        offsets = offsets[parent] + distance * ((values[j] - values[-1]) / window)
        moved = moved[parent] + np.abs(distance) / window
        left = left - counts
    sharpness = 4.0 * UNIT_ROUNDOFF
    blur = sharpness * (float(values.max()) * moved + 1.0 + float(values[-1]))
    return offsets, blur, chances


def _reach(trials: FloatArray | int, share: FloatArray | float, forgotten: float) -> FloatArray:
    """A distance from the mean at which Bernstein's bound on both tails is ``forgotten``."""
    log = math.log(2.0 / forgotten)
    return log / 3.0 + np.sqrt(log * log / 9.0 + 2.0 * log * trials * share * (1.0 - share))


def _few(window: int, masses: FloatArray, forgotten: float) -> bool:
    """Whether there are not too many choices of counts."""
    free = masses.size - 1
    choices = math.lgamma(window + free + 1) - math.lgamma(window + 1) - math.lgamma(free + 1)
    widths = np.minimum(2.0 * _reach(window, masses[:-1], forgotten) + 2.0, window + 1.0)
    return min(choices, float(np.sum(np.log(widths)))) <= math.log(_MOST_STATES)
