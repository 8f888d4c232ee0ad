"""Approximate ε of Poisson sampling with Gaussian noise by a tilted FFT, for millions of steps.

The error in δ is about 1e-3 relative, without certification: the figures show Poisson sampling only
for comparison. Tilting by e^{θL}, with θ such that losses near the wanted ε are typical, keeps the
FFT's rounding error relative to δ. The direction is *remove*, the larger one for Gaussian noise.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from turnout.accounting.divergence.pairs import Pair

_SCORES, _REACH = 1 << 18, 11.0
_BINS = 1 << 20
_DEVIATIONS = 12.0  # standard deviations of the sum, on each side
_NEGLIGIBLE = 1e-3  # share of δ for the largest losses
_ROUNDS = 12


@lru_cache(maxsize=4096)
def poisson_epsilon(pair: Pair, rate: float, steps: int, delta: float) -> float:
    """ε of ``steps`` steps in each of which a client participates with probability ``rate``."""
    losses, masses = _step(pair.mu, rate, _NEGLIGIBLE * delta / steps)
    return composed_epsilon(losses, masses, steps, delta)


@lru_cache(maxsize=64)
def decomposed_distribution(pair: Pair, window: int, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Privacy losses of the pair with which Theorem 4.1 compares, for λ = 1/t, and their masses.

    The pair is Poisson sampling conditioned on at least one participation. If that event has
    probability λ', the likelihood ratio of the pair is (S − 1 + λ')/λ'. The masses are accurate
    down to about ``delta``.
    """
    losses, masses = _step(pair.mu, 1 / window, _NEGLIGIBLE * delta / window)
    tail = composed_epsilon(losses, masses, window, delta)
    tilts = (0.0, _tilt(losses, masses, tail / window))
    width = max(_width(losses, _tilted(losses, masses, t)[0], window) for t in tilts)
    parts = []
    for theta in tilts:
        tilted, log_norm = _tilted(losses, masses, theta)
        sums, distribution = _sum_distribution(losses, tilted, window, width / _BINS)
        parts.append(
            (sums, distribution * np.exp(np.clip(window * log_norm - theta * sums, -700, 600)))
        )
    (sums, bulk), (far, distribution) = parts
    # Without a tilt as long as rounding errors do not matter.
    stitch = sums[min(np.searchsorted(-np.cumsum(bulk[::-1])[::-1], -1e-6), sums.size - 1)]
    values = np.concatenate([sums[sums <= stitch], far[far > stitch]])
    present = np.concatenate([bulk[sums <= stitch], distribution[far > stitch]])
    taken = -math.expm1(window * math.log1p(-1 / window))
    ratios = (np.exp(values) - 1 + taken) / taken
    kept = (ratios > 0) & (present > 0)
    conditional = present[kept] * ratios[kept] * np.exp(-values[kept])
    return np.log(ratios[kept]), conditional / conditional.sum()


def composed_epsilon(losses: np.ndarray, masses: np.ndarray, steps: int, delta: float) -> float:
    """ε of ``steps`` independent losses with one distribution."""
    above = np.maximum(losses - float(masses @ losses), 0.0)
    epsilon = math.sqrt(-4 * math.log(delta) * steps * float(masses @ above**2))
    # Chernoff's tilt is too large if single losses are large: tilt to a mean loss of ε.
    for _ in range(_ROUNDS):
        found = _epsilon(losses, masses, steps, delta, _tilt(losses, masses, epsilon / steps))
        if abs(found - epsilon) < 3e-3 * found:
            break
        epsilon = found
    return found


def _step(mu: float, rate: float, rare: float) -> tuple[np.ndarray, np.ndarray]:
    """Increasing losses of one step, and their masses, without tails below ``rare``."""
    scores = np.linspace(-_REACH, _REACH + mu, _SCORES)
    absent = np.exp(-(scores**2) / 2)
    gain = rate * np.expm1(mu * scores - mu**2 / 2)
    masses = absent / absent.sum() * (1 + gain)
    kept = np.cumsum(masses[::-1])[::-1] > rare
    return np.log1p(gain[kept]), masses[kept] / masses[kept].sum()


def _tilt(losses: np.ndarray, masses: np.ndarray, mean: float) -> float:
    """θ for which the tilted mean loss of a step is ``mean``."""

    def excess(log_theta: float) -> float:
        weights = masses * np.exp(math.exp(log_theta) * (losses - losses[-1]))
        return float(weights @ losses / weights.sum()) - mean

    low, high = -4.0, 16.0
    if excess(low) >= 0 or excess(high) <= 0:
        return math.exp(low if excess(low) >= 0 else high)
    return math.exp(brentq(excess, low, high, xtol=1e-3))


def _tilted(losses: np.ndarray, masses: np.ndarray, theta: float) -> tuple[np.ndarray, float]:
    """Tilted masses, and the logarithm of their normalisation."""
    weights = masses * np.exp(theta * (losses - losses[-1]))
    total = float(weights.sum())
    return weights / total, math.log(total) + theta * float(losses[-1])


def _epsilon(
    losses: np.ndarray, masses: np.ndarray, steps: int, delta: float, theta: float
) -> float:
    tilted, log_norm = _tilted(losses, masses, theta)
    sums, distribution = _sum_distribution(
        losses, tilted, steps, _width(losses, tilted, steps) / _BINS
    )
    log_weights = steps * log_norm - theta * sums

    def log_ratio(epsilon: float) -> float:
        above = sums > epsilon
        payoffs = -np.expm1(epsilon - sums[above])
        value = float(
            (distribution[above] * payoffs) @ np.exp(np.minimum(log_weights[above], 600.0))
        )
        return math.log(max(value, 1e-300)) - math.log(delta)

    # Far below the tilted mean, only rounding errors would remain.
    centre = float(distribution @ sums)
    spread = math.sqrt(max(float(distribution @ (sums - centre) ** 2), 0.0))
    low = max(0.0, centre - 6 * spread)
    if log_ratio(low) <= 0:
        return low
    return float(brentq(log_ratio, low, float(sums[-1]), xtol=1e-12, rtol=1e-7))


def _left(losses: np.ndarray, masses: np.ndarray, steps: int) -> float:
    mean = float(masses @ losses)
    return _DEVIATIONS * math.sqrt(max(steps * float(masses @ (losses - mean) ** 2), 1e-300))


def _width(losses: np.ndarray, masses: np.ndarray, steps: int) -> float:
    # One large loss can move the sum to the right by its size.
    seen = losses[masses > 1e-16]
    return 2 * _left(losses, masses, steps) + float(seen[-1] - seen[0])


def _sum_distribution(
    losses: np.ndarray, masses: np.ndarray, steps: int, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """Distribution of the sum of ``steps`` losses, on a circle of bins of width ``step``."""
    places = losses / step
    below = np.floor(places).astype(np.int64)
    upper = places - below
    distribution = np.bincount(below % _BINS, masses * (1 - upper), _BINS)
    distribution += np.bincount((below + 1) % _BINS, masses * upper, _BINS)
    with np.errstate(divide="ignore", under="ignore"):
        power = np.exp(steps * np.log(np.fft.rfft(distribution)))
    total = np.fft.irfft(power, _BINS)
    first = steps * float(masses @ losses) - _left(losses, masses, steps)
    index = math.floor(first / step) + np.arange(_BINS)
    return index * step, total[index % _BINS]
