"""Shuffled binary randomized response at a fixed split, exactly: what lower bounds attain.

Notation
    ε₀  local_epsilon > 0    p = 1/(e^{ε₀} + 1)
    n   messages ≥ 1     k ~ Bin(n, p)   ones, when every record is a zero
    γ   chance in (0, 1]  that the victim's message is among them

With the victim's record a one the likelihood ratio is 1 + γx, x = (e^{ε₀} − e^{−ε₀})(k/n − p).
x has mean 0, so E(1 + γx)^α = 1 + E g with g = (1 + γx)^α − 1 − αγx ≥ 0: no digit is lost where the
divergence is tiny.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.core.bounds import bisected

FloatArray = np.ndarray
_ALL = 4096  # counts that are all summed
_DEVIATIONS = 8.0  # on both sides of the largest term, where they are not
_SERIES = 1e-3  # |αγx| below which g is its series


def log_moment_below(
    orders: FloatArray, local_epsilon: float, messages: int, chance: float
) -> FloatArray:
    """Ln E(1 + γx)^α at each order α ≥ 2, rounded down.

    Source: Theorems 5.3.3 and 5.4.2 of Girgis 2023 (girgis2023thesis); terms that are left out
    are not negative.
    """
    return np.array([_one(order, local_epsilon, messages, chance) for order in orders])


def _one(order: float, local_epsilon: float, messages: int, chance: float) -> float:
    p = math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
    if messages <= _ALL:
        counts = np.arange(messages + 1.0)
    else:
        middle = _mode(order, local_epsilon, messages, chance)
        width = _DEVIATIONS * (math.sqrt(messages * p * (1 - p)) + 1)
        low, high = max(0.0, middle - width), min(float(messages), middle + width)
        counts = np.arange(math.floor(low), math.ceil(high) + 1.0)
    log_law = _log_binomial(counts, messages, p)
    x = chance * _change(counts, local_epsilon, messages)
    logs = log_law + log_excess(x, order)
    largest = float(logs.max())
    if largest == -math.inf:
        return 0.0
    # Gamma functions of n carry the largest rounding error.
    error = 16 * UNIT_ROUNDOFF * (gammaln(messages + 1.0) + order * local_epsilon + 100) + 1e-10
    log_sum = largest + math.log(float(np.exp(logs - largest).sum())) - error
    return float(np.logaddexp(0.0, log_sum)) * (1 - 8 * UNIT_ROUNDOFF)


def _change(counts: FloatArray, local_epsilon: float, messages: int) -> FloatArray:
    """The likelihood ratio less 1."""
    p = math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
    return 2 * math.sinh(local_epsilon) * (counts / messages - p)


def _log_binomial(counts: FloatArray, messages: int, p: float) -> FloatArray:
    """Ln of the binomial law at neighbouring counts, from its middle outwards by ratios."""
    middle = counts.size // 2
    at = counts[middle]
    choices = gammaln(messages + 1.0) - gammaln(at + 1) - gammaln(messages - at + 1)
    start = choices + at * math.log(p) + (messages - at) * math.log1p(-p)
    rises = np.log((messages - counts[:-1]) / (counts[1:])) + math.log(p) - math.log1p(-p)
    above = start + np.cumsum(rises[middle:])
    below = start - np.cumsum(rises[:middle][::-1])[::-1]
    return np.concatenate([below, [start], above])


def log_excess(x: FloatArray | float, order: FloatArray | float) -> FloatArray:
    """Ln((1 + x)^α − 1 − αx) for x > −1 and α ≥ 2, to 1e-10; arrays broadcast."""
    # The series overflows where it is not what is returned.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        powers = order * np.log1p(x)
        direct = np.where(
            powers > 30,
            powers + np.log1p(-np.exp(-np.maximum(powers, 30)) * (1 + order * x)),
            np.log(np.maximum(np.expm1(np.minimum(powers, 31.0)) - order * x, 0.0)),
        )
        # The first terms of the binomial series; the fifth is below 1e-9 of the second.
        third = (order - 2) / 3 * x
        fourth = third * (order - 3) / 4 * x
        series = np.log(order * (order - 1) / 2 * x**2 * (1 + third + fourth))
    return np.where(np.abs(order * x) < _SERIES, series, direct)


def _mode(order: float, local_epsilon: float, messages: int, chance: float) -> float:
    """About the count with the largest term: the concave ln of law times (1 + γx)^α peaks there."""
    odds = math.exp(-local_epsilon)

    def past(count: float) -> bool:
        slope = math.log((messages - count + 0.5) / (count + 0.5) * odds)
        ratio = 1 + chance * float(_change(np.array(count), local_epsilon, messages))
        slope += order * chance * 2 * math.sinh(local_epsilon) / messages / ratio
        return not slope > 0

    return bisected(past, 0.0, float(messages), halvings=60).middle
