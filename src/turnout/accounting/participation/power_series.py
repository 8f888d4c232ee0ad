"""Power series with coefficients ≥ 0 and a bound on the relative error of each coefficient.

`Series` computes sums, products and powers, cut off after a given number of coefficients. The
coefficients of a product are sums of positive terms, so even tiny coefficients have small relative
errors; with a Fourier transform the errors would be absolute. `k_subset_conditional` computes
moments with these series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.core.arrays import FloatArray

_PRODUCTS_A_UNIT = 20  # multiplications in one unit of work
_SHORT = 640  # terms of a product that is not halved
_EXTRA_SUMS = 64  # more than additions of halves: at most two a halving, of at most 2²⁰ terms


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Coefficients of a power series, and a bound on the relative error of each coefficient.

    Attributes:
        values: coefficients ≥ 0, the constant term first, shape (n,).
        rounding: bound on the relative error of each coefficient.
    """

    values: FloatArray
    rounding: float

    def times(self, other: Series, size: int) -> Series:
        """Product of the series with another series, cut off after ``size`` coefficients.

        Args:
            other: second factor.
            size: number of coefficients that are kept.
        """
        charge(self.values.size * other.values.size / _PRODUCTS_A_UNIT)
        terms = min(self.values.size, other.values.size) + _EXTRA_SUMS
        rounding = self.rounding + other.rounding + 1.01 * terms * UNIT_ROUNDOFF
        product = _square if other is self else _product
        return Series(product(self.values, other.values, size), rounding)

    def power(self, exponent: int, size: int) -> Series:
        """Power of the series, cut off after ``size`` coefficients.

        Args:
            exponent: power, at least 0.
            size: number of coefficients that are kept.
        """
        result, base = Series(np.ones(1), 0.0), self
        while exponent:
            if exponent & 1:
                result = result.times(base, size)
            exponent >>= 1
            if exponent:
                base = base.times(base, size)
        return result

    def plus(self, factor: float, other: Series) -> Series:
        """Series plus ``factor`` times another series."""
        total = np.zeros(max(self.values.size, other.values.size))
        total[: self.values.size] = self.values
        total[: other.values.size] += factor * other.values
        rounding = max(self.rounding, other.rounding) + 4 * UNIT_ROUNDOFF
        return Series(total, rounding)


def _product(first: FloatArray, second: FloatArray, size: int) -> FloatArray:
    """Product of two power series with terms ≥ 0, cut off after ``size`` coefficients.

    Each factor is split into a lower and an upper half. The product of the lower halves is computed
    in full, the two products of a lower and an upper half only for the coefficients below ``size``.
    """
    first, second = first[:size], second[:size]
    shorter, whole = min(first.size, second.size), first.size + second.size - 1
    if shorter <= _SHORT or 4 * size >= 3 * whole:
        return np.convolve(first, second)[:size]
    half = (size + 1) // 2
    product = np.zeros(min(size, whole))
    low = np.convolve(first[:half], second[:half])
    product[: low.size] = low[: product.size]
    for lower, upper in ((first, second), (second, first)):
        if upper.size > half:
            mixed = _product(lower[:half], upper[half:], size - half)
            product[half : half + mixed.size] += mixed
    return product


def _square(values: FloatArray, _: FloatArray, size: int) -> FloatArray:
    """Square of a power series with terms ≥ 0, cut off after ``size`` coefficients."""
    values = values[:size]
    if values.size <= _SHORT:
        return np.convolve(values, values)[:size]
    # The squares of both halves, and twice the product of the halves.
    whole, half = min(size, 2 * values.size - 1), (values.size + 1) // 2
    square = np.zeros(whole)
    low, high = values[:half], values[half:]
    parts = [(0, _square(low, low, whole)), (half, 2.0 * _product(low, high, whole - half))]
    if whole > 2 * half:
        parts.append((2 * half, _square(high, high, whole - 2 * half)))
    for start, part in parts:
        square[start : start + part.size] += part
    return square
