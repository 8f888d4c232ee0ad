"""The tail of the normal law to any number of bits, in whole numbers only.

Notation: x ≥ 0 a rational, u = x²/2, φ the standard normal density, G(x) = P(|N(0, 1)| > x). With

    I(u) = ∫₀¹ e^{−u r²} dr = Σ_n (−u)ⁿ / (n! (2n + 1))    and    e^{−u} = Σ_n (−u)ⁿ / n!

it holds that G(x) = 1 − √(2/π)·x·I(u) and 2φ(x) = √(2/π)·e^{−u}. The terms alternate and grow to
e^u before they fall, so the sums are taken with u/ln 2 more bits than are asked for.
"""

from __future__ import annotations

from functools import cache
from math import isqrt

_SPARE_BITS = 40
"""Bits beyond those asked for: the sums lose less than 2¹⁶ units, the factor x less than 2⁶."""


def tail_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Whole numbers (low, high), at most 2 apart, with low ≤ 2^bits · G(x) ≤ high.

    x is ``numerator`` ≥ 0 over ``denominator`` ≥ 1; bits from 1 to 1024.

    >>> [round(bound / 2**20, 4) for bound in tail_bounds(196, 100, 20)]
    [0.05, 0.05]
    """
    if 5 * numerator**2 >= 7 * bits * denominator**2:
        return 0, 1  # G(x) ≤ e^{−x²/2} ≤ e^{−0.7·bits} < 2^{−bits}.
    tail, _, w = tail_and_density(numerator, denominator, bits)
    shift = w - bits
    error = 1 << (shift - 8)
    return max(tail - error, 0) >> shift, (tail + error >> shift) + 1


def tail_and_density(numerator: int, denominator: int, bits: int) -> tuple[int, int, int]:
    """G(x) and 2φ(x) in fixed point, each off by less than 2^{−bits−8}.

    What is lost, in units of 2^−w: u is cut by less than 1, and neither sum has a slope above 1.
    A term is cut by less than 1, and this error is carried on to the next as the term is, so
    all N terms together lose at most N·e^u; what is left out is less than its first term, which
    was cut to 0. So a sum is off by less than N·e^u + 2 < 2^{16 + u/ln 2}, and G(x) by at most
    x < 2⁶ times that and a few units for the factors.

    Returns:
        (G, 2φ, w), the first two multiplied by 2^w.
    """
    growth = (3 * numerator**2) // (4 * denominator**2) + 1  # More than u/ln 2 = 0.7213…·x².
    # Whole words: few precisions, so that the constant is rarely computed.
    w = -(-(bits + growth + _SPARE_BITS) // 64) * 64
    u = (numerator**2 << w) // (2 * denominator**2)
    integral, density, term, n = 0, 0, 1 << w, 0
    while term:
        integral += term // (2 * n + 1) if n % 2 == 0 else -(term // (2 * n + 1))
        density += term if n % 2 == 0 else -term
        n += 1
        term = (term * u >> w) // n
    x = (numerator << w) // denominator
    factor = _root_of_two_over_pi(w)
    return (1 << w) - ((factor * x >> w) * integral >> w), factor * density >> w, w


@cache
def _root_of_two_over_pi(bits: int) -> int:
    """2^bits · √(2/π), too small by less than 2."""
    guarded = bits + 32
    pi = 4 * (4 * _inverse_tangent(5, guarded) - _inverse_tangent(239, guarded))
    return isqrt((2 << 3 * guarded) // pi) >> 32


def _inverse_tangent(divisor: int, bits: int) -> int:
    """2^bits · arctan(1/divisor), off by less than one unit for each term."""
    power = (1 << bits) // divisor
    total, n = power, 1
    while power:
        power //= divisor * divisor
        n += 2
        total += power // n if n % 4 == 1 else -(power // n)
    return total
