"""Moments of S, given an additive statistic, by positive convolutions.

Let each of n i.i.d. variables Y sit on one of J + 1 levels, and let T be the sum of the levels'
indices. With φ_a the law of the index weighted by Y^a,

    Σ over cells:  q = φ₀ⁿ,   m₁ = φ₁ᵏ·φ₀ⁿ⁻ᵏ,   m₂ = Σ_j h_j·φ₂ʲ·φ₁^{2(k−j)}·φ₀^{n−2k+j}

are Q(T), E[S; T] and E[S²; T] (products are convolutions), since S² is the mean over two
k-subsets, which share j elements with the hypergeometric probability h_j. All terms are
positive, so that each cell is good to a few thousand u *of itself*, however small it is, and
what lies above the last cell kept never enters one below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.core.errors import NumericalError

FloatArray = np.ndarray
_PRODUCTS_A_UNIT = 20  # of work
_LARGEST = 1e100  # beyond it an underflow elsewhere could matter


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Moments of S in the cells T = 0, 1, …, each good to the relative error ``rounding``."""

    mass: FloatArray
    first: FloatArray
    second: FloatArray
    rounding: float

    def only(self, alive: FloatArray) -> Cells:
        """Some of the cells."""
        return Cells(self.mass[alive], self.first[alive], self.second[alive], self.rounding)


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """Coefficients of a power series and a bound on the relative error of each."""

    values: FloatArray
    rounding: float

    def times(self, other: _Series, size: int) -> _Series:
        """The product, cut off after ``size`` coefficients."""
        charge(self.values.size * other.values.size / _PRODUCTS_A_UNIT)
        terms = min(self.values.size, other.values.size) + 2
        rounding = self.rounding + other.rounding + 1.01 * terms * UNIT_ROUNDOFF
        return _Series(np.convolve(self.values, other.values)[:size], rounding)

    def power(self, exponent: int, size: int) -> _Series:
        """The power, cut off after ``size`` coefficients."""
        result, base = _Series(np.ones(1), 0.0), self
        while exponent:
            if exponent & 1:
                result = result.times(base, size)
            exponent >>= 1
            if exponent:
                base = base.times(base, size)
        return result

    def plus(self, factor: float, other: _Series) -> _Series:
        """The sum of this and a multiple of the other."""
        total = np.zeros(max(self.values.size, other.values.size))
        total[: self.values.size] = self.values
        total[: other.values.size] += factor * other.values
        rounding = max(self.rounding, other.rounding) + 4 * UNIT_ROUNDOFF
        return _Series(total, rounding)


def overlap_chances(groups: int, picks: int) -> list[float]:
    """The chance that two uniform k-subsets of n share j elements, j = 0 … k."""
    total = math.comb(groups, picks)
    return [
        math.comb(picks, j) * math.comb(groups - picks, picks - j) / total for j in range(picks + 1)
    ]


def conditional_moments(
    levels: FloatArray, masses: FloatArray, groups: int, picks: int, size: int
) -> Cells:
    """The moments of S in the cells T < ``size``, from values of Y and their masses."""
    with np.errstate(over="ignore", invalid="ignore"):
        plain = _Series(masses, 0.0)
        biased = _Series(masses * levels, 2 * UNIT_ROUNDOFF)
        twice = _Series(masses * levels * levels, 4 * UNIT_ROUNDOFF)
        # Two subsets share at least 2k − n elements.
        shared = max(0, 2 * picks - groups)
        rest = plain.power(groups - 2 * picks + shared, size)
        absent = rest.times(plain.power(picks - shared, size), size)
        common = twice.power(shared, size).times(rest, size)
        both, one_each = twice.times(plain, size), biased.times(biased, size)
        second = common.times(_pairs(both, one_each, groups, picks, size), size)
        # The long power is computed once: n − k = (n − 2k + s) + (k − s).
        first = absent.times(biased.power(picks, size), size)
        mass = absent.times(plain.power(picks, size), size)
    largest = float(np.max(second.values, initial=0.0))
    if not largest < _LARGEST:
        raise NumericalError("the second moment of the likelihood ratio is out of range")
    kept = min(part.values.size for part in (mass, first, second))
    rounding = max(mass.rounding, first.rounding, second.rounding)
    return Cells(mass.values[:kept], first.values[:kept], second.values[:kept], rounding)


def _pairs(both: _Series, one_each: _Series, groups: int, picks: int, size: int) -> _Series:
    """Σ_j h_j·(φ₂φ₀)^{j−s}·(φ₁²)^{k−j}, s = max(0, 2k − n), by Horner's rule from j = k down."""
    chances = overlap_chances(groups, picks)
    total, power = _Series(np.array([chances[picks]]), UNIT_ROUNDOFF), _Series(np.ones(1), 0.0)
    for shared in range(picks - 1, max(0, 2 * picks - groups) - 1, -1):
        power = power.times(one_each, size)
        total = total.times(both, size).plus(chances[shared], power)
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """Chernoff bounds on E[S; T ≥ cell] (k picks) or Q(T ≥ cell) (no picks)."""

    most: int
    exponents: FloatArray
    logs: FloatArray

    @classmethod
    def of(cls, levels: FloatArray, masses: FloatArray, groups: int, picks: int) -> Tail:
        """The logarithms of E[S·e^{sT}] at some s."""
        s = np.geomspace(0.05, 60.0, 60) / levels.size
        weights = np.exp(np.multiply.outer(s, np.arange(levels.size)))
        logs = (groups - picks) * np.log(weights @ masses)
        if picks:
            logs = logs + picks * np.log(weights @ (masses * levels))
        return cls(groups * (levels.size - 1), s, logs * (1.0 + 1e-9) + 1e-9)

    def cells(self, log_mass: float) -> int:
        """A number of cells above which at most e^log_mass lies."""
        enough = float(np.min((self.logs - log_mass) / self.exponents))
        return min(self.most, math.ceil(enough)) + 1

    def mass(self, cell: int) -> float:
        """The mass of ``cell`` and above."""
        if cell > self.most:
            return 0.0
        return math.exp(min(0.0, float(np.min(self.logs - self.exponents * cell))) + 1e-9)
