"""The law of a sum of t i.i.d. grid variables by one FFT, with a bound on its round-off.

Why not simply rfft(q)^t: an FFT errs by about u·log N in every frequency, and the t-th power
multiplies that by t, which at t = 10⁶ drowns δ = 1e-10. Here the characteristic function is
written as

    φ(z) = 1 + m (z − 1) + (z − 1)² R̂(z),     R_j = E[(V − j − 1)₊] (call prices in bins),

so only R̂ comes from an FFT. Where φ^t matters, |z − 1|² is of order 1/t, so the error of t·ln φ
stays of order u·log N whatever t is.

Notation: V = X / h in bins, z = e^{−iω}, b = z − 1, m = E[V], u the unit round-off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import fft

FloatArray = np.ndarray
UNIT_ROUNDOFF = 2.0**-53
# Forward error of an FFT: each of log₂ N radix-2 levels multiplies by a rounded twiddle factor
# and adds, at most 6.7 u a level (Higham, Accuracy and Stability, §24.1); a radix-3 level counts
# as log₂ 3 of them. 32 u for the inputs.
_ROUNDOFF_A_LEVEL = 8.0
_ROUNDOFF_INPUT = 32.0
_NEGLIGIBLE_LOG = -80.0


@dataclass(frozen=True, slots=True, eq=False)
class SumLaw:
    """Masses of a sum on the bins ``first``, …, ``first + N − 1``; what lies outside wraps in.

    Attributes:
        first: the lowest bin of the window.
        masses: shape (N,).
        l2_error: bound on the ℓ2 norm of the round-off in ``masses``.
    """

    first: int
    masses: FloatArray
    l2_error: float


def calls_in_bins(masses: FloatArray) -> FloatArray:
    """E[(V − j)₊] for j = 0 … J of a law with these masses, shape (J + 1,)."""
    return np.append(_sums_from(_sums_from(masses[1:])), 0.0)


def calls_rounding(cells: int) -> float:
    """Relative error of each price that `calls_in_bins` returns for so many cells."""
    return 4.0 * (math.isqrt(cells) + 3) * UNIT_ROUNDOFF


def _sums_from(values: FloatArray) -> FloatArray:
    """Sums of non-negative values from each index on, in two levels: J terms round like 2√J."""
    width = math.isqrt(values.size) + 1
    rows = np.zeros(width * width)
    rows[: values.size] = values
    within = np.cumsum(rows.reshape(width, width)[:, ::-1], axis=1)[:, ::-1]
    later = np.append(np.cumsum(within[:0:-1, 0])[::-1], 0.0)
    return (within + later[:, None]).ravel()[: values.size]


def power(
    calls: FloatArray,
    count: int,
    size: int,
    first: int,
    *,
    relative_error: float = 0.0,
    price_errors: FloatArray | None = None,
    tilt: float = 0.0,
) -> SumLaw:
    """The law of V_1 + … + V_count.

    Args:
        calls: E[(V − j)₊] in bins, shape (J + 1,), J < ``size``; the last is 0.
        count: t.
        size: N, even; its prime factors should be 2 and 3.
        first: lowest bin of the window to return.
        relative_error: relative error of each call price handed in.
        price_errors: absolute errors of the (tilted) prices in bins from which V's law was
            differenced; at frequency ω they weigh |z − 1|² + ``tilt``².
        tilt: exponential tilt a bin that V's law already contains; 0 for none.

    Returns:
        The law, modulo N bins, with a bound on its round-off.
    """
    omega = 2 * np.pi * np.arange(size // 2 + 1) / size
    turn = -2 * np.sin(omega / 2) ** 2 - 1j * np.sin(omega)
    square = turn.real**2 + turn.imag**2
    mean, rest = float(calls[0]), calls[1:]
    gamma = (_ROUNDOFF_A_LEVEL * np.log2(size) + _ROUNDOFF_INPUT) * UNIT_ROUNDOFF + relative_error
    transform = _rfft(rest, size)
    curvature = turn * turn * transform
    offset = mean * turn + curvature
    phi_error = gamma * square * float(rest.sum())
    spread = _spread(rest)
    if price_errors is not None:
        phi_error += float(price_errors.sum()) * (square + tilt**2)
        spread = max(spread, _spread(price_errors))
    modulus = np.hypot(1.0 + offset.real, offset.imag)

    shift = round(count * mean)
    kept = np.flatnonzero(modulus + phi_error > np.exp(_NEGLIGIBLE_LOG / count))
    exponent = count * (
        _log1p_minus(offset[kept]) + mean * _turn_minus(omega[kept]) + curvature[kept]
    ) - 1j * omega[kept] * (count * mean - shift)
    values = np.exp(exponent)
    magnitude = np.abs(values)
    error = _power_error(modulus[kept], phi_error[kept], count)
    local = magnitude * 8 * UNIT_ROUNDOFF * (1.0 + np.abs(exponent))
    dropped = np.exp(_NEGLIGIBLE_LOG) * np.sqrt(size)
    l2_error = 0.0
    spectrum = np.zeros(omega.size, dtype=complex)
    spectrum[kept] = values
    masses = np.asarray(fft.irfft(spectrum, size))
    l2_error = _norm(error, spread, size) + float(np.linalg.norm(local)) + dropped
    l2_error = np.sqrt(2.0 / size) * l2_error + gamma * float(np.linalg.norm(masses))
    return SumLaw(first, np.roll(masses, shift - first), l2_error)


def _spread(values: FloatArray) -> float:
    """ℓ2 norm over sum."""
    total = float(values.sum())
    return float(np.linalg.norm(values)) / total if total > 0 else 0.0


def _norm(error: FloatArray, spread: float, size: int) -> float:
    """Bound on the ℓ2 norm over frequencies of what errors of the prices make of the law.

    ``error`` bounds each frequency as if all errors met there, w(ω)·Σe. The transform of e has
    ℓ2 norm √N·‖e‖, so max w·√N·‖e‖ is a bound as well, and less where many frequencies count.
    """
    return min(float(np.linalg.norm(error)), float(error.max()) * spread * math.sqrt(size))


def _power_error(modulus: FloatArray, error: FloatArray, count: int) -> FloatArray:
    """(|φ| + e)^count − |φ|^count: what an error e of φ makes of its power."""
    clear = modulus > error
    relative = error / np.where(clear, modulus, 1.0)
    powers = np.exp(count * np.log(np.where(clear, modulus, modulus + error)))
    return np.where(clear, powers * np.expm1(count * np.log1p(relative)), powers)


def _rfft(values: FloatArray, size: int) -> FloatArray:
    return np.asarray(fft.rfft(values, size))


def _log1p_minus(a: FloatArray) -> FloatArray:
    """ln(1 + a) − a without cancellation for small complex a."""
    small = np.abs(a) < 0.05
    result = np.log(np.where(a == -1.0, np.finfo(float).tiny, 1.0 + a)) - a
    x = a[small]
    series = np.zeros_like(x)
    for power_ in range(13, 1, -1):
        series = series * x + (1.0 if power_ % 2 else -1.0) / power_
    result[small] = series * x * x
    return result


def _turn_minus(omega: FloatArray) -> FloatArray:
    """e^{−iω} − 1 + iω without cancellation for small ω."""
    square = omega**2
    series = np.zeros_like(omega)
    for k in range(8, 0, -1):
        series = (1.0 - series) * square / ((2 * k) * (2 * k + 1))
    # The series is 1 − sin(ω)/ω, complete to the last digit for ω < 1.
    imaginary = np.where(omega < 1.0, omega * series, omega - np.sin(omega))
    return -2 * np.sin(omega / 2) ** 2 + 1j * imaginary
