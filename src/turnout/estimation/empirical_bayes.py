"""Frequencies shrunk by what the other items look like.

Notation: x_v the raw estimate of item v, s_v its standard error, f_v its frequency, G the law of
the frequencies of all items, as masses w_j on a grid of points g_j ≥ 0.

x_v is nearly normal around f_v. If the f_v were drawn from G, the best guess of f_v in squared
error would be its posterior mean. G is not known, but k raw estimates say much about it: its
maximum-likelihood estimate is found by expectation maximisation, held to the mean 1/k, which is
known. Nothing but the public estimates goes in, so it costs no privacy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core.errors import ParameterError

_FEWEST, _MOST = 301, 1201
"""Points of the grid, besides those at the largest raw estimates."""
_LARGEST = 200
_ROUNDS = 200
_DIRECT = 2**12
"""Items up to which each enters on its own; more are counted in bins of a tenth of an error."""
_BLOCK = 2**12


def shrink(raw: ArrayLike, standard_errors: ArrayLike) -> NDArray[np.float64]:
    """Posterior means of all frequencies under the law that fits them best, scaled to sum to 1.

    Source: Robbins, An empirical Bayes approach to statistics, 1956; Kiefer, Wolfowitz, Ann. Math.
        Stat. 1956 (the maximum-likelihood law); Jiang, Zhang, General maximum likelihood empirical
        Bayes estimation of normal means, Ann. Stat. 2009 (close to the best of all rules that
        treat items alike).

    Meant for some hundred items or more. It treats equal raw estimates with equal errors alike,
    so where errors differ they must not tell which items are frequent.

    Args:
        raw: the unbiased estimate, finite, shape (k,).
        standard_errors: above 0, shape (k,).

    Returns:
        Non-negative, summing to 1, shape (k,).
    """
    x, s = np.asarray(raw, dtype=np.float64), np.asarray(standard_errors, dtype=np.float64)
    if x.ndim != 1 or not x.size or not np.all(np.isfinite(x)):
        raise ParameterError("raw", x.shape, "finite numbers of shape (k,)")
    if s.shape != x.shape or not np.all((s > 0) & np.isfinite(s)):
        raise ParameterError("standard_errors", s.shape, f"{x.size} finite numbers above 0")
    grid = _grid(x, s)
    prior = _fitted(*_binned(x, s), grid)
    means = np.concatenate(
        [
            _posterior_means(x[at : at + _BLOCK], s[at : at + _BLOCK], grid, prior)
            for at in range(0, x.size, _BLOCK)
        ]
    )
    total = means.sum()
    return means / total if total > 0 else np.full(x.size, 1 / x.size)


def _grid(x: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points g_j: denser near 0, where most items are, half an error apart at the far end.

    The largest raw estimates are points themselves, so that a lone frequent item finds its place
    however small its error.
    """
    largest = max(float(x.max()), 3 * float(s.max()))
    count = int(np.clip(4 * largest / float(np.median(s)), _FEWEST, _MOST))
    own = np.sort(x)[-_LARGEST:]
    return np.unique(np.concatenate([np.linspace(0, 1, count) ** 2 * largest, own[own > 0]]))


def _binned(
    x: NDArray[np.float64], s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Values, errors and how many items each stands for."""
    if x.size <= _DIRECT:
        return x, s, np.ones(x.size)
    error = float(np.sqrt(np.mean(s**2)))
    bins = np.rint(x / (error / 10)).astype(np.int64)
    _, where, counts = np.unique(bins, return_inverse=True, return_counts=True)
    mean = np.bincount(where, weights=x) / counts
    errors = np.sqrt(np.bincount(where, weights=s**2) / counts)
    return mean, errors, counts.astype(np.float64)


def _likelihood(
    x: NDArray[np.float64], s: NDArray[np.float64], grid: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Density of each value at each point, up to a factor for each value."""
    distance = ((x[:, None] - grid) / s[:, None]) ** 2
    return np.exp(-0.5 * (distance - distance.min(axis=1, keepdims=True)))


def _fitted(
    x: NDArray[np.float64],
    s: NDArray[np.float64],
    counts: NDArray[np.float64],
    grid: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Masses of the law on the grid, by expectation maximisation at a fixed mean."""
    likelihood = _likelihood(x, s, grid)
    masses = np.full(grid.size, 1 / grid.size)
    share, mean = counts / counts.sum(), 1 / counts.sum()
    for _ in range(_ROUNDS):
        masses = masses * ((share / (likelihood @ masses)) @ likelihood)
        masses = _tilted(masses, grid, mean)
    return masses


def _tilted(
    masses: NDArray[np.float64], grid: NDArray[np.float64], mean: float
) -> NDArray[np.float64]:
    """The nearest law (in relative entropy) with this mean: masses times e^{t·g}."""
    low, high = -200.0 / grid[-1], 200.0 / grid[-1]
    tilted = masses
    for _ in range(50):
        slope = (low + high) / 2
        tilted = masses * np.exp(slope * grid - max(slope * grid[-1], 0.0))
        tilted /= tilted.sum()
        if tilted @ grid < mean:
            low = slope
        else:
            high = slope
    return tilted


def _posterior_means(
    x: NDArray[np.float64],
    s: NDArray[np.float64],
    grid: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    weights = _likelihood(x, s, grid) * prior
    return (weights @ grid) / weights.sum(axis=1)
