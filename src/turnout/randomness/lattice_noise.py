"""Gaussian noise rounded to whole numbers, with its exact distribution, from secure randomness.

`rounded_gaussian` draws the noise. `tail_bounds` and `tail_and_density` compute the normal tail to
any number of bits in integer arithmetic; they decide the draws that a table cannot decide.
Coordinators and devices add this noise to sums on a lattice.

**Draws.** Notation: s the standard deviation before rounding, V uniform on [0, 1),
G(x) = P(|N(0, 1)| > x), z its inverse function. |round(s·N(0, 1))| has the distribution of
m(V) = #{k ≥ 0 : V < G((k + ½)/s)}, which is s·z(V) rounded. A 64-bit word gives the sign and the
first 63 bits of V. A table encloses z(V) in an interval of width about 2⁻³⁵; if both ends round to
the same number, this number is m. Otherwise, and for V < 2⁻¹⁶, V is compared with G((k + ½)/s) in
integer arithmetic, and further bits of V are drawn until the comparison is decided.
docs/design/lattice.md proves the enclosure.

**Tails.** Notation: x ≥ 0 a rational, u = x²/2, φ the standard normal density. With

    I(u) = ∫₀¹ e^{−u r²} dr = Σ_n (−u)ⁿ / (n! (2n + 1))    and    e^{−u} = Σ_n (−u)ⁿ / n!

G(x) = 1 − √(2/π)·x·I(u) and 2φ(x) = √(2/π)·e^{−u}. The terms of both sums alternate and grow to e^u
before they fall, so the sums are computed with u/ln 2 more bits than the result needs.
"""

from __future__ import annotations

from functools import cache
from math import isqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import NumericalError, ParameterError
from turnout.randomness.system import ByteStream, system_bytes

_SPARE_BITS = 40
"""Bits beyond the requested ones: the sums lose less than 2¹⁶ units, the factor x less than 2⁶."""


def tail_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Whole numbers low ≤ 2^bits · G(x) ≤ high, with high − low ≤ 2 and G(x) = P(|N(0, 1)| > x).

    x is ``numerator`` ≥ 0 over ``denominator`` ≥ 1; ``bits`` is from 1 to 1024.

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
    """G(x) and 2φ(x) in fixed point, each with an error below 2^{−bits−8}.

    Notation: w bits after the binary point, u = x²/2, N terms in each of the sums I(u) and e^{−u}.
    Errors are in units of 2^−w. u is truncated by less than 1, and neither sum has a slope above 1.
    Each term is truncated by less than 1, and the next terms inherit this error, so all N terms
    together have an error of at most N·e^u. The terms left out sum to less than the first of them,
    which is truncated to 0. So the error of a sum is below N·e^u + 2 < 2^{16 + u/ln 2}, and the
    error of G(x) is at most x < 2⁶ times this error, plus a few units for the factors.

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
    factor = root_of_two_over_pi(w)
    return (1 << w) - ((factor * x >> w) * integral >> w), factor * density >> w, w


@cache
def root_of_two_over_pi(bits: int) -> int:
    """Whole number that is at most 2^bits · √(2/π), and less than 2 below it."""
    guarded = bits + 32
    pi = 4 * (4 * _inverse_tangent(5, guarded) - _inverse_tangent(239, guarded))
    return isqrt((2 << 3 * guarded) // pi) >> 32


def _inverse_tangent(divisor: int, bits: int) -> int:
    """2^bits · arctan(1/divisor) as a whole number, from a series with truncated terms."""
    power = (1 << bits) // divisor
    total, n = power, 1
    while power:
        power //= divisor * divisor
        n += 2
        total += power // n if n % 4 == 1 else -(power // n)
    return total


LARGEST_DEVIATION = 2.0**40
"""The largest s for which even the sum of 2²⁰ draws stays far inside int64."""

ENCLOSURE = 2.0**-35
"""The largest error of the table's z(V)."""

_OCTAVES, _CELLS_LOG2 = 16, 7
_CELLS = 2**_CELLS_LOG2
_RESIDUAL_BITS = 52 - _CELLS_LOG2
_RESIDUAL_MASK = 2**_RESIDUAL_BITS - 1
_FIRST_INDEX = (1023 + 63 - _OCTAVES) << _CELLS_LOG2
"""Exponent and first bits of the fraction of 2⁴⁷ as a float64, where the table begins."""

_CHUNK = 2**12  # Longer ones leave the fast caches, and share a key among more blocks.
_WORD_BITS, _MOST_BITS = 63, 63 + 3 * 64


def rounded_gaussian(
    standard_deviation: float, size: int, read: ByteStream = system_bytes
) -> NDArray[np.int64]:
    """Independent draws of round(z), z ~ N(0, ``standard_deviation``²).

    The guarantee covers an adversary that sees only the output, and no side channels. Time and
    memory access depend on the draws: about one draw in 2¹⁶ (and a share of s·2⁻³⁴ of the other
    draws) is decided by slow arithmetic. So the time of a call reveals how many of its draws are
    large or close to a half-integer, and shared processor caches may reveal more. Publish on a
    schedule, on a machine that is not shared.

    Guarantees:
        If the bytes are uniform and independent, the distribution is exact: every draw is decided
        by comparison with the true probabilities. The only exception is a draw that 255 bits do not
        decide; it raises a NumericalError, with a probability below (s + 1)·2⁻²⁴⁸ per draw.
        The system's bytes differ from uniform bytes as AES-256 differs from a random permutation,
        and by at most 2⁻¹⁰⁷ more for each 2¹² draws (blocks under one key do not repeat).
        The same bytes give the same draws on every machine.

    Args:
        standard_deviation: s, above 0, at most 2⁴⁰, in units of the lattice.
        size: number of draws, at least 0; the result has the shape (size,).
        read: source of the bytes; any source but the default is for tests and simulation only.

    Raises:
        ParameterError: a value outside its domain, or a stream that gives too few bytes.
        NumericalError: 255 bits do not decide a draw, because the stream is broken (for example,
            all zeros).

    >>> rounded_gaussian(2.0, 3, lambda size: bytes(range(size))).tolist()
    [4, 4, 3]
    """
    checks.positive(standard_deviation=standard_deviation)
    checks.count(0, size=size)
    if standard_deviation > LARGEST_DEVIATION:
        raise ParameterError("standard_deviation", standard_deviation, "at most 2**40")
    drawn = np.empty(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        part = drawn[start : start + _CHUNK]
        words = np.frombuffer(_read(read, 8 * part.size), dtype="<u8").astype(np.uint64)
        _draw(float(standard_deviation), words, read, part)
    return drawn


def _draw(s: float, words: NDArray[np.uint64], read: ByteStream, out: NDArray[np.int64]) -> None:
    """Write one draw for each word to ``out``; read further bits if the table does not decide."""
    values = (words >> np.uint64(1)).view(np.int64)
    scaled = s * _enclosed(values.astype(np.float64))
    # The sums below are off by less than 2⁻⁵⁰·(1 + s), which is within what is added here.
    width = s * ENCLOSURE + 2.0**-50
    lowest = np.floor(scaled + (0.5 - width))
    settled = lowest == np.floor(scaled + (0.5 + width))
    open_places = np.flatnonzero(~settled)
    lowest[open_places] = 0
    np.copyto(out, lowest, casting="unsafe")
    for place in open_places:
        out[place] = _Uniform(int(values[place]), read).magnitude(s)
    np.negative(out, out=out, where=(words & np.uint64(1)).view(np.int64) != 0)


def _enclosed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles z(V) for V in [value, value + 1)·2⁻⁶³, with errors of at most `ENCLOSURE`.

    The result is NaN for values outside the table.
    """
    bits = values.view(np.int64)
    cells = np.maximum((bits >> _RESIDUAL_BITS) - (_FIRST_INDEX - 1), 0)
    residual = (bits & _RESIDUAL_MASK).astype(np.float64)
    c0, c1, c2, c3 = _table()
    result = c3.take(cells)
    for coefficients in (c2, c1, c0):
        result *= residual
        result += coefficients.take(cells)
    return result


class _Uniform:
    """Uniform number V whose further bits are drawn when they are needed."""

    def __init__(self, value: int, read: ByteStream) -> None:
        self._value, self._bits, self._read = value, _WORD_BITS, read

    def magnitude(self, s: float) -> int:
        """Magnitude m(V) of a draw, the number of k ≥ 0 with V < G((k + ½)/s)."""
        above, below = s.as_integer_ratio()
        while True:
            found = self._walk(s, above, below)
            if found is not None:
                return found
            if self._bits >= _MOST_BITS:
                raise NumericalError("255 bits do not decide a draw: the byte stream is broken")
            self._value = self._value << 64 | int.from_bytes(_read(self._read, 8), "little")
            self._bits += 64

    def _walk(self, s: float, above: int, below: int) -> int | None:
        """Magnitude m(V), found from a first guess that affects only the running time."""
        # The guess of the inverse normal distribution.
        guess = -NormalDist().inv_cdf((self._value + 0.5) / 2.0 ** (self._bits + 1))
        k = max(int(s * guess + 0.5), 0)
        # Walk to the value whose exact bounds enclose V; stop where more bits are needed.
        while True:
            exceeded = self._is_below((2 * k + 1) * below, 2 * above)
            if exceeded is None:
                return None
            if exceeded:
                k += 1
                continue
            if k == 0:
                return 0
            exceeded = self._is_below((2 * k - 1) * below, 2 * above)
            if exceeded is None:
                return None
            if exceeded:
                return k
            k -= 1

    def _is_below(self, numerator: int, denominator: int) -> bool | None:
        """True if V < G(numerator/denominator); None if the bits so far do not decide this."""
        low, high = tail_bounds(numerator, denominator, self._bits)
        if self._value < low:
            return True
        return False if self._value >= high else None


@cache
def _table() -> tuple[NDArray[np.float64], ...]:
    """Coefficients of each power in the cubics that approximate z(V), shape (cells + 2,) each.

    On each cell z is approximated by the cubic with the values and slopes of z at both ends. The
    first entry is for all V < 2⁻¹⁶, the last for V that rounds to 1; both are NaN.
    """
    nodes = [
        (octave - 63 - 1, _CELLS + j) for octave in range(64 - _OCTAVES, 64) for j in range(_CELLS)
    ]
    values, slopes = np.array([_node(*node) for node in [*nodes, (0, _CELLS)]]).T
    widths = np.array([2.0**exponent for exponent, _ in nodes]) / _CELLS
    rise, left, right = np.diff(values), widths * slopes[:-1], widths * slopes[1:]
    cubic = (values[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise)
    scale = 2.0**-_RESIDUAL_BITS
    return tuple(np.pad(c * scale**n, 1, constant_values=np.nan) for n, c in enumerate(cubic))


def _node(exponent: int, fraction: int) -> tuple[float, float]:
    """Value and slope of z at V = fraction·2^(exponent − 7), to one unit in the last place.

    The result is one Newton step from an approximation x, whose error need not be known: G(x) − V
    is computed, and the error after the step is about x/2 < 3 times the square of the step.
    """
    x = -NormalDist().inv_cdf(fraction * 2.0 ** (exponent - _CELLS_LOG2 - 1))
    tail, density, w = tail_and_density(*x.as_integer_ratio(), 72)
    step = (tail - (fraction << (w + exponent - _CELLS_LOG2))) / density
    if not abs(step) < 2.0**-32:
        raise NumericalError(
            f"no approximation of the quantile at {fraction}·2^{exponent - _CELLS_LOG2}"
        )
    return x + step, -(1 << w) / density


def _read(read: ByteStream, size: int) -> bytes:
    """Exactly ``size`` bytes from ``read``."""
    data = read(size)
    if len(data) != size:
        raise ParameterError("read", f"a stream that returned {len(data)} bytes", f"{size} bytes")
    return data
