"""Means of the largest scores of random directions, by quadrature."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import betainc, erfc, gammaln

_NODES, _FARTHEST = 600, 9.0


@lru_cache(maxsize=4096)
def largest_scores(dimension: int, directions: int, preferred: int) -> float:
    """E of the sum of the ``preferred`` largest |⟨u, x⟩| over independent uniform unit u.

    It is ∫₀¹ E min(t, N(z)) dz with N(z) the number of scores above z, a binomial count.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    # Scores are of the size of 1/√d, so the nodes are put there: z = y² gathers them near 0.
    roots = (nodes + 1) / 2
    chance = betainc((dimension - 1) / 2, 0.5, 1 - roots**4)
    expected = sum(betainc(rank, directions - rank + 1, chance) for rank in range(1, preferred + 1))
    return float(np.sum(weights * roots * expected))


@lru_cache(maxsize=4096)
def largest_normals(count: int, largest: int) -> float:
    """E of the sum of the ``largest`` greatest |g| over ``count`` independent normal g.

    It is ∫₀^∞ E min(t, N(z)) dz with N(z) the number above z, a binomial count.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    at = (nodes + 1) / 2 * _FARTHEST
    above = erfc(at / math.sqrt(2))
    expected = sum(betainc(rank, count - rank + 1, above) for rank in range(1, largest + 1))
    return float(np.sum(weights * expected) * _FARTHEST / 2)


def mean_length(dimension: int) -> float:
    """E‖g‖ of a normal vector."""
    return math.sqrt(2) * math.exp(gammaln((dimension + 1) / 2) - gammaln(dimension / 2))
