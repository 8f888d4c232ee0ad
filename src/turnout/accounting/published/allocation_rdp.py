"""Rényi divergences of random allocation, by the papers' own numbers.

Source: Feldman and Shenfeld 2025 (feldman2025allocation), Theorem 4.6 and Corollary 4.7; Dong, Chen
and Ozgur 2025 (dong2025randomness), Theorem 3.1. All of them cover the *remove* direction
alone, so none is a guarantee (docs/errata.md, random allocation 1).

Notation
    α    order        D_p  E_Q[X^p], of one step; under random allocation E_Q[S^α]
    t    window       k    picks          μ = 1/σ, σ the noise multiplier

Theorem 4.6 sums over the integer partitions of α. The same number is a coefficient of a power
series, D_α = α!/t^α · [x^α] (Σ_p D_p x^p/p!)^t, all of whose terms are positive: repeated squaring
in log space gives every order up to A at once in A² log t operations.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.published.renyi import RenyiCurve
from turnout.accounting.published.results import Paper
from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes import Relation

FloatArray = np.ndarray
MOST_ORDER = 256


def gaussian_log_moments(noise_multiplier: float, largest_order: int = MOST_ORDER) -> FloatArray:
    """The ln D_p = p(p − 1)/(2σ²) of Gaussian noise for p = 0 … A, shape (A + 1,)."""
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(2, largest_order=largest_order)
    orders = np.arange(largest_order + 1.0)
    return orders * (orders - 1) / (2 * noise_multiplier**2)


def theorem_4_6(log_moments: FloatArray, window: int) -> RenyiCurve:
    """The Rényi curve of one check-in in a window, exact but for rounding (upwards).

    Source: Theorem 4.6, as a power series. ``log_moments`` are ln D_0 … ln D_A of one step in the
    remove direction, shape (A + 1,); the curve has ln E_Q[S^α] for α = 0 … A.

    >>> curve = theorem_4_6(gaussian_log_moments(1.0, 2), 10)
    >>> round(math.exp(curve.divergence(2)), 6) == round(1 + (math.e - 1) / 10, 6)
    True
    """
    checks.count(window=window)
    moments = np.asarray(log_moments, dtype=float)
    if moments.ndim != 1 or moments.size < 3 or abs(moments[:2]).max() > 1e-9:
        raise ParameterError("log_moments", moments[:3], "ln D_0 = ln D_1 = 0, ln D_2, ...")
    orders = np.arange(moments.size)
    factorials = gammaln(orders + 1.0)
    series = moments - factorials
    power = _series_power(series, window)
    logs = power + factorials - orders * math.log(window)
    logs = logs + _rounding_error(np.max(np.abs(np.append(series, power))), orders, window)
    logs[:2] = 0.0
    # D_α ≥ 1 by Jensen.
    return RenyiCurve(np.maximum(logs, 0.0))


def corollary_4_7(
    noise_multiplier: float, window: int, picks: int = 1, largest_order: int = MOST_ORDER
) -> RenyiCurve:
    """The Rényi curve of check-ins with Gaussian noise, for k > 1 by Lemma 3.11.

    Source: Corollary 4.7; k picks are bounded by k windows of ⌊t/k⌋ steps. Exact for k = 1.
    """
    checks.count(window=window, picks=picks)
    checks.at_most("window", window, picks=picks)
    moments = gaussian_log_moments(noise_multiplier, largest_order)
    return theorem_4_6(moments, window // picks).composed(picks)


def log_sum(terms: FloatArray) -> FloatArray:
    """Ln of the sum of exponentials along the last axis."""
    largest = np.max(terms, axis=-1, keepdims=True)
    return largest[..., 0] + np.log(np.sum(np.exp(terms - largest), axis=-1))


def _series_power(series: FloatArray, exponent: int) -> FloatArray:
    """Log-coefficients of a power series to a whole power, by squaring."""
    power, base = None, series
    while exponent:
        if exponent & 1:
            power = base if power is None else _product(power, base)
        exponent >>= 1
        if exponent:
            base = _product(base, base)
    assert power is not None
    return power


def _product(first: FloatArray, second: FloatArray) -> FloatArray:
    size = first.size
    index = np.arange(size)[:, None] - np.arange(size)
    terms = np.where(index >= 0, first + second[np.maximum(index, 0)], -np.inf)
    return log_sum(terms)


def _rounding_error(largest: float, orders: FloatArray, window: int) -> FloatArray:
    """Bound on the rounding error of ln D_α.

    The constant coefficient is exactly 1, so α of the factors at most carry an error, and a product
    adds its own: α·(products)·(a few u of the largest logarithm, α + 1 terms a sum).
    """
    products = 2 * window.bit_length() + 2
    return orders * products * UNIT_ROUNDOFF * (8 * (1 + largest) + 2 * orders.size)


_PAPER = Paper("random allocation", "feldman2025allocation", Relation.ZERO_OUT)
RESULTS = (
    _PAPER.states(
        "Theorem 4.6",
        theorem_4_6,
        "moments of the likelihood ratio",
        "one pick; real orders by convexity",
    ),
    _PAPER.states("Corollary 4.7", corollary_4_7, "Gaussian", "k picks as k windows (Lemma 3.11)"),
)
