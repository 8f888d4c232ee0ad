"""The law of the number of runs of a private search: a table of whole-number weights.

A search draws its number of runs K from a table, so that the law that is priced is the one that is
drawn, to the last bit, and so that no search runs for ever. Families with a name only fill it.

Notation: w_k is the weight of K = k for k = 1 … N, and their sum is 2⁶²; φ(u) = E[u^K].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError
from turnout.randomness import Source

FloatArray = NDArray[np.float64]
TOTAL = 2**62
"""The sum of all weights."""
LARGEST_MOST = 10_000
"""The largest number of runs that a table reaches."""
_LARGEST_SHAPE = 100.0
_CAP = 10.0  # times the mean: where a table ends, unless it is told


@dataclass(frozen=True)
class Stopping:
    """A law of the number of runs K, at least 1 and at most as many as there are weights.

    Attributes:
        weights: w_1 … w_N, whole numbers of at least 0 that sum to 2⁶².

    >>> Stopping.fixed(3).mean
    3.0
    >>> round(Stopping.negative_binomial(10.0).mean, 6)
    10.0
    """

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        fits = self.weights and min(self.weights) >= 0 and sum(self.weights) == TOTAL
        if not fits or len(self.weights) > LARGEST_MOST:
            expected = f"at most {LARGEST_MOST} whole numbers that sum to 2**62"
            raise ParameterError("weights", f"{len(self.weights)} weights", expected)

    @classmethod
    def negative_binomial(
        cls, mean: float, shape: float = 0.0, most: int | None = None
    ) -> Stopping:
        """The negative binomial law given K ≥ 1 and K ≤ ``most``, of a given mean.

        Source: Papernot & Steinke 2022 (papernot2022tuning), Definition 1, cut at ``most``.

        Args:
            mean: E[K], from 1 on.
            shape: η > −1; 1 is the geometric law, 0 the logarithmic one.
            most: the largest K, above the mean; 10 times the mean by default.

        Raises:
            ParameterError: an argument out of its domain.
        """
        if not -1.0 < shape <= _LARGEST_SHAPE:  # NaN too
            raise ParameterError("shape", shape, f"above -1, at most {_LARGEST_SHAPE:g}")
        counts = _counts(mean, most)
        log_ratios = gammaln(counts + shape) - gammaln(counts + 1.0)
        return cls._of_mean(mean, lambda t: log_ratios + counts * t, counts)

    @classmethod
    def poisson(cls, mean: float, most: int | None = None) -> Stopping:
        """The Poisson law given K ≥ 1 and K ≤ ``most``, of a given mean; arguments as above.

        Raises:
            ParameterError: an argument out of its domain.
        """
        counts = _counts(mean, most)
        log_factorials = gammaln(counts + 1.0)
        return cls._of_mean(mean, lambda t: counts * t - log_factorials, counts)

    @classmethod
    def fixed(cls, runs: int) -> Stopping:
        """Always the same number of runs: private, but at a high price."""
        checks.count(runs=runs)
        checks.at_most("the longest table", LARGEST_MOST, runs=runs)
        return cls((*[0] * (runs - 1), TOTAL))

    @classmethod
    def _of_mean(
        cls, mean: float, log_weights: Callable[[float], FloatArray], counts: FloatArray
    ) -> Stopping:
        """The member of an exponential family, weights ∝ exp(log_weights(t)), of that mean."""

        def mean_at(t: float) -> float:
            weights = _normalised(log_weights(t))
            return float(weights @ counts)

        found = bisected(lambda t: mean_at(t) >= mean, -50.0, 50.0, halvings=200)
        return cls(_whole(_normalised(log_weights(found.holding))))

    @property
    def most(self) -> int:
        """The largest number of runs, N."""
        return len(self.weights)

    @property
    def mean(self) -> float:
        """E[K]."""
        return float(self._chances @ np.arange(1.0, self.most + 1.0))

    @cached_property
    def _chances(self) -> FloatArray:
        """P(K = k), shape (N,); dividing by a power of two is exact but for 2⁻⁵³ of a weight."""
        return np.array([weight / TOTAL for weight in self.weights])

    def slope(self, gaps: FloatArray) -> FloatArray:
        """φ'(1 − g) = E[K (1 − g)^{K−1}] for gaps g in [0, 1], to a relative 1e-11.

        All terms are positive, so rounding is relative; powers are taken by `log1p`.
        """
        powers = np.arange(self.most, dtype=float)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log1p(-np.asarray(gaps, dtype=float)), -1e4)
        terms = (powers + 1.0) * self._chances
        return np.array([float(terms @ np.exp(powers * log)) for log in logs])

    def draw(self, source: Source) -> int:
        """A number of runs, drawn exactly by the table; what it is stays secret."""
        position = int(source.below(TOTAL, 1)[0])
        for k, weight in enumerate(self.weights, 1):
            if position < weight:
                return k
            position -= weight
        raise AssertionError  # the weights sum to the range


def _counts(mean: float, most: int | None) -> FloatArray:
    """1 … N, once mean and N are known to fit."""
    checks.positive(mean=mean)
    if not 1.0 <= mean <= LARGEST_MOST / 2:
        raise ParameterError("mean", mean, f"a number from 1 to {LARGEST_MOST // 2}")
    limit = min(int(np.ceil(_CAP * mean)), LARGEST_MOST) if most is None else most
    checks.count(most=limit)
    checks.at_most("the longest table", LARGEST_MOST, most=limit)
    if limit <= mean and limit > 1:
        raise ParameterError("most", limit, f"a whole number above the mean, {mean:g}")
    return np.arange(1.0, limit + 1.0)


def _normalised(log_weights: FloatArray) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _whole(chances: FloatArray) -> tuple[int, ...]:
    """Whole weights near the chances; the likeliest one takes what rounding leaves over."""
    weights = [int(chance * TOTAL) for chance in chances]
    weights[int(np.argmax(chances))] += TOTAL - sum(weights)
    return tuple(weights)
