"""Pairs given by two distributions on the line whose density ratio is monotone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from turnout.core.bounds import bisected_each
from turnout.core.errors import ParameterError

FloatArray = np.ndarray
_PROBES = 4001
_HALVINGS = 70


class Distribution(Protocol):
    """A continuous distribution on the line, as SciPy freezes one."""

    def cdf(self, x: FloatArray, /) -> FloatArray:
        """P(Z ≤ x)."""
        ...

    def sf(self, x: FloatArray, /) -> FloatArray:
        """P(Z > x), accurate where it is tiny."""
        ...

    def logpdf(self, x: FloatArray, /) -> FloatArray:
        """Ln of the density."""
        ...


@dataclass(frozen=True, eq=False)
class MonotonePair:
    """Two densities on an interval whose ratio never falls: the user vouches for that.

    What is checked is that the ratio does not fall between some thousand points. Tail functions
    are as accurate as the distributions' own, which is not proved.

    Attributes:
        present, absent: P and Q.
        low, high: an interval outside which both have no mass that counts.
    """

    present: Distribution
    absent: Distribution
    low: float
    high: float

    def __post_init__(self) -> None:
        ratios = self._log_ratio(np.linspace(self.low, self.high, _PROBES))
        if np.isnan(ratios).any() or np.any(np.diff(ratios) < -1e-9 * (1.0 + np.abs(ratios[1:]))):
            raise ParameterError("present", "a density", "one whose ratio to absent never falls")

    def _log_ratio(self, z: FloatArray) -> FloatArray:
        return self.present.logpdf(z) - self.absent.logpdf(z)

    @cached_property
    def second_moment(self) -> float:
        """E_Q[X²] = E_P[X], by a sum over quantile cells (it only steers grids)."""
        edges = np.linspace(self.low, self.high, _PROBES)
        middles = 0.5 * (edges[1:] + edges[:-1])
        return float(np.diff(self.present.cdf(edges)) @ np.exp(self._log_ratio(middles)))

    def _place(self, k: FloatArray) -> FloatArray:
        """The largest z at which the ratio is at most k, by halving."""
        with np.errstate(divide="ignore"):
            target = np.log(np.asarray(k, dtype=float))
        low, high = bisected_each(
            lambda z: ~(self._log_ratio(z) <= target),
            np.full_like(target, self.low),
            np.full_like(target, self.high),
            _HALVINGS,
        )
        z = 0.5 * (low + high)
        z = np.where(self._log_ratio(np.full_like(z, self.low)) > target, -np.inf, z)
        return np.where(self._log_ratio(np.full_like(z, self.high)) <= target, np.inf, z)

    def q_below(self, k: FloatArray) -> FloatArray:
        """Q(X ≤ k)."""
        return self.absent.cdf(self._place(k))

    def q_above(self, k: FloatArray) -> FloatArray:
        """Q(X > k)."""
        return self.absent.sf(self._place(k))

    def p_below(self, k: FloatArray) -> FloatArray:
        """P(X ≤ k)."""
        return self.present.cdf(self._place(k))

    def p_above(self, k: FloatArray) -> FloatArray:
        """P(X > k)."""
        return self.present.sf(self._place(k))
