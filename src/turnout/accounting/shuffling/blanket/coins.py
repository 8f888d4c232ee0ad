"""Fair coins: the chance of a number of heads and of more, from one coin to 10⁹.

Relative errors stay below 1e-11 while the chance is above e^{−700}; `betainc` gives the tail. The
deviance form of the mass (Loader 2000) keeps its digits where differences of ln Γ would not.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc, gammaln, xlogy

FloatArray = np.ndarray
_NEAR = 0.3  # |share of heads − ½|·2 up to which the deviance is taken from its series at 0
_TABLE = 16


def heads(coins: FloatArray, count: FloatArray) -> FloatArray:
    """P(Bin(coins, ½) = count), shape of both; count from 0 to coins."""
    tails = coins - count
    mixed = (count > 0) & (tails > 0)
    some, up, down = (np.where(mixed, x, 1.0) for x in (coins, count, tails))
    x = np.where(mixed, (up - down) / some, 0.0)
    exponent = 0.5 * some * (np.log1p(-np.minimum(x * x, 0.5)))
    exponent += np.where(mixed, up - down, 0.0) * np.arctanh(np.clip(x, -_NEAR, _NEAR))
    far = np.abs(x) > _NEAR
    if far.any():
        direct = xlogy(up, 2.0 * up / some) + xlogy(down, 2.0 * down / some)
        exponent = np.where(far, direct, exponent)
    correction = _stirling(some) - _stirling(up) - _stirling(down)
    mass = np.exp(correction - exponent) * np.sqrt(some / (2.0 * math.pi * up * down))
    return np.where(mixed, mass, np.exp2(-coins))


def at_least(coins: FloatArray, count: FloatArray) -> FloatArray:
    """P(Bin(coins, ½) ≥ count), shape of both."""
    inside = (count >= 1) & (count <= coins)
    first = np.where(inside, count, 1.0)
    tail = betainc(first, np.where(inside, coins - first + 1.0, 1.0), 0.5)
    return np.where(inside, tail, np.where(count < 1, 1.0, 0.0))


def _stirling(n: FloatArray) -> FloatArray:
    """Ln n! − (n + ½) ln n + n − ½ ln 2π for whole n ≥ 1."""
    large = np.maximum(n, _TABLE)
    square = large * large
    series = 1 / 1260 - (1 / 1680 - (1 / 1188) / square) / square
    series = (1 / 12 - (1 / 360 - series / square) / square) / large
    if float(np.min(n, initial=_TABLE)) >= _TABLE:
        return series
    return np.where(n < _TABLE, _SMALL[np.minimum(n, _TABLE - 1).astype(np.intp)], series)


_WHOLE = np.arange(1.0, _TABLE)
_SMALL = np.append(
    0.0,
    gammaln(_WHOLE + 1.0) - (_WHOLE + 0.5) * np.log(_WHOLE) + _WHOLE - 0.5 * math.log(2 * math.pi),
)
